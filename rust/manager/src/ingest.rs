//! `job-ingest.submit`: one jobspec, several copies of one, or several jobspecs in one request.

use penstock_flux::eventlog::{self, Submit};
use penstock_flux::job_ingest::{
    SubmitCopiesResponse, SubmitManyResponse, SubmitRequest, SubmitResponse, SubmitResult,
};
use penstock_flux::urgency::DEFAULT;
use penstock_flux::{Json, RequestError, errno};
use penstock_jobspec::job_id::JobId;
use penstock_store::Submission;
use serde::{Deserialize, Serialize};

use crate::authorize;
use crate::context::Context;
use crate::event::Event;
use crate::jobspecs;
use crate::quota;
use crate::rpc::{Handled, Reply, Request};
use crate::signed;

/// The greatest number of jobs that one submission may make.
const MAX_JOBS_PER_SUBMISSION: u64 = 10_000_000;

/// The time for which a token names a submission, in seconds.
const TOKEN_LIFETIME_S: f64 = 24.0 * 3600.0;

/// The greatest length of a token.
const MAX_TOKEN_BYTES: usize = 64;

/// The jobs of a request.
enum Accepted {
    One(JobId),
    Copies(Vec<JobId>),
    Many(Vec<SubmitResult>),
}

impl Accepted {
    fn into_reply(self) -> Reply {
        match self {
            Self::One(id) => Reply::of(&SubmitResponse { id }),
            Self::Copies(ids) => Reply::of(&SubmitCopiesResponse { ids }),
            Self::Many(results) => Reply::of(&SubmitManyResponse { results }),
        }
    }
}

/// The jobs of a request as the store has them. The ids of one submission follow each other: the first one and their
/// number tell them.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredJobs {
    One(JobId),
    Copies(JobId, usize),
    Many(Vec<StoredResult>),
}

/// One submission of several.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredResult {
    Ids(JobId, usize),
    Error(String),
}

fn copies(first: JobId, count: usize) -> Vec<JobId> {
    let ids = std::iter::successors(Some(first), |id| Some(id.successor()));
    ids.take(count).collect()
}

impl From<&Accepted> for StoredJobs {
    fn from(accepted: &Accepted) -> Self {
        let first = |ids: &[JobId]| ids.first().copied().unwrap_or_default();
        match accepted {
            Accepted::One(id) => Self::One(*id),
            Accepted::Copies(ids) => Self::Copies(first(ids), ids.len()),
            Accepted::Many(results) => {
                let results = results.iter().map(|result| match result {
                    SubmitResult::Ids(ids) => StoredResult::Ids(first(ids), ids.len()),
                    SubmitResult::Error(error) => StoredResult::Error(error.clone()),
                });
                Self::Many(results.collect())
            }
        }
    }
}

impl From<StoredJobs> for Accepted {
    fn from(stored: StoredJobs) -> Self {
        match stored {
            StoredJobs::One(id) => Self::One(id),
            StoredJobs::Copies(first, count) => Self::Copies(copies(first, count)),
            StoredJobs::Many(results) => {
                let results = results.into_iter().map(|result| match result {
                    StoredResult::Ids(first, count) => SubmitResult::Ids(copies(first, count)),
                    StoredResult::Error(error) => SubmitResult::Error(error),
                });
                Self::Many(results.collect())
            }
        }
    }
}

/// `job-ingest.submit`. The ids are sent when the jobs are durable.
pub(crate) fn submit(cx: &mut Context, request: Request<'_>) -> Handled {
    let submission: SubmitRequest<'_> = request.payload()?;
    let Some(token) = submission.token.as_deref() else {
        return add(cx, request, &submission).map(Accepted::into_reply);
    };
    if !(1..=MAX_TOKEN_BYTES).contains(&token.len()) {
        let text = format!("expected a `token` of 1 to {MAX_TOKEN_BYTES} bytes");
        return Err(RequestError::invalid(text));
    }
    let userid = request.sender.userid;
    let digest = digest(request.message.payload_json().unwrap_or_default());
    let expired = cx.now - TOKEN_LIFETIME_S;
    let known = cx.read_store(|store| store.submission(userid, token, expired));
    if let Some(known) = known {
        return repeat(token, digest, &known).map(Accepted::into_reply);
    }
    let accepted = add(cx, request, &submission)?;
    let result = serde_json::to_string(&StoredJobs::from(&accepted)).unwrap_or_default();
    cx.store_submission(userid, token, &Submission { digest, result }, expired);
    Ok(accepted.into_reply())
}

