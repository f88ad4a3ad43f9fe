//! Shortages: the resources that a shape needs and that are not free now.

use std::collections::HashMap;
use std::fmt;

use rustc_hash::FxBuildHasher;

use penstock_jobspec::{Count, Request};

use penstock_jobspec::job_id::JobId;

use crate::QueueId;
use crate::ids::NodeIndex;
use crate::node_table::{NodeResources, NodeTable, ShapeId, counted};

/// One unit of a request: a node or a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestUnit {
    /// Whether it is a node; else it is a slot.
    pub node: bool,
    /// Whether the node is requested whole.
    pub exclusive: bool,
    /// Cores per unit.
    pub cores: u64,
    /// Gpus per unit.
    pub gpus: u64,
}

impl RequestUnit {
    fn of(request: &Request) -> Self {
        let node = request.nnodes.is_some();
        let slots = if node { request.slots.min() } else { 1 };
        let of = |each: &Count| u64::from(slots) * u64::from(each.min());
        Self {
            node,
            exclusive: node && request.exclusive,
            cores: of(&request.cores_per_slot),
            gpus: of(&request.gpus_per_slot),
        }
    }

    /// The minimum number of cores that `units` take. `sizes` lists, for whole nodes, the sizes of
    /// suitable nodes.
    fn cores_of(self, units: u64, mut sizes: Vec<SizeCount>) -> u64 {
        if !self.exclusive {
            return units.saturating_mul(self.cores);
        }
        sizes.sort_unstable_by_key(|size| size.cores);
        let (mut cores, mut left) = (0_u64, units);
        for size in sizes {
            let taken = left.min(size.count);
            cores = cores.saturating_add(size.cores.saturating_mul(taken));
            left -= taken;
        }
        if left == 0 { cores } else { u64::MAX }
    }

    /// Whether any core is a unit.
    fn is_core(self) -> bool {
        !self.node && (self.cores, self.gpus) == (1, 0)
    }

    /// The units that fit into the free resources of a node.
    fn units(self, free: NodeResources) -> u64 {
        let cores = u64::from(free.cores) / self.cores.max(1);
        let gpus = u64::from(free.gpus).checked_div(self.gpus);
        let slots = gpus.map_or(cores, |gpus| cores.min(gpus));
        if self.node {
            u64::from(slots > 0 && (free.whole || !self.exclusive))
        } else {
            slots
        }
    }

    /// The cores that a node has free beyond its free units.
    fn spare_cores(self, node: &NodeGroup, units: u64) -> Spare {
        self.spare(node.free.cores, node.size.cores, units, self.cores)
    }

    /// The gpus that a node has free beyond its free units.
    fn spare_gpus(self, node: &NodeGroup, units: u64) -> Spare {
        self.spare(node.free.gpus, node.size.gpus, units, self.gpus)
    }

    fn spare(self, free: u32, size: u32, units: u64, each: u64) -> Spare {
        if self.exclusive {
            return Spare {
                has: free.into(),
                wants: size.into(),
            };
        }
        Spare {
            has: u64::from(free).saturating_sub(units * each),
            wants: each,
        }
    }
}

/// The amount of a resource that a node has free beyond its free units.
#[derive(Clone, Copy, Debug)]
struct Spare {
    has: u64,
    /// The amount that one more unit takes.
    wants: u64,
}

impl Spare {
    fn missing(self) -> u64 {
        self.wants.saturating_sub(self.has)
    }
}

/// The number of cores of a node, and the number of nodes with that many.
#[derive(Clone, Copy, Debug)]
struct SizeCount {
    cores: u64,
    count: u64,
}

/// Which resource is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Too few cores are free.
    Cores,
    /// Too few gpus are free.
    Gpus,
    /// Enough are free, but not together on nodes as requested.
    Together,
}

/// The node that lacks the least for one more unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Whether gpus are short there; otherwise cores are.
    pub gpus: bool,
    /// The number that is free beyond its free units.
    pub has: u64,
    /// The number that one more unit takes.
    pub wants: u64,
}

