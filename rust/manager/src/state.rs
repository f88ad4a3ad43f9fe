//! Job states (RFC 21), and the one table of the events that change them.

use penstock_flux::eventlog;
use penstock_flux::job_state;

use crate::event::Event;

/// The state of a job (RFC 21). The discriminants are the bits that Flux's tools use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// Submitted, not yet validated.
    New = job_state::NEW,
    /// Pending until its dependencies are satisfied.
    Depend = job_state::DEPEND,
    /// Pending until it has a priority.
    Priority = job_state::PRIORITY,
    /// Pending until it has resources.
    Sched = job_state::SCHED,
    /// Has resources; starting or running.
    Run = job_state::RUN,
    /// Finished or failed; resources are being freed.
    Cleanup = job_state::CLEANUP,
    /// Ended: its record no longer changes.
    Inactive = job_state::INACTIVE,
}

impl State {
    /// The bit of the state in masks.
    pub fn bit(self) -> u8 {
        self as u8
    }

    /// The state's name as RFC 21 spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Depend => "DEPEND",
            Self::Priority => "PRIORITY",
            Self::Sched => "SCHED",
            Self::Run => "RUN",
            Self::Cleanup => "CLEANUP",
            Self::Inactive => "INACTIVE",
        }
    }

    /// The mask of a state's name, or of a virtual state's (RFC 21).
    pub fn mask(name: &str) -> Option<u8> {
        match name.to_ascii_lowercase().as_str() {
            "pending" => Some(job_state::PENDING),
            "running" => Some(job_state::RUNNING),
            "active" => Some(job_state::ACTIVE),
            name => job_state::bit(job_state::ALL, name),
        }
    }

    /// The state after `event`: the transition table.
    ///
    /// Other events leave the state as it is, and so do events that come too late, such as `finish` in
    /// CLEANUP.
    #[must_use]
    pub fn after(self, event: &Event) -> Self {
        use State::{Cleanup, Depend, Inactive, New, Priority, Run, Sched};
        match (self, &*event.name) {
            (New, eventlog::VALIDATE) => Depend,
            // After a restart a job gets its priority again.
            (Depend, eventlog::DEPEND) | (Sched, eventlog::FLUX_RESTART) => Priority,
            (Priority, eventlog::PRIORITY) => Sched,
            (Sched, eventlog::ALLOC) => Run,
            (Run, eventlog::FINISH) => Cleanup,
            (Cleanup, eventlog::CLEAN) => Inactive,
            (New | Depend | Priority | Sched | Run, eventlog::EXCEPTION) if event.is_fatal() => {
                Cleanup
            }
            (state, _) => state,
        }
    }
}

/// The result of a job. The discriminants are the bits that Flux's tools use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum JobResult {
    /// Every task ended with status 0.
    Completed = job_state::result::COMPLETED,
    /// A task failed, or a fatal exception other than the two below was raised.
    Failed = job_state::result::FAILED,
    /// A fatal exception of type `cancel`.
    Canceled = job_state::result::CANCELED,
    /// A fatal exception of type `timeout`.
    Timeout = job_state::result::TIMEOUT,
}

impl JobResult {
    /// The result with this bit.
    pub(crate) fn of_bit(bit: u8) -> Option<Self> {
        let results = [Self::Completed, Self::Failed, Self::Canceled, Self::Timeout];
        results.into_iter().find(|result| *result as u8 == bit)
    }

    /// The mask of a result's name.
    pub fn mask(name: &str) -> Option<u8> {
        job_state::bit(job_state::result::ALL, name)
    }
}

#[cfg(test)]
mod tests {
    use super::State;

    use crate::event::Event;
    use serde_json::json;

    #[test]
    fn a_successful_job_passes_every_state() {
        let mut state = State::New;
        let mut seen = vec![state];
        for name in [
            "submit", "validate", "depend", "priority", "alloc", "start", "finish", "release",
            "free", "clean",
        ] {
            let next = state.after(&Event::new(0.0, name));
            if next != state {
                seen.push(next);
            }
            state = next;
        }
        assert_eq!(
            seen,
            [
                State::New,
                State::Depend,
                State::Priority,
                State::Sched,
                State::Run,
                State::Cleanup,
                State::Inactive
            ]
        );
    }

    #[test]
    fn only_a_fatal_exception_changes_the_state_and_never_a_final_one() {
        let fatal = Event::with(0.0, "exception", &json!({"type": "cancel", "severity": 0}));
        let mild = Event::with(0.0, "exception", &json!({"type": "oom", "severity": 3}));
        for state in [
            State::New,
            State::Depend,
            State::Priority,
            State::Sched,
            State::Run,
        ] {
            assert_eq!(state.after(&fatal), State::Cleanup);
            assert_eq!(state.after(&mild), state);
        }
        assert_eq!(State::Inactive.after(&fatal), State::Inactive);
        assert_eq!(State::Cleanup.after(&fatal), State::Cleanup);
    }
}
