//! Conservative backfill: every pending job has a reservation, made at the earliest time that
//! delays no earlier reservation. When resources become free earlier than planned, the next
//! reservations, in the order of their starts, are each moved to the earliest time with all others
//! kept, until none moves; of the later reservations, only those that can start at once are moved.
//! A reservation moves later only if running jobs exceed their limits, or nodes are lost. If a job
//! starts less than a quarter of a second late because its nodes were not free on time, others are
//! moved only if it is still running when its planned end has passed.
//!
//! A job that starts gets the nodes that the selection policy picks, except resources that other
//! jobs have reserved. Its own reservation is then free, as if a job had ended early.
//!
//! The plan is updated from pass to pass. A reservation can only move to resources that have become
//! free since it was last examined, so most are not examined.

mod freed_intervals;
mod pass;
mod reservations;
#[cfg(test)]
mod tests;

use penstock_jobspec::job_id::JobId;
use std::sync::Arc;

use self::pass::{JobDecision, PassJob, Reservation};
use self::reservations::GroupReservations;
use crate::availability_profile::Interval;
use crate::ids::{ClassId, GroupId, GroupedClass};
use crate::node_table::Relocation;
use crate::plan::{IncrementalPlan, PlannedJob, Unplaced, length};
use crate::policy::last_pass::{LastPass, completed};
use crate::queue::Key;
use crate::quotas::Quotas;
use crate::state::{EngineState, PendingClass};
use crate::verdict::{Cause, Decision, ReservedStart};

/// [Work](EngineState::work) per job visited.
const VISIT_WORK: u64 = 128;

/// The reservations of all groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conservative {
    /// Shared with snapshots until either side makes a pass.
    groups: Vec<Arc<GroupReservations>>,
    /// The time of the last pass.
    now: f64,
    /// When the first reservation is due.
    next: f64,
}

impl Conservative {
    /// The reserved start of a job.
    pub fn start(&self, id: JobId) -> Option<f64> {
        let found = self
            .groups
            .iter()
            .find_map(|reserved| reserved.by_id.get(&id));
        found.map(|reservation| reservation.start)
    }

    /// Whether no reservation of the last pass is due by a time.
    pub fn is_before_reservations(&self, now: f64) -> bool {
        self.next > now
    }

    /// Renumbers the nodes of all reservations.
    pub fn relocate(&mut self, relocation: &Relocation) {
        for reserved in &mut self.groups {
            Arc::make_mut(reserved).relocate(relocation);
        }
    }

    /// Makes one pass.
    pub fn run(&mut self, state: &mut EngineState, now: f64, max: usize, out: &mut Vec<Decision>) {
        let groups = state.queue.groups.len();
        self.groups.resize_with(groups, Arc::default);
        self.now = now;
        self.next = f64::INFINITY;
        let mut lines: Vec<Vec<PassJob>> = vec![Vec::new(); groups];
        // By group, the first job that its queue has no room for.
        let mut stopped = vec![Key::NONE; groups];
        let mut quotas = Quotas::new(now);
        state.work += VISIT_WORK * state.queue.len() as u64;
        for key in state.queue.in_order() {
            if out.len() >= max {
                return;
            }
            let Some(PendingClass { class, limit }) = state.pending_class(key.handle()) else {
                continue;
            };
            if let Err(reason) = state.possible(class) {
                out.push(state.deny(key, &reason));
                continue;
            }
            let known = &state.queue.classes[class.index()];
            let group = known.group.index();
            let reserved = self.groups[group]
                .by_id
                .get(&key.id())
                .map(|known| known.start);
            // It keeps its reservation if the limits of its queue admit it by then.
            if state.may_run(known.shape, known.queue).is_ok()
                || reserved.is_some_and(|start| quotas.check_left_by(state, class, start))
            {
                let limit = length(limit);
                lines[group].push(PassJob {
                    key,
                    class,
                    limit,
                    start: None,
                });
            } else {
                let first = &mut stopped[group];
                *first = key.min(*first);
            }
        }
        for (group, line) in (0_u32..).zip(lines) {
            let group = GroupId::new(group);
            let reserved = Arc::make_mut(&mut self.groups[group.index()]);
            if line.is_empty() {
                reserved.by_id.clear();
                reserved.incremental = None;
                reserved.head = None;
                continue;
            }
            let mut pass = reserved.begin(state, group, now, line, quotas.clone());
            pass.left = max.saturating_sub(out.len());
            reserved.compress(state, &mut pass);
            while reserved.start_due(state, &mut pass) {
                reserved.compress(state, &mut pass);
            }
            for index in 0..pass.jobs.len() {
                reserved.admit_new(state, &mut pass, index);
            }
            pass.incremental.finish(state);
            reserved.incremental = Some(pass.incremental);
            let ahead = stopped[group.index()];
            let mut behind = false;
            reserved.head = None;
            for (job, decision) in pass.jobs.iter().zip(pass.decisions) {
                match decision {
                    JobDecision::Pending => {
                        behind = true;
                        let Some(start) = job.start else {
                            continue;
                        };
                        self.next = self.next.min(start);
                        let shape = state.queue.classes[job.class.index()].shape;
                        if reserved.head.is_none() && state.check_reachable(shape) {
                            reserved.head = Some(job.key);
                        }
                    }
                    JobDecision::Stopped => behind = true,
                    JobDecision::Decided(Decision::Alloc { id, .. }) => out.push(Decision::Alloc {
                        id,
                        backfilled: behind || job.key > ahead,
                    }),
                    JobDecision::Decided(denial) => out.push(denial),
                }
            }
        }
        let kept = self
            .groups
            .iter()
            .filter_map(|group| group.incremental.as_ref());
        let followed = kept.map(IncrementalPlan::next_change).min();
        state
            .allocation_log
            .drop_before(followed.unwrap_or(usize::MAX));
    }
}

