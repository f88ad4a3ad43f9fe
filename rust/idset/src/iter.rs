//! Iterators over ranges and over ids, from both ends.
use core::iter::FusedIterator;
use core::ops::RangeInclusive;

use crate::body::Body;
use crate::chunks::{Chunk, Span, place};
use crate::run::Run;
use crate::set::{MAX_ID, clipped};
use crate::{Form, IdSet, words};

impl IdSet {
    /// Whether every id of the range is in the set; true of an empty range.
    pub fn contains_range(&self, range: RangeInclusive<u32>) -> bool {
        if range.is_empty() {
            return true;
        }
        let (lo, hi) = (*range.start(), *range.end());
        hi <= MAX_ID
            && Ranges::within(self, Span { lo, hi })
                .next()
                .is_some_and(|found| found == range)
    }

    /// The ids in ascending order.
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(self)
    }

    /// The ids in a range, in ascending order.
    pub fn iter_range(&self, range: RangeInclusive<u32>) -> Iter<'_> {
        Iter::within(self, clipped(&range))
    }

    /// The ranges of the canonical text, in ascending order: maximal, with a gap between any two.
    pub fn ranges(&self) -> Ranges<'_> {
        Ranges::new(self)
    }

    /// The ranges of the part of the set that lies in a range.
    pub fn ranges_within(&self, range: RangeInclusive<u32>) -> Ranges<'_> {
        Ranges::within(self, clipped(&range).unwrap_or(Span::EMPTY))
    }
}

/// Iterator over the maximal ranges of a set in ascending order; see [`IdSet::ranges`].
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    set: &'a IdSet,
    /// Made at the first call from the front.
    forward: Option<Forward<'a>>,
    /// Ids outside `lo..=hi` are not, or no longer, of interest; `lo > hi` is the end.
    lo: u32,
    hi: u32,
}

/// The spans from some id on, in ascending order.
#[derive(Clone, Debug)]
struct Forward<'a> {
    /// The next span, read ahead because it may touch the previous one.
    stash: Option<Span>,
    /// The chunk that is being read.
    key: u32,
    runs: BodyRuns<'a>,
    rest: &'a [Chunk],
}

