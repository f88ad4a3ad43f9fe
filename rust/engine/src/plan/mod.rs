//! Plans: the free resources over time, given the running jobs and reservations.
//!
//! If every pending job of a group requests any cores, or any whole nodes, an aggregate plan counts
//! them; if not, every node has an availability profile of its own.

mod aggregate;
mod free_intervals;
mod incremental;
mod per_node;
mod start_bounds;
#[cfg(test)]
mod tests;

use self::aggregate::{AggregatePlan, AggregateUnit};
pub(crate) use self::incremental::IncrementalPlan;
use self::per_node::{NodePlans, Units};
use self::start_bounds::StartBounds;
use crate::availability_profile::Interval;
use crate::ids::{ClassId, GroupId, QueueId};
use crate::node_table::{Allocation, NodeAmount, NodeShare, NodeTable, Relocation, ShapeId, Size};
use crate::state::{EngineState, SHORTEST_LIMIT_S, is_whole};

/// The free resources from now on.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// The number of free units of the whole inventory.
    Aggregate(AggregatePlan),
    /// The free cores and gpus of each node.
    PerNode(NodePlans),
}

/// The resources of a reservation, in the terms of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Footprint {
    /// A number of units of the inventory.
    Units(i64),
    /// Cores and gpus of these nodes.
    Nodes(Vec<NodeAmount>),
}

impl Footprint {
    /// Renumbers the nodes after the inventory has changed. If a node has been removed, the
    /// footprint becomes zero units, which no plan of nodes can reserve.
    pub fn relocate(&mut self, relocation: &Relocation) {
        if let Self::Nodes(amounts) = self {
            let relocated = amounts.iter().map(|amount| {
                Some(NodeAmount {
                    node: relocation.new_index(amount.node)?,
                    ..*amount
                })
            });
            *self = match relocated.collect() {
                Some(amounts) => Self::Nodes(amounts),
                None => Self::Units(0),
            };
        }
    }
}

/// A start time, and the resources of a job that starts then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedStart {
    /// In seconds since the epoch; infinite for never.
    pub time: f64,
    pub footprint: Footprint,
}

/// A pending job with a reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedJob<'a> {
    pub class: ClassId,
    pub footprint: &'a Footprint,
    pub during: Interval,
}

/// The cause for which a plan, or a plan with quotas, has no allocation for a class now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unplaced {
    /// It does not fit into the free resources.
    Unfit,
    /// It fits without delaying reservations, but only until a time, which may be now.
    FitsUntil(f64),
    /// The limits of its queue leave it enough beside reservations, but only until a time, which
    /// may be now.
    AdmittedUntil(f64),
}

impl PlannedStart {
    /// No start, of a job that takes nothing.
    pub const NEVER: Self = Self {
        time: f64::INFINITY,
        footprint: Footprint::Units(0),
    };
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// The kind of plan that a group of queues needs.
#[derive(Clone, Copy, Debug)]
enum PlanKind {
    /// A count of units; `shape` is one that requests them.
    Aggregate {
        unit: AggregateUnit,
        shape: ShapeId,
    },
    PerNode,
}

impl PlanKind {
    /// The kind that the pending jobs of a group need.
    fn of(state: &mut EngineState, group: GroupId) -> Self {
        let pending: Vec<_> = state.queue.groups[group.index()]
            .classes
            .iter()
            .map(|class| &state.queue.classes[class.index()])
            .filter(|class| class.has_jobs() && class.group == group)
            .map(|class| (class.shape, class.fungible, class.queue))
            .collect();
        let Some((shape, ..)) = pending.first().copied() else {
            return Self::PerNode;
        };
        let mut classes = pending.iter();
        if classes.any(|(shape, _, queue)| limit_depends_on_nodes(state, *shape, *queue)) {
            return Self::PerNode;
        }
        let by_cores = pending.iter().all(|(_, fungible, _)| *fungible);
        let nodes_are_whole = state.partial == 0;
        let mut classes = pending.iter();
        let unit = if by_cores {
            AggregateUnit::Core
        } else if nodes_are_whole && classes.all(|(shape, ..)| state.check_any_node(*shape)) {
            AggregateUnit::Node
        } else {
            return Self::PerNode;
        };
        Self::Aggregate { unit, shape }
    }
}

/// Whether the amount that a shape uses of a queue's limits depends on the nodes that it is placed
/// on.
fn limit_depends_on_nodes(state: &mut EngineState, shape: ShapeId, queue: QueueId) -> bool {
    let limit = state.queues.most(queue);
    if limit == Size::UNLIMITED {
        return false;
    }
    let (least, most) = (
        state.node_table.min_size(shape),
        state.node_table.max_size(shape),
    );
    (limit.nodes < u64::MAX && least.nodes < most.nodes)
        || (limit.cores < u64::MAX && least.cores < most.cores)
}

/// The number of units of an aggregate plan in these shares.
fn units_of<'a>(unit: AggregateUnit, shares: impl Iterator<Item = &'a NodeShare>) -> i64 {
    signed(match unit {
        AggregateUnit::Core => shares.map(|share| u64::from(share.ncores())).sum(),
        AggregateUnit::Node => shares.count() as u64,
    })
}

