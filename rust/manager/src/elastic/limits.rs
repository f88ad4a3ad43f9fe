//! The site's limits on requests, and whether an allocation can grow.

use std::collections::BTreeMap;

use penstock_elastic::{Demand, Denial, Status};
use penstock_flux::RequestError;

use super::peer::Elastic;
use super::request_job::out_of_resource;
use super::usage::Amount;
use crate::context::Context;
use crate::policy;
use crate::record::Record;
use crate::settings::ElasticLimits;

impl Elastic {
    fn recount(&mut self, cx: &Context) {
        self.usage.recount(&cx.jobs, &cx.claims);
    }

    /// Checks a request against the limits of its job and of that job's owner.
    pub(super) fn check_limits(
        &mut self,
        cx: &Context,
        job: u64,
        demand: &Demand,
    ) -> Result<(), Denial> {
        let Some(user) = cx.jobs.record(job).map(Record::userid) else {
            return Ok(());
        };
        self.recount(cx);
        let asked = Amount::asked(demand, &cx.claims);
        let limits = &cx.settings.elastic;
        check_amount(&asked, &self.usage.of_job(job), &limits.job, "job")?;
        check_amount(&asked, &self.usage.of_user(user), &limits.user, "user")
    }

    /// Checks whether the allocations that a request is to join may grow by it and, with `must_fit`,
    /// whether they can. Without `joins` the request is for an allocation of its own.
    pub(super) fn check_growth(
        &mut self,
        cx: &Context,
        job: u64,
        joins: Option<u64>,
        demand: &Demand,
        must_fit: bool,
    ) -> Result<(), Denial> {
        let Some(joins) = joins else {
            // A request of one part is held to the limits as a jobspec.
            if demand.rest.is_empty() {
                return Ok(());
            }
            let record = cx.jobs.record(job);
            let queue = record.and_then(|record| record.spec().queue.as_deref());
            let queue = demand
                .queue
                .as_deref()
                .filter(|_| demand.only_queue)
                .or(queue);
            let sum = Amount::of_parts(demand);
            let allowed = policy::check_growth(sum.nodes, sum.cores, queue, &cx.settings);
            return allowed.map_err(out_of_resource);
        };
        self.recount(cx);
        let mut targets: BTreeMap<u64, Amount> = BTreeMap::new();
        for part in demand.parts() {
            let target = part.joins.unwrap_or(joins);
            let sum = targets.entry(target).or_default();
            sum.add_amount(&Amount::of_part(part));
        }
        for (target, asked) in targets {
            self.check_policy(cx, target, asked)
                .map_err(out_of_resource)?;
            if must_fit {
                check_fit(cx, target, demand, &asked)?;
            }
        }
        Ok(())
    }

    /// Checks whether the policy allows an allocation, with its grants and pending requests, so much
    /// more.
    fn check_policy(&self, cx: &Context, target: u64, asked: Amount) -> Result<(), RequestError> {
        let Some(record) = cx.jobs.record(target) else {
            return Ok(());
        };
        let mut sum = asked;
        if let Some(r) = record.extent() {
            sum.add(0, r.nnodes() as u64, r.ncores());
        }
        sum.add_amount(&self.usage.pending_for(target));
        let queue = record.spec().queue.as_deref();
        policy::check_growth(sum.nodes, sum.cores, queue, &cx.settings)
    }
}

/// Checks whether the instance has so much beside what an allocation never releases: one of its
/// nodes.
fn check_fit(cx: &Context, target: u64, demand: &Demand, asked: &Amount) -> Result<(), Denial> {
    let extent = cx.jobs.record(target).and_then(Record::extent);
    let (Some(extent), Some((nodes, cores))) = (extent, cx.claims.size()) else {
        return Ok(());
    };
    let smallest = extent.nodes().map(|node| node.cores.len()).min();
    let (what, more, kept, all) = if demand.cpus == 0 {
        ("nodes", asked.nodes, 1, nodes)
    } else {
        ("cores", asked.cores, smallest.unwrap_or(0), cores)
    };
    if more.saturating_add(kept) > all {
        let reason =
            format!("{more} {what} more can never be: there are {all}, of which it keeps {kept}");
        return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
    }
    Ok(())
}

/// Checks an amount against limits, beside what is there already.
fn check_amount(
    asked: &Amount,
    used: &Amount,
    limits: &ElasticLimits,
    whose: &str,
) -> Result<(), Denial> {
    let amounts = [
        (
            "requests that wait",
            asked.requests,
            used.requests,
            limits.requests,
        ),
        (
            "nodes from requests",
            asked.nodes,
            used.nodes,
            limits.nnodes,
        ),
        (
            "cores from requests",
            asked.cores,
            used.cores,
            limits.ncores,
        ),
    ];
    for (what, asked, used, limit) in amounts {
        let limit = limit.and_then(|limit| u64::try_from(limit).ok());
        let sum = used.saturating_add(asked);
        if let Some(limit) = limit.filter(|limit| asked > 0 && sum > *limit) {
            let reason = format!("the policy allows a {whose} {limit} {what}: it would be {sum}");
            return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
        }
    }
    Ok(())
}
