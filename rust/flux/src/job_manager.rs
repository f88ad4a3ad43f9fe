//! The service `job-manager`, as its users see it: exceptions, signals, urgency, queues, history.
//!
//! Its ends of RFC 27 and RFC 32 are in [`alloc`](crate::alloc) and [`exec`](crate::exec).

use std::collections::BTreeMap;

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::histogram::HistogramStats;
use crate::limits::MAX_JOBS_PER_REQUEST;
use crate::payload::{
    Json, Payload, Text, at_most, object, objects_by_name, optional_job_ids, optional_short, short,
};

/// The jobs that `raise`, `kill` or `urgency` names. The other keys of the same payload are read as [`RaiseRequest`],
/// [`KillRequest`] or [`UrgencyRequest`].
///
/// `ids`, `all` and `userid` are Penstock's own, the last two those of `raise`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsRequest {
    /// One job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    /// Several jobs.
    #[serde(
        default,
        deserialize_with = "optional_job_ids",
        skip_serializing_if = "Option::is_none"
    )]
    pub ids: Option<Vec<JobId>>,
    /// All active jobs.
    #[serde(default)]
    pub all: bool,
    /// With `all`: jobs of this user only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
}

/// `job-manager.raise` and `job-manager.raiseall`: the exception, for the jobs of a [`JobsRequest`] or of a
/// [`MatchingJobsRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseRequest<'a> {
    /// The type, a word.
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    /// 0 (fatal) to 7.
    #[serde(default)]
    pub severity: i64,
    /// The human-readable note.
    #[serde(borrow, default)]
    pub note: Text<'a>,
    /// The job's wait status if this is its first fatal exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_status: Option<u16>,
}

/// The jobs that `job-manager.raiseall` or `job-manager.killall` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchingJobsRequest {
    /// Whether the jobs are only counted.
    pub dry_run: bool,
    /// The user whose jobs are meant; [`ANY_USER`](Self::ANY_USER), or -1, for all users.
    pub userid: i64,
    /// The states that are meant, as a mask of the bits of RFC 21; running jobs if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<u32>,
}

impl MatchingJobsRequest {
    /// The id that stands for all users.
    pub const ANY_USER: u32 = u32::MAX;
}

/// The response to `job-manager.raiseall` and `job-manager.killall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchingJobsResponse {
    /// The number of jobs for which the request succeeded, or would be made.
    pub count: u64,
    /// The number of jobs for which it failed.
    pub errors: u64,
}

/// The response to a request for several jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkResponse {
    /// The number of jobs for which the request succeeded.
    pub count: u64,
    /// The first [`MAX_LISTED_ERRORS`](Self::MAX_LISTED_ERRORS) jobs for which it failed: the reason by id, in the order of
    /// the request.
    pub errors: Map<String, Value>,
    /// The number of further jobs for which it failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted: u64,
}

impl BulkResponse {
    /// The number of failures whose reasons are in a response.
    pub const MAX_LISTED_ERRORS: usize = 10_000;
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's interface")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// `job-manager.kill` and `job-manager.killall`: the signal, for the tasks of the jobs of a [`JobsRequest`] or of a
/// [`MatchingJobsRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillRequest {
    /// The signal's number.
    pub signum: i32,
}

/// `job-manager.urgency`: the urgency, for the jobs of a [`JobsRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrgencyRequest {
    /// 0 (hold) to 31 (expedite) (RFC 30).
    pub urgency: i64,
}

/// The response to `urgency` for one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrgencyResponse {
    /// The previous urgency.
    #[serde(rename = "old_urgency")]
    pub old: u8,
}

/// The response to `idle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleResponse {
    /// The number of pending jobs.
    pub pending: u64,
}

/// `job-manager.prioritize`: sets priorities, in place of those computed from urgencies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrioritizeRequest {
    /// Ids and priorities.
    #[serde(deserialize_with = "at_most::<MAX_JOBS_PER_REQUEST, _, _>")]
    pub jobs: Vec<(JobId, i64)>,
}

/// `job-manager.memo`: records a memo of the job's owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoRequest {
    /// The job.
    pub id: JobId,
    /// Keys and values; null removes a key.
    #[serde(deserialize_with = "short")]
    pub memo: Map<String, Value>,
}

