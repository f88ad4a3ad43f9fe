//! EXTEND by time: the scheduler agrees to a later expiration (RFC 27), one change of a job at a
//! time.

use penstock_elastic::{Attribute, AttributeKey, Data, Denial, Directive, Entry, Status};
use penstock_flux::RequestError;
use penstock_flux::errno::EAGAIN;

use super::naming::name_of;
use super::requests::{End, Requests};
use super::result::{add_dropped, to_json, whole_seconds};
use super::table::RequestTable;
use crate::authorize;
use crate::context::Context;
use crate::effect::{Effect, ExpirationCause, RequestKey};
use crate::policy;
use penstock_jobspec::job_id::JobId;

/// The acceptable share of the requested time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeShare {
    /// All of it.
    Whole,
    /// The available share: the caller's timeout has expired.
    Available,
}

/// An open request for time, and the job that it is about.
fn time_request(table: &RequestTable, key: RequestKey) -> Option<(Entry, JobId)> {
    let entry = table.entry(key)?;
    let is_for_time = entry.directive() == Some(Directive::Extend) && entry.alloc.is_none();
    let entry = Some(entry).filter(|entry| entry.is_open() && is_for_time)?;
    Some((entry.clone(), entry.target.unwrap_or(key.job)))
}

/// Requests the time of a request from the scheduler, as much of it as `amount` says.
/// Returns whether the scheduler is to decide.
pub(super) fn request_time(
    requests: &mut Requests,
    cx: &mut Context,
    key: RequestKey,
    amount: TimeShare,
) -> bool {
    let Some((entry, target)) = time_request(&requests.table, key) else {
        return false;
    };
    let Some(record) = cx.jobs.record(target) else {
        return false;
    };
    let began = record.began();
    let Some(expiration) = record.expiration() else {
        // The job has unlimited time already.
        handle_time_decision(requests, cx, key, entry.time, Ok(()));
        return false;
    };
    let requested = expiration + f64::from(entry.time);
    let latest = latest_expiration(cx, target, began);
    let (until, granted) = match latest.filter(|latest| *latest < requested) {
        None => (requested, entry.time),
        Some(latest) if amount == TimeShare::Available && latest >= expiration + 1.0 => {
            let seconds = whole_seconds((latest - expiration).floor());
            (latest, u32::try_from(seconds).unwrap_or(u32::MAX))
        }
        Some(_) if amount == TimeShare::Available => {
            let denial = Denial::new(Status::TIMEOUT, "no more time became available in time");
            requests.end(cx, key, &End::denied(denial));
            return false;
        }
        Some(latest) => {
            if entry.required || entry.deadline.is_none() {
                let more = (latest - expiration).max(0.0).floor();
                let reason = format!(
                    "{} s more are not available: the job may have {more} s more",
                    entry.time
                );
                let denial = Denial::new(Status::OUT_OF_RESOURCE, reason);
                requests.end(cx, key, &End::denied(denial));
            }
            return false;
        }
    };
    cx.add_effect(Effect::RequestExpiration {
        id: target,
        duration: until - began,
        cause: ExpirationCause::Elastic(key, granted),
    });
    true
}

/// Handles the scheduler's decision about a request for time.
pub(super) fn handle_time_decision(
    requests: &mut Requests,
    cx: &mut Context,
    key: RequestKey,
    granted: u32,
    decision: Result<(), RequestError>,
) {
    let Some((entry, target)) = time_request(&requests.table, key) else {
        return;
    };
    let error = match decision {
        Ok(()) => {
            let end = report(entry, target, granted);
            return requests.end(cx, key, &end);
        }
        // The scheduler has gone: the next attempt decides.
        Err(error) if error.errnum == EAGAIN => return,
        Err(error) => error,
    };
    let may_wait = !entry.required;
    let is_pending = entry.deadline.is_some_and(|deadline| deadline > cx.now);
    if is_pending && may_wait {
        requests.record_time_denial(key);
    } else {
        let status = if entry.deadline.is_some() && may_wait {
            Status::TIMEOUT
        } else {
            Status::OUT_OF_RESOURCE
        };
        let denial = Denial::new(status, error.text);
        requests.end(cx, key, &End::denied(denial));
    }
}

/// Makes the next request for the time of a job whose expiration has been decided. A request that
/// the scheduler has denied waits for its timeout.
pub(super) fn retry_times(requests: &mut Requests, cx: &mut Context, target: JobId) {
    let table = &requests.table;
    let own = table.account(target).map(|account| (target, account));
    let accounts = own.into_iter().chain(table.about(target));
    let open = accounts.flat_map(|(job, account)| {
        let entries = account.open().filter(|entry| entry.alloc.is_none());
        entries.map(move |entry| (job, entry))
    });
    let due = open.filter(|(job, entry)| entry.target.unwrap_or(*job) == target);
    let due: Vec<(RequestKey, TimeShare)> = due
        .map(|(job, entry)| {
            let is_late = entry.deadline.is_some_and(|deadline| deadline <= cx.now);
            let amount = if is_late && !entry.required {
                TimeShare::Available
            } else {
                TimeShare::Whole
            };
            let seq = entry.seq;
            (RequestKey { job, seq }, amount)
        })
        .collect();
    for (key, amount) in due {
        // The decision about this request calls this function again for the next one.
        if !requests.is_time_denied(key) && request_time(requests, cx, key, amount) {
            return;
        }
    }
}

/// The latest expiration that the resources and the policy allow; the policy does not hold for the
/// instance owner.
fn latest_expiration(cx: &Context, id: JobId, began: f64) -> Option<f64> {
    let record = cx.jobs.record(id)?;
    let resources = cx.claims.expiration();
    let has_limits = authorize::has_limits_when_running(&cx.settings, record.userid());
    let queue = record.spec().queue.as_deref();
    let limit = policy::longest(queue, &cx.settings).filter(|_| has_limits);
    let policy = limit.map(|limit| began + limit);
    let both = [resources, policy].into_iter().flatten();
    both.min_by(f64::total_cmp)
}

/// The result of a request that was granted time.
fn report(entry: Entry, target: JobId, granted: u32) -> End {
    let mut results = vec![Attribute::result(
        AttributeKey::AllocId,
        Data::Text(name_of(target)),
    )];
    if let Some(id) = entry.id {
        results.push(Attribute::result(AttributeKey::RequestId, Data::Text(id)));
    }
    results.push(Attribute::result(
        AttributeKey::Time,
        Data::Whole(granted.into()),
    ));
    let mut reasons = Vec::new();
    if granted < entry.time {
        reasons.push(format!("in part: {granted} of {} s", entry.time));
    }
    add_dropped(entry.dropped, &mut results, &mut reasons);
    End {
        reason: reasons.join("; "),
        results: to_json(&results),
        ..End::default()
    }
}
