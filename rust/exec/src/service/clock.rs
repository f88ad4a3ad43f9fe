//! The clock when it is set back. Timeouts end when they would have ended, or later by the time until the service notices, which
//! is no longer than the timeout. Expirations stay times of the clock.

use super::job::{Ending, Shrink};
use super::state::{Acknowledgement, Service};

impl Service {
    /// Records the time. If the clock has been set back, the ends of running timeouts are set back with it.
    pub(super) fn follow_clock(&mut self, now: f64) {
        let step = self.clock - now;
        self.clock = now;
        if step.is_finite() && step > 0.0 {
            self.set_back(step);
        }
    }

    fn set_back(&mut self, step: f64) {
        self.writer.set_back(step);
        if let Acknowledgement::Scheduled(at) = &mut self.acknowledgement {
            *at -= step;
        }
        for job in self.jobs.values_mut() {
            if let Ending::Terminating(at) | Ending::Killed(at) = &mut job.ending {
                *at -= step;
            }
            if let Some(at) = &mut job.measure_at {
                *at -= step;
            }
            for task in job.tasks.values_mut() {
                if let Shrink::Terminating(at) | Shrink::Killed(at) = &mut task.shrink {
                    *at -= step;
                }
            }
        }
        self.timers.add_earlier(step);
    }
}
