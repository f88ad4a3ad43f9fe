//! One pass over the line of a group.

use super::freed_intervals::FreedIntervals;
use super::reservations::Reservation;
use crate::books::Books;
use crate::engine::Decision;
use crate::ids::ClassId;
use crate::machine::Allocation;
use crate::plan::{Hold, Kept, planned};
use crate::queue::Key;
use crate::quotas::Quotas;

/// A job in line, as a pass sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub key: Key,
    pub class: ClassId,
    /// How long it is planned to run.
    pub limit: f64,
    /// When it is to start, once it has a reservation.
    pub start: Option<f64>,
}

/// What a pass has made of a job in line.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It waits.
    Waits,
    /// Its queue has no room for it, after all.
    Stopped,
    /// It has started, or is denied; an allocation is to be told with whether it was backfilled.
    Decided(Decision),
}

/// A group's line in a pass.
#[derive(Debug)]
pub(super) struct Pass {
    pub line: Vec<Waiting>,
    pub outcomes: Vec<Outcome>,
    pub kept: Kept,
    pub quotas: Quotas,
    pub freed: FreedIntervals,
    pub now: f64,
    /// Decisions that may still be made.
    pub left: usize,
}

impl Pass {
    /// How many have a reservation that is not due.
    pub fn waiting(&self) -> usize {
        let starts = self.line.iter().filter_map(|it| it.start);
        starts.filter(|it| *it > self.now).count()
    }

    /// The next reservations in the order of their starts, so many, and as many that have found no
    /// time yet.
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

    /// The same in the order of their starts, those without one first.
    pub fn by_start(&self, near: &[usize]) -> Vec<usize> {
        let start = |index: usize| self.line[index].start.filter(|it| it.is_finite());
        let start = |index: usize| start(index).unwrap_or(f64::NEG_INFINITY);
        let mut near = near.to_vec();
        near.sort_unstable_by(|a, b| start(*a).total_cmp(&start(*b)).then(a.cmp(b)));
        near
    }

    /// The earliest time from one on, and before another, at which a job can start, and what it
    /// would hold.
    pub fn earliest(&mut self, books: &mut Books, it: Waiting, within: (f64, f64)) -> (f64, Hold) {
        let plan = &mut self.kept.plan;
        self.quotas
            .earliest_in(plan, books, it.class, within, it.limit)
    }

    /// Gives up a reservation for the earliest one with something of what has become free, if that
    /// is earlier.
    pub fn earlier(
        &mut self,
        books: &mut Books,
        it: Waiting,
        reservation: &Reservation,
        freed: &FreedIntervals,
    ) -> Option<(f64, Hold)> {
        let start = reservation.start;
        // First where it would be over by then: what it holds is not in its way.
        let over = if start.is_finite() {
            start - it.limit
        } else {
            f64::INFINITY
        };
        for (from, before) in freed.starts((self.now, start), it.limit) {
            if from < over {
                let found = self.earliest(books, it, (from, before.min(over)));
                if found.0.is_finite() {
                    self.hold(books, it, &reservation.hold, start, true);
                    self.hold(books, it, &found.1, found.0, false);
                    return Some(found);
                }
            }
        }
        let over = over.next_down().next_down();
        let rest = freed.starts((self.now.max(over), start), it.limit);
        self.earlier_within(books, it, reservation, rest)
    }

    /// Gives up a reservation for the earliest one that begins within these spans, if there is one.
    pub fn earlier_within(
        &mut self,
        books: &mut Books,
        it: Waiting,
        reservation: &Reservation,
        within: impl Iterator<Item = (f64, f64)>,
    ) -> Option<(f64, Hold)> {
        let mut within = within.peekable();
        within.peek()?;
        let known = self.kept.plan.known();
        self.hold(books, it, &reservation.hold, reservation.start, true);
        for within in within {
            let found = self.earliest(books, it, within);
            if found.0.is_finite() {
                self.hold(books, it, &found.1, found.0, false);
                return Some(found);
            }
        }
        self.hold(books, it, &reservation.hold, reservation.start, false);
        self.kept.plan.know(known);
        None
    }

    /// Reserves something for a job from a time on, or with `back` gives that up.
    pub fn hold(&mut self, books: &mut Books, it: Waiting, hold: &Hold, start: f64, back: bool) {
        let span = (start, start + it.limit);
        self.kept.plan.hold(hold, span, back);
        self.quotas.reserve(books, it.class, hold, span, back);
    }

    /// Starts a job with these resources, to be planned until a time, unless its queue or the end of
    /// the resources is in the way. Returns what it holds.
    pub fn decide(
        &mut self,
        books: &mut Books,
        index: usize,
        shares: Allocation,
        until: f64,
    ) -> Option<Hold> {
        let it = self.line[index];
        let class = &books.queue.classes[it.class.index()];
        if !books.may_take(class.queue, &shares) {
            self.outcomes[index] = Outcome::Stopped;
            return None;
        }
        self.left -= 1;
        let end = match books.end(it.key.handle(), self.now) {
            Ok(end) => end,
            Err(note) => {
                self.outcomes[index] = Outcome::Decided(books.deny(it.key, note));
                return None;
            }
        };
        let hold = self.kept.plan.hold_of(&shares);
        let until = until.min(planned(end, self.now));
        self.kept.start(it.key.handle(), end, until);
        let span = (self.now, until);
        self.kept.plan.hold(&hold, span, false);
        self.quotas.take(class.queue, &shares, span);
        books.start(it.key.handle(), shares, self.now, end);
        self.outcomes[index] = Outcome::Decided(Decision::Alloc {
            id: it.key.id(),
            backfilled: false,
        });
        Some(hold)
    }
}
