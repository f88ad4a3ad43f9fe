//! `Elastic`: the peer of tasks and their servers, which hands messages, changes of jobs and due timers to the parts.

use penstock_elastic::{Attribute, Demand, Denial, Directive, Entry, PmixRequest, Status};
use penstock_flux::{RequestError, Text, pmix};
use penstock_jobspec::job_id::JobId;
use penstock_store::JOB_BYTES;
use penstock_wire::{Body, Message};
use serde_json::Value;

use super::calls::{
    self, cancelled, check_requester, denial_of, read_attributes, read_directive, respond_denial,
};
use super::limits::check_pending;
use super::request_job::{finish_request_job, time_left};
use super::requests::{Call, End, Requester, Requests, respond_finally};
use super::submission::{Submission, Submissions};
use super::target::{TargetAllocation, own_allocation, resolve_target};
use super::time::TimeShare;
use super::{grant, loan, query, release, time};
use crate::authorize::{Permission, PermittedJob};
use crate::context::Context;
use crate::effect::{Effect, ProbeAnswer, ProbeId, RequestKey};
use crate::event::Event;
use crate::quota;
#[cfg(debug_assertions)]
use crate::record::Record;
use crate::rpc::{self, Handled, Reply};
use crate::state::State;

/// Why a request is denied before it begins.
struct EarlyDenial {
    denial: Denial,
    /// The number of an unknown directive.
    directive: Option<u64>,
}

/// The PMIx requests of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Elastic {
    requests: Requests,
    submissions: Submissions,
}

/// Messages.
impl Elastic {
    /// `pmix.alloc`: a request of a running job. The last response says how it ended; a stream has a
    /// response before that if the request is queued.
    pub(crate) fn alloc(
        &mut self,
        cx: &mut Context,
        request: rpc::Request<'_>,
        job: Permission,
    ) -> Handled {
        let message = request.message;
        let call: pmix::AllocRequest<'_> = request.payload()?;
        let attributes = read_attributes(&call.attributes)?;
        match check_requester(cx, job) {
            Ok(job) => {
                let length = message.payload.as_ref().map_or(0, Body::written_len);
                quota::check_event(cx, request.sender, job, length)?;
                // Its own job, or the jobs that hold its parts.
                quota::check_stored(cx, request.sender, JOB_BYTES)?;
                let requester = Requester {
                    job,
                    rank: call.rank,
                    host: call.host.map(Text::into_string),
                };
                self.begin_call(cx, message, &requester, &call.directive, &attributes);
            }
            Err(denial) => respond_denial(cx, message, &denial),
        }
        Ok(Reply::Deferred)
    }

    /// Reads the directive, by its name or number, and the attributes of `pmix.alloc`, and begins the request.
    fn begin_call(
        &mut self,
        cx: &mut Context,
        message: &Message,
        requester: &Requester,
        name: &Value,
        attributes: &[Attribute],
    ) {
        let directive = match read_directive(name) {
            Ok(directive) => directive,
            Err(denial) => {
                let Some(number) = name.as_u64() else {
                    return respond_denial(cx, message, &denial);
                };
                let names = PmixRequest::ids_of(Directive::New, attributes);
                let early = EarlyDenial {
                    denial,
                    directive: Some(number),
                };
                return self.begin(cx, message, requester, names, Some(early));
            }
        };
        match PmixRequest::read(directive, attributes) {
            Ok(cancel) if directive == Directive::Cancel => {
                let id = cancel.id.or(cancel.alloc);
                let done = calls::cancel_requests(&mut self.requests, cx, requester, id.as_deref());
                respond_finally(cx, message, &cancelled(done));
            }
            Ok(read) => self.begin(cx, message, requester, read, None),
            // The names in a cancel are those of another request.
            Err(denial) if directive == Directive::Cancel => respond_denial(cx, message, &denial),
            Err(denial) => {
                let names = PmixRequest::ids_of(directive, attributes);
                let early = EarlyDenial {
                    denial,
                    directive: None,
                };
                self.begin(cx, message, requester, names, Some(early));
            }
        }
    }

    /// Begins a request. A request that was denied before is logged too, so that watches report it.
    fn begin(
        &mut self,
        cx: &mut Context,
        message: &Message,
        requester: &Requester,
        mut request: PmixRequest,
        early: Option<EarlyDenial>,
    ) {
        let key = self.requests.table.next_key(requester.job);
        if !message.is_noresponse() {
            self.requests.listeners.await_end(key, message.header());
        }
        let target = resolve_target(&self.requests.table, cx, requester.job, &mut request);
        let call = Call {
            key,
            requester,
            request: &request,
        };
        let mut entry = Entry::default();
        let begun = match early {
            None => target.and_then(|target| self.start(cx, &call, target)),
            Some(early) => {
                let directive = early.directive.map(|number| number.to_string());
                entry.directive = directive.unwrap_or_default();
                Err(early.denial)
            }
        };
        if let Err(denial) = begun {
            if self.requests.table.entry(key).is_none() {
                self.requests.begin(cx, &call, entry);
            }
            self.requests.end(cx, key, &End::denied(denial));
        } else if message.is_streaming() {
            // The request ends before this is performed if an effect of its start ends it.
            cx.add_effect(Effect::ElasticBegun(key));
        }
    }

