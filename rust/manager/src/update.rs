//! `job-manager.update`: another time limit for a job.

use penstock_flux::RequestError;
use penstock_flux::eventlog::{self, JobspecUpdate};
use penstock_flux::job_manager::UpdateRequest;
use serde_json::{Map, Value};

use crate::authorize::{self, PermittedJob};
use crate::context::Context;
use crate::effect::{Effect, ExpirationCause};
use crate::event::Event;
use crate::jobspecs;
use crate::policy;
use crate::quota;
use crate::rpc::{Handled, Reply, Request};
use crate::state::State;

/// The one attribute that can be updated.
const DURATION_KEY: &str = "attributes.system.duration";

/// The new duration in seconds; 0 is unlimited.
fn read_duration(updates: &Map<String, Value>) -> Result<f64, RequestError> {
    if let Some(other) = updates.keys().find(|key| *key != DURATION_KEY) {
        let text = format!("`{other}` cannot be updated: expected `{DURATION_KEY}`");
        return Err(RequestError::invalid(text));
    }
    let Some(value) = updates.get(DURATION_KEY) else {
        let text = format!("expected the update `{DURATION_KEY}`");
        return Err(RequestError::invalid(text));
    };
    let seconds = value.as_f64();
    let seconds = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    seconds.ok_or_else(|| {
        let text = format!("`{DURATION_KEY}`: expected seconds, found `{value}`");
        RequestError::invalid(text)
    })
}

/// `job-manager.update`. For a running job the response comes when the scheduler has agreed.
pub(crate) fn update(cx: &mut Context, request: Request<'_>, job: &PermittedJob) -> Handled {
    let UpdateRequest { updates, .. } = request.payload()?;
    let id = job.id();
    let record = &cx.jobs.active(id)?.record;
    let duration = read_duration(&updates)?;
    let state = record.state();
    if authorize::has_limits_on_update(request.sender) {
        policy::check_duration(duration, record.spec().queue.as_deref(), &cx.settings)?;
        quota::check_changed_values(cx, id)?;
    }
    quota::check_update(cx, request.sender, id)?;
    match state {
        State::Run => {
            let cause = ExpirationCause::Update(request.message.clone());
            cx.add_effect(Effect::RequestExpiration {
                id,
                duration,
                cause,
            });
            Ok(Reply::Deferred)
        }
        State::Cleanup | State::Inactive => {
            let text = format!("job {id} has ended");
            Err(RequestError::invalid(text))
        }
        State::New | State::Depend | State::Priority | State::Sched => {
            let checked = jobspecs::with_duration(cx, id, duration)?;
            let context = JobspecUpdate { duration };
            let event = Event::with(cx.now, eventlog::JOBSPEC_UPDATE, &context);
            jobspecs::replace(cx, id, checked, event);
            // The request for resources starts again.
            cx.add_effect(Effect::Withdraw(id));
            cx.revisit(id);
            Ok(Reply::Empty)
        }
    }
}
