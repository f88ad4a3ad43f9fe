//! First come first served: in each group of queues, the first job that does not fit ends the
//! pass.

use super::walk::{Backfill, Verdict};
use crate::books::Books;
use crate::machine::{ShapeId, Shares};

/// Lets nothing past a job that waits.
#[derive(Debug)]
pub(crate) struct Fcfs;

impl Backfill for Fcfs {
    fn block(&mut self, _: &mut Books, _: u32, _: ShapeId) -> bool {
        false
    }

    fn judge(&mut self, _: &mut Books, _: u32, _: u32, _: f64) -> Verdict {
        Verdict::Unfit
    }

    fn is_short(&self, _: u32, _: f64) -> bool {
        false
    }

    fn admit(&mut self, _: &Books, _: u32, _: f64, _: &Shares) {}
}
