//! Verdicts: the decision of a pass about a job, and the cause if the job stays pending.

use crate::machine::Allocation;

/// The decision of a policy about a job.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It may start with this allocation.
    Start(Allocation),
    /// It stays pending, and so does every other job of its class to which the cause applies.
    Pending(Cause),
}

/// The cause for which a pass leaves a job pending. The state has the corresponding figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cause {
    /// Its shape does not fit into the free resources.
    Unfit,
    /// Its shape would not fit if every running job had ended: nodes are down. It blocks no other job.
    Unreachable,
    /// Its queue is at a limit. It blocks no other job.
    QueueFull,
    /// The policy lets no job pass the blocked head of its group.
    Behind,
    /// It would delay a reservation unless it ended by a time.
    Delays {
        /// That time, seconds since the epoch.
        by: f64,
        /// Whether that may change when other jobs start.
        transient: bool,
    },
    /// It would leave a reservation too little of the limits of its queue, unless it ended by a
    /// time, seconds since the epoch.
    DelaysByLimit {
        /// That time.
        by: f64,
    },
    /// It has a reservation for a time, seconds since the epoch.
    Reserved {
        /// That time.
        at: f64,
    },
}
