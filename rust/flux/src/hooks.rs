//! Prolog and epilog commands of the site, which the job manager requests (Penstock's own).

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};

use crate::payload::{Json, Payload, Text};

/// `hooks.prolog` and `hooks.epilog`: runs the command for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRequest<'a> {
    /// The job.
    pub id: JobId,
    /// Its owner.
    pub userid: u32,
    /// The wait status of its tasks, if they have ended.
    pub status: Option<i32>,
    /// Its resources.
    #[serde(borrow, rename = "R")]
    pub r: Option<Json<'a>>,
}

/// The response: the command has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookResponse<'a> {
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    /// The command's wait status.
    pub status: i64,
    /// The human-readable reason, if the status is not 0.
    #[serde(borrow, default)]
    pub note: Text<'a>,
}

/// `hooks.cancel`: ends the command that runs for a job. The empty response, if one is wanted, comes when nothing of it
/// runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// The job.
    pub id: JobId,
}

impl Payload for HookRequest<'_> {}
impl Payload for HookResponse<'_> {}
impl Payload for CancelRequest {}
