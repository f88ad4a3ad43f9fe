//! Plans in which every node has an availability profile of its own.

mod search;

use std::cmp::{Ordering, Reverse};

use smallvec::{SmallVec, smallvec};

use super::free_intervals::{
    FreeIntervals, IntervalQuery, IntervalSearch, NodeIntervals, intervals_around,
};
use super::start_bounds::StartBounds;
use crate::availability_profile::Interval;
use crate::ids::NodeIndex;
use crate::node_table::{Amounts, NodeAmount, NodeResources, NodeShare, NodeTable, ShapeId};
use crate::state::amount;

/// The free resources of a node from a time until the next step; negative if more is planned than
/// exists.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: f64,
    cores: i64,
    gpus: i64,
}

/// The steps of one node, in order of time.
type Steps = SmallVec<[Step; 2]>;

/// A resource whose free intervals are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    Cores,
    Gpus,
}

impl Resource {
    const ALL: [Self; 2] = [Self::Cores, Self::Gpus];

    /// Its index in arrays.
    const fn index(self) -> usize {
        self as usize
    }

    const fn other(self) -> Self {
        match self {
            Self::Cores => Self::Gpus,
            Self::Gpus => Self::Cores,
        }
    }
}

impl Step {
    /// The free amount of a resource; 0 if more is planned than exists.
    fn amount(&self, resource: Resource) -> u32 {
        let amount = match resource {
            Resource::Cores => self.cores,
            Resource::Gpus => self.gpus,
        };
        u32::try_from(amount.max(0)).unwrap_or(u32::MAX)
    }
}

/// A time at which the free resources of a node change.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: f64,
    node: NodeIndex,
}

impl Event {
    fn order(&self, other: &Self) -> Ordering {
        let by_time = self.time.total_cmp(&other.time);
        by_time.then(self.node.cmp(&other.node))
    }
}

/// A number of units of a shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    pub shape: ShapeId,
    pub need: u64,
}

/// The units of a shape that each node can provide during an interval.
struct UnitsByNode {
    /// By node.
    units: Vec<u32>,
    total: u64,
}

/// The availability profiles of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct NodePlans {
    now: f64,
    /// When the plan was made: the first steps begin then.
    begun: f64,
    /// By node, at least one step. Past steps are dropped at the next change of the node.
    steps: Vec<Steps>,
    /// Nodes with free cores now. Other nodes provide no units now, whatever is reserved or
    /// released in the plan.
    idle: Vec<NodeIndex>,
    /// When the profiles change, until free intervals are indexed instead; the first `sorted` of
    /// them are in order.
    events: Vec<Event>,
    sorted: usize,
    /// Nodes and events that searches without an index have visited.
    visited: usize,
    /// The free intervals of each resource, once an index is worth its cost.
    intervals: [Option<FreeIntervals>; 2],
    pub(super) start_bounds: StartBounds,
    /// Whether more may be planned on some node than exists there.
    may_be_overfull: bool,
}

fn free_now(node_table: &NodeTable, node: NodeIndex, now: f64) -> Step {
    let free = node_table.free(node);
    Step {
        time: now,
        cores: i64::from(free.cores),
        gpus: i64::from(free.gpus),
    }
}

fn idle_nodes(node_table: &NodeTable) -> Vec<NodeIndex> {
    node_table
        .node_indices()
        .filter(|node| node_table.free(*node).cores > 0)
        .collect()
}

fn resources(node_table: &NodeTable, node: NodeIndex, cores: i64, gpus: i64) -> NodeResources {
    let cores = u32::try_from(cores.max(0)).unwrap_or(u32::MAX);
    let gpus = u32::try_from(gpus.max(0)).unwrap_or(u32::MAX);
    NodeResources {
        cores,
        gpus,
        whole: node_table.is_whole_node(node, Amounts { cores, gpus }),
    }
}

