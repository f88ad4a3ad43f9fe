//! What a shape lacks now.

use std::collections::HashMap;
use std::fmt;

use rustc_hash::FxBuildHasher;

use penstock_jobspec::{Count, Request};

use super::{Field, amount};
use crate::ids::NodeIndex;
use crate::machine::{Machine, NodeResources, ShapeId};

/// What one unit of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whether a unit is a node, else a slot.
    pub node: bool,
    /// Whether the node is wanted whole.
    pub exclusive: bool,
    /// Cores of a unit.
    pub cores: u64,
    /// Gpus of a unit.
    pub gpus: u64,
}

impl Wanted {
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

    /// Cores that so many units take at the least; `sizes` are the cores of nodes that would do
    /// whole, with how many there are.
    fn cores_of(self, units: u64, mut sizes: Vec<(u64, u64)>) -> u64 {
        if !self.exclusive {
            return units.saturating_mul(self.cores);
        }
        sizes.sort_unstable();
        let (mut cores, mut left) = (0_u64, units);
        for (size, count) in sizes {
            let taken = left.min(count);
            cores = cores.saturating_add(size.saturating_mul(taken));
            left -= taken;
        }
        if left == 0 { cores } else { u64::MAX }
    }

    /// Whether a unit is any core.
    fn is_core(self) -> bool {
        !self.node && (self.cores, self.gpus) == (1, 0)
    }

    /// Units that a node gives with so much free.
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

    /// What a node has of cores, and of gpus, beyond the units it gives, and what one more takes.
    fn miss(self, node: &Alike, units: u64) -> ((u64, u64), (u64, u64)) {
        let (free, size) = (node.free, node.size);
        if self.exclusive {
            return (
                (free.cores.into(), size.cores.into()),
                (free.gpus.into(), size.gpus.into()),
            );
        }
        let over = |free: u32, each: u64| (u64::from(free).saturating_sub(units * each), each);
        (over(free.cores, self.cores), over(free.gpus, self.gpus))
    }
}

/// What is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// There are not so many free cores.
    Cores,
    /// There are not so many free gpus.
    Gpus,
    /// There are, but not as they are wanted together.
    Together,
}

/// The node that is the nearest to giving one unit more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Whether gpus are short there, else cores.
    pub gpus: bool,
    /// What it has free beyond the units it gives.
    pub has: u64,
    /// What one unit more takes.
    pub wants: u64,
}

/// What a request needs now and does not find free. Units are nodes or slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What one unit is.
    pub wanted: Wanted,
    /// Units that the request needs.
    pub need: u64,
    /// Units that are free, on nodes that are up.
    pub free: u64,
    /// Units that are in use, on nodes that are up.
    pub used: u64,
    /// Units on nodes that are down, or drained.
    pub down: u64,
    /// Nodes that the constraint allows.
    pub nodes: u32,
    /// Of these, nodes that are up.
    pub nodes_up: u32,
    /// What is short.
    pub lack: Lack,
    /// The node that comes nearest to one unit more, the lowest rank of several.
    pub nearest: Option<Nearest>,
}

/// Nodes of which the same is in use.
#[derive(Clone, Copy, Debug)]
struct Alike {
    size: NodeResources,
    free: NodeResources,
    up: bool,
    count: u32,
    /// The first of them.
    place: NodeIndex,
}

/// Nodes by what they have and what of it is free: there are far fewer kinds than nodes.
#[derive(Clone, Debug)]
pub(super) struct Census(Vec<Alike>);

impl Census {
    /// The nodes that a shape may run on. Looks at every node.
    pub fn of(machine: &mut Machine, shape: ShapeId) -> Self {
        // Brings what is known of the shape up to date.
        machine.units_now(shape);
        let mut alike: Vec<Alike> = Vec::new();
        let mut known: HashMap<_, usize, FxBuildHasher> = HashMap::default();
        for place in machine.node_indices() {
            if !machine.is_eligible(shape, place) {
                continue;
            }
            let (size, free, up) = (
                machine.total(place),
                machine.free(place),
                machine.is_up(place),
            );
            let key = (size.cores, size.gpus, free.cores, free.gpus, up);
            let at = *known.entry(key).or_insert(alike.len());
            match alike.get_mut(at) {
                Some(it) => it.count += 1,
                None => alike.push(Alike {
                    size,
                    free,
                    up,
                    count: 1,
                    place,
                }),
            }
        }
        Self(alike)
    }
}

