//! When waiting jobs will start, if running ones end as planned and nobody else comes.

use rustc_hash::{FxHashMap, FxHashSet};

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
    ///
    /// Under conservative backfill in one group of queues without limits an estimate is the job's
    /// reservation after one pass: it may start earlier, where the reservation moves up, but never
    /// later.
    pub fn estimate(&self, now: f64) -> Vec<Estimate> {
        let mut ahead = Forward::new(self, now);
        let order = ahead.engine.queued();
        let starts = ahead.starts(&order, &mut || true).unwrap_or_default();
        let estimate = |id: &u64| Estimate {
            id: *id,
            start: starts.get(id).copied(),
        };
        order.iter().map(estimate).collect()
    }

    /// As [`estimate`](Self::estimate), for some jobs: it ends when all of them have started.
    pub fn estimate_of(&self, now: f64, ids: &[u64]) -> Vec<Estimate> {
        let estimates = self.estimate_of_while(now, ids, &mut || true);
        estimates.unwrap_or_default()
    }

    /// As [`estimate_of`](Self::estimate_of), as long as `go_on`, which is asked at each step of
    /// the run forward, says so; nothing once it does not.
    pub fn estimate_of_while(
        &self,
        now: f64,
        ids: &[u64],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<Vec<Estimate>> {
        let starts = Forward::new(self, now).starts(ids, go_on)?;
        let estimate = |id: &u64| Estimate {
            id: *id,
            start: starts.get(id).copied(),
        };
        Some(ids.iter().map(estimate).collect())
    }
}

/// A copy of an engine that runs ahead of time.
pub(crate) struct Forward {
    pub engine: Engine,
    /// How far it has come.
    pub now: f64,
    begun: bool,
}

impl Forward {
    pub fn new(engine: &Engine, now: f64) -> Self {
        Self::of(engine.clone(), now)
    }

    /// An engine that is a copy already.
    pub fn of(mut engine: Engine, now: f64) -> Self {
        engine.books.end_overdue(now + 1.0, now);
        Self {
            engine,
            now,
            begun: false,
        }
    }

    /// Goes on to the next time at which something is decided. Returns what is; nothing when
    /// nothing more will be.
    pub fn step(&mut self) -> Option<Vec<Decision>> {
        loop {
            if self.begun {
                self.now = self.engine.books.end_next()?;
            }
            self.begun = true;
            self.engine.head()?;
            let decisions = self.engine.schedule(self.now, usize::MAX);
            if !decisions.is_empty() {
                return Some(decisions);
            }
        }
    }

    /// When these jobs start, those of them that do; nothing once `go_on` says no.
    fn starts(
        &mut self,
        ids: &[u64],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<FxHashMap<u64, f64>> {
        let waiting = ids.iter().filter(|id| self.engine.is_queued(**id));
        let mut wanted: FxHashSet<u64> = waiting.copied().collect();
        let mut starts = FxHashMap::default();
        starts.reserve(wanted.len());
        let mut note = |now: f64, decisions: Vec<Decision>, wanted: &mut FxHashSet<u64>| {
            for decision in decisions {
                match decision {
                    Decision::Alloc { id, .. } if wanted.remove(&id) => {
                        starts.insert(id, now);
                    }
                    Decision::Alloc { .. } => {}
                    Decision::Deny { id, .. } => {
                        wanted.remove(&id);
                    }
                }
            }
        };
        if self.keeps_promises() {
            if !self.engine.is_settled(self.now) {
                self.begun = true;
                let decisions = self.engine.schedule(self.now, usize::MAX);
                note(self.now, decisions, &mut wanted);
            }
            for id in wanted {
                if let Some(start) = self.engine.reservation(id).filter(|it| it.is_finite()) {
                    starts.insert(id, start);
                }
            }
            return Some(starts);
        }
        while !wanted.is_empty()
            && let Some(decisions) = self.step()
        {
            note(self.now, decisions, &mut wanted);
            if !go_on() {
                return None;
            }
        }
        Some(starts)
    }

    /// Whether no job starts later than the policy has said, once there has been a pass: what
    /// conservative backfill has reserved it does not give away, unless queues of other groups take
    /// it, or those that wait for the limits of their queue.
    fn keeps_promises(&self) -> bool {
        let books = &self.engine.books;
        let groups = books.queue.groups.iter();
        self.engine.policy == Policy::Conservative
            && !books.queues.any_limited()
            && groups.filter(|it| it.has_jobs()).count() <= 1
    }
}