/// The jobs of the first request with this token.
fn repeat(token: &str, digest: u64, known: &Submission) -> Result<Accepted, RequestError> {
    if known.digest != digest {
        let text = format!("token `{token}` names another submission");
        return Err(RequestError::new(errno::EEXIST, text));
    }
    let stored: StoredJobs = serde_json::from_str(&known.result).map_err(|error| {
        let text = format!("the result of submission `{token}` cannot be read: {error}");
        RequestError::new(errno::EIO, text)
    })?;
    Ok(stored.into())
}

/// A digest of a request's content that does not depend on the program's version (FNV-1a).
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Adds the jobs of a request.
fn add(
    cx: &mut Context,
    request: Request<'_>,
    submission: &SubmitRequest<'_>,
) -> Result<Accepted, RequestError> {
    if let Some(error) = &cx.rejection {
        return Err(error.clone());
    }
    let Some(jobs) = &submission.jobs else {
        let ids = accept(cx, request, submission)?;
        return Ok(match (submission.count, ids.as_slice()) {
            (None, [id]) => Accepted::One(*id),
            _ => Accepted::Copies(ids),
        });
    };
    quota::check_submissions(cx, request.sender, jobs.len())?;
    let mut submit_one = |job: &Json<'_>| {
        let job: SubmitRequest<'_> = penstock_flux::read(Some(job.0.as_bytes()))
            .map_err(|error| RequestError::protocol(format!("malformed submission: {error}")))?;
        if job.token.is_some() {
            let text = "a `token` names the whole request: expected it beside `jobs`";
            return Err(RequestError::protocol(text));
        }
        accept(cx, request, &job)
    };
    let results = jobs.iter().map(|job| match submit_one(job) {
        Ok(ids) => SubmitResult::Ids(ids),
        Err(error) => SubmitResult::Error(error.text),
    });
    Ok(Accepted::Many(results.collect()))
}

fn accept(
    cx: &mut Context,
    request: Request<'_>,
    submission: &SubmitRequest<'_>,
) -> Result<Vec<JobId>, RequestError> {
    let userid = request.sender.userid;
    let urgency = submission.urgency.unwrap_or(DEFAULT.into());
    let urgency = authorize::urgency(request.sender, urgency)?;
    let count = submission.count.unwrap_or(1);
    if !(1..=MAX_JOBS_PER_SUBMISSION).contains(&count) {
        let text =
            format!("count {count} is out of range: expected 1 to {MAX_JOBS_PER_SUBMISSION}");
        return Err(RequestError::invalid(text));
    }
    quota::check_jobs(cx, request.sender, count)?;
    let stored = match (submission.jobspec, &submission.signed) {
        (Some(jobspec), None) => jobspecs::submit(cx, jobspec.0, userid)?,
        (None, Some(signed)) => {
            let text = signed::unwrap(signed, request.sender)?;
            jobspecs::submit(cx, &text, userid)?
        }
        (None, None) => {
            return Err(RequestError::protocol("the submission has no `jobspec`"));
        }
        (Some(_), Some(_)) => {
            let text = "the submission has both `jobspec` and `J`";
            return Err(RequestError::protocol(text));
        }
    };
    let context = Submit {
        userid,
        urgency,
        flags: submission.flags,
        version: Submit::VERSION,
    };
    let submit = Event::with(cx.now, eventlog::SUBMIT, &context);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    cx.add_jobs(count, userid, &stored, &submit)
}
