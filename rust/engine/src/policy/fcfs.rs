//! First come first served: no job passes the blocked head.

use super::queue_pass::{Backfill, Later};
use crate::ids::GroupedClass;
use crate::machine::Allocation;
use crate::queue::Key;
use crate::state::EngineState;
use crate::verdict::{Cause, Verdict};

/// The policy that starts no job behind a blocked head.
#[derive(Debug)]
pub(crate) struct Fcfs;

impl Backfill for Fcfs {
    const PASSES_UNREACHABLE: bool = false;

    fn wait(&mut self, _: &mut EngineState, _: GroupedClass, _: Key, _: f64) -> Later {
        Later::Nothing
    }

    fn judge(&mut self, _: &mut EngineState, _: GroupedClass, _: Key, _: f64) -> Verdict {
        Verdict::Pending(Cause::Unfit)
    }

    fn admit(&mut self, _: &EngineState, _: GroupedClass, _: f64, _: &Allocation) {}
}
