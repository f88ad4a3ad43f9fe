//! The reservations of a group, from pass to pass.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::freed_intervals::FreedIntervals;
use super::pass::{JobDecision, Pass, Waiting};
use super::reservation::Reservation;
use crate::books::Books;
use crate::ids::{ClassId, GroupId};
use crate::machine::{Allocation, Machine, NodeAmount, Relocation, ShapeId};
use crate::plan::{Footprint, IncrementalPlan, allocation_of};
use crate::queue::{Key, QueueId};
use crate::quotas::Quotas;

/// The number of reservations that are moved up at once when something becomes free.
pub(super) const MOVED_AT_ONCE: usize = 256;

/// How late, in seconds, a job may start and still be planned to end at its reserved end.
const MAX_LATENESS_S: f64 = 0.25;

/// The reservations of a group of queues.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub by_id: HashMap<u64, Reservation, rustc_hash::FxBuildHasher>,
    /// The plan of the running jobs and these reservations, as of the last pass.
    pub kept: Option<IncrementalPlan>,
    /// Whether reservations are units of the whole machine, or amounts of nodes.
    pub in_units: Option<bool>,
    /// Whether the resources had expired at the last pass.
    expired: bool,
    /// How many are moved up at once.
    pub near: usize,
    /// Whether some have not been moved up to what has become free.
    behind: bool,
    /// The number of rounds in which they were examined.
    pub looks: u64,
    /// The first job that the last pass left pending, and that no limit and no node that is down
    /// stops.
    pub head: Option<Key>,
}

impl Default for Reserved {
    fn default() -> Self {
        Self {
            by_id: HashMap::default(),
            kept: None,
            in_units: None,
            expired: false,
            near: MOVED_AT_ONCE,
            behind: false,
            looks: 1,
            head: None,
        }
    }
}

impl Reserved {
    /// Begins a pass over a group's pending jobs, with reservations in step with the running jobs.
    pub fn begin(
        &mut self,
        books: &mut Books,
        (group, now): (GroupId, f64),
        line: Vec<Waiting>,
        quotas: Quotas,
    ) -> Pass {
        let mut freed = FreedIntervals::default();
        let mut kept = self.kept.take();
        let follows =
            |it: &mut IncrementalPlan| it.follow(books, group, now, |span| freed.add(span));
        let anew = !kept.as_mut().is_some_and(follows);
        if anew {
            kept = None;
            freed = FreedIntervals::all();
        }
        let mut pass = Pass {
            decisions: line.iter().map(|_| JobDecision::Pending).collect(),
            line,
            kept: kept.unwrap_or_else(|| IncrementalPlan::of(books, group, now)),
            quotas,
            freed,
            now,
            left: 0,
        };
        let expired = books.machine.expiration().is_some_and(|it| it <= now);
        if std::mem::replace(&mut self.expired, expired) != expired {
            pass.freed = FreedIntervals::all();
        }
        let in_units = Some(pass.kept.plan.is_aggregate());
        let other = std::mem::replace(&mut self.in_units, in_units) != in_units;
        self.keep(books, &mut pass, anew);
        if other || self.disturbed(books, &mut pass, anew) {
            pass.kept = IncrementalPlan::of(books, group, now);
            pass.quotas = Quotas::new(now);
            pass.freed = FreedIntervals::all();
            self.repair(books, &mut pass, other);
        }
        pass
    }

    /// Renumbers the nodes of all reservations.
    pub fn relocate(&mut self, relocation: &Relocation) {
        self.kept = None;
        for reservation in self.by_id.values_mut() {
            reservation.footprint.relocate(relocation);
        }
    }

    /// Finds the reservations of the pending jobs, and drops those of other jobs and of jobs whose
    /// request has changed.
    fn keep(&mut self, books: &Books, pass: &mut Pass, anew: bool) {
        let mut kept = 0;
        for it in &mut pass.line {
            let asked = asked(books, it.class);
            let known = self.by_id.get_mut(&it.key.id());
            let Some(known) = known.filter(|known| known.asked == asked) else {
                continue;
            };
            kept += 1;
            it.start = Some(known.start);
            if known.limit.total_cmp(&it.limit).is_ne() {
                let before = known.span();
                known.limit = it.limit;
                known.looked = 0;
                if !anew {
                    pass.kept.plan.release(&known.footprint, before);
                    pass.kept.plan.reserve(&known.footprint, known.span());
                    pass.freed.add(before);
                }
            }
        }
        if kept == self.by_id.len() {
            return;
        }
        let mut before = std::mem::take(&mut self.by_id);
        for it in pass.line.iter().filter(|it| it.start.is_some()) {
            let id = it.key.id();
            self.by_id.extend(before.remove(&id).map(|it| (id, it)));
        }
        if !anew {
            for gone in before.values() {
                pass.kept.plan.release(&gone.footprint, gone.span());
                pass.freed.add(gone.span());
            }
        }
    }

