//! Requests for nodes of which not all are to give as much: a jobspec has nodes of one kind, so that a
//! job stands for each kind. They are asked for one after the other, the largest first; what is
//! there is kept for the rest, but not for long, and joins the requester when all is there.

use std::collections::BTreeSet;

use penstock_elastic::{Ask, Form};
use penstock_hostlist::Hostlist;
use penstock_rset::ResourceSet;
use serde_json::json;

use super::submission::name_of;
use super::{Elastic, Number, Requested};
use crate::event::Event;
use crate::job::Job;
use crate::manager::Manager;
use crate::state::State;

/// Seconds that a part is kept for the others: two requests that wait for what the other one keeps do
/// not wait for ever.
const MAX_PART_HOLD_S: f64 = 300.0;

impl Elastic {
    /// The job that stands for the last part so far of a request, given that of the first.
    pub(super) fn last_part(&self, first: u64) -> u64 {
        let parts = self.parts.get(&first);
        parts.and_then(BTreeSet::last).copied().unwrap_or(first)
    }

    /// The jobs that stand for the parts of a request, given that of the first.
    pub(super) fn all_parts(&self, first: u64) -> Vec<u64> {
        let others = self.parts.get(&first).into_iter().flatten();
        std::iter::once(first).chain(others.copied()).collect()
    }
}

impl Requested {
    /// The job that stands for the first part of the request, given one of its jobs.
    pub(super) fn first(&self, id: u64) -> u64 {
        self.before.first().copied().unwrap_or(id)
    }
}

impl Manager {
    /// All that a request asks for, given the job of one of its parts.
    pub(super) fn first_ask(&self, id: u64) -> Ask {
        let requested = |id: u64| self.jobs.get(&id).and_then(Job::requested);
        let own = requested(id);
        let first = own.and_then(|it| requested(it.first(id)));
        first.or(own).map(|it| it.ask.clone()).unwrap_or_default()
    }

    /// Whether a request is open and is this job's, or that of one of its parts.
    pub(super) fn stands_for(&self, id: u64, (job, seq): Number) -> bool {
        let requested = self.jobs.get(&id).and_then(Job::requested);
        let account = self.elastic.ledger.account(job);
        let entry = account.and_then(|it| it.entry(seq));
        let entry = entry.filter(|it| it.is_open());
        entry.is_some_and(|it| it.alloc == requested.map(|own| own.first(id)))
    }

    /// R of the parts that are there, one by one.
    pub(super) fn parts_of(&self, requested: &Requested, id: u64) -> Vec<(u64, ResourceSet)> {
        let all = requested.before.iter().copied().chain([id]);
        let r = |id| Some((id, (**self.jobs.get(&id)?.r.as_ref()?).clone()));
        all.filter_map(r).collect()
    }

    /// A part of a request is there: the next one is asked for, unless that is done.
    pub(super) fn ask_for_the_rest(&mut self, requested: &Requested, id: u64, now: f64) {
        let first = requested.first(id);
        if self.elastic.last_part(first) != id {
            return;
        }
        let mut hosts = Hostlist::default();
        let r = self.jobs.get(&id).and_then(|it| it.r.as_ref());
        if let Some(r) = r {
            hosts = r.nodelist();
        }
        // What was lent may have been parts of the same node.
        let apart = requested.directive != "reacquire";
        let Some(ask) = requested.ask.next(&hosts, apart) else {
            return;
        };
        let joins = ask.joins.or(requested.joins).unwrap_or(first);
        let mut before = requested.before.clone();
        before.push(id);
        let stands = Requested {
            joins: Some(joins),
            ask,
            before,
            ..requested.clone()
        };
        let left = self.time_left(joins, now);
        match self.spec_of(&stands, left) {
            Ok(spec) => {
                let next = self.next_id(now);
                self.stand_for(next, &stands, spec, now);
                self.elastic.at(now + MAX_PART_HOLD_S, next);
            }
            Err(denial) => {
                let number = (requested.job, requested.seq);
                self.end_request(number, &super::End::refused(denial), now);
            }
        }
    }

    /// A part that waits for longer than others may be kept for it.
    pub(super) fn kept_too_long(&mut self, id: u64, now: f64) {
        let Some(job) = self.jobs.get(&id).filter(|it| it.state < State::Run) else {
            return;
        };
        let others = job.requested().filter(|it| !it.before.is_empty());
        if others.is_none() {
            return;
        }
        if job.t_submit + MAX_PART_HOLD_S > now {
            self.elastic.at(job.t_submit + MAX_PART_HOLD_S, id);
        } else {
            // What lacks is waited for first, so that nothing is kept meanwhile.
            self.start_over(id, Form::Whole, true, now);
        }
    }

    /// Gives back what of a request is there, and asks for all of it anew. `id` is the job of one of
    /// its parts: with `turned` that is the first from now on.
    pub(super) fn start_over(&mut self, id: u64, form: Form, turned: bool, now: f64) {
        let place = self.jobs.get(&id).and_then(Job::requested);
        let place = place.map_or(0, |it| it.before.len());
        let Some((first, requested, asked)) = self.jobs.get(&id).and_then(|job| {
            let first = job.requested()?.first(id);
            let job = self.jobs.get(&first)?;
            Some((first, job.requested()?.clone(), job.spec.duration))
        }) else {
            return;
        };
        let number = (requested.job, requested.seq);
        if !self.stands_for(id, number) {
            return;
        }
        let place = if turned { place } else { 0 };
        let ask = requested.ask.beginning_with(place);
        let stands = Requested {
            ask,
            form,
            ..requested
        };
        let duration = match stands.joins {
            Some(target) => self.time_left(target, now),
            None => asked,
        };
        let spec = match self.spec_of(&stands, duration) {
            Ok(spec) => spec,
            Err(denial) => return self.end_request(number, &super::End::refused(denial), now),
        };
        let again = self.next_id(now);
        let context = json!({"seq": number.1, "alloc": again});
        self.post(number.0, &Event::with(now, "penstock.alloc-again", context));
        let note = format!("asked for again as {}", name_of(again));
        for part in self.elastic.all_parts(first) {
            self.end_part(part, "cancel", &note, now);
        }
        self.stand_for(again, &stands, spec, now);
    }

    /// The job of a part is over without a grant.
    pub(super) fn end_part(&mut self, id: u64, kind: &str, note: &str, now: f64) {
        let job = self.jobs.get(&id);
        if job.is_some_and(|it| it.state < State::Cleanup && it.requested().is_some()) {
            self.fail_job(id, now, kind, note);
        }
    }
}
