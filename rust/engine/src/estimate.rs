//! Estimates of the starts of pending jobs, if running jobs end as planned and no jobs are
//! submitted.

use penstock_jobspec::job_id::JobId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::engine::Engine;
use crate::policy::Policy;
use crate::queue::Key;
use crate::queue_scan::QueueScan;
use crate::verdict::Decision;

/// The expected start of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The job.
    pub id: JobId,
    /// The time, seconds since the epoch; `None` if no planned end lets it start, or if it would be
    /// denied.
    pub start: Option<f64>,
}

/// The limit of a forecast for estimates, so that its cost does not grow with the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// Maximum number of planned ends. With 0 nothing is copied: starts are those of reservations
    /// if a pass would not change these, otherwise `None`.
    pub ends: usize,
    /// Maximum number of decisions: starts and denials.
    pub decisions: usize,
    /// Maximum work, in steps of some nanoseconds; the pass that exceeds it is completed. Counted, not measured: one step per
    /// queue entry or planned end visited, 4 to 128 per job or placement examined.
    pub work: u64,
}

impl Horizon {
    /// No limit.
    pub const UNLIMITED: Self = Self {
        ends: usize::MAX,
        decisions: usize::MAX,
        work: u64::MAX,
    };

    /// All decisions at one time.
    const ONE_END: Self = Self {
        ends: 1,
        ..Self::UNLIMITED
    };
}

/// The starts of jobs in a forecast.
struct ForecastStarts {
    estimates: Vec<Estimate>,
    /// Whether the forecast was not stopped.
    is_whole: bool,
}

/// Estimates that are made in parts, so that others are served between them: a forecast on a copy of the engine, which
/// does not change when the engine does.
#[derive(Debug)]
pub struct SlicedEstimate {
    ids: Vec<JobId>,
    /// The number of `ids` that are in `watched` or have been.
    listed: usize,
    /// The jobs that are still to be listed: a scan of the queue, and their greatest number.
    unlisted: Option<(QueueScan, usize)>,
    /// The jobs that may still start in the forecast.
    watched: FxHashSet<JobId>,
    starts: FxHashMap<JobId, f64>,
    ahead: Forecast,
    source: StartSource,
}

/// The jobs of a [`SlicedEstimate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EstimatedJobs {
    /// These.
    Named(Vec<JobId>),
    /// The first ones of the queue, at most this many.
    First(usize),
}

/// The source of the starts of a [`SlicedEstimate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartSource {
    /// The reservations of the last pass.
    Reservations,
    /// The reservations of a pass that is still to be made.
    NextReservations,
    /// A forecast from planned end to planned end.
    Forecast,
}

impl SlicedEstimate {
    /// The greatest number of jobs that one part adds to those whose starts are recorded.
    const MAX_LISTED: usize = 4096;

    /// The number of jobs, of which [`ids`](Self::ids) has those that are listed so far.
    pub fn job_count(&self) -> usize {
        let unlisted = self.unlisted.as_ref().map_or(0, |(_, left)| *left);
        self.ids.len() + unlisted
    }

    /// The jobs, in the order in which they were named.
    pub fn ids(&self) -> &[JobId] {
        &self.ids
    }

    /// The work of all parts so far, as that of a [`Horizon`].
    pub fn work(&self) -> u64 {
        self.ahead.engine.state.work
    }

    /// Continues within the limits of `part`, for one pass at least. Returns whether all starts are known that can be.
    ///
    /// A pass that makes reservations for all jobs is not divided.
    pub fn advance(&mut self, part: Horizon) -> bool {
        if !self.list() {
            return false;
        }
        match self.source {
            StartSource::Reservations => return true,
            StartSource::NextReservations => {
                let starts = &mut self.starts;
                let mut ignore = |_: &Engine, _: f64, _: Decision| {};
                self.ahead
                    .advance(Horizon::ONE_END, &mut self.watched, &mut ignore);
                for id in &self.ids {
                    if self.ahead.engine.is_running(*id) {
                        starts.insert(*id, self.ahead.now);
                    }
                }
                self.source = StartSource::Reservations;
                return true;
            }
            StartSource::Forecast => {}
        }
        let starts = &mut self.starts;
        let mut record = |_: &Engine, time: f64, decision: Decision| {
            if let Decision::Alloc { id, .. } = decision {
                starts.insert(id, time);
            }
        };
        self.ahead.advance(part, &mut self.watched, &mut record)
    }

