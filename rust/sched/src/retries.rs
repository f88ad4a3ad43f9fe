//! Commits of R that have failed, and are sent again.

use penstock_flux::Allocation;
use penstock_jobspec::job_id::JobId;

/// The delay before a failed commit is sent again, in seconds. It doubles with each failure.
const MIN_RETRY_DELAY_S: f64 = 0.5;
const MAX_RETRY_DELAY_S: f64 = 30.0;

/// Allocations whose commit has failed for a reason that may pass, and when it is sent again.
#[derive(Debug)]
pub(crate) struct CommitRetries {
    allocations: Vec<Allocation>,
    delay: f64,
    due: Option<f64>,
}

impl Default for CommitRetries {
    fn default() -> Self {
        Self {
            allocations: Vec::new(),
            delay: MIN_RETRY_DELAY_S,
            due: None,
        }
    }
}

impl CommitRetries {
    /// Adds allocations.
    pub fn extend(&mut self, allocations: Vec<Allocation>) {
        self.allocations.extend(allocations);
    }

    /// Lets the next failure begin with the shortest delay.
    pub fn reset_delay(&mut self) {
        self.delay = MIN_RETRY_DELAY_S;
    }

    /// Removes a job. Returns whether it was there.
    pub fn remove(&mut self, id: JobId) -> bool {
        let count = self.allocations.len();
        self.allocations.retain(|allocation| allocation.id != id);
        self.allocations.len() < count
    }

    /// When commits are sent again.
    pub fn due(&self) -> Option<f64> {
        self.due.filter(|_| !self.allocations.is_empty())
    }

    /// Takes the allocations whose commit is sent now. Returns none until the delay has passed, which the first call begins.
    pub fn take_due(&mut self, now: f64) -> Vec<Allocation> {
        if self.allocations.is_empty() {
            return Vec::new();
        }
        // A clock that is set back does not prolong the delay.
        let latest = now + self.delay;
        let due = self.due.map_or(latest, |due| due.min(latest));
        if now < due {
            self.due = Some(due);
            return Vec::new();
        }
        self.due = None;
        self.delay = (2.0 * self.delay).min(MAX_RETRY_DELAY_S);
        std::mem::take(&mut self.allocations)
    }
}