/// The [work](EngineState::work) of the addition of a running job or of a node to a plan.
const RUNNING_JOB_WORK: u64 = 8;

/// The allocation of the lowest free cores and gpus of nodes, which have at least these amounts
/// free.
pub(crate) fn allocation_of(node_table: &NodeTable, amounts: &[NodeAmount]) -> Allocation {
    amounts
        .iter()
        .map(|amount| node_table.lowest_free(amount.node, amount.amounts()))
        .collect()
}

/// The planned run time of a job: at least a second if it ends as it starts.
pub(crate) fn length(limit: f64) -> f64 {
    if limit < SHORTEST_LIMIT_S { 1.0 } else { limit }
}

/// The planned end of a running job: an overdue job is given another second.
pub(crate) fn planned_end(end: f64, now: f64) -> f64 {
    if end <= now { now + 1.0 } else { end }
}

impl Plan {
    /// The plan of the running jobs, of the kind that the pending jobs of a group need.
    pub fn of(state: &mut EngineState, group: GroupId, now: f64) -> Self {
        let nodes = u64::from(state.node_table.node_count());
        state.work += RUNNING_JOB_WORK * (nodes + state.running_jobs.len() as u64);
        if let PlanKind::Aggregate { unit, shape } = PlanKind::of(state, group) {
            let free = state.node_table.units_now(shape);
            let mut plan = AggregatePlan::new(now, signed(free), unit);
            for (_, running) in state.running_jobs.iter() {
                let up = running
                    .shares
                    .iter()
                    .filter(|share| state.node_table.is_up(share.node));
                let after_end = Interval::from(planned_end(running.end, now));
                plan.add(after_end, units_of(unit, up));
            }
            return Self::Aggregate(plan);
        }
        let mut plans = NodePlans::new(&state.node_table, now);
        for (_, running) in state.running_jobs.iter() {
            let end = planned_end(running.end, now);
            for share in &running.shares {
                plans.plan_end(share, end);
            }
        }
        Self::PerNode(plans)
    }

    /// Whether it is of the kind that the pending jobs of a group need.
    fn suits(&self, state: &mut EngineState, group: GroupId) -> bool {
        match (self, PlanKind::of(state, group)) {
            (Self::Aggregate(plan), PlanKind::Aggregate { unit, .. }) => plan.unit == unit,
            (Self::PerNode(_), PlanKind::PerNode) => true,
            _ => false,
        }
    }

    /// Whether it only counts units.
    pub fn is_aggregate(&self) -> bool {
        matches!(self, Self::Aggregate(_))
    }

    /// Moves the plan's present to `now`.
    fn advance(&mut self, node_table: &NodeTable, now: f64) {
        match self {
            Self::Aggregate(plan) => plan.advance(now),
            Self::PerNode(plans) => plans.advance(node_table, now),
        }
    }

    /// Finds an allocation for a class that is free for `limit` seconds from now on.
    pub fn place(
        &self,
        state: &mut EngineState,
        class: ClassId,
        now: f64,
        limit: f64,
    ) -> Result<Allocation, Unplaced> {
        let Some(allocation) = state.place(class) else {
            return Err(Unplaced::Unfit);
        };
        let pending = &state.queue.classes[class.index()];
        let during = Interval::lasting(now, limit);
        match self {
            Self::Aggregate(AggregatePlan { profile, unit, .. }) => {
                let units = units_of(*unit, allocation.iter());
                let need = signed(pending.need);
                if during.end <= profile.until(now, units) {
                    return Ok(allocation);
                }
                let until = profile.until(now, need);
                if during.end > until {
                    return Err(Unplaced::FitsUntil(until));
                }
                // For a count range, place as much as no reservation needs.
                let free = profile.least_during(during);
                let limit = Size {
                    cores: u64::try_from(free).unwrap_or(0),
                    ..Size::UNLIMITED
                };
                state
                    .place_within(class, limit)
                    .ok_or(Unplaced::FitsUntil(now))
            }
            Self::PerNode(plans) => {
                let requested = Units {
                    shape: pending.shape,
                    need: pending.need,
                };
                let node_table = &state.node_table;
                if plans.admits(node_table, &allocation, during) {
                    return Ok(allocation);
                }
                let room = state.queues.room(pending.queue);
                let Some(amounts) = plans.choose(node_table, requested, during) else {
                    let until = plans.fits_until(node_table, requested, now);
                    return Err(Unplaced::FitsUntil(until));
                };
                let allocation = allocation_of(node_table, &amounts);
                if room.admits(&allocation) {
                    return Ok(allocation);
                }
                let sparing = plans
                    .choose_sparingly(node_table, requested, during)
                    .map(|amounts| allocation_of(node_table, &amounts))
                    .filter(|sparing| room.admits(sparing));
                Ok(sparing.unwrap_or(allocation))
            }
        }
    }

