//! Accuracy of estimates: first estimates of start times compared with the actual starts.

use std::collections::{BTreeMap, VecDeque};

use penstock_jobspec::job_id::JobId;

/// Maximum number of starts in the record.
const MAX_RECORDED_STARTS: usize = 1000;
/// Minimum number of starts from which a band is computed.
const MIN_BAND_STARTS: usize = 10;
/// Estimated waits below this many seconds have no meaningful ratio.
const MIN_WAIT_S: f64 = 1.0;

/// The first estimate of a job's start.
#[derive(Clone, Copy, Debug)]
struct FirstEstimate {
    made_at: f64,
    start: f64,
}

/// An actual start compared with the first estimate of it.
#[derive(Clone, Copy, Debug)]
struct Deviation {
    /// Actual minus estimated start, in seconds.
    late: f64,
    /// Actual divided by estimated wait, both from the time of the estimate.
    ratio: Option<f64>,
}

/// The first estimates of pending jobs, and the deviations of the last thousand starts.
#[derive(Clone, Debug, Default)]
pub struct Accuracy {
    /// A tree: a table moves all of its entries when it grows, and there may be a million.
    first: BTreeMap<JobId, FirstEstimate>,
    deviations: VecDeque<Deviation>,
}

/// The delays of starts against their estimates, in seconds; negative for earlier starts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// The number of starts; if it is 0, all other values are 0.
    pub count: usize,
    /// The mean.
    pub mean: f64,
    /// The 10th percentile.
    pub low: f64,
    /// The 50th percentile.
    pub median: f64,
    /// The 90th percentile.
    pub high: f64,
}

/// Ratios of actual to estimated waits: four in five waits were between `low` and `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    low: f64,
    high: f64,
}

impl Accuracy {
    /// A record without estimates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records an estimate of a job's start, if it is the first one.
    pub fn expect(&mut self, id: JobId, now: f64, start: f64) {
        self.first.entry(id).or_insert(FirstEstimate {
            made_at: now,
            start,
        });
    }

    /// Records that a job starts now.
    pub fn record_start(&mut self, id: JobId, now: f64) {
        let Some(first) = self.first.remove(&id) else {
            return;
        };
        if self.deviations.len() >= MAX_RECORDED_STARTS {
            self.deviations.pop_front();
        }
        let expected = first.start - first.made_at;
        self.deviations.push_back(Deviation {
            late: now - first.start,
            ratio: (expected >= MIN_WAIT_S).then(|| (now - first.made_at) / expected),
        });
    }

    /// Drops the estimate of a job that is no longer pending.
    pub fn forget(&mut self, id: JobId) {
        self.first.remove(&id);
    }

    /// The band around estimates; `None` until there have been enough starts. The cost is
    /// proportional to the number of starts in the record.
    pub fn band(&self) -> Option<Band> {
        let ratios = sorted(
            self.deviations
                .iter()
                .filter_map(|deviation| deviation.ratio),
        );
        (ratios.len() >= MIN_BAND_STARTS).then(|| Band {
            low: quantile(&ratios, 10),
            high: quantile(&ratios, 90),
        })
    }

    /// The distribution of the deviations.
    pub fn errors(&self) -> Errors {
        let late = sorted(self.deviations.iter().map(|deviation| deviation.late));
        let count = u32::try_from(late.len()).unwrap_or(u32::MAX);
        // `sum` would return -0.0 for no values.
        let mean = late.iter().fold(0.0, |sum, late| sum + late) / f64::from(count.max(1));
        Errors {
            count: late.len(),
            mean,
            low: quantile(&late, 10),
            median: quantile(&late, 50),
            high: quantile(&late, 90),
        }
    }
}

/// The range of an estimated start, in seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartRange {
    /// The earliest likely start.
    pub earliest: f64,
    /// The latest likely start.
    pub latest: f64,
}

impl Band {
    /// The bounds of an estimated start: actual waits deviate in proportion to estimated ones.
    /// `None` for a start that is expected at once.
    pub fn around(&self, now: f64, start: f64) -> Option<StartRange> {
        let wait = start - now;
        (wait >= MIN_WAIT_S).then(|| {
            let bound = |ratio: f64| (now + wait * ratio).max(now);
            StartRange {
                earliest: bound(self.low),
                latest: bound(self.high),
            }
        })
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The percentile of sorted values; 0 of none.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len().saturating_sub(1) * percent + 50) / 100;
    sorted.get(index).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use penstock_jobspec::job_id::JobId;

    use super::{Accuracy, Errors, StartRange};

    #[test]
    fn a_band_needs_ten_starts() {
        let mut seen = Accuracy::new();
        for id in 0..10 {
            assert_eq!(seen.band(), None);
            seen.expect(JobId::new(id), 0.0, 100.0);
            // A second estimate is ignored.
            seen.expect(JobId::new(id), 0.0, 500.0);
            seen.record_start(
                JobId::new(id),
                f64::from(u32::try_from(id).unwrap_or(0)) * 10.0,
            );
        }
        // Waits were 0 to 0.9 of the estimated ones.
        let band = seen.band().unwrap();
        let range = StartRange {
            earliest: 1020.0,
            latest: 1160.0,
        };
        assert_eq!(band.around(1000.0, 1200.0), Some(range));
        let expected = Errors {
            count: 10,
            mean: -55.0,
            low: -90.0,
            median: -50.0,
            high: -20.0,
        };
        assert_eq!(seen.errors(), expected);
        // A start that is expected at once has no band.
        assert_eq!(band.around(1000.0, 1000.0), None);
    }

    #[test]
    fn jobs_without_estimate_or_start_are_ignored() {
        let mut seen = Accuracy::new();
        seen.record_start(JobId::new(1), 5.0);
        seen.expect(JobId::new(2), 0.0, 3.0);
        seen.forget(JobId::new(2));
        seen.record_start(JobId::new(2), 3.0);
        assert_eq!(seen.errors(), Errors::default());
    }

    #[test]
    fn only_the_last_thousand_starts_count() {
        let mut seen = Accuracy::new();
        for id in 0..2000 {
            seen.expect(JobId::new(id), 0.0, 10.0);
            seen.record_start(JobId::new(id), if id < 1000 { 0.0 } else { 10.0 });
        }
        let errors = seen.errors();
        assert_eq!((errors.count, errors.mean), (1000, 0.0));
    }
}
