//! The reservations of a group, from pass to pass.

use std::collections::HashMap;

use penstock_jobspec::job_id::JobId;
use rustc_hash::FxHashMap;

use super::freed_intervals::FreedIntervals;
use super::pass::{JobDecision, Pass, PassJob, Reservation};
use crate::availability_profile::Interval;
use crate::ids::{ClassId, GroupId};
use crate::node_table::{Allocation, NodeAmount, NodeTable, Relocation};
use crate::plan::{Footprint, IncrementalPlan, PlannedStart, allocation_of};
use crate::queue::Key;
use crate::quotas::Quotas;
use crate::state::EngineState;

/// The number of reservations that are moved up at once when resources become free.
pub(super) const MAX_MOVED_RESERVATIONS: usize = 256;

/// The greatest delay, in seconds, of a start that is still planned to end at its reserved end.
const MAX_LATENESS_S: f64 = 0.25;

/// The origin of the plan of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanOrigin {
    /// It is that of the former pass, updated; it has the reservations.
    Followed,
    /// It is new; only running jobs are in it.
    Recomputed,
}

/// Whether the reservations of the former pass still fit, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReservationFit {
    /// All fit; the plan and the quotas have them.
    Fitting,
    /// Some no longer fit; the plan and the quotas may have only some.
    Conflicting,
}

/// The order in which reservations that no longer fit are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepairOrder {
    /// Queue order.
    Queue,
    /// The order of their starts, when reservations change between units and amounts of nodes: then
    /// none needs to move.
    Start,
}

/// The reservations of a group of queues.
#[derive(Clone, Debug)]
pub(super) struct GroupReservations {
    pub by_id: HashMap<JobId, Reservation, rustc_hash::FxBuildHasher>,
    /// The plan of the running jobs and these reservations, as of the last pass.
    pub incremental: Option<IncrementalPlan>,
    /// Whether reservations are units of the whole inventory, or amounts of nodes.
    pub in_units: Option<bool>,
    /// Whether the resources had expired at the last pass.
    expired: bool,
    /// The number that is moved up at once.
    pub near: usize,
    /// Whether some reservations have not been moved up to freed resources yet.
    behind: bool,
    /// The number of rounds in which they were examined.
    pub rounds: u64,
    /// The first job that the last pass left pending, except jobs that the limits of their queue or
    /// nodes that are down exclude.
    pub head: Option<Key>,
}

impl Default for GroupReservations {
    fn default() -> Self {
        Self {
            by_id: HashMap::default(),
            incremental: None,
            in_units: None,
            expired: false,
            near: MAX_MOVED_RESERVATIONS,
            behind: false,
            rounds: 1,
            head: None,
        }
    }
}

impl GroupReservations {
    /// Begins a pass over a group's pending jobs, and updates the reservations to the running jobs.
    pub fn begin(
        &mut self,
        state: &mut EngineState,
        group: GroupId,
        now: f64,
        jobs: Vec<PassJob>,
        quotas: Quotas,
    ) -> Pass {
        let (incremental, freed, origin) = match self.follow_plan(state, group, now) {
            Some((plan, freed)) => (plan, freed, PlanOrigin::Followed),
            None => (
                IncrementalPlan::of(state, group, now),
                FreedIntervals::all(),
                PlanOrigin::Recomputed,
            ),
        };
        let mut pass = Pass {
            decisions: jobs.iter().map(|_| JobDecision::Pending).collect(),
            jobs,
            incremental,
            quotas,
            freed,
            now,
            left: 0,
        };
        let expired = state
            .node_table
            .expiration()
            .is_some_and(|expiration| expiration <= now);
        if std::mem::replace(&mut self.expired, expired) != expired {
            pass.freed = FreedIntervals::all();
        }
        let in_units = Some(pass.incremental.plan.is_aggregate());
        let has_other_kind = std::mem::replace(&mut self.in_units, in_units) != in_units;
        self.carry_over(state, &mut pass, origin);
        let order = if has_other_kind {
            Some(RepairOrder::Start)
        } else {
            match self.reserve_known(state, &mut pass, origin) {
                ReservationFit::Fitting => None,
                ReservationFit::Conflicting => Some(RepairOrder::Queue),
            }
        };
        if let Some(order) = order {
            pass.incremental = IncrementalPlan::of(state, group, now);
            pass.quotas = Quotas::new(now);
            pass.freed = FreedIntervals::all();
            self.repair(state, &mut pass, order);
        }
        pass
    }