/// Requested and available resources, in units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The unit in which the amounts are counted.
    pub unit: RequestUnit,
    /// Units that the request needs.
    pub need: u64,
    /// Units that are free, on nodes that are up.
    pub free: u64,
    /// Units that are in use, on nodes that are up.
    pub used: u64,
    /// Units on nodes that are down, or drained.
    pub down: u64,
    /// The number of nodes that the constraint allows.
    pub nodes: u32,
    /// The number of these that are up.
    pub nodes_up: u32,
    /// Which resource is short.
    pub lack: Lack,
    /// The node that lacks the least for one more unit; the lowest rank of several.
    pub nearest: Option<Nearest>,
}

/// Nodes of one size with the same amounts free.
#[derive(Clone, Copy, Debug)]
struct NodeGroup {
    size: NodeResources,
    free: NodeResources,
    up: bool,
    count: u32,
    /// The first of them.
    node: NodeIndex,
}

/// The nodes that a constraint allows, grouped by size and by what is free.
#[derive(Clone, Debug)]
pub(super) struct GroupCensus(Vec<NodeGroup>);

impl GroupCensus {
    /// Groups the nodes that a shape may run on. The cost is proportional to the number of nodes.
    pub fn of(node_table: &mut NodeTable, shape: ShapeId) -> Self {
        // Updates the node table's cache of the shape.
        node_table.units_now(shape);
        let mut groups: Vec<NodeGroup> = Vec::new();
        let mut known: HashMap<_, usize, FxBuildHasher> = HashMap::default();
        for node in node_table.node_indices() {
            if !node_table.is_eligible(shape, node) {
                continue;
            }
            let (size, free, up) = (
                node_table.total(node),
                node_table.free(node),
                node_table.is_up(node),
            );
            let key = (size.cores, size.gpus, free.cores, free.gpus, up);
            let at = *known.entry(key).or_insert(groups.len());
            match groups.get_mut(at) {
                Some(known) => known.count += 1,
                None => groups.push(NodeGroup {
                    size,
                    free,
                    up,
                    count: 1,
                    node,
                }),
            }
        }
        Self(groups)
    }
}

impl Shortage {
    /// The shortage of a shape now. The cost is proportional to the number of nodes.
    pub(crate) fn now(node_table: &mut NodeTable, shape: ShapeId) -> Self {
        let census = GroupCensus::of(node_table, shape);
        Self::of(node_table, shape, &census)
    }

    /// The shortage of a shape, given the nodes that it may run on.
    pub(super) fn of(node_table: &NodeTable, shape: ShapeId, census: &GroupCensus) -> Self {
        let unit = RequestUnit::of(node_table.request(shape));
        let mut found = Self {
            unit,
            need: node_table.need(shape),
            free: 0,
            used: 0,
            down: 0,
            nodes: 0,
            nodes_up: 0,
            lack: Lack::Together,
            nearest: None,
        };
        let (mut cores, mut gpus) = (0, 0);
        // For whole nodes, the sizes of the nodes.
        let mut sizes: Vec<SizeCount> = Vec::new();
        let mut nearest: Option<(u64, NodeIndex, &NodeGroup)> = None;
        for nodes in &census.0 {
            let count = u64::from(nodes.count);
            found.nodes += nodes.count;
            let most = unit.units(nodes.size);
            if !nodes.up {
                found.down += most * count;
                continue;
            }
            found.nodes_up += nodes.count;
            cores += u64::from(nodes.free.cores) * count;
            gpus += u64::from(nodes.free.gpus) * count;
            if unit.exclusive && most > 0 {
                sizes.push(SizeCount {
                    cores: nodes.size.cores.into(),
                    count,
                });
            }
            let units = unit.units(nodes.free);
            found.free += units * count;
            found.used += most.saturating_sub(units) * count;
            if units < most && !unit.is_core() {
                let spare = [
                    unit.spare_cores(nodes, units),
                    unit.spare_gpus(nodes, units),
                ];
                let missing = spare.map(Spare::missing).iter().sum();
                if nearest.is_none_or(|(least, node, _)| (missing, nodes.node) < (least, node)) {
                    nearest = Some((missing, nodes.node, nodes));
                }
            }
        }
        if gpus < found.need.saturating_mul(unit.gpus) {
            found.lack = Lack::Gpus;
        } else if cores < unit.cores_of(found.need, sizes) {
            found.lack = Lack::Cores;
        }
        found.nearest = nearest.map(|(_, node, nodes)| {
            let units = unit.units(nodes.free);
            let (cores, gpus) = (
                unit.spare_cores(nodes, units),
                unit.spare_gpus(nodes, units),
            );
            // For a whole node, gpus are named if they are requested, or if no core is in use.
            let lacks_gpus = gpus.missing() > 0 && (unit.gpus > 0 || cores.missing() == 0);
            let Spare { has, wants } = if lacks_gpus { gpus } else { cores };
            Nearest {
                rank: node_table.rank(node),
                host: node_table.host(node),
                gpus: lacks_gpus,
                has,
                wants,
            }
        });
        found
    }

