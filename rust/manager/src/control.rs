//! Exceptions and signals of users: `job-manager.raise`, `job-manager.kill`, `job-manager.memo`.

use penstock_flux::errno::EHOSTUNREACH;
use penstock_flux::eventlog::{self, Exception};
use penstock_flux::job_manager::{KillRequest, MatchingJobsRequest, MemoRequest, RaiseRequest};
use penstock_flux::{Credentials, EmptyResponse, RequestError};

use crate::authorize::{NamedJobs, Permission, PermittedJob, PermittedJobs};
use crate::bulk::{BulkRequests, Operation};
use crate::context::Context;
use crate::effect::Effect;
use crate::event::Event;
use crate::quota;
use crate::record::Record;
use crate::rpc::{Handled, Reply, Request};
use crate::state::State;

/// An exception for jobs, as `job-manager.raise` describes it.
#[derive(Debug)]
struct RaiseJobs {
    /// The event, but for its time.
    event: Event,
    /// The length of its line.
    length: usize,
    sender: Credentials,
}

/// A request of `raiseall` or `killall`: its response counts jobs.
#[derive(Debug)]
struct Matching<T> {
    operation: T,
    is_dry_run: bool,
}

impl<T: Operation> Operation for Matching<T> {
    fn apply(&mut self, cx: &mut Context, job: Permission) -> Result<(), RequestError> {
        if self.is_dry_run {
            return job.map(|_| ());
        }
        self.operation.apply(cx, job)
    }

    fn counts_errors(&self) -> bool {
        true
    }

    fn defers(&self, cx: &Context, job: &PermittedJob) -> bool {
        self.operation.defers(cx, job)
    }
}

impl Operation for RaiseJobs {
    fn apply(&mut self, cx: &mut Context, job: Permission) -> Result<(), RequestError> {
        raise_one(cx, &job?, self)
    }

    /// Resources that a cancelled job frees would be allocated to jobs that are to be cancelled as well.
    fn defers(&self, cx: &Context, job: &PermittedJob) -> bool {
        let record = cx.jobs.record(job.id());
        self.event.is_fatal() && record.is_some_and(Record::has_resources)
    }
}

/// The number of a signal for jobs.
#[derive(Debug)]
struct KillJobs(i32);

impl Operation for KillJobs {
    fn apply(&mut self, cx: &mut Context, job: Permission) -> Result<(), RequestError> {
        kill_one(cx, &job?, self.0)
    }
}

/// `job-manager.raise` for one job, for several, or for all active ones.
pub(crate) fn raise(
    cx: &mut Context,
    bulk: &mut BulkRequests,
    request: Request<'_>,
    jobs: PermittedJobs,
) -> Handled {
    let raise = requested_exception(cx, request)?;
    match jobs {
        PermittedJobs::One(job) => raise_one(cx, &job, &raise).map(|()| Reply::Empty),
        PermittedJobs::Several(jobs) => Ok(bulk.begin(cx, request, jobs, raise)),
    }
}

/// `job-manager.raiseall`: an exception for the jobs of a user, or of all, in some states.
pub(crate) fn raise_all(
    cx: &mut Context,
    bulk: &mut BulkRequests,
    request: Request<'_>,
    jobs: NamedJobs,
) -> Handled {
    let operation = requested_exception(cx, request)?;
    let is_dry_run = request.payload::<MatchingJobsRequest>()?.dry_run;
    let matching = Matching {
        operation,
        is_dry_run,
    };
    Ok(bulk.begin(cx, request, jobs, matching))
}

/// `job-manager.killall`: a signal for the tasks of the running jobs of a user, or of all.
pub(crate) fn kill_all(
    cx: &mut Context,
    bulk: &mut BulkRequests,
    request: Request<'_>,
    jobs: NamedJobs,
) -> Handled {
    let operation = KillJobs(requested_signal(request)?);
    let is_dry_run = request.payload::<MatchingJobsRequest>()?.dry_run;
    let matching = Matching {
        operation,
        is_dry_run,
    };
    Ok(bulk.begin(cx, request, jobs, matching))
}

