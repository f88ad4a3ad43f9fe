//! Shadow times: when the blocked head can start as planned, and the units that are spare then.

#[cfg(test)]
mod tests;

use std::num::NonZeroU64;

use crate::ids::{ClassId, NodeIndex, RunId};
use crate::node_table::{
    Allocation, Amounts, NodeResources, NodeShare, NodeTable, ShapeId, UnitKind,
};
use crate::quotas::Quotas;
use crate::state::{EngineState, amount};
use crate::verdict::Interference;

/// The free resources of nodes at the shadow time, if they differ from the free resources now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    round: u32,
    /// The round in which the entry was written.
    written: Vec<u32>,
    free: Vec<NodeResources>,
    room: Room,
}

/// Cores that can be taken now without delaying the blocked head; updated on use.
#[derive(Debug, Default)]
struct Room {
    /// The changes of the node table that it reflects; `None` if it has to be rebuilt.
    seen: Option<u64>,
    by_node: Vec<u32>,
    /// By number of cores, the number of nodes with that many.
    counts: Vec<u64>,
    cores: u64,
}

impl Room {
    fn set(&mut self, node: NodeIndex, cores: u32) {
        let before = std::mem::replace(&mut self.by_node[node.index()], cores);
        if self.counts.len() <= cores as usize {
            self.counts.resize(cores as usize + 1, 0);
        }
        self.counts[before as usize] -= 1;
        self.counts[cores as usize] += 1;
        self.cores = self.cores - u64::from(before) + u64::from(cores);
    }

    fn clear(&mut self, node_count: u32) {
        self.cores = 0;
        self.by_node = vec![0; node_count as usize];
        self.counts = vec![u64::from(node_count)];
    }

    /// The maximum number of units of `cores` cores each that fit.
    fn units(&self, cores: u32, kind: UnitKind) -> u64 {
        let cores = cores.max(1);
        let counts = (0_u64..).zip(&self.counts).skip(cores as usize);
        let units_of = |has: u64| match kind {
            UnitKind::Node => 1,
            UnitKind::Slot => has / u64::from(cores),
        };
        counts.map(|(has, count)| count * units_of(has)).sum()
    }
}

impl Clone for Room {
    /// An empty copy, to be rebuilt: the copy of a node table counts its changes from 0.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Overlay {
    /// Drops all entries.
    fn clear(&mut self, nodes: u32) {
        if self.free.len() != nodes as usize || self.round == u32::MAX {
            self.free = vec![NodeResources::default(); nodes as usize];
            self.written = vec![0; nodes as usize];
            self.round = 0;
        }
        self.round += 1;
        self.room.seen = None;
    }

    pub fn at(&self, node_table: &NodeTable, node: NodeIndex) -> NodeResources {
        if self.written[node.index()] == self.round {
            self.free[node.index()]
        } else {
            node_table.free(node)
        }
    }

    fn set(&mut self, node: NodeIndex, free: NodeResources) {
        self.written[node.index()] = self.round;
        self.free[node.index()] = free;
    }

    /// Adds a share that will be free. Returns how many more units of a shape the node provides.
    fn release(&mut self, node_table: &NodeTable, shape: ShapeId, part: &NodeShare) -> u32 {
        let node = part.node;
        let before = self.at(node_table, node);
        let cores = before.cores + part.ncores();
        let gpus = before.gpus + part.ngpus();
        let after = NodeResources {
            cores,
            gpus,
            whole: node_table.is_whole_node(node, Amounts { cores, gpus }),
        };
        self.set(node, after);
        node_table.units(shape, node, after) - node_table.units(shape, node, before)
    }
}

/// The free resources of a node after these have been taken.
fn without(free: NodeResources, taken: Amounts) -> NodeResources {
    NodeResources {
        cores: free.cores.saturating_sub(taken.cores),
        gpus: free.gpus.saturating_sub(taken.gpus),
        whole: free.whole && (taken.cores, taken.gpus) == (0, 0),
    }
}

/// The state of an allocation at the shadow time, as planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtShadowTime {
    /// Its job has ended.
    Released,
    /// Its job still runs.
    Allocated,
}