/// `job-manager.update`: changes to a job's jobspec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateRequest {
    /// The job.
    pub id: JobId,
    /// Values by their paths in the jobspec, e.g. `attributes.system.duration`.
    #[serde(deserialize_with = "short")]
    pub updates: Map<String, Value>,
}

/// `job-manager.purge`: removes inactive jobs from the store. `ids` and `userid` are Penstock's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PurgeRequest {
    /// Purges jobs that have been inactive for longer than this, in seconds; -1 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_limit: Option<f64>,
    /// Purges the oldest inactive jobs beyond this number; -1 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_limit: Option<i64>,
    /// Purges jobs of this user only. The limits are about these jobs then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
    /// Purges these jobs.
    #[serde(
        default,
        deserialize_with = "optional_job_ids",
        skip_serializing_if = "Option::is_none"
    )]
    pub ids: Option<Vec<JobId>>,
    /// Whether to purge the jobs; otherwise they are only counted.
    #[serde(default)]
    pub force: bool,
}

/// `job-manager.purge-id`: removes one inactive job from the store, as Flux's command requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeIdRequest {
    /// The job.
    pub id: JobId,
    /// Whether to purge the job; with 0 it is only counted.
    pub force: i64,
}

/// The response to `purge` and `purge-id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeResponse {
    /// Jobs purged, or that would be purged with `force`.
    pub count: u64,
    /// Inactive jobs that are left; with `userid` those of this user.
    pub inactives: u64,
}

/// The response to `job-manager.queue-list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueListResponse {
    /// The names of the configured queues.
    pub queues: Vec<String>,
}

/// `job-manager.queue-status`, `drain` and `idle`: names one queue, or the queue without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRequest<'a> {
    /// The queue's name.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text<'a>>,
}

/// The response to `job-manager.queue-status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatusResponse<'a> {
    /// Whether submissions are accepted.
    pub enable: bool,
    /// Whether jobs are scheduled.
    pub start: bool,
    /// Why submissions are rejected.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub disable_reason: Option<Text<'a>>,
    /// Why jobs are not scheduled.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<Text<'a>>,
}

/// `job-manager.queue-enable`: enables or disables submission to one queue or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueEnableRequest<'a> {
    /// One queue.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text<'a>>,
    /// Whether to enable or to disable.
    pub enable: bool,
    /// The reason for disabling.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'a>>,
    /// All queues.
    #[serde(default)]
    pub all: bool,
}

/// `job-manager.queue-start`: starts or stops scheduling of one queue or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStartRequest<'a> {
    /// One queue.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text<'a>>,
    /// Whether to start or to stop.
    pub start: bool,
    /// The reason for stopping.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'a>>,
    /// All queues.
    #[serde(default)]
    pub all: bool,
    /// Whether the change ends with the instance.
    #[serde(default)]
    pub nocheckpoint: bool,
}

/// `job-manager.history.get`: a user's jobs, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRequest<'a> {
    /// The wanted part of the 1,000 newest as a Python slice, e.g. `[:5]`.
    #[serde(borrow)]
    pub slice: Text<'a>,
    /// The user; the sender if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
}

/// The response to `history.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryResponse {
    /// Ids.
    pub jobs: Vec<JobId>,
}

/// The scheduler in the statistics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedStats<'a> {
    /// `suspended`, `greeted` or `ready`.
    #[serde(borrow)]
    pub state: Text<'a>,
    /// Pending jobs without an alloc request.
    pub queued: u64,
    /// Outstanding alloc requests.
    pub requested: u64,
}

/// The response to `job-manager.alloc-query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocQueryResponse {
    /// Pending jobs without an alloc request.
    pub queue_length: u64,
    /// Outstanding alloc requests.
    pub alloc_pending: u64,
    /// Active jobs with resources.
    pub running: u64,
}

impl AllocQueryResponse {
    /// The counts in the statistics.
    pub fn of(stats: &StatsResponse<'_>) -> Self {
        Self {
            queue_length: stats.sched.queued,
            alloc_pending: stats.sched.requested,
            running: stats.running,
        }
    }
}

/// The execution service in the statistics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStats<'a> {
    /// Its name, if one is registered.
    #[serde(borrow)]
    pub service: Option<Text<'a>>,
    /// Allocated jobs whose start request is due and not sent.
    pub queued: u64,
}