impl NodePlans {
    /// A plan in which the resources that are free now stay free.
    pub fn new(node_table: &NodeTable, now: f64) -> Self {
        let first_steps = node_table
            .node_indices()
            .map(|node| free_now(node_table, node, now));
        Self {
            now,
            begun: now,
            steps: first_steps.map(|step| smallvec![step]).collect(),
            idle: idle_nodes(node_table),
            events: Vec::new(),
            sorted: 0,
            visited: 0,
            intervals: [None, None],
            start_bounds: StartBounds::default(),
            may_be_overfull: false,
        }
    }

    /// Moves the plan's present to `now`.
    pub fn advance(&mut self, node_table: &NodeTable, now: f64) {
        self.now = now;
        self.idle = idle_nodes(node_table);
    }

    /// Plans the end of a running job's share, before anything is reserved.
    pub fn plan_end(&mut self, share: &NodeShare, end: f64) {
        let steps = &mut self.steps[share.node.index()];
        let at = steps.partition_point(|step| step.time < end);
        if end.is_finite() && steps.get(at).is_none_or(|step| step.time > end) {
            let before = steps[at.saturating_sub(1)];
            steps.insert(
                at,
                Step {
                    time: end,
                    ..before
                },
            );
            self.events.push(Event {
                time: end,
                node: share.node,
            });
        }
        for step in steps.iter_mut().filter(|step| step.time >= end) {
            step.cores += i64::from(share.ncores());
            step.gpus += i64::from(share.ngpus());
        }
    }

    /// Reserves cores and gpus of a node during an interval.
    pub fn reserve(&mut self, amount: &NodeAmount, during: Interval) {
        let (cores, gpus) = (i64::from(amount.cores), i64::from(amount.gpus));
        self.add(amount.node, during, -cores, -gpus);
    }

    /// Releases cores and gpus of a node that were reserved during an interval.
    pub fn release(&mut self, amount: &NodeAmount, during: Interval) {
        let (cores, gpus) = (i64::from(amount.cores), i64::from(amount.gpus));
        self.add(amount.node, during, cores, gpus);
    }

    /// Adds to the free resources of a node during an interval.
    fn add(&mut self, node: NodeIndex, during: Interval, cores: i64, gpus: i64) {
        let indexed = self.intervals.iter().any(Option::is_some);
        let steps = &self.steps[node.index()];
        let past = steps
            .iter()
            .skip(1)
            .take_while(|step| step.time <= self.now)
            .count();
        // Past steps are dropped, and with them the free intervals that end there.
        let from = if past > 0 {
            steps[0].time
        } else {
            during.start
        };
        let changed = Interval::new(from, during.end);
        let before = indexed.then(|| self.intervals_around(node, changed));
        let steps = &mut self.steps[node.index()];
        steps.drain(..past);
        for time in [during.start, during.end] {
            let at = steps.partition_point(|step| step.time < time);
            if time.is_finite() && steps.get(at).is_none_or(|step| step.time > time) {
                let before = steps[at.saturating_sub(1)];
                steps.insert(at, Step { time, ..before });
                if !indexed {
                    self.events.push(Event { time, node });
                }
            }
        }
        let first = steps.partition_point(|step| step.time < during.start);
        let last = steps
            .partition_point(|step| step.time < during.end)
            .max(first);
        for step in &mut steps[first..last] {
            step.cores += cores;
            step.gpus += gpus;
            self.may_be_overfull |= step.cores < 0 || step.gpus < 0;
        }
        let Some(before) = before else {
            return;
        };
        let after = self.intervals_around(node, changed);
        let both = before.iter().zip(&after);
        for (intervals, (before, after)) in self.intervals.iter_mut().zip(both) {
            if let Some(intervals) = intervals {
                intervals.replace(before, after);
            }
        }
    }

    /// The free intervals of a node that touch `during`, by resource; none of a resource that is
    /// not indexed.
    fn intervals_around(&self, node: NodeIndex, during: Interval) -> [NodeIntervals; 2] {
        Resource::ALL.map(|resource| {
            if self.intervals[resource.index()].is_none() {
                return NodeIntervals::new();
            }
            let steps = &self.steps[node.index()];
            intervals_around(
                node,
                steps,
                |step| step.time,
                |step| step.amount(resource),
                during,
            )
        })
    }

