//! The state of all PMIx requests, and how a request ends.

use std::collections::{BTreeMap, BTreeSet};

use penstock_elastic::{Denial, Ledger, Loan, Status};
use penstock_wire::Message;
use serde_json::{Value, json};

use super::usage::Usage;
use crate::context::{Context, milliseconds, seconds};
use crate::effect::RequestKey;
use crate::event::Event;

/// A loan whose return was denied or canceled.
#[derive(Clone, Debug)]
pub(super) struct PostponedReturn {
    /// When it is requested again, seconds since the epoch.
    pub(super) until: f64,
    /// The interval before that, in seconds.
    pub(super) interval: f64,
    /// Why the last request failed.
    pub(super) reason: String,
}

/// A `pmix.events` stream: requests that have ended, of one job.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) message: Message,
    pub(super) job: u64,
    /// The name of the one request that it is about; `None` for all.
    pub(super) id: Option<String>,
}

/// The PMIx requests of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Elastic {
    /// Requests and loans, as the eventlogs tell them.
    pub(super) ledger: Ledger,
    /// Request jobs and what they use, for the site's limits.
    pub(super) usage: Usage,
    /// By the request job of a request's first part, those of the other parts.
    pub(super) parts: BTreeMap<u64, BTreeSet<u64>>,
    /// The outstanding `pmix.alloc` of each request.
    pub(super) callers: BTreeMap<RequestKey, Message>,
    pub(super) watches: Vec<Watch>,
    /// When to look again at which job, in milliseconds since the epoch.
    pub(super) timers: BTreeSet<(u64, u64)>,
    /// Requests for time that the scheduler has denied and that wait for their timeout.
    pub(super) denied_times: BTreeSet<RequestKey>,
    /// Request jobs to be decided at once, about which the scheduler is still to be probed.
    pub(super) unprobed: BTreeSet<u64>,
    /// When request jobs that are decided at once count as denied, seconds since the epoch.
    pub(super) decide_by: BTreeMap<u64, f64>,
    /// Outstanding probes by matchtag, with their request jobs.
    pub(super) probes: BTreeMap<u32, BTreeSet<u64>>,
    /// Postponed returns, by job and loan.
    pub(super) postponed: BTreeMap<RequestKey, PostponedReturn>,
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
pub(super) fn outcome(status: i32, reason: &str, results: &[Value]) -> Value {
    json!({"status": status, "reason": reason, "results": results})
}

/// Ends a `pmix.alloc`: its last response and, for a stream, the end of it.
pub(super) fn answer_call(cx: &mut Context, caller: &Message, answer: &Value) {
    cx.respond(caller, Some(answer));
    if caller.is_streaming() {
        cx.end_stream(caller);
    }
}

impl Elastic {
    /// Looks at a job again at this time.
    pub(super) fn at(&mut self, time: f64, job: u64) {
        // Rounded up, so that what is due then is due when it is looked at.
        let due = milliseconds(time).saturating_add(1);
        self.timers.insert((due, job));
    }

    /// Logs an event of a flexible allocation: the ledger has it at once.
    pub(super) fn log(&mut self, cx: &mut Context, id: u64, event: Event) {
        self.apply(id, &event);
        cx.log(id, event);
    }

    /// Takes note of any event of a job.
    pub(crate) fn observe(&mut self, id: u64) {
        self.usage.touch(id);
    }

    /// Applies an event from before a restart.
    pub(crate) fn replay(&mut self, id: u64, event: &Event) {
        self.observe(id);
        if event.name.starts_with(Ledger::PREFIX) {
            self.apply(id, event);
        }
    }

    fn apply(&mut self, id: u64, event: &Event) {
        if event.name == "penstock.request" {
            self.usage.insert(id);
            let context = event.context.as_ref();
            let before = context.and_then(|context| context.get("before"));
            let first = before.and_then(|before| before.get(0));
            if let Some(first) = first.and_then(Value::as_u64) {
                self.parts.entry(first).or_default().insert(id);
            }
        }
        self.ledger.apply(id, &event.name, event.context.as_ref());
    }

    /// When [`advance`](Self::advance) next has something to do, seconds since the epoch.
    pub(crate) fn deadline(&self) -> Option<f64> {
        self.timers.first().map(|(time, _)| seconds(*time))
    }

    /// Forgets a purged job.
    pub(crate) fn forget(&mut self, id: u64) {
        self.ledger.forget(id);
        self.parts.remove(&id);
        self.postponed.retain(|(job, _), _| *job != id);
        self.request_ended(id);
    }

    /// Forgets the probes of a scheduler that is gone.
    pub(crate) fn forget_probes(&mut self) {
        self.unprobed.clear();
        self.probes.clear();
    }

    /// Resources were requested for a request job.
    pub(crate) fn resources_requested(&mut self, id: u64) {
        self.unprobed.insert(id);
    }

    /// A request job has ended.
    pub(crate) fn request_ended(&mut self, id: u64) {
        self.usage.remove(id);
        self.decide_by.remove(&id);
    }

    /// Drops the calls and streams of a peer that has disconnected. Its requests go on.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        let is_theirs = |message: &Message| crate::rpc::origin(message) == Some(origin);
        self.watches.retain(|watch| !is_theirs(&watch.message));
        self.callers.retain(|_, caller| !is_theirs(caller));
    }

    /// Ends a request: in the log of its job, for its caller, and for the watches.
    pub(super) fn end_request(&mut self, cx: &mut Context, key: RequestKey, end: &End) {
        let (job, seq) = key;
        let account = self.ledger.account(job);
        let entry = account.and_then(|account| account.entry(seq));
        let Some(entry) = entry.filter(|entry| entry.is_open()) else {
            return;
        };
        let (request_job, returns) = (entry.alloc, entry.returns.clone());
        let mut context = json!({"seq": seq, "status": end.status});
        if !end.reason.is_empty() {
            context["reason"] = end.reason.as_str().into();
        }
        if !end.results.is_empty() {
            context["results"] = end.results.clone().into();
        }
        if end.nodes > 0 {
            context["nodes"] = end.nodes.into();
        }
        if !end.lent.is_empty() {
            context["lent"] = serde_json::to_value(&end.lent).unwrap_or_default();
        }
        for until in end.lent.iter().filter_map(|lend| lend.until) {
            self.at(until, job);
        }
        let event = Event::with(cx.now, "penstock.alloc-end", context);
        self.log(cx, job, event);
        self.await_returns(cx, job, &returns, end);
        if let Some(caller) = self.callers.remove(&key) {
            let answer = outcome(end.status, &end.reason, &end.results);
            answer_call(cx, &caller, &answer);
        }
        self.denied_times.remove(&key);
        self.notify_watches(cx, key);
        if end.status != Status::SUCCESS.0
            && let Some(request_job) = request_job
        {
            self.end_parts(cx, request_job, end);
        }
    }
}

#[cfg(test)]
mod tests {
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
        let payload = format!(r#"{{"job":{id},"directive":"new"}}"#);
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
        let payload = format!(
            r#"{{"job":{id},"directive":"release","attributes":[{{"key":"pmix.alloc.nnodes","value":1}}]}}"#
        );
        let alloc = message("pmix.alloc", "task", &payload);
        elastic.alloc(&mut cx, request(&alloc)).unwrap();
        let effects = described(&mut cx);
        assert_eq!(effects.first().unwrap(), "log penstock.alloc-request");
        assert_eq!(effects.last().unwrap(), "send pmix.alloc");
        let freed = cx.jobs.record(id).unwrap().freed().len();
        assert_eq!(freed, 1);
    }
}
