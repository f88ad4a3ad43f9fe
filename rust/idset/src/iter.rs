//! Iterators over ranges and over ids, from both ends.
use std::iter::FusedIterator;
use std::ops::RangeInclusive;

use crate::IdSet;
use crate::bits::Bits;
use crate::set::View;
use crate::spans::{self, Span};

/// Iterator over the maximal ranges of a set in ascending order; see [`IdSet::ranges`].
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    source: Source<'a>,
    /// Ids outside `lo..=hi` are not, or no longer, of interest; `lo > hi` is the end.
    lo: u32,
    hi: u32,
}

#[derive(Clone, Debug)]
enum Source<'a> {
    Bits(Bits<'a>),
    Spans(spans::Iter<'a>),
}

impl<'a> Ranges<'a> {
    pub(crate) fn new(set: &'a IdSet) -> Self {
        Self::within(set, 0, IdSet::MAX_ID)
    }

    /// The ranges of the part of the set that lies in `lo..=hi`.
    pub(crate) fn within(set: &'a IdSet, lo: u32, hi: u32) -> Self {
        let source = match set.view() {
            View::Bits(bits) => Source::Bits(bits),
            View::Spans(spans) => Source::Spans(spans.iter_from(lo)),
        };
        Self { source, lo, hi }
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
        let span = match &mut self.source {
            Source::Bits(bits) => bits.next_run(self.lo),
            Source::Spans(spans) => spans.next(),
        };
        let range = span.and_then(|span| self.cut(span));
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
        while self.lo <= self.hi {
            let span = match &mut self.source {
                Source::Bits(bits) => bits.prev_run(self.hi),
                Source::Spans(spans) => spans.next_back(),
            };
            let Some(span) = span else { break };
            // The list of spans may go on above `hi`.
            if span.lo > self.hi {
                continue;
            }
            let range = self.cut(span);
            match range
                .as_ref()
                .and_then(|range| range.start().checked_sub(1))
            {
                Some(hi) => self.hi = hi,
                None => self.end(),
            }
            return range;
        }
        self.end();
        None
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
        let all = Span {
            lo: 0,
            hi: IdSet::MAX_ID,
        };
        Self::within(set, Some(all))
    }

    /// The ids in a span.
    pub(crate) fn within(set: &'a IdSet, span: Option<Span>) -> Self {
        let (ranges, left) = match span {
            Some(Span { lo, hi }) => (
                Ranges::within(set, lo, hi),
                set.count_below(hi + 1) - set.count_below(lo),
            ),
            None => (Ranges::within(set, 1, 0), 0),
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
