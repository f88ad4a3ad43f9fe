//! Decisions of the engine.

use penstock_jobspec::job_id::JobId;

/// A decision of the engine, for the caller to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The job is allocated resources: [`Engine::r`](crate::Engine::r) has them.
    Alloc {
        /// The job.
        id: JobId,
        /// Whether an earlier job of its group of queues is still pending.
        backfilled: bool,
    },
    /// The job can never run here.
    Deny {
        /// The job.
        id: JobId,
        /// The note: which requirement is impossible, and the available maximum.
        note: String,
    },
}

/// Treatment of jobs whose time limit exceeds the expiration of the resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlong {
    /// Shorten: the job's R expires with the resources.
    #[default]
    Shorten,
    /// Deny the job when it would start.
    Deny,
}
