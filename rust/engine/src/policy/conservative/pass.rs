//! One pass over the pending jobs of a group.

use super::freed_intervals::FreedIntervals;
use crate::availability_profile::Interval;
use crate::ids::ClassId;
use crate::node_table::Allocation;
use crate::plan::{Footprint, IncrementalPlan, PlannedStart, planned_end};
use crate::queue::{ClassKey, Key};
use crate::quotas::Quotas;
use crate::state::EngineState;
use crate::verdict::Decision;

/// A pending job in a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassJob {
    pub key: Key,
    pub class: ClassId,
    /// The planned run time, in seconds.
    pub limit: f64,
    /// Its reserved start, once it has a reservation.
    pub start: Option<f64>,
}

/// Resources and a start time set aside for a pending job.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub start: f64,
    pub limit: f64,
    pub footprint: Footprint,
    /// The shape and queue of its job.
    pub class: ClassKey,
    /// The round in which it was last examined.
    pub examined_in: u64,
}

impl Reservation {
    /// When its resources are reserved.
    pub fn interval(&self) -> Interval {
        Interval::lasting(self.start, self.limit)
    }
}

/// The decision of a pass about a pending job.
#[derive(Debug)]
pub(super) enum JobDecision {
    /// It stays pending.
    Pending,
    /// Its queue has reached a limit during the pass.
    Stopped,
    /// It has started, or is denied; whether an allocation was backfilled is set later.
    Decided(Decision),
}

/// The pending jobs of a group in a pass.
#[derive(Debug)]
pub(super) struct Pass {
    pub jobs: Vec<PassJob>,
    pub decisions: Vec<JobDecision>,
    pub incremental: IncrementalPlan,
    pub quotas: Quotas,
    pub freed: FreedIntervals,
    pub now: f64,
    /// The number of decisions that may still be made.
    pub left: usize,
}

impl Pass {
    /// The number of reservations that are not due.
    pub fn future_count(&self) -> usize {
        let starts = self.jobs.iter().filter_map(|job| job.start);
        starts.filter(|start| *start > self.now).count()
    }

    /// The next `count` reservations in the order of their starts, and as many without a time.
    pub fn near(&self, count: usize) -> Vec<usize> {
        let starts =
            (0..self.jobs.len()).filter_map(|index| Some((self.jobs[index].start?, index)));
        let (never, mut near): (Vec<_>, Vec<_>) = starts
            .filter(|(start, _)| *start > self.now)
            .partition(|(start, _)| start.is_infinite());
        if near.len() > count {
            near.select_nth_unstable_by(count, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            near.truncate(count);
        }
        let near = never.into_iter().take(count).chain(near);
        near.map(|(_, index)| index).collect()
    }

    /// The same in the order of their starts, those without a time first.
    pub fn by_start(&self, near: &[usize]) -> Vec<usize> {
        let start = |index: usize| self.jobs[index].start.filter(|start| start.is_finite());
        let start = |index: usize| start(index).unwrap_or(f64::NEG_INFINITY);
        let mut near = near.to_vec();
        near.sort_unstable_by(|a, b| start(*a).total_cmp(&start(*b)).then(a.cmp(b)));
        near
    }

    /// The earliest start of a job within a range.
    pub fn earliest(
        &mut self,
        state: &mut EngineState,
        job: PassJob,
        starts: Interval,
    ) -> PlannedStart {
        let plan = &mut self.incremental.plan;
        self.quotas
            .earliest_in(plan, state, job.class, starts, job.limit)
    }

    /// Replaces a reservation by the earliest one that uses freed resources, if that is earlier.
    pub fn earlier(
        &mut self,
        state: &mut EngineState,
        job: PassJob,
        reservation: &Reservation,
        freed: &FreedIntervals,
    ) -> Option<PlannedStart> {
        let start = reservation.start;
        // First try to end before the own reservation begins, which then does not conflict.
        let over = if start.is_finite() {
            start - job.limit
        } else {
            f64::INFINITY
        };
        for starts in freed.starts(Interval::new(self.now, start), job.limit) {
            if starts.start < over {
                let found = self.earliest(
                    state,
                    job,
                    Interval::new(starts.start, starts.end.min(over)),
                );
                if found.time.is_finite() {
                    self.release(state, job, &reservation.footprint, start);
                    self.reserve(state, job, &found.footprint, found.time);
                    return Some(found);
                }
            }
        }
        let over = over.next_down().next_down();
        let rest = freed.starts(Interval::new(self.now.max(over), start), job.limit);
        self.earlier_within(state, job, reservation, rest)
    }

    /// Replaces a reservation by the earliest one that begins within these intervals, if there is
    /// one.
    pub fn earlier_within(
        &mut self,
        state: &mut EngineState,
        job: PassJob,
        reservation: &Reservation,
        within: impl Iterator<Item = Interval>,
    ) -> Option<PlannedStart> {
        let mut within = within.peekable();
        within.peek()?;
        let known = self.incremental.plan.start_bounds();
        self.release(state, job, &reservation.footprint, reservation.start);
        for within in within {
            let found = self.earliest(state, job, within);
            if found.time.is_finite() {
                self.reserve(state, job, &found.footprint, found.time);
                return Some(found);
            }
        }
        self.reserve(state, job, &reservation.footprint, reservation.start);
        self.incremental.plan.restore_start_bounds(known);
        None
    }

    /// Reserves resources for a job from `start` on.
    pub fn reserve(
        &mut self,
        state: &mut EngineState,
        job: PassJob,
        footprint: &Footprint,
        start: f64,
    ) {
        let during = Interval::lasting(start, job.limit);
        self.incremental.plan.reserve(footprint, during);
        self.quotas.reserve(state, job.class, footprint, during);
    }

    /// Releases resources that were reserved for a job from `start` on.
    pub fn release(
        &mut self,
        state: &mut EngineState,
        job: PassJob,
        footprint: &Footprint,
        start: f64,
    ) {
        let during = Interval::lasting(start, job.limit);
        self.incremental.plan.release(footprint, during);
        self.quotas.release(state, job.class, footprint, during);
    }

    /// Starts a job with this allocation, planned until `until`, unless its queue or the expiration
    /// of the resources prevents it. Returns its footprint in the plan.
    pub fn decide(
        &mut self,
        state: &mut EngineState,
        index: usize,
        shares: Allocation,
        until: f64,
    ) -> Option<Footprint> {
        let job = self.jobs[index];
        let class = &state.queue.classes[job.class.index()];
        if state.may_take(class.queue, &shares).is_err() {
            self.decisions[index] = JobDecision::Stopped;
            return None;
        }
        self.left -= 1;
        let end = match state.end(job.key.handle(), self.now) {
            Ok(end) => end,
            Err(reason) => {
                self.decisions[index] = JobDecision::Decided(state.deny(job.key, &reason));
                return None;
            }
        };
        let footprint = self.incremental.plan.footprint_of(&shares);
        let until = until.min(planned_end(end, self.now));
        self.incremental.start(job.key.handle(), end, until);
        let during = Interval::new(self.now, until);
        self.incremental.plan.reserve(&footprint, during);
        self.quotas.take(class.queue, &shares, during);
        state.start(job.key.handle(), shares, self.now, end);
        self.decisions[index] = JobDecision::Decided(Decision::Alloc {
            id: job.key.id(),
            backfilled: false,
        });
        Some(footprint)
    }
}
