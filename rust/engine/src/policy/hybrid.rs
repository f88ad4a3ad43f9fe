//! Hybrid backfill: the first blocked jobs in queue order get reservations, up to a given number;
//! other jobs start if they delay none of these.
//!
//! Every pass recomputes the reservations, in queue order. It prefers the nodes of the former pass:
//! a job takes resources that were reserved for a later one only if no others fit at that time.

use penstock_jobspec::job_id::JobId;

use super::queue_pass::{Backfill, Later};
use crate::availability_profile::Interval;
use crate::ids::{ClassId, GroupId, GroupedClass};
use crate::job::JobState;
use crate::node_table::Allocation;
use crate::plan::{Footprint, Plan, PlannedJob, PlannedStart, Unplaced, length};
use crate::queue::Key;
use crate::quotas::Quotas;
use crate::state::{EngineState, PendingClass};
use crate::verdict::{Cause, ReservedStart, Verdict};

#[derive(Clone, Debug)]
struct HybridReservation {
    job: JobId,
    /// The class of the job in the pass that made the reservation.
    class: ClassId,
    start: f64,
    end: f64,
    footprint: Footprint,
}

impl HybridReservation {
    fn start_of_job(&self) -> ReservedStart {
        ReservedStart {
            job: self.job,
            start: self.start,
        }
    }

    fn planned(&self) -> PlannedJob<'_> {
        PlannedJob {
            class: self.class,
            footprint: &self.footprint,
            during: Interval::new(self.start, self.end),
        }
    }
}

/// The reservations that begin at a time, in queue order.
fn starting_at(made: &[HybridReservation], time: f64) -> impl Iterator<Item = &HybridReservation> {
    made.iter()
        .filter(move |reservation| reservation.start.total_cmp(&time).is_eq())
}

/// The reservations of a group.
#[derive(Clone, Debug, Default)]
struct Ahead {
    /// The reservations of the former pass, for jobs that this pass has not reached.
    before: Vec<HybridReservation>,
    /// The reserved starts as of the former pass.
    former_starts: Vec<ReservedStart>,
    /// The former reservation of the job that is visited.
    own: Option<HybridReservation>,
    made: Vec<HybridReservation>,
    /// The number of blocked jobs so far.
    blocked: u32,
    /// The plan of running jobs and reservations, once a job is blocked.
    plan: Option<Plan>,
    /// The quotas of queues left beside them.
    quotas: Option<Quotas>,
    /// The plan with the former reservations in addition.
    with_before: Option<Plan>,
}

/// The state of the policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hybrid {
    groups: Vec<Ahead>,
    depth: u32,
    now: f64,
    /// `changes` of the state at the last pass.
    changes: u64,
}

impl Hybrid {
    /// The reserved start of a job as of the last pass.
    pub fn start(&self, id: JobId) -> Option<f64> {
        self.find(id).map(|reservation| reservation.start)
    }

    fn find(&self, id: JobId) -> Option<&HybridReservation> {
        let mut made = self.groups.iter().flat_map(|group| &group.made);
        made.find(|reservation| reservation.job == id)
    }

    /// Prepares a pass.
    pub fn begin(&mut self, state: &EngineState, depth: u32, now: f64) {
        let steady = self.changes == state.changes;
        self.groups
            .resize_with(state.queue.groups.len(), Ahead::default);
        for ahead in &mut self.groups {
            ahead.before = std::mem::take(&mut ahead.made);
            ahead.former_starts = ahead
                .before
                .iter()
                .map(HybridReservation::start_of_job)
                .collect();
            ahead.before.retain(|reservation| {
                steady && reservation.end > now && is_ready(state, reservation.job)
            });
            ahead.own = None;
            ahead.blocked = 0;
            ahead.plan = None;
            ahead.quotas = None;
            ahead.with_before = None;
        }
        self.depth = depth;
        self.now = now;
        self.changes = state.changes;
    }
}

/// Whether a job is pending and not held.
fn is_ready(state: &EngineState, id: JobId) -> bool {
    let known = state.jobs.find(id).map(|handle| state.jobs.at(handle));
    known.is_some_and(|job| job.effective_priority > 0 && matches!(job.state, JobState::Pending(_)))
}

impl Ahead {
    /// Records that the pass has reached a job: its former reservation no longer excludes it.
    fn reach(&mut self, job: JobId, now: f64) {
        self.own.take_if(|reservation| reservation.job != job);
        let Some(at) = self
            .before
            .iter()
            .position(|reservation| reservation.job == job)
        else {
            return;
        };
        let reservation = self.own.insert(self.before.remove(at));
        if self.before.is_empty() {
            self.with_before = None;
        } else if let Some(plan) = &mut self.with_before {
            let during = Interval::new(reservation.start.max(now), reservation.end);
            plan.release(&reservation.footprint, during);
        }
    }

