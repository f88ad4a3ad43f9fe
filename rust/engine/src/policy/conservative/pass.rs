//! One pass over the pending jobs of a group.

use super::freed_intervals::FreedIntervals;
use super::reservation::Reservation;
use crate::books::Books;
use crate::decision::Decision;
use crate::ids::ClassId;
use crate::machine::Allocation;
use crate::plan::{Footprint, IncrementalPlan, planned_end};
use crate::queue::Key;
use crate::quotas::Quotas;

/// A pending job in a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub key: Key,
    pub class: ClassId,
    /// How long it is planned to run.
    pub limit: f64,
    /// Its reserved start, once it has a reservation.
    pub start: Option<f64>,
}

/// What a pass has decided about a pending job.
#[derive(Debug)]
pub(super) enum JobDecision {
    /// It stays pending.
    Pending,
    /// Its queue has no room for it, after all.
    Stopped,
    /// It has started, or is denied; whether an allocation was backfilled is set later.
    Decided(Decision),
}

/// The pending jobs of a group in a pass.
#[derive(Debug)]
pub(super) struct Pass {
    pub line: Vec<Waiting>,
    pub decisions: Vec<JobDecision>,
    pub kept: IncrementalPlan,
    pub quotas: Quotas,
    pub freed: FreedIntervals,
    pub now: f64,
    /// Decisions that may still be made.
    pub left: usize,
}

impl Pass {
    /// The number of reservations that are not due.
    pub fn waiting(&self) -> usize {
        let starts = self.line.iter().filter_map(|it| it.start);
        starts.filter(|it| *it > self.now).count()
    }

    /// The next `count` reservations in the order of their starts, and as many without a time.
    pub fn near(&self, count: usize) -> Vec<usize> {
        let starts = (0..self.line.len()).filter_map(|it| Some((self.line[it].start?, it)));
        let (never, mut near): (Vec<_>, Vec<_>) = starts
            .filter(|it| it.0 > self.now)
            .partition(|it| it.0.is_infinite());
        if near.len() > count {
            near.select_nth_unstable_by(count, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            near.truncate(count);
        }
        let near = never.into_iter().take(count).chain(near);
        near.map(|it| it.1).collect()
    }

    /// The same in the order of their starts, those without a time first.
    pub fn by_start(&self, near: &[usize]) -> Vec<usize> {
        let start = |index: usize| self.line[index].start.filter(|it| it.is_finite());
        let start = |index: usize| start(index).unwrap_or(f64::NEG_INFINITY);
        let mut near = near.to_vec();
        near.sort_unstable_by(|a, b| start(*a).total_cmp(&start(*b)).then(a.cmp(b)));
        near
    }

    /// The earliest start of a job within a range, and what it would reserve.
    pub fn earliest(
        &mut self,
        books: &mut Books,
        it: Waiting,
        within: (f64, f64),
    ) -> (f64, Footprint) {
        let plan = &mut self.kept.plan;
        self.quotas
            .earliest_in(plan, books, it.class, within, it.limit)
    }

    /// Replaces a reservation by the earliest one that uses some of what has become free, if that
    /// is earlier.
    pub fn earlier(
        &mut self,
        books: &mut Books,
        it: Waiting,
        reservation: &Reservation,
        freed: &FreedIntervals,
    ) -> Option<(f64, Footprint)> {
        let start = reservation.start;
        // First so that it ends before its reservation begins, which is then not in its way.
        let over = if start.is_finite() {
            start - it.limit
        } else {
            f64::INFINITY
        };
        for (from, before) in freed.starts((self.now, start), it.limit) {
            if from < over {
                let found = self.earliest(books, it, (from, before.min(over)));
                if found.0.is_finite() {
                    self.release(books, it, &reservation.footprint, start);
                    self.reserve(books, it, &found.1, found.0);
                    return Some(found);
                }
            }
        }
        let over = over.next_down().next_down();
        let rest = freed.starts((self.now.max(over), start), it.limit);
        self.earlier_within(books, it, reservation, rest)
    }

    /// Replaces a reservation by the earliest one that begins within these intervals, if there is
    /// one.
    pub fn earlier_within(
        &mut self,
        books: &mut Books,
        it: Waiting,
        reservation: &Reservation,
        within: impl Iterator<Item = (f64, f64)>,
    ) -> Option<(f64, Footprint)> {
        let mut within = within.peekable();
        within.peek()?;
        let known = self.kept.plan.start_bounds();
        self.release(books, it, &reservation.footprint, reservation.start);
        for within in within {
            let found = self.earliest(books, it, within);
            if found.0.is_finite() {
                self.reserve(books, it, &found.1, found.0);
                return Some(found);
            }
        }
        self.reserve(books, it, &reservation.footprint, reservation.start);
        self.kept.plan.restore_start_bounds(known);
        None
    }

    /// Reserves resources for a job from `start` on.
    pub fn reserve(&mut self, books: &mut Books, it: Waiting, footprint: &Footprint, start: f64) {
        let span = (start, start + it.limit);
        self.kept.plan.reserve(footprint, span);
        self.quotas.reserve(books, it.class, footprint, span);
    }

    /// Releases resources that were reserved for a job from `start` on.
    pub fn release(&mut self, books: &mut Books, it: Waiting, footprint: &Footprint, start: f64) {
        let span = (start, start + it.limit);
        self.kept.plan.release(footprint, span);
        self.quotas.release(books, it.class, footprint, span);
    }

    /// Starts a job with this allocation, planned until `until`, unless its queue or the expiration
    /// of the resources prevents it. Returns what it holds in the plan.
    pub fn decide(
        &mut self,
        books: &mut Books,
        index: usize,
        shares: Allocation,
        until: f64,
    ) -> Option<Footprint> {
        let it = self.line[index];
        let class = &books.queue.classes[it.class.index()];
        if !books.may_take(class.queue, &shares) {
            self.decisions[index] = JobDecision::Stopped;
            return None;
        }
        self.left -= 1;
        let end = match books.end(it.key.handle(), self.now) {
            Ok(end) => end,
            Err(reason) => {
                self.decisions[index] = JobDecision::Decided(books.deny(it.key, &reason));
                return None;
            }
        };
        let footprint = self.kept.plan.footprint_of(&shares);
        let until = until.min(planned_end(end, self.now));
        self.kept.start(it.key.handle(), end, until);
        let span = (self.now, until);
        self.kept.plan.reserve(&footprint, span);
        self.quotas.take(class.queue, &shares, span);
        books.start(it.key.handle(), shares, self.now, end);
        self.decisions[index] = JobDecision::Decided(Decision::Alloc {
            id: it.key.id(),
            backfilled: false,
        });
        Some(footprint)
    }
}