    /// Takes the plan of the last pass and applies the changes since, with the intervals in which
    /// resources have become free. `None` if the plan has to be recomputed.
    fn follow_plan(
        &mut self,
        state: &mut EngineState,
        group: GroupId,
        now: f64,
    ) -> Option<(IncrementalPlan, FreedIntervals)> {
        let mut plan = self.incremental.take()?;
        let mut freed = FreedIntervals::default();
        let is_current = plan.follow(state, group, now, |interval| freed.add(interval));
        is_current.then_some((plan, freed))
    }

    /// Renumbers the nodes of all reservations.
    pub fn relocate(&mut self, relocation: &Relocation) {
        self.incremental = None;
        for reservation in self.by_id.values_mut() {
            reservation.footprint.relocate(relocation);
        }
    }

    /// Finds the reservations of the pending jobs, and drops those of other jobs and of jobs whose
    /// request has changed.
    fn carry_over(&mut self, state: &EngineState, pass: &mut Pass, origin: PlanOrigin) {
        let mut kept = 0;
        for job in &mut pass.jobs {
            let class = state.queue.key_of(job.class);
            let known = self.by_id.get_mut(&job.key.id());
            let Some(known) = known.filter(|known| known.class == class) else {
                continue;
            };
            kept += 1;
            job.start = Some(known.start);
            if known.limit.total_cmp(&job.limit).is_ne() {
                let before = known.interval();
                known.limit = job.limit;
                known.examined_in = 0;
                if origin == PlanOrigin::Followed {
                    pass.incremental.plan.release(&known.footprint, before);
                    pass.incremental
                        .plan
                        .reserve(&known.footprint, known.interval());
                    pass.freed.add(before);
                }
            }
        }
        if kept == self.by_id.len() {
            return;
        }
        let mut before = std::mem::take(&mut self.by_id);
        for job in pass.jobs.iter().filter(|job| job.start.is_some()) {
            let id = job.key.id();
            self.by_id
                .extend(before.remove(&id).map(|reservation| (id, reservation)));
        }
        if origin == PlanOrigin::Followed {
            for gone in before.values() {
                pass.incremental
                    .plan
                    .release(&gone.footprint, gone.interval());
                pass.freed.add(gone.interval());
            }
        }
    }

    /// Adds the reservations to the quotas, and to a new plan, up to the first that cannot be kept.
    fn reserve_known(
        &self,
        state: &mut EngineState,
        pass: &mut Pass,
        origin: PlanOrigin,
    ) -> ReservationFit {
        let limited = state.queues.any_limited();
        let end = state
            .node_table
            .expiration()
            .filter(|expiration| *expiration > pass.now);
        let end = end.unwrap_or(f64::INFINITY);
        for job in &pass.jobs {
            let Some(start) = job.start else {
                continue;
            };
            // A job that is a little late still ends as reserved.
            if start < pass.now && start + job.limit.min(MAX_LATENESS_S) <= pass.now {
                return ReservationFit::Conflicting;
            }
            let during = Interval::lasting(start, job.limit);
            let is_recomputed = origin == PlanOrigin::Recomputed;
            if !is_recomputed && !limited {
                continue;
            }
            let Some(known) = self.by_id.get(&job.key.id()) else {
                continue;
            };
            if is_recomputed {
                let plan = &pass.incremental.plan;
                let is_usable =
                    plan.can_use(&state.node_table, &known.footprint, known.class.shape);
                if start.is_finite() && (!is_usable || start >= end) {
                    return ReservationFit::Conflicting;
                }
                pass.incremental.plan.reserve(&known.footprint, during);
            }
            pass.quotas
                .reserve(state, job.class, &known.footprint, during);
        }
        if pass.incremental.plan.check_overfull() || pass.quotas.is_overfull() {
            ReservationFit::Conflicting
        } else {
            ReservationFit::Fitting
        }
    }

