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
