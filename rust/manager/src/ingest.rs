//! `job-ingest.submit`: one jobspec, several copies of one, or several jobspecs in one request.

use penstock_flux::eventlog::{self, Submit};
use penstock_flux::job_ingest::{
    SubmitCopiesResponse, SubmitManyResponse, SubmitRequest, SubmitResponse, SubmitResult,
};
use penstock_flux::urgency::DEFAULT;
use penstock_flux::{Json, RequestError, errno};
use penstock_jobspec::job_id::JobId;

use crate::authorize;
use crate::context::Context;
use crate::event::Event;
use crate::jobspecs;
use crate::rpc::{Handled, Reply, Request};
use crate::signed;

/// The greatest number of jobs that one submission may make.
const MAX_JOBS_PER_SUBMISSION: u64 = 10_000_000;

/// `job-ingest.submit`. The ids are sent when the jobs are durable.
pub(crate) fn submit(cx: &mut Context, request: Request<'_>) -> Handled {
    if let Some(reason) = &cx.rejection {
        return Err(RequestError::new(errno::EAGAIN, reason));
    }
    let submission: SubmitRequest<'_> = request.payload()?;
    if let Some(jobs) = &submission.jobs {
        let mut submit_one = |job: &Json<'_>| {
            let job = penstock_flux::read(Some(job.0.as_bytes())).map_err(|error| {
                RequestError::protocol(format!("malformed submission: {error}"))
            })?;
            accept(cx, request, &job)
        };
        let results = jobs.iter().map(|job| match submit_one(job) {
            Ok(ids) => SubmitResult::Ids(ids),
            Err(error) => SubmitResult::Error(error.text),
        });
        let results = results.collect();
        return Ok(Reply::of(&SubmitManyResponse { results }));
    }
    let ids = accept(cx, request, &submission)?;
    Ok(match (submission.count, ids.as_slice()) {
        (None, [id]) => Reply::of(&SubmitResponse { id: *id }),
        _ => Reply::of(&SubmitCopiesResponse { ids }),
    })
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
