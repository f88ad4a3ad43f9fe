//! Grants: how a request job's allocation becomes its job's, and how that ends.

use std::sync::Arc;

use penstock_elastic::{Attribute, AttributeKey, Data, Denial, Status};
use penstock_flux::eventlog::{ResourceAdd, ResourceRemove};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use super::loan::end_loans_of;
use super::naming::name_of;
use super::request_job::{finish_request_job, grants_of, request_of};
use super::requests::{End, Requests};
use super::result::{add_dropped, resources, to_json, whole_seconds};
use super::submission::Submissions;
use crate::context::Context;
use crate::effect::{Effect, ExpirationCause, RequestKey};
use crate::elastic_state::ElasticRequest;
use crate::event::Event;
use crate::record::Record;
use crate::state::State;

fn has_grant(record: &Record, id: JobId) -> bool {
    record
        .elastic()
        .is_some_and(|elastic| elastic.grants.contains(&id))
}

/// Grants the resources of a request job, unless the grant is logged already.
pub(super) fn grant_resources(
    submissions: &mut Submissions,
    requests: &mut Requests,
    cx: &mut Context,
    id: JobId,
) {
    let Some(record) = cx.jobs.record(id) else {
        return;
    };
    let (Some(request), Some(_)) = (record.elastic_request().cloned(), record.r()) else {
        return;
    };
    let expiration = record.expiration();
    submissions.end_decision(id);
    if let Some(end) = expiration {
        requests.timers.set(end, id);
    }
    let key = request.key();
    if let Some(target) = request.joins {
        let target = cx.jobs.record(target);
        if target.is_none_or(|target| target.state() != State::Run) {
            // A job that is ending releases its grants when its tasks have ended.
            let ending = target.filter(|target| target.state() == State::Cleanup);
            if ending.is_none_or(|target| !has_grant(target, id)) {
                finish_request_job(&mut requests.table, cx, id);
            }
            return;
        }
    }
    let is_open = requests.table.is_carried_by(cx, key, id);
    if request.has_next_part() {
        if is_open {
            submissions.request_next_part(requests, cx, &request, id);
        }
        return;
    }
    if !request.before.is_empty() && !is_open {
        return;
    }
    let parts = parts_of(cx, &request, id);
    for (part, r) in &parts {
        join(requests, cx, *part, r);
    }
    if requests.table.is_carried_by(cx, key, id) {
        report_grant(requests, cx, &request, &parts);
    }
}

/// Adds the resources of a part to the allocation that it joins, unless that is logged already.
fn join(requests: &mut Requests, cx: &mut Context, id: JobId, r: &Arc<ResourceSet>) {
    let Some(request) = request_of(cx, id) else {
        return;
    };
    let Some(target) = request.joins else {
        return;
    };
    let joined = cx.jobs.record(target);
    let Some(joined) = joined.filter(|joined| joined.state() == State::Run) else {
        return finish_request_job(&mut requests.table, cx, id);
    };
    if !has_grant(joined, id) {
        let added = ResourceAdd {
            id: request.id.clone(),
            alloc: id,
            seq: request.seq,
            r: Arc::clone(r),
        };
        requests
            .table
            .log(cx, target, Event::resource_add(cx.now, added));
        align_expiration(requests, cx, id, target);
    }
}

/// Ends a request with what it was granted. `last` is its last part.
fn report_grant(
    requests: &mut Requests,
    cx: &mut Context,
    last: &ElasticRequest,
    parts: &[(JobId, Arc<ResourceSet>)],
) {
    let Some((id, first_r)) = parts.first() else {
        return;
    };
    let Some(first) = request_of(cx, *id) else {
        return;
    };
    let mut all = ResourceSet::new();
    for (_, r) in parts {
        all = all.union(r).unwrap_or(all);
    }
    let mut results = vec![Attribute::result(
        AttributeKey::AllocId,
        Data::Text(name_of(*id)),
    )];
    if let Some(user) = &first.id {
        results.push(Attribute::result(
            AttributeKey::RequestId,
            Data::Text(user.clone()),
        ));
    }
    results.extend(resources(&all));
    let end = first_r.expiration().unwrap_or(0.0);
    let mut start = first_r.starttime().unwrap_or(0.0);
    if parts.len() > 1 {
        // Its time limit has been running while the other parts were pending.
        start = start.max(cx.now);
    }
    if first.joins.is_none() && end > start {
        let time = Data::Whole(whole_seconds(end - start));
        results.push(Attribute::result(AttributeKey::Time, time));
    }
    let mut reasons = Vec::new();
    reasons.extend(first.demand.partial_note(&all));
    if first.demand.elsewhere > 0 {
        let nodes = first.demand.elsewhere;
        reasons.push(format!("reclaimed by other requests: {nodes} of the nodes"));
    }
    let mut unmet: Vec<String> = Vec::new();
    let mut nodes: u32 = 0;
    for (part, r) in parts {
        nodes = nodes.saturating_add(u32::try_from(r.nnodes()).unwrap_or(u32::MAX));
        let record = cx.jobs.record(*part);
        let queue = record.and_then(|record| record.spec().queue.as_deref());
        if let Some(request) = request_of(cx, *part) {
            unmet.extend(request.demand.unmet(r, queue));
        }
    }
    add_dropped(unmet, &mut results, &mut reasons);
    let end = End {
        reason: reasons.join("; "),
        results: to_json(&results),
        nodes,
        ..End::default()
    };
    requests.end(cx, last.key(), &end);
}

