//! Submission of request jobs: attempts with all preferences, full amount, partial amount; one part after the other.
//!
//! A jobspec has nodes of one kind, so each kind that a request has is a part with a request job of its own. The parts
//! are requested one after the other, the largest first. Allocated parts are held for a limited time, until all are
//! allocated. Then they join the requesting job.

use penstock_elastic::{Attempt, Demand, Denial, Entry, RequestAgain, Return, Status};
use penstock_flux::eventlog;
use penstock_hostlist::Hostlist;
use penstock_jobspec::job_id::JobId;

use super::limits::{Satisfiable, check_growth, check_limits};
use super::naming::name_of;
use super::probe::Probes;
use super::request_job::{
    add_request_job, check_jobspec, first_ask, is_decided_at_once, next_id, request_of, time_left,
};
use super::requests::{Call, End, Requests, end_part};
use super::table::RequestTable;
use crate::context::Context;
use crate::effect::{Effect, ProbeAnswer, ProbeId};
use crate::elastic_state::{ElasticRequest, RequestUpdate};
use crate::event::Event;
use crate::jobs::Job;
use crate::jobspecs;
use crate::record::Record;
use crate::spec::Checked;
use crate::state::State;

/// Maximum time in seconds that a part is held for the others: it ends the deadlock of two requests of
/// which each is blocked by resources that the other one holds.
const MAX_PART_HOLD_S: f64 = 300.0;

/// Which part a request begins with when it is requested again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstPart {
    /// The largest, as at first.
    Largest,
    /// The missing part, so that no resources are held while it is pending.
    Missing,
}

/// The resources that a request job is to request.
pub(super) struct Submission {
    pub(super) demand: Demand,
    /// The allocation that they join; `None` for one of its own.
    pub(super) joins: Option<JobId>,
    /// The time limit in seconds.
    pub(super) duration: f64,
    /// The loans that the request reclaims.
    pub(super) returns: Vec<Return>,
}

/// The request jobs in the queue, and the scheduler's decisions about them.
#[derive(Debug, Default)]
pub(super) struct Submissions {
    probes: Probes,
}

impl Submissions {
    /// Queues a probe about a request job, for which resources were requested.
    pub(super) fn queue_probe(&mut self, id: JobId) {
        self.probes.queue(id);
    }

    /// Probes the scheduler once for all requests that are to be decided at once.
    pub(super) fn probe_scheduler(&mut self, cx: &mut Context, table: &RequestTable) {
        self.probes.begin(cx, table);
    }

    /// Ends the time in which the scheduler is to decide about a request job, which is allocated or has ended.
    pub(super) fn end_decision(&mut self, id: JobId) {
        self.probes.end_decision(id);
    }

    /// Adds a request job, about which the scheduler is to decide.
    fn add(
        &mut self,
        requests: &mut Requests,
        cx: &mut Context,
        id: JobId,
        request: &ElasticRequest,
        checked: Checked,
    ) {
        add_request_job(&mut requests.table, cx, id, request, checked);
        self.decide_soon(requests, cx, id);
    }

    /// Begins the time in which the scheduler is to decide about a request job.
    pub(super) fn decide_soon(&mut self, requests: &mut Requests, cx: &Context, id: JobId) {
        let by = self.probes.await_decision(id, cx.now);
        requests.timers.set(by, id);
    }

    /// Submits the request job of a request.
    pub(super) fn submit(
        &mut self,
        requests: &mut Requests,
        cx: &mut Context,
        call: &Call<'_>,
        submission: Submission,
    ) -> Result<(), Denial> {
        let Submission {
            mut demand,
            joins,
            duration,
            returns,
        } = submission;
        let (job, request) = (call.requester.job, call.request);
        demand.required = request.required;
        let usage = requests.table.recount(cx);
        check_limits(usage, cx, job, &demand)?;
        // An unsatisfiable request may still be granted in part at its timeout.
        let satisfiable = if request.timeout.is_some() && demand.may_be_partial() {
            Satisfiable::Part
        } else {
            Satisfiable::Whole
        };
        check_growth(usage, cx, job, joins, &demand, satisfiable)?;
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
        let id = next_id(cx, job)?;
        let entry = Entry {
            // Allotted by the submission, which is logged after it.
            alloc: Some(id),
            target: joins.filter(|target| *target != job),
            nodes: demand.all_nodes().unwrap_or(0),
            cpus,
            returns,
            ..Entry::default()
        };
        requests.begin(cx, call, entry);
        self.add(requests, cx, id, &request_job, checked);
        Ok(())
    }

