//! `sched.what-if`: the consequences of a change, computed on snapshots, in parts as estimates.

use penstock_engine::{Change, Engine, FitSearch, Job, Start};
use penstock_flux::errno::EAGAIN;
use penstock_flux::sched::{FitResponse, MovedStart, WhatIfRequest, WhatIfResponse};
use penstock_flux::{Member, Payload, RequestError, Text, urgency};
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;

use crate::Scheduler;
use crate::alloc::queue_of;
use crate::error::Error;
use crate::forecast_requests::{OpenWhatIf, Progress, forecast_part};

/// The number of other jobs, from the first of the queue, whose starts are compared.
const MAX_COMPARED_JOBS: usize = 100;

impl Scheduler {
    /// Begins the answer to a what-if query.
    pub(crate) fn begin_what_if(
        &mut self,
        request: &WhatIfRequest,
        now: f64,
    ) -> Result<Progress, RequestError> {
        let settings = &self.options.settings;
        let Some(engine) = &mut self.engine else {
            return Err(RequestError::new(EAGAIN, "no resources are acquired yet"));
        };
        if let Some(id) = request.fit {
            check_pending(engine, "fit", id)?;
            engine.share();
            let search = engine.begin_fit(id, now).map_err(Error::from)?;
            return Ok(Progress::Fit(Box::new(search)));
        }
        let change = if let Some(jobspec) = request.submit {
            let jobspec = Jobspec::from_json(jobspec.as_str())
                .map_err(|error| RequestError::invalid(format!("`submit`: {error}")))?;
            let name = jobspec.queue().unwrap_or_default();
            Change::Submit(Job {
                id: JobId::new(u64::MAX),
                priority: priority(request.urgency)?,
                request: jobspec.request().clone(),
                queue: queue_of(engine, &mut self.queues, settings, name),
            })
        } else {
            change(engine, request)?
        };
        engine.share();
        let effect = engine
            .begin_what_if(&change, now, MAX_COMPARED_JOBS)
            .map_err(Error::from)?;
        Ok(Progress::WhatIf(Box::new(OpenWhatIf {
            effect,
            is_held: matches!(&change, Change::Submit(job) if job.priority == 0),
            now,
        })))
    }
}

/// Does a part of the forecasts for the effect of a change. Returns the payload of the response once they are complete.
pub(crate) fn continue_what_if(open: &mut OpenWhatIf) -> Result<Option<Vec<u8>>, RequestError> {
    if !open.effect.advance(forecast_part()) {
        return Ok(None);
    }
    let effect = open.effect.take_effect().map_err(Error::from)?;
    let text = match &effect.after {
        Some(Start::Never { .. }) if open.is_held => {
            "would be held until it is released".to_owned()
        }
        _ => effect.sentence(open.now),
    };
    let ranks = match &effect.after {
        Some(Start::Denied { note }) => return Err(RequestError::invalid(note.clone())),
        Some(Start::At { ranks, .. }) => Some(ranks.to_string().into()),
        _ => None,
    };
    let moved = effect.moved.iter().map(|moved| MovedStart {
        id: moved.id,
        before: moved.before.time(),
        after: moved.after.time(),
    });
    let response = WhatIfResponse {
        text: text.into(),
        start: match &effect.after {
            Some(start) => start.time().into(),
            None => Member::Absent,
        },
        ranks,
        moved: moved.collect(),
    };
    Ok(Some(response.to_payload()))
}

/// The priority that follows from an urgency.
fn priority(given: Option<u64>) -> Result<u32, RequestError> {
    let Some(given) = given else {
        return Ok(urgency::priority(urgency::DEFAULT));
    };
    let known = u8::try_from(given).ok();
    known
        .filter(|known| *known <= urgency::EXPEDITE)
        .map(urgency::priority)
        .ok_or_else(|| {
            let most = urgency::EXPEDITE;
            RequestError::invalid(format!("`urgency`: expected 0 to {most}, found {given}"))
        })
}

/// The change that a request without `submit` names.
fn change(engine: &Engine, request: &WhatIfRequest) -> Result<Change, RequestError> {
    if let Some(id) = request.cancel {
        if !engine.is_queued(id) && !engine.is_running(id) {
            return Err(RequestError::invalid(format!(
                "`cancel`: {id} is neither pending nor running in the scheduler"
            )));
        }
        return Ok(Change::Cancel(id));
    }
    if let Some(down) = &request.down {
        return inventory_ranks(engine, "down", down).map(Change::Down);
    }
    if let Some(up) = &request.up {
        return inventory_ranks(engine, "up", up).map(Change::Up);
    }
    let Some(id) = request.job else {
        let expected = "sched.what-if: expected one of `submit`, `cancel`, `down`, `up`, `fit`, \
                        or `job` with `nodes` or `duration`";
        return Err(RequestError::protocol(expected));
    };
    check_pending(engine, "job", id)?;
    let changed = match (request.nodes, request.duration) {
        (Some(nodes), _) => {
            let units = u32::try_from(nodes).ok().filter(|units| *units > 0);
            let units = units.ok_or_else(|| {
                let expected = format!("expected 1 to {}", u32::MAX);
                RequestError::invalid(format!("`nodes`: {expected}, found {nodes}"))
            })?;
            engine.with_units(id, units)
        }
        (None, Some(duration)) if duration.is_finite() && duration >= 0.0 => {
            engine.with_limit(id, duration)
        }
        (None, Some(duration)) => {
            let expected = "expected a number of seconds, 0 or more";
            return Err(RequestError::invalid(format!(
                "`duration`: {expected}, found {duration}"
            )));
        }
        (None, None) => {
            let expected = "sched.what-if: `job`: expected `nodes` or `duration` with it";
            return Err(RequestError::protocol(expected));
        }
    };
    let request = changed.map_err(Error::from)?;
    Ok(Change::Request { id, request })
}

fn check_pending(engine: &Engine, key: &str, id: JobId) -> Result<(), RequestError> {
    if engine.is_queued(id) {
        return Ok(());
    }
    Err(RequestError::invalid(format!(
        "`{key}`: {id} is not pending in the scheduler"
    )))
}

/// An idset of ranks that are in the inventory.
fn inventory_ranks(engine: &Engine, key: &str, text: &Text) -> Result<IdSet, RequestError> {
    let ranks: IdSet = text
        .parse()
        .map_err(|error| RequestError::invalid(format!("`{key}`: {error}")))?;
    let unknown = ranks.difference(engine.ranks());
    if !unknown.is_empty() {
        return Err(RequestError::invalid(format!(
            "`{key}`: ranks {unknown} are not in the inventory"
        )));
    }
    Ok(ranks)
}

/// Does a step of the search for the largest number of nodes, or slots, with which a pending job would start now. Returns
/// the payload of the response once it is known.
pub(crate) fn continue_fit(search: &mut FitSearch) -> Result<Option<Vec<u8>>, RequestError> {
    let Some(fit) = search.advance().map_err(Error::from)? else {
        return Ok(None);
    };
    let unit = if search.requests_nodes() {
        "node"
    } else {
        "slot"
    };
    let text = match fit.largest {
        None => format!("would not start now with any number of {unit}s"),
        Some(largest) => {
            let plural = if largest == 1 { "" } else { "s" };
            let requested = fit.requested;
            format!("would start now with {largest} {unit}{plural} instead of {requested}")
        }
    };
    let response = FitResponse {
        text: text.into(),
        requested: fit.requested,
        largest: fit.largest,
        moved: Vec::new(),
    };
    Ok(Some(response.to_payload()))
}