    /// Responds to the caller of a request that it is queued, if it is.
    pub(crate) fn report_queued(&self, cx: &mut Context, key: RequestKey) {
        let Some(caller) = self.requests.listeners.caller(key) else {
            return;
        };
        let Some(entry) = self.requests.table.entry(key) else {
            return;
        };
        let queued = pmix::QueuedResponse {
            status: Status::QUEUED.0,
            queued: true,
            id: entry.id.as_deref().map(Text::from),
            alloc: entry.alloc.map(|alloc| alloc.to_string().into()),
        };
        cx.respond_with(caller, &queued);
    }

    /// Carries out a request by its directive.
    fn start(
        &mut self,
        cx: &mut Context,
        call: &Call<'_>,
        target: TargetAllocation,
    ) -> Result<(), Denial> {
        let (requester, request) = (call.requester, call.request);
        if !matches!(request.directive, Directive::Release | Directive::Cancel) {
            check_pending(self.requests.table.account(requester.job))?;
        }
        let allocation = match target {
            TargetAllocation::Own | TargetAllocation::Grant(_) => requester.job,
            TargetAllocation::Allocation(id) => id,
        };
        match request.directive {
            Directive::New => {
                let demand = Demand::of(request)?;
                let record = cx.jobs.record(requester.job);
                let own = record.map(|record| record.spec().duration);
                let time = request.time.as_ref().map(|time| f64::from(time.value));
                let duration = time.or(own).unwrap_or(0.0);
                let submission = Submission {
                    demand,
                    joins: None,
                    duration,
                    returns: Vec::new(),
                };
                self.submissions
                    .submit(&mut self.requests, cx, call, submission)
            }
            Directive::Extend if request.has_resources() && request.time.is_some() => {
                let reason = "expected resources or time to extend by, found both";
                Err(Denial::new(Status::BAD_PARAM, reason))
            }
            Directive::Extend if request.time.is_some() => {
                let entry = Entry {
                    target: own_allocation(requester.job, allocation),
                    dropped: request.without_effect(),
                    ..Entry::default()
                };
                self.requests.begin(cx, call, entry);
                time::request_time(&mut self.requests, cx, call.key, TimeShare::Whole);
                Ok(())
            }
            Directive::Extend => {
                let demand = Demand::of(request)?;
                let submission = Submission {
                    demand,
                    joins: Some(allocation),
                    duration: time_left(cx, allocation),
                    returns: Vec::new(),
                };
                self.submissions
                    .submit(&mut self.requests, cx, call, submission)
            }
            Directive::Release => release::release(&mut self.requests, cx, call, target),
            Directive::Reacquire => {
                loan::reacquire(&mut self.submissions, &mut self.requests, cx, call)
            }
            Directive::Cancel => Ok(()),
        }
    }

    /// `pmix.cancel`: one pending request, or all of the task's or the job's.
    pub(crate) fn cancel_request(
        &mut self,
        cx: &mut Context,
        request: rpc::Request<'_>,
        job: Permission,
    ) -> Handled {
        let call: pmix::CancelRequest<'_> = request.payload()?;
        let done = job.map_err(denial_of).and_then(|job| {
            let requester = Requester {
                job: job.id(),
                rank: call.rank,
                host: None,
            };
            calls::cancel_requests(&mut self.requests, cx, &requester, call.id.as_deref())
        });
        Ok(Reply::of(&cancelled(done)))
    }

    /// `pmix.query`: the requests and loans of a job.
    pub(crate) fn query(
        &self,
        cx: &Context,
        request: rpc::Request<'_>,
        job: Permission,
    ) -> Handled {
        query::query(&self.requests, cx, request, job)
    }

    /// `pmix.events`: the requests of a job that have ended, and every further one.
    pub(crate) fn events(
        &mut self,
        cx: &mut Context,
        request: rpc::Request<'_>,
        job: &PermittedJob,
    ) -> Handled {
        let Requests {
            table, listeners, ..
        } = &mut self.requests;
        listeners.events(table, cx, request, job)
    }

    /// `pmix.events-cancel`: ends the stream.
    pub(crate) fn events_cancel(&mut self, cx: &mut Context, request: rpc::Request<'_>) -> Handled {
        self.requests.listeners.events_cancel(cx, request)
    }