/// A time, and the units of a shape that are free then.
struct FreeUnits {
    time: f64,
    units: u64,
}

/// [Work](EngineState::work) per node or share visited.
const NODE_WORK: u64 = 4;

/// The shadow of a blocked head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shadow {
    pub shape: ShapeId,
    /// Whether its units are any cores.
    pub fungible: bool,
    /// The shadow time; infinite if the blocked head cannot start after any planned end.
    pub time: f64,
    /// Units that are spare then; if the time is unknown, once all jobs have ended.
    pub spare: u64,
}

impl Shadow {
    /// The shadow of a job with this shape, which does not fit now. For a shape that is not
    /// fungible, the overlay is set to the free resources at that time.
    pub fn of(state: &mut EngineState, shape: ShapeId, now: f64, overlay: &mut Overlay) -> Self {
        let need = state.node_table.need(shape);
        let fungible = state.node_table.is_fungible(shape);
        let free = state.node_table.units_now(shape);
        let reached = if fungible {
            let lacking = need.saturating_sub(free);
            let timeline = state.timeline();
            match timeline.when(now, lacking) {
                Some(reached) => Some(FreeUnits {
                    time: reached.time,
                    units: free + reached.cores,
                }),
                // Jobs without a limit end at an unknown time, but they do end.
                None => Some(FreeUnits {
                    time: f64::INFINITY,
                    units: free + timeline.cores_until(f64::INFINITY),
                })
                .filter(|free| free.units >= need),
            }
        } else {
            overlay.clear(state.node_table.node_count());
            // The count of spare cores of each node follows.
            state.work += NODE_WORK * u64::from(state.node_table.node_count());
            walk(state, shape, need, free, now, overlay)
        };
        let FreeUnits { time, units } = reached.unwrap_or(FreeUnits {
            time: f64::INFINITY,
            units: need,
        });
        Self {
            shape,
            fungible,
            time,
            spare: units.saturating_sub(need),
        }
    }

    /// Whether a job that starts now will have ended by the shadow time as planned. A job without a
    /// limit never has: otherwise such jobs could pass, again and again, a head whose start is
    /// unknown.
    pub fn sees_end(&self, now: f64, limit: f64) -> bool {
        limit.is_finite() && now + limit <= self.time
    }

    /// The quotas left for later jobs if the job, of a class, starts at the shadow time.
    pub fn quotas(&self, state: &mut EngineState, class: ClassId, now: f64) -> Quotas {
        let mut quotas = Quotas::new(now);
        let start = quotas.earliest(state, class, self.bound(), f64::INFINITY);
        quotas.reserve_most(state, class, start);
        quotas
    }

    /// The time by which later jobs have to end so as not to delay it.
    pub fn bound(&self) -> f64 {
        self.time.min(f64::MAX)
    }

    /// The units of the shadow's shape that an allocation takes at the shadow time.
    pub fn cost(&self, node_table: &NodeTable, overlay: &Overlay, shares: &[NodeShare]) -> u64 {
        if self.fungible {
            return shares.iter().map(|share| u64::from(share.ncores())).sum();
        }
        let cost =
            |share: &NodeShare| self.cost_on_node(node_table, overlay, share.node, share.amounts());
        shares.iter().map(cost).sum()
    }

    /// The units that an allocation takes at the shadow time, if they are more than are spare.
    pub fn interference(
        &self,
        node_table: &NodeTable,
        overlay: &Overlay,
        shares: &[NodeShare],
    ) -> Option<Interference> {
        let (takes, spare) = (self.cost(node_table, overlay, shares), self.spare);
        let takes = NonZeroU64::new(takes).filter(|takes| takes.get() > spare)?;
        Some(Interference { takes, spare })
    }

    /// As [`cost`](Self::cost), for these cores and gpus of one node.
    pub fn cost_on_node(
        &self,
        node_table: &NodeTable,
        overlay: &Overlay,
        node: NodeIndex,
        taken: Amounts,
    ) -> u64 {
        let before = overlay.at(node_table, node);
        let left = without(before, taken);
        let units = node_table.units(self.shape, node, before);
        u64::from(units.saturating_sub(node_table.units(self.shape, node, left)))
    }

