//! When pending jobs will start, if running jobs end as planned and no others come.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::decision::Decision;
use crate::engine::Engine;
use crate::policy::Policy;

/// When a job is expected to start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The job.
    pub id: u64,
    /// The time, seconds since the epoch; `None` if no planned end lets it start, or if it would be
    /// denied.
    pub start: Option<f64>,
}

impl Engine {
    /// Estimates for every job in the queue that is not held, in order. The policy is run forward
    /// on a copy, in which every job ends at its planned end; one that is overdue ends a second from
    /// now. The engine itself stays as it is.
    ///
    /// Under conservative backfill in one group of queues without limits an estimate is the job's
    /// reservation after one pass: it may start earlier, if the reservation moves up, but never
    /// later.
    pub fn estimate(&self, now: f64) -> Vec<Estimate> {
        let mut copy = self.clone();
        let order = copy.queued();
        if self.is_planned(now) {
            return self.reservations(&order);
        }
        let ahead = Forecast::new(copy, now);
        self.estimates(ahead, &order, &mut || true).0
    }

    /// As [`estimate`](Self::estimate), for some jobs: it ends when all of them have started.
    pub fn estimate_of(&self, now: f64, ids: &[u64]) -> Vec<Estimate> {
        self.estimate_within(now, ids, usize::MAX)
    }

    /// As [`estimate_of`](Self::estimate_of), looking ahead over so many times at which jobs end: a
    /// job that starts later than that has no start. With 0 nothing is copied, and there are only
    /// reservations that say when jobs start.
    pub fn estimate_within(&self, now: f64, ids: &[u64], ends: usize) -> Vec<Estimate> {
        if self.is_planned(now) {
            return self.reservations(ids);
        }
        if ends == 0 {
            let unknown = |id: &u64| Estimate {
                id: *id,
                start: None,
            };
            return ids.iter().map(unknown).collect();
        }
        let mut left = ends;
        let mut go_on = || {
            left -= 1;
            left > 0
        };
        let ahead = Forecast::new(self.clone(), now);
        self.estimates(ahead, ids, &mut go_on).0
    }

    /// As [`estimate_of`](Self::estimate_of), as long as `go_on`, which is asked after each pass of
    /// the run forward, says so; `None` once it does not.
    pub fn estimate_of_while(
        &self,
        now: f64,
        ids: &[u64],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<Vec<Estimate>> {
        if self.is_planned(now) {
            return Some(self.reservations(ids));
        }
        let ahead = Forecast::new(self.clone(), now);
        let (estimates, is_whole) = self.estimates(ahead, ids, go_on);
        is_whole.then_some(estimates)
    }

    /// The starts of these jobs, in a copy that runs ahead; and whether `go_on` has let it.
    fn estimates(
        &self,
        mut ahead: Forecast,
        ids: &[u64],
        go_on: &mut dyn FnMut() -> bool,
    ) -> (Vec<Estimate>, bool) {
        let mut watched = ahead.can_start(ids.iter().copied());
        let mut starts = FxHashMap::default();
        starts.reserve(watched.len());
        let mut note = |_: &Engine, time: f64, decision: Decision| {
            if let Decision::Alloc { id, .. } = decision {
                starts.insert(id, time);
            }
        };
        let is_whole = if self.keeps_reservations() {
            ahead.pass(&mut watched, &mut note);
            let planned = ahead.engine.reservations(ids).into_iter();
            starts.extend(planned.filter_map(|it| Some((it.id, it.start?))));
            true
        } else {
            ahead.run(&mut watched, go_on, &mut note)
        };
        let estimate = |id: &u64| Estimate {
            id: *id,
            start: starts.get(id).copied(),
        };
        (ids.iter().map(estimate).collect(), is_whole)
    }

    /// The reservations of these jobs.
    fn reservations(&self, ids: &[u64]) -> Vec<Estimate> {
        let estimate = |id: &u64| Estimate {
            id: *id,
            start: self.reservation(*id).filter(|start| start.is_finite()),
        };
        ids.iter().map(estimate).collect()
    }

    /// Whether the reservations that there are say when jobs start: a pass at `now` changes none.
    fn is_planned(&self, now: f64) -> bool {
        self.keeps_reservations()
            && self.is_settled()
            && self.scratch.is_before_reservations(now)
            && self.books.first_end().is_none_or(|end| end > now)
    }

    /// Whether no job starts later than its reservation, once there has been a pass: what
    /// conservative backfill has reserved it does not give away, unless queues of other groups take
    /// it, or jobs that wait for the limits of their queue.
    fn keeps_reservations(&self) -> bool {
        let groups = self.books.queue.groups.iter();
        self.policy == Policy::Conservative
            && !self.books.queues.any_limited()
            && groups.filter(|it| it.has_jobs()).count() <= 1
    }
}

/// A copy of an engine that runs ahead of time.
pub(crate) struct Forecast {
    pub engine: Engine,
    /// How far it has come, in seconds since the epoch.
    pub now: f64,
    begun: bool,
}

impl Forecast {
    /// A forecast by an engine that is a copy already.
    pub fn new(mut engine: Engine, now: f64) -> Self {
        engine.books.end_overdue(now + 1.0, now);
        Self {
            engine,
            now,
            begun: false,
        }
    }

    /// Of some jobs those that are pending and not held.
    pub fn can_start(&self, ids: impl IntoIterator<Item = u64>) -> FxHashSet<u64> {
        let pending = ids.into_iter();
        let pending = pending.filter(|id| self.engine.priority(*id).is_some_and(|it| it > 0));
        pending.collect()
    }

    /// Goes on from planned end to planned end until each of the watched jobs has started or is
    /// denied, or nothing more will be decided; `note` is told of these decisions. Asks `go_on`
    /// after each pass; returns whether that has always let it.
    pub fn run(
        &mut self,
        watched: &mut FxHashSet<u64>,
        go_on: &mut dyn FnMut() -> bool,
        note: &mut dyn FnMut(&Engine, f64, Decision),
    ) -> bool {
        while !watched.is_empty() && self.pass(watched, note) {
            if !go_on() {
                return watched.is_empty();
            }
        }
        true
    }

    /// Goes on to the next planned end, but for the first time, and lets the engine decide. Returns
    /// whether there may be more to come.
    pub fn pass(
        &mut self,
        watched: &mut FxHashSet<u64>,
        note: &mut dyn FnMut(&Engine, f64, Decision),
    ) -> bool {
        if self.begun {
            let Some(end) = self.engine.books.end_next() else {
                return false;
            };
            self.now = end;
        }
        self.begun = true;
        if self.engine.head().is_none() {
            return false;
        }
        for decision in self.engine.schedule(self.now, usize::MAX) {
            let (Decision::Alloc { id, .. } | Decision::Deny { id, .. }) = &decision;
            if watched.remove(id) {
                note(&self.engine, self.now, decision);
            }
        }
        true
    }
}