    /// `pmix.alloc-cancel`: ends the caller's stream; the request stays open.
    pub(crate) fn alloc_cancel(&mut self, cx: &mut Context, request: rpc::Request<'_>) -> Handled {
        self.requests.listeners.alloc_cancel(cx, request)
    }

    /// Drops the calls and streams of a peer that has disconnected. Its requests stay open.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.requests.listeners.disconnect(origin);
    }
}

/// The scheduler's decisions.
impl Elastic {
    /// Queues a probe about a request job, for which resources were requested.
    pub(crate) fn queue_probe(&mut self, id: JobId) {
        self.submissions.queue_probe(id);
    }

    /// Probes the scheduler once for all requests that are to be decided at once.
    pub(crate) fn probe_scheduler(&mut self, cx: &mut Context) {
        self.submissions.probe_scheduler(cx, &self.requests.table);
    }

    /// Handles the answer to a probe.
    pub(crate) fn handle_probe_answer(
        &mut self,
        cx: &mut Context,
        probe: ProbeId,
        answer: ProbeAnswer,
    ) {
        self.submissions
            .handle_probe_answer(&mut self.requests, cx, probe, answer);
    }

    /// Forgets the probes of a scheduler that has gone.
    pub(crate) fn forget_probes(&mut self, cx: &mut Context) {
        self.submissions.forget_probes(&mut self.requests, cx);
    }

    /// Handles the scheduler's denial of the resources of a request job.
    pub(crate) fn follow_denial(&mut self, cx: &mut Context, id: JobId, note: &str) {
        self.submissions
            .follow_denial(&mut self.requests, cx, id, note);
    }

    /// Grants the resources of a request job, unless the grant is logged already.
    pub(crate) fn grant_resources(&mut self, cx: &mut Context, id: JobId) {
        grant::grant_resources(&mut self.submissions, &mut self.requests, cx, id);
    }

    /// Handles the scheduler's decision about a request for time.
    pub(crate) fn handle_time_decision(
        &mut self,
        cx: &mut Context,
        key: RequestKey,
        granted: u32,
        decision: Result<(), RequestError>,
    ) {
        time::handle_time_decision(&mut self.requests, cx, key, granted, decision);
    }

    /// Makes the next request for the time of a job whose expiration has been decided.
    pub(crate) fn retry_times(&mut self, cx: &mut Context, target: JobId) {
        time::retry_times(&mut self.requests, cx, target);
    }
}

/// Changes of jobs and queues.
impl Elastic {
    /// Marks a job for recounting after any event of it.
    pub(crate) fn observe(&mut self, id: JobId) {
        self.requests.table.observe(id);
    }

    /// Applies the changed expiration of a job to its grants.
    pub(crate) fn follow_expiration(&mut self, cx: &mut Context, id: JobId, expiration: f64) {
        grant::follow_expiration(&mut self.requests, cx, id, expiration);
    }

    /// Ends the requests of a job that has entered CLEANUP. If it is a request job, ends the request
    /// that it carries, and its grant to the requesting job.
    pub(crate) fn end_requests_of(&mut self, cx: &mut Context, id: JobId) {
        grant::end_requests_of(&mut self.submissions, &mut self.requests, cx, id);
    }

    /// Ends the grants of a job whose resources are being freed.
    pub(crate) fn end_grants(&mut self, cx: &mut Context, id: JobId) {
        grant::end_grants(&mut self.requests, cx, id);
    }

    /// Ends the streams of a job that has ended.
    pub(crate) fn end_watches(&mut self, cx: &mut Context, id: JobId) {
        self.requests.listeners.end_watches(cx, id);
    }

    /// Requests postponed returns now: the reason of the denial may no longer hold.
    pub(crate) fn retry_postponed_returns(&mut self, cx: &Context) {
        self.requests.retry_postponed_returns(cx.now);
    }

    /// Forgets the usage of a request job that has ended, and the time of its decision.
    pub(crate) fn forget_request_job(&mut self, id: JobId) {
        self.requests.table.forget_request_job(id);
        self.submissions.end_decision(id);
    }

    /// Forgets a purged job.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.requests.forget(id);
        self.submissions.end_decision(id);
    }
}

/// Timers.
impl Elastic {
    /// When [`advance`](Self::advance) is due next, seconds since the epoch.
    pub(crate) fn deadline(&self) -> Option<f64> {
        self.requests.timers.deadline()
    }

    /// Handles the jobs whose timers are due.
    pub(crate) fn advance(&mut self, cx: &mut Context) {
        while let Some(job) = self.requests.timers.pop_due(cx.now) {
            self.handle_timer(cx, job);
        }
    }

