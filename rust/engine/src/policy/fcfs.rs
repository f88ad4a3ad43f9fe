//! First come first served: no job passes the blocked head.

use super::walk::{Backfill, Later};
use crate::books::Books;
use crate::ids::{ClassId, GroupId};
use crate::machine::Allocation;
use crate::queue::Key;
use crate::verdict::{Cause, Verdict};

/// Lets nothing past a job that waits.
#[derive(Debug)]
pub(crate) struct Fcfs;

impl Backfill for Fcfs {
    const PASSES_UNREACHABLE: bool = false;

    fn wait(&mut self, _: &mut Books, _: (GroupId, ClassId), _: Key, _: f64) -> Later {
        Later::Nothing
    }

    fn judge(&mut self, _: &mut Books, _: (GroupId, ClassId), _: Key, _: f64) -> Verdict {
        Verdict::Pending(Cause::Unfit)
    }

    fn admit(&mut self, _: &Books, _: (GroupId, ClassId), _: f64, _: &Allocation) {}
}
