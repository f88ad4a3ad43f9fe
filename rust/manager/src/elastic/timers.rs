//! Timers of jobs with requests or loans: handling due ones, and setting them after a restart.

use penstock_elastic::{Account, Loan};
use penstock_jobspec::job_id::JobId;

use super::peer::Elastic;
use super::tables::{LoanKey, TimeShare};
use crate::context::Context;
use crate::effect::RequestKey;
use crate::record::Record;
use crate::state::State;

impl Elastic {
    /// Handles the jobs whose timers are due.
    pub(crate) fn advance(&mut self, cx: &mut Context) {
        while let Some(job) = self.timers.pop_due(cx.now) {
            self.handle_timer(cx, job);
        }
    }

    fn handle_timer(&mut self, cx: &mut Context, id: JobId) {
        let Some(record) = cx.jobs.record(id) else {
            return;
        };
        if record.elastic_request().is_some() {
            let state = record.state();
            let has_expired = record.expiration().is_some_and(|end| end <= cx.now);
            if state < State::Run {
                self.handle_request_job_timer(cx, id);
            } else if state == State::Run && has_expired {
                self.finish_request_job(cx, id);
            }
        }
        let record = cx.jobs.record(id);
        if record.is_none_or(|record| record.state() != State::Run) {
            return;
        }
        let account = self.ledger.account(id);
        let late = account
            .into_iter()
            .flat_map(|account| account.expired(cx.now));
        let late: Vec<(RequestKey, Option<JobId>)> = late
            .map(|entry| {
                (
                    RequestKey {
                        job: id,
                        seq: entry.seq,
                    },
                    entry.alloc,
                )
            })
            .collect();
        let returns: Vec<u32> = account
            .into_iter()
            .flat_map(Account::loans)
            .filter(|(loan, lend)| {
                let key = LoanKey {
                    job: id,
                    loan: *loan,
                };
                self.is_return_due(cx.now, key, lend)
            })
            .map(|(loan, _)| loan)
            .collect();
        let mut has_requested_time = false;
        for (key, alloc) in late {
            match alloc {
                Some(alloc) => self.handle_timeout(cx, alloc),
                // The decision about one request for time triggers the next one.
                None if has_requested_time => {}
                None => has_requested_time = self.request_time(cx, key, TimeShare::Available),
            }
        }
        for loan in returns {
            self.request_due_return(cx, id, loan);
        }
    }

    fn is_return_due(&self, now: f64, loan: LoanKey, lend: &Loan) -> bool {
        let is_over = lend.until.is_some_and(|until| until <= now);
        let postponed = self.postponed.of(loan);
        let is_postponed = postponed.is_some_and(|postponed| postponed.until > now);
        is_over && lend.outstanding() > 0 && !is_postponed
    }

    /// The times of the timers that follow from a job's events: the end of a running request job, the
    /// timeouts of open requests and the ends of loans.
    pub(super) fn logged_times(&self, record: &Record) -> Vec<f64> {
        let is_running = record.elastic_request().is_some() && record.state() == State::Run;
        let end = record.expiration().filter(|_| is_running);
        let account = self.ledger.account(record.id());
        let open = account.into_iter().flat_map(Account::open);
        let loans = account.into_iter().flat_map(Account::loans);
        end.into_iter()
            .chain(open.filter_map(|entry| entry.deadline))
            .chain(loans.filter_map(|(_, lend)| lend.until))
            .collect()
    }

    /// Whether the timers that follow from a job's events are set, unless they were due at `now`.
    #[cfg(debug_assertions)]
    pub(crate) fn has_timers_of(&self, record: &Record, now: f64) -> bool {
        let times = self.logged_times(record);
        times
            .into_iter()
            .all(|time| self.timers.has(time, record.id(), now))
    }

    /// Sets the timers of a job, its requests and loans after a restart.
    pub(crate) fn resume(&mut self, cx: &mut Context, id: JobId) {
        let Some(record) = cx.jobs.record(id) else {
            return;
        };
        for time in self.logged_times(record) {
            self.timers.set(time, id);
        }
        if record.elastic_request().is_some() && record.state() < State::Run {
            self.decide_soon(cx, id);
        }
        // The restart has forgotten the requests for time to the scheduler.
        let account = self.ledger.account(id);
        if account.is_some_and(|account| account.open().any(|entry| entry.alloc.is_none())) {
            self.retry_times(cx, id);
        }
    }
}
