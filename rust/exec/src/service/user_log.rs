//! The lines of the log about the jobs of users, and their rate limit.

use std::collections::BTreeMap;

use super::effect::Effect;
use super::guests::Admitted;
use super::job_directory::shorten;
use super::state::Service;
use crate::types::JobId;

/// The most lines about the jobs of one user in a period, and its length in seconds: as about a user's connections.
pub const MAX_USER_LINES: u32 = 20;
/// See [`MAX_USER_LINES`].
pub const USER_LINES_PERIOD_S: f64 = 60.0;

/// The lines about a user since the first one of a period.
#[derive(Debug)]
struct Period {
    end: f64,
    lines: u32,
}

/// The lines about each user in the current periods.
#[derive(Debug, Default)]
pub(super) struct UserLog {
    periods: BTreeMap<u32, Period>,
}

impl UserLog {
    /// Counts a line about a user. Returns whether it is written.
    fn admit(&mut self, user: u32, now: f64) -> bool {
        let period = self.periods.entry(user).or_insert(Period {
            end: now + USER_LINES_PERIOD_S,
            lines: 0,
        });
        period.lines = period.lines.saturating_add(1);
        period.lines <= MAX_USER_LINES
    }

    /// The end of the next period.
    pub(super) fn deadline(&self) -> Option<f64> {
        let ends = self.periods.values().map(|period| period.end);
        ends.min_by(f64::total_cmp)
    }

    /// Ends periods. Returns the lines with the numbers of the suppressed ones.
    fn take_ended(&mut self, now: f64) -> Vec<String> {
        let mut lines = Vec::new();
        self.periods.retain(|user, period| {
            let more = period.lines.saturating_sub(MAX_USER_LINES);
            if now >= period.end && more > 0 {
                lines.push(format!(
                    "user {user}: {more} more lines about jobs were suppressed"
                ));
            }
            now < period.end
        });
        lines
    }

    /// Moves the ends of periods, as the clock was.
    pub(super) fn set_back(&mut self, step: f64) {
        for period in self.periods.values_mut() {
            period.end -= step;
        }
    }
}

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
