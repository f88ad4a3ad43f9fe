//! Intervals of time.

/// A half-open interval: from `start` until before `end`, in seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub start: f64,
    pub end: f64,
}

impl Interval {
    /// The interval without beginning and end.
    pub const ALWAYS: Self = Self::new(f64::NEG_INFINITY, f64::INFINITY);

    pub const fn new(start: f64, end: f64) -> Self {
        Self { start, end }
    }

    /// The interval that begins at `start` and lasts `duration` seconds, which may be infinite.
    pub const fn lasting(start: f64, duration: f64) -> Self {
        Self::new(start, start + duration)
    }

    /// The interval without an end.
    pub const fn from(start: f64) -> Self {
        Self::new(start, f64::INFINITY)
    }
}