/// The outstanding requests in the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutstandingStats {
    /// Streams of eventlogs.
    pub followers: u64,
    /// `job-list.wait` and `job-manager.wait` requests.
    pub waits: u64,
    /// The jobs whose end they await.
    pub awaited: u64,
    /// `drain` and `idle` requests.
    pub drains: u64,
}

/// The response to `job-manager.stats-get`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatsResponse<'a> {
    /// Jobs that are not inactive.
    pub active_jobs: u64,
    /// Jobs that are inactive.
    pub inactive_jobs: u64,
    /// Active jobs without resources.
    pub pending: u64,
    /// Active jobs with resources.
    pub running: u64,
    /// The greatest job id.
    pub max_jobid: JobId,
    /// Commits to the store.
    pub commits: u64,
    /// The scheduler.
    #[serde(borrow, deserialize_with = "object")]
    pub sched: SchedStats<'a>,
    /// The execution service.
    #[serde(borrow, deserialize_with = "object")]
    pub exec: ExecStats<'a>,
    /// Outstanding requests.
    #[serde(deserialize_with = "object")]
    pub outstanding: OutstandingStats,
    /// Requests that a limit has rejected.
    #[serde(deserialize_with = "object")]
    pub rejected: RejectedStats,
    /// Jobs by state, without those of unfinished submissions.
    #[serde(deserialize_with = "object")]
    pub states: StateStats,
    /// Active jobs of each queue.
    #[serde(deserialize_with = "objects_by_name")]
    pub queues: BTreeMap<String, QueueStats>,
    /// Jobs that were submitted since the job manager started.
    pub submitted: u64,
    /// Jobs that became inactive since the job manager started, by result.
    #[serde(deserialize_with = "object")]
    pub ended: ResultStats,
    /// Jobs that were purged since the job manager started.
    pub purged: u64,
    /// Durations of the stages of jobs since the job manager started.
    #[serde(deserialize_with = "object")]
    pub stages: StageStats,
    /// Durations of submissions since the job manager started, until their jobs were durable.
    #[serde(deserialize_with = "object")]
    pub submissions: HistogramStats,
    /// Durations of the store's checkpoints since the job manager started.
    #[serde(deserialize_with = "object")]
    pub checkpoints: HistogramStats,
    /// The length of the store's log in bytes.
    pub store_log_bytes: u64,
    /// The size of the database in bytes, without its log.
    pub store_bytes: u64,
    /// The part of it without data: later jobs use it, the excess is released.
    pub store_free_bytes: u64,
    /// Bytes that it has returned to the file system since the job manager started.
    pub store_released_bytes: u64,
    /// Housekeeping, of which there is none, as Flux reports it.
    #[serde(default, deserialize_with = "object")]
    pub housekeeping: HousekeepingStats,
}

/// Jobs whose housekeeping is running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HousekeepingStats {
    /// By job.
    pub running: Map<String, Value>,
}

/// Numbers of jobs by state (RFC 21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStats {
    /// In DEPEND.
    pub depend: u64,
    /// In PRIORITY.
    pub priority: u64,
    /// In SCHED.
    pub sched: u64,
    /// In RUN.
    pub run: u64,
    /// In CLEANUP.
    pub cleanup: u64,
    /// In INACTIVE.
    pub inactive: u64,
}

/// Active jobs of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Without resources.
    pub pending: u64,
    /// With resources.
    pub running: u64,
}

/// Numbers of jobs by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultStats {
    /// All tasks succeeded.
    pub completed: u64,
    /// A task failed, or the job could not be executed.
    pub failed: u64,
    /// Cancelled.
    #[serde(rename = "canceled")]
    pub cancelled: u64,
    /// Ended at the time limit.
    pub timeout: u64,
}

/// Durations of the stages of jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageStats {
    /// From the submission to the allocation of resources.
    #[serde(deserialize_with = "object")]
    pub pending: HistogramStats,
    /// From the allocation to the start of the tasks: prolog, and execution service.
    #[serde(deserialize_with = "object")]
    pub start: HistogramStats,
    /// From the allocation to the end of the tasks.
    #[serde(deserialize_with = "object")]
    pub run: HistogramStats,
    /// From the end of the tasks to INACTIVE: epilog, and the release of the resources.
    #[serde(deserialize_with = "object")]
    pub cleanup: HistogramStats,
}

