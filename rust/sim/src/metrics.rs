//! The figures that schedulers are compared by.

use crate::results::Fate;
use crate::simulation::Simulation;
use crate::workload::real;

/// Run times below this many seconds count as this many in a slowdown, so that a second's wait of
/// a job of no length does not count as for ever (the bounded slowdown of Feitelson et al., 1997).
pub const SLOWDOWN_BOUND: f64 = 10.0;

/// What a simulation counts on its way.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Arrivals, completions and changes of nodes.
    pub events: u64,
    /// Passes of the scheduler.
    pub passes: u64,
    /// Jobs that are over.
    pub done: u64,
    /// Times that a job was taken off a failed node.
    pub failed: u64,
    /// The most jobs that waited when all passes of an instant were over.
    pub deepest: u32,
    /// Core-seconds held by jobs that are over or were taken off.
    pub core_seconds: f64,
    /// Core-seconds held up to the last submit time.
    pub(crate) early_core_seconds: f64,
    /// Those of all that came to nothing, because a node failed.
    pub lost_core_seconds: f64,
    /// The first submit time of the jobs that were started.
    pub(crate) first_submit: Option<f64>,
    /// When a job last gave its cores back.
    pub(crate) last_end: Option<f64>,
    /// Jobs that did not start at once: of these some are given estimates.
    pub(crate) waited: u64,
}

/// A distribution in four numbers; none is a number where there is nothing to count.
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
    /// Of these values, in any order.
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
    reason = "a place in the list"
)]
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = real(sorted.len() as u64 - 1) * part;
    let (below, rest) = (place.floor(), place.fract());
    let low = sorted[below as usize];
    let high = sorted.get(below as usize + 1).copied().unwrap_or(low);
    low + (high - low) * rest
}

/// How far estimates of starts were off, in seconds: of the jobs that had to wait and were given
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EstimateError {
    /// How many.
    pub jobs: u64,
    /// The absolute error.
    pub absolute: Spread,
    /// The mean of actual minus predicted start: above 0 where jobs start later than was said, and
    /// not a number where there are none.
    pub bias: f64,
}

/// Jobs of about the same size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeClass {
    /// The fewest cores.
    pub from: u32,
    /// The most cores.
    pub to: u32,
    /// How many jobs ran.
    pub jobs: u64,
    /// What they waited, in seconds.
    pub wait: Spread,
    /// Their bounded slowdown.
    pub slowdown: Spread,
}

/// The figures of a simulation. Waits and slowdowns are of the jobs that started and are over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Jobs of the workload.
    pub jobs: u64,
    /// Those that ran to their end.
    pub ended: u64,
    /// Those that were killed at their limit.
    pub killed: u64,
    /// Those that were lost with a node.
    pub lost: u64,
    /// Those that were denied.
    pub denied: u64,
    /// Those that never started.
    pub waiting: u64,
    /// Those that were backfilled.
    pub backfilled: u64,
    /// Seconds from submit to start.
    pub wait: Spread,
    /// (wait + run) / max(run, 10 s), at least 1.
    pub slowdown: Spread,
    /// From the first submit of a job that started to when the last one ended or was taken off a
    /// failed node, in seconds; not a number where none started.
    pub makespan: f64,
    /// Core-seconds that jobs held, those of failed nodes with them, as a part of all there were in
    /// that time; not a number where that is no time at all.
    pub utilisation: f64,
    /// The same from that first submit to the last one of all: while jobs come, without the end,
    /// when fewer and fewer are left. Not a number where that is no time at all.
    pub utilisation_to_last_submit: f64,
    /// Where estimates were asked for.
    pub estimates: Option<EstimateError>,
}

impl Summary {
    /// Backfilled jobs as a part of those that started and are over; not a number where none did.
    pub fn backfilled_share(&self) -> f64 {
        let over = self.ended + self.killed + self.lost;
        real(self.backfilled) / real(over)
    }
}

impl Simulation {
    /// Places of the jobs that started and are over, with wait and bounded slowdown.
    fn over(&self) -> impl Iterator<Item = (usize, f64, f64)> {
        let results = self.results();
        let submit = &self.workload().submit;
        let fates = results.fate().iter().enumerate();
        let over =
            fates.filter(|(_, fate)| matches!(fate, Fate::Ended | Fate::Killed | Fate::Lost));
        over.map(move |(place, _)| {
            let wait = results.start()[place] - submit[place];
            let run = results.end()[place] - results.start()[place];
            let slowdown = ((wait + run) / run.max(SLOWDOWN_BOUND)).max(1.0);
            (place, wait, slowdown)
        })
    }

    /// The figures, of what is over so far.
    pub fn summary(&self) -> Summary {
        let results = self.results();
        let mut summary = Summary {
            jobs: self.workload().len() as u64,
            ..Summary::default()
        };
        for fate in results.fate() {
            match fate {
                Fate::Ended => summary.ended += 1,
                Fate::Killed => summary.killed += 1,
                Fate::Lost => summary.lost += 1,
                Fate::Denied => summary.denied += 1,
                Fate::Waiting => summary.waiting += 1,
                Fate::Running => {}
            }
        }
        let (mut waits, mut slowdowns) = (Vec::new(), Vec::new());
        for (place, wait, slowdown) in self.over() {
            waits.push(wait);
            slowdowns.push(slowdown);
            summary.backfilled += u64::from(results.backfilled()[place]);
        }
        let tally = self.tally();
        let span = tally.first_submit.zip(tally.last_end);
        summary.makespan = span.map_or(f64::NAN, |(first, last)| last - first);
        let all = real(self.cores()) * summary.makespan;
        // Of a makespan of no time, 0 is divided by 0.
        summary.utilisation = tally.core_seconds / all;
        let last = self.workload().span().map(|(_, last)| last);
        let span = tally.first_submit.zip(last);
        let all = real(self.cores()) * span.map_or(f64::NAN, |(first, last)| last - first);
        summary.utilisation_to_last_submit = tally.early_core_seconds / all;
        summary.wait = Spread::of(waits);
        summary.slowdown = Spread::of(slowdowns);
        if !results.estimate().is_empty() {
            let pairs = results.estimate().iter().zip(results.start());
            let errors = pairs.map(|(predicted, start)| start - predicted);
            let errors: Vec<f64> = errors.filter(|it| !it.is_nan()).collect();
            let jobs = errors.len() as u64;
            summary.estimates = Some(EstimateError {
                jobs,
                bias: errors.iter().sum::<f64>() / real(jobs),
                absolute: Spread::of(errors.into_iter().map(f64::abs).collect()),
            });
        }
        summary
    }

    /// Waits and slowdowns by size: 1, 2, 3-4, 5-8 cores and so on, as far as there are jobs.
    pub fn size_classes(&self) -> Vec<SizeClass> {
        let mut classes: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); 33];
        for (place, wait, slowdown) in self.over() {
            let cores = self.results().cores()[place];
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
