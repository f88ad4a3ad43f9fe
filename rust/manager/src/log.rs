//! What the manager has to tell the daemon's log.

/// Complaints a second that are told one by one.
const MAX_COMPLAINTS_PER_SECOND: usize = 100;

/// Lines for the log. A peer that does the same thing wrong ever again does not fill the disk.
#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: Vec<String>,
    /// The second since the epoch that complaints are counted in.
    second: f64,
    complaints: usize,
}

impl Log {
    /// Goes on to this time, and tells how much was left out before it.
    pub(crate) fn at(&mut self, now: f64) {
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

    /// When there is something to tell that nobody has asked for.
    pub(crate) fn deadline(&self) -> Option<f64> {
        (self.complaints > MAX_COMPLAINTS_PER_SECOND).then_some(self.second + 1.0)
    }

    /// A line that is always told.
    pub(crate) fn note(&mut self, line: String) {
        self.lines.push(line);
    }

    /// A line on what a peer does wrong.
    pub(crate) fn complain(&mut self, line: String) {
        self.complaints += 1;
        if self.complaints <= MAX_COMPLAINTS_PER_SECOND {
            self.lines.push(line);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::Log;

    #[test]
    fn what_is_too_much_for_one_second_is_counted() {
        let mut log = Log::default();
        log.at(5.0);
        for number in 0..1000 {
            log.complain(format!("bad {number}"));
        }
        log.note("important".to_owned());
        let told = log.take();
        assert_eq!(told.len(), 101);
        assert_eq!(
            (told[99].as_str(), told[100].as_str()),
            ("bad 99", "important")
        );
        assert_eq!(log.deadline(), Some(6.0));
        log.at(5.9);
        assert!(log.take().is_empty());
        log.at(6.0);
        assert_eq!(log.take(), ["... and 900 more such lines"]);
        assert_eq!(log.deadline(), None);
        log.complain("again".to_owned());
        assert_eq!(log.take(), ["again"]);
    }
}