    /// Lists the next jobs. Returns whether these were the last.
    fn list(&mut self) -> bool {
        if let Some((scan, left)) = &mut self.unlisted {
            let state = &mut self.ahead.engine.state;
            let count = Self::MAX_LISTED.min(*left);
            let keys = std::iter::from_fn(|| scan.next(state));
            let before = self.ids.len();
            self.ids.extend(keys.take(count).map(Key::id));
            *left -= count;
            if *left == 0 || self.ids.len() < before + count {
                self.unlisted = None;
            }
        }
        if self.listed < self.ids.len() {
            let unlisted = self.ids.iter().skip(self.listed).take(Self::MAX_LISTED);
            self.watched.extend(self.ahead.can_start(unlisted.copied()));
            self.listed = (self.listed + Self::MAX_LISTED).min(self.ids.len());
        }
        self.unlisted.is_none() && self.listed == self.ids.len()
    }

    /// The expected start of a job, as far as the parts have found it.
    pub fn start(&self, id: JobId) -> Option<f64> {
        let start = self.starts.get(&id).copied();
        start.or_else(|| match self.source {
            StartSource::Reservations => planned_start(&self.ahead.engine, id),
            _ => None,
        })
    }
}

/// The reservation of a job.
fn planned_start(engine: &Engine, id: JobId) -> Option<f64> {
    engine.reservation(id).filter(|start| start.is_finite())
}

impl Engine {
    /// Begins estimates for these jobs that are made in parts, by [`SlicedEstimate::advance`].
    pub fn begin_estimate(&self, now: f64, jobs: EstimatedJobs) -> SlicedEstimate {
        let source = if self.is_planned(now) {
            StartSource::Reservations
        } else if self.keeps_reservations() {
            StartSource::NextReservations
        } else {
            StartSource::Forecast
        };
        let ahead = match source {
            StartSource::Reservations => Forecast::unchanged(self.clone(), now),
            _ => Forecast::new(self.clone(), now),
        };
        let (ids, unlisted, count) = match jobs {
            EstimatedJobs::Named(ids) => {
                let count = ids.len();
                (ids, None, count)
            }
            EstimatedJobs::First(max) => {
                let count = max.min(self.queue_len());
                let scan = QueueScan::new(&ahead.engine.state);
                (Vec::with_capacity(count), Some((scan, count)), count)
            }
        };
        // A table that grows moves all of its entries in one part.
        let mut watched = FxHashSet::default();
        watched.reserve(count);
        let mut starts = FxHashMap::default();
        starts.reserve(count);
        SlicedEstimate {
            ids,
            listed: 0,
            unlisted,
            watched,
            starts,
            ahead,
            source,
        }
    }

    /// Estimates for every job in the queue that is not held, in order. The policy runs forward on
    /// a copy in which every job ends at its planned end; an overdue job ends a second from now.
    /// The engine itself is unchanged.
    ///
    /// Under conservative backfill in one group of queues without limits an estimate is the job's
    /// reservation after one pass: it may start earlier, if the reservation moves up, but never
    /// later.
    pub fn estimate(&self, now: f64) -> Vec<Estimate> {
        let order = self.queue_order();
        if self.is_planned(now) {
            return self.reservations(&order);
        }
        let ahead = Forecast::new(self.clone(), now);
        self.estimates(ahead, &order, Horizon::UNLIMITED, &mut || true)
            .estimates
    }

    /// As [`estimate`](Self::estimate), for these jobs only: the forecast ends when all of them
    /// have started.
    pub fn estimate_of(&self, now: f64, ids: &[JobId]) -> Vec<Estimate> {
        self.estimate_within(now, ids, Horizon::UNLIMITED)
    }

    /// As [`estimate_of`](Self::estimate_of), within `horizon`: the start of a job that starts
    /// later is `None`.
    pub fn estimate_within(&self, now: f64, ids: &[JobId], horizon: Horizon) -> Vec<Estimate> {
        if self.is_planned(now) {
            return self.reservations(ids);
        }
        if horizon.ends == 0 {
            let unknown = |id: &JobId| Estimate {
                id: *id,
                start: None,
            };
            return ids.iter().map(unknown).collect();
        }
        let ahead = Forecast::new(self.clone(), now);
        self.estimates(ahead, ids, horizon, &mut || false).estimates
    }

    /// As [`estimate_of`](Self::estimate_of); calls `may_continue` after each pass of the forecast,
    /// and returns `None` once that returns `false`.
    pub fn estimate_of_while(
        &self,
        now: f64,
        ids: &[JobId],
        may_continue: &mut dyn FnMut() -> bool,
    ) -> Option<Vec<Estimate>> {
        if self.is_planned(now) {
            return Some(self.reservations(ids));
        }
        let ahead = Forecast::new(self.clone(), now);
        let found = self.estimates(ahead, ids, Horizon::ONE_END, may_continue);
        found.is_whole.then_some(found.estimates)
    }

