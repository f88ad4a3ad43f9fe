//! Plans that are updated from pass to pass, from the log of allocations.

use rustc_hash::FxHashMap;

use super::{Plan, planned_end};
use crate::allocation_log::Coverage;
use crate::availability_profile::Interval;
use crate::ids::{GroupId, JobHandle};
use crate::state::EngineState;

/// A plan of running jobs and reservations, with its position in the log of running jobs.
#[derive(Clone, Debug)]
pub(crate) struct IncrementalPlan {
    pub plan: Plan,
    /// By handle, the time until which a job's resources are planned, if that is not its planned
    /// end.
    until: FxHashMap<JobHandle, f64>,
    /// Number of unlogged changes when the plan was made.
    unlogged: u64,
    /// The number of the first change in the log that the plan does not have.
    next_change: usize,
}

/// Number of state changes missing from the allocation log.
fn unlogged_changes(state: &EngineState) -> u64 {
    state.changes - state.logged_changes
}

impl IncrementalPlan {
    /// A new plan of the running jobs.
    pub fn of(state: &mut EngineState, group: GroupId, now: f64) -> Self {
        let until = state
            .running_jobs
            .iter()
            .filter(|(_, running)| running.end <= now)
            .map(|(_, running)| (running.handle, planned_end(running.end, now)))
            .collect();
        Self {
            plan: Plan::of(state, group, now),
            until,
            unlogged: unlogged_changes(state),
            next_change: state.allocation_log.follow(),
        }
    }

    /// Whether nothing has changed since the last pass.
    #[cfg(test)]
    pub fn is_in_step(&self, state: &EngineState) -> bool {
        self.unlogged == unlogged_changes(state) && self.next_change == state.allocation_log.end()
    }

    /// The number of the first change in the log that the plan does not have.
    pub fn next_change(&self) -> usize {
        self.next_change
    }

    /// Applies the allocations and releases since the last pass to the plan, and reports the
    /// intervals in which resources have become free. Returns `false` if the plan has to be
    /// recomputed instead.
    pub fn follow(
        &mut self,
        state: &mut EngineState,
        group: GroupId,
        now: f64,
        mut freed: impl FnMut(Interval),
    ) -> bool {
        if self.unlogged != unlogged_changes(state) || !self.plan.suits(state, group) {
            return false;
        }
        self.plan.advance(&state.node_table, now);
        let Some(changes) = state.allocation_log.since(self.next_change) else {
            return false;
        };
        for change in changes {
            if !self.plan.has_units_of(&state.node_table, &change.shares) {
                return false;
            }
            let until = self.until.get(&change.handle).copied();
            let is_held = |time: f64| time > f64::NEG_INFINITY;
            let mut before = change.before;
            let mut after = change.after;
            if is_held(before) {
                before = until.unwrap_or(before);
            }
            if change.coverage == Coverage::Part && is_held(after) {
                after = until.unwrap_or(after);
            }
            if change.coverage == Coverage::Whole {
                self.until.remove(&change.handle);
            }
            let (before, after) = (before.max(now), after.max(now));
            let footprint = self
                .plan
                .footprint_of_running(&state.node_table, &change.shares);
            if after > before {
                self.plan.reserve(&footprint, Interval::new(before, after));
            } else if after < before {
                self.plan.release(&footprint, Interval::new(after, before));
                freed(Interval::new(after, before));
            }
        }
        self.next_change = state.allocation_log.end();
        self.extend_overdue(state, now);
        true
    }

    /// Extends the plan for jobs that run longer than planned: until their planned end or, if that
    /// is past, for another second.
    fn extend_overdue(&mut self, state: &mut EngineState, now: f64) {
        let overdue: Vec<_> = state
            .timeline()
            .iter()
            .take_while(|ending| ending.end <= now)
            .copied()
            .collect();
        for ending in overdue {
            if let Some(running) = state.running_jobs.at(ending.run) {
                self.until.entry(running.handle).or_insert(ending.end);
            }
        }
        for (handle, until) in std::mem::take(&mut self.until) {
            let Some(running) = state.running(handle) else {
                continue;
            };
            let mut after = until;
            if until <= now || running.end <= now {
                after = planned_end(running.end, now);
                if until.max(now) < after {
                    let footprint = self
                        .plan
                        .footprint_of_running(&state.node_table, &running.shares);
                    self.plan
                        .reserve(&footprint, Interval::new(until.max(now), after));
                }
            }
            if after.total_cmp(&running.end).is_ne() {
                self.until.insert(handle, after);
            }
        }
    }

    /// Records a start: the job ends at `end`; the plan has its resources reserved until `until`.
    pub fn start(&mut self, handle: JobHandle, end: f64, until: f64) {
        if until.total_cmp(&end).is_ne() {
            self.until.insert(handle, until);
        }
    }

    /// The jobs whose resources are planned until another time than their planned end: handle and
    /// time.
    #[cfg(test)]
    pub fn until(&self) -> impl Iterator<Item = (JobHandle, f64)> {
        self.until.iter().map(|(handle, until)| (*handle, *until))
    }

    /// Ends a pass: the plan includes the jobs started in it.
    pub fn finish(&mut self, state: &EngineState) {
        self.next_change = state.allocation_log.end();
    }
}