impl LastPass for &Conservative {
    /// The first job of a group that the pass left pending, except jobs that the limits of their
    /// queue or nodes that are down exclude.
    fn head(&self, group: GroupId) -> Option<Key> {
        self.groups.get(group.index())?.head
    }

    fn cause(
        &self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        key: Key,
    ) -> Option<Cause> {
        let reserved = self.groups.get(group.index())?;
        let reservation = reserved.by_id.get(&key.id());
        let cause = match reservation.map(|reservation| reservation.start) {
            Some(at) if at.is_finite() => return Some(Cause::Reserved { at }),
            // The limits of its queue exclude it, or it and reservations together exceed them.
            None => Cause::Behind,
            // No time fits as planned: the resources that are free now are reserved for other jobs.
            // Every later reservation may change for which, so the pass records no cause.
            Some(_) => {
                let plan = &reserved.incremental.as_ref()?.plan;
                let limit = length(state.limit(key.handle()));
                let cause = match plan.place(state, class, self.now, limit) {
                    Err(Unplaced::Unfit) => Some(Cause::Unfit),
                    Err(Unplaced::FitsUntil(by)) => {
                        let delayed = self.find_delayed(state, reserved, class, by);
                        delayed.map(|delayed| Cause::Delays {
                            delayed,
                            transient: false,
                            interference: None,
                        })
                    }
                    Ok(_) | Err(Unplaced::AdmittedUntil(_)) => {
                        self.delay_by_limit(state, reserved, class)
                    }
                };
                cause.unwrap_or(Cause::Behind)
            }
        };
        let cause = completed(state, class, cause, |_, _| None);
        let shape = state.queue.classes[class.index()].shape;
        Some(if cause == Cause::Unfit && !state.check_reachable(shape) {
            Cause::Unreachable
        } else {
            cause
        })
    }
}

/// A reserved job, to be compared with one that has no start.
struct ReservedJob<'a> {
    key: Key,
    planned: PlannedJob<'a>,
}

impl ReservedJob<'_> {
    fn start_of_job(&self) -> ReservedStart {
        ReservedStart {
            job: self.key.id(),
            start: self.planned.during.start,
        }
    }
}

impl Conservative {
    /// The reserved jobs of a group in queue order.
    fn reserved_jobs<'a>(
        state: &EngineState,
        reserved: &'a GroupReservations,
        is_wanted: impl Fn(&Reservation) -> bool,
    ) -> Vec<ReservedJob<'a>> {
        let wanted = reserved
            .by_id
            .iter()
            .filter(|(_, reservation)| reservation.start.is_finite() && is_wanted(reservation));
        let mut jobs: Vec<_> = wanted
            .filter_map(|(id, reservation)| {
                let handle = state.jobs.find(*id)?;
                let key = Key::new(state.jobs.at(handle).effective_priority, *id, handle);
                let planned = PlannedJob {
                    class: state.queue.find(reservation.class)?,
                    footprint: &reservation.footprint,
                    during: reservation.interval(),
                };
                Some(ReservedJob { key, planned })
            })
            .collect();
        jobs.sort_unstable_by_key(|job| job.key);
        jobs
    }

    /// Whether a reservation begins at a time, of which the last pass is the first.
    fn begins_at(&self, start: f64, time: f64) -> bool {
        start.max(self.now).total_cmp(&time.max(self.now)).is_eq()
    }

    /// The reservation that a class would delay which fits beside all reservations until `by`.
    fn find_delayed(
        &self,
        state: &EngineState,
        reserved: &GroupReservations,
        class: ClassId,
        by: f64,
    ) -> Option<ReservedStart> {
        let jobs = Self::reserved_jobs(state, reserved, |reservation| {
            self.begins_at(reservation.start, by)
        });
        let planned: Vec<_> = jobs.iter().map(|job| job.planned).collect();
        let open = Interval::new(self.now, by);
        let mut plan = reserved.incremental.as_ref()?.plan.clone();
        let delayed = plan.find_delayed(state, class, open, &planned)?;
        Some(jobs[delayed].start_of_job())
    }

    /// The cause of a class that fits beside all reservations, but not into the limits of its queue.
    fn delay_by_limit(
        &self,
        state: &mut EngineState,
        reserved: &GroupReservations,
        class: ClassId,
    ) -> Option<Cause> {
        let queue = state.queue.key_of(class).queue;
        let jobs = Self::reserved_jobs(state, reserved, |reservation| {
            reservation.class.queue == queue
        });
        let mut quotas = Quotas::new(self.now);
        for ReservedJob { planned, .. } in &jobs {
            quotas.reserve(state, planned.class, planned.footprint, planned.during);
        }
        let by = quotas.find_admission_end(state, class);
        let starting: Vec<_> = jobs
            .iter()
            .filter(|job| self.begins_at(job.planned.during.start, by))
            .collect();
        let planned: Vec<_> = starting.iter().map(|job| job.planned).collect();
        let delayed = quotas.find_delayed(state, class, by, &planned)?;
        Some(Cause::DelaysByLimit {
            delayed: starting[delayed].start_of_job(),
            by,
        })
    }
}
