//! The numbers of lines of the log about the jobs of each user.

use std::collections::BTreeMap;

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
    pub(super) fn admit(&mut self, user: u32, now: f64) -> bool {
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
    pub(super) fn take_ended(&mut self, now: f64) -> Vec<String> {
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
