//! What a pass decides about a job, and why it leaves one pending.

use crate::machine::Allocation;

/// What a policy decides about a job.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It may start here.
    Start(Allocation),
    /// It stays pending, and so does every other job of its class that the cause is true of.
    Pending(Cause),
}

/// Why a pass leaves a job pending. What the numbers behind it are, the books show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cause {
    /// Its shape does not fit into what is free.
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
