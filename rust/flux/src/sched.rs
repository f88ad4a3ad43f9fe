//! The service `sched`, as its users see it: explanations, estimates, what-if (Penstock's own).
//!
//! Allocation is in [`alloc`](crate::alloc).

use std::collections::BTreeMap;

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::histogram::HistogramStats;
use crate::payload::{Json, Member, Payload, Text, object, objects, optional_job_ids};

/// `sched.explain` and `sched.estimate`: selects jobs by id, or the first of the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsRequest {
    /// Several jobs.
    #[serde(
        default,
        deserialize_with = "optional_job_ids",
        skip_serializing_if = "Option::is_none"
    )]
    pub ids: Option<Vec<JobId>>,
    /// One job, in place of `ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    /// `estimate` without ids: how many jobs, from the first of the queue; 0 for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u64>,
}

impl JobsRequest {
    /// Returns the requested job ids; `None` if the request names no job.
    pub fn into_ids(self) -> Option<Vec<JobId>> {
        self.ids.or_else(|| self.id.map(|id| vec![id]))
    }
}

/// The estimated start of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StartEstimate {
    /// Seconds since the epoch; null if there is no estimate.
    pub start: Option<f64>,
    /// The early end of the interval in which most starts have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest: Option<f64>,
    /// The late end of that interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<f64>,
}

/// The reason why a job is pending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation<'a> {
    /// The job.
    pub id: JobId,
    /// The kind of reason, a word.
    #[serde(borrow)]
    pub kind: Text<'a>,
    /// The reason as a sentence.
    #[serde(borrow)]
    pub reason: Text<'a>,
    /// The facts that the sentence states; the keys depend on the kind.
    pub details: Map<String, Value>,
    /// Its estimated start.
    #[serde(flatten)]
    pub start: StartEstimate,
}

/// The response to `sched.explain`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainResponse<'a> {
    /// The pending jobs.
    #[serde(borrow, deserialize_with = "objects")]
    pub jobs: Vec<Explanation<'a>>,
    /// The other requested jobs: why there is no answer, by id.
    pub errors: BTreeMap<String, String>,
}

/// The estimated start of a job, or the reason why there is no estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate<'a> {
    /// The job.
    pub id: JobId,
    /// Why it is pending, if its start cannot be estimated.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'a>>,
    /// Its estimated start.
    #[serde(flatten)]
    pub start: StartEstimate,
}

/// Statistics of the delay of starts against their estimates, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Starts in the statistics; if 0, all other values are 0.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The 10th percentile.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub high: f64,
}

/// The response to `sched.estimate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EstimateResponse<'a> {
    /// The pending jobs.
    #[serde(borrow, deserialize_with = "objects")]
    pub jobs: Vec<Estimate<'a>>,
    /// The delay of starts against their estimates.
    #[serde(deserialize_with = "object")]
    pub accuracy: Accuracy,
    /// The other requested jobs: why there is no answer, by id.
    pub errors: BTreeMap<String, String>,
}

/// The payload of an [`EstimateResponse`] that is written job by job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EstimateResponseText {
    /// The payload up to the last job.
    text: Vec<u8>,
}

/// The start of the payload of an [`EstimateResponse`].
const JOBS: &[u8] = b"{\"jobs\":[";

impl EstimateResponseText {
    /// A response without jobs, with room for this many, but for at most `limit` bytes.
    pub fn with_capacity(jobs: usize, limit: usize) -> Self {
        // Bytes of a job with an estimate and its range.
        let bytes = jobs.saturating_mul(128).min(limit);
        let mut text = Vec::with_capacity(bytes.saturating_add(256));
        text.extend_from_slice(JOBS);
        Self { text }
    }

    /// The length of the payload so far, in bytes.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether there is no job.
    pub fn is_empty(&self) -> bool {
        self.text.len() == JOBS.len()
    }

    /// Adds a job.
    pub fn push(&mut self, job: &Estimate<'_>) {
        if self.text.last() == Some(&b'}') {
            self.text.push(b',');
        }
        // Writing to memory does not fail, and all keys are strings.
        let _ = serde_json::to_writer(&mut self.text, job);
    }

    /// The payload, with the other members of the response. Millions of bytes are not copied.
    pub fn into_payload(self, accuracy: Accuracy, errors: BTreeMap<String, String>) -> Vec<u8> {
        let rest = EstimateResponse {
            jobs: Vec::new(),
            accuracy,
            errors,
        };
        let rest = rest.to_payload();
        let mut payload = self.text;
        payload.extend_from_slice(rest.strip_prefix(JOBS).unwrap_or_default());
        payload
    }
}

/// `sched.what-if`: one hypothetical change, selected by the key that is present.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhatIfRequest<'a> {
    /// A submission: its jobspec.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub submit: Option<Json<'a>>,
    /// The urgency of the submission; 16 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urgency: Option<u64>,
    /// A job to cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<JobId>,
    /// An idset of ranks that go down.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub down: Option<Text<'a>>,
    /// An idset of ranks that come up.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub up: Option<Text<'a>>,
    /// A pending job: with how many nodes it would start now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<JobId>,
    /// A pending job whose request changes, by `nodes` or `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Its changed number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u64>,
    /// Its changed time limit, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<f64>,
}

/// A job whose estimated start changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovedStart {
    /// The job.
    pub id: JobId,
    /// Its estimated start without the change, seconds since the epoch.
    pub before: Option<f64>,
    /// Its estimated start with the change.
    pub after: Option<f64>,
}

/// The response to `sched.what-if` without `fit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIfResponse<'a> {
    /// The answer as a sentence.
    #[serde(borrow)]
    pub text: Text<'a>,
    /// The estimated start of the job in question; null for never, absent if no job is in question.
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub start: Member<f64>,
    /// An idset of the ranks that it would get.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Text<'a>>,
    /// Other jobs whose estimated starts change.
    #[serde(deserialize_with = "objects")]
    pub moved: Vec<MovedStart>,
}

/// The response to `sched.what-if` with `fit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FitResponse<'a> {
    /// The answer as a sentence.
    #[serde(borrow)]
    pub text: Text<'a>,
    /// The number of nodes or slots that the job requests.
    pub requested: u32,
    /// The largest number with which it would start now; null if it would start with no number.
    pub largest: Option<u32>,
    /// Empty.
    #[serde(deserialize_with = "objects")]
    pub moved: Vec<MovedStart>,
}

/// The response to `sched.stats-get`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatsResponse<'a> {
    /// Whether alloc requests are served.
    pub ready: bool,
    /// Pending jobs.
    pub queued: u64,
    /// Jobs with resources.
    pub running: u64,
    /// Alloc requests without a last response.
    pub unanswered: u64,
    /// The scheduling policy.
    #[serde(borrow)]
    pub policy: Text<'a>,
    /// The order in which nodes are chosen.
    #[serde(borrow)]
    pub selection: Text<'a>,
    /// The delay of starts against their estimates.
    #[serde(deserialize_with = "object")]
    pub estimates: Accuracy,
    /// The durations of the passes.
    #[serde(deserialize_with = "object")]
    pub passes: HistogramStats,
}

impl Payload for JobsRequest {}
impl Payload for ExplainResponse<'_> {}
impl Payload for EstimateResponse<'_> {}
impl Payload for WhatIfRequest<'_> {}
impl Payload for WhatIfResponse<'_> {}
impl Payload for FitResponse<'_> {}
impl Payload for StatsResponse<'_> {}
