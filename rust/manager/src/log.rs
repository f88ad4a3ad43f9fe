//! Lines for the daemon's log, rate-limited.

/// The greatest number of complaints written per second.
const MAX_COMPLAINTS_PER_SECOND: usize = 100;

/// Lines for the daemon's log, rate-limited so that a peer that repeats a fault does not fill the disk.
#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: Vec<String>,
    /// The second since the epoch in which complaints are counted.
    second: f64,
    complaints: usize,
}

impl Log {
    /// Advances to this time, and writes how many complaints were suppressed before it.
    pub(crate) fn advance(&mut self, now: f64) {
        let second = now.floor();
        #[allow(clippy::float_cmp, reason = "whole numbers")]
        if second != self.second {
            self.second = second;
            let more = self.complaints.saturating_sub(MAX_COMPLAINTS_PER_SECOND);
            self.complaints = 0;
            if more > 0 {
                self.lines.push(format!("... and {more} more such lines"));
            }
        }
    }

    /// When the number of suppressed complaints is due, seconds since the epoch.
    pub(crate) fn deadline(&self) -> Option<f64> {
        (self.complaints > MAX_COMPLAINTS_PER_SECOND).then_some(self.second + 1.0)
    }

    /// Writes a line in any case.
    pub(crate) fn log_line(&mut self, line: String) {
        self.lines.push(line);
    }

    /// Writes a line on a peer's fault, unless there were too many this second.
    pub(crate) fn complain(&mut self, line: String) {
        self.complaints += 1;
        if self.complaints <= MAX_COMPLAINTS_PER_SECOND {
            self.lines.push(line);
        }
    }

    /// Takes the lines since the last call.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::Log;

    #[test]
    fn complaints_above_the_rate_are_counted() {
        let mut log = Log::default();
        log.advance(5.0);
        for number in 0..1000 {
            log.complain(format!("bad {number}"));
        }
        log.log_line("important".to_owned());
        let lines = log.take();
        assert_eq!(lines.len(), 101);
        assert_eq!(
            (lines[99].as_str(), lines[100].as_str()),
            ("bad 99", "important")
        );
        assert_eq!(log.deadline(), Some(6.0));
        log.advance(5.9);
        assert!(log.take().is_empty());
        log.advance(6.0);
        assert_eq!(log.take(), ["... and 900 more such lines"]);
        assert_eq!(log.deadline(), None);
        log.complain("again".to_owned());
        assert_eq!(log.take(), ["again"]);
    }
}
