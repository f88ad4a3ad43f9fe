//! The set, its forms, and its lookups.
use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::body::Body;
use crate::chunks::{Chunk, Chunks, Span};
use crate::words;

/// The greatest id that a set can hold.
pub(crate) const MAX_ID: u32 = u32::MAX - 1;

/// The span of a range, cut off at the greatest id; `None` for an empty range.
pub(crate) fn clipped(range: &RangeInclusive<u32>) -> Option<Span> {
    let (lo, hi) = (*range.start(), (*range.end()).min(MAX_ID));
    (lo <= hi && !range.is_empty()).then_some(Span { lo, hi })
}

/// Ids below this are kept without heap.
pub(crate) const INLINE_IDS: u32 = 128;

/// An ordered set of ids.
///
/// A clone is cheap: both share their contents until one of them changes.
///
/// Costs: single ids and ranges are added, removed and looked up in time logarithmic in the number of chunks of
/// 65,536 ids that are not empty, and at most a few microseconds in their chunk; `len` is constant.
#[derive(Clone, Debug)]
pub struct IdSet {
    pub(crate) form: Form,
}

/// The representation of a set: `Small` exactly when all ids are below [`INLINE_IDS`].
#[derive(Clone, Debug)]
pub(crate) enum Form {
    Small([u64; 2]),
    /// Shared by copies until one of them changes.
    Large(Arc<Chunks>),
}

impl IdSet {
    /// The greatest id, 4294967294.
    pub const MAX_ID: u32 = MAX_ID;

    /// The empty set.
    pub const fn new() -> Self {
        Self {
            form: Form::Small([0; 2]),
        }
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
        set.shrink_form();
        set
    }

    /// Converts to the small form if all ids fit it.
    pub(crate) fn shrink_form(&mut self) {
        let Form::Large(chunks) = &self.form else {
            return;
        };
        match chunks.as_slice() {
            [] => *self = Self::new(),
            [one] if one.key == 0 && u32::from(one.body.last()) < INLINE_IDS => {
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

    /// The chunks of the set, created for this call if the set is small.
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

    /// The number of ids.
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Small(words) => (words[0].count_ones() + words[1].count_ones()).into(),
            Form::Large(chunks) => chunks.len(),
        }
    }

    /// Whether the set has no id.
    pub fn is_empty(&self) -> bool {
        matches!(self.form, Form::Small([0, 0]))
    }

    /// The number of ranges in the canonical text. Counted each time.
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

    /// Bytes that the set has on the heap, estimated from its numbers of ids and of chunks: about what an operation on
    /// it has to look at. O(1).
    pub fn estimated_bytes(&self) -> u64 {
        match &self.form {
            Form::Small(_) => 0,
            Form::Large(chunks) => chunks.estimated_bytes(),
        }
    }

    /// Bytes that the set has on the heap.
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Small(_) => 0,
            Form::Large(chunks) => {
                2 * size_of::<usize>() + size_of::<Chunks>() + chunks.heap_bytes()
            }
        }
    }

    /// Whether the id is in the set.
    #[inline]
    pub fn contains(&self, id: u32) -> bool {
        match &self.form {
            Form::Small(words) => words::contains(words, id as usize),
            Form::Large(chunks) => chunks.contains(id),
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

    pub(crate) fn at_or_after(&self, id: u32) -> Option<u32> {
        match &self.form {
            Form::Small(words) => words::next_set(words, id as usize).map(small_id),
            Form::Large(chunks) => chunks.at_or_after(id),
        }
    }

    /// The `count` lowest ids from `id` on, or all of them if there are fewer, in ascending order: faster than to iterate.
    pub fn ids_from(&self, id: u32, count: usize) -> Vec<u32> {
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let mut ids = Vec::with_capacity(count.min(len));
        match &self.form {
            Form::Small(words) => words::append_ones(words, id as usize, 0, &mut ids, count),
            Form::Large(chunks) => chunks.append_ids(id, &mut ids, count),
        }
        ids
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
    pub fn find(&self, id: u32) -> Option<u64> {
        self.contains(id).then(|| self.count_below(id))
    }

    /// The number of ids of the set below `id`, which need not be in the set.
    pub fn count_below(&self, id: u32) -> u64 {
        match &self.form {
            Form::Small(words) => id
                .checked_sub(1)
                .map_or(0, |last| words::count_in(words, 0, last as usize).into()),
            Form::Large(chunks) => chunks.count_below(id),
        }
    }

    /// Calls back with the ranges of the canonical text: faster than to iterate over them.
    pub(crate) fn each_span(&self, mut call: impl FnMut(Span)) {
        let mut last: Option<Span> = None;
        let mut add = |span: Span| match &mut last {
            Some(last) if last.hi + 1 == span.lo => last.hi = span.hi,
            Some(last) => call(core::mem::replace(last, span)),
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

    /// Panics where the set is not kept as it should be: for fuzzing.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        if let Form::Large(chunks) = &self.form {
            assert!(
                self.last() >= Some(INLINE_IDS),
                "a small set in the large form"
            );
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
