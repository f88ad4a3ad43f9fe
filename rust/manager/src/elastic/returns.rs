//! Postponed returns: loans whose return was denied or cancelled.

use std::collections::BTreeMap;

use penstock_elastic::Loan;
use penstock_jobspec::job_id::JobId;

/// Seconds until a denied or cancelled return is requested again. The interval doubles each time.
const RETRY_INTERVAL_S: f64 = 60.0;
/// The longest interval.
const MAX_RETRY_INTERVAL_S: f64 = 3600.0;

/// The identity of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LoanKey {
    /// The lender.
    pub(super) job: JobId,
    /// The number of the loan among those of the job.
    pub(super) loan: u32,
}

/// A loan whose return was denied or cancelled.
#[derive(Clone, Debug)]
pub(super) struct PostponedReturn {
    /// When it is requested again, seconds since the epoch.
    pub(super) until: f64,
    /// The interval before that, in seconds.
    interval: f64,
    /// Why the last request failed.
    pub(super) reason: String,
}

/// Postponed returns of all loans.
#[derive(Debug, Default)]
pub(super) struct PostponedReturns(BTreeMap<LoanKey, PostponedReturn>);

impl PostponedReturns {
    /// Whether the return of a loan is to be requested at `now`.
    pub(super) fn is_due(&self, now: f64, key: LoanKey, loan: &Loan) -> bool {
        let is_over = loan.until.is_some_and(|until| until <= now);
        let is_postponed = self.of(key).is_some_and(|postponed| postponed.until > now);
        is_over && loan.outstanding() > 0 && !is_postponed
    }

    /// The postponed return of a loan.
    pub(super) fn of(&self, loan: LoanKey) -> Option<&PostponedReturn> {
        self.0.get(&loan)
    }

    /// Postpones the return of a loan, for twice as long as the last time. Returns until when.
    pub(super) fn postpone(&mut self, loan: LoanKey, now: f64, reason: &str) -> f64 {
        let interval = self.0.get(&loan).map_or(RETRY_INTERVAL_S, |before| {
            (before.interval * 2.0).min(MAX_RETRY_INTERVAL_S)
        });
        let until = now + interval;
        let postponed = PostponedReturn {
            until,
            interval,
            reason: reason.to_owned(),
        };
        self.0.insert(loan, postponed);
        until
    }

    /// Forgets the postponed return of a loan.
    pub(super) fn forget(&mut self, loan: LoanKey) {
        self.0.remove(&loan);
    }

    /// Removes all, and returns their loans.
    pub(super) fn take(&mut self) -> impl Iterator<Item = LoanKey> + use<> {
        std::mem::take(&mut self.0).into_keys()
    }

    /// Forgets the loans of a purged job.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.0.retain(|loan, _| loan.job != job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_is_postponed_for_twice_as_long_each_time_up_to_an_hour() {
        let mut postponed = PostponedReturns::default();
        let key = LoanKey {
            job: JobId::new(1),
            loan: 1,
        };
        let loan = Loan {
            nodes: 2,
            until: Some(10.0),
            ..Loan::default()
        };
        let due = [9.0, 10.0].map(|now| postponed.is_due(now, key, &loan));
        assert_eq!(due, [false, true]);
        for interval in [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0] {
            let until = postponed.postpone(key, 10.0, "full");
            assert_eq!(until.to_bits(), (10.0_f64 + interval).to_bits());
            let due = [until - 1.0, until].map(|now| postponed.is_due(now, key, &loan));
            assert_eq!(due, [false, true]);
        }
        assert_eq!(postponed.take().collect::<Vec<_>>(), [key]);
        assert!(postponed.is_due(10.0, key, &loan));
        let returned = Loan {
            returned: 2,
            ..loan
        };
        assert!(!postponed.is_due(10.0, key, &returned));
    }
}