/// Requests that a limit has rejected, by the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedStats {
    /// Jobs of one request.
    pub submission_jobs: u64,
    /// Active jobs of a user.
    pub active_jobs: u64,
    /// Active jobs of all guests.
    pub all_active_jobs: u64,
    /// The size of a user's memos.
    pub memo_bytes: u64,
    /// The size of the memos of all guests.
    pub all_memo_bytes: u64,
    /// The memory of a user's active jobs.
    pub job_bytes: u64,
    /// The memory of the active jobs of all guests.
    pub all_job_bytes: u64,
    /// The size of a jobspec: its bytes, or its values.
    pub jobspec_bytes: u64,
    /// The size of a name, a note or a memo.
    pub text_bytes: u64,
    /// The size of a job's eventlog.
    pub eventlog_bytes: u64,
    /// Submissions of a user of which parts are missing.
    pub unfinished_submissions: u64,
    /// The output that lookups of a user collect at a time.
    pub lookup_bytes: u64,
    /// The bytes that a user has in the store.
    pub store_bytes: u64,
    /// The disk space that is left for the instance owner.
    pub reserved_bytes: u64,
}

/// The id that names no job: any waitable job, or the end of the past events of a journal.
pub const ANY_JOB: i64 = -1;

/// `job-manager.wait`: the result of a waitable job when it is inactive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRequest {
    /// The job, or [`ANY_JOB`].
    pub id: i64,
}

/// The response to `job-manager.wait`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitResponse<'a> {
    /// The job.
    pub id: JobId,
    /// Whether all tasks succeeded.
    pub success: bool,
    /// Why it failed; empty if it succeeded.
    #[serde(borrow)]
    pub errstr: Text<'a>,
}

/// `job-manager.events-journal`, streaming: the events of all jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalRequest {
    /// Whether the events of inactive jobs come, too.
    #[serde(default)]
    pub full: bool,
    /// Only events with these names, the keys.
    #[serde(
        default,
        deserialize_with = "optional_short",
        skip_serializing_if = "Option::is_none"
    )]
    pub allow: Option<Map<String, Value>>,
    /// No events with these names, the keys.
    #[serde(
        default,
        deserialize_with = "optional_short",
        skip_serializing_if = "Option::is_none"
    )]
    pub deny: Option<Map<String, Value>>,
}

/// A response to `job-manager.events-journal`: events of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalResponse<'a> {
    /// The job; [`ANY_JOB`] without events after all past ones.
    pub id: i64,
    /// The events (RFC 18), the oldest first.
    #[serde(borrow)]
    pub events: Vec<Json<'a>>,
    /// The jobspec without its environment, with the event `submit`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub jobspec: Option<Json<'a>>,
    /// The resources, with the event `alloc`.
    #[serde(borrow, default, rename = "R", skip_serializing_if = "Option::is_none")]
    pub r: Option<Json<'a>>,
}

impl Payload for WaitRequest {}
impl Payload for WaitResponse<'_> {}
impl Payload for JournalRequest {}
impl Payload for JournalResponse<'_> {}
impl Payload for RaiseRequest<'_> {}
impl Payload for JobsRequest {}
impl Payload for BulkResponse {}
impl Payload for MatchingJobsRequest {}
impl Payload for MatchingJobsResponse {}
impl Payload for KillRequest {}
impl Payload for UrgencyRequest {}
impl Payload for UrgencyResponse {}
impl Payload for IdleResponse {}
impl Payload for PrioritizeRequest {}
impl Payload for MemoRequest {}
impl Payload for UpdateRequest {}
impl Payload for PurgeRequest {}
impl Payload for PurgeIdRequest {}
impl Payload for PurgeResponse {}
impl Payload for QueueListResponse {}
impl Payload for QueueRequest<'_> {}
impl Payload for QueueStatusResponse<'_> {}
impl Payload for QueueEnableRequest<'_> {}
impl Payload for QueueStartRequest<'_> {}
impl Payload for HistoryRequest<'_> {}
impl Payload for HistoryResponse {}
impl Payload for AllocQueryResponse {}
impl Payload for StatsResponse<'_> {}