    /// Of the reserved jobs in queue order that begin at the end of `open`, finds the first for
    /// which a class that starts at the beginning of `open` leaves too little. The class fits until
    /// then.
    pub fn find_delayed(
        &mut self,
        state: &EngineState,
        class: ClassId,
        open: Interval,
        jobs: &[PlannedJob<'_>],
    ) -> Option<usize> {
        let last = jobs.len().checked_sub(1)?;
        if last == 0 {
            return Some(0);
        }
        let bounds = self.start_bounds();
        let delayed = (1..=last).rev().find(|&index| {
            self.release(jobs[index].footprint, jobs[index].during);
            self.fits_through(state, class, open)
        });
        let delayed = delayed.unwrap_or(0);
        for released in &jobs[delayed.max(1)..] {
            self.reserve(released.footprint, released.during);
        }
        self.restore_start_bounds(bounds);
        Some(delayed)
    }

    /// Returns whether a class fits from the beginning of an interval until after its end.
    fn fits_through(&self, state: &EngineState, class: ClassId, open: Interval) -> bool {
        let pending = &state.queue.classes[class.index()];
        match self {
            Self::Aggregate(plan) => {
                plan.profile.until(open.start, signed(pending.need)) > open.end
            }
            Self::PerNode(plans) => {
                let requested = Units {
                    shape: pending.shape,
                    need: pending.need,
                };
                let through = Interval::new(open.start, open.end.next_up());
                plans.fits(&state.node_table, requested, through)
            }
        }
    }

    /// The earliest start within `starts` from which a shape fits for `limit` seconds.
    pub fn earliest(
        &mut self,
        node_table: &NodeTable,
        shape: ShapeId,
        starts: Interval,
        limit: f64,
    ) -> PlannedStart {
        let need = node_table.need(shape);
        match self {
            Self::Aggregate(plan) => PlannedStart {
                time: plan.earliest(node_table.demand(shape), need, starts, limit),
                footprint: Footprint::Units(signed(need)),
            },
            Self::PerNode(plans) => {
                plans.earliest(node_table, Units { shape, need }, starts, limit)
            }
        }
    }

    /// Reserves resources during an interval.
    pub fn reserve(&mut self, footprint: &Footprint, during: Interval) {
        if !during.start.is_finite() {
            return;
        }
        match (self, footprint) {
            (Self::Aggregate(plan), Footprint::Units(units)) => plan.add(during, -units),
            (Self::PerNode(plans), Footprint::Nodes(amounts)) => {
                for amount in amounts {
                    plans.reserve(amount, during);
                }
            }
            _ => {}
        }
    }

    /// Releases resources that were reserved during an interval.
    pub fn release(&mut self, footprint: &Footprint, during: Interval) {
        if !during.start.is_finite() {
            return;
        }
        match (self, footprint) {
            (Self::Aggregate(plan), Footprint::Units(units)) => plan.add(during, *units),
            (Self::PerNode(plans), Footprint::Nodes(amounts)) => {
                for amount in amounts {
                    plans.release(amount, during);
                }
                plans.start_bounds.lower_from(during.start);
            }
            _ => {}
        }
    }

    /// The known lower bounds of start times, which can be [restored](Self::restore_start_bounds)
    /// when the plan is again at least as full as now.
    pub fn start_bounds(&self) -> StartBounds {
        match self {
            Self::Aggregate(plan) => plan.start_bounds.clone(),
            Self::PerNode(plans) => plans.start_bounds.clone(),
        }
    }

    /// Restores lower bounds of start times.
    pub fn restore_start_bounds(&mut self, bounds: StartBounds) {
        match self {
            Self::Aggregate(plan) => plan.start_bounds = bounds,
            Self::PerNode(plans) => plans.start_bounds = bounds,
        }
    }

    /// The footprint of a shape from `start` on for `limit` seconds, if it fits.
    pub fn footprint_at(
        &self,
        node_table: &NodeTable,
        shape: ShapeId,
        start: f64,
        limit: f64,
    ) -> Option<Footprint> {
        let need = node_table.need(shape);
        let during = Interval::lasting(start, limit);
        match self {
            Self::Aggregate(AggregatePlan { profile, .. }) => {
                let units = signed(need);
                (during.end <= profile.until(start, units)).then_some(Footprint::Units(units))
            }
            Self::PerNode(plans) => plans
                .choose(node_table, Units { shape, need }, during)
                .map(Footprint::Nodes),
        }
    }

    /// As [`footprint_at`](Self::footprint_at), on the fewest or the smallest nodes; `None` in an
    /// aggregate plan, in which nodes do not matter.
    pub fn sparing_footprint(
        &self,
        node_table: &NodeTable,
        shape: ShapeId,
        start: f64,
        limit: f64,
    ) -> Option<Footprint> {
        let Self::PerNode(plans) = self else {
            return None;
        };
        let need = node_table.need(shape);
        plans
            .choose_sparingly(
                node_table,
                Units { shape, need },
                Interval::lasting(start, limit),
            )
            .map(Footprint::Nodes)
    }

    /// The first time after `time` at which the free resources change; infinite for never.
    pub fn next_change(&self, time: f64) -> f64 {
        match self {
            Self::Aggregate(AggregatePlan { profile, .. }) => profile.next_change(time),
            Self::PerNode(plans) => plans.next_change(time),
        }
    }

    /// Whether a footprint is free during an interval.
    pub fn has_room(
        &self,
        node_table: &NodeTable,
        footprint: &Footprint,
        during: Interval,
    ) -> bool {
        match (self, footprint) {
            (Self::Aggregate(AggregatePlan { profile, .. }), Footprint::Units(units)) => {
                during.end <= profile.until(during.start, *units)
            }
            (Self::PerNode(plans), Footprint::Nodes(amounts)) => amounts.iter().all(|amount| {
                let free = plans.window(node_table, amount.node, during);
                free.cores >= amount.cores
                    && free.gpus >= amount.gpus
                    && node_table.is_up(amount.node)
            }),
            _ => false,
        }
    }

    /// Whether a reservation is in the terms of this plan.
    pub fn can_reserve(&self, footprint: &Footprint) -> bool {
        matches!(
            (self, footprint),
            (Self::Aggregate(_), Footprint::Units(_)) | (Self::PerNode(_), Footprint::Nodes(_))
        )
    }

    /// Whether a job of a shape can use a reservation: it is in the terms of this plan, and its
    /// nodes are up and eligible.
    pub fn can_use(&self, node_table: &NodeTable, footprint: &Footprint, shape: ShapeId) -> bool {
        let is_usable = |node| node_table.is_up(node) && node_table.is_eligible(shape, node);
        match footprint {
            Footprint::Units(_) => self.is_aggregate(),
            Footprint::Nodes(amounts) => {
                !self.is_aggregate() && amounts.iter().all(|amount| is_usable(amount.node))
            }
        }
    }

    /// Returns whether more is planned than exists.
    pub fn check_overfull(&mut self) -> bool {
        match self {
            Self::Aggregate(AggregatePlan { profile, .. }) => profile.least() < 0,
            Self::PerNode(plans) => plans.check_overfull(),
        }
    }

    /// Whether a running job's allocation can be expressed in units of this plan: a part of a node
    /// is not a node.
    fn has_units_of(&self, node_table: &NodeTable, allocation: &Allocation) -> bool {
        match self {
            Self::Aggregate(plan) => {
                plan.unit == AggregateUnit::Core || is_whole(node_table, allocation)
            }
            Self::PerNode(_) => true,
        }
    }

    /// The footprint of a running job's shares in this plan: an aggregate plan does not count nodes
    /// that are down.
    fn footprint_of_running(&self, node_table: &NodeTable, shares: &[NodeShare]) -> Footprint {
        match self {
            Self::Aggregate(plan) => {
                let up = shares.iter().filter(|share| node_table.is_up(share.node));
                Footprint::Units(units_of(plan.unit, up))
            }
            Self::PerNode(_) => self.footprint_of(shares),
        }
    }

    /// The footprint of shares of nodes in this plan.
    pub fn footprint_of(&self, shares: &[NodeShare]) -> Footprint {
        match self {
            Self::Aggregate(plan) => Footprint::Units(units_of(plan.unit, shares.iter())),
            Self::PerNode(_) => {
                let amount = |share: &NodeShare| NodeAmount {
                    node: share.node,
                    cores: share.ncores(),
                    gpus: share.ngpus(),
                };
                Footprint::Nodes(shares.iter().map(amount).collect())
            }
        }
    }
}
