//! The set, its forms, and what asks for or changes single ids and ranges.
use std::ops::RangeInclusive;

use crate::Error;
use crate::bits::{Bits, Dense};
use crate::builder::Builder;
use crate::iter::{Iter, Ranges};
use crate::spans::{Span, Spans};
use crate::words;

/// Ids below this are kept without heap.
pub(crate) const SMALL: u32 = 128;

/// An ordered set of ids.
///
/// Costs: single ids and ranges are added, removed and looked up in time logarithmic in the number of ranges;
/// `len` is constant; `nth` and `rank_of` look at a part in some hundred of the set.
#[derive(Clone, Debug, Default)]
pub struct IdSet {
    pub(crate) form: Form,
}

/// How a set is kept. `Small` exactly when all ids are below [`SMALL`].
#[derive(Clone, Debug)]
pub(crate) enum Form {
    Small([u64; 2]),
    Dense(Box<Dense>),
    Spans(Box<Spans>),
}

impl Default for Form {
    fn default() -> Self {
        Self::Small([0; 2])
    }
}

/// What is read: the two bitmap forms are one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View<'a> {
    Bits(Bits<'a>),
    Spans(&'a Spans),
}

/// The span of a range, cut off at the greatest id; none where it is empty.
fn span(range: &RangeInclusive<u32>) -> Option<Span> {
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
        let mut set = Self::new();
        set.insert_range(range);
        set
    }

    pub(crate) fn from_form(form: Form) -> Self {
        Self { form }
    }

    pub(crate) fn view(&self) -> View<'_> {
        match &self.form {
            Form::Small(words) => View::Bits(Bits { start: 0, words }),
            Form::Dense(dense) => View::Bits(dense.bits()),
            Form::Spans(spans) => View::Spans(spans),
        }
    }

    /// How many ids there are.
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Small(words) => words::count(words),
            Form::Dense(dense) => dense.count(),
            Form::Spans(spans) => spans.count(),
        }
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        matches!(self.form, Form::Small([0, 0]))
    }

    /// How many ranges the canonical text has.
    pub fn range_count(&self) -> usize {
        match &self.form {
            Form::Small(words) => words::count_runs(words),
            Form::Dense(dense) => dense.runs(),
            Form::Spans(spans) => spans.runs(),
        }
    }

    /// Whether the id is in the set.
    pub fn contains(&self, id: u32) -> bool {
        match self.view() {
            View::Bits(bits) => bits.contains(id),
            View::Spans(spans) => spans.at_or_after(id).is_some_and(|span| span.lo <= id),
        }
    }

    /// Whether every id of the range is in the set; true of an empty range.
    pub fn contains_range(&self, range: RangeInclusive<u32>) -> bool {
        if range.is_empty() {
            return true;
        }
        self.span_from(*range.start())
            .is_some_and(|span| span.lo <= *range.start() && *range.end() <= span.hi)
    }

    /// The first span with an id at or after `id`; may be cut off below `id`.
    pub(crate) fn span_from(&self, id: u32) -> Option<Span> {
        match self.view() {
            View::Bits(bits) => bits.next_run(id),
            View::Spans(spans) => spans.at_or_after(id),
        }
    }

    /// The lowest id.
    pub fn first(&self) -> Option<u32> {
        self.at_or_after(0)
    }

    /// The greatest id.
    pub fn last(&self) -> Option<u32> {
        self.at_or_before(Self::MAX_ID)
    }

    fn at_or_after(&self, id: u32) -> Option<u32> {
        match self.view() {
            View::Bits(bits) => bits.next(id),
            View::Spans(spans) => spans.at_or_after(id).map(|span| span.lo.max(id)),
        }
    }

    fn at_or_before(&self, id: u32) -> Option<u32> {
        match self.view() {
            View::Bits(bits) => bits.prev(id),
            View::Spans(spans) => spans.at_or_before(id).map(|span| span.hi.min(id)),
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
        match self.view() {
            View::Bits(bits) => bits.nth(n),
            View::Spans(spans) => spans.nth(n),
        }
    }

    /// The position of an id of the set, counted from 0 in ascending order.
    pub fn rank_of(&self, id: u32) -> Option<u64> {
        self.contains(id).then(|| self.count_below(id))
    }

    /// How many ids of the set lie below `id`, itself in the set or not.
    pub fn count_below(&self, id: u32) -> u64 {
        match self.view() {
            View::Bits(bits) => bits.rank(id),
            View::Spans(spans) => spans.rank(id),
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

    /// The ranges without their type: what the crate itself works on.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> {
        self.ranges().map(|range| Span {
            lo: *range.start(),
            hi: *range.end(),
        })
    }

    /// Adds an id. Returns whether it was new; 4294967295 is refused without a word (see [`Self::try_insert`]).
    pub fn insert(&mut self, id: u32) -> bool {
        if id > Self::MAX_ID || self.contains(id) {
            return false;
        }
        self.insert_span(Span { lo: id, hi: id });
        true
    }

    /// Adds an id that may be out of range. Returns whether it was new.
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
                return;
            }
            Form::Small(_) => {}
            Form::Dense(dense) => {
                if dense.insert(span) {
                    return;
                }
            }
            Form::Spans(spans) => {
                if spans.insert(span) {
                    self.reconsider();
                }
                return;
            }
        }
        let mut spans = self.to_spans();
        spans.insert(span);
        self.form = Form::Spans(Box::new(spans));
    }

    fn to_spans(&self) -> Spans {
        Spans::new(&self.spans().collect::<Vec<_>>())
    }

    /// Takes up a bitmap where that is smaller than the list of ranges.
    fn reconsider(&mut self) {
        if let Form::Spans(spans) = &self.form
            && let (Some(first), Some(last)) = (spans.first(), spans.last())
            && (last / 64 - first / 64) as usize <= spans.runs()
        {
            *self = Builder::build(spans.iter_from(0));
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
                return;
            }
            Form::Dense(dense) => {
                dense.remove(span);
                if dense.is_sparse() {
                    self.form = Form::Spans(Box::new(self.to_spans()));
                }
            }
            Form::Spans(spans) => spans.remove(span),
        }
        if self.last().is_none_or(|last| last < SMALL) {
            let mut words = [0; 2];
            for span in self.spans() {
                words::set(&mut words, span.lo as usize, span.hi as usize);
            }
            self.form = Form::Small(words);
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
        let next = self.nth(n)?;
        let Some(last) = next.checked_sub(1) else {
            return Some(Self::new());
        };
        let mut taken = Builder::default();
        for span in self.spans().take_while(|span| span.lo <= last) {
            taken.push(Span {
                lo: span.lo,
                hi: span.hi.min(last),
            });
        }
        self.remove_span(Span { lo: 0, hi: last });
        Some(taken.finish())
    }

    /// The ids at the positions `range`, counted from 0 in ascending order; positions past the end count for nothing.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<u64>) -> Self {
        let end = range.end.min(self.len());
        let (Some(first), Some(last)) = (self.nth(range.start), end.checked_sub(1)) else {
            return Self::new();
        };
        if last < range.start {
            return Self::new();
        }
        let last = self.nth(last).unwrap_or(first);
        let mut part = Builder::default();
        for range in Ranges::within(self, first, last) {
            part.push(Span {
                lo: *range.start(),
                hi: *range.end(),
            });
        }
        part.finish()
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
}
