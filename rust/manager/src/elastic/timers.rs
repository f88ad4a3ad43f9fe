//! Timers of jobs with requests or loans: handling due ones, and setting them after a restart.

use penstock_elastic::{Account, Loan};

use super::peer::Elastic;
use super::tables::{Amount, LoanKey};
use crate::context::Context;
use crate::effect::RequestKey;
use crate::state::State;
use penstock_jobspec::job_id::JobId;

impl Elastic {
    /// Handles the jobs whose timers are due.
    pub(crate) fn advance(&mut self, cx: &mut Context) {
        while let Some(job) = self.timers.pop_due(cx.now) {
            self.job_due(cx, job);
        }
    }

    fn job_due(&mut self, cx: &mut Context, id: JobId) {
        let Some(record) = cx.jobs.record(id) else {
            return;
        };
        if record.elastic_request().is_some() {
            let state = record.state();
            let has_expired = record.expiration().is_some_and(|end| end <= cx.now);
            if state < State::Run {
                self.request_job_due(cx, id);
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
                Some(alloc) => self.timeout_due(cx, alloc),
                // The decision about one request for time triggers the next one.
                None if has_requested_time => {}
                None => has_requested_time = self.request_time(cx, key, Amount::Available),
            }
        }
        for loan in returns {
            self.loan_due(cx, id, loan);
        }
    }

    fn is_return_due(&self, now: f64, loan: LoanKey, lend: &Loan) -> bool {
        let is_over = lend.until.is_some_and(|until| until <= now);
        let postponed = self.postponed.of(loan);
        let is_postponed = postponed.is_some_and(|postponed| postponed.until > now);
        is_over && lend.outstanding() > 0 && !is_postponed
    }

    /// Sets the timers of a job, its requests and loans after a restart.
    pub(crate) fn resume(&mut self, cx: &mut Context, id: JobId) {
        let Some(record) = cx.jobs.record(id) else {
            return;
        };
        if record.elastic_request().is_some() {
            let (state, expiration) = (record.state(), record.expiration());
            if state < State::Run {
                self.decide_soon(cx, id);
            }
            if let Some(end) = expiration.filter(|_| state == State::Run) {
                self.timers.set(end, id);
            }
        }
        let Some(account) = self.ledger.account(id) else {
            return;
        };
        let open = account.open();
        let open: Vec<(Option<f64>, bool)> = open
            .map(|entry| (entry.deadline, entry.alloc.is_none()))
            .collect();
        let ends: Vec<f64> = account.loans().filter_map(|(_, lend)| lend.until).collect();
        let deadlines = open.iter().filter_map(|(deadline, _)| *deadline);
        for time in deadlines.chain(ends) {
            self.timers.set(time, id);
        }
        // The restart has forgotten their requests to the scheduler.
        if open.iter().any(|(_, is_for_time)| *is_for_time) {
            self.retry_times(cx, id);
        }
    }
}
