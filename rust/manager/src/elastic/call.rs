//! The requester of a PMIx request, and the request while it begins.

use penstock_elastic::Request;

use crate::effect::RequestKey;
use penstock_jobspec::job_id::JobId;

/// The job that makes a request and, if known, its task.
#[derive(Clone, Debug)]
pub(super) struct Requester {
    pub(super) job: JobId,
    /// The rank of the task; `None` for the job as a whole.
    pub(super) rank: Option<u32>,
    /// The host of the task.
    pub(super) host: Option<String>,
}

/// A request that has just begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) key: RequestKey,
    pub(super) requester: &'a Requester,
    pub(super) request: &'a Request,
}
