//! What a request is granted, and how that ends.

use std::sync::Arc;

use penstock_elastic::{Attribute, Data, Form, Key, Refusal as Denial, Status};
use penstock_jobspec::fluid::Fluid;
use penstock_rset::ResourceSet;
use serde_json::{Value, json};

use super::submission::name_of;
use super::target::ids;
use super::{End, Number, Requested};
use crate::event::Event;
use crate::job::{Alloc, Job};
use crate::manager::Manager;
use crate::state::State;
use crate::update::By;

/// The attribute of a result that names what was wished for and is not met.
const DROPPED: &str = "penstock.alloc.dropped";

/// Hosts and cpus of each, as results give them.
pub(super) fn given(r: &ResourceSet) -> Vec<Attribute> {
    let cpus: Vec<String> = r.nodes().map(|node| node.cores.len().to_string()).collect();
    vec![
        Attribute::result(Key::NodeList, Data::Text(r.nodelist().to_string())),
        Attribute::result(Key::CpuCounts, Data::Text(cpus.join(","))),
    ]
}

/// Adds to results, and to their reasons, what was wished for and is not met.
pub(super) fn add_dropped(
    mut unmet: Vec<String>,
    results: &mut Vec<Attribute>,
    reasons: &mut Vec<String>,
) {
    unmet.sort_unstable();
    unmet.dedup();
    if unmet.is_empty() {
        return;
    }
    let unmet = unmet.join(",");
    reasons.push(format!("not met: {unmet}"));
    results.push(Attribute {
        key: DROPPED.to_owned(),
        required: false,
        data: Data::Text(unmet),
    });
}

pub(super) fn json_of(results: &[Attribute]) -> Vec<Value> {
    results.iter().map(Attribute::to_json).collect()
}

/// R as a value.
pub(super) fn document(r: &ResourceSet) -> Value {
    serde_json::from_str(&r.to_json()).unwrap_or_default()
}

impl Manager {
    /// A job that stands for a request has resources: they are the requester's, or an allocation
    /// of its own. Does nothing where that was said before.
    pub(crate) fn granted(&mut self, id: u64, now: f64) {
        let Some((requested, r)) = self.jobs.get(&id).and_then(|job| {
            let requested = job.requested()?.clone();
            Some((requested, Arc::clone(job.r.as_ref()?)))
        }) else {
            return;
        };
        self.elastic.decide.remove(&id);
        if let Some(end) = r.expiration().filter(|it| *it > 0.0) {
            self.elastic.at(end, id);
        }
        let number: Number = (requested.job, requested.seq);
        let target = requested.joins.and_then(|target| self.jobs.get(&target));
        if requested.joins.is_some() && target.is_none_or(|it| it.state != State::Run) {
            // What a job has that is to end, it gives back when its tasks have ended.
            let ends = target.filter(|it| it.state == State::Cleanup);
            if ends.is_none_or(|it| !has_grant(it, id)) {
                self.finish_standing(id, now);
            }
            return;
        }
        if requested.form != Form::Part && !requested.ask.rest.is_empty() {
            if self.stands_for(id, number) {
                self.ask_for_the_rest(&requested, id, now);
            }
            return;
        }
        if !requested.before.is_empty() && !self.stands_for(id, number) {
            return;
        }
        let parts = self.parts_of(&requested, id);
        for (part, r) in &parts {
            self.join(*part, r, now);
        }
        if self.stands_for(id, number) {
            self.tell_grant(&requested, &parts, now);
        }
    }

    /// What a part of a request was given becomes the allocation's that it joins, if that was not said
    /// before.
    fn join(&mut self, id: u64, r: &ResourceSet, now: f64) {
        let requested = self.jobs.get(&id).and_then(Job::requested).cloned();
        let Some((requested, target)) = requested.and_then(|it| Some((it.clone(), it.joins?)))
        else {
            return;
        };
        let joined = self.jobs.get(&target).filter(|it| it.state == State::Run);
        let Some(joined) = joined else {
            return self.finish_standing(id, now);
        };
        if !has_grant(joined, id) {
            let context = json!({"id": requested.id, "alloc": id, "seq": requested.seq,
                                 "R": document(r)});
            self.post(target, &Event::with(now, "penstock.resource-add", context));
            self.end_with(id, target, now);
        }
    }

