//! What time brings, and what a restart finds.

use penstock_elastic::{Account, Lend};

use super::Number;
use crate::job::Job;
use crate::manager::{Manager, milliseconds};
use crate::state::State;

impl Manager {
    /// Looks at the jobs whose time has come.
    pub(crate) fn elastic_due(&mut self, now: f64) {
        let due = milliseconds(now);
        while let Some((time, id)) = self.elastic.timers.first().copied() {
            if time > due {
                return;
            }
            self.elastic.timers.pop_first();
            self.look_at(id, now);
        }
    }

    fn look_at(&mut self, id: u64, now: f64) {
        let requested = self.jobs.get(&id).filter(|it| it.requested().is_some());
        if let Some((state, end)) = requested.map(|it| (it.state, expiration(it))) {
            if state < State::Run {
                self.request_due(id, now);
            } else if state == State::Run && end.is_some_and(|end| end <= now) {
                self.finish_standing(id, now);
            }
        }
        if self.jobs.get(&id).is_none_or(|it| it.state != State::Run) {
            return;
        }
        let account = self.elastic.ledger.account(id);
        let late = account.into_iter().flat_map(|it| it.late(now));
        let late: Vec<(Number, Option<u64>)> = late.map(|it| ((id, it.seq), it.alloc)).collect();
        let lends = account.into_iter().flat_map(Account::lends);
        let due = |it: &Lend| it.until.is_some_and(|until| until <= now);
        let waits = |loan: u32| {
            let postponed = self.elastic.postponed.get(&(id, loan));
            postponed.is_some_and(|it| it.until > now)
        };
        let back = lends.filter(|(loan, it)| due(it) && it.outstanding() > 0 && !waits(*loan));
        let back: Vec<u32> = back.map(|(seq, _)| seq).collect();
        for (number, alloc) in late {
            match alloc {
                Some(alloc) => self.limit_due(alloc, now),
                None => self.try_time(number, true, now),
            }
        }
        for seq in back {
            self.loan_due(id, seq, now);
        }
    }

    /// Sets the times again of a job that a restart finds, and of its requests and loans.
    pub(crate) fn resume_requests(&mut self, id: u64, now: f64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        if job.requested().is_some() {
            let end = expiration(job).filter(|_| job.state == State::Run);
            if job.state < State::Run {
                self.decide_soon(id, now);
            }
            if let Some(end) = end {
                self.elastic.at(end, id);
            }
        }
        let account = self.elastic.ledger.account(id);
        let limits = account.into_iter().flat_map(Account::open);
        let limits = limits.map(|it| (it.deadline, it.alloc.is_none()));
        let limits: Vec<(Option<f64>, bool)> = limits.collect();
        let lends = account.into_iter().flat_map(Account::lends);
        let lends: Vec<f64> = lends.filter_map(|(_, it)| it.until).collect();
        let times = limits.iter().filter_map(|it| it.0).chain(lends);
        for time in times {
            self.elastic.at(time, id);
        }
        // Nobody remembers what was asked of the scheduler for them.
        if limits.iter().any(|(_, time)| *time) {
            self.retry_times(id, now);
        }
    }
}

fn expiration(job: &Job) -> Option<f64> {
    let end = job.r.as_ref().and_then(|r| r.expiration());
    end.filter(|it| *it > 0.0)
}