    fn handle_timer(&mut self, cx: &mut Context, id: JobId) {
        let Self {
            requests,
            submissions,
        } = self;
        let Some(record) = cx.jobs.record(id) else {
            return;
        };
        if record.elastic_request().is_some() {
            let state = record.state();
            let has_expired = record.expiration().is_some_and(|end| end <= cx.now);
            if state < State::Run {
                submissions.handle_timer(requests, cx, id);
            } else if state == State::Run && has_expired {
                finish_request_job(&mut requests.table, cx, id);
            }
        }
        let record = cx.jobs.record(id);
        if record.is_none_or(|record| record.state() != State::Run) {
            return;
        }
        let late = requests.expired(cx.now, id);
        let returns = requests.due_returns(cx.now, id);
        let mut has_requested_time = false;
        for (key, alloc) in late {
            match alloc {
                Some(alloc) => submissions.handle_timeout(requests, cx, alloc),
                // The decision about one request for time triggers the next one.
                None if has_requested_time => {}
                None => {
                    has_requested_time =
                        time::request_time(requests, cx, key, TimeShare::Available);
                }
            }
        }
        for key in returns {
            loan::request_due_return(submissions, requests, cx, key);
        }
    }
}

/// Restarts.
impl Elastic {
    /// Applies an event from before a restart.
    pub(crate) fn replay(&mut self, id: JobId, event: &Event) {
        self.requests.table.replay(id, event);
    }

    /// Sets the timers of a job, its requests and loans after a restart.
    pub(crate) fn resume(&mut self, cx: &mut Context, id: JobId) {
        let Self {
            requests,
            submissions,
        } = self;
        let Some(record) = cx.jobs.record(id) else {
            return;
        };
        for time in requests.table.times_of(record) {
            requests.timers.set(time, id);
        }
        if record.elastic_request().is_some() && record.state() < State::Run {
            submissions.decide_soon(requests, cx, id);
        }
        // The restart has forgotten the requests for time to the scheduler.
        let account = requests.table.account(id);
        if account.is_some_and(|account| account.open().any(|entry| entry.alloc.is_none())) {
            time::retry_times(requests, cx, id);
        }
    }
}

/// Comparison of the table with replayed logs.
#[cfg(debug_assertions)]
impl Elastic {
    /// The jobs with requests or loans.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.requests.table.jobs()
    }

    /// Whether the facts of a job agree with `replayed`, which has them from the job's events alone.
    pub(crate) fn agrees_on(&self, id: JobId, replayed: &Self) -> bool {
        self.requests.table.agrees_on(id, &replayed.requests.table)
    }

    /// Whether a job is counted as its record says.
    pub(crate) fn counts(&self, record: &Record) -> bool {
        self.requests.table.counts(record)
    }

    /// Whether the timers that follow from a job's events are set, unless they were due at `now`.
    pub(crate) fn has_timers_of(&self, record: &Record, now: f64) -> bool {
        let times = self.requests.table.times_of(record);
        times
            .into_iter()
            .all(|time| self.requests.timers.has(time, record.id(), now))
    }
}

#[cfg(test)]
mod tests {
    use penstock_flux::Credentials;
    use serde_json::json;

    use super::Elastic;
    use crate::authorize;
    use crate::fixture::{
        OWNER, add_allocated_job, add_pending_job, context, described, message, request,
    };
    use crate::settings::Settings;

    #[test]
    fn only_running_jobs_make_requests() {
        let mut cx = context(Settings::default());
        let mut elastic = Elastic::default();
        let id = add_pending_job(&mut cx);
        let payload = json!({"job": id, "directive": "new"}).to_string();
        let alloc = message("pmix.alloc", "task", &payload);
        let job = authorize::job(&mut cx, Credentials::owner(OWNER), id);
        elastic.alloc(&mut cx, request(&alloc), job).unwrap();
        assert_eq!(described(&mut cx), ["send pmix.alloc"]);
        assert!(elastic.requests.table.account(id).is_none());
    }

    #[test]
    fn a_release_ends_at_once_and_is_in_the_log() {
        let mut cx = context(Settings::default());
        let mut elastic = Elastic::default();
        let id = add_allocated_job(&mut cx);
        let payload = json!({
            "job": id,
            "directive": "release",
            "attributes": [{"key": "pmix.alloc.nnodes", "value": 1}],
        });
        let alloc = message("pmix.alloc", "task", &payload.to_string());
        let job = authorize::job(&mut cx, Credentials::owner(OWNER), id);
        elastic.alloc(&mut cx, request(&alloc), job).unwrap();
        let effects = described(&mut cx);
        assert_eq!(effects.first().unwrap(), "log penstock.alloc-request");
        assert_eq!(effects.last().unwrap(), "send pmix.alloc");
        let freed = cx.jobs.record(id).unwrap().freed().len();
        assert_eq!(freed, 1);
    }
}
