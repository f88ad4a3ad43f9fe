//! RELEASE: the resources that a job releases before its end, for good or as a loan.

use std::sync::Arc;

use penstock_elastic::{
    Attribute, AttributeKey, Data, Denial, Entry, Holding, Loan, PmixRequest, ReleasedPart, Status,
    select_released,
};
use penstock_flux::eventlog::ResourceRemove;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use super::loan::{lends_of, own_ranks};
use super::naming::name_of;
use super::request_job::{finish_request_job, grants_of};
use super::requests::{Call, End, Requester, Requests};
use super::result::{add_dropped, resources, to_json};
use super::table::RequestTable;
use super::target::{TargetAllocation, find_own_node, own_allocation};
use crate::context::{Context, ShrunkRanks};
use crate::effect::{Effect, FreeRanks};
use crate::event::Event;
use crate::record::Record;

fn out_of_resource(reason: impl Into<String>) -> Denial {
    Denial::new(Status::OUT_OF_RESOURCE, reason)
}

/// The parts of an allocation: its own, then its grants, oldest first.
fn holdings(cx: &Context, target: JobId) -> Vec<Holding> {
    let parts = std::iter::once(target).chain(grants_of(cx, target));
    let holding = |alloc| {
        let record = cx.jobs.record(alloc)?;
        let allocated = record.r()?.ranks();
        let unreleased = allocated
            .difference(record.freed())
            .difference(record.retained());
        let ranks = match record.elastic() {
            Some(elastic) => unreleased.difference(&elastic.released),
            None => unreleased,
        };
        Some(Holding { alloc, ranks })
    };
    parts.filter_map(holding).collect()
}

/// Whether parts are all that an allocation holds.
fn is_all(cx: &Context, target: JobId, parts: &[ReleasedPart]) -> bool {
    let is_released = |holding: &Holding| {
        let mut whole = parts.iter().filter(|part| part.all);
        holding.ranks.is_empty() || whole.any(|part| part.alloc == holding.alloc)
    };
    holdings(cx, target).iter().all(is_released)
}

/// The resources of parts.
fn resources_of(cx: &Context, parts: &[ReleasedPart]) -> Result<ResourceSet, Denial> {
    let mut sum = ResourceSet::new();
    for part in parts {
        if let Some(r) = cx.jobs.record(part.alloc).and_then(Record::r) {
            let union = sum.union(&r.restrict(&part.ranks));
            sum = union.map_err(|error| out_of_resource(error.to_string()))?;
        }
    }
    Ok(sum)
}

/// The parts of an allocation that a release returns.
struct Choice {
    parts: Vec<ReleasedPart>,
    /// Why named hosts are not among them.
    reasons: Vec<String>,
}

/// Performs a RELEASE, which is never queued.
pub(super) fn release(
    requests: &mut Requests,
    cx: &mut Context,
    call: &Call<'_>,
    target: TargetAllocation,
) -> Result<(), Denial> {
    let (job, request) = (call.requester.job, call.request);
    let (allocation, grant) = match target {
        TargetAllocation::Own => (job, None),
        TargetAllocation::Allocation(id) => (id, None),
        TargetAllocation::Grant(id) => (job, Some(id)),
    };
    if request.cpus.is_some() || request.cpu_counts.is_some() || request.cpu_list.is_some() {
        let reason = "only whole nodes can be released: expected nodes, found cpus";
        return Err(Denial::new(Status::NOT_SUPPORTED, reason));
    }
    if target == TargetAllocation::Own && request.nodes.is_none() && request.hosts.is_none() {
        let reason = "expected nodes to release";
        return Err(Denial::new(Status::BAD_PARAM, reason));
    }
    let Choice {
        parts,
        reasons: lacking,
    } = choose(&requests.table, cx, call, allocation, grant)?;
    let released = Arc::new(resources_of(cx, &parts)?);
    if request.time.is_some() && is_all(cx, allocation, &parts) {
        let reason = "an allocation cannot be lent as a whole: a part has to stay";
        return Err(Denial::new(Status::BAD_PARAM, reason));
    }
    let is_withheld = parts.iter().any(|part| !part.all) && !cx.handshake().takes_parts();
    if is_withheld && request.time.is_some() {
        let reason =
            "the scheduler accepts the release of whole allocations only: a part cannot be lent";
        return Err(Denial::new(Status::NOT_SUPPORTED, reason));
    }
    let entry = Entry {
        target: own_allocation(job, allocation),
        nodes: u32::try_from(released.nnodes()).unwrap_or(u32::MAX),
        ..Entry::default()
    };
    requests.begin(cx, call, entry);
    let lent = request.time.as_ref().map(|time| {
        let lend = Loan {
            id: request.id.clone(),
            target: own_allocation(job, allocation),
            until: Some(cx.now + f64::from(time.value)),
            ..Loan::default()
        };
        let own = own_ranks(cx, allocation, &parts);
        lends_of(cx, &released, &own, &lend)
    });
    release_parts(requests, cx, allocation, &parts, &released);
    let result = Released {
        r: &released,
        lacking,
        is_withheld,
    };
    let end = End {
        lent: lent.unwrap_or_default(),
        ..report(request, allocation, result)
    };
    requests.end(cx, call.key, &end);
    Ok(())
}

