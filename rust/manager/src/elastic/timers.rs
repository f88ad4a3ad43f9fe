//! Timers of jobs with requests or loans.

use std::collections::BTreeSet;

use penstock_jobspec::job_id::JobId;

use crate::context::{milliseconds, seconds};

/// A timer of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    /// Milliseconds since the epoch.
    due_ms: u64,
    job: JobId,
}

impl Timer {
    fn at(time: f64, job: JobId) -> Self {
        // Rounded up: the timer must not expire before the time has been reached.
        let due_ms = milliseconds(time).saturating_add(1);
        Self { due_ms, job }
    }
}

/// The timers of all jobs, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    timers: BTreeSet<Timer>,
    /// The latest time at which timers were due, in milliseconds: the clock may have been set back since.
    passed_ms: u64,
}

impl Timers {
    /// Sets a timer of a job at `time`, seconds since the epoch.
    pub(super) fn set(&mut self, time: f64, job: JobId) {
        self.timers.insert(Timer::at(time, job));
    }

    /// Whether a timer of a job is set at `time`, or was due at `now` or before the clock was set back.
    #[cfg(debug_assertions)]
    pub(super) fn has(&self, time: f64, job: JobId, now: f64) -> bool {
        let timer = Timer::at(time, job);
        timer.due_ms <= milliseconds(now).max(self.passed_ms) || self.timers.contains(&timer)
    }

    /// Removes a timer that is due at `now`, and returns its job.
    pub(super) fn pop_due(&mut self, now: f64) -> Option<JobId> {
        self.passed_ms = self.passed_ms.max(milliseconds(now));
        let first = self.timers.first()?;
        if first.due_ms > milliseconds(now) {
            return None;
        }
        self.timers.pop_first().map(|timer| timer.job)
    }

    /// When the next timer is due, seconds since the epoch.
    pub(super) fn deadline(&self) -> Option<f64> {
        self.timers.first().map(|timer| seconds(timer.due_ms))
    }
}
