//! Requests in parts: a jobspec has nodes of one kind, so each kind has a request job of its own.
//!
//! The parts are requested one after the other, the largest first. An allocated part is held for
//! the rest, but not for long, and joins the requesting job when all parts are allocated.

use std::collections::BTreeSet;

use penstock_elastic::Attempt;
use penstock_hostlist::Hostlist;
use serde_json::json;

use super::grant::end_part;
use super::naming::name_of;
use super::peer::{Elastic, End};
use super::request_job::{check_jobspec, request_of, time_left};
use crate::context::Context;
use crate::effect::RequestKey;
use crate::event::Event;
use crate::flex::ElasticRequest;
use crate::record::Record;
use crate::state::State;

/// Seconds that a part is held for the others: two requests that wait for what the other one holds
/// must not do so forever.
const MAX_PART_HOLD_S: f64 = 300.0;

impl Elastic {
    /// The request job of the last part requested so far, given that of the first.
    pub(super) fn last_part(&self, first: u64) -> u64 {
        let parts = self.parts.get(&first);
        parts.and_then(BTreeSet::last).copied().unwrap_or(first)
    }

    /// The request jobs of all parts requested so far, given that of the first.
    pub(super) fn all_parts(&self, first: u64) -> Vec<u64> {
        let others = self.parts.get(&first).into_iter().flatten();
        std::iter::once(first).chain(others.copied()).collect()
    }

    /// Whether a request is open and this is the request job of it, or of one of its parts.
    pub(super) fn is_carried_by(&self, cx: &Context, (job, seq): RequestKey, id: u64) -> bool {
        let first = request_of(cx, id).map(|request| request.first(id));
        let account = self.ledger.account(job);
        let entry = account.and_then(|account| account.entry(seq));
        entry.is_some_and(|entry| entry.is_open() && entry.alloc == first)
    }

    /// A part is allocated: requests the next one, unless that is done.
    pub(super) fn request_next_part(
        &mut self,
        cx: &mut Context,
        request: &ElasticRequest,
        id: u64,
    ) {
        let first = request.first(id);
        if self.last_part(first) != id {
            return;
        }
        let r = cx.jobs.record(id).and_then(Record::r);
        let hosts = r.map_or_else(Hostlist::default, |r| r.nodelist());
        // Parts of the same node may have been lent separately.
        let is_apart = request.directive != "reacquire";
        let Some(demand) = request.demand.next(&hosts, is_apart) else {
            return;
        };
        let joins = demand.joins.or(request.joins).unwrap_or(first);
        let mut before = request.before.clone();
        before.push(id);
        let next = ElasticRequest {
            joins: Some(joins),
            demand,
            before,
            ..request.clone()
        };
        match check_jobspec(cx, &next, time_left(cx, joins)) {
            Ok(checked) => {
                let id = cx.next_id();
                self.add_request_job(cx, id, &next, checked);
                self.at(cx.now + MAX_PART_HOLD_S, id);
            }
            Err(denial) => {
                let key = (request.job, request.seq);
                self.end_request(cx, key, &End::denied(denial));
            }
        }
    }

    /// Starts a request over whose allocated parts have been held for too long.
    pub(super) fn hold_due(&mut self, cx: &mut Context, id: u64) {
        let record = cx.jobs.record(id);
        let Some(record) = record.filter(|record| record.state() < State::Run) else {
            return;
        };
        let request = record.elastic_request();
        if request.is_none_or(|request| request.before.is_empty()) {
            return;
        }
        let until = record.t_submit() + MAX_PART_HOLD_S;
        if until > cx.now {
            self.at(until, id);
        } else {
            // The missing part is requested first, so that nothing is held meanwhile.
            self.start_over(cx, id, Attempt::Full, true);
        }
    }

    /// Ends the parts of a request and requests all of it again. `id` is the request job of one part;
    /// with `comes_first`, that part is the first from now on.
    pub(super) fn start_over(
        &mut self,
        cx: &mut Context,
        id: u64,
        attempt: Attempt,
        comes_first: bool,
    ) {
        let Some(part) = request_of(cx, id) else {
            return;
        };
        let (first, index) = (part.first(id), part.before.len());
        let Some(record) = cx.jobs.record(first) else {
            return;
        };
        let Some(request) = record.elastic_request().cloned() else {
            return;
        };
        let duration = record.spec().duration;
        let key = (request.job, request.seq);
        if !self.is_carried_by(cx, key, id) {
            return;
        }
        let index = if comes_first { index } else { 0 };
        let demand = request.demand.beginning_with(index);
        let again = ElasticRequest {
            demand,
            attempt,
            ..request
        };
        let duration = match again.joins {
            Some(target) => time_left(cx, target),
            None => duration,
        };
        let checked = match check_jobspec(cx, &again, duration) {
            Ok(checked) => checked,
            Err(denial) => return self.end_request(cx, key, &End::denied(denial)),
        };
        let id = cx.next_id();
        let context = json!({"seq": key.1, "alloc": id});
        let event = Event::with(cx.now, "penstock.alloc-again", context);
        self.log(cx, key.0, event);
        let note = format!("asked for again as {}", name_of(id));
        for part in self.all_parts(first) {
            end_part(cx, part, "cancel", &note);
        }
        self.add_request_job(cx, id, &again, checked);
    }
}
