//! The set, its forms, and what asks for or changes single ids and ranges.
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::Error;
use crate::body::Body;
use crate::builder::Builder;
use crate::chunks::{Chunk, Chunks};
use crate::iter::{Iter, Ranges};
use crate::span::Span;
use crate::words::{self, BITS};

/// Ids below this are kept without heap.
pub(crate) const SMALL: u32 = 128;

/// An ordered set of ids.
///
/// A clone costs nothing: the two are kept once until one of them changes.
///
/// Costs: single ids and ranges are added, removed and looked up in time logarithmic in the number of chunks of
/// 65,536 ids that are not empty, and at most a few microseconds in their chunk; `len` is constant.
#[derive(Clone, Debug)]
pub struct IdSet {
    pub(crate) form: Form,
}

/// How a set is kept. `Small` exactly when all ids are below [`SMALL`].
#[derive(Clone, Debug)]
pub(crate) enum Form {
    Small([u64; 2]),
    /// Shared by copies until one of them changes.
    Large(Arc<Chunks>),
}

/// The span of a range, cut off at the greatest id; none where it is empty.
pub(crate) fn span(range: &RangeInclusive<u32>) -> Option<Span> {
    let (lo, hi) = (*range.start(), (*range.end()).min(IdSet::MAX_ID));
    (lo <= hi && !range.is_empty()).then_some(Span { lo, hi })
}

impl IdSet {
    /// The greatest id, 4294967294.
    pub const MAX_ID: u32 = u32::MAX - 1;

    /// The empty set.
    pub const fn new() -> Self {
        Self {
            form: Form::Small([0; 2]),
        }
    }

    /// The ids of a range; what lies above [`Self::MAX_ID`] is left out.
    pub fn with_range(range: RangeInclusive<u32>) -> Self {
        Builder::build(span(&range).into_iter())
    }