    /// The plan with the former reservations, if there are any.
    fn with_before(
        &mut self,
        state: &mut EngineState,
        group: GroupId,
        now: f64,
    ) -> Option<&mut Plan> {
        if self.before.is_empty() {
            return None;
        }
        if self.with_before.is_none() {
            let known = self.plan.clone();
            let mut plan = known.unwrap_or_else(|| Plan::of(state, group, now));
            // In order of start: if a reservation needs other resources, it still fits.
            let own = self.own.as_ref().map(|reservation| reservation.job);
            self.before.extend(self.own.take());
            self.before.sort_by(|a, b| a.start.total_cmp(&b.start));
            self.before.retain_mut(|reservation| {
                let during = Interval::new(reservation.start.max(now), reservation.end);
                if !plan.can_reserve(&reservation.footprint) {
                    let handle = state.jobs.find(reservation.job);
                    let class = handle.and_then(|handle| state.pending_class(handle));
                    let footprint = class.and_then(|PendingClass { class, .. }| {
                        let shape = state.queue.classes[class.index()].shape;
                        plan.footprint_at(
                            &state.node_table,
                            shape,
                            during.start,
                            during.end - during.start,
                        )
                    });
                    let Some(footprint) = footprint else {
                        return false;
                    };
                    reservation.footprint = footprint;
                }
                plan.reserve(&reservation.footprint, during);
                true
            });
            let own = self
                .before
                .iter()
                .position(|reservation| Some(reservation.job) == own);
            if let Some(own) = own.map(|at| self.before.remove(at)) {
                let during = Interval::new(own.start.max(now), own.end);
                plan.release(&own.footprint, during);
                self.own = Some(own);
            }
            self.with_before = Some(plan);
        }
        self.with_before.as_mut()
    }

    /// Places a class now, without resources that were reserved in the former pass.
    fn place(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        now: f64,
        limit: f64,
    ) -> Option<Allocation> {
        let known = &state.queue.classes[class.index()];
        let in_units = matches!(self.before.first()?.footprint, Footprint::Units(_));
        if in_units && state.node_table.request(known.shape).is_exact() {
            // It takes the same amount on any nodes.
            return None;
        }
        let plan = self.with_before(state, group, now)?;
        let shares = plan.place(state, class, now, length(limit)).ok();
        let queue = state.queue.classes[class.index()].queue;
        shares.filter(|shares| state.may_take(queue, shares).is_ok())
    }

    /// The earliest start of a class.
    fn earliest(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        now: f64,
        limit: f64,
    ) -> PlannedStart {
        let shape = state.queue.classes[class.index()].shape;
        if self.plan.is_none() {
            let plan = Plan::of(state, group, now);
            let other = self
                .before
                .first()
                .map(|reservation| &reservation.footprint);
            let other = other.is_some_and(|footprint| !plan.can_reserve(footprint));
            self.plan = Some(plan);
            if other {
                self.with_before = None;
                self.with_before(state, group, now);
            }
        }
        let Some(plan) = &mut self.plan else {
            return PlannedStart::NEVER;
        };
        let quotas = self.quotas.get_or_insert_with(|| Quotas::new(now));
        let mut found = quotas.earliest_in(plan, state, class, Interval::from(now), limit);
        // Its former reservation, if that is as early.
        if let Some(own) = self
            .own
            .take()
            .filter(|reservation| reservation.start <= found.time)
            && plan.has_room(
                &state.node_table,
                &own.footprint,
                Interval::lasting(found.time, limit),
            )
            && quotas.check_admission(state, class, &own.footprint, found.time, limit)
        {
            found.footprint = own.footprint;
            return found;
        }
        let undisturbed = self
            .with_before(state, group, now)
            .filter(|_| found.time.is_finite())
            .and_then(|plan| plan.footprint_at(&state.node_table, shape, found.time, limit));
        let mut quotas = self.quotas.as_mut();
        let mut admits = |footprint: &Footprint| {
            let quotas = quotas.as_mut();
            quotas.is_none_or(|quotas| {
                quotas.check_admission(state, class, footprint, found.time, limit)
            })
        };
        found.footprint = undisturbed.filter(&mut admits).unwrap_or(found.footprint);
        found
    }

    /// The reservation that a class would delay which fits beside all reservations until `by`.
    fn find_delayed(
        &mut self,
        state: &EngineState,
        class: ClassId,
        by: f64,
        now: f64,
    ) -> Option<ReservedStart> {
        let starting: Vec<_> = starting_at(&self.made, by).collect();
        let planned: Vec<_> = starting.iter().map(|made| made.planned()).collect();
        let plan = self.plan.as_mut()?;
        let delayed = plan.find_delayed(state, class, Interval::new(now, by), &planned)?;
        Some(starting[delayed].start_of_job())
    }