    /// Adds the reservations to the quotas, and to a new plan. Returns whether some no longer fit.
    fn disturbed(&self, books: &mut Books, pass: &mut Pass, anew: bool) -> bool {
        let limited = books.queues.any_limited();
        let end = books.machine.expiration().filter(|it| *it > pass.now);
        let end = end.unwrap_or(f64::INFINITY);
        for it in &pass.line {
            let Some(start) = it.start else {
                continue;
            };
            // A job that is a little late still ends as reserved.
            if start < pass.now && start + it.limit.min(MAX_LATENESS_S) <= pass.now {
                return true;
            }
            let span = (start, start + it.limit);
            if !anew && !limited {
                continue;
            }
            let Some(known) = self.by_id.get(&it.key.id()) else {
                continue;
            };
            if anew {
                let in_units = pass.kept.plan.is_aggregate();
                let gone = !known
                    .footprint
                    .suits(&books.machine, known.asked.0, in_units);
                if start.is_finite() && (gone || start >= end) {
                    return true;
                }
                pass.kept.plan.reserve(&known.footprint, span);
            }
            pass.quotas.reserve(books, it.class, &known.footprint, span);
        }
        pass.kept.plan.is_overfull() || pass.quotas.is_overfull()
    }

    /// Moves reservations that no longer fit later: in queue order, each as little as possible. If
    /// reservations change between units and amounts of nodes, in the order of their starts: then
    /// none needs to move.
    fn repair(&mut self, books: &mut Books, pass: &mut Pass, by_start: bool) {
        let starts = (0..pass.line.len()).filter_map(|it| Some((pass.line[it].start?, it)));
        let mut line: Vec<_> = starts.collect();
        if by_start {
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        for (start, index) in line {
            let it = pass.line[index];
            let within = (start.max(pass.now), f64::INFINITY);
            let found = pass.earliest(books, it, within);
            self.reserve(books, pass, index, found);
        }
    }

    /// Moves reservations up to what has become free: the next [`MOVED_AT_ONCE`] in the order of
    /// their starts, each to its earliest time with all others kept, until none moves; of the
    /// others those that can start now.
    pub fn compress(&mut self, books: &mut Books, pass: &mut Pass) {
        if pass.freed.is_empty() && self.behind {
            // It is now the time of something free that no reservation was moved up to.
            self.move_to_now(books, pass);
        }
        while !pass.freed.is_empty() {
            self.looks += 1;
            let near = pass.near(self.near);
            self.behind = near.len() < pass.waiting();
            while !pass.freed.is_empty() {
                let mut seen = std::mem::take(&mut pass.freed);
                for index in pass.by_start(&near) {
                    self.move_up(books, pass, index, &mut seen);
                }
            }
            if self.behind {
                self.move_to_now(books, pass);
            }
        }
    }

    /// Moves a reservation up to what has become free, if it was examined before; otherwise to any
    /// time.
    fn move_up(
        &mut self,
        books: &mut Books,
        pass: &mut Pass,
        index: usize,
        freed: &mut FreedIntervals,
    ) {
        let it = pass.line[index];
        let Some(reservation) = self.by_id.get_mut(&it.key.id()) else {
            return;
        };
        if reservation.start <= pass.now {
            return;
        }
        let before = reservation.span();
        let known = reservation.looked + 1 >= self.looks;
        reservation.looked = self.looks;
        let all = FreedIntervals::all();
        let from = if known { &*freed } else { &all };
        if let Some(found) = pass.earlier(books, it, reservation, from) {
            (reservation.start, reservation.footprint) = found;
            pass.line[index].start = Some(reservation.start);
            pass.freed.add(before);
            freed.add(before);
        }
    }

    /// Moves up the reservations that can start now, with all others kept.
    fn move_to_now(&mut self, books: &mut Books, pass: &mut Pass) {
        // By class, the shortest time for which it does not fit from now on.
        let mut unfit: FxHashMap<ClassId, f64> = FxHashMap::default();
        let now = (pass.now, pass.now.next_up());
        for index in 0..pass.line.len() {
            let it = pass.line[index];
            let Some(start) = it.start.filter(|it| *it > pass.now) else {
                continue;
            };
            // Its own reservation is not in its way.
            let limit = it.limit.min(start - pass.now);
            if unfit.get(&it.class).is_some_and(|least| limit >= *least) {
                continue;
            }
            let whole = Waiting { limit, ..it };
            if !pass.earliest(books, whole, now).0.is_finite() {
                unfit.insert(it.class, limit);
                continue;
            }
            let Some(reservation) = self.by_id.get_mut(&it.key.id()) else {
                continue;
            };
            let before = reservation.span();
            if let Some(found) = pass.earlier_within(books, it, reservation, std::iter::once(now)) {
                (reservation.start, reservation.footprint) = found;
                pass.line[index].start = Some(reservation.start);
                pass.freed.add(before);
                unfit.clear();
            }
        }
    }

    /// Starts the jobs whose reservation is due. Returns whether any has left a part of its
    /// reservation to others.
    pub fn start_due(&mut self, books: &mut Books, pass: &mut Pass) -> bool {
        let mut left = false;
        let in_units = pass.kept.plan.is_aggregate();
        for index in 0..pass.line.len() {
            let it = pass.line[index];
            let id = it.key.id();
            let is_due = it.start.is_some_and(|start| start <= pass.now) && pass.left > 0;
            let due = self.by_id.get(&id).filter(|_| is_due);
            let Some((footprint, span)) = due.map(|it| (it.footprint.clone(), it.span())) else {
                if in_units {
                    // Units stay reserved wherever a job starts, so new jobs keep their position.
                    self.come(books, pass, index);
                }
                continue;
            };
            pass.release(books, it, &footprint, span.0);
            let (plan, now) = (&pass.kept.plan, pass.now);
            let mut limit = it.limit;
            if span.0 < now {
                // Ends of windows are rounded.
                limit = (span.1 - now).next_down().next_down();
            }
            let shares = pass.quotas.place(books, it.class, limit, |books| {
                let shares = plan.place(books, it.class, now, limit).ok();
                let room = books.queues.room(asked(books, it.class).1);
                let shares = shares.filter(|it| room.admits(it));
                shares.or_else(|| picked(&books.machine, &footprint))
            });
            let Some(Ok(shares)) = shares else {
                pass.reserve(books, it, &footprint, span.0);
                continue;
            };
            self.by_id.remove(&id);
            pass.line[index].start = None;
            if pass.decide(books, index, shares, span.1).as_ref() != Some(&footprint) {
                pass.freed.add(span);
                left = true;
            }
            if matches!(pass.decisions[index], JobDecision::Stopped) {
                // It is treated as a new job.
                pass.decisions[index] = JobDecision::Pending;
            }
        }
        left
    }

    /// Makes a reservation for a job that has none, or starts it.
    pub fn come(&mut self, books: &mut Books, pass: &mut Pass, index: usize) {
        let it = pass.line[index];
        if it.start.is_some() || !matches!(pass.decisions[index], JobDecision::Pending) {
            return;
        }
        let class = &books.queue.classes[it.class.index()];
        if !books.may_run(class.shape, class.queue) {
            // A job that has started has used up the limits of its queue.
            return;
        }
        let found = pass.earliest(books, it, (pass.now, f64::INFINITY));
        let plan = &pass.kept.plan;
        if found.0 <= pass.now
            && pass.left > 0
            && let Ok(shares) = pass.quotas.place_in(plan, books, it.class, it.limit)
        {
            pass.decide(books, index, shares, pass.now + it.limit);
            return;
        }
        self.reserve(books, pass, index, found);
    }

    /// Records a reservation.
    fn reserve(
        &mut self,
        books: &mut Books,
        pass: &mut Pass,
        index: usize,
        (start, footprint): (f64, Footprint),
    ) {
        let it = pass.line[index];
        pass.reserve(books, it, &footprint, start);
        pass.line[index].start = Some(start);
        let reservation = Reservation {
            start,
            limit: it.limit,
            footprint,
            asked: asked(books, it.class),
            looked: self.looks,
        };
        self.by_id.insert(it.key.id(), reservation);
    }
}

/// The shape and queue of a class.
fn asked(books: &Books, class: ClassId) -> (ShapeId, QueueId) {
    let class = &books.queue.classes[class.index()];
    (class.shape, class.queue)
}

/// The allocation of a reservation, if it is free now.
fn picked(machine: &Machine, footprint: &Footprint) -> Option<Allocation> {
    let Footprint::Nodes(parts) = footprint else {
        return None;
    };
    let is_free = |part: &NodeAmount| {
        let free = machine.free(part.node);
        free.cores >= part.cores && free.gpus >= part.gpus && machine.is_up(part.node)
    };
    parts
        .iter()
        .all(is_free)
        .then(|| allocation_of(machine, parts))
}
