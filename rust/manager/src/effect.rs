//! Effects: the actions that a step of the manager or of a peer requires beyond its own state.

use penstock_flux::RequestError;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::event::Event;
use crate::spec::Checked;
use crate::state::State;

/// The identity of a PMIx request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    /// The job that made the request.
    pub(crate) job: JobId,
    /// The number of the request among those of that job.
    pub(crate) seq: u32,
}

/// The number of a probe of the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProbeId(pub(crate) u64);

/// The answer of the scheduler to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeAnswer {
    /// The requests sent before have been considered.
    Considered,
    /// An error: the scheduler does not know probes.
    Unsupported,
}

/// The origin of a request to change the expiration of a running job.
#[derive(Debug)]
pub(crate) enum ExpirationCause {
    /// The manager itself.
    Manager,
    /// The sender of this `job-manager.update`.
    Update(Message),
    /// A PMIx request, and the number of seconds by which it extends the job.
    Elastic(RequestKey, u32),
}

/// A change of the expiration of a running job, subject to the scheduler's agreement. R can have the
/// expiration, and the jobspec the time limit: both were checked.
#[derive(Debug)]
pub(crate) struct ExpirationChange {
    /// The job.
    pub(crate) id: JobId,
    /// The new expiration, seconds since the epoch; 0 is unlimited.
    pub(crate) expiration: f64,
    /// The jobspec with the new time limit; `None` if the limit is the same.
    pub(crate) jobspec: Option<Box<Checked>>,
    /// The origin of the request.
    pub(crate) cause: ExpirationCause,
}

/// Ranks of a job to be freed.
#[derive(Debug)]
pub(crate) struct FreeRanks {
    /// The job.
    pub(crate) id: JobId,
    /// The ranks.
    pub(crate) ranks: IdSet,
    /// Whether these are the last ranks of the job.
    pub(crate) is_final: bool,
}

/// One effect. [`Manager`](crate::Manager) performs effects in order; effects that result from
/// performing one come before the next.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The manager has submitted a job: its `submit` event is logged.
    Submitted(JobId),
    /// A submission of jobs is complete: their first events are logged.
    Accepted { first: JobId, last: JobId },
    /// An event was logged and applied: notify the followers of the job's eventlog.
    Logged {
        id: JobId,
        event: Event,
        before: State,
        after: State,
    },
    /// Send a message once the changes so far are durable.
    Send(Message),
    /// Check again which steps are due for a job.
    Revisit(JobId),
    /// Write a line to the daemon's log.
    LogLine(String),
    /// Write a line on a peer's fault to the daemon's log; rate-limited.
    Complain(String),
    /// Free ranks of a job (`sched.free`).
    Free(FreeRanks),
    /// Withdraw a job's request for resources: if the job is still pending, the request is made again.
    Withdraw(JobId),
    /// Move a pending job to the position of its new priority.
    Reprioritize { id: JobId, old: u32, new: u32 },
    /// Probe the scheduler: its response shows that the alloc requests sent before have been considered.
    Probe(ProbeId),
    /// The response to a probe has come.
    Probed { probe: ProbeId, answer: ProbeAnswer },
    /// Request the scheduler's agreement to another time limit of a running job, in seconds from its
    /// begin; 0 is unlimited.
    RequestExpiration {
        id: JobId,
        duration: f64,
        cause: ExpirationCause,
    },
    /// Send a signal to the tasks of a job.
    Kill { id: JobId, signum: i32 },
    /// Request that the execution service end a job's tasks on ranks that the job has released.
    Shrink { id: JobId, ranks: IdSet },
    /// A job was purged.
    Purged(JobId),
    /// Resources were requested for a job that carries a PMIx request.
    ElasticRequested(JobId),
    /// The scheduler has denied the request of a job that carries a PMIx request and is still in SCHED.
    ElasticDenied { id: JobId, note: String },
    /// A PMIx request has begun: respond to its caller that it is queued, unless it has ended meanwhile.
    ElasticBegun(RequestKey),
    /// The scheduler has disconnected or was suspended.
    SchedulerLost,
    /// The scheduler has agreed to a new expiration, or there is none that could object.
    ExpirationAccepted(ExpirationChange),
    /// A new expiration is invalid, or the scheduler has rejected it or has gone.
    ExpirationRejected {
        id: JobId,
        cause: ExpirationCause,
        error: RequestError,
    },
    /// A running job has another expiration.
    ExpirationChanged { id: JobId, expiration: f64 },
    /// The time of a PMIx request was granted, this many seconds, or not.
    TimeDecided {
        key: RequestKey,
        granted: u32,
        result: Result<(), RequestError>,
    },
    /// No request for another expiration of the job is outstanding any longer.
    ExpirationFinished(JobId),
    /// A queue was enabled or disabled, or the settings have changed.
    QueuesChanged,
}
