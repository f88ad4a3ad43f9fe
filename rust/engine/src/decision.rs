//! Decisions of the engine.

/// A decision of the engine, for the caller to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The job is allocated resources: [`Engine::r`](crate::Engine::r) has them.
    Alloc {
        /// The job.
        id: u64,
        /// Whether an earlier job of its group of queues is still pending.
        backfilled: bool,
    },
    /// The job can never run here.
    Deny {
        /// The job.
        id: u64,
        /// What is impossible, and the most there is.
        note: String,
    },
}

/// What becomes of a job whose time limit exceeds the expiration of the resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlong {
    /// Its R expires with the resources.
    #[default]
    Shorten,
    /// It is denied when it would start.
    Deny,
}
