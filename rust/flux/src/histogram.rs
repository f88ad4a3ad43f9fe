//! Histograms of durations, in the statistics of services.

use serde::{Deserialize, Serialize};

/// 1, 2 and 5 of each power of ten from 10 µs to 10 s: work of the daemon.
const WORK_BOUNDS: [f64; 19] = [
    1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0,
    2.0, 5.0, 10.0,
];

/// 1, 2 and 5 of each power of ten from 1 ms to 1,000,000 s, 11 days: stages of jobs.
const JOB_BOUNDS: [f64; 28] = [
    1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 1e1, 2e1, 5e1, 1e2, 2e2, 5e2,
    1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6,
];

/// Counts durations by buckets whose bounds grow by a factor of 2 to 2.5. An observation costs a search among
/// some twenty bounds; the memory is fixed.
///
/// ```
/// use penstock_flux::Histogram;
///
/// let mut histogram = Histogram::of_work();
/// histogram.observe(0.0015);
/// histogram.observe(60.0);
/// let stats = histogram.stats();
/// assert_eq!((stats.count, stats.sum), (2, 60.0015));
/// let first = stats.buckets.iter().position(|count| *count > 0);
/// assert_eq!(first.map(|index| stats.le[index]), Some(0.002));
/// ```
#[derive(Clone, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than the bounds: the last one counts what exceeds them.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// For work of the daemon, from 10 µs to 10 s.
    pub fn of_work() -> Self {
        Self::new(&WORK_BOUNDS)
    }

    /// For stages of jobs, from 1 ms to 11 days.
    pub fn of_jobs() -> Self {
        Self::new(&JOB_BOUNDS)
    }

    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// Counts a duration in seconds. A negative one, between two readings of a clock that was set back, counts as 0, and so
    /// does what is no number.
    pub fn observe(&mut self, seconds: f64) {
        let seconds = seconds.max(0.0);
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += seconds;
    }

    /// The counts so far.
    pub fn stats(&self) -> HistogramStats {
        let mut count = 0;
        let mut buckets: Vec<u64> = Vec::with_capacity(self.counts.len());
        for each in &self.counts {
            count += each;
            buckets.push(count);
        }
        // The last one is the number of all.
        buckets.pop();
        HistogramStats {
            count,
            sum: self.sum,
            le: self.bounds.to_vec(),
            buckets,
        }
    }
}

/// A histogram of durations in the statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistogramStats {
    /// The number of durations.
    pub count: u64,
    /// Their sum, in seconds.
    pub sum: f64,
    /// The upper bounds of the buckets in seconds, inclusive, in ascending order.
    pub le: Vec<f64>,
    /// For each bound, the number of durations that do not exceed it.
    pub buckets: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_for_the_bounds_that_it_does_not_exceed() {
        for histogram in [Histogram::of_work(), Histogram::of_jobs()] {
            for (index, bound) in histogram.bounds.iter().enumerate() {
                for (seconds, first) in [(*bound, index), (bound * 1.001, index + 1)] {
                    let mut histogram = histogram.clone();
                    histogram.observe(seconds);
                    let stats = histogram.stats();
                    let below = stats.buckets.iter().filter(|count| **count == 0).count();
                    assert_eq!((below, stats.count), (first, 1), "{seconds}");
                }
            }
        }
    }

    #[test]
    fn the_bounds_ascend_by_a_factor_of_at_most_two_and_a_half() {
        for bounds in [&WORK_BOUNDS[..], &JOB_BOUNDS[..]] {
            for pair in bounds.windows(2) {
                let factor = pair[1] / pair[0];
                assert!((1.9..2.6).contains(&factor), "{pair:?}");
            }
        }
    }

    #[test]
    fn durations_that_a_clock_cannot_measure_count_as_zero() {
        let mut histogram = Histogram::of_work();
        histogram.observe(-1.0);
        histogram.observe(f64::NAN);
        let stats = histogram.stats();
        assert_eq!((stats.count, stats.sum, stats.buckets[0]), (2, 0.0, 2));
    }
}
