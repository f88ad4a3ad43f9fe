//! The service `job-ingest`: submission.

use std::fmt::Write as _;

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};

use crate::limits::MAX_SUBMISSIONS_PER_REQUEST;
use crate::payload::{Json, Payload, Text, at_most, objects, optional_at_most};

/// A flag of a submission: `job-manager.wait` responds with the job's result.
pub const WAITABLE: u32 = 4;

/// `job-ingest.submit`: one jobspec, several copies of one, or several submissions in one request.
///
/// `count`, `cc`, `token`, `jobs` and `independent` are Penstock's own.
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
    /// In place of all other keys but `token` and `independent`: several submissions, each a request like this one. An invalid
    /// one rejects all of them.
    #[serde(
        borrow,
        default,
        deserialize_with = "optional_at_most::<MAX_SUBMISSIONS_PER_REQUEST, _, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub jobs: Option<Vec<Json<'a>>>,
    /// Beside `jobs` only: whether the submissions in it are unrelated. Each invalid one is a result then, and the others are accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub independent: bool,
}

/// `job-ingest.submit-part`: some of the submissions of one list that comes in several requests (Penstock's own).
///
/// The parts have one token and are one submission: all of its jobs appear with the last part, or none does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitPartRequest<'a> {
    /// Names the whole submission, as that of a [`SubmitRequest`] does.
    #[serde(borrow)]
    pub token: Text<'a>,
    /// The number of the part, from 0.
    pub part: u64,
    /// Whether another part follows.
    #[serde(default)]
    pub more: bool,
    /// Whether the client cancels the list: none of its jobs is submitted. The part has no jobs, and none follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abort: bool,
    /// The submissions, each a [`SubmitRequest`]; none only in the last part.
    #[serde(
        borrow,
        deserialize_with = "at_most::<MAX_SUBMISSIONS_PER_REQUEST, _, _>"
    )]
    pub jobs: Vec<Json<'a>>,
}

/// The response to a part: before the last one, the jobs are accepted, but neither visible nor durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitPartResponse {
    /// The result of each submission of the part, in their order.
    pub results: Vec<SubmitPartResult>,
}

/// The result of one submission of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SubmitPartResult {
    /// The id of its job.
    Id(JobId),
    /// The ids of its copies.
    Ids(Vec<JobId>),
    /// The reason why it is not submitted: it is invalid, or one before it in the list is. The response to the last part is an
    /// error. After 100 invalid ones the outstanding parts get the error, and further parts ENOENT.
    Error(String),
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

/// The result of one submission in a request with `jobs`. With an error it is that of an independent one.
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

/// The text of a [`SubmitCopiesResponse`], a [`SubmitManyResponse`] or a [`SubmitPartResponse`], written as the jobs are
/// added: to write a million ids at the end takes long.
#[derive(Clone, Debug, Default)]
pub struct SubmitResultsText {
    /// JSON values with a comma between them.
    results: String,
    /// Whether they are those of a part.
    is_part: bool,
}

impl SubmitResultsText {
    /// The text of a [`SubmitPartResponse`].
    pub fn of_part() -> Self {
        Self {
            results: String::new(),
            is_part: true,
        }
    }

    /// Begins the ids of a submission: [`push_id`](Self::push_id) for each of its jobs and
    /// [`end_ids`](Self::end_ids) follow.
    pub fn begin_ids(&mut self) {
        self.separate();
        let begin = if self.is_part { "[" } else { "{\"ids\":[" };
        self.results.push_str(begin);
    }

    /// Begins the only id of a submission of one job, as [`begin_ids`](Self::begin_ids);
    /// [`end_id`](Self::end_id) follows.
    pub fn begin_id(&mut self) {
        if self.is_part {
            self.separate();
        } else {
            self.begin_ids();
        }
    }

    /// Adds the id of a job.
    pub fn push_id(&mut self, id: JobId) {
        let separator = match self.results.as_bytes().last() {
            None | Some(b'[' | b',') => "",
            Some(_) => ",",
        };
        // Writing to a string does not fail.
        let _ = write!(self.results, "{separator}{}", id.get());
    }

    /// Ends the ids of a submission.
    pub fn end_ids(&mut self) {
        let end = if self.is_part { "]" } else { "]}" };
        self.results.push_str(end);
    }

    /// Ends the only id of a submission of one job.
    pub fn end_id(&mut self) {
        if !self.is_part {
            self.end_ids();
        }
    }

    /// Adds a submission that is rejected, and why.
    pub fn push_error(&mut self, reason: &str) {
        self.separate();
        let text = if self.is_part {
            serde_json::to_string(reason)
        } else {
            serde_json::to_string(&SubmitResult::Error(reason.to_owned()))
        };
        self.results.push_str(&text.unwrap_or_default());
    }

    fn separate(&mut self) {
        if !self.results.is_empty() {
            self.results.push(',');
        }
    }

    /// The payload of a [`SubmitCopiesResponse`]: its ids are the only result. The text has no results then. A million
    /// ids are not copied.
    pub fn take_copies_payload(&mut self) -> Vec<u8> {
        let mut payload = std::mem::take(&mut self.results).into_bytes();
        payload.push(b'\0');
        payload
    }

    /// The payload of a [`SubmitPartResponse`]. The text is that of the next part then, without results.
    pub fn take_part_payload(&mut self) -> Vec<u8> {
        let payload = self.many_payload();
        self.results.clear();
        payload
    }

    /// The payload of a [`SubmitManyResponse`], or of the last part.
    pub fn many_payload(&self) -> Vec<u8> {
        [b"{\"results\":[", self.results.as_bytes(), b"]}\0"].concat()
    }
}

impl Payload for SubmitRequest<'_> {}
impl Payload for SubmitPartRequest<'_> {}
impl Payload for SubmitPartResponse {}
impl Payload for SubmitResponse {}
impl Payload for SubmitCopiesResponse {}
impl Payload for SubmitManyResponse {}
