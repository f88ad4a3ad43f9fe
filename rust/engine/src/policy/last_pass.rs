//! The answers of a policy about the jobs that its last pass has left pending.

use penstock_jobspec::job_id::JobId;

use crate::ids::{ClassId, GroupId, GroupedClass, QueueId};
use crate::node_table::Allocation;
use crate::queue::Key;
use crate::state::{EngineState, Unhindered};
use crate::verdict::{Cause, Interference};

/// The reserved start of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReservedStart {
    pub job: JobId,
    /// In seconds since the epoch; infinite if unknown.
    pub start: f64,
}

/// The time, in seconds since the epoch, at which a reservation begins that another job would delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservationTime {
    pub time: f64,
    /// The queue whose limits they share, if that is the reason.
    pub queue: Option<QueueId>,
}

/// The result of a pass about the jobs that it has left pending.
pub(crate) trait LastPass {
    /// The blocked head of a group.
    fn head(&self, group: GroupId) -> Option<Key>;

    /// Why a job of a class is pending; `None` if the pass would have started it.
    fn cause(&self, state: &mut EngineState, of: GroupedClass, key: Key) -> Option<Cause>;

    /// The job of a group whose reservation begins closest to a time.
    fn reservation_at(
        &self,
        state: &mut EngineState,
        group: GroupId,
        at: ReservationTime,
    ) -> Option<ReservedStart>;
}

/// The cause for a job that may not pass others. The pass has not examined whether the job could
/// start without them: if not, that is the cause.
pub(super) fn completed(
    state: &mut EngineState,
    class: ClassId,
    cause: Cause,
    interference: impl FnOnce(&EngineState, &Allocation) -> Option<Interference>,
) -> Cause {
    if !matches!(
        cause,
        Cause::Behind | Cause::Delays { .. } | Cause::DelaysByLimit { .. }
    ) {
        return cause;
    }
    match (state.place_unhindered(class), cause) {
        (
            Unhindered {
                limit: Some(limit), ..
            },
            _,
        ) => Cause::QueueFull(limit),
        (
            Unhindered {
                allocation: None, ..
            },
            _,
        ) => Cause::Unfit,
        (
            Unhindered {
                allocation: Some(shares),
                ..
            },
            Cause::Delays {
                by,
                transient,
                interference: None,
            },
        ) => Cause::Delays {
            by,
            transient,
            interference: interference(state, &shares),
        },
        (_, cause) => cause,
    }
}
