//! The answers of a policy about the jobs that its last pass has left pending.

use crate::ids::{ClassId, GroupId, GroupedClass};
use crate::node_table::Allocation;
use crate::queue::Key;
use crate::state::{EngineState, Unhindered};
use crate::verdict::{Cause, Interference};

/// The result of a pass about the jobs that it has left pending.
pub(crate) trait LastPass {
    /// The blocked head of a group.
    fn head(&self, group: GroupId) -> Option<Key>;

    /// Why a job of a class is pending; `None` if the pass would have started it.
    fn cause(&self, state: &mut EngineState, of: GroupedClass, key: Key) -> Option<Cause>;
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
                delayed,
                transient,
                interference: None,
            },
        ) => Cause::Delays {
            delayed,
            transient,
            interference: interference(state, &shares),
        },
        (_, cause) => cause,
    }
}
