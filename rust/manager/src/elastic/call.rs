//! Who makes a PMIx request, and the request while it begins.

use penstock_elastic::Request;

use crate::effect::RequestKey;

/// The job that requests and, if known, the task of it.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) job: u64,
    /// The rank of the task; `None` for the job as a whole.
    pub(super) rank: Option<u32>,
    /// The host of the task.
    pub(super) host: Option<String>,
}

/// A request that has just begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) key: RequestKey,
    pub(super) asker: &'a Asker,
    pub(super) request: &'a Request,
}
