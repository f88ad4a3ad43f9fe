//! The service `job-ingest`: submission.

use std::fmt::Write as _;

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};

use crate::payload::{Json, Payload, Text, objects};

/// A flag of a submission: `job-manager.wait` responds with the job's result.
pub const WAITABLE: u32 = 4;

/// `job-ingest.submit`: one jobspec, several copies of one, or several submissions in one request.
///
/// `count`, `cc`, `token` and `jobs` are Penstock's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitRequest<'a> {
    /// The jobspec.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub jobspec: Option<Json<'a>>,
    /// In place of `jobspec`: the signed jobspec (RFC 15), as Flux's own tools send it.
    #[serde(borrow, rename = "J", skip_serializing_if = "Option::is_none")]
    pub signed: Option<Text<'a>>,
    /// 0 (hold) to 31 (expedite); 16 if absent (RFC 30).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urgency: Option<i64>,
    /// Flags of the submission.
    #[serde(default)]
    pub flags: u32,
    /// The number of copies to submit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// In place of `count`: an idset, with a copy for each id, which takes the place of `{cc}` in the jobspec when the copy
    /// starts.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub cc: Option<Text<'a>>,
    /// Names the request: a second one of the same user with this token, within a day, adds no jobs and gets the ids of
    /// the first (Penstock's own).
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub token: Option<Text<'a>>,
    /// In place of all other keys but `token`: several submissions, each a request like this one.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<Json<'a>>>,
}

/// The response to a request for one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitResponse {
    /// The new job's id.
    pub id: JobId,
}

/// The response to a request with `count` or `cc`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitCopiesResponse {
    /// The new jobs' ids.
    pub ids: Vec<JobId>,
}

/// The result of one submission in a request with `jobs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubmitResult {
    /// The ids of its jobs.
    Ids(Vec<JobId>),
    /// The reason why it is rejected.
    Error(String),
}

/// The response to a request with `jobs`, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitManyResponse {
    /// The result of each submission.
    #[serde(deserialize_with = "objects")]
    pub results: Vec<SubmitResult>,
}

/// The text of a [`SubmitCopiesResponse`] or a [`SubmitManyResponse`], written as the jobs are added: to write a million ids
/// at the end takes long.
#[derive(Clone, Debug, Default)]
pub struct SubmitResultsText {
    /// JSON objects with a comma between them.
    results: String,
}

impl SubmitResultsText {
    /// Begins the ids of a submission: [`push_id`](Self::push_id) for each of its jobs and
    /// [`end_ids`](Self::end_ids) follow.
    pub fn begin_ids(&mut self) {
        self.separate();
        self.results.push_str("{\"ids\":[");
    }

    /// Adds the id of a job.
    pub fn push_id(&mut self, id: JobId) {
        let separator = if self.results.ends_with('[') { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(self.results, "{separator}{}", id.get());
    }

    /// Ends the ids of a submission.
    pub fn end_ids(&mut self) {
        self.results.push_str("]}");
    }

    /// Adds a submission that is rejected, and why.
    pub fn push_error(&mut self, reason: &str) {
        self.separate();
        let result = SubmitResult::Error(reason.to_owned());
        self.results
            .push_str(&serde_json::to_string(&result).unwrap_or_default());
    }

    fn separate(&mut self) {
        if !self.results.is_empty() {
            self.results.push(',');
        }
    }

    /// The payload of a [`SubmitCopiesResponse`]: its ids are the only result.
    pub fn copies_payload(&self) -> Vec<u8> {
        [self.results.as_bytes(), b"\0"].concat()
    }

    /// The payload of a [`SubmitManyResponse`].
    pub fn many_payload(&self) -> Vec<u8> {
        [b"{\"results\":[", self.results.as_bytes(), b"]}\0"].concat()
    }
}

impl Payload for SubmitRequest<'_> {}
impl Payload for SubmitResponse {}
impl Payload for SubmitCopiesResponse {}
impl Payload for SubmitManyResponse {}
