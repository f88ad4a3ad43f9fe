//! Reservations of pending jobs.

use crate::machine::ShapeId;
use crate::plan::Footprint;
use crate::queue::QueueId;

/// Resources and a start time set aside for a pending job.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub start: f64,
    pub limit: f64,
    pub footprint: Footprint,
    /// The shape and queue of its job.
    pub asked: (ShapeId, QueueId),
    /// The round in which it was last examined.
    pub looked: u64,
}

impl Reservation {
    pub fn span(&self) -> (f64, f64) {
        (self.start, self.start + self.limit)
    }
}
