//! The life cycle of requests, and the requester of one.

use std::collections::BTreeSet;

use penstock_elastic::{
    Account, Denial, Entry, Flagged, Loan, PmixRequest, RequestEnd, Return, Status, shortened,
};
use penstock_flux::eventlog;
use penstock_flux::pmix::FinalResponse;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::Value;

use super::listeners::Listeners;
use super::returns::{LoanKey, PostponedReturns};
use super::table::RequestTable;
use super::timers::Timers;
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

/// The life cycle of requests: their begin and end, in the table and the log of their job, and the listeners and timers
/// of open ones.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) table: RequestTable,
    pub(super) listeners: Listeners,
    pub(super) timers: Timers,
    pub(super) postponed: PostponedReturns,
    /// Requests for time that the scheduler has denied, pending until their timeout.
    denied_times: BTreeSet<RequestKey>,
}

impl Requests {
    /// Logs the begin of a request. `entry` has the fields that differ between requests.
    pub(super) fn begin(&mut self, cx: &mut Context, call: &Call<'_>, entry: Entry) {
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
        self.table.log(cx, job, event);
        if let Some(deadline) = deadline {
            self.timers.set(deadline, job);
        }
    }

    /// Ends a request: in the log of its job, for its caller, and for the watches.
    pub(super) fn end(&mut self, cx: &mut Context, key: RequestKey, end: &End) {
        let RequestKey { job, seq } = key;
        let Some(entry) = self.table.entry(key).filter(|entry| entry.is_open()) else {
            return;
        };
        let (request_job, returns) = (entry.alloc, entry.returns.clone());
        let reason = shortened(end.reason.clone());
        let context = RequestEnd {
            seq,
            status: end.status,
            reason: reason.clone(),
            results: end.results.clone(),
            nodes: end.nodes,
            lent: end.lent.clone(),
        };
        for until in end.lent.iter().filter_map(|lend| lend.until) {
            self.timers.set(until, job);
        }
        let event = Event::with(cx.now, eventlog::ALLOC_END, &context);
        self.table.log(cx, job, event);
        self.await_returns(cx, job, &returns, end);
        if let Some(caller) = self.listeners.take_caller(key) {
            let response = end_response(end.status, &reason, &end.results);
            respond_finally(cx, &caller, &response);
        }
        self.denied_times.remove(&key);
        if let Some(entry) = self.table.entry(key) {
            self.listeners.notify(cx, job, entry);
        }
        if end.status != Status::SUCCESS.0
            && let Some(request_job) = request_job
        {
            self.end_parts(cx, request_job, end);
        }
    }

    /// The open requests of a job whose timeout has expired, each with its request job, if it has one.
    pub(super) fn expired(&self, now: f64, job: JobId) -> Vec<(RequestKey, Option<JobId>)> {
        let account = self.table.account(job).into_iter();
        let late = account.flat_map(|account| account.expired(now));
        let key = |seq| RequestKey { job, seq };
        late.map(|entry| (key(entry.seq), entry.alloc)).collect()
    }

    /// The loans of a job whose return is to be requested.
    pub(super) fn due_returns(&self, now: f64, job: JobId) -> Vec<LoanKey> {
        let loans = self.table.account(job).into_iter().flat_map(Account::loans);
        let loans = loans.map(|(number, loan)| (LoanKey { job, loan: number }, loan));
        let due = loans.filter(|(key, loan)| self.postponed.is_due(now, *key, loan));
        due.map(|(key, _)| key).collect()
    }

    /// Requests postponed returns at `now`.
    pub(super) fn retry_postponed_returns(&mut self, now: f64) {
        for loan in self.postponed.take() {
            self.timers.set(now, loan.job);
        }
    }

    /// Forgets a purged job.
    pub(super) fn forget(&mut self, id: JobId) {
        self.table.forget(id);
        self.postponed.forget_job(id);
    }

    /// Records that the scheduler has denied the time of a request, which waits for its timeout.
    pub(super) fn record_time_denial(&mut self, key: RequestKey) {
        self.denied_times.insert(key);
    }

    /// Whether the scheduler has denied the time of a request.
    pub(super) fn is_time_denied(&self, key: RequestKey) -> bool {
        self.denied_times.contains(&key)
    }

    /// Requests the return of a loan again later.
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
            let account = self.table.account(job);
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
        for part in self.table.all_parts(id) {
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
