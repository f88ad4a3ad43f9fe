//! How good estimates have been: first estimates against the starts that came of them.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

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

/// First estimates of jobs that wait, and what came of those before them.
#[derive(Debug, Default)]
pub(crate) struct Band {
    first: HashMap<u64, First>,
    came: VecDeque<Came>,
}

impl Band {
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

    /// Within which bounds a start that is expected now would have been in 80 % of cases so far:
    /// waits turn out shorter or longer in proportion to what was expected of them.
    pub fn around(&self, now: f64, start: f64) -> Option<(f64, f64)> {
        let ratios = sorted(self.came.iter().filter_map(|it| it.ratio));
        let wait = start - now;
        (ratios.len() >= ENOUGH && wait >= SHORT).then(|| {
            let early = now + wait * quantile(&ratios, 10);
            (
                early.max(now),
                (now + wait * quantile(&ratios, 90)).max(now),
            )
        })
    }

    /// In numbers: seconds by which starts were late (early ones negative).
    pub fn describe(&self) -> Value {
        let late = sorted(self.came.iter().map(|it| it.late));
        let count = u32::try_from(late.len()).unwrap_or(u32::MAX);
        // The sum of nothing would be -0.0.
        let mean = late.iter().fold(0.0, |sum, it| sum + it) / f64::from(count.max(1));
        json!({
            "count": count,
            "mean": mean,
            "low": quantile(&late, 10),
            "median": quantile(&late, 50),
            "high": quantile(&late, 90),
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
    use super::Band;

    #[test]
    fn there_is_a_band_once_ten_starts_have_been_seen() {
        let mut band = Band::default();
        for id in 0..10 {
            assert_eq!(band.around(0.0, 100.0), None);
            band.expect(id, 0.0, 100.0);
            // A second estimate is not the one that counts.
            band.expect(id, 0.0, 500.0);
            band.started(id, f64::from(u32::try_from(id).unwrap_or(0)) * 10.0);
        }
        // Waits were 0 to 0.9 of what was expected.
        assert_eq!(band.around(1000.0, 1200.0), Some((1020.0, 1160.0)));
        let told = band.describe();
        assert_eq!(told["count"], 10);
        assert_eq!(told["mean"], -55.0);
        assert_eq!(told["low"], -90.0);
        assert_eq!(told["high"], -20.0);
        // What is expected at once has no band.
        assert_eq!(band.around(1000.0, 1000.0), None);
    }

    #[test]
    fn what_was_not_estimated_or_never_started_does_not_count() {
        let mut band = Band::default();
        band.started(1, 5.0);
        band.expect(2, 0.0, 3.0);
        band.forget(2);
        band.started(2, 3.0);
        assert_eq!(band.describe()["count"], 0);
    }

    #[test]
    fn only_the_last_thousand_starts_count() {
        let mut band = Band::default();
        for id in 0..2000 {
            band.expect(id, 0.0, 10.0);
            band.started(id, if id < 1000 { 0.0 } else { 10.0 });
        }
        assert_eq!(band.describe()["count"], 1000);
        assert_eq!(band.describe()["mean"], 0.0);
    }
}