    /// The resources of a node that are free throughout an interval. If the interval begins now,
    /// they are limited to the resources that are actually free: jobs of other groups may have
    /// started since the plan was computed.
    pub fn window(
        &self,
        node_table: &NodeTable,
        node: NodeIndex,
        during: Interval,
    ) -> NodeResources {
        let Interval { start, end } = during;
        let steps = &self.steps[node.index()];
        let first = steps
            .partition_point(|step| step.time <= start)
            .saturating_sub(1);
        let within = steps
            .iter()
            .skip(first)
            .take_while(|step| step.time < end || step.time <= start);
        let actual = (start <= self.now).then(|| free_now(node_table, node, self.now));
        let (cores, gpus) = within
            .chain(&actual)
            .map(|step| (step.cores, step.gpus))
            .reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)))
            .unwrap_or_default();
        resources(node_table, node, cores, gpus)
    }

    fn units(
        &self,
        node_table: &NodeTable,
        shape: ShapeId,
        node: NodeIndex,
        during: Interval,
    ) -> u32 {
        node_table.units(shape, node, self.window(node_table, node, during))
    }

    /// Nodes that may provide units to a job that starts at a time; the list may include other
    /// nodes.
    fn candidates(&self, start: f64) -> impl Iterator<Item = NodeIndex> + '_ {
        let all = if start <= self.now {
            0
        } else {
            u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
        };
        let idle = if all == 0 { &self.idle[..] } else { &[] };
        idle.iter().copied().chain((0..all).map(NodeIndex::new))
    }

    /// The units of a shape that each node can provide during an interval.
    fn units_by_node(
        &self,
        node_table: &NodeTable,
        shape: ShapeId,
        during: Interval,
    ) -> UnitsByNode {
        let mut units = vec![0; self.steps.len()];
        let mut total = 0;
        for node in self.candidates(during.start) {
            let provided = self.units(node_table, shape, node, during);
            units[node.index()] = provided;
            total += u64::from(provided);
        }
        UnitsByNode { units, total }
    }

    /// The first time after `time` at which a profile changes; infinite for never.
    pub fn next_change(&self, time: f64) -> f64 {
        let next = |steps: &Steps| {
            let next = steps.partition_point(|step| step.time <= time);
            steps.get(next).map_or(f64::INFINITY, |step| step.time)
        };
        self.steps.iter().map(next).fold(f64::INFINITY, f64::min)
    }

    /// Returns whether more is planned on some node, from now on, than exists there; computed only if it
    /// may have become so.
    pub fn check_overfull(&mut self) -> bool {
        if self.may_be_overfull {
            let now = self.now;
            let is_overfull = |steps: &Steps| {
                let past = steps.partition_point(|step| step.time <= now);
                let mut ahead = steps.iter().skip(past.saturating_sub(1));
                ahead.any(|step| step.cores < 0 || step.gpus < 0)
            };
            self.may_be_overfull = self.steps.iter().any(is_overfull);
        }
        self.may_be_overfull
    }

    /// Whether the plan leaves these shares free during an interval.
    pub fn admits(&self, node_table: &NodeTable, shares: &[NodeShare], during: Interval) -> bool {
        shares.iter().all(|share| {
            let free = self.window(node_table, share.node, during);
            free.cores >= share.ncores() && free.gpus >= share.ngpus()
        })
    }

    /// The search for units by an index, if there is one.
    fn interval_search(
        &self,
        node_table: &NodeTable,
        requested: Units,
        limit: f64,
    ) -> Option<IntervalSearch<'_>> {
        let demand = node_table.demand(requested.shape);
        let (resource, least) = if demand.gpus > 0 {
            (Resource::Gpus, demand.gpus)
        } else {
            (Resource::Cores, demand.cores)
        };
        let query = IntervalQuery {
            limit,
            least,
            need: requested.need,
        };
        let intervals = self.intervals[resource.index()].as_ref()?;
        Some(IntervalSearch { intervals, query })
    }

    /// Chooses the lowest nodes that can provide units during an interval.
    pub fn choose(
        &self,
        node_table: &NodeTable,
        requested: Units,
        during: Interval,
    ) -> Option<Vec<NodeAmount>> {
        let start = during.start;
        if !start.is_finite() {
            return None;
        }
        let search = self.interval_search(node_table, requested, during.end - start);
        let Some(IntervalSearch { intervals, query }) = search else {
            return self.choose_of(node_table, requested, during, self.candidates(start));
        };
        if start <= self.begun {
            let nodes = intervals.nodes_at_begin(self.begun, query);
            return self.choose_of(node_table, requested, during, nodes);
        }
        let nodes = intervals.nodes(start, query);
        self.choose_of(node_table, requested, during, nodes)
    }

    /// As [`choose`](Self::choose), from the given nodes, in their order.
    fn choose_of(
        &self,
        node_table: &NodeTable,
        requested: Units,
        during: Interval,
        nodes: impl IntoIterator<Item = NodeIndex>,
    ) -> Option<Vec<NodeAmount>> {
        let mut left = requested.need;
        let mut chosen = Vec::new();
        for node in nodes {
            let units = u64::from(self.units(node_table, requested.shape, node, during)).min(left);
            if units > 0 {
                let units = u32::try_from(units).unwrap_or(u32::MAX);
                chosen.push(amount(node_table, requested.shape, node, units));
                left -= u64::from(units);
                if left == 0 {
                    return Some(chosen);
                }
            }
        }
        None
    }

    /// As [`choose`](Self::choose), but with the fewest nodes, or if nodes are requested, the
    /// smallest.
    pub fn choose_sparingly(
        &self,
        node_table: &NodeTable,
        requested: Units,
        during: Interval,
    ) -> Option<Vec<NodeAmount>> {
        let shape = requested.shape;
        let mut candidates: Vec<(NodeAmount, u32)> = self
            .candidates(during.start)
            .map(|node| {
                let units = self.units(node_table, shape, node, during);
                (amount(node_table, shape, node, units), units)
            })
            .filter(|(_, units)| *units > 0)
            .collect();
        if node_table.request(shape).nnodes.is_some() {
            candidates.sort_by_key(|(all, _)| all.cores);
        } else {
            candidates.sort_by_key(|(_, units)| Reverse(*units));
        }
        let mut left = requested.need;
        let mut chosen = Vec::new();
        for (all, units) in candidates {
            let units = u64::from(units).min(left);
            chosen.push(amount(
                node_table,
                shape,
                all.node,
                u32::try_from(units).ok()?,
            ));
            left -= units;
            if left == 0 {
                chosen.sort_unstable();
                return Some(chosen);
            }
        }
        None
    }

    /// Returns whether the units fit throughout an interval.
    pub fn fits(&self, node_table: &NodeTable, requested: Units, during: Interval) -> bool {
        let mut left = requested.need;
        let mut nodes = self.candidates(during.start);
        nodes.any(|node| {
            let provided = self.units(node_table, requested.shape, node, during);
            left = left.saturating_sub(u64::from(provided));
            left == 0
        })
    }

    /// The first time at which units that fit now no longer fit.
    pub fn fits_until(&self, node_table: &NodeTable, requested: Units, now: f64) -> f64 {
        let instant = Interval::new(now, now);
        let UnitsByNode {
            mut units,
            mut total,
        } = self.units_by_node(node_table, requested.shape, instant);
        if total < requested.need {
            return now;
        }
        // A node that provides nothing now provides nothing in any interval from now on.
        let providing = self.candidates(now).filter(|node| units[node.index()] > 0);
        let mut events: Vec<Event> = providing
            .flat_map(|node| {
                let steps = self.steps[node.index()].iter();
                steps.map(move |step| Event {
                    time: step.time,
                    node,
                })
            })
            .filter(|event| event.time > now)
            .collect();
        events.sort_unstable_by(Event::order);
        for Event { time, node } in events {
            let until_then = Interval::new(now, time.next_up());
            let after = self.units(node_table, requested.shape, node, until_then);
            let before = std::mem::replace(&mut units[node.index()], after);
            total = total - u64::from(before) + u64::from(after);
            if total < requested.need {
                return time;
            }
        }
        f64::INFINITY
    }
}
