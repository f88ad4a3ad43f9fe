//! Flexible allocations (PMIx RFC 0005) in the job manager.
//!
//! What may take resources is a job of its own in the queue, without tasks: it goes through RFC 27
//! as every job does. For NEW it is the allocation; for EXTEND and REACQUIRE it becomes a grant of
//! the job that asked, whose resources it joins. All of that is in the events of the two jobs.

mod calls;
mod flex;
mod grant;
mod limits;
mod loan;
mod parts;
mod query;
mod release;
mod submission;
mod target;
mod time;
mod timers;
mod watch;

use std::collections::{BTreeMap, BTreeSet};

use penstock_elastic::{Ledger, Refusal as Denial, Status};
use penstock_wire::Message;
use serde_json::{Value, json};

pub use flex::{Flex, Requested};

use crate::event::Event;
use crate::manager::{Manager, milliseconds};
use crate::rpc;

/// A request of a job: the job, and the request's number among its own.
pub(crate) type Number = (u64, u32);

/// The requests of jobs, and who waits for them.
#[derive(Debug, Default)]
pub struct Elastic {
    ledger: Ledger,
    standing: limits::OpenRequests,
    /// By the job of a request's first part, the jobs of the others.
    parts: BTreeMap<u64, BTreeSet<u64>>,
    /// Who asked, by request.
    callers: BTreeMap<Number, Message>,
    watches: Vec<watch::Watch>,
    /// When to look at which job again, in milliseconds.
    timers: BTreeSet<(u64, u64)>,
    /// Requests for time that the scheduler has refused and that wait for their limit.
    refused: BTreeSet<Number>,
    /// Jobs that stand for requests that are decided now: the scheduler is to be asked.
    unprobed: BTreeSet<u64>,
    /// By when a scheduler that does not say so has nothing free.
    decide: BTreeMap<u64, f64>,
    probes: BTreeMap<u32, BTreeSet<u64>>,
    /// Loans whose return was refused or cancelled, by job and number.
    postponed: BTreeMap<Number, loan::PostponedReturn>,
    tag: u32,
}

/// How a request ended.
#[derive(Debug, Default)]
struct End {
    status: i32,
    reason: String,
    results: Vec<Value>,
    /// Nodes that were granted.
    nodes: u32,
    lent: Vec<penstock_elastic::Lend>,
}

impl End {
    fn refused(denial: Denial) -> Self {
        Self {
            status: denial.status.0,
            reason: denial.reason,
            ..Self::default()
        }
    }
}

/// The answer to a call, and what a watcher is told.
fn outcome(status: i32, reason: &str, results: &[Value]) -> Value {
    json!({"status": status, "reason": reason, "results": results})
}

impl Elastic {
    fn at(&mut self, time: f64, job: u64) {
        // Rounded up: what is looked at is due by then.
        self.timers
            .insert((milliseconds(time).saturating_add(1), job));
    }

    /// Takes an event in.
    pub(crate) fn apply(&mut self, id: u64, event: &Event) {
        self.standing.touch(id);
        if !event.name.starts_with(Ledger::PREFIX) {
            return;
        }
        if event.name == "penstock.request" {
            self.standing.insert(id);
            let before = event.context.as_ref().and_then(|it| it.get("before"));
            let first = before.and_then(|it| it.get(0)).and_then(Value::as_u64);
            if let Some(first) = first {
                self.parts.entry(first).or_default().insert(id);
            }
        }
        self.ledger.apply(id, &event.name, event.context.as_ref());
    }

    /// When there is something to do next.
    pub(crate) fn deadline(&self) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds of any real date are exact in a float"
        )]
        let next = self.timers.first().map(|(ms, _)| *ms as f64 / 1000.0);
        next
    }

    /// A job is not known any more.
    pub(crate) fn forget(&mut self, id: u64) {
        self.ledger.forget(id);
        self.parts.remove(&id);
        self.postponed.retain(|(job, _), _| *job != id);
        self.over(id);
    }

    /// There is no scheduler any more that could say anything.
    pub(crate) fn forget_probes(&mut self) {
        self.unprobed.clear();
        self.probes.clear();
    }

    /// A job that stood for a request is over.
    pub(crate) fn over(&mut self, id: u64) {
        self.standing.remove(id);
        self.decide.remove(&id);
    }
}

impl Manager {
    /// Ends a request: in the requester's log, for who asked, and for who watches.
    fn end_request(&mut self, (job, seq): Number, end: &End, now: f64) {
        let account = self.elastic.ledger.account(job);
        let entry = account
            .and_then(|it| it.entry(seq))
            .filter(|it| it.is_open());
        let Some((alloc, returns)) = entry.map(|it| (it.alloc, it.returns.clone())) else {
            return;
        };
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
        for until in end.lent.iter().filter_map(|it| it.until) {
            self.elastic.at(until, job);
        }
        self.post(job, &Event::with(now, "penstock.alloc-end", context));
        self.expect_loans(job, &returns, end, now);
        if let Some(caller) = self.elastic.callers.remove(&(job, seq)) {
            let answer = outcome(end.status, &end.reason, &end.results);
            self.answer_call(&caller, &answer);
        }
        self.elastic.refused.remove(&(job, seq));
        self.tell_watches(job, seq);
        // A request that is not granted holds nothing, and waits for nothing.
        if let Some(alloc) = alloc.filter(|_| end.status != Status::SUCCESS.0) {
            self.dismiss(alloc, end, now);
        }
    }

    /// The last answer to a call; of a stream also its end.
    fn answer_call(&mut self, caller: &Message, answer: &Value) {
        self.respond(caller, Some(answer));
        if caller.is_streaming() {
            self.refuse(caller, &rpc::RequestError::new(rpc::ENODATA, ""));
        }
    }
}
