//! What a step of the manager or of one of its peers asks for beyond its own state.

use penstock_flux::RequestError;
use penstock_idset::IdSet;
use penstock_wire::Message;

use crate::event::Event;
use crate::state::State;

/// The identity of a PMIx request: the job that made it, and its number among that job's requests.
pub(crate) type RequestKey = (u64, u32);

/// Who asked for another expiration of a running job.
#[derive(Debug)]
pub(crate) enum ExpirationCause {
    /// The manager itself.
    Manager,
    /// The sender of this `job-manager.update`.
    Update(Message),
    /// A PMIx request for this many more seconds.
    Elastic(RequestKey, u32),
}

/// Another expiration of a running job, to which the scheduler is to agree.
#[derive(Debug)]
pub(crate) struct ExpirationChange {
    /// The job.
    pub(crate) id: u64,
    /// The new time limit in seconds; 0 is unlimited.
    pub(crate) duration: f64,
    /// The new expiration, seconds since the epoch; 0 is unlimited.
    pub(crate) expiration: f64,
    /// Who asked.
    pub(crate) cause: ExpirationCause,
}

/// One effect. [`Manager`](crate::Manager) performs effects in order; those that performing one
/// brings about come before the next.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Jobs were submitted: their `submit` events are logged.
    Submitted(Vec<u64>),
    /// An event was logged and applied: its followers are to be notified.
    Logged {
        id: u64,
        event: Event,
        before: State,
        after: State,
    },
    /// Send a message once the changes so far are durable.
    Send(Message),
    /// Look again at what is due for a job.
    Revisit(u64),
    /// Write a line to the daemon's log.
    Note(String),
    /// Write a line on a peer's fault to the daemon's log; rate-limited.
    Complain(String),
    /// Tell the scheduler that ranks of a job are free; `is_final` if they are its last.
    Free {
        id: u64,
        ranks: IdSet,
        is_final: bool,
    },
    /// Withdraw a job's request for resources: if the job is still pending, the request is made again.
    Withdraw(u64),
    /// Ask the scheduler to agree that a running job ends so many seconds after its begin; 0 is
    /// never.
    RequestExpiration {
        id: u64,
        duration: f64,
        cause: ExpirationCause,
    },
    /// Tell the execution service to end a job's tasks on ranks that the job has released.
    Shrink { id: u64, ranks: IdSet },
    /// A job was purged.
    Purged(u64),
    /// Resources were requested for a job that carries a PMIx request.
    ElasticRequested(u64),
    /// The scheduler has denied a job's request, which was wanted.
    Denied { id: u64, note: String },
    /// The scheduler is gone.
    SchedulerLost,
    /// The scheduler has agreed to an expiration or not, or is gone.
    ExpirationDecided(ExpirationChange, Result<(), RequestError>),
    /// An expiration was not requested: another request for the same job is outstanding.
    ExpirationBusy(ExpirationChange),
}
