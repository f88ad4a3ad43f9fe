//! The site's limits on requests, and whether an allocation can grow.

use std::collections::BTreeMap;

use penstock_elastic::{Account, Demand, Denial, MAX_PENDING_REQUESTS, Status};
use penstock_flux::RequestError;

use super::request_job::out_of_resource;
use super::usage::{Amount, Usage};
use crate::context::Context;
use crate::policy;
use crate::record::Record;
use crate::settings::ElasticLimits;
use penstock_jobspec::job_id::JobId;

/// The least share of a request that the inventory must be able to provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Satisfiable {
    /// All of it.
    Whole,
    /// A part: the caller accepts a part at its timeout.
    Part,
}

/// Checks a request against the limits of its job and of that job's owner.
pub(super) fn check_limits(
    usage: &Usage,
    cx: &Context,
    job: JobId,
    demand: &Demand,
) -> Result<(), Denial> {
    let Some(user) = cx.jobs.record(job).map(Record::userid) else {
        return Ok(());
    };
    let requested = Amount::requested(demand, &cx.claims);
    let limits = &cx.settings.elastic;
    check_amount(&requested, &usage.of_job(job), &limits.job, "job")?;
    check_amount(&requested, &usage.of_user(user), &limits.user, "user")
}

/// Checks that a job may have another pending request: each has a row in the response to a query.
pub(super) fn check_pending(account: Option<&Account>) -> Result<(), Denial> {
    let pending = account.map_or(0, Account::pending);
    if pending < MAX_PENDING_REQUESTS {
        return Ok(());
    }
    let reason = format!("{pending} requests of the job are pending: expected less");
    Err(Denial::new(Status::OUT_OF_RESOURCE, reason))
}

/// Checks whether the policy allows the allocation that a request joins to grow by it and, if the
/// request is satisfiable only as a whole, whether the inventory is large enough. Without `joins`
/// the request is for an allocation of its own.
pub(super) fn check_growth(
    usage: &Usage,
    cx: &Context,
    job: JobId,
    joins: Option<JobId>,
    demand: &Demand,
    satisfiable: Satisfiable,
) -> Result<(), Denial> {
    let Some(joins) = joins else {
        // The limits of a request of one part are checked on its jobspec.
        if demand.rest.is_empty() {
            return Ok(());
        }
        let record = cx.jobs.record(job);
        let own_queue = record.and_then(|record| record.spec().queue.as_deref());
        let required_queue = demand.queue.as_deref().filter(|_| demand.only_queue);
        let queue = required_queue.or(own_queue);
        let sum = Amount::of_parts(demand);
        let allowed = policy::check_growth(sum.nodes, sum.cores, queue, &cx.settings);
        return allowed.map_err(out_of_resource);
    };
    let mut targets: BTreeMap<JobId, Amount> = BTreeMap::new();
    for part in demand.parts() {
        let target = part.joins.unwrap_or(joins);
        let sum = targets.entry(target).or_default();
        sum.add_amount(&Amount::of_part(part));
    }
    for (target, requested) in targets {
        check_policy(usage, cx, target, requested).map_err(out_of_resource)?;
        if satisfiable == Satisfiable::Whole {
            check_fit(cx, target, demand, &requested)?;
        }
    }
    Ok(())
}

/// Checks whether the policy allows an allocation, with its grants and pending requests, to grow by
/// `requested`.
fn check_policy(
    usage: &Usage,
    cx: &Context,
    target: JobId,
    requested: Amount,
) -> Result<(), RequestError> {
    let Some(record) = cx.jobs.record(target) else {
        return Ok(());
    };
    let mut sum = requested;
    if let Some(r) = record.extent() {
        sum.add(0, r.nnodes() as u64, r.ncores());
    }
    sum.add_amount(&usage.pending_for(target));
    let queue = record.spec().queue.as_deref();
    policy::check_growth(sum.nodes, sum.cores, queue, &cx.settings)
}

/// Checks whether the instance has `requested` in addition to the one node that an allocation never
/// releases.
fn check_fit(
    cx: &Context,
    target: JobId,
    demand: &Demand,
    requested: &Amount,
) -> Result<(), Denial> {
    let extent = cx.jobs.record(target).and_then(Record::extent);
    let (Some(extent), Some(inventory)) = (extent, cx.claims.inventory()) else {
        return Ok(());
    };
    let smallest = extent.nodes().map(|node| node.cores.len()).min();
    let (what, more, kept, all) = if demand.cpus == 0 {
        ("nodes", requested.nodes, 1, inventory.nnodes() as u64)
    } else {
        (
            "cores",
            requested.cores,
            smallest.unwrap_or(0),
            inventory.ncores(),
        )
    };
    if more.saturating_add(kept) > all {
        let reason = format!(
            "{more} more {what} can never be granted: there are {all}, of which the allocation keeps {kept}"
        );
        return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
    }
    Ok(())
}

/// Checks an amount against limits, in addition to the amount in use.
fn check_amount(
    requested: &Amount,
    used: &Amount,
    limits: &ElasticLimits,
    whose: &str,
) -> Result<(), Denial> {
    let amounts = [
        (
            "pending requests",
            requested.requests,
            used.requests,
            limits.requests,
        ),
        (
            "nodes from requests",
            requested.nodes,
            used.nodes,
            limits.nnodes,
        ),
        (
            "cores from requests",
            requested.cores,
            used.cores,
            limits.ncores,
        ),
    ];
    for (what, requested, used, limit) in amounts {
        let limit = limit.and_then(|limit| u64::try_from(limit).ok());
        let sum = used.saturating_add(requested);
        if let Some(limit) = limit.filter(|limit| requested > 0 && sum > *limit) {
            let reason = format!("the policy allows a {whose} {limit} {what}: it would be {sum}");
            return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
        }
    }
    Ok(())
}
