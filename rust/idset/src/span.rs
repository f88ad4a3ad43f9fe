//! Ranges of ids inside the crate.
use std::ops::RangeInclusive;

/// The ids `lo..=hi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) lo: u32,
    pub(crate) hi: u32,
}

impl From<&RangeInclusive<u32>> for Span {
    fn from(range: &RangeInclusive<u32>) -> Self {
        Self {
            lo: *range.start(),
            hi: *range.end(),
        }
    }
}

/// The greatest id that a set can hold.
pub(crate) const MAX_ID: u32 = u32::MAX - 1;

/// The span of a range, cut off at the greatest id; `None` for an empty range.
pub(crate) fn clipped(range: &RangeInclusive<u32>) -> Option<Span> {
    let (lo, hi) = (*range.start(), (*range.end()).min(MAX_ID));
    (lo <= hi && !range.is_empty()).then_some(Span { lo, hi })
}