    /// As [`find_delayed`](Self::find_delayed), if the limits of its queue admit the class until
    /// `by`.
    fn find_delayed_by_limit(
        &self,
        state: &mut EngineState,
        quotas: &mut Quotas,
        class: ClassId,
        by: f64,
    ) -> Option<ReservedStart> {
        let queue = state.queue.key_of(class).queue;
        let starting: Vec<_> = starting_at(&self.made, by)
            .filter(|made| state.queue.key_of(made.class).queue == queue)
            .collect();
        let planned: Vec<_> = starting.iter().map(|made| made.planned()).collect();
        let delayed = quotas.find_delayed(state, class, by, &planned)?;
        Some(starting[delayed].start_of_job())
    }

    /// Reserves resources in both plans.
    fn reserve(&mut self, footprint: &Footprint, during: Interval) {
        for plan in self.plan.iter_mut().chain(&mut self.with_before) {
            plan.reserve(footprint, during);
        }
    }
}

impl Backfill for Hybrid {
    fn place(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        key: Key,
        limit: f64,
    ) -> Option<Allocation> {
        let ahead = &mut self.groups[group.index()];
        ahead.reach(key.id(), self.now);
        let shares = state.place(class)?;
        let beside = ahead.place(state, GroupedClass { group, class }, self.now, limit);
        Some(beside.unwrap_or(shares))
    }

    fn judge_reservation(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        key: Key,
    ) -> bool {
        let ahead = &mut self.groups[group.index()];
        let mut former = ahead.former_starts.iter();
        let Some(former) = former.find(|former| former.job == key.id()) else {
            return false;
        };
        let quotas = &mut ahead.quotas;
        let quotas = quotas.get_or_insert_with(|| Quotas::new(self.now));
        quotas.check_left_by(state, class, former.start)
    }

    fn block(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        key: Key,
        limit: f64,
    ) -> Later {
        let ahead = &mut self.groups[group.index()];
        ahead.reach(key.id(), self.now);
        let limit = length(limit);
        let PlannedStart {
            time: start,
            footprint,
        } = ahead.earliest(state, GroupedClass { group, class }, self.now, limit);
        if start.is_finite() {
            let end = start + limit;
            let during = Interval::new(start, end);
            ahead.reserve(&footprint, during);
            if let Some(quotas) = &mut ahead.quotas {
                quotas.reserve(state, class, &footprint, during);
            }
            ahead.made.push(HybridReservation {
                job: key.id(),
                class,
                start,
                end,
                footprint,
            });
        }
        ahead.blocked += 1;
        if ahead.blocked < self.depth {
            Later::Everything
        } else {
            ahead.before.clear();
            ahead.with_before = None;
            Later::Fitting
        }
    }

    fn judge(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        key: Key,
        limit: f64,
    ) -> Verdict {
        let ahead = &mut self.groups[group.index()];
        ahead.reach(key.id(), self.now);
        let Some(plan) = &ahead.plan else {
            return Verdict::Pending(Cause::Unfit);
        };
        let mut quotas = ahead.quotas.take().unwrap_or_else(|| Quotas::new(self.now));
        let placed = quotas.place_in(plan, state, class, length(limit));
        let verdict =
            match placed {
                Ok(shares) => {
                    let beside = quotas.place(state, class, length(limit), |state| {
                        ahead.place(state, GroupedClass { group, class }, self.now, limit)
                    });
                    let beside = beside.and_then(Result::ok);
                    Verdict::Start(beside.unwrap_or(shares))
                }
                Err(Unplaced::Unfit) => Verdict::Pending(Cause::Unfit),
                Err(Unplaced::FitsUntil(by)) => {
                    let delayed = ahead.find_delayed(state, class, by, self.now);
                    Verdict::Pending(delayed.map_or(Cause::Behind, |delayed| Cause::Delays {
                        delayed,
                        transient: false,
                        interference: None,
                    }))
                }
                Err(Unplaced::AdmittedUntil(by)) => {
                    let delayed = ahead.find_delayed_by_limit(state, &mut quotas, class, by);
                    Verdict::Pending(delayed.map_or(Cause::Behind, |delayed| {
                        Cause::DelaysByLimit { delayed, by }
                    }))
                }
            };
        ahead.quotas = Some(quotas);
        verdict
    }

    fn reserved(&self, _: &mut EngineState, _: GroupId, key: Key) -> Option<f64> {
        self.start(key.id())
    }

    fn length(&self, limit: f64) -> f64 {
        length(limit)
    }

    fn admit(
        &mut self,
        state: &EngineState,
        GroupedClass { group, class }: GroupedClass,
        limit: f64,
        shares: &Allocation,
    ) {
        let ahead = &mut self.groups[group.index()];
        let class = &state.queue.classes[class.index()];
        let plan = ahead.plan.as_ref().or(ahead.with_before.as_ref());
        if let Some(footprint) = plan.map(|plan| plan.footprint_of(shares)) {
            let during = Interval::lasting(self.now, length(limit));
            ahead.reserve(&footprint, during);
            if let Some(quotas) = &mut ahead.quotas {
                quotas.take(class.queue, shares, during);
            }
        }
    }
}
