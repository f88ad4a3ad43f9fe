//! Submission of request jobs: attempts with all preferences, full amount, partial amount.

use penstock_elastic::{Attempt, Demand, Denial, Entry, Return, Status};
use penstock_flux::eventlog;
use penstock_jobspec::job_id::JobId;

use super::limits::Satisfiable;
use super::parts::FirstPart;
use super::peer::Elastic;
use super::request_job::{check_jobspec, first_ask, next_id, time_left};
use super::requests::Call;
use super::requests::End;
use crate::context::Context;
use crate::effect::{Effect, RequestKey};
use crate::elastic_state::{ElasticRequest, RequestUpdate};
use crate::event::Event;
use crate::jobs::Job;
use crate::jobspecs;
use crate::record::Record;
use crate::spec::Checked;
use crate::state::State;

/// Whether the request is to be decided at once.
pub(super) fn is_decided_at_once(record: &Record) -> bool {
    let request = record.elastic_request();
    request.is_some_and(|request| request.attempt != Attempt::Full || request.demand.required)
}

impl Elastic {
    /// Submits the request job of a request. `returns` are the loans that it reclaims.
    pub(super) fn submit(
        &mut self,
        cx: &mut Context,
        call: &Call<'_>,
        mut demand: Demand,
        joins: Option<JobId>,
        duration: f64,
        returns: Vec<Return>,
    ) -> Result<(), Denial> {
        let (job, request) = (call.requester.job, call.request);
        demand.required = request.required;
        self.check_limits(cx, job, &demand)?;
        // An unsatisfiable request may still be granted in part at its timeout.
        let satisfiable = if request.timeout.is_some() && demand.may_be_partial() {
            Satisfiable::Part
        } else {
            Satisfiable::Whole
        };
        self.check_growth(cx, job, joins, &demand, satisfiable)?;
        if demand.required && !cx.handshake().is_ready() {
            let reason = "not available now: no scheduler is ready";
            return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
        }
        let mut request_job = ElasticRequest {
            job,
            seq: call.key.seq,
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
            let reason = cx.queues.stop_reason(checked.spec().queue.as_deref());
            reason.map(|reason| format!("not available now: {reason}"))
        };
        if request_job.attempt == Attempt::Preferred && stop_reason(cx, &checked).is_some() {
            // No part of the request is available now.
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
        let id = next_id(cx)?;
        let entry = Entry {
            // Allotted by the submission, which is logged after it.
            alloc: Some(id),
            target: joins.filter(|target| *target != job),
            nodes: demand.all_nodes().unwrap_or(0),
            cpus,
            returns,
            ..Entry::default()
        };
        self.log_request(cx, call, entry);
        self.add_request_job(cx, id, &request_job, checked);
        Ok(())
    }

    /// Decides a request for which nothing was allocated at once: it continues with its next attempt, or
    /// is denied.
    pub(super) fn decide(&mut self, cx: &mut Context, id: JobId) {
        let is_pending = |job: &&Job| job.record.state() < State::Run && job.r().is_none();
        let job = cx.jobs.get(id).filter(is_pending);
        let record = job.map(|job| &job.record);
        let record = record.filter(|record| is_decided_at_once(record));
        let Some(request) = record.and_then(Record::elastic_request) else {
            return;
        };
        let requested = first_ask(cx, id).describe();
        match request.attempt {
            Attempt::Preferred => self.continue_as(cx, id, Attempt::Full),
            Attempt::Full => {
                let reason = format!("not available now: {requested}");
                self.deny(cx, id, Status::OUT_OF_RESOURCE, &reason);
            }
            Attempt::Partial => {
                let reason = format!(
                    "no part of {requested} is free and not reserved, and the timeout has expired"
                );
                self.deny(cx, id, Status::TIMEOUT, &reason);
            }
        }
    }

    /// Requests the resources of a request job by another attempt.
    fn continue_as(&mut self, cx: &mut Context, id: JobId, attempt: Attempt) {
        let Some(record) = cx.jobs.record(id) else {
            return;
        };
        let Some(request) = record.elastic_request() else {
            return;
        };
        if !request.before.is_empty() {
            return self.start_over(cx, id, attempt, FirstPart::Largest);
        }
        let owner = cx.jobs.record(request.job).unwrap_or(record);
        let queue = owner.spec().queue.as_deref();
        let duration = match request.joins {
            Some(target) => time_left(cx, target),
            None => record.spec().duration,
        };
        let name = &record.spec().name;
        let jobspec = request.demand.jobspec(attempt, queue, duration, name);
        let jobspec = jobspec.map_err(jobspecs::invalid);
        let checked = match jobspec.and_then(|jobspec| jobspecs::accept(cx, &jobspec)) {
            Ok(checked) => checked,
            Err(error) => return self.deny(cx, id, Status::OUT_OF_RESOURCE, &error.text),
        };
        // The scheduler was probed about the attempt before.
        self.probes.withdraw(id);
        let context = RequestUpdate { attempt };
        let event = Event::with(cx.now, eventlog::REQUEST_UPDATE, &context);
        self.observe(id);
        jobspecs::replace(cx, id, checked, event);
        self.decide_soon(cx, id);
        cx.add_effect(Effect::Withdraw(id));
        cx.revisit(id);
    }

    /// Handles the scheduler's denial of the resources of a request job: the request continues with its
    /// next attempt, or is denied.
    pub(crate) fn follow_denial(&mut self, cx: &mut Context, id: JobId, note: &str) {
        let record = cx.jobs.record(id);
        let Some(request) = record.and_then(Record::elastic_request) else {
            return;
        };
        let (attempt, has_parts) = (request.attempt, first_ask(cx, id).may_be_partial());
        let timeout = self.timeout_of(request.key());
        match attempt {
            Attempt::Preferred => self.continue_as(cx, id, Attempt::Full),
            Attempt::Full if timeout.is_some() && has_parts => {
                self.continue_as(cx, id, Attempt::Partial);
            }
            // Not even a part is satisfiable, or the scheduler does not support partial requests.
            Attempt::Partial if timeout.is_some_and(|timeout| timeout <= cx.now) => {
                self.deny(cx, id, Status::TIMEOUT, note);
            }
            Attempt::Full | Attempt::Partial => self.deny(cx, id, Status::OUT_OF_RESOURCE, note),
        }
    }

    /// When an open request times out, seconds since the epoch.
    pub(super) fn timeout_of(&self, key: RequestKey) -> Option<f64> {
        let entry = self.entry(key)?;
        entry.deadline.filter(|_| entry.is_open())
    }

    /// Denies the request of a request job.
    fn deny(&mut self, cx: &mut Context, id: JobId, status: Status, reason: &str) {
        let record = cx.jobs.record(id);
        if let Some(request) = record.and_then(Record::elastic_request) {
            let key = request.key();
            let end = End::denied(Denial::new(status, reason));
            self.end_request(cx, key, &end);
        }
    }

    /// Handles the due timer of a pending request job.
    pub(super) fn handle_request_job_timer(&mut self, cx: &mut Context, id: JobId) {
        let Some(job) = cx.jobs.get(id) else {
            return;
        };
        if !is_decided_at_once(&job.record) {
            self.handle_timeout(cx, id);
            return self.handle_hold_timer(cx, id);
        }
        let by = self.probes.decide_by(id).unwrap_or(cx.now);
        if by > cx.now || job.dialogue.scheduler.committed().is_some() {
            // R is committed: the grant is about to follow.
            self.timers.set(by.max(cx.now + 0.1), id);
        } else {
            self.decide(cx, id);
        }
    }

    /// Continues a request whose timeout has expired with its free part, or denies it.
    pub(super) fn handle_timeout(&mut self, cx: &mut Context, id: JobId) {
        let id = self.parts.last(id);
        let record = cx.jobs.record(id);
        let pending =
            record.filter(|record| record.state() < State::Run && !is_decided_at_once(record));
        let Some(request) = pending.and_then(Record::elastic_request) else {
            return;
        };
        let timeout = self.timeout_of(request.key());
        if timeout.is_none_or(|timeout| timeout > cx.now) {
            return;
        }
        let whole = first_ask(cx, id);
        if whole.may_be_partial() {
            self.continue_as(cx, id, Attempt::Partial);
        } else {
            let requested = whole.describe();
            let reason = format!("{requested} did not become free in time");
            self.deny(cx, id, Status::TIMEOUT, &reason);
        }
    }
}