    /// The starts of these jobs in a forecast on a copy, made in parts while `may_continue`.
    fn estimates(
        &self,
        mut ahead: Forecast,
        ids: &[JobId],
        part: Horizon,
        may_continue: &mut dyn FnMut() -> bool,
    ) -> ForecastStarts {
        let mut watched = ahead.can_start(ids.iter().copied());
        let mut starts = FxHashMap::default();
        starts.reserve(watched.len());
        let mut record = |_: &Engine, time: f64, decision: Decision| {
            if let Decision::Alloc { id, .. } = decision {
                starts.insert(id, time);
            }
        };
        let is_whole = if self.keeps_reservations() {
            ahead.advance(Horizon::ONE_END, &mut watched, &mut record);
            let planned = ahead.engine.reservations(ids).into_iter();
            starts.extend(planned.filter_map(|job| Some((job.id, job.start?))));
            true
        } else {
            loop {
                if ahead.advance(part, &mut watched, &mut record) {
                    break true;
                }
                if !may_continue() {
                    break false;
                }
            }
        };
        let estimate = |id: &JobId| Estimate {
            id: *id,
            start: starts.get(id).copied(),
        };
        ForecastStarts {
            estimates: ids.iter().map(estimate).collect(),
            is_whole,
        }
    }

    /// The reservations of these jobs.
    fn reservations(&self, ids: &[JobId]) -> Vec<Estimate> {
        let estimate = |id: &JobId| Estimate {
            id: *id,
            start: planned_start(self, *id),
        };
        ids.iter().map(estimate).collect()
    }

    /// Whether the reservations are the estimates: a pass at `now` changes none of them.
    fn is_planned(&self, now: f64) -> bool {
        self.keeps_reservations()
            && self.is_settled()
            && self.policy_state.is_before_reservations(now)
            && self.state.first_end().is_none_or(|end| end > now)
    }

    /// Whether no job starts later than its reservation, once there has been a pass. Conservative
    /// backfill keeps reservations unless jobs of other groups, or jobs that are pending because of
    /// the limits of their queue, use the resources.
    fn keeps_reservations(&self) -> bool {
        let groups = self.state.queue.groups.iter();
        self.policy == Policy::Conservative
            && !self.state.queues.any_limited()
            && groups.filter(|group| group.has_jobs()).count() <= 1
    }
}

/// A forecast: a copy of an engine whose time is advanced from planned end to planned end.
#[derive(Debug)]
pub(crate) struct Forecast {
    pub engine: Engine,
    /// Its current time, in seconds since the epoch.
    pub now: f64,
    /// Whether nothing more is decided at this time.
    is_decided: bool,
}

impl Forecast {
    /// A forecast on an engine that is already a copy.
    pub fn new(mut engine: Engine, now: f64) -> Self {
        engine.state.jobs.keep_removed_ids();
        engine.state.end_overdue(now + 1.0, now);
        Self::unchanged(engine, now)
    }

    /// The state itself, of which nothing but the reservations is read.
    fn unchanged(mut engine: Engine, now: f64) -> Self {
        // The work of the forecast alone is counted.
        engine.state.work = 0;
        Self {
            engine,
            now,
            is_decided: false,
        }
    }

    /// The jobs among `ids` that are pending and not held.
    pub fn can_start(&self, ids: impl IntoIterator<Item = JobId>) -> FxHashSet<JobId> {
        let pending = ids.into_iter();
        let pending = pending.filter(|id| {
            self.engine
                .priority(*id)
                .is_some_and(|priority| priority > 0)
        });
        pending.collect()
    }

    /// Advances from planned end to planned end until each of the watched jobs has started or is denied, within the limits
    /// of `part`, for one pass at least. Calls `record` with these decisions. Returns whether no more of them follow.
    pub fn advance(
        &mut self,
        part: Horizon,
        watched: &mut FxHashSet<JobId>,
        record: &mut dyn FnMut(&Engine, f64, Decision),
    ) -> bool {
        let work_end = self.engine.state.work.saturating_add(part.work);
        let mut decisions_left = part.decisions.max(1);
        for _ in 0..part.ends.max(1) {
            if watched.is_empty() {
                return true;
            }
            if self.is_decided {
                let Some(end) = self.engine.state.end_next() else {
                    return true;
                };
                self.now = end;
            }
            if self.engine.head().is_none() {
                return true;
            }
            let mut decisions = Vec::new();
            self.is_decided =
                self.engine
                    .schedule_until(self.now, decisions_left, work_end, &mut decisions);
            decisions_left -= decisions.len();
            for decision in decisions {
                let (Decision::Alloc { id, .. } | Decision::Deny { id, .. }) = &decision;
                if watched.remove(id) {
                    record(&self.engine, self.now, decision);
                }
            }
            if decisions_left == 0 || self.engine.state.work >= work_end {
                break;
            }
        }
        watched.is_empty()
    }
}
