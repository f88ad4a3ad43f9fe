//! The site's policy on submissions: defaults, limits, and what is requested of the scheduler.

use std::borrow::Cow;

use penstock_flux::{RequestError, RequestedResources, count_values};
use penstock_jobspec::Jobspec;
use serde_json::json;

use crate::settings::{Limits, Settings};

/// The jobspec with the default queue and time limit where it has none; borrowed if it has both.
pub(crate) fn with_defaults<'a>(jobspec: &'a Jobspec, settings: &Settings) -> Cow<'a, Jobspec> {
    let queue = jobspec.queue().or(settings.default_queue.as_deref());
    let duration = queue
        .and_then(|name| settings.queues.get(name)?.default_duration)
        .or(settings.default_duration);
    jobspec.with_defaults(queue, duration)
}

/// The jobspec in the form for the scheduler: without environment (RFC 27 allows that), and with the constraint of its queue.
pub(crate) fn redact(
    jobspec: Jobspec,
    settings: &Settings,
) -> Result<Jobspec, penstock_jobspec::Error> {
    let queue = jobspec.queue().and_then(|name| settings.queues.get(name));
    let mut constraints = Vec::new();
    if let Some(queue) = queue {
        if !queue.requires.is_empty() {
            constraints.push(json!({ "properties": queue.requires }));
        }
        constraints.extend(queue.constraint.clone());
    }
    jobspec.redacted(constraints)
}

/// Whether a queue adds a constraint to those of its jobs.
pub(crate) fn has_constraint(queue: Option<&str>, settings: &Settings) -> bool {
    let queue = queue.and_then(|name| settings.queues.get(name));
    queue.is_some_and(|queue| !queue.requires.is_empty() || queue.constraint.is_some())
}

/// The resources that a jobspec requests of the scheduler, with the constraint of its queue.
pub(crate) fn requested(
    jobspec: Jobspec,
    settings: &Settings,
) -> Result<RequestedResources, penstock_jobspec::Error> {
    Ok(RequestedResources::of(&redact(jobspec, settings)?))
}

/// The limits of a queue, which override the general ones.
fn own_limits<'a>(settings: &'a Settings, queue: Option<&str>) -> Result<&'a Limits, RequestError> {
    const NONE: &Limits = &Limits::NONE;
    let known = || {
        let known: Vec<_> = settings.queues.keys().map(String::as_str).collect();
        known.join(", ")
    };
    match queue {
        None if settings.queues.is_empty() => Ok(NONE),
        None => Err(RequestError::invalid(format!(
            "no queue is named: expected {}",
            known()
        ))),
        Some(name) => match settings.queues.get(name) {
            Some(queue) => Ok(&queue.limits),
            None if settings.queues.is_empty() => Err(RequestError::invalid(format!(
                "queue `{name}`: no queues are configured"
            ))),
            None => Err(RequestError::invalid(format!(
                "unknown queue `{name}`: expected {}",
                known()
            ))),
        },
    }
}

/// The longest time limit that the site allows, in seconds; `None` if unlimited.
pub(crate) fn longest(queue: Option<&str>, settings: &Settings) -> Option<f64> {
    let own = own_limits(settings, queue).ok()?;
    let limit = own.duration.or(settings.limits.duration);
    limit.filter(|limit| *limit > 0.0)
}

/// The shortest time limit, in seconds. Shorter limits vanish in the precision of an epoch time.
const MIN_DURATION_S: f64 = 1e-6;

/// Checks that a job can have a time limit: none (0), or one after which its end differs from its begin.
pub(crate) fn check_run_time(duration: f64) -> Result<(), RequestError> {
    if duration > 0.0 && duration < MIN_DURATION_S {
        let text = format!(
            "a time limit of {duration} s is too short: expected 0 (none) or at least {MIN_DURATION_S} s"
        );
        return Err(RequestError::invalid(text));
    }
    Ok(())
}

/// The maximum size of a user's jobspec.
pub(crate) fn max_bytes(userid: u32, settings: &Settings) -> usize {
    let quota = &settings.quota;
    if userid == settings.owner {
        quota.jobspec_bytes
    } else {
        quota.guest_jobspec_bytes
    }
}

/// Checks the size of a jobspec as submitted, and with the site's defaults, which need not be of the same notation.
/// Messages about a job have twice that size at most: as a string in JSON each byte becomes two.
pub(crate) fn check_bytes(
    bytes: usize,
    userid: u32,
    settings: &Settings,
) -> Result<(), RequestError> {
    let limit = max_bytes(userid, settings);
    if bytes <= limit {
        return Ok(());
    }
    let text =
        format!("the jobspec is too large: expected at most {limit} bytes of JSON, found {bytes}");
    Err(RequestError::invalid(text))
}

