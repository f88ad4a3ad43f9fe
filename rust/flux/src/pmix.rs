//! The service `pmix`: requests of running jobs for other resources (PMIx RFC 0005), Penstock's own messages.

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::payload::{Payload, Text, objects, optional_name, short, short_name};

/// The job that a request to the service names; its other keys are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnyRequest {
    /// The job.
    pub job: JobId,
}

/// `pmix.alloc`: a request of a job for other resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocRequest<'a> {
    /// The job.
    pub job: JobId,
    /// The task rank of the requester; absent if the job as a whole requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The host of that task, if known.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub host: Option<Text<'a>>,
    /// The directive: its name or its number.
    #[serde(deserialize_with = "short_name")]
    pub directive: Value,
    /// The attributes.
    #[serde(default, deserialize_with = "short")]
    pub attributes: Vec<Value>,
}

/// The last response to `pmix.alloc`, and the response to `pmix.cancel`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinalResponse {
    /// The PMIx status, 0 for success.
    pub status: i32,
    /// The human-readable reason, if the status is not 0.
    #[serde(default)]
    pub reason: String,
    /// The attributes of the result.
    #[serde(default)]
    pub results: Vec<Value>,
    /// To a cancellation: the ids of the cancelled requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Vec<String>>,
}

/// A streamed response to `pmix.alloc` before the last: the request is queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedResponse<'a> {
    /// The PMIx status.
    pub status: i32,
    /// True.
    pub queued: bool,
    /// The user's id of the request.
    #[serde(borrow)]
    pub id: Option<Text<'a>>,
    /// The allocation that is requested.
    #[serde(borrow)]
    pub alloc: Option<Text<'a>>,
}

/// `pmix.cancel`: cancels pending requests of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest<'a> {
    /// The job.
    pub job: JobId,
    /// Only requests of this task; of all tasks if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Only the request with this id; all if absent.
    #[serde(
        borrow,
        default,
        deserialize_with = "optional_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub id: Option<Text<'a>>,
}

/// `pmix.query` and `pmix.events`: the requests of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest<'a> {
    /// The job.
    pub job: JobId,
    /// The requests of this id; all if absent.
    #[serde(
        borrow,
        default,
        deserialize_with = "optional_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub id: Option<Text<'a>>,
}

/// The response to `pmix.query`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryResponse {
    /// The PMIx status, 0 for success.
    pub status: i32,
    /// The human-readable reason, if the status is not 0.
    #[serde(default)]
    pub reason: String,
    /// The requests, the oldest first.
    #[serde(deserialize_with = "objects")]
    pub requests: Vec<RequestRow>,
    /// The loans of the job.
    #[serde(default, deserialize_with = "objects")]
    pub lent: Vec<LoanRow>,
}

/// One request in the response to `pmix.query`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRow {
    /// The user's id of the request.
    pub id: Option<String>,
    /// The allocation that was granted or is requested.
    pub alloc: Option<String>,
    /// The directive's name.
    pub directive: String,
    /// The rank of the task that requested.
    pub rank: Option<u32>,
    /// The PMIx status.
    pub status: i32,
    /// The state, e.g. `queued` or `granted`.
    pub state: String,
    /// The reason why it is pending or was denied.
    pub reason: Value,
    /// Nodes.
    pub nodes: u64,
    /// Cores.
    pub cores: u64,
    /// Seconds.
    pub time: u64,
    /// When it is expected to be granted, seconds since the epoch.
    pub estimate: Option<Value>,
    /// The attributes of the result.
    pub results: Vec<Value>,
}

/// One loan in the response to `pmix.query`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoanRow {
    /// The user's id of the loan.
    pub id: Option<String>,
    /// Nodes on loan.
    pub nodes: u64,
    /// Their hosts, a hostlist.
    pub hosts: String,
    /// Cpus of each of them.
    pub cpus: u32,
    /// Nodes that are being reclaimed.
    pub returning: u32,
    /// The end of the loan, seconds since the epoch.
    pub until: Option<f64>,
    /// Why the last reclaim failed.
    pub reason: String,
}

/// A response to `pmix.events`: a request has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventResponse {
    /// The user's id of the request.
    pub id: Option<String>,
    /// The allocation that was granted or was requested.
    pub alloc: Option<String>,
    /// The directive's name.
    pub directive: String,
    /// The PMIx status.
    pub status: i32,
    /// The human-readable reason, if the status is not 0.
    #[serde(default)]
    pub reason: String,
    /// The attributes of the result.
    pub results: Vec<Value>,
}

/// `pmix.abort`: a task ends its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortRequest<'a> {
    /// The rank of the task.
    pub rank: u32,
    /// Its exit status.
    pub status: i32,
    /// The human-readable text.
    #[serde(borrow)]
    pub message: Text<'a>,
}

impl Payload for AnyRequest {}
impl Payload for AllocRequest<'_> {}
impl Payload for FinalResponse {}
impl Payload for QueuedResponse<'_> {}
impl Payload for CancelRequest<'_> {}
impl Payload for JobRequest<'_> {}
impl Payload for QueryResponse {}
impl Payload for EventResponse {}
impl Payload for AbortRequest<'_> {}
