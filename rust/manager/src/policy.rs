//! What the site's configuration makes of a submission: defaults, limits, and the jobspec as
//! the scheduler is sent it.

use penstock_jobspec::Jobspec;
use serde_json::{Map, Value, json};

use crate::rpc::{EINVAL, Refusal};
use crate::settings::{Limits, Settings};

fn refuse(text: String) -> Refusal {
    Refusal::new(EINVAL, text)
}

/// The jobspec with the configured queue and time limit where it names none; `None` where
/// nothing has to be filled in.
pub(crate) fn fill_in(
    text: &str,
    jobspec: &Jobspec,
    settings: &Settings,
) -> Result<Option<String>, serde_json::Error> {
    let queue = match (jobspec.queue(), &settings.default_queue) {
        (None, Some(queue)) => Some(queue.as_str()),
        _ => None,
    };
    let named = jobspec.queue().or(queue);
    let duration = named
        .and_then(|name| settings.queues.get(name)?.default_duration)
        .or(settings.default_duration)
        .filter(|_| jobspec.duration() <= 0.0);
    if queue.is_none() && duration.is_none() {
        return Ok(None);
    }
    let mut value: Value = serde_json::from_str(text)?;
    if let Some(system) = system(&mut value) {
        if let Some(queue) = queue {
            system.insert("queue".to_owned(), queue.into());
        }
        if let Some(duration) = duration {
            system.insert("duration".to_owned(), duration.into());
        }
    }
    Ok(Some(value.to_string()))
}

/// The jobspec as the scheduler is sent it: without environment (RFC 27 allows that), and
/// with the constraint that stands for its queue.
pub(crate) fn redact(
    text: &str,
    settings: &Settings,
    queue: Option<&str>,
) -> Result<String, serde_json::Error> {
    let mut value: Value = serde_json::from_str(text)?;
    if let Some(system) = system(&mut value) {
        system.shift_remove("environment");
        let requires = queue
            .and_then(|name| settings.queues.get(name))
            .map_or(&[][..], |queue| &queue.requires);
        if !requires.is_empty() {
            let wanted = json!({ "properties": requires });
            let constraint = match system.shift_remove("constraints") {
                Some(asked) if asked.as_object().is_some_and(|asked| !asked.is_empty()) => {
                    json!({ "and": [asked, wanted] })
                }
                _ => wanted,
            };
            system.insert("constraints".to_owned(), constraint);
        }
    }
    Ok(value.to_string())
}

fn system(jobspec: &mut Value) -> Option<&mut Map<String, Value>> {
    jobspec
        .get_mut("attributes")?
        .get_mut("system")?
        .as_object_mut()
}

/// Whether the site takes such a job at all: a known queue, within its limits.
pub(crate) fn check(jobspec: &Jobspec, settings: &Settings) -> Result<(), Refusal> {
    let none = Limits::default();
    let own = match jobspec.queue() {
        None => &none,
        Some(name) => match settings.queues.get(name) {
            Some(queue) => &queue.limits,
            None if settings.queues.is_empty() => {
                return Err(refuse(format!("queue `{name}`: no queues are configured")));
            }
            None => {
                let known: Vec<_> = settings.queues.keys().map(String::as_str).collect();
                let known = known.join(", ");
                return Err(refuse(format!("unknown queue `{name}`: expected {known}")));
            }
        },
    };
    let general = &settings.limits;
    if let Some(limit) = own.duration.or(general.duration) {
        let duration = jobspec.duration();
        if duration <= 0.0 || duration > limit {
            let asked = if duration <= 0.0 {
                "no time limit".to_owned()
            } else {
                format!("a time limit of {duration} s")
            };
            return Err(refuse(format!("{asked} exceeds the policy's {limit} s")));
        }
    }
    let request = jobspec.request();
    let slots = u64::from(request.slots) * u64::from(request.nnodes.unwrap_or(1));
    let amounts = [
        (
            "nodes",
            request.nnodes.map_or(0, u64::from),
            own.max_nnodes.or(general.max_nnodes),
            own.min_nnodes.or(general.min_nnodes),
        ),
        (
            "cores",
            slots.saturating_mul(request.cores_per_slot.into()),
            own.max_ncores.or(general.max_ncores),
            own.min_ncores.or(general.min_ncores),
        ),
        (
            "gpus",
            slots.saturating_mul(request.gpus_per_slot.into()),
            own.max_ngpus.or(general.max_ngpus),
            own.min_ngpus.or(general.min_ngpus),
        ),
    ];
    for (what, asked, most, least) in amounts {
        if let Some(most) = most.filter(|most| asked > *most) {
            let text = format!("{asked} {what} requested, the policy allows {most}");
            return Err(refuse(text));
        }
        if let Some(least) = least.filter(|least| asked < *least) {
            let text = format!("{asked} {what} requested, the policy wants at least {least}");
            return Err(refuse(text));
        }
    }
    Ok(())
}