/// Checks the number of values in a guest's jobspec, of which each takes many times the memory and the time of its text.
pub(crate) fn check_values(
    text: &str,
    userid: u32,
    settings: &Settings,
) -> Result<(), RequestError> {
    let Ok(limit) = u64::try_from(settings.quota.guest_jobspec_values) else {
        return Ok(());
    };
    // A value has a byte, and a comma behind it.
    if userid == settings.owner || text.len() as u64 / 2 < limit {
        return Ok(());
    }
    let values = count_values(text);
    if values <= limit {
        return Ok(());
    }
    let text = format!(
        "the jobspec has {values} values: expected at most {limit} strings, numbers, lists and objects \
         (penstock.quota.guest-jobspec-values)"
    );
    Err(RequestError::invalid(text))
}

/// Checks a time limit against the site's.
pub(crate) fn check_duration(
    duration: f64,
    queue: Option<&str>,
    settings: &Settings,
) -> Result<(), RequestError> {
    let own = own_limits(settings, queue)?;
    let limit = own.duration.or(settings.limits.duration);
    match limit.filter(|limit| *limit > 0.0) {
        Some(limit) if duration <= 0.0 => {
            let text = format!("a time limit is required: the policy's maximum is {limit} s");
            Err(RequestError::invalid(text))
        }
        Some(limit) if duration > limit => {
            let text = format!("a time limit of {duration} s exceeds the policy's {limit} s");
            Err(RequestError::invalid(text))
        }
        _ => Ok(()),
    }
}

/// Checks the size that an allocation of this queue would grow to.
pub(crate) fn check_growth(
    nodes: u64,
    cores: u64,
    queue: Option<&str>,
    settings: &Settings,
) -> Result<(), RequestError> {
    let own = own_limits(settings, queue)?;
    let general = &settings.limits;
    let amounts = [
        ("nodes", nodes, own.max_nnodes.or(general.max_nnodes)),
        ("cores", cores, own.max_ncores.or(general.max_ncores)),
    ];
    for (what, would, most) in amounts {
        let most = most.and_then(|most| u64::try_from(most).ok());
        if let Some(most) = most.filter(|most| would > *most) {
            let text = format!("it would have {would} {what}, the policy allows {most}");
            return Err(RequestError::invalid(text));
        }
    }
    Ok(())
}

/// Checks a jobspec against the site's limits.
pub(crate) fn check(jobspec: &Jobspec, settings: &Settings) -> Result<(), RequestError> {
    check_duration(jobspec.duration(), jobspec.queue(), settings)?;
    check_size(jobspec, settings)
}

fn check_size(jobspec: &Jobspec, settings: &Settings) -> Result<(), RequestError> {
    let own = own_limits(settings, jobspec.queue())?;
    let general = &settings.limits;
    let request = jobspec.request();
    // The node count of a jobspec with slots alone is not known yet.
    let amounts = [
        (
            "nodes",
            request.least_nodes().map(u64::from),
            request.most_nodes().map(u64::from),
            own.max_nnodes.or(general.max_nnodes),
            own.min_nnodes.or(general.min_nnodes),
        ),
        (
            "cores",
            Some(request.total_cores()),
            request.most_cores(),
            own.max_ncores.or(general.max_ncores),
            own.min_ncores.or(general.min_ncores),
        ),
        (
            "gpus",
            Some(request.total_gpus()),
            request.most_gpus(),
            own.max_ngpus.or(general.max_ngpus),
            own.min_ngpus.or(general.min_ngpus),
        ),
    ];
    let bound = |limit: Option<i64>| limit.and_then(|limit| u64::try_from(limit).ok());
    for (what, requested, up_to, most, least) in amounts {
        let Some(requested) = requested else {
            continue;
        };
        // Any amount of a range may be allocated: its end counts against the limit.
        if let Some(most) = bound(most).filter(|most| up_to.is_none_or(|up_to| up_to > *most)) {
            let requested = match up_to {
                Some(up_to) if up_to == requested => format!("{requested} {what}"),
                Some(up_to) => format!("{requested} to {up_to} {what}"),
                None => format!("{requested} {what} and more, without end,"),
            };
            let text = format!("{requested} requested, the policy allows {most}");
            return Err(RequestError::invalid(text));
        }
        if let Some(least) = bound(least).filter(|least| requested < *least) {
            let text =
                format!("{requested} {what} requested, the policy requires at least {least}");
            return Err(RequestError::invalid(text));
        }
    }
    Ok(())
}