/// The runs of a chunk that are still to come.
#[derive(Clone, Debug)]
enum BodyRuns<'a> {
    Full(Option<Span>),
    Ids(&'a [u16]),
    Runs(core::slice::Iter<'a, Run>),
    Bits(words::Runs<'a>),
}

impl<'a> Forward<'a> {
    fn new(set: &'a IdSet, from: u32) -> Self {
        let (key, low) = place(from);
        let mut forward = Self {
            stash: None,
            key: 0,
            runs: BodyRuns::Full(None),
            rest: &[],
        };
        match &set.form {
            Form::Small(words) => {
                forward.runs = BodyRuns::Bits(words::Runs::new(words, from as usize));
            }
            Form::Large(chunks) => {
                forward.rest = &chunks.as_slice()[chunks.at(key)..];
                let low = match forward.rest.first() {
                    Some(chunk) if chunk.key <= key => low,
                    _ => 0,
                };
                forward.enter(low);
            }
        }
        forward
    }

    /// Goes on to the next chunk, without what ends below `low` there. Returns whether there is one.
    fn enter(&mut self, low: u16) -> bool {
        let Some((chunk, rest)) = self.rest.split_first() else {
            return false;
        };
        self.rest = rest;
        self.key = chunk.key;
        self.runs = match &chunk.body {
            Body::Full => BodyRuns::Full(Some(chunk.span(Run::ALL))),
            Body::Ids(ids) => BodyRuns::Ids(&ids[ids.partition_point(|&id| id < low)..]),
            Body::Runs(runs) => {
                BodyRuns::Runs(runs[runs.partition_point(|run| run.hi < low)..].iter())
            }
            Body::Bits(words) => BodyRuns::Bits(words::Runs::new(words, low.into())),
        };
        true
    }

    /// The next span of this chunk or of the next one.
    fn raw(&mut self) -> Option<Span> {
        loop {
            let base = self.key << 16;
            let span = match &mut self.runs {
                BodyRuns::Full(span) => span.take(),
                BodyRuns::Ids(ids) => ids.first().map(|&first| {
                    let more = ids.windows(2).position(|pair| pair[0] + 1 != pair[1]);
                    let (run, rest) = ids.split_at(more.map_or(ids.len(), |at| at + 1));
                    *ids = rest;
                    Span {
                        lo: base | u32::from(first),
                        hi: base | u32::from(run[run.len() - 1]),
                    }
                }),
                BodyRuns::Runs(runs) => runs.next().map(|run| Span {
                    lo: base | u32::from(run.lo),
                    hi: base | u32::from(run.hi),
                }),
                BodyRuns::Bits(runs) => runs.next().map(|(lo, hi)| Span {
                    lo: base | bit(lo),
                    hi: base | bit(hi),
                }),
            };
            if span.is_some() || !self.enter(0) {
                return span;
            }
        }
    }

    fn next(&mut self) -> Option<Span> {
        let mut span = self.stash.take().or_else(|| self.raw())?;
        // Only at the end of a chunk can there be one that touches it.
        while span.hi & 0xFFFF == 0xFFFF {
            match self.raw() {
                Some(more) if more.lo == span.hi + 1 => span.hi = more.hi,
                more => {
                    self.stash = more;
                    break;
                }
            }
        }
        Some(span)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a bit of a chunk")]
fn bit(number: usize) -> u32 {
    number as u32
}

impl<'a> Ranges<'a> {
    pub(crate) fn new(set: &'a IdSet) -> Self {
        let all = Span { lo: 0, hi: MAX_ID };
        Self::within(set, all)
    }

    /// The ranges of the part of the set that lies in a span.
    pub(crate) fn within(set: &'a IdSet, Span { lo, hi }: Span) -> Self {
        Self {
            set,
            forward: None,
            lo,
            hi,
        }
    }

    /// A range inside `lo..=hi`, if the span has such a part.
    fn cut(&self, span: Span) -> Option<RangeInclusive<u32>> {
        let (lo, hi) = (span.lo.max(self.lo), span.hi.min(self.hi));
        (lo <= hi).then_some(lo..=hi)
    }

    fn end(&mut self) {
        (self.lo, self.hi) = (1, 0);
    }
}

impl Iterator for Ranges<'_> {
    type Item = RangeInclusive<u32>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.lo > self.hi {
            return None;
        }
        let (set, lo) = (self.set, self.lo);
        let forward = self.forward.get_or_insert_with(|| Forward::new(set, lo));
        let range = forward.next().and_then(|span| self.cut(span));
        match &range {
            // Ids end below `u32::MAX`: the sum does not overflow.
            Some(range) => self.lo = range.end() + 1,
            None => self.end(),
        }
        range
    }
}

impl DoubleEndedIterator for Ranges<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.lo > self.hi {
            return None;
        }
        let mut range = self.set.span_back(self.hi).and_then(|span| self.cut(span));
        // A span of the previous chunk that touches it is a part of the same range.
        while let Some(found) = &mut range
            && *found.start() > self.lo
            && let Some(before) = found.start().checked_sub(1)
            && let Some(more) = self.set.span_back(before).and_then(|span| self.cut(span))
            && *more.end() >= before
        {
            *found = *more.start()..=*found.end();
        }
        match range
            .as_ref()
            .and_then(|range| range.start().checked_sub(1))
        {
            Some(hi) => self.hi = hi,
            None => self.end(),
        }
        range
    }
}

impl FusedIterator for Ranges<'_> {}

/// Iterator over the ids of a set in ascending order; see [`IdSet::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    ranges: Ranges<'a>,
    front: RangeInclusive<u32>,
    back: RangeInclusive<u32>,
    left: u64,
}

#[expect(
    clippy::reversed_empty_ranges,
    reason = "the empty range is what is meant"
)]
const EMPTY: RangeInclusive<u32> = 1..=0;

impl<'a> Iter<'a> {
    pub(crate) fn new(set: &'a IdSet) -> Self {
        let all = Span { lo: 0, hi: MAX_ID };
        Self::within(set, Some(all))
    }

    /// The ids in a span.
    pub(crate) fn within(set: &'a IdSet, span: Option<Span>) -> Self {
        let (ranges, left) = match span {
            Some(span) => (
                Ranges::within(set, span),
                set.count_below(span.hi + 1) - set.count_below(span.lo),
            ),
            None => (Ranges::within(set, Span::EMPTY), 0),
        };
        Self {
            ranges,
            front: EMPTY,
            back: EMPTY,
            left,
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        loop {
            if let Some(id) = self.front.next() {
                return Some(id);
            }
            match self.ranges.next() {
                Some(range) => self.front = range,
                None => return self.back.next(),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.left) {
            Ok(left) => (left, Some(left)),
            Err(_) => (usize::MAX, None),
        }
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        loop {
            if let Some(id) = self.back.next_back() {
                return Some(id);
            }
            match self.ranges.next_back() {
                Some(range) => self.back = range,
                None => return self.front.next_back(),
            }
        }
    }
}

impl FusedIterator for Iter<'_> {}
