//! Exceptions and signals of users: `job-manager.raise`, `job-manager.kill`, `job-manager.memo`.

use penstock_flux::errno::EHOSTUNREACH;
use penstock_flux::eventlog;
use penstock_flux::job_manager::{BulkResponse, KillRequest, MemoRequest, RaiseRequest};
use penstock_flux::{EmptyResponse, RequestError};
use penstock_jobspec::job_id::JobId;
use serde_json::Map;

use crate::authorize::{PermittedJob, PermittedJobs};
use crate::context::{Context, Raise};
use crate::effect::Effect;
use crate::event::Event;
use crate::quota;
use crate::rpc::{Handled, Reply, Request};
use crate::state::State;

/// Applies an operation to several jobs. The response counts them and names those that it failed
/// for.
pub(crate) fn for_each(
    ids: impl IntoIterator<Item = JobId>,
    mut operation: impl FnMut(JobId) -> Result<(), RequestError>,
) -> Reply {
    let mut response = empty();
    for id in ids {
        report(&mut response, id, operation(id));
    }
    Reply::of(&response)
}

/// Applies an operation to the jobs that a request names. The response for one job is made by `reply`; that
/// for several counts them, and names those that the sender may not act on or that the operation failed for.
pub(crate) fn apply<T>(
    jobs: PermittedJobs,
    mut operation: impl FnMut(PermittedJob) -> Result<T, RequestError>,
    reply: impl FnOnce(T) -> Reply,
) -> Handled {
    match jobs {
        PermittedJobs::One(job) => operation(job).map(reply),
        PermittedJobs::Several(jobs) => {
            let mut response = empty();
            for (id, permitted) in jobs {
                let result = permitted.and_then(&mut operation).map(drop);
                report(&mut response, id, result);
            }
            Ok(Reply::of(&response))
        }
    }
}

fn empty() -> BulkResponse {
    BulkResponse {
        count: 0,
        errors: Map::new(),
    }
}

fn report(response: &mut BulkResponse, id: JobId, result: Result<(), RequestError>) {
    match result {
        Ok(()) => response.count += 1,
        Err(error) => {
            let id = id.get().to_string();
            response.errors.insert(id, error.text.into());
        }
    }
}

/// `job-manager.raise` for one job, for several, or for all active ones.
pub(crate) fn raise(cx: &mut Context, request: Request<'_>, jobs: PermittedJobs) -> Handled {
    let RaiseRequest {
        kind,
        severity,
        note,
        wait_status,
        ..
    } = request.payload()?;
    if !(0..=7).contains(&severity) {
        let text = format!("severity {severity} is out of range: expected 0 to 7");
        return Err(RequestError::invalid(text));
    }
    if kind.is_empty() || !kind.chars().all(|c| c.is_ascii_graphic()) {
        let text = format!("invalid exception type `{}`", kind.escape_debug());
        return Err(RequestError::invalid(text));
    }
    quota::check_exception(&kind, &note)?;
    let raise = Raise {
        kind: &kind,
        severity,
        note: &note,
        userid: request.sender.userid,
        wait_status: wait_status.map(i32::from),
    };
    let raise_one = |job: PermittedJob| {
        cx.jobs.active(job.id())?;
        cx.raise(job.id(), &raise);
        Ok(())
    };
    apply(jobs, raise_one, |()| Reply::Empty)
}

/// `job-manager.kill`: a signal for the tasks of one job or several.
pub(crate) fn kill(cx: &mut Context, request: Request<'_>, jobs: PermittedJobs) -> Handled {
    let kill: KillRequest = request.payload()?;
    let signum = kill.signum;
    if !(1..=64).contains(&signum) {
        let text = format!("signal {signum} is out of range: expected 1 to 64");
        return Err(RequestError::invalid(text));
    }
    let kill_one = |job: PermittedJob| {
        let id = job.id();
        let job = cx.jobs.active(id)?;
        let exec = job.dialogue.exec;
        // A job whose prolog is running has no tasks that a signal could reach.
        if job.record.state() != State::Run || !exec.may_be_running() {
            let text = format!("job {id} is not running");
            return Err(RequestError::invalid(text));
        }
        if !exec.is_outstanding() {
            let text = format!("job {id} has no execution service now: the signal was not sent");
            return Err(RequestError::new(EHOSTUNREACH, text));
        }
        cx.add_effect(Effect::Kill { id, signum });
        Ok(())
    };
    apply(jobs, kill_one, |()| Reply::of(&EmptyResponse {}))
}

/// `job-manager.memo`: sets keys of a job's memo; null removes a key.
pub(crate) fn memo(cx: &mut Context, request: Request<'_>, job: &PermittedJob) -> Handled {
    let MemoRequest { memo, .. } = request.payload()?;
    let id = job.id();
    let job = cx.jobs.active(id)?;
    quota::check_memo(job.record.memo(), &memo)?;
    cx.log(id, Event::with(cx.now, eventlog::MEMO, &memo));
    Ok(Reply::Empty)
}