    pub(super) fn fields(&self, fields: &mut Vec<(&'static str, Field)>) {
        let unit = if self.unit.node { "node" } else { "slot" };
        let lack = match self.lack {
            Lack::Cores => "cores",
            Lack::Gpus => "gpus",
            Lack::Together => "together",
        };
        fields.extend([
            ("unit", Field::Text(unit.to_owned())),
            ("cores", Field::Count(self.unit.cores)),
            ("gpus", Field::Count(self.unit.gpus)),
            ("need", Field::Count(self.need)),
            ("free", Field::Count(self.free)),
            ("used", Field::Count(self.used)),
            ("down", Field::Count(self.down)),
            ("nodes", Field::Count(self.nodes.into())),
            ("nodes_up", Field::Count(self.nodes_up.into())),
            ("lack", Field::Text(lack.to_owned())),
        ]);
        if let Some(nearest) = &self.nearest {
            let what = if nearest.gpus { "gpus" } else { "cores" };
            fields.extend([
                ("nearest_rank", Field::Count(nearest.rank.into())),
                ("nearest_host", Field::Text(nearest.host.clone())),
                ("nearest_lacks", Field::Text(what.to_owned())),
                ("nearest_has", Field::Count(nearest.has)),
                ("nearest_wants", Field::Count(nearest.wants)),
            ]);
        }
    }
}

impl fmt::Display for RequestUnit {
    /// Formats what a unit has: `8 cores and 1 gpu`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.cores, "core"))?;
        match self.gpus {
            0 => Ok(()),
            gpus => write!(f, " and {}", counted(gpus, "gpu")),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit;
        if unit.is_core() {
            write!(f, "needs {}", counted(self.need, "core"))?;
        } else if unit.exclusive {
            write!(f, "needs {}", counted(self.need, "whole node"))?;
        } else if unit.node {
            write!(f, "needs {} with {unit}", counted(self.need, "node"))?;
        } else {
            write!(f, "needs {} of {unit}", counted(self.need, "slot"))?;
        }
        let verb = |count: u64| if count == 1 { "is" } else { "are" };
        match self.free {
            0 => f.write_str(": none is free")?,
            free => write!(f, ": {free} {} free", verb(free))?,
        }
        match self.down {
            0 => {}
            down if unit.node => write!(f, ", {down} {} down", verb(down))?,
            down => write!(f, ", {down} on nodes that are down")?,
        }
        if !unit.is_core() && self.free < self.need {
            match self.lack {
                Lack::Cores => {}
                Lack::Gpus => f.write_str("; gpus are short")?,
                Lack::Together => f.write_str("; there is enough, but not together")?,
            }
        }
        if let Some(nearest) = &self.nearest {
            let what = if nearest.gpus { "gpu" } else { "core" };
            let Nearest {
                host, has, wants, ..
            } = nearest;
            write!(f, "; nearest is {host}, with ")?;
            match has {
                _ if unit.exclusive => write!(f, "{has} of {} free", counted(*wants, what))?,
                0 => write!(f, "no {what} free")?,
                // "the": of those that the unit takes; the node may have more.
                _ => write!(f, "{has} of the {} free", counted(*wants, what))?,
            }
        }
        Ok(())
    }
}

/// A value of a reason, for output.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// A job's id.
    Job(JobId),
    /// A queue.
    Queue(QueueId),
    /// A number.
    Count(u64),
    /// Seconds since the epoch.
    Time(f64),
    /// Text.
    Text(String),
}
