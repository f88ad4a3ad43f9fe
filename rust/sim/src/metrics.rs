//! Metrics: the figures by which schedulers are compared.

use crate::results::JobResult;
use crate::simulation::Simulation;
use crate::workload::real;

/// Shorter run times, in seconds, count as this in a slowdown, so that the slowdown of a job
/// without run time is finite (the bounded slowdown of Feitelson et al., 1997).
pub const SLOWDOWN_BOUND_S: f64 = 10.0;

/// A distribution in four numbers; all are NaN if there are no values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The median; between two values, their mean.
    pub median: f64,
    /// The 95th percentile, linear between the values next to it.
    pub p95: f64,
    /// The largest.
    pub max: f64,
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            mean: f64::NAN,
            median: f64::NAN,
            p95: f64::NAN,
            max: f64::NAN,
        }
    }
}

impl Spread {
    /// The distribution of these values, which may be in any order.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let Some(max) = values.last().copied() else {
            return Self::default();
        };
        Self {
            mean: values.iter().sum::<f64>() / real(values.len() as u64),
            median: quantile(&values, 0.5),
            p95: quantile(&values, 0.95),
            max,
        }
    }
}

/// The quantile of sorted values, linear between two of them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index into the list"
)]
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let position = real(sorted.len() as u64 - 1) * part;
    let (below, rest) = (position.floor(), position.fract());
    let low = sorted[below as usize];
    let high = sorted.get(below as usize + 1).copied().unwrap_or(low);
    low + (high - low) * rest
}

/// The errors of estimated starts, in seconds, over the jobs that were pending and got an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EstimateError {
    /// The number of such jobs.
    pub jobs: u64,
    /// The absolute error.
    pub absolute: Spread,
    /// The mean of actual minus estimated start: positive if jobs start later than estimated, NaN
    /// without jobs.
    pub bias: f64,
}

/// Jobs of similar size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeClass {
    /// The fewest cores.
    pub from: u32,
    /// The most cores.
    pub to: u32,
    /// The number of jobs that ran.
    pub jobs: u64,
    /// Their waits, in seconds.
    pub wait: Spread,
    /// Their bounded slowdown.
    pub slowdown: Spread,
}

/// The metrics of a simulation. Waits and slowdowns are of the jobs that started and have ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Jobs of the workload.
    pub jobs: u64,
    /// Jobs that ran to their end.
    pub ended: u64,
    /// Jobs that were killed at their limit.
    pub killed: u64,
    /// Jobs that were lost with a node.
    pub lost: u64,
    /// Jobs that were denied.
    pub denied: u64,
    /// Jobs that never started.
    pub pending: u64,
    /// Jobs that were backfilled.
    pub backfilled: u64,
    /// Seconds from submit to start.
    pub wait: Spread,
    /// (wait + run) / max(run, 10 s), at least 1.
    pub slowdown: Spread,
    /// From the first submit of a job that started to the last end of a job, or its stop by a
    /// failed node, in seconds; NaN if none started.
    pub makespan: f64,
    /// Core-seconds used, those lost to failures included, as a fraction of all in the makespan;
    /// NaN if it has no length.
    pub utilisation: f64,
    /// Utilisation from the first submit of a job that started to the last submit of all, without
    /// the decline after the last arrival. NaN if that time has no length.
    pub utilisation_to_last_submit: f64,
    /// The errors of estimates, if they were requested.
    pub estimates: Option<EstimateError>,
}

impl Summary {
    /// Backfilled jobs as a fraction of those that started and have ended; NaN if none did.
    pub fn backfilled_share(&self) -> f64 {
        let over = self.ended + self.killed + self.lost;
        real(self.backfilled) / real(over)
    }
}

impl Simulation {
    /// The jobs that started and have ended: index, wait and bounded slowdown.
    fn over(&self) -> impl Iterator<Item = (usize, f64, f64)> {
        let results = self.results();
        let submit = &self.workload().submit;
        let fates = results.job_results().iter().enumerate();
        let over = fates.filter(|(_, result)| {
            matches!(
                result,
                JobResult::Completed | JobResult::Killed | JobResult::Lost
            )
        });
        over.map(move |(index, _)| {
            let wait = results.start()[index] - submit[index];
            let run = results.end()[index] - results.start()[index];
            let slowdown = ((wait + run) / run.max(SLOWDOWN_BOUND_S)).max(1.0);
            (index, wait, slowdown)
        })
    }

    /// The metrics of the jobs that have ended so far.
    pub fn summary(&self) -> Summary {
        let results = self.results();
        let mut summary = Summary {
            jobs: self.workload().len() as u64,
            ..Summary::default()
        };
        for result in results.job_results() {
            match result {
                JobResult::Completed => summary.ended += 1,
                JobResult::Killed => summary.killed += 1,
                JobResult::Lost => summary.lost += 1,
                JobResult::Denied => summary.denied += 1,
                JobResult::Pending => summary.pending += 1,
                JobResult::Running => {}
            }
        }
        let (mut waits, mut slowdowns) = (Vec::new(), Vec::new());
        for (index, wait, slowdown) in self.over() {
            waits.push(wait);
            slowdowns.push(slowdown);
            summary.backfilled += u64::from(results.backfilled()[index]);
        }
        let tally = self.tally();
        let span = tally.first_submit.zip(tally.last_end);
        summary.makespan = span.map_or(f64::NAN, |(first, last)| last - first);
        let all = real(self.cores()) * summary.makespan;
        // NaN (0 / 0) for a makespan without length.
        summary.utilisation = tally.core_seconds / all;
        let last = self.workload().span().map(|span| span.last);
        let span = tally.first_submit.zip(last);
        let all = real(self.cores()) * span.map_or(f64::NAN, |(first, last)| last - first);
        summary.utilisation_to_last_submit = tally.early_core_seconds / all;
        summary.wait = Spread::of(waits);
        summary.slowdown = Spread::of(slowdowns);
        if !results.estimate().is_empty() {
            let pairs = results.estimate().iter().zip(results.start());
            let errors = pairs.map(|(predicted, start)| start - predicted);
            let errors: Vec<f64> = errors.filter(|error| !error.is_nan()).collect();
            let jobs = errors.len() as u64;
            summary.estimates = Some(EstimateError {
                jobs,
                bias: errors.iter().sum::<f64>() / real(jobs),
                absolute: Spread::of(errors.into_iter().map(f64::abs).collect()),
            });
        }
        summary
    }

    /// Waits and slowdowns by size: 1, 2, 3-4, 5-8 cores and so on, without empty classes.
    pub fn size_classes(&self) -> Vec<SizeClass> {
        let mut classes: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); 33];
        for (index, wait, slowdown) in self.over() {
            let cores = self.results().cores()[index];
            let class = (u32::BITS - cores.saturating_sub(1).leading_zeros()) as usize;
            classes[class].0.push(wait);
            classes[class].1.push(slowdown);
        }
        let classes = (0u32..).zip(classes);
        let classes = classes.filter(|(_, (waits, _))| !waits.is_empty());
        let sized = classes.map(|(class, (waits, slowdowns))| SizeClass {
            from: match class {
                0 => 1,
                class => (1 << (class - 1)) + 1,
            },
            to: 1u32.checked_shl(class).unwrap_or(u32::MAX),
            jobs: waits.len() as u64,
            wait: Spread::of(waits),
            slowdown: Spread::of(slowdowns),
        });
        sized.collect()
    }
}
