//! Estimates of the starts of jobs that cannot start on arrival.

use super::{Simulation, id, job_of};
use crate::results::JobResult;
use crate::workload::JobIndex;

impl Simulation {
    /// Selects jobs for an estimate: of the jobs from index `from` on, which have just arrived,
    /// some of the pending ones.
    pub(super) fn select_for_estimates(&mut self, from: usize) {
        let every = u64::from(self.setup.estimate_every);
        if every == 0 {
            return;
        }
        for index in from..self.next_arrival {
            let is_pending = self.results.result[index] == JobResult::Pending;
            if is_pending && !self.has_open_dependencies(index) {
                if self.tally.waited.is_multiple_of(every) {
                    self.unestimated.push(id(JobIndex::from_usize(index)));
                }
                self.tally.waited += 1;
            }
        }
    }

    /// Estimates the starts of the selected jobs. Returns `false` if `may_continue` stopped it.
    pub(super) fn estimate_starts(
        &mut self,
        may_continue: &mut dyn FnMut(u64, f64) -> bool,
    ) -> bool {
        if self.unestimated.is_empty() {
            return true;
        }
        let (done, now) = (self.tally.done, self.now);
        let pending = &self.unestimated;
        let mut may_continue = || may_continue(done, now);
        let Some(starts) = self.scheduler.forecast(pending, now, &mut may_continue) else {
            return false;
        };
        for (id, start) in self.unestimated.drain(..).zip(starts) {
            if start.is_finite() {
                self.results.estimate[job_of(id).index()] = start;
            }
        }
        true
    }
}
