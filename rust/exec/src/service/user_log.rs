//! The lines of the log about the jobs of users, and their rate limit.

use super::effect::Effect;
use super::guests::Admitted;
use super::state::Service;
use crate::types::JobId;
use penstock_flux::job_files::shorten;

impl Service {
    /// Writes a line about a job, unless there were too many about its user. A long one is cut off.
    pub(super) fn log_job(&mut self, id: JobId, text: &str) {
        let guest = self.jobs.get(&id).and_then(|job| job.guest);
        let user = guest.map_or(self.settings.owner, Admitted::uid);
        self.log_user(user, text);
    }

    /// Writes a line about a user's job, unless there were too many about that user. A long one is cut off. The number of the other
    /// lines follows at the end of the period.
    pub fn log_user(&mut self, user: u32, text: &str) {
        if self.user_log.admit(user, self.clock) {
            self.effects.push(Effect::Log(shorten(text).into_owned()));
        }
    }

    pub(super) fn end_log_periods(&mut self, now: f64) {
        let lines = self.user_log.take_ended(now);
        self.effects.extend(lines.into_iter().map(Effect::Log));
    }
}