/// Chooses the parts to release, never the requesting task's own node.
fn choose(
    table: &RequestTable,
    cx: &Context,
    call: &Call<'_>,
    target: JobId,
    grant: Option<JobId>,
) -> Result<Choice, Denial> {
    let (requester, request) = (call.requester, call.request);
    let mut holdings = holdings(cx, target);
    let (mut keep, mut kept) = find_kept_ranks(cx, requester, target, &holdings);
    if let Some(grant) = grant {
        let parts = table.all_parts(grant);
        holdings.retain(|holding| parts.contains(&holding.alloc));
        // A grant on the requester's own node is released, the node itself stays.
        keep = IdSet::new();
        kept = "";
    }
    let mut free = IdSet::new();
    for holding in &holdings {
        free.union_with(&holding.ranks.difference(&keep));
    }
    let (mut named, mut reasons) = (None, Vec::new());
    if let Some(hosts) = &request.hosts {
        let extent = cx.jobs.record(target).and_then(Record::extent);
        let extent = extent.ok_or_else(|| out_of_resource("the allocation has no nodes"))?;
        let whose = match (grant, target == requester.job) {
            (Some(_), _) => "the grant's",
            (None, true) => "the job's",
            (None, false) => "the allocation's",
        };
        let held = extent.restrict(&free.union(&keep)).nodelist();
        let foreign = hosts.value.difference(&held);
        if !foreign.is_empty() {
            let are = if foreign.len() == 1 { "is" } else { "are" };
            reasons.push(format!("`{foreign}` {are} not {whose}"));
        }
        let ranks = extent.ranks_on(&hosts.value);
        let hosts_kept = ranks.intersection(&keep);
        if !hosts_kept.is_empty() {
            let hosts = extent.restrict(&hosts_kept).nodelist();
            reasons.push(format!("`{hosts}`: {kept}"));
        }
        if hosts.required && !reasons.is_empty() {
            return Err(out_of_resource(reasons.join("; ")));
        }
        free = ranks.intersection(&free);
        named = Some(free.clone());
    }
    let max = free.len();
    let count = request.nodes.as_ref().map(|nodes| u64::from(nodes.value));
    let is_short = count.is_some_and(|count| count > max);
    if max == 0 || (is_short && request.required) {
        if named.is_none() && !keep.is_empty() {
            reasons.push(kept.to_owned());
        }
        let what = match count {
            Some(1) => "1 node".to_owned(),
            Some(count) => format!("{count} nodes"),
            None => "nodes".to_owned(),
        };
        reasons.insert(0, format!("{what} to release: {max} can be released"));
        return Err(out_of_resource(reasons.join("; ")));
    }
    let parts = select_released(&holdings, named.as_ref(), count, &keep);
    Ok(Choice { parts, reasons })
}

