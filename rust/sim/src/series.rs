//! Time series: cores in use, and pending jobs.

/// Maximum number of points; at that number the resolution is at least halved.
const MAX_SERIES_POINTS: u16 = u16::MAX;

/// Step functions of time with a bounded number of points: each value applies from its time on. If
/// there are too many, the points of each interval are merged into one, with the values at its end.
#[derive(Clone, Debug, Default)]
pub struct Series {
    time: Vec<f64>,
    used: Vec<u64>,
    queued: Vec<u32>,
    /// Length of an interval with at most one point, in seconds.
    step: f64,
}

impl Series {
    /// When the values change, in seconds of the trace.
    pub fn time(&self) -> &[f64] {
        &self.time
    }

    /// Cores in use.
    pub fn used(&self) -> &[u64] {
        &self.used
    }

    /// Pending jobs.
    pub fn queued(&self) -> &[u32] {
        &self.queued
    }

    /// Records the values from a time on.
    pub(crate) fn push(&mut self, time: f64, used: u64, queued: u32) {
        self.append(time, used, queued);
        if self.time.len() >= usize::from(MAX_SERIES_POINTS) {
            let span = time - self.time[0];
            self.step = (self.step * 2.0).max(span / f64::from(MAX_SERIES_POINTS / 4));
            let times = std::mem::take(&mut self.time);
            let used = std::mem::take(&mut self.used);
            let queued = std::mem::take(&mut self.queued);
            for ((time, used), queued) in times.into_iter().zip(used).zip(queued) {
                self.append(time, used, queued);
            }
        }
    }

    fn append(&mut self, time: f64, used: u64, queued: u32) {
        if let (Some(last), Some(last_used), Some(last_queued)) = (
            self.time.last(),
            self.used.last_mut(),
            self.queued.last_mut(),
        ) {
            if (*last_used, *last_queued) == (used, queued) {
                return;
            }
            if self.step > 0.0 && (last / self.step).floor() >= (time / self.step).floor() {
                (*last_used, *last_queued) = (used, queued);
                return;
            }
        }
        self.time.push(time);
        self.used.push(used);
        self.queued.push(queued);
    }
}