/// The exception that a request describes.
fn requested_exception(cx: &Context, request: Request<'_>) -> Result<RaiseJobs, RequestError> {
    let RaiseRequest {
        kind,
        severity,
        note,
        wait_status,
    } = request.payload()?;
    if !(0..=7).contains(&severity) {
        let text = format!("severity {severity} is out of range: expected 0 to 7");
        return Err(RequestError::invalid(text));
    }
    if kind.is_empty() || !kind.chars().all(|c| c.is_ascii_graphic()) {
        let text = format!("invalid exception type `{}`", kind.escape_debug());
        return Err(RequestError::invalid(text));
    }
    quota::check_exception(cx, &kind, &note)?;
    let exception = Exception {
        kind: kind.into_string().into(),
        severity,
        note: note.into_string().into(),
        userid: Some(request.sender.userid),
        wait_status: wait_status.map(i32::from),
    };
    let event = Event::exception(cx.now, exception);
    Ok(RaiseJobs {
        length: event.line_length(),
        event,
        sender: request.sender,
    })
}

/// Raises an exception for an active job.
fn raise_one(cx: &mut Context, job: &PermittedJob, raise: &RaiseJobs) -> Result<(), RequestError> {
    let state = cx.jobs.active(job.id())?.record.state();
    // A job can always be ended, once.
    if !raise.event.is_fatal() || state == State::Cleanup {
        quota::check_event(cx, raise.sender, job.id(), raise.length)?;
    } else {
        quota::check_end(cx, raise.sender, raise.length)?;
    }
    cx.raise(job.id(), raise.event.clone());
    Ok(())
}

/// `job-manager.kill`: a signal for the tasks of one job or several.
pub(crate) fn kill(
    cx: &mut Context,
    bulk: &mut BulkRequests,
    request: Request<'_>,
    jobs: PermittedJobs,
) -> Handled {
    let signum = requested_signal(request)?;
    match jobs {
        PermittedJobs::One(job) => {
            kill_one(cx, &job, signum).map(|()| Reply::of(&EmptyResponse {}))
        }
        PermittedJobs::Several(jobs) => Ok(bulk.begin(cx, request, jobs, KillJobs(signum))),
    }
}

/// The number of the signal that a request names.
fn requested_signal(request: Request<'_>) -> Result<i32, RequestError> {
    let KillRequest { signum } = request.payload()?;
    if !(1..=64).contains(&signum) {
        let text = format!("signal {signum} is out of range: expected 1 to 64");
        return Err(RequestError::invalid(text));
    }
    Ok(signum)
}

/// Sends a signal to the tasks of a running job.
fn kill_one(cx: &mut Context, job: &PermittedJob, signum: i32) -> Result<(), RequestError> {
    let id = job.id();
    let job = cx.jobs.active(id)?;
    let exec = job.dialogue.exec;
    // A job whose prolog is running has no tasks that a signal could reach.
    if job.record.state() != State::Run || !exec.may_be_running() {
        let text = format!("job {id} is not running");
        return Err(RequestError::invalid(text));
    }
    // The starts of a service that is gone end in slices.
    if !exec.is_outstanding() || !cx.has_exec_service() {
        let text = format!("job {id} has no execution service now: the signal was not sent");
        return Err(RequestError::new(EHOSTUNREACH, text));
    }
    cx.add_effect(Effect::Kill { id, signum });
    Ok(())
}

/// `job-manager.memo`: sets keys of a job's memo; null removes a key.
pub(crate) fn memo(cx: &mut Context, request: Request<'_>, job: &PermittedJob) -> Handled {
    let MemoRequest { memo, .. } = request.payload()?;
    let id = job.id();
    quota::check_memo(cx, request.sender, id, &memo)?;
    let event = Event::with(cx.now, eventlog::MEMO, &memo);
    quota::check_event(cx, request.sender, id, event.line_length())?;
    cx.log(id, event);
    Ok(Reply::Empty)
}