    /// Says what a request was granted. `last` is its last part.
    fn tell_grant(&mut self, last: &Requested, parts: &[(u64, ResourceSet)], now: f64) {
        let number: Number = (last.job, last.seq);
        let Some((id, first_r)) = parts.first() else {
            return;
        };
        let requested = |id: &u64| self.jobs.get(id).and_then(Job::requested);
        let Some(first) = requested(id).cloned() else {
            return;
        };
        let mut all = ResourceSet::new();
        for (_, r) in parts {
            all = all.union(r).unwrap_or(all);
        }
        let mut results = vec![Attribute::result(Key::AllocId, Data::Text(name_of(*id)))];
        if let Some(user) = &first.id {
            results.push(Attribute::result(Key::RequestId, Data::Text(user.clone())));
        }
        results.extend(given(&all));
        let end = first_r.expiration().unwrap_or(0.0);
        let start = first_r.starttime().unwrap_or(0.0);
        // While others of its parts were waited for, its time went on.
        let start = if parts.len() > 1 {
            start.max(now)
        } else {
            start
        };
        if first.joins.is_none() && end > start {
            let seconds = whole_seconds(end - start);
            results.push(Attribute::result(Key::Time, Data::Whole(seconds)));
        }
        let mut reasons = Vec::new();
        reasons.extend(first.ask.part(&all));
        if first.ask.elsewhere > 0 {
            let nodes = first.ask.elsewhere;
            reasons.push(format!(
                "asked back by other requests: {nodes} of the nodes"
            ));
        }
        let mut unmet: Vec<String> = Vec::new();
        for (part, r) in parts {
            let queue = self.jobs.get(part).and_then(|it| it.spec.queue.as_deref());
            let ask = requested(part).map(|it| &it.ask);
            let more = ask.map(|it| it.unmet(r, queue)).unwrap_or_default();
            unmet.extend(more);
        }
        add_dropped(unmet, &mut results, &mut reasons);
        let end = End {
            reason: reasons.join("; "),
            results: json_of(&results),
            nodes: parts
                .iter()
                .map(|(_, r)| u32::try_from(r.nnodes()).unwrap_or(u32::MAX))
                .fold(0, u32::saturating_add),
            ..End::default()
        };
        self.end_request(number, &end, now);
    }

    /// A grant was asked for when its job had more time left than now: it ends with the job.
    fn end_with(&mut self, id: u64, target: u64, now: f64) {
        let end = |id: u64| {
            let r = self.jobs.get(&id)?.r.as_ref()?;
            r.expiration().filter(|it| *it > 0.0)
        };
        if let (Some(own), Some(theirs)) = (end(id), end(target))
            && (own - theirs).abs() > 1.0
        {
            self.follow_expiration(target, theirs, now);
        }
    }

