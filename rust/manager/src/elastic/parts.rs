//! Requests in parts: a jobspec has nodes of one kind, so each kind has a request job of its own.
//!
//! The parts are requested one after the other, the largest first. Allocated parts are held for a limited
//! time, until all are allocated. Then they join the requesting job.

use penstock_elastic::{Attempt, RequestAgain};
use penstock_flux::eventlog;
use penstock_hostlist::Hostlist;
use penstock_jobspec::job_id::JobId;

use super::naming::name_of;
use super::peer::Elastic;
use super::request_job::{check_jobspec, next_id, request_of, time_left};
use super::requests::{End, end_part};
use crate::context::Context;
use crate::effect::RequestKey;
use crate::elastic_state::ElasticRequest;
use crate::event::Event;
use crate::record::Record;
use crate::state::State;

/// Maximum time in seconds that a part is held for the others: it ends the deadlock of two requests of
/// which each is blocked by resources that the other one holds.
const MAX_PART_HOLD_S: f64 = 300.0;

/// Which part a request begins with when it is requested again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstPart {
    /// The largest, as at first.
    Largest,
    /// The missing part, so that no resources are held while it is pending.
    Missing,
}

impl Elastic {
    /// Whether a request is open and this is the request job of it, or of one of its parts.
    pub(super) fn is_carried_by(&self, cx: &Context, key: RequestKey, id: JobId) -> bool {
        let first = request_of(cx, id).map(|request| request.first(id));
        let entry = self.entry(key);
        entry.is_some_and(|entry| entry.is_open() && entry.alloc == first)
    }

    /// Requests the part after one that was allocated, unless it is requested already.
    pub(super) fn request_next_part(
        &mut self,
        cx: &mut Context,
        request: &ElasticRequest,
        id: JobId,
    ) {
        let first = request.first(id);
        if self.parts.last(first) != id {
            return;
        }
        let r = cx.jobs.record(id).and_then(Record::r);
        let hosts = r.map_or_else(Hostlist::default, |r| r.nodelist());
        // Parts of the same node may have been lent separately.
        let granted = Some(&hosts).filter(|_| request.directive != "reacquire");
        let Some(demand) = request.demand.next(granted) else {
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
        let duration = time_left(cx, joins);
        let prepared = check_jobspec(cx, &next, duration);
        let prepared = prepared.and_then(|checked| Ok((next_id(cx)?, checked)));
        match prepared {
            Ok((id, checked)) => {
                self.add_request_job(cx, id, &next, checked);
                self.timers.set(cx.now + MAX_PART_HOLD_S, id);
            }
            Err(denial) => {
                let key = request.key();
                self.end_request(cx, key, &End::denied(denial));
            }
        }
    }

    /// Restarts a request if its allocated parts were held too long.
    pub(super) fn handle_hold_timer(&mut self, cx: &mut Context, id: JobId) {
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
            self.timers.set(until, id);
        } else {
            self.start_over(cx, id, Attempt::Full, FirstPart::Missing);
        }
    }

    /// Ends the parts of a request and requests all of it again. `id` is the request job of the part
    /// that is missing.
    pub(super) fn start_over(
        &mut self,
        cx: &mut Context,
        id: JobId,
        attempt: Attempt,
        begin_with: FirstPart,
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
        let key = request.key();
        if !self.is_carried_by(cx, key, id) {
            return;
        }
        let index = match begin_with {
            FirstPart::Largest => 0,
            FirstPart::Missing => index,
        };
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
        let prepared = check_jobspec(cx, &again, duration);
        let prepared = prepared.and_then(|checked| Ok((next_id(cx)?, checked)));
        let (id, checked) = match prepared {
            Ok(prepared) => prepared,
            Err(denial) => return self.end_request(cx, key, &End::denied(denial)),
        };
        let context = RequestAgain {
            seq: key.seq,
            alloc: id,
        };
        let event = Event::with(cx.now, eventlog::ALLOC_AGAIN, &context);
        self.log(cx, key.job, event);
        let note = format!("requested again as {}", name_of(id));
        for part in self.parts.all(first) {
            end_part(cx, part, "cancel", &note);
        }
        self.add_request_job(cx, id, &again, checked);
    }
}