impl Shortage {
    /// What a shape lacks now. Looks at every node.
    pub(crate) fn now(machine: &mut Machine, shape: ShapeId) -> Self {
        let census = Census::of(machine, shape);
        Self::of(machine, shape, &census)
    }

    /// What a shape lacks, given the nodes that it may run on.
    pub(super) fn of(machine: &Machine, shape: ShapeId, census: &Census) -> Self {
        let wanted = Wanted::of(machine.request(shape));
        let mut found = Self {
            wanted,
            need: machine.need(shape),
            free: 0,
            used: 0,
            down: 0,
            nodes: 0,
            nodes_up: 0,
            lack: Lack::Together,
            nearest: None,
        };
        let (mut cores, mut gpus) = (0, 0);
        // Of whole nodes, their sizes.
        let mut sizes: Vec<(u64, u64)> = Vec::new();
        let mut nearest: Option<(u64, NodeIndex, &Alike)> = None;
        for it in &census.0 {
            let count = u64::from(it.count);
            found.nodes += it.count;
            let most = wanted.units(it.size);
            if !it.up {
                found.down += most * count;
                continue;
            }
            found.nodes_up += it.count;
            cores += u64::from(it.free.cores) * count;
            gpus += u64::from(it.free.gpus) * count;
            if wanted.exclusive && most > 0 {
                sizes.push((it.size.cores.into(), count));
            }
            let units = wanted.units(it.free);
            found.free += units * count;
            found.used += most.saturating_sub(units) * count;
            if units < most && !wanted.is_core() {
                let (core, gpu) = wanted.miss(it, units);
                let missing = core.1.saturating_sub(core.0) + gpu.1.saturating_sub(gpu.0);
                if nearest.is_none_or(|(least, place, _)| (missing, it.place) < (least, place)) {
                    nearest = Some((missing, it.place, it));
                }
            }
        }
        if gpus < found.need.saturating_mul(wanted.gpus) {
            found.lack = Lack::Gpus;
        } else if cores < wanted.cores_of(found.need, sizes) {
            found.lack = Lack::Cores;
        }
        found.nearest = nearest.map(|(_, place, it)| {
            let (core, gpu) = wanted.miss(it, wanted.units(it.free));
            // Of a whole node gpus are told where they are wanted, or nothing else is in use.
            let gpus = gpu.0 < gpu.1 && (wanted.gpus > 0 || core.0 >= core.1);
            let (has, wants) = if gpus { gpu } else { core };
            Nearest {
                rank: machine.rank(place),
                host: machine.host(place),
                gpus,
                has,
                wants,
            }
        });
        found
    }

    pub(super) fn fields(&self, fields: &mut Vec<(&'static str, Field)>) {
        let unit = if self.wanted.node { "node" } else { "slot" };
        let lack = match self.lack {
            Lack::Cores => "cores",
            Lack::Gpus => "gpus",
            Lack::Together => "together",
        };
        fields.extend([
            ("unit", Field::Text(unit.to_owned())),
            ("cores", Field::Count(self.wanted.cores)),
            ("gpus", Field::Count(self.wanted.gpus)),
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

impl fmt::Display for Wanted {
    /// What a unit has: `8 cores and 1 gpu`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&amount(self.cores, "core"))?;
        match self.gpus {
            0 => Ok(()),
            gpus => write!(f, " and {}", amount(gpus, "gpu")),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = self.wanted;
        if wanted.is_core() {
            write!(f, "needs {}", amount(self.need, "core"))?;
        } else if wanted.exclusive {
            write!(f, "needs {}", amount(self.need, "whole node"))?;
        } else if wanted.node {
            write!(f, "needs {} with {wanted}", amount(self.need, "node"))?;
        } else {
            write!(f, "needs {} of {wanted}", amount(self.need, "slot"))?;
        }
        let verb = |count: u64| if count == 1 { "is" } else { "are" };
        match self.free {
            0 => f.write_str(": none is free")?,
            free => write!(f, ": {free} {} free", verb(free))?,
        }
        match self.down {
            0 => {}
            down if wanted.node => write!(f, ", {down} {} down", verb(down))?,
            down => write!(f, ", {down} on nodes that are down")?,
        }
        if !wanted.is_core() && self.free < self.need {
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
                _ if wanted.exclusive => write!(f, "{has} of {} free", amount(*wants, what))?,
                0 => write!(f, "no {what} free")?,
                // Of those that it takes: the node may have more.
                _ => write!(f, "{has} of the {} free", amount(*wants, what))?,
            }
        }
        Ok(())
    }
}
