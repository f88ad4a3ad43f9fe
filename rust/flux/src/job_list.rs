//! The service `job-list`: jobs as rows of attributes (RFC 43).

use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::MAX_NAMES_PER_REQUEST;
use crate::payload::{
    Json, Payload, Text, at_most, job_ids, object, objects, optional_at_most, optional_job_ids,
    optional_short_document,
};

/// The attributes of a job, by their names in RFC 43.
pub type Row = Map<String, Value>;

/// The annotation `elastic` of a job that takes part in flexible allocations (Penstock's own).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElasticAnnotation {
    /// The directive of the request that the job carries, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directive: Option<String>,
    /// The job that made that request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The allocation that its resources join, if not that job's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<String>,
    /// The user's id of that request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The request jobs of the job's grants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// The ranks that the job has released itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released: Option<IdSet>,
}

/// `job-list.list`: a stream of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListRequest<'a> {
    /// The greatest number of rows; 0 for any.
    #[serde(default)]
    pub max_entries: usize,
    /// The attributes to show; all if empty.
    #[serde(
        borrow,
        default,
        deserialize_with = "at_most::<MAX_NAMES_PER_REQUEST, _, _>"
    )]
    pub attrs: Vec<Text<'a>>,
    /// Leaves out jobs that became inactive before this time, seconds since the epoch.
    #[serde(default)]
    pub since: f64,
    /// The constraint on the jobs to show (RFC 43).
    #[serde(
        borrow,
        default,
        deserialize_with = "optional_short_document",
        skip_serializing_if = "Option::is_none"
    )]
    pub constraint: Option<Json<'a>>,
    /// The ids of the jobs to show (Penstock's own).
    #[serde(
        default,
        deserialize_with = "optional_job_ids",
        skip_serializing_if = "Option::is_none"
    )]
    pub ids: Option<Vec<JobId>>,
    /// The order of the rows (Penstock's own).
    #[serde(default, skip_serializing_if = "ListOrder::is_pending")]
    pub order: ListOrder,
    /// The number of rows to leave out at the begin, for pages of a list (Penstock's own).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skip: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The order of the rows of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListOrder {
    /// The order of Flux, whose clients request none: pending jobs by position; then running ones, the last to start first;
    /// then inactive ones, the last to end first. Jobs that the request names come in its order.
    #[default]
    Pending,
    /// The newest job first.
    Newest,
    /// Running jobs, the last to start first; then pending ones by position; then inactive ones, the last to end first.
    State,
}

impl ListOrder {
    /// Whether this is the default.
    #[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
    fn is_pending(&self) -> bool {
        *self == Self::Pending
    }
}

/// A response to `list` and `wait`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListResponse {
    /// Rows.
    #[serde(deserialize_with = "objects")]
    pub jobs: Vec<Row>,
    /// The version of the rows, 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

/// `job-list.list-id`: one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListIdRequest<'a> {
    /// The job.
    pub id: JobId,
    /// The attributes to show; all if empty.
    #[serde(
        borrow,
        default,
        deserialize_with = "at_most::<MAX_NAMES_PER_REQUEST, _, _>"
    )]
    pub attrs: Vec<Text<'a>>,
}

/// The response to `list-id`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListIdResponse {
    /// Its row.
    #[serde(deserialize_with = "object")]
    pub job: Row,
}

/// The response to `list-id` that shows the attribute `userid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserResponse {
    /// Its row.
    #[serde(deserialize_with = "object")]
    pub job: UserRow,
}

/// A row with the attribute `userid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserRow {
    /// The job's owner.
    pub userid: u32,
}

/// The response to `job-list.list-attrs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListAttrsResponse<'a> {
    /// The names of all attributes.
    #[serde(borrow)]
    pub attrs: Vec<Text<'a>>,
}

/// `job-list.wait`: a stream of rows, each when its job becomes inactive (Penstock's own).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRequest {
    /// The jobs.
    #[serde(deserialize_with = "job_ids")]
    pub ids: Vec<JobId>,
}

/// Numbers of jobs, of a queue or of the instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    /// Jobs by state, in lower case, and their `total`.
    pub job_states: Map<String, Value>,
    /// Inactive jobs that succeeded.
    pub successful: u64,
    /// Inactive jobs that failed, without cancelled ones and timeouts.
    pub failed: u64,
    /// Cancelled jobs.
    pub canceled: u64,
    /// Jobs that exceeded their time limit.
    pub timeout: u64,
    /// Inactive jobs that have been purged.
    pub inactive_purged: u64,
    /// The queue's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A key of the sums of `job-list.usage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageKey {
    /// The user.
    User,
    /// The queue.
    Queue,
    /// The project of the jobspec.
    Project,
    /// The bank of the jobspec.
    Bank,
}

/// `job-list.usage`: what jobs have used from their allocation until their end, or until the request (Penstock's own).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageRequest {
    /// The keys: there is a sum for each combination of their values.
    #[serde(deserialize_with = "at_most::<MAX_USAGE_KEYS, _, _>")]
    pub by: Vec<UsageKey>,
    /// Ascending times, in seconds since the epoch: there is a sum for each span between two of them.
    #[serde(deserialize_with = "at_most::<MAX_USAGE_TIMES, _, _>")]
    pub times: Vec<f64>,
    /// The only user whose jobs count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
    /// The only queues whose jobs count.
    #[serde(
        default,
        deserialize_with = "optional_at_most::<MAX_NAMES_PER_REQUEST, _, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub queues: Option<Vec<String>>,
}

/// Maximum numbers of the keys and the times of `job-list.usage`.
const MAX_USAGE_KEYS: usize = 4;
const MAX_USAGE_TIMES: usize = 4096;

/// A sum of the usage of jobs in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageSum {
    /// Their user, if that is a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
    /// Their queue, if that is a key and they have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Their project, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Their bank, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank: Option<String>,
    /// The number of the span: it begins at the time of this index.
    pub span: usize,
    /// The number of jobs.
    pub jobs: u64,
    /// Nodes times seconds.
    pub node_seconds: f64,
    /// Cores times seconds.
    pub core_seconds: f64,
    /// Gpus times seconds.
    pub gpu_seconds: f64,
}

/// The response to `job-list.usage`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageResponse {
    /// The sums that are not 0.
    pub sums: Vec<UsageSum>,
}

/// The response to `job-list.job-stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatsResponse {
    /// Numbers of all jobs.
    #[serde(flatten)]
    pub counts: JobCounts,
    /// Numbers of each queue that has had jobs.
    #[serde(deserialize_with = "objects")]
    pub queues: Vec<JobCounts>,
}

impl Payload for ListRequest<'_> {}
impl Payload for ListResponse {}
impl Payload for ListIdRequest<'_> {}
impl Payload for ListIdResponse {}
impl Payload for UserResponse {}
impl Payload for ListAttrsResponse<'_> {}
impl Payload for WaitRequest {}
impl Payload for JobStatsResponse {}
impl Payload for UsageRequest {}
impl Payload for UsageResponse {}