fn release_parts(
    requests: &mut Requests,
    cx: &mut Context,
    target: JobId,
    parts: &[ReleasedPart],
    released: &Arc<ResourceSet>,
) {
    if is_all(cx, target, parts) {
        // An allocation without tasks ends when all of it is released.
        return finish_request_job(&mut requests.table, cx, target);
    }
    let own = parts.iter().find(|part| part.alloc == target);
    let ranks = own.map_or_else(IdSet::new, |own| own.ranks.clone());
    let others = || parts.iter().filter(|part| part.alloc != target);
    let ended: Vec<JobId> = others()
        .filter(|part| part.all)
        .map(|part| part.alloc)
        .collect();
    let is_in_use = !ranks.is_empty()
        && cx.shrunk_ranks() == ShrunkRanks::FreeOnRelease
        && may_have_tasks(cx, target);
    if !ranks.is_empty() {
        if !is_in_use {
            cx.add_effect(Effect::Free(FreeRanks {
                id: target,
                ranks: ranks.clone(),
                is_final: own.is_some_and(|own| own.all),
            }));
            cx.claims.release(target, &ranks);
        }
        cx.add_effect(Effect::Shrink {
            id: target,
            ranks: ranks.clone(),
        });
    }
    let removed = ResourceRemove {
        r: Arc::clone(released),
        ranks,
        ended,
        is_in_use,
    };
    requests
        .table
        .log(cx, target, Event::resource_remove(cx.now, removed));
    for part in others() {
        if part.all {
            finish_request_job(&mut requests.table, cx, part.alloc);
            continue;
        }
        cx.add_effect(Effect::Free(FreeRanks {
            id: part.alloc,
            ranks: part.ranks.clone(),
            is_final: false,
        }));
        cx.claims.release(part.alloc, &part.ranks);
        let Some(r) = cx.jobs.record(part.alloc).and_then(Record::r) else {
            continue;
        };
        let removed = ResourceRemove {
            r: Arc::new(r.restrict(&part.ranks)),
            ranks: part.ranks.clone(),
            ended: Vec::new(),
            is_in_use: false,
        };
        requests
            .table
            .log(cx, part.alloc, Event::resource_remove(cx.now, removed));
    }
}

/// Whether an execution service may have tasks of a job.
fn may_have_tasks(cx: &Context, id: JobId) -> bool {
    let job = cx.jobs.get(id);
    job.is_some_and(|job| job.dialogue.exec.was_sent())
}

/// Finds the ranks excluded from release, with the reason: the requesting task's node and, if no initial
/// node is among them, one initial node.
fn find_kept_ranks(
    cx: &Context,
    requester: &Requester,
    target: JobId,
    holdings: &[Holding],
) -> (IdSet, &'static str) {
    let mut keep = if target == requester.job {
        find_own_node(cx, requester)
    } else {
        IdSet::new()
    };
    let own = holdings.first().filter(|own| own.alloc == requester.job);
    if let Some(own) = own.filter(|own| own.ranks.is_disjoint(&keep)) {
        keep.extend(own.ranks.iter().take(1));
        return (keep, "one of the nodes that the job began with stays");
    }
    (keep, "the requester's own node stays")
}

/// The resources that a release has released.
struct Released<'a> {
    r: &'a ResourceSet,
    /// Why fewer resources than requested were released.
    lacking: Vec<String>,
    /// Whether the ranks become free only when the allocation ends.
    is_withheld: bool,
}

/// The result of a release.
fn report(request: &PmixRequest, target: JobId, released: Released<'_>) -> End {
    let Released {
        r,
        lacking,
        is_withheld,
    } = released;
    let mut results = vec![Attribute::result(
        AttributeKey::AllocId,
        Data::Text(name_of(target)),
    )];
    if let Some(id) = &request.id {
        results.push(Attribute::result(
            AttributeKey::RequestId,
            Data::Text(id.clone()),
        ));
    }
    results.extend(resources(r));
    if let Some(time) = &request.time {
        results.push(Attribute::result(
            AttributeKey::Time,
            Data::Whole(time.value.into()),
        ));
    }
    let mut reasons = Vec::new();
    match request.nodes.as_ref().map(|nodes| nodes.value as usize) {
        Some(count) if count > r.nnodes() => {
            reasons.push(format!("in part: {} of {count} nodes", r.nnodes()));
            reasons.extend(lacking);
        }
        Some(_) => {}
        None => reasons.extend(lacking),
    }
    if is_withheld {
        let when = "not free for others before the allocation ends";
        reasons.push(format!(
            "{when}: the scheduler accepts the release of whole ones only"
        ));
    }
    add_dropped(request.without_effect(), &mut results, &mut reasons);
    End {
        reason: reasons.join("; "),
        results: to_json(&results),
        ..End::default()
    }
}
