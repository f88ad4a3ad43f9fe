//! When waiting jobs will start, if running ones end as planned and nobody else comes.

use std::collections::VecDeque;

use crate::engine::{Decision, Engine};
use crate::policy::Policy;

/// When a job is expected to start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The job.
    pub id: u64,
    /// The time; nothing where no planned end lets it start, or where it would be denied.
    pub start: Option<f64>,
}

impl Engine {
    /// Estimates for every job in the queue that is not held, in order. The policy is run forward
    /// on a copy, in which every job ends at its planned end; one that should have ended already
    /// ends a second from now. The engine itself is left as it is.
    pub fn estimate(&self, now: f64) -> Vec<Estimate> {
        let mut ahead = Forward::new(self, now);
        let order = ahead.engine.queued();
        let mut starts = rustc_hash::FxHashMap::default();
        starts.reserve(order.len());
        while let Some((time, ids)) = ahead.step() {
            starts.extend(ids.iter().map(|id| (*id, time)));
        }
        let estimate = |id| Estimate {
            id,
            start: starts
                .get(&id)
                .copied()
                .or_else(|| ahead.engine.planned(id)),
        };
        order.into_iter().map(estimate).collect()
    }

    /// As [`estimate`](Self::estimate), for some jobs: it ends when all of them have started.
    pub fn estimate_of(&self, now: f64, ids: &[u64]) -> Vec<Estimate> {
        let mut ahead = Forward::new(self, now);
        let mut found: rustc_hash::FxHashMap<u64, Option<f64>> = ids
            .iter()
            .filter(|id| self.is_queued(**id))
            .map(|id| (*id, None))
            .collect();
        let mut left = found.len();
        while left > 0
            && let Some((time, started)) = ahead.step()
        {
            for id in started {
                if let Some(start) = found.get_mut(&id) {
                    *start = Some(time);
                    left -= 1;
                }
            }
        }
        let estimate = |id: &u64| Estimate {
            id: *id,
            start: found
                .get(id)
                .copied()
                .flatten()
                .or_else(|| ahead.engine.planned(*id)),
        };
        ids.iter().map(estimate).collect()
    }

    /// The time of a reservation, if there is to be one.
    fn planned(&self, id: u64) -> Option<f64> {
        self.reservation(id).filter(|start| start.is_finite())
    }
}

/// A copy of an engine that runs ahead of time.
pub(crate) struct Forward {
    pub engine: Engine,
    now: f64,
    begun: bool,
}

impl Forward {
    pub fn new(engine: &Engine, now: f64) -> Self {
        let mut engine = engine.clone();
        engine.books.end_overdue(now + 1.0, now);
        Self {
            engine,
            now,
            begun: false,
        }
    }

    /// Goes on to the next time at which something starts. Returns that time, and what starts;
    /// nothing when nothing more will.
    pub fn step(&mut self) -> Option<(f64, Vec<u64>)> {
        loop {
            if self.begun {
                // What conservative backfill has reserved, it does not give away.
                if self.engine.policy == Policy::Conservative {
                    return None;
                }
                self.now = self.engine.books.end_next()?;
            }
            self.begun = true;
            self.engine.head()?;
            let decisions = self.engine.schedule(self.now, usize::MAX);
            let ids = decisions.into_iter().filter_map(|decision| match decision {
                Decision::Alloc { id, .. } => Some(id),
                Decision::Deny { .. } => None,
            });
            let ids: Vec<u64> = ids.collect();
            if !ids.is_empty() {
                return Some((self.now, ids));
            }
        }
    }
}

/// How far estimates have been off: actual less estimated start, in seconds, of the jobs last
/// seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accuracy {
    errors: VecDeque<f64>,
    count: u64,
    sum: f64,
}

impl Accuracy {
    /// Errors that quantiles are taken of.
    const KEPT: usize = 4096;

    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A job has started at `actual`, where `estimated` had been said.
    pub fn record(&mut self, estimated: f64, actual: f64) {
        let error = actual - estimated;
        if !error.is_finite() {
            return;
        }
        if self.errors.len() == Self::KEPT {
            self.errors.pop_front();
        }
        self.errors.push_back(error);
        self.count += 1;
        self.sum += error;
    }

    /// Jobs seen.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean error of all jobs seen; positive where they start later than estimated.
    pub fn mean(&self) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a mean of so many is not that exact"
        )]
        let count = self.count as f64;
        (self.count > 0).then(|| self.sum / count)
    }

    /// The error that a share of the jobs last seen stays below: 0.1 and 0.9 make a band in which
    /// four of five starts have been.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let mut errors: Vec<f64> = self.errors.iter().copied().collect();
        let last = errors.len().checked_sub(1)?;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place in a short list"
        )]
        let place = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
        let (_, error, _) = errors.select_nth_unstable_by(place.min(last), f64::total_cmp);
        Some(*error)
    }
}