/// Sets the expiration of a grant to that of its job, which may have changed since the request.
fn align_expiration(requests: &mut Requests, cx: &mut Context, id: JobId, target: JobId) {
    let expiration = |id| cx.jobs.record(id).and_then(Record::expiration);
    if let (Some(own), Some(theirs)) = (expiration(id), expiration(target))
        && (own - theirs).abs() > 1.0
    {
        follow_expiration(requests, cx, target, theirs);
    }
}

/// Ends the requests of a job that has entered CLEANUP. If it is a request job, ends the request
/// that it carries, and its grant to the requesting job.
pub(super) fn end_requests_of(
    submissions: &mut Submissions,
    requests: &mut Requests,
    cx: &mut Context,
    id: JobId,
) {
    let record = cx.jobs.record(id);
    if record.is_none_or(|record| record.elastic().is_none()) {
        return;
    }
    let account = requests.table.account(id);
    let open = account
        .into_iter()
        .flat_map(penstock_elastic::Account::open);
    let open: Vec<u32> = open.map(|entry| entry.seq).collect();
    for seq in open {
        let denial = Denial::new(Status::CANCELLED, "the job has ended");
        requests.end(cx, RequestKey { job: id, seq }, &End::denied(denial));
    }
    let Some(request) = request_of(cx, id).cloned() else {
        return;
    };
    requests.table.forget_request_job(id);
    submissions.end_decision(id);
    if request.joins.is_none() {
        end_loans_of(requests, cx, id);
    }
    let key = request.key();
    if requests.table.is_carried_by(cx, key, id) {
        let fatal = cx.jobs.record(id).and_then(Record::fatal_exception);
        let denial = match fatal {
            Some(fatal) if &*fatal.kind == "cancel" && fatal.note.is_empty() => {
                Denial::new(Status::CANCELLED, "its job in the queue was cancelled")
            }
            Some(fatal) if &*fatal.kind == "cancel" => Denial::new(Status::CANCELLED, &*fatal.note),
            Some(fatal) => Denial::new(Status::OUT_OF_RESOURCE, &*fatal.note),
            None => Denial::new(Status::CANCELLED, "its job has ended"),
        };
        requests.end(cx, key, &End::denied(denial));
    }
    let joined = request.joins.and_then(|target| cx.jobs.record(target));
    let holder = joined.filter(|joined| joined.state() == State::Run && has_grant(joined, id));
    let unfreed = cx.jobs.record(id).and_then(Record::unfreed);
    if let Some((target, r)) = holder.map(Record::id).zip(unfreed) {
        let removed = ResourceRemove {
            r: Arc::new(r),
            ranks: IdSet::new(),
            ended: vec![id],
            is_in_use: false,
        };
        requests
            .table
            .log(cx, target, Event::resource_remove(cx.now, removed));
    }
}

/// Ends the grants of a job whose resources are being freed.
pub(super) fn end_grants(requests: &mut Requests, cx: &mut Context, id: JobId) {
    for grant in grants_of(cx, id) {
        finish_request_job(&mut requests.table, cx, grant);
    }
}

/// Applies the changed expiration of a job to its grants.
pub(super) fn follow_expiration(
    requests: &mut Requests,
    cx: &mut Context,
    id: JobId,
    expiration: f64,
) {
    for grant in grants_of(cx, id) {
        let record = cx.jobs.record(grant);
        let Some(record) =
            record.filter(|record| record.state() == State::Run && record.has_resources())
        else {
            continue;
        };
        let duration = if expiration > 0.0 {
            (expiration - record.began()).max(1.0)
        } else {
            0.0
        };
        cx.add_effect(Effect::RequestExpiration {
            id: grant,
            duration,
            cause: ExpirationCause::Manager,
        });
    }
    if expiration > 0.0 && request_of(cx, id).is_some() {
        requests.timers.set(expiration, id);
    }
}

/// R of the parts of a request that are allocated; `id` is the last one.
fn parts_of(cx: &Context, request: &ElasticRequest, id: JobId) -> Vec<(JobId, Arc<ResourceSet>)> {
    let all = request.before.iter().copied().chain([id]);
    let with_r = |id| Some((id, Arc::clone(cx.jobs.record(id)?.r()?)));
    all.filter_map(with_r).collect()
}
