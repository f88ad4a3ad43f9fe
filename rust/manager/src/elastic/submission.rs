//! Request jobs on their way through the queue: first with every wish, then whole, then in part.

use std::collections::BTreeSet;

use penstock_elastic::{Attempt, Demand, Denial, Entry, Status};
use penstock_flux::sched::JobsRequest;
use penstock_flux::topic;
use penstock_wire::Message;
use serde_json::json;

use super::call::Call;
use super::peer::{Elastic, End};
use super::request_job::{check_jobspec, first_ask, time_left};
use crate::context::Context;
use crate::effect::{Effect, RequestKey};
use crate::event::Event;
use crate::flex::ElasticRequest;
use crate::jobs::Job;
use crate::jobspecs::{self, Checked};
use crate::record::Record;
use crate::rpc;
use crate::state::State;

/// Seconds after which a scheduler that does not answer probes counts as having nothing free.
/// Penstock's answers at once.
const DECISION_TIMEOUT_S: f64 = 2.0;

/// Whether the request is to be decided at once.
fn is_decided_at_once(record: &Record) -> bool {
    let request = record.elastic_request();
    request.is_some_and(|request| request.attempt != Attempt::Full || request.demand.required)
}

impl Elastic {
    /// Submits the request job of a request. `returns` are the loans that it requests back.
    pub(super) fn submit(
        &mut self,
        cx: &mut Context,
        call: &Call<'_>,
        mut demand: Demand,
        joins: Option<u64>,
        duration: f64,
        returns: Vec<(u32, u32)>,
    ) -> Result<(), Denial> {
        let (job, request) = (call.asker.job, call.request);
        demand.required = request.required;
        self.check_limits(cx, job, &demand)?;
        // An unsatisfiable request may still be granted in part at its timeout.
        let must_fit = request.timeout.is_none() || !demand.may_be_partial();
        self.check_growth(cx, job, joins, &demand, must_fit)?;
        if demand.required && !cx.scheduler.is_ready {
            let reason = "not available now: no scheduler is ready";
            return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
        }
        let mut request_job = ElasticRequest {
            job,
            seq: call.key.1,
            directive: request.directive.name().to_owned(),
            id: request.id.clone(),
            joins,
            attempt: demand.first_attempt(),
            demand,
            before: Vec::new(),
        };
        let mut checked = check_jobspec(cx, &request_job, duration);
        if checked.is_err() && request_job.attempt == Attempt::Preferred {
            request_job.attempt = Attempt::Full;
            checked = check_jobspec(cx, &request_job, duration);
        }
        let mut checked = checked?;
        let stop_reason = |cx: &Context, checked: &Checked| {
            let reason = cx.queues.stop_reason(checked.queue());
            reason.map(|reason| format!("not available now: {reason}"))
        };
        if request_job.attempt == Attempt::Preferred && stop_reason(cx, &checked).is_some() {
            // Nothing of it is available now.
            request_job.attempt = Attempt::Full;
            checked = check_jobspec(cx, &request_job, duration)?;
        }
        if request_job.demand.required
            && let Some(reason) = stop_reason(cx, &checked)
        {
            return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
        }
        let demand = &request_job.demand;
        let cpus = if demand.rest.is_empty() {
            demand.cpus
        } else {
            u32::try_from(demand.all_cpus()).unwrap_or(u32::MAX)
        };
        let entry = Entry {
            // Allotted by the submission, which is logged after it.
            alloc: Some(cx.next_id()),
            target: joins.filter(|target| *target != job),
            nodes: demand.all_nodes().unwrap_or(0),
            cpus,
            returns,
            ..Entry::default()
        };
        let id = entry.alloc.unwrap_or_default();
        self.log_request(cx, call, entry);
        self.add_request_job(cx, id, &request_job, checked);
        Ok(())
    }

