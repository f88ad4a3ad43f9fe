//! `SchedulerState`: the scheduler as other modules see it.

/// The scheduler's state as far as other modules depend on it. Its fields can be set in the folder
/// `scheduler` alone, so that no other module can make one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulerState {
    /// Whether a scheduler is ready for requests.
    pub(super) is_ready: bool,
    /// Whether a part of an allocation is available to other jobs as soon as it is freed.
    pub(super) takes_parts: bool,
}

impl SchedulerState {
    /// Whether a scheduler is ready for requests.
    pub(crate) fn is_ready(self) -> bool {
        self.is_ready
    }

    /// Whether a part of an allocation is available to other jobs as soon as it is freed.
    pub(crate) fn takes_parts(self) -> bool {
        self.takes_parts
    }
}
