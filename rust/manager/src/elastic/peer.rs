//! The state of all PMIx requests, and how a request ends.

use penstock_elastic::{Denial, Entry, Ledger, Loan, RequestEnd, Status};
use penstock_flux::pmix::FinalResponse;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::Value;

use super::tables::{Listeners, Parts, PostponedReturns, Probes, TimeRequests, Timers};
use super::usage::Usage;
use crate::context::Context;
use crate::effect::RequestKey;
use crate::event::{Event, EventContext};
use crate::flex::ElasticRequest;
use crate::record::Record;

/// The PMIx requests of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Elastic {
    /// Requests and loans, as recorded in the eventlogs.
    pub(super) ledger: Ledger,
    /// Request jobs and what they use, for the site's limits.
    pub(super) usage: Usage,
    pub(super) parts: Parts,
    pub(super) listeners: Listeners,
    pub(super) timers: Timers,
    pub(super) time_requests: TimeRequests,
    pub(super) probes: Probes,
    pub(super) postponed: PostponedReturns,
}

/// How a request ended.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) status: i32,
    pub(super) reason: String,
    pub(super) results: Vec<Value>,
    /// Number of nodes granted.
    pub(super) nodes: u32,
    pub(super) lent: Vec<Loan>,
}

impl End {
    pub(super) fn denied(denial: Denial) -> Self {
        Self {
            status: denial.status.0,
            reason: denial.reason,
            ..Self::default()
        }
    }
}

/// The response that says how a request ended.
pub(super) fn end_response(status: i32, reason: &str, results: &[Value]) -> FinalResponse {
    FinalResponse {
        status,
        reason: reason.to_owned(),
        results: results.to_vec(),
        cancelled: None,
    }
}

/// Sends the last response to a `pmix.alloc` and, to a stream, its end.
pub(super) fn respond_finally(cx: &mut Context, caller: &Message, response: &FinalResponse) {
    cx.respond_with(caller, response);
    if caller.is_streaming() {
        cx.end_stream(caller);
    }
}

impl Elastic {
    /// Logs an event of a flexible allocation and applies it to the ledger.
    pub(super) fn log(&mut self, cx: &mut Context, id: JobId, event: Event) {
        self.apply(id, &event);
        cx.log(id, event);
    }

    /// Marks a job for recounting after any event of it.
    pub(crate) fn observe(&mut self, id: JobId) {
        self.usage.touch(id);
    }

    /// Applies an event from before a restart.
    pub(crate) fn replay(&mut self, id: JobId, event: &Event) {
        self.observe(id);
        if event.name.starts_with(Ledger::PREFIX) {
            self.apply(id, event);
        }
    }

    /// The jobs with requests or loans.
    #[cfg(debug_assertions)]
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.ledger.jobs()
    }

    /// Whether the facts of a job agree with `replayed`, which has them from the job's events alone: the
    /// requests and loans, and the position among the parts of a request.
    #[cfg(debug_assertions)]
    pub(crate) fn agrees_on(&self, id: JobId, replayed: &Self) -> bool {
        self.ledger.account(id) == replayed.ledger.account(id)
            && self.parts.agrees_with(&replayed.parts)
    }

    /// Whether the timers that follow from a job's events are set, unless they were due at `now`.
    #[cfg(debug_assertions)]
    pub(crate) fn has_timers_of(&self, record: &Record, now: f64) -> bool {
        let times = self.logged_times(record);
        times
            .into_iter()
            .all(|time| self.timers.has(time, record.id(), now))
    }

    /// Whether a job is counted as its record says.
    #[cfg(debug_assertions)]
    pub(crate) fn counts(&self, record: &Record) -> bool {
        self.usage.counts(record)
    }

    fn apply(&mut self, id: JobId, event: &Event) {
        if event.name == "penstock.request" {
            self.usage.insert(id);
            let request: Option<ElasticRequest> = event.read();
            if let Some(request) = request.filter(|request| !request.before.is_empty()) {
                self.parts.insert(request.first(id), id);
            }
        }
        let context = event.context.as_ref().map(EventContext::text);
        self.ledger.apply(id, &event.name, context);
    }

    /// When [`advance`](Self::advance) is due next, seconds since the epoch.
    pub(crate) fn deadline(&self) -> Option<f64> {
        self.timers.deadline()
    }

    /// Forgets a purged job.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.ledger.forget(id);
        self.parts.forget(id);
        self.postponed.forget_job(id);
        self.request_ended(id);
    }

    /// Resources were requested for a request job.
    pub(crate) fn resources_requested(&mut self, id: JobId) {
        self.probes.resources_requested(id);
    }

    /// A request job has ended.
    pub(crate) fn request_ended(&mut self, id: JobId) {
        self.usage.remove(id);
        self.probes.decided(id);
    }

    /// Drops the calls and streams of a peer that has disconnected. Its requests stay open.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.listeners.disconnect(origin);
    }

    /// The entry of a request in the ledger.
    pub(super) fn entry(&self, key: RequestKey) -> Option<&Entry> {
        self.ledger.account(key.job)?.entry(key.seq)
    }

    /// Ends a request: in the log of its job, for its caller, and for the watches.
    pub(super) fn end_request(&mut self, cx: &mut Context, key: RequestKey, end: &End) {
        let RequestKey { job, seq } = key;
        let Some(entry) = self.entry(key).filter(|entry| entry.is_open()) else {
            return;
        };
        let (request_job, returns) = (entry.alloc, entry.returns.clone());
        let context = RequestEnd {
            seq,
            status: end.status,
            reason: end.reason.clone(),
            results: end.results.clone(),
            nodes: end.nodes,
            lent: end.lent.clone(),
        };
        for until in end.lent.iter().filter_map(|lend| lend.until) {
            self.timers.set(until, job);
        }
        let event = Event::with(cx.now, "penstock.alloc-end", &context);
        self.log(cx, job, event);
        self.await_returns(cx, job, &returns, end);
        if let Some(caller) = self.listeners.take_caller(key) {
            let response = end_response(end.status, &end.reason, &end.results);
            respond_finally(cx, &caller, &response);
        }
        self.time_requests.ended(key);
        if let Some(entry) = self.entry(key) {
            self.listeners.notify(cx, job, entry);
        }
        if end.status != Status::SUCCESS.0
            && let Some(request_job) = request_job
        {
            self.end_parts(cx, request_job, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Elastic;
    use crate::fixture::{
        add_allocated_job, add_pending_job, context, described, message, request,
    };
    use crate::settings::Settings;

    #[test]
    fn only_running_jobs_make_requests() {
        let mut cx = context(Settings::default());
        let mut elastic = Elastic::default();
        let id = add_pending_job(&mut cx);
        let payload = json!({"job": id, "directive": "new"}).to_string();
        let alloc = message("pmix.alloc", "task", &payload);
        elastic.alloc(&mut cx, request(&alloc)).unwrap();
        assert_eq!(described(&mut cx), ["send pmix.alloc"]);
        assert!(elastic.ledger.account(id).is_none());
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
        elastic.alloc(&mut cx, request(&alloc)).unwrap();
        let effects = described(&mut cx);
        assert_eq!(effects.first().unwrap(), "log penstock.alloc-request");
        assert_eq!(effects.last().unwrap(), "send pmix.alloc");
        let freed = cx.jobs.record(id).unwrap().freed().len();
        assert_eq!(freed, 1);
    }
}