    /// Adds the request job of a request, or of a part of one.
    pub(super) fn add_request_job(
        &mut self,
        cx: &mut Context,
        id: u64,
        request: &ElasticRequest,
        checked: Checked,
    ) {
        let Some(record) = cx.jobs.record(request.job) else {
            return;
        };
        let (userid, urgency) = (record.userid(), record.urgency());
        let stored = checked.store(cx);
        let context = json!({"userid": userid, "urgency": urgency, "flags": 0, "version": 1});
        let submit = Event::with(cx.now, "submit", context);
        cx.add_job(id, userid, &stored, &submit);
        let context = serde_json::to_value(request).unwrap_or_default();
        let event = Event::with(cx.now, "penstock.request", context);
        self.log(cx, id, event);
        self.decide_soon(cx, id);
    }

    /// Probes the scheduler once for all requests that are to be decided at once: the response comes
    /// after a pass, and what that pass allocated is committed by then.
    pub(crate) fn send_probe(&mut self, cx: &mut Context) {
        if self.unprobed.is_empty() || !cx.scheduler.is_ready {
            return;
        }
        let unprobed = std::mem::take(&mut self.unprobed);
        let is_due = |id: &u64| cx.jobs.record(*id).is_some_and(is_decided_at_once);
        let due: BTreeSet<u64> = unprobed.into_iter().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        let matchtag = cx.next_matchtag();
        self.probes.insert(matchtag, due);
        let nothing = JobsRequest {
            ids: Some(Vec::new()),
            ..JobsRequest::default()
        };
        let probe = rpc::request(topic::sched::EXPLAIN, &nothing);
        cx.send(probe.with_matchtag(matchtag));
    }

    /// The response to a probe. A scheduler that does not know the question decides nothing.
    pub(crate) fn probe_response(&mut self, cx: &mut Context, response: &Message) {
        let due = self.probes.remove(&response.matchtag);
        if response.errnum() != 0 {
            return;
        }
        for id in due.into_iter().flatten() {
            self.decide(cx, id);
        }
    }

    /// Decides a request for which nothing was allocated at once: it continues with its next attempt, or
    /// is denied.
    fn decide(&mut self, cx: &mut Context, id: u64) {
        let is_pending = |job: &&Job| job.record.state() < State::Run && job.r().is_none();
        let job = cx.jobs.get(id).filter(is_pending);
        let record = job.map(|job| &job.record);
        let record = record.filter(|record| is_decided_at_once(record));
        let Some(request) = record.and_then(Record::elastic_request) else {
            return;
        };
        let asked = first_ask(cx, id).describe();
        match request.attempt {
            Attempt::Preferred => self.continue_as(cx, id, Attempt::Full),
            Attempt::Full => {
                let reason = format!("not available now: {asked}");
                self.deny(cx, id, Status::OUT_OF_RESOURCE, &reason);
            }
            Attempt::Partial => {
                let reason = format!(
                    "no part of {asked} is free and not reserved, and the caller waits no longer"
                );
                self.deny(cx, id, Status::TIMEOUT, &reason);
            }
        }
    }

    /// Requests the resources of a request job by another attempt.
    fn continue_as(&mut self, cx: &mut Context, id: u64, attempt: Attempt) {
        let Some(record) = cx.jobs.record(id) else {
            return;
        };
        let Some(request) = record.elastic_request() else {
            return;
        };
        if !request.before.is_empty() {
            return self.start_over(cx, id, attempt, false);
        }
        let owner = cx.jobs.record(request.job).unwrap_or(record);
        let queue = owner.spec().queue.as_deref();
        let duration = match request.joins {
            Some(target) => time_left(cx, target),
            None => record.spec().duration,
        };
        let name = &record.spec().name;
        let jobspec = request.demand.jobspec(attempt, queue, duration, name);
        let checked = match jobspecs::parse(cx, jobspec.to_string()) {
            Ok(checked) => checked,
            Err(error) => return self.deny(cx, id, Status::OUT_OF_RESOURCE, &error.text),
        };
        // The scheduler was probed about the attempt before.
        for probed in self.probes.values_mut() {
            probed.remove(&id);
        }
        let context = json!({ "form": attempt });
        let event = Event::with(cx.now, "penstock.request-update", context);
        self.observe(id);
        self.ledger.apply(id, &event.name, event.context.as_ref());
        jobspecs::replace(cx, id, checked, event);
        self.decide_soon(cx, id);
        cx.effect(Effect::Withdraw(id));
        cx.revisit(id);
    }

