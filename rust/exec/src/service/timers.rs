//! Times at which the service has something to do.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::types::JobId;

/// The part of the service that a timer wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WakeTarget {
    Acknowledgement,
    Followers,
    Job(JobId),
    Output,
}

/// A time in seconds since the epoch, and what needs attention then.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Timer(f64, WakeTarget);

impl Eq for Timer {}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The timers of a service. A timer is not removed before its time: the target checks what is due.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<Timer>>);

impl Timers {
    /// Wakes a job at a time; at none if the time is 0 or infinite.
    pub(super) fn add(&mut self, at: f64, job: JobId) {
        if at > 0.0 && at.is_finite() {
            self.0.push(Reverse(Timer(at, WakeTarget::Job(job))));
        }
    }

    /// Wakes the followers of output at a time.
    pub(super) fn add_poll(&mut self, at: f64) {
        self.0.push(Reverse(Timer(at, WakeTarget::Followers)));
    }

    /// Wakes the jobs that wait for a count of output or for space.
    pub(super) fn add_output(&mut self, at: f64) {
        self.0.push(Reverse(Timer(at, WakeTarget::Output)));
    }

    /// Wakes the service at the time of a barrier.
    pub(super) fn add_acknowledgement(&mut self, at: f64) {
        self.0.push(Reverse(Timer(at, WakeTarget::Acknowledgement)));
    }

    /// Adds each timer again, this many seconds earlier: the target checks which of them it needs.
    pub(super) fn add_earlier(&mut self, seconds: f64) {
        let timers = self.0.iter();
        let earlier = timers.map(|Reverse(timer)| Reverse(Timer(timer.0 - seconds, timer.1)));
        let earlier: Vec<_> = earlier.collect();
        self.0.extend(earlier);
    }

    /// The time of the next timer.
    pub(super) fn next(&self) -> Option<f64> {
        self.0.peek().map(|Reverse(timer)| timer.0)
    }

    /// Removes and returns the next timer whose time has come.
    pub(super) fn take_due(&mut self, now: f64) -> Option<WakeTarget> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(timer)| timer.1)
    }
}
