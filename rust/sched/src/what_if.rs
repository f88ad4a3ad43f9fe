//! `sched.what-if`: the consequences of a change, computed on a snapshot.

use penstock_engine::{Change, Engine, Job, Start};
use penstock_flux::errno::EAGAIN;
use penstock_flux::sched::{FitResponse, MovedStart, WhatIfRequest, WhatIfResponse};
use penstock_flux::{Credentials, Member, Payload, RequestError, Text};
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::fluid::Fluid;

use crate::Scheduler;
use crate::alloc::queue_of;

/// The number of other jobs, from the first of the queue, whose starts are compared.
const MAX_COMPARED_JOBS: usize = 100;
/// The urgency of a job that is submitted without one (RFC 30).
const DEFAULT_URGENCY: u64 = 16;
/// The greatest urgency (RFC 30).
const EXPEDITE: u64 = 31;

impl Scheduler {
    /// Answers a what-if query of the instance owner with a payload.
    pub(crate) fn what_if(
        &mut self,
        request: &WhatIfRequest,
        sender: Credentials,
        now: f64,
    ) -> Result<Vec<u8>, RequestError> {
        if !sender.is_owner() {
            let text = "only the instance owner may query the consequences of a change";
            return Err(RequestError::not_permitted(text));
        }
        let settings = &self.options.settings;
        let Some(engine) = &mut self.engine else {
            return Err(RequestError::new(EAGAIN, "no resources are acquired yet"));
        };
        if let Some(id) = request.fit {
            return Ok(fit(engine, id, now)?.to_payload());
        }
        let change = if let Some(jobspec) = request.submit {
            let jobspec = Jobspec::from_json(jobspec.as_str())
                .map_err(|error| RequestError::invalid(format!("`submit`: {error}")))?;
            let name = jobspec.queue().unwrap_or_default();
            Change::Submit(Job {
                id: u64::MAX,
                priority: priority(request.urgency)?,
                request: jobspec.request().clone(),
                queue: queue_of(engine, &mut self.queues, settings, name),
            })
        } else {
            change(engine, request).map_err(RequestError::invalid)?
        };
        engine.share();
        let outcome = engine
            .what_if(&change, now, MAX_COMPARED_JOBS)
            .map_err(|error| RequestError::invalid(error.to_string()))?;
        let is_held = matches!(&change, Change::Submit(job) if job.priority == 0);
        let text = match &outcome.after {
            Some(Start::Never { .. }) if is_held => "would be held until it is released".to_owned(),
            _ => outcome.sentence(now),
        };
        let ranks = match &outcome.after {
            Some(Start::Denied { note }) => return Err(RequestError::invalid(note.clone())),
            Some(Start::At { ranks, .. }) => Some(ranks.to_string().into()),
            _ => None,
        };
        let moved = outcome.moved.iter().map(|moved| MovedStart {
            id: moved.id,
            before: moved.before.time(),
            after: moved.after.time(),
        });
        let response = WhatIfResponse {
            text: text.into(),
            start: match &outcome.after {
                Some(start) => start.time().into(),
                None => Member::Absent,
            },
            ranks,
            moved: moved.collect(),
        };
        Ok(response.to_payload())
    }
}

/// The priority that follows from an urgency.
fn priority(urgency: Option<u64>) -> Result<u32, RequestError> {
    match urgency.unwrap_or(DEFAULT_URGENCY) {
        // An expedited job has the greatest priority.
        EXPEDITE => Ok(u32::MAX),
        urgency => u32::try_from(urgency)
            .ok()
            .filter(|_| urgency < EXPEDITE)
            .ok_or_else(|| {
                RequestError::invalid(format!(
                    "`urgency`: expected 0 to {EXPEDITE}, found {urgency}"
                ))
            }),
    }
}

/// The change that a request without `submit` names.
fn change(engine: &Engine, request: &WhatIfRequest) -> Result<Change, String> {
    if let Some(id) = request.cancel {
        if !engine.is_queued(id) && !engine.is_running(id) {
            let name = Fluid(id);
            return Err(format!(
                "`cancel`: {name} is neither pending nor running in the scheduler"
            ));
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
        let expected = "expected one of `submit`, `cancel`, `down`, `up`, `fit`, or `job` with \
                        `nodes` or `duration`";
        return Err(expected.to_owned());
    };
    check_pending(engine, "job", id)?;
    let changed = match (request.nodes, request.duration) {
        (Some(nodes), _) => {
            let units = u32::try_from(nodes).ok().filter(|units| *units > 0);
            let units = units
                .ok_or_else(|| format!("`nodes`: expected 1 to {}, found {nodes}", u32::MAX))?;
            engine.with_units(id, units)
        }
        (None, Some(duration)) if duration.is_finite() && duration >= 0.0 => {
            engine.with_limit(id, duration)
        }
        (None, Some(duration)) => {
            let expected = "expected a number of seconds, 0 or more";
            return Err(format!("`duration`: {expected}, found {duration}"));
        }
        (None, None) => return Err("`job`: expected `nodes` or `duration` with it".to_owned()),
    };
    let request = changed.map_err(|error| error.to_string())?;
    Ok(Change::Request { id, request })
}

fn check_pending(engine: &Engine, key: &str, id: u64) -> Result<(), String> {
    if engine.is_queued(id) {
        return Ok(());
    }
    let name = Fluid(id);
    Err(format!("`{key}`: {name} is not pending in the scheduler"))
}

/// An idset of ranks that are in the inventory.
fn inventory_ranks(engine: &Engine, key: &str, text: &Text) -> Result<IdSet, String> {
    let ranks: IdSet = text.parse().map_err(|error| format!("`{key}`: {error}"))?;
    let unknown = ranks.difference(engine.ranks());
    if !unknown.is_empty() {
        return Err(format!("`{key}`: ranks {unknown} are not in the inventory"));
    }
    Ok(ranks)
}

/// The largest number of nodes, or slots, with which a pending job would start now.
fn fit(engine: &mut Engine, id: u64, now: f64) -> Result<FitResponse<'static>, RequestError> {
    check_pending(engine, "fit", id).map_err(RequestError::invalid)?;
    engine.share();
    let fit = engine
        .fit_now(id, now)
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    let requests_nodes = engine
        .job(id)
        .is_some_and(|job| job.request.nnodes.is_some());
    let unit = if requests_nodes { "node" } else { "slot" };
    let text = match fit.largest {
        None => format!("would not start now with any number of {unit}s"),
        Some(largest) => {
            let plural = if largest == 1 { "" } else { "s" };
            let asked = fit.asked;
            format!("would start now with {largest} {unit}{plural} instead of {asked}")
        }
    };
    Ok(FitResponse {
        text: text.into(),
        asked: fit.asked,
        largest: fit.largest,
        moved: Vec::new(),
    })
}
