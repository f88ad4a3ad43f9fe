//! How good estimates have been: first estimates against the starts that came of them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Starts that are remembered.
const KEPT: usize = 1000;
/// Of fewer starts no band is told: it would say nothing.
const ENOUGH: usize = 10;
/// Waits, as estimated, below which a ratio would say nothing, in seconds.
const SHORT: f64 = 1.0;

/// A first estimate: when it was made, and of what start.
#[derive(Clone, Copy, Debug)]
struct First {
    made: f64,
    start: f64,
}

/// What came of a first estimate.
#[derive(Clone, Copy, Debug)]
struct Came {
    /// Actual less estimated start, in seconds.
    late: f64,
    /// Actual wait by estimated wait, from the time of the estimate on.
    ratio: Option<f64>,
}

/// First estimates of jobs that wait, and what came of those of the last thousand that started.
#[derive(Clone, Debug, Default)]
pub struct Accuracy {
    first: FxHashMap<u64, First>,
    came: VecDeque<Came>,
}

/// By how many seconds starts were late; early ones are negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Starts that are remembered; of none, all else is 0.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// A tenth was not above this.
    pub low: f64,
    /// Half was not above this.
    pub median: f64,
    /// Nine tenths were not above this.
    pub high: f64,
}

/// What estimated waits are to be multiplied by, so that four of five waits so far lie between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    low: f64,
    high: f64,
}

impl Accuracy {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the first estimate of a job; later ones do not count.
    pub fn expect(&mut self, id: u64, now: f64, start: f64) {
        self.first.entry(id).or_insert(First { made: now, start });
    }

    /// The job gets its resources now.
    pub fn started(&mut self, id: u64, now: f64) {
        let Some(first) = self.first.remove(&id) else {
            return;
        };
        if self.came.len() >= KEPT {
            self.came.pop_front();
        }
        let expected = first.start - first.made;
        self.came.push_back(Came {
            late: now - first.start,
            ratio: (expected >= SHORT).then(|| (now - first.made) / expected),
        });
    }

    /// The job does not wait any more.
    pub fn forget(&mut self, id: u64) {
        self.first.remove(&id);
    }

    /// The band around estimates, once there have been enough. Costs a look at all that is
    /// remembered.
    pub fn band(&self) -> Option<Band> {
        let ratios = sorted(self.came.iter().filter_map(|it| it.ratio));
        (ratios.len() >= ENOUGH).then(|| Band {
            low: quantile(&ratios, 10),
            high: quantile(&ratios, 90),
        })
    }

    /// How far off estimates have been.
    pub fn errors(&self) -> Errors {
        let late = sorted(self.came.iter().map(|it| it.late));
        let count = u32::try_from(late.len()).unwrap_or(u32::MAX);
        // The sum of nothing would be -0.0.
        let mean = late.iter().fold(0.0, |sum, it| sum + it) / f64::from(count.max(1));
        Errors {
            count: late.len(),
            mean,
            low: quantile(&late, 10),
            median: quantile(&late, 50),
            high: quantile(&late, 90),
        }
    }
}

impl Band {
    /// The bounds of a start that is expected now: waits turn out shorter or longer in proportion
    /// to what was expected of them. None for one that is expected at once.
    pub fn around(&self, now: f64, start: f64) -> Option<(f64, f64)> {
        let wait = start - now;
        (wait >= SHORT).then(|| {
            let bound = |ratio: f64| (now + wait * ratio).max(now);
            (bound(self.low), bound(self.high))
        })
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The value that so many of a hundred are not above; 0 of none.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len().saturating_sub(1) * percent + 50) / 100;
    sorted.get(place).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{Accuracy, Errors};

    #[test]
    fn there_is_a_band_once_ten_starts_have_been_seen() {
        let mut seen = Accuracy::new();
        for id in 0..10 {
            assert_eq!(seen.band(), None);
            seen.expect(id, 0.0, 100.0);
            // A second estimate is not the one that counts.
            seen.expect(id, 0.0, 500.0);
            seen.started(id, f64::from(u32::try_from(id).unwrap_or(0)) * 10.0);
        }
        // Waits were 0 to 0.9 of what was expected.
        let band = seen.band().unwrap();
        assert_eq!(band.around(1000.0, 1200.0), Some((1020.0, 1160.0)));
        let expected = Errors {
            count: 10,
            mean: -55.0,
            low: -90.0,
            median: -50.0,
            high: -20.0,
        };
        assert_eq!(seen.errors(), expected);
        // What is expected at once has no band.
        assert_eq!(band.around(1000.0, 1000.0), None);
    }

    #[test]
    fn what_was_not_estimated_or_never_started_does_not_count() {
        let mut seen = Accuracy::new();
        seen.started(1, 5.0);
        seen.expect(2, 0.0, 3.0);
        seen.forget(2);
        seen.started(2, 3.0);
        assert_eq!(seen.errors(), Errors::default());
    }

    #[test]
    fn only_the_last_thousand_starts_count() {
        let mut seen = Accuracy::new();
        for id in 0..2000 {
            seen.expect(id, 0.0, 10.0);
            seen.started(id, if id < 1000 { 0.0 } else { 10.0 });
        }
        let errors = seen.errors();
        assert_eq!((errors.count, errors.mean), (1000, 0.0));
    }
}
