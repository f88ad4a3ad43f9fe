//! What would come of a change: what people ask by `sched.what-if`.

use penstock_engine::{Change, Engine, Job, Start};
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::fluid::Fluid;
use serde_json::{Value, json};

use crate::fields::Fields;
use crate::questions::Asker;
use crate::{EAGAIN, EINVAL, EPERM, Scheduler, malformed};

/// Other jobs, from the first in the queue on, whose starts are compared.
const LOOK: usize = 100;
/// The priority of a job that is submitted without another urgency (RFC 30).
const PRIORITY: u64 = 16;
/// The greatest urgency.
const EXPEDITE: u64 = 31;

type Answer = Result<Value, (u32, String)>;

impl Scheduler {
    /// Answers from a copy of the books.
    pub(crate) fn what_if(&mut self, fields: &Fields, asker: Asker, now: f64) -> Answer {
        if !asker.owner {
            let text = "only the instance owner may ask what would come of a change";
            return Err((EPERM, text.to_owned()));
        }
        let (settings, queues) = (&self.options.settings, &self.queues);
        let Some(engine) = &mut self.engine else {
            return Err((EAGAIN, "no resources are acquired yet".to_owned()));
        };
        if let Some(id) = fields.job("fit").map_err(malformed)? {
            return fit(engine, id, now);
        }
        let change = if let Some(jobspec) = fields.value("submit") {
            let jobspec = Jobspec::from_json(&jobspec.to_string());
            let jobspec = jobspec.map_err(|error| malformed(format!("submit: {error}")))?;
            let name = jobspec.queue().unwrap_or_default();
            let queue = queues.get(name).copied().unwrap_or_else(|| {
                let queue = engine.queue(name);
                engine.set_queue(queue, settings.queue(name));
                queue
            });
            Change::Submit(Job {
                id: u64::MAX,
                priority: priority(fields)?,
                request: jobspec.request().clone(),
                queue,
            })
        } else {
            change(engine, fields).map_err(malformed)?
        };
        engine.share();
        let outcome = engine.what_if(&change, now, LOOK);
        let outcome = outcome.map_err(|error| malformed(error.to_string()))?;
        let held = matches!(&change, Change::Submit(job) if job.priority == 0);
        let text = match &outcome.after {
            Some(Start::Never { .. }) if held => "would be held until it is released".to_owned(),
            _ => outcome.sentence(now),
        };
        let mut answer = json!({ "text": text });
        match &outcome.after {
            Some(Start::Denied { note }) => return Err((EINVAL, note.clone())),
            Some(start) => {
                answer["start"] = json!(start.time());
                if let Start::At { ranks, .. } = start {
                    answer["ranks"] = json!(ranks.to_string());
                }
            }
            None => {}
        }
        let moved = outcome.moved.iter();
        let moved = moved
            .map(|it| json!({"id": it.id, "before": it.before.time(), "after": it.after.time()}));
        answer["moved"] = moved.collect();
        Ok(answer)
    }
}

fn priority(fields: &Fields) -> Result<u32, (u32, String)> {
    let urgency = fields.whole("urgency").map_err(malformed)?;
    let urgency = urgency.unwrap_or(PRIORITY);
    if urgency > EXPEDITE {
        let text = format!("urgency: expected 0 to {EXPEDITE}, found {urgency}");
        return Err(malformed(text));
    }
    // An expedited job has the greatest priority there is.
    Ok(if urgency == EXPEDITE {
        u32::MAX
    } else {
        u32::try_from(urgency).unwrap_or(u32::MAX)
    })
}

/// The change that is named by a field other than `submit`.
fn change(engine: &Engine, fields: &Fields) -> Result<Change, String> {
    if let Some(id) = fields.job("cancel")? {
        if !engine.is_queued(id) && !engine.is_running(id) {
            let name = Fluid(id);
            return Err(format!(
                "cancel: {name} neither waits for resources nor has any"
            ));
        }
        return Ok(Change::Cancel(id));
    }
    if let Some(ranks) = idset(engine, fields, "down")? {
        return Ok(Change::Down(ranks));
    }
    if let Some(ranks) = idset(engine, fields, "up")? {
        return Ok(Change::Up(ranks));
    }
    let Some(id) = fields.job("job")? else {
        let expected = "expected one of `submit`, `cancel`, `down`, `up`, `fit`, or `job` with \
                        `nodes` or `duration`";
        return Err(format!("job: {expected}"));
    };
    pending(engine, "job", id)?;
    let nodes = fields.whole("nodes")?;
    let request = if let Some(nodes) = nodes {
        let units = u32::try_from(nodes).ok().filter(|units| *units > 0);
        let expected = || format!("nodes: expected 1 to {}, found {nodes}", u32::MAX);
        engine.with_units(id, units.ok_or_else(expected)?)
    } else {
        let duration = fields.seconds("duration")?;
        let expected = || "job: expected `nodes` or `duration` with it".to_owned();
        engine.with_limit(id, duration.ok_or_else(expected)?)
    };
    let request = request.map_err(|error| error.to_string())?;
    Ok(Change::Request { id, request })
}

fn pending(engine: &Engine, key: &str, id: u64) -> Result<(), String> {
    let name = Fluid(id);
    if engine.is_queued(id) {
        return Ok(());
    }
    Err(format!("{key}: {name} does not wait for resources"))
}

/// Ranks of the inventory.
fn idset(engine: &Engine, fields: &Fields, key: &str) -> Result<Option<IdSet>, String> {
    let Some(text) = fields.text(key)? else {
        return Ok(None);
    };
    let ranks: IdSet = text.parse().map_err(|error| format!("{key}: {error}"))?;
    let strange = ranks.difference(engine.ranks());
    if !strange.is_empty() {
        return Err(format!("{key}: ranks {strange} are not in the inventory"));
    }
    Ok(Some(ranks))
}

/// With how many nodes, or slots, a job that waits would start now.
fn fit(engine: &mut Engine, id: u64, now: f64) -> Answer {
    pending(engine, "fit", id).map_err(malformed)?;
    engine.share();
    let fit = engine.fit_now(id, now);
    let fit = fit.map_err(|error| malformed(error.to_string()))?;
    let nodes = engine
        .job(id)
        .is_some_and(|job| job.request.nnodes.is_some());
    let unit = if nodes { "node" } else { "slot" };
    let text = match fit.largest {
        None => format!("with no number of {unit}s would it start now"),
        Some(most) => {
            let plural = if most == 1 { "" } else { "s" };
            let asked = fit.asked;
            format!("with {most} {unit}{plural} instead of {asked} it would start now")
        }
    };
    Ok(json!({"text": text, "asked": fit.asked, "largest": fit.largest, "moved": []}))
}