    /// Cores that any job can take now without delaying the blocked head.
    pub fn room(&self, node_table: &NodeTable, overlay: &mut Overlay) -> u64 {
        let mut room = std::mem::take(&mut overlay.room);
        if let Some(changed) = room.seen.and_then(|seen| node_table.changed_since(seen)) {
            for node in changed {
                room.set(*node, self.harmless(node_table, overlay, *node));
            }
        } else {
            room.clear(node_table.node_count());
            for node in node_table.node_indices() {
                room.set(node, self.harmless(node_table, overlay, node));
            }
        }
        room.seen = Some(node_table.change_count());
        let cores = room.cores;
        overlay.room = room;
        cores
    }

    /// The most free cores of a node that can be taken at no cost.
    fn harmless(&self, node_table: &NodeTable, overlay: &Overlay, node: NodeIndex) -> u32 {
        if !node_table.is_up(node) {
            return 0;
        }
        let (mut good, mut bad) = (0, node_table.free(node).cores.saturating_add(1));
        let mut cores = bad - 1;
        while good + 1 < bad {
            if self.cost_on_node(node_table, overlay, node, Amounts { cores, gpus: 0 }) == 0 {
                good = cores;
            } else {
                bad = cores;
            }
            cores = good + (bad - good) / 2;
        }
        good
    }

    /// Places a shape on nodes that lose none of the blocked head's units.
    pub fn place_beside(
        &self,
        node_table: &mut NodeTable,
        overlay: &mut Overlay,
        shape: ShapeId,
    ) -> Option<Allocation> {
        self.room(node_table, overlay);
        let demand = node_table.demand(shape);
        let room = &overlay.room;
        if room.units(demand.cores, demand.kind) < node_table.need(shape) {
            return None;
        }
        let mut accept = |node_table: &NodeTable, node: NodeIndex, units: u32| {
            let amounts = amount(node_table, shape, node, units).amounts();
            room.by_node[node.index()] >= amounts.cores
                && self.cost_on_node(node_table, overlay, node, amounts) == 0
        };
        node_table.place_where(shape, &mut accept)
    }

    /// Records in the overlay what an allocation that is about to be made leaves free at the shadow time.
    pub fn update_overlay(
        &self,
        node_table: &NodeTable,
        overlay: &mut Overlay,
        shares: &[NodeShare],
        then: AtShadowTime,
    ) {
        if self.fungible {
            return;
        }
        for share in shares {
            let node = share.node;
            let free = overlay.at(node_table, node);
            let free = match then {
                AtShadowTime::Released => free,
                AtShadowTime::Allocated => without(free, share.amounts()),
            };
            overlay.set(node, free);
        }
    }
}

/// Ends running jobs as planned until the shape fits. Returns that time.
fn walk(
    state: &mut EngineState,
    shape: ShapeId,
    need: u64,
    mut units: u64,
    now: f64,
    overlay: &mut Overlay,
) -> Option<FreeUnits> {
    state.timeline();
    let (node_table, runs) = (&state.node_table, &state.running_jobs);
    let timeline = state.timeline.as_ref()?;
    let work = &mut state.work;
    let mut end = |run: RunId, units: &mut u64| {
        for share in runs.at(run).map_or(&[][..], |running| &running.shares) {
            *work += NODE_WORK;
            *units += u64::from(overlay.release(node_table, shape, share));
        }
    };
    let mut overdue = timeline
        .iter()
        .take_while(|ending| ending.end <= now)
        .peekable();
    let mut later = timeline.after(now).peekable();
    loop {
        let mut time = later.peek().map_or(f64::INFINITY, |ending| ending.end);
        if overdue.peek().is_some() && time >= now + 1.0 {
            time = now + 1.0;
            for ending in overdue.by_ref() {
                end(ending.run, &mut units);
            }
        }
        if !time.is_finite() && later.peek().is_none() {
            return None;
        }
        while let Some(ending) = later.next_if(|ending| ending.end <= time) {
            end(ending.run, &mut units);
        }
        if units >= need {
            return Some(FreeUnits { time, units });
        }
    }
}