    /// A job is in CLEANUP. Its own requests end with it; where it stands for a request, that is
    /// over, and what it was granted is the requester's no more.
    pub(crate) fn end_requests(&mut self, id: u64, now: f64) {
        let account = self.elastic.ledger.account(id);
        let open = account
            .into_iter()
            .flat_map(penstock_elastic::Account::open);
        let open: Vec<u32> = open.map(|it| it.seq).collect();
        for seq in open {
            let denial = Denial::new(Status::CANCELLED, "the job has ended");
            self.end_request((id, seq), &End::refused(denial), now);
        }
        let requested = self.jobs.get(&id).and_then(Job::requested).cloned();
        let Some(requested) = requested else {
            return;
        };
        self.elastic.over(id);
        if requested.joins.is_none() {
            self.end_loans_of(id, now);
        }
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let number = (requested.job, requested.seq);
        if self.stands_for(id, number) {
            let denial = match job.fatal() {
                Some(it) if it.kind == "cancel" => {
                    let note = if it.note.is_empty() {
                        "its job in the queue was cancelled"
                    } else {
                        &it.note
                    };
                    Denial::new(Status::CANCELLED, note)
                }
                Some(it) => Denial::new(Status::OUT_OF_RESOURCE, &it.note),
                None => Denial::new(Status::CANCELLED, "its job has ended"),
            };
            self.end_request(number, &End::refused(denial), now);
        }
        let target = requested.joins.and_then(|target| self.jobs.get(&target));
        let target = target.filter(|it| it.state == State::Run && has_grant(it, id));
        if let Some((target, r)) = target.map(|it| it.id).zip(self.left_of(id)) {
            let context = json!({"R": document(&r), "ranks": "", "ended": [id]});
            let event = Event::with(now, "penstock.resource-remove", context);
            self.post(target, &event);
        }
    }

    /// What a job still holds of its own R.
    pub(super) fn left_of(&self, id: u64) -> Option<ResourceSet> {
        let job = self.jobs.get(&id)?;
        let r = job.r.as_ref()?;
        Some(r.restrict(&r.ranks().difference(&job.freed)))
    }

    /// A job gives back what it holds: what it was granted goes with it.
    pub(crate) fn end_grants(&mut self, id: u64, now: f64) {
        let flex = self.jobs.get(&id).and_then(|job| job.flex.as_ref());
        let grants = flex.map(|it| ids(&it.grants)).unwrap_or_default();
        for grant in grants {
            self.finish_standing(grant, now);
        }
    }

    /// An allocation without tasks has come to its good end.
    pub(super) fn finish_standing(&mut self, id: u64, now: f64) {
        let job = self.jobs.get(&id);
        if job.is_some_and(|it| it.requested().is_some() && it.state == State::Run) {
            let context = json!({ "status": 0 });
            self.post(id, &Event::with(now, "finish", context));
        }
    }

    /// The request that a job stands for, with those of its other parts, is over without a grant.
    pub(super) fn dismiss(&mut self, id: u64, end: &End, now: f64) {
        let kind = if end.status == Status::CANCELLED.0 {
            "cancel"
        } else {
            "alloc"
        };
        for part in self.elastic.all_parts(id) {
            self.end_part(part, kind, &end.reason, now);
        }
    }

    /// A job may end later, or earlier: so do the scheduler's allocations that are its grants.
    pub(crate) fn follow_expiration(&mut self, id: u64, expiration: f64, now: f64) {
        let flex = self.jobs.get(&id).and_then(|job| job.flex.as_ref());
        for grant in flex.map(|it| ids(&it.grants)).unwrap_or_default() {
            let held = |it: &&Job| it.state == State::Run && it.alloc == Alloc::Allocated;
            let Some(job) = self.jobs.get(&grant).filter(held) else {
                continue;
            };
            let began = job.r.as_ref().and_then(|r| r.starttime());
            let began = began.filter(|it| *it > 0.0).unwrap_or(job.t_run);
            let duration = if expiration > 0.0 {
                (expiration - began).max(1.0)
            } else {
                0.0
            };
            if let Err(refusal) = self.ask_expiration(grant, duration, By::Nobody, now) {
                let name = Fluid(grant);
                self.note(format!("expiration of grant {name}: {}", refusal.text));
            }
        }
        if self
            .jobs
            .get(&id)
            .is_some_and(|it| it.requested().is_some())
            && expiration > 0.0
        {
            self.elastic.at(expiration, id);
        }
    }
}

fn has_grant(job: &Job, id: u64) -> bool {
    job.flex.as_ref().is_some_and(|it| it.grants.contains(&id))
}

/// Seconds, as many as are whole.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float out of range saturates"
)]
pub(super) fn whole_seconds(seconds: f64) -> u64 {
    seconds.max(0.0).round() as u64
}