    /// Moves reservations that no longer fit to later times, one after the other, each as little as
    /// possible.
    fn repair(&mut self, state: &mut EngineState, pass: &mut Pass, order: RepairOrder) {
        let starts =
            (0..pass.jobs.len()).filter_map(|index| Some((pass.jobs[index].start?, index)));
        let mut line: Vec<_> = starts.collect();
        if order == RepairOrder::Start {
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        for (start, index) in line {
            let job = pass.jobs[index];
            let starts = Interval::from(start.max(pass.now));
            let found = pass.earliest(state, job, starts);
            self.reserve(state, pass, index, found);
        }
    }

    /// Moves reservations up to freed resources: the next [`MAX_MOVED_RESERVATIONS`] in the order of their
    /// starts, each to its earliest time with all others kept, until none moves; of the other
    /// reservations, only those that can start now.
    pub fn compress(&mut self, state: &mut EngineState, pass: &mut Pass) {
        if pass.freed.is_empty() && self.behind {
            // Resources are free now to which no reservation has been moved up.
            self.move_to_now(state, pass);
        }
        while !pass.freed.is_empty() {
            self.rounds += 1;
            let near = pass.near(self.near);
            self.behind = near.len() < pass.future_count();
            while !pass.freed.is_empty() {
                let mut seen = std::mem::take(&mut pass.freed);
                for index in pass.by_start(&near) {
                    self.move_up(state, pass, index, &mut seen);
                }
            }
            if self.behind {
                self.move_to_now(state, pass);
            }
        }
    }

    /// Moves a reservation up to freed resources if it was examined before; otherwise to the
    /// earliest time.
    fn move_up(
        &mut self,
        state: &mut EngineState,
        pass: &mut Pass,
        index: usize,
        freed: &mut FreedIntervals,
    ) {
        let job = pass.jobs[index];
        let Some(reservation) = self.by_id.get_mut(&job.key.id()) else {
            return;
        };
        if reservation.start <= pass.now {
            return;
        }
        let before = reservation.interval();
        let known = reservation.examined_in + 1 >= self.rounds;
        reservation.examined_in = self.rounds;
        let all = FreedIntervals::all();
        let from = if known { &*freed } else { &all };
        if let Some(found) = pass.earlier(state, job, reservation, from) {
            (reservation.start, reservation.footprint) = (found.time, found.footprint);
            pass.jobs[index].start = Some(reservation.start);
            pass.freed.add(before);
            freed.add(before);
        }
    }

    /// Moves up the reservations that can start now, with all others kept.
    fn move_to_now(&mut self, state: &mut EngineState, pass: &mut Pass) {
        // By class, the shortest time for which it does not fit from now on.
        let mut unfit: FxHashMap<ClassId, f64> = FxHashMap::default();
        let now = Interval::new(pass.now, pass.now.next_up());
        for index in 0..pass.jobs.len() {
            let job = pass.jobs[index];
            let Some(start) = job.start.filter(|start| *start > pass.now) else {
                continue;
            };
            // Its own reservation does not conflict.
            let limit = job.limit.min(start - pass.now);
            if unfit.get(&job.class).is_some_and(|least| limit >= *least) {
                continue;
            }
            let whole = PassJob { limit, ..job };
            if !pass.earliest(state, whole, now).time.is_finite() {
                unfit.insert(job.class, limit);
                continue;
            }
            let Some(reservation) = self.by_id.get_mut(&job.key.id()) else {
                continue;
            };
            let before = reservation.interval();
            if let Some(found) = pass.earlier_within(state, job, reservation, std::iter::once(now))
            {
                (reservation.start, reservation.footprint) = (found.time, found.footprint);
                pass.jobs[index].start = Some(reservation.start);
                pass.freed.add(before);
                unfit.clear();
            }
        }
    }

    /// Starts the jobs whose reservation is due. Returns whether any job has released a part of its
    /// reservation.
    pub fn start_due(&mut self, state: &mut EngineState, pass: &mut Pass) -> bool {
        let mut left = false;
        let in_units = pass.incremental.plan.is_aggregate();
        for index in 0..pass.jobs.len() {
            let job = pass.jobs[index];
            let id = job.key.id();
            let is_due = job.start.is_some_and(|start| start <= pass.now) && pass.left > 0;
            let due = self.by_id.get(&id).filter(|_| is_due);
            let Some((footprint, during)) =
                due.map(|reservation| (reservation.footprint.clone(), reservation.interval()))
            else {
                if in_units {
                    // Units stay reserved wherever a job starts, so new jobs keep their position.
                    self.admit_new(state, pass, index);
                }
                continue;
            };
            pass.release(state, job, &footprint, during.start);
            let (plan, now) = (&pass.incremental.plan, pass.now);
            let mut limit = job.limit;
            if during.start < now {
                // Ends of windows are rounded.
                limit = (during.end - now).next_down().next_down();
            }
            let shares = pass.quotas.place(state, job.class, limit, |state| {
                let shares = plan.place(state, job.class, now, limit).ok();
                let room = state.queues.room(state.queue.key_of(job.class).queue);
                let shares = shares.filter(|allocation| room.admits(allocation));
                shares.or_else(|| picked(&state.node_table, &footprint))
            });
            let Some(Ok(shares)) = shares else {
                pass.reserve(state, job, &footprint, during.start);
                continue;
            };
            self.by_id.remove(&id);
            pass.jobs[index].start = None;
            if pass.decide(state, index, shares, during.end).as_ref() != Some(&footprint) {
                pass.freed.add(during);
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
    pub fn admit_new(&mut self, state: &mut EngineState, pass: &mut Pass, index: usize) {
        let job = pass.jobs[index];
        if job.start.is_some() || !matches!(pass.decisions[index], JobDecision::Pending) {
            return;
        }
        let class = &state.queue.classes[job.class.index()];
        if state.may_run(class.shape, class.queue).is_err() {
            // A job that has started has used up the limits of its queue.
            return;
        }
        let found = pass.earliest(state, job, Interval::from(pass.now));
        let plan = &pass.incremental.plan;
        if found.time <= pass.now
            && pass.left > 0
            && let Ok(shares) = pass.quotas.place_in(plan, state, job.class, job.limit)
        {
            pass.decide(state, index, shares, pass.now + job.limit);
            return;
        }
        self.reserve(state, pass, index, found);
    }

    /// Records a reservation.
    fn reserve(
        &mut self,
        state: &mut EngineState,
        pass: &mut Pass,
        index: usize,
        PlannedStart {
            time: start,
            footprint,
        }: PlannedStart,
    ) {
        let job = pass.jobs[index];
        pass.reserve(state, job, &footprint, start);
        pass.jobs[index].start = Some(start);
        let reservation = Reservation {
            start,
            limit: job.limit,
            footprint,
            class: state.queue.key_of(job.class),
            examined_in: self.rounds,
        };
        self.by_id.insert(job.key.id(), reservation);
    }
}

/// The allocation of a reservation, if it is free now.
fn picked(node_table: &NodeTable, footprint: &Footprint) -> Option<Allocation> {
    let Footprint::Nodes(parts) = footprint else {
        return None;
    };
    let is_free = |part: &NodeAmount| {
        let free = node_table.free(part.node);
        free.cores >= part.cores && free.gpus >= part.gpus && node_table.is_up(part.node)
    };
    parts
        .iter()
        .all(is_free)
        .then(|| allocation_of(node_table, parts))
}