    /// The scheduler denies the resources of a job for good. Returns whether it is a request job: then
    /// that is dealt with.
    pub(crate) fn denied(&mut self, cx: &mut Context, id: u64, note: &str) -> bool {
        let record = cx.jobs.record(id);
        let Some(request) = record.and_then(Record::elastic_request) else {
            return false;
        };
        let (attempt, has_parts) = (request.attempt, first_ask(cx, id).may_be_partial());
        let timeout = self.timeout_of((request.job, request.seq));
        match attempt {
            Attempt::Preferred => self.continue_as(cx, id, Attempt::Full),
            Attempt::Full if timeout.is_some() && has_parts => {
                self.continue_as(cx, id, Attempt::Partial);
            }
            // Not even a part, or a scheduler that does not know what a part is.
            Attempt::Partial if timeout.is_some_and(|timeout| timeout <= cx.now) => {
                self.deny(cx, id, Status::TIMEOUT, note);
            }
            Attempt::Full | Attempt::Partial => self.deny(cx, id, Status::OUT_OF_RESOURCE, note),
        }
        true
    }

    /// When an open request times out, seconds since the epoch.
    fn timeout_of(&self, (job, seq): RequestKey) -> Option<f64> {
        let entry = self.ledger.account(job)?.entry(seq)?;
        entry.deadline.filter(|_| entry.is_open())
    }

    /// Denies the request of a request job.
    fn deny(&mut self, cx: &mut Context, id: u64, status: Status, reason: &str) {
        let record = cx.jobs.record(id);
        if let Some(request) = record.and_then(Record::elastic_request) {
            let key = (request.job, request.seq);
            let end = End::denied(Denial::new(status, reason));
            self.end_request(cx, key, &end);
        }
    }

    /// Looks at a pending request job whose timer is due.
    pub(super) fn request_job_due(&mut self, cx: &mut Context, id: u64) {
        let Some(job) = cx.jobs.get(id) else {
            return;
        };
        if !is_decided_at_once(&job.record) {
            self.timeout_due(cx, id);
            return self.hold_due(cx, id);
        }
        let by = self.decide_by.get(&id).copied().unwrap_or(cx.now);
        if by > cx.now || job.dialogue.committed().is_some() {
            // A request whose R is committed is as good as granted.
            self.at(by.max(cx.now + 0.1), id);
        } else {
            self.decide(cx, id);
        }
    }

    /// Continues a request whose timeout is reached with what is free of it, or denies it.
    pub(super) fn timeout_due(&mut self, cx: &mut Context, id: u64) {
        let id = self.last_part(id);
        let record = cx.jobs.record(id);
        let pending =
            record.filter(|record| record.state() < State::Run && !is_decided_at_once(record));
        let Some(request) = pending.and_then(Record::elastic_request) else {
            return;
        };
        let timeout = self.timeout_of((request.job, request.seq));
        if timeout.is_none_or(|timeout| timeout > cx.now) {
            return;
        }
        let whole = first_ask(cx, id);
        if whole.may_be_partial() {
            self.continue_as(cx, id, Attempt::Partial);
        } else {
            let asked = whole.describe();
            let reason = format!("{asked} did not become free in time");
            self.deny(cx, id, Status::TIMEOUT, &reason);
        }
    }

    /// Begins the time in which the scheduler is to decide about a request job.
    pub(super) fn decide_soon(&mut self, cx: &Context, id: u64) {
        let by = cx.now + DECISION_TIMEOUT_S;
        self.decide_by.insert(id, by);
        self.at(by, id);
    }
}