    /// Whether the two are copies of each other that have not changed since: without looking at their ids.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Small(a), Form::Small(b)) => a == b,
            (Form::Large(a), Form::Large(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    pub(crate) fn from_form(form: Form) -> Self {
        Self { form }
    }

    /// The set of some chunks, in the small form where that fits.
    pub(crate) fn from_chunks(chunks: Chunks) -> Self {
        let mut set = Self::from_form(Form::Large(Arc::new(chunks)));
        set.settle();
        set
    }

    /// Takes up the small form where no id needs more.
    fn settle(&mut self) {
        let Form::Large(chunks) = &self.form else {
            return;
        };
        match chunks.as_slice() {
            [] => *self = Self::new(),
            [one] if one.key == 0 && u32::from(one.body.last()) < SMALL => {
                let mut words = [0; 2];
                let mut from = 0;
                while let Some(run) = one.body.run_from(from) {
                    words::set(&mut words, run.lo.into(), run.hi.into());
                    from = run.hi + 1;
                }
                self.form = Form::Small(words);
            }
            _ => {}
        }
    }

    /// The chunks of the set, made for the occasion where it is small.
    pub(crate) fn chunks(&self) -> Cow<'_, Chunks> {
        match &self.form {
            Form::Large(chunks) => Cow::Borrowed(chunks),
            Form::Small(words) => {
                let mut chunks = Chunks::default();
                let mut words = words.to_vec();
                words::trim(&mut words);
                if !words.is_empty() {
                    chunks.push(Chunk::new(0, Body::Bits(words)));
                }
                Cow::Owned(chunks)
            }
        }
    }

    /// How many ids there are.
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Small(words) => (words[0].count_ones() + words[1].count_ones()).into(),
            Form::Large(chunks) => chunks.len(),
        }
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        matches!(self.form, Form::Small([0, 0]))
    }

    /// How many ranges the canonical text has. Counted each time.
    pub fn range_count(&self) -> usize {
        match &self.form {
            Form::Small(words) => words::count_runs(words),
            Form::Large(chunks) => {
                let chunks = chunks.as_slice();
                let runs: usize = chunks.iter().map(|chunk| chunk.body.runs_len()).sum();
                let joined = chunks.windows(2).filter(|pair| {
                    pair[0].last + 1 == pair[1].key
                        && pair[0].body.last() == u16::MAX
                        && pair[1].body.first() == 0
                });
                runs - joined.count()
            }
        }
    }

    /// Bytes that the set has on the heap: about what an operation on it has to look at.
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Small(_) => 0,
            Form::Large(chunks) => {
                2 * size_of::<usize>() + size_of::<Chunks>() + chunks.heap_bytes()
            }
        }
    }

    /// Whether the id is in the set.
    pub fn contains(&self, id: u32) -> bool {
        match &self.form {
            Form::Small(words) => words::contains(words, id as usize),
            Form::Large(chunks) => chunks.contains(id),
        }
    }

    /// Whether every id of the range is in the set; true of an empty range.
    pub fn contains_range(&self, range: RangeInclusive<u32>) -> bool {
        if range.is_empty() {
            return true;
        }
        let (lo, hi) = (*range.start(), *range.end());
        hi <= Self::MAX_ID
            && Ranges::within(self, lo, hi)
                .next()
                .is_some_and(|found| found == range)
    }

    /// The lowest id.
    pub fn first(&self) -> Option<u32> {
        self.at_or_after(0)
    }

    /// The greatest id.
    pub fn last(&self) -> Option<u32> {
        self.at_or_before(Self::MAX_ID)
    }

    pub(crate) fn at_or_after(&self, id: u32) -> Option<u32> {
        match &self.form {
            Form::Small(words) => words::next_set(words, id as usize).map(small_id),
            Form::Large(chunks) => chunks.at_or_after(id),
        }
    }

    fn at_or_before(&self, id: u32) -> Option<u32> {
        self.span_back(id).map(|span| span.hi.min(id))
    }

    /// The last span that starts at or before `id`; it may be a part of a longer range.
    pub(crate) fn span_back(&self, id: u32) -> Option<Span> {
        match &self.form {
            Form::Small(words) => {
                let hi = words::prev_set(words, id as usize)?;
                let lo = words::prev_clear(words, hi).map_or(0, |clear| clear + 1);
                Some(Span {
                    lo: small_id(lo),
                    hi: small_id(hi),
                })
            }
            Form::Large(chunks) => chunks.span_back(id),
        }
    }

    /// The lowest id above `after`.
    pub fn next(&self, after: u32) -> Option<u32> {
        self.at_or_after(after.checked_add(1)?)
    }

    /// The greatest id below `before`.
    pub fn prev(&self, before: u32) -> Option<u32> {
        self.at_or_before(before.checked_sub(1)?)
    }

    /// The id at position `n`, counted from 0 in ascending order.
    pub fn nth(&self, n: u64) -> Option<u32> {
        match &self.form {
            Form::Small(words) => words::select(words, u32::try_from(n).ok()?).map(small_id),
            Form::Large(chunks) => chunks.nth(n),
        }
    }

    /// The position of an id of the set, counted from 0 in ascending order.
    pub fn rank_of(&self, id: u32) -> Option<u64> {
        self.contains(id).then(|| self.count_below(id))
    }

    /// How many ids of the set lie below `id`, itself in the set or not.
    pub fn count_below(&self, id: u32) -> u64 {
        match &self.form {
            Form::Small(words) => id
                .checked_sub(1)
                .map_or(0, |last| words::count_in(words, 0, last as usize).into()),
            Form::Large(chunks) => chunks.rank(id),
        }
    }

    /// The ids in ascending order.
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(self)
    }

    /// The ids in a range, in ascending order.
    pub fn iter_range(&self, range: RangeInclusive<u32>) -> Iter<'_> {
        Iter::within(self, span(&range))
    }

    /// The ranges of the canonical text, in ascending order: maximal, with a gap between any two.
    pub fn ranges(&self) -> Ranges<'_> {
        Ranges::new(self)
    }

    /// The ranges of the part of the set that lies in a range.
    pub fn ranges_within(&self, range: RangeInclusive<u32>) -> Ranges<'_> {
        let (lo, hi) = span(&range).map_or((1, 0), |span| (span.lo, span.hi));
        Ranges::within(self, lo, hi)
    }

    /// Calls back with the ranges of the canonical text: faster than to iterate over them.
    pub(crate) fn each_span(&self, mut call: impl FnMut(Span)) {
        let mut last: Option<Span> = None;
        let mut add = |span: Span| match &mut last {
            Some(last) if last.hi + 1 == span.lo => last.hi = span.hi,
            Some(last) => call(std::mem::replace(last, span)),
            None => last = Some(span),
        };
        match &self.form {
            Form::Small(words) => words::each_run(words, |lo, hi| {
                add(Span {
                    lo: small_id(lo),
                    hi: small_id(hi),
                });
            }),
            Form::Large(chunks) => {
                for chunk in chunks.as_slice() {
                    chunk.body.each_run(|run| add(chunk.span(run)));
                }
            }
        }
        if let Some(last) = last {
            call(last);
        }
    }

    /// Adds an id. Returns whether it was new; 4294967295 is ignored (see [`Self::try_insert`]).
    pub fn insert(&mut self, id: u32) -> bool {
        if id > Self::MAX_ID {
            return false;
        }
        match &mut self.form {
            Form::Large(chunks) => Arc::make_mut(chunks).insert(id),
            Form::Small(words) if id < SMALL => {
                let (word, bit) = (&mut words[id as usize / BITS], 1 << (id as usize % BITS));
                let new = *word & bit == 0;
                *word |= bit;
                new
            }
            Form::Small(_) => {
                self.insert_span(Span { lo: id, hi: id });
                true
            }
        }
    }

    /// Adds an id that may be out of range. Returns whether it was new.
    ///
    /// # Errors
    ///
    /// The id is above [`Self::MAX_ID`].
    pub fn try_insert(&mut self, id: u64) -> Result<bool, Error> {
        match u32::try_from(id) {
            Ok(id) if id <= Self::MAX_ID => Ok(self.insert(id)),
            _ => Err(Error::id(id)),
        }
    }

    /// Adds the ids of a range; what lies above [`Self::MAX_ID`] is left out.
    pub fn insert_range(&mut self, range: RangeInclusive<u32>) {
        if let Some(span) = span(&range) {
            self.insert_span(span);
        }
    }

    fn insert_span(&mut self, span: Span) {
        match &mut self.form {
            Form::Small(words) if span.hi < SMALL => {
                words::set(words, span.lo as usize, span.hi as usize);
            }
            Form::Large(chunks) => Arc::make_mut(chunks).insert_span(span),
            Form::Small(_) => {
                let mut chunks = self.chunks().into_owned();
                chunks.insert_span(span);
                self.form = Form::Large(Arc::new(chunks));
            }
        }
    }

    /// Takes out an id. Returns whether it was there.
    pub fn remove(&mut self, id: u32) -> bool {
        let there = self.contains(id);
        if there {
            self.remove_span(Span { lo: id, hi: id });
        }
        there
    }

    /// Takes out the ids of a range.
    pub fn remove_range(&mut self, range: RangeInclusive<u32>) {
        if let Some(span) = span(&range) {
            self.remove_span(span);
        }
    }

    fn remove_span(&mut self, span: Span) {
        match &mut self.form {
            Form::Small(words) => {
                let last = (SMALL - 1).min(span.hi);
                if span.lo <= last {
                    words::clear(words, span.lo as usize, last as usize);
                }
            }
            Form::Large(chunks) => {
                Arc::make_mut(chunks).remove_span(span);
                self.settle();
            }
        }
    }

    /// Takes out all ids.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Takes out the `n` lowest ids and returns them; none, and nothing changed, where there are fewer.
    pub fn take_first(&mut self, n: u64) -> Option<Self> {
        let len = self.len();
        if n >= len {
            return (n == len).then(|| std::mem::take(self));
        }
        let Some(last) = self.nth(n)?.checked_sub(1) else {
            return Some(Self::new());
        };
        let taken = self.within(Span { lo: 0, hi: last });
        self.remove_span(Span { lo: 0, hi: last });
        Some(taken)
    }

    /// Takes out the lowest id and returns it.
    pub fn pop_first(&mut self) -> Option<u32> {
        let first = self.first()?;
        self.remove_span(Span {
            lo: first,
            hi: first,
        });
        Some(first)
    }

    /// Takes out the greatest id and returns it.
    pub fn pop_last(&mut self) -> Option<u32> {
        let last = self.last()?;
        self.remove_span(Span { lo: last, hi: last });
        Some(last)
    }

    /// The ids of a span.
    fn within(&self, span: Span) -> Self {
        match &self.form {
            Form::Small(_) => {
                let mut part = Self::from_form(Form::Small([0; 2]));
                for range in Ranges::within(self, span.lo, span.hi) {
                    part.insert_range(range);
                }
                part
            }
            Form::Large(chunks) => Self::from_chunks(chunks.within(span)),
        }
    }

    /// The ids at the positions `range`, counted from 0 in ascending order; positions past the end count for nothing.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<u64>) -> Self {
        let end = range.end.min(self.len());
        let Some(last) = end.checked_sub(1).filter(|&last| last >= range.start) else {
            return Self::new();
        };
        match (self.nth(range.start), self.nth(last)) {
            (Some(lo), Some(hi)) => self.within(Span { lo, hi }),
            _ => Self::new(),
        }
    }

    /// Splits the set into `parts` parts, lower ids first, whose sizes differ by one at most, the greater ones first.
    /// Fewer parts where there are fewer ids: none is empty.
    pub fn split(&self, parts: u64) -> Vec<Self> {
        let len = self.len();
        let parts = parts.min(len);
        let mut rest = self.clone();
        let sizes = (0..parts).map(|part| len / parts + u64::from(part < len % parts));
        sizes.filter_map(|size| rest.take_first(size)).collect()
    }

    /// Panics where the set is not kept as it should be: for fuzzing.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        if let Form::Large(chunks) = &self.form {
            assert!(self.last() >= Some(SMALL), "a small set in the large form");
            chunks.check();
        }
    }
}

impl Default for IdSet {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below 128")]
fn small_id(bit: usize) -> u32 {
    bit as u32
}
