//! Time limits, and the signal before them.

use penstock_flux::RequestError;
use penstock_flux::exec::ExpirationRequest;
use penstock_wire::Message;

use super::job::{Ending, TaskState};
use super::journal::Record;
use super::journal_writer::NextStep;
use super::state::{ReaperState, Service};
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
}
