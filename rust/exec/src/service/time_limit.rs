//! Time limits, the signal before them, and the clock when it is set back. Timeouts end when they would have ended, or later
//! by the time until the service notices, which is no longer than the timeout. Expirations stay times of the clock.

use penstock_flux::RequestError;
use penstock_flux::exec::ExpirationRequest;
use penstock_wire::Message;

use super::job::{Ending, Shrink, TaskState};
use super::journal::Record;
use super::journal_writer::NextStep;
use super::state::{Acknowledgement, ReaperState, Service};
use crate::types::JobId;

impl Service {
    pub(super) fn set_expiration(&mut self, request: &Message) -> Result<(), RequestError> {
        let ExpirationRequest { id, expiration } = request.read_request()?;
        let job = self.jobs.get_mut(&id);
        let Some(job) = job.filter(|job| job.outstanding_start.is_some()) else {
            return Err(RequestError::not_found(format!("job {id} is not running")));
        };
        if !(expiration.is_finite() && expiration >= 0.0) {
            let text =
                format!("invalid expiration `{expiration}`: expected 0 or seconds since the epoch");
            return Err(RequestError::invalid(text));
        }
        job.expiration = expiration;
        let warning_time = job.warning_time();
        self.changed.insert(id);
        self.timers.add(expiration, id);
        self.timers.add(warning_time.unwrap_or_default(), id);
        Ok(())
    }

    /// Ends a job whose time limit has expired.
    pub(super) fn check_expiration(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let is_expired = job.expiration > 0.0 && now >= job.expiration;
        if is_expired && job.has_running_task() && !job.is_failing() && job.ending == Ending::None {
            job.fail("timeout", "resource allocation expired");
        }
    }

    /// Sends the signal before the end of the allocation, once for each end.
    pub(super) fn warn_if_due(&mut self, id: JobId, now: f64) {
        let is_reaper_ready = self.reaper == ReaperState::Ready;
        let Some(job) = self.jobs.get_mut(&id).filter(|_| is_reaper_ready) else {
            return;
        };
        let is_due = job.warning_time().is_some_and(|at| now >= at);
        let is_ending = job.is_failing() || job.ending != Ending::None;
        let is_running = job.has_running_task() && !job.has(TaskState::Requested);
        if is_due
            && is_running
            && !is_ending
            && let Some(warning) = job.warning
            && let Some(intent) = &mut job.intent
        {
            intent.warned_of = Some(job.expiration);
            let record = Record::Warned(id, job.expiration);
            let is_blocked = self.writer.is_blocked();
            let step = NextStep::Warn(id, warning.signal);
            self.writer
                .add(record, if is_blocked { NextStep::None } else { step });
            if is_blocked {
                self.signal_tasks(id, warning.signal);
            }
        }
    }

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
        self.output_usage.set_back(step);
        self.user_log.set_back(step);
        if let Acknowledgement::Scheduled(at) = &mut self.acknowledgement {
            *at -= step;
        }
        for job in self.jobs.values_mut() {
            if let Ending::Terminating(at) | Ending::Killed(at) = &mut job.ending {
                *at -= step;
            }
            for at in [&mut job.measure_at, &mut job.repeat_at] {
                *at = at.map(|at| at - step);
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
