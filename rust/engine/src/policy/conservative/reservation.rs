//! Reservations of pending jobs.

use crate::ids::QueueId;
use crate::interval::Interval;
use crate::machine::ShapeId;
use crate::plan::Footprint;

/// Resources and a start time set aside for a pending job.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub start: f64,
    pub limit: f64,
    pub footprint: Footprint,
    /// The shape and queue of its job.
    pub asked: (ShapeId, QueueId),
    /// The round in which it was last examined.
    pub examined_in: u64,
}

impl Reservation {
    /// When its resources are reserved.
    pub fn interval(&self) -> Interval {
        Interval::lasting(self.start, self.limit)
    }
}
