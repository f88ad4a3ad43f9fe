//! The requester of a PMIx request; the begin and the end of a request, in the log of its job.

use penstock_elastic::{
    Account, Denial, Entry, Flagged, Loan, PmixRequest, RequestEnd, Return, Status,
};
use penstock_flux::eventlog;
use penstock_flux::pmix::FinalResponse;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::Value;

use super::peer::Elastic;
use super::tables::LoanKey;
use crate::context::Context;
use crate::effect::RequestKey;
use crate::event::Event;
use crate::record::Record;
use crate::state::State;

/// The end of a request: its status and its results.
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

/// The job that makes a request and, if known, its task.
#[derive(Clone, Debug)]
pub(super) struct Requester {
    pub(super) job: JobId,
    /// The rank of the task; `None` for the job as a whole.
    pub(super) rank: Option<u32>,
    /// The host of the task.
    pub(super) host: Option<String>,
}

/// A request that has just begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) key: RequestKey,
    pub(super) requester: &'a Requester,
    pub(super) request: &'a PmixRequest,
}

impl Elastic {
    /// The identity of a job's next request.
    pub(super) fn next_key(&self, job: JobId) -> RequestKey {
        let seq = self.ledger.account(job).map_or(1, Account::next);
        RequestKey { job, seq }
    }

    /// Logs the begin of a request. `entry` has the fields that differ between requests.
    pub(super) fn log_request(&mut self, cx: &mut Context, call: &Call<'_>, entry: Entry) {
        fn value<T: Copy + Default>(wish: Option<&Flagged<T>>) -> T {
            wish.map(|wish| wish.value).unwrap_or_default()
        }
        let RequestKey { job, seq } = call.key;
        let request = call.request;
        let deadline = request.timeout.map(|timeout| cx.now + timeout);
        let directive = if entry.directive.is_empty() {
            request.directive.name().to_owned()
        } else {
            entry.directive
        };
        let entry = Entry {
            seq,
            id: request.id.clone(),
            directive,
            rank: call.requester.rank,
            time: value(request.time.as_ref()),
            required: request.required,
            deadline,
            nodes: entry.nodes.max(value(request.nodes.as_ref())),
            ..entry
        };
        let event = Event::with(cx.now, eventlog::ALLOC_REQUEST, &entry);
        self.log(cx, job, event);
        if let Some(deadline) = deadline {
            self.timers.set(deadline, job);
        }
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
        let event = Event::with(cx.now, eventlog::ALLOC_END, &context);
        self.log(cx, job, event);
        self.await_returns(cx, job, &returns, end);
        if let Some(caller) = self.listeners.take_caller(key) {
            let response = end_response(end.status, &end.reason, &end.results);
            respond_finally(cx, &caller, &response);
        }
        self.time_requests.forget(key);
        if let Some(entry) = self.entry(key) {
            self.listeners.notify(cx, job, entry);
        }
        if end.status != Status::SUCCESS.0
            && let Some(request_job) = request_job
        {
            self.end_parts(cx, request_job, end);
        }
    }

    pub(super) fn postpone_return(&mut self, cx: &Context, loan: LoanKey, reason: &str) {
        let until = self.postponed.postpone(loan, cx.now, reason);
        self.timers.set(until, loan.job);
    }

    /// Schedules another request for those of these loans that have not returned, after the end of a
    /// request for them.
    fn await_returns(&mut self, cx: &Context, job: JobId, returns: &[Return], end: &End) {
        let was_granted = end.nodes > 0;
        for Return { loan, .. } in returns {
            let key = LoanKey { job, loan: *loan };
            let account = self.ledger.account(job);
            let lend = account.and_then(|account| account.loan(*loan));
            let until = lend.map(|lend| lend.until);
            if was_granted || until.is_none() {
                self.postponed.forget(key);
            }
            match until.flatten() {
                Some(until) if until > cx.now => self.timers.set(until, job),
                Some(_) => self.postpone_return(cx, key, &end.reason),
                None => {}
            }
        }
    }

    /// Ends all parts of a request that was not granted.
    fn end_parts(&mut self, cx: &mut Context, id: JobId, end: &End) {
        let kind = if end.status == Status::CANCELLED.0 {
            "cancel"
        } else {
            "alloc"
        };
        for part in self.parts.all(id) {
            end_part(cx, part, kind, &end.reason);
        }
    }
}

/// Ends the request job of a part that was not granted.
pub(super) fn end_part(cx: &mut Context, id: JobId, kind: &str, note: &str) {
    let record = cx.jobs.record(id);
    let is_active =
        |record: &Record| record.elastic_request().is_some() && record.state() < State::Cleanup;
    if record.is_some_and(is_active) {
        cx.fail_job(id, kind, note);
    }
}