    /// Decides a request for which nothing was allocated at once: it continues with its next attempt, or
    /// is denied.
    fn decide(&mut self, requests: &mut Requests, cx: &mut Context, id: JobId) {
        let is_pending = |job: &&Job| job.record.state() < State::Run && job.r().is_none();
        let job = cx.jobs.get(id).filter(is_pending);
        let record = job.map(|job| &job.record);
        let record = record.filter(|record| is_decided_at_once(record));
        let Some(request) = record.and_then(Record::elastic_request) else {
            return;
        };
        let requested = first_ask(cx, id).describe();
        match request.attempt {
            Attempt::Preferred => self.continue_as(requests, cx, id, Attempt::Full),
            Attempt::Full => {
                let reason = format!("not available now: {requested}");
                deny(requests, cx, id, Status::OUT_OF_RESOURCE, &reason);
            }
            Attempt::Partial => {
                let reason = format!(
                    "no part of {requested} is free and not reserved, and the timeout has expired"
                );
                deny(requests, cx, id, Status::TIMEOUT, &reason);
            }
        }
    }

    /// Requests the resources of a request job by another attempt.
    fn continue_as(
        &mut self,
        requests: &mut Requests,
        cx: &mut Context,
        id: JobId,
        attempt: Attempt,
    ) {
        let Some(record) = cx.jobs.record(id) else {
            return;
        };
        let Some(request) = record.elastic_request() else {
            return;
        };
        if !request.before.is_empty() {
            return self.start_over(requests, cx, id, attempt, FirstPart::Largest);
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
        let checked = match jobspec.and_then(|jobspec| jobspecs::accept(cx, jobspec)) {
            Ok(checked) => checked,
            Err(error) => return deny(requests, cx, id, Status::OUT_OF_RESOURCE, &error.text),
        };
        // The scheduler was probed about the attempt before.
        self.probes.withdraw(id);
        let context = RequestUpdate { attempt };
        let event = Event::with(cx.now, eventlog::REQUEST_UPDATE, &context);
        requests.table.observe(id);
        jobspecs::replace(cx, id, checked, event);
        self.decide_soon(requests, cx, id);
        cx.add_effect(Effect::Withdraw(id));
        cx.revisit(id);
    }

    /// Handles the scheduler's denial of the resources of a request job: the request continues with its
    /// next attempt, or is denied.
    pub(super) fn follow_denial(
        &mut self,
        requests: &mut Requests,
        cx: &mut Context,
        id: JobId,
        note: &str,
    ) {
        let record = cx.jobs.record(id);
        let Some(request) = record.and_then(Record::elastic_request) else {
            return;
        };
        let (attempt, has_parts) = (request.attempt, first_ask(cx, id).may_be_partial());
        let timeout = requests.table.timeout_of(request.key());
        match attempt {
            Attempt::Preferred => self.continue_as(requests, cx, id, Attempt::Full),
            Attempt::Full if timeout.is_some() && has_parts => {
                self.continue_as(requests, cx, id, Attempt::Partial);
            }
            // Not even a part is satisfiable, or the scheduler does not support partial requests.
            Attempt::Partial if timeout.is_some_and(|timeout| timeout <= cx.now) => {
                deny(requests, cx, id, Status::TIMEOUT, note);
            }
            Attempt::Full | Attempt::Partial => {
                deny(requests, cx, id, Status::OUT_OF_RESOURCE, note);
            }
        }
    }

    /// Handles the due timer of a pending request job.
    pub(super) fn handle_timer(&mut self, requests: &mut Requests, cx: &mut Context, id: JobId) {
        let Some(job) = cx.jobs.get(id) else {
            return;
        };
        if !is_decided_at_once(&job.record) {
            self.handle_timeout(requests, cx, id);
            return self.handle_hold_timer(requests, cx, id);
        }
        let by = self.probes.decide_by(id).unwrap_or(cx.now);
        if by > cx.now || job.dialogue.scheduler.committed().is_some() {
            // R is committed: the grant is about to follow.
            requests.timers.set(by.max(cx.now + 0.1), id);
        } else {
            self.decide(requests, cx, id);
        }
    }

    /// Continues a request whose timeout has expired with its free part, or denies it.
    pub(super) fn handle_timeout(&mut self, requests: &mut Requests, cx: &mut Context, id: JobId) {
        let id = requests.table.last_part(id);
        let record = cx.jobs.record(id);
        let pending =
            record.filter(|record| record.state() < State::Run && !is_decided_at_once(record));
        let Some(request) = pending.and_then(Record::elastic_request) else {
            return;
        };
        let timeout = requests.table.timeout_of(request.key());
        if timeout.is_none_or(|timeout| timeout > cx.now) {
            return;
        }
        let whole = first_ask(cx, id);
        if whole.may_be_partial() {
            self.continue_as(requests, cx, id, Attempt::Partial);
        } else {
            let requested = whole.describe();
            let reason = format!("{requested} did not become free in time");
            deny(requests, cx, id, Status::TIMEOUT, &reason);
        }
    }

    /// Requests the part after one that was allocated, unless it is requested already.
    pub(super) fn request_next_part(
        &mut self,
        requests: &mut Requests,
        cx: &mut Context,
        request: &ElasticRequest,
        id: JobId,
    ) {
        let first = request.first(id);
        if requests.table.last_part(first) != id {
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
        let prepared = prepared.and_then(|checked| Ok((next_id(cx, request.job)?, checked)));
        match prepared {
            Ok((id, checked)) => {
                self.add(requests, cx, id, &next, checked);
                requests.timers.set(cx.now + MAX_PART_HOLD_S, id);
            }
            Err(denial) => {
                let key = request.key();
                requests.end(cx, key, &End::denied(denial));
            }
        }
    }

    /// Restarts a request if its allocated parts were held too long.
    fn handle_hold_timer(&mut self, requests: &mut Requests, cx: &mut Context, id: JobId) {
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
            requests.timers.set(until, id);
        } else {
            self.start_over(requests, cx, id, Attempt::Full, FirstPart::Missing);
        }
    }

    /// Ends the parts of a request and requests all of it again. `id` is the request job of the part
    /// that is missing.
    fn start_over(
        &mut self,
        requests: &mut Requests,
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
        if !requests.table.is_carried_by(cx, key, id) {
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
        let prepared = prepared.and_then(|checked| Ok((next_id(cx, again.job)?, checked)));
        let (id, checked) = match prepared {
            Ok(prepared) => prepared,
            Err(denial) => return requests.end(cx, key, &End::denied(denial)),
        };
        let context = RequestAgain {
            seq: key.seq,
            alloc: id,
        };
        let event = Event::with(cx.now, eventlog::ALLOC_AGAIN, &context);
        requests.table.log(cx, key.job, event);
        let note = format!("requested again as {}", name_of(id));
        for part in requests.table.all_parts(first) {
            end_part(cx, part, "cancel", &note);
        }
        self.add(requests, cx, id, &again, checked);
    }

    /// Handles the answer to a probe. A scheduler that does not know probes has decided nothing: its decisions are
    /// awaited.
    pub(super) fn handle_probe_answer(
        &mut self,
        requests: &mut Requests,
        cx: &mut Context,
        probe: ProbeId,
        answer: ProbeAnswer,
    ) {
        let due = self.probes.take(probe).into_iter();
        match answer {
            ProbeAnswer::Considered => due.for_each(|id| self.decide(requests, cx, id)),
            ProbeAnswer::Unsupported => due.for_each(|id| self.decide_unprobed(requests, cx, id)),
        }
    }

    /// Forgets the probes of a scheduler that has gone.
    pub(super) fn forget_probes(&mut self, requests: &mut Requests, cx: &mut Context) {
        for id in self.probes.clear() {
            self.decide_unprobed(requests, cx, id);
        }
    }

    /// Awaits the decision about a request job whose probe has failed, unless it is decided.
    fn decide_unprobed(&mut self, requests: &mut Requests, cx: &Context, id: JobId) {
        if self.probes.decide_by(id).is_some() {
            self.decide_soon(requests, cx, id);
        }
    }
}

/// Denies the request of a request job.
fn deny(requests: &mut Requests, cx: &mut Context, id: JobId, status: Status, reason: &str) {
    let record = cx.jobs.record(id);
    if let Some(request) = record.and_then(Record::elastic_request) {
        let key = request.key();
        let end = End::denied(Denial::new(status, reason));
        requests.end(cx, key, &end);
    }
}
