//! Changes of the expiration of a running job: checked, agreed to by the scheduler, applied.

use penstock_flux::RequestError;
use penstock_flux::errno::EBUSY;
use penstock_flux::eventlog::{self, JobspecUpdate, ResourceUpdate};
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use crate::context::Context;
use crate::effect::{Effect, ExpirationCause, ExpirationChange};
use crate::event::Event;
use crate::jobspecs;
use crate::policy;
use crate::record::Record;
use crate::scheduler::SchedulerPeer;
use crate::spec::Checked;
use crate::state::State;

/// Requests the scheduler's agreement that a running job ends `duration` seconds after its begin; 0 is
/// never. An expiration that the job cannot have is rejected, and not requested.
pub(crate) fn request(
    cx: &mut Context,
    scheduler: &mut SchedulerPeer,
    id: JobId,
    duration: f64,
    cause: ExpirationCause,
) {
    if scheduler.has_expiration_request(id) {
        return reject_busy(cx, id, cause);
    }
    match check(cx, id, duration) {
        Ok((expiration, jobspec)) => {
            let change = ExpirationChange {
                id,
                expiration,
                jobspec,
                cause,
            };
            scheduler.request_expiration(cx, change);
        }
        Err(error) => cx.add_effect(Effect::ExpirationRejected { id, cause, error }),
    }
}

fn reject_busy(cx: &mut Context, id: JobId, cause: ExpirationCause) {
    let text = format!("job {id} is being updated already");
    match cause {
        ExpirationCause::Update(request) => cx.reject(&request, &RequestError::new(EBUSY, text)),
        // It is requested again when the outstanding request is decided.
        ExpirationCause::Elastic(..) => {}
        ExpirationCause::Manager => cx.log_line(text),
    }
}

/// Computes the expiration that follows from another time limit, and the jobspec with that limit if it
/// is another one.
fn check(
    cx: &mut Context,
    id: JobId,
    duration: f64,
) -> Result<(f64, Option<Box<Checked>>), RequestError> {
    policy::check_run_time(duration)?;
    let (record, r) = running(cx, id)?;
    let began = record.began();
    let expiration = if duration > 0.0 {
        began + duration
    } else {
        0.0
    };
    r.clone()
        .set_expiration(Some(expiration))
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    #[allow(clippy::float_cmp, reason = "the same number, or another limit")]
    let is_same = record.spec().duration == duration;
    let jobspec = if is_same {
        None
    } else {
        Some(Box::new(jobspecs::with_duration(cx, id, duration)?))
    };
    Ok((expiration, jobspec))
}

/// The record and R of a running job.
fn running(cx: &Context, id: JobId) -> Result<(&Record, &ResourceSet), RequestError> {
    let record = cx.jobs.record(id);
    let running = record.filter(|record| record.state() == State::Run);
    let running = running.and_then(|record| Some((record, &**record.r()?)));
    running.ok_or_else(|| RequestError::invalid(format!("job {id} is no longer running")))
}

/// Applies a change that the scheduler has agreed to, to R and to the jobspec, if the job is still
/// running.
pub(crate) fn accept(cx: &mut Context, change: ExpirationChange) {
    let ExpirationChange {
        id,
        expiration,
        jobspec,
        cause,
    } = change;
    if let Err(error) = running(cx, id) {
        return finish(cx, id, cause, Err(error));
    }
    if let Some(checked) = jobspec {
        let duration = checked.spec().duration;
        let event = Event::with(
            cx.now,
            eventlog::JOBSPEC_UPDATE,
            &JobspecUpdate { duration },
        );
        jobspecs::replace(cx, id, *checked, event);
    }
    let context = ResourceUpdate { expiration };
    cx.log(id, Event::with(cx.now, eventlog::RESOURCE_UPDATE, &context));
    cx.add_effect(Effect::ExpirationChanged { id, expiration });
    finish(cx, id, cause, Ok(()));
}

/// Reports the result of a change to its origin.
pub(crate) fn finish(
    cx: &mut Context,
    id: JobId,
    cause: ExpirationCause,
    result: Result<(), RequestError>,
) {
    match (cause, result) {
        (ExpirationCause::Update(request), Ok(())) => cx.respond_empty(&request),
        (ExpirationCause::Update(request), Err(error)) => cx.reject(&request, &error),
        (ExpirationCause::Elastic(key, granted), result) => {
            cx.add_effect(Effect::TimeDecided {
                key,
                granted,
                result,
            });
        }
        (ExpirationCause::Manager, Ok(())) => {}
        (ExpirationCause::Manager, Err(error)) => {
            cx.log_line(format!("expiration of job {id}: {}", error.text));
        }
    }
    cx.add_effect(Effect::ExpirationFinished(id));
}
