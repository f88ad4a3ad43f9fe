//! Exceptions and signals of users: `job-manager.raise`, `job-manager.kill`, `job-manager.memo`.

use penstock_flux::job_manager::{BulkResponse, KillRequest, MemoRequest, RaiseRequest};
use penstock_flux::{EmptyResponse, RequestError};
use penstock_jobspec::job_id::JobId;
use serde_json::Map;

use crate::authorize::{self, Decided};
use crate::context::{Context, Raise};
use crate::effect::Effect;
use crate::event::Event;
use crate::record::Record;
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

/// Applies an operation to several jobs, with a rule of authorization for each.
pub(crate) fn decide_each(
    ids: impl IntoIterator<Item = JobId>,
    operation: impl FnMut(JobId) -> Result<Decided<()>, RequestError>,
) -> Decided<Reply> {
    let mut response = empty();
    let decided = authorize::each(ids, operation, |id, result| {
        report(&mut response, id, result);
    });
    decided.with(Reply::of(&response))
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
pub(crate) fn raise(
    cx: &mut Context,
    request: Request<'_>,
) -> Result<Decided<Reply>, RequestError> {
    let raise: RaiseRequest<'_> = request.payload()?;
    let severity = raise.severity;
    if !(0..=7).contains(&severity) {
        let text = format!("severity {severity} is out of range: expected 0 to 7");
        return Err(RequestError::invalid(text));
    }
    if raise.kind.is_empty() || !raise.kind.chars().all(|c| c.is_ascii_graphic()) {
        let text = format!("invalid exception type `{}`", raise.kind.escape_debug());
        return Err(RequestError::invalid(text));
    }
    let sender = request.sender;
    let ids = match (raise.id, &raise.ids) {
        (Some(id), _) => {
            let decided = raise_one(cx, request, &raise, id)?;
            return Ok(decided.with(Reply::Empty));
        }
        (None, Some(ids)) => ids.clone(),
        (None, None) if raise.all => {
            let of = raise.userid.or(authorize::default_user(sender));
            let records = cx.jobs.iter().map(|job| &job.record);
            let active = records.filter(|record| {
                record.state() != State::Inactive
                    && of.is_none_or(|userid| record.userid() == userid)
            });
            active.map(Record::id).collect()
        }
        (None, None) => return Err(RequestError::invalid("expected `id`, `ids` or `all`")),
    };
    Ok(decide_each(ids, |id| raise_one(cx, request, &raise, id)))
}

fn raise_one(
    cx: &mut Context,
    request: Request<'_>,
    raise: &RaiseRequest<'_>,
    id: JobId,
) -> Result<Decided<()>, RequestError> {
    let decided = authorize::job(&cx.jobs, request.sender, id)?.with(());
    cx.jobs.active(id)?;
    let raise = Raise {
        kind: &raise.kind,
        severity: raise.severity,
        note: &raise.note,
        userid: request.sender.userid,
        wait_status: raise.wait_status.map(i32::from),
    };
    cx.raise(id, &raise);
    Ok(decided)
}

/// `job-manager.kill`: a signal for the tasks of one job or several.
pub(crate) fn kill(cx: &mut Context, request: Request<'_>) -> Result<Decided<Reply>, RequestError> {
    let kill: KillRequest = request.payload()?;
    let signum = kill.signum;
    if !(1..=64).contains(&signum) {
        let text = format!("signal {signum} is out of range: expected 1 to 64");
        return Err(RequestError::invalid(text));
    }
    let mut kill_one = |id| {
        let decided = authorize::job(&cx.jobs, request.sender, id)?.with(());
        let job = cx.jobs.active(id)?;
        // A job whose prolog is running has no tasks that a signal could reach.
        if job.record.state() != State::Run || !job.dialogue.exec().is_outstanding() {
            let text = format!("job {id} is not running");
            return Err(RequestError::invalid(text));
        }
        cx.add_effect(Effect::Kill { id, signum });
        Ok(decided)
    };
    match (kill.id, kill.ids) {
        (Some(id), None) => {
            let decided = kill_one(id)?;
            Ok(decided.with(Reply::of(&EmptyResponse {})))
        }
        (None, Some(ids)) => Ok(decide_each(ids, kill_one)),
        _ => Err(RequestError::invalid("expected `id` or `ids`")),
    }
}

/// `job-manager.memo`: sets keys of a job's memo; null removes a key.
pub(crate) fn memo(cx: &mut Context, request: Request<'_>) -> Handled {
    let memo: MemoRequest = request.payload()?;
    cx.jobs.active(memo.id)?;
    cx.log(memo.id, Event::with(cx.now, "memo", &memo.memo));
    Ok(Reply::Empty)
}
