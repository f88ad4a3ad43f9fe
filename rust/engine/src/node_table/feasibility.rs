//! Feasibility: whether the whole inventory, idle and up, could run a request, and if not, why.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::{Constraint, Request};

use super::allocation::Size;
use super::node_class::Amounts;
use super::nodes::Nodes;
use crate::ids::NodeClassId;
use crate::shown_constraint::ShownConstraint;

/// The number of nodes of each size, ascending, whether allocated or not.
#[derive(Debug)]
pub(crate) struct NodeCensus(Vec<NodeCount>);

/// The number of nodes with exactly these cores and gpus.
#[derive(Clone, Copy, Debug)]
struct NodeCount {
    has: Amounts,
    count: u64,
}

impl NodeCensus {
    /// Counts all nodes, or some of them by their indices.
    pub fn new(nodes: &Nodes, subset: Option<&IdSet>) -> Self {
        // Counting by class first needs no map.
        let mut by_class: Vec<u64> = Vec::new();
        let all = nodes.len().checked_sub(1).map(|last| 0..=last);
        let some = subset.into_iter().flat_map(IdSet::ranges);
        let ranges = some.chain(all.filter(|_| subset.is_none()));
        for run in ranges.flat_map(|range| nodes.class_runs(range)) {
            let class = run.class.index();
            if by_class.len() <= class {
                by_class.resize(class + 1, 0);
            }
            by_class[class] += u64::from(run.count);
        }
        let mut census: BTreeMap<Amounts, u64> = BTreeMap::new();
        for (count, class) in by_class.into_iter().zip(0_u32..) {
            if count > 0 {
                let class = nodes.classes().get(NodeClassId::new(class));
                *census.entry(class.into()).or_default() += count;
            }
        }
        let counts = census
            .into_iter()
            .map(|(has, count)| NodeCount { has, count });
        Self(counts.collect())
    }

    fn nodes(&self) -> u64 {
        self.0.iter().map(|nodes| nodes.count).sum()
    }

    fn sum(&self, of: impl Fn(Amounts) -> u32) -> u64 {
        self.0
            .iter()
            .map(|nodes| u64::from(of(nodes.has)).saturating_mul(nodes.count))
            .fold(0, u64::saturating_add)
    }

    /// The number of cores of the largest node.
    pub fn max_cores_per_node(&self) -> u64 {
        self.most(|has| has.cores)
    }

    fn most(&self, of: impl Fn(Amounts) -> u32) -> u64 {
        let most = self.0.iter().map(|nodes| of(nodes.has)).max();
        most.unwrap_or(0).into()
    }
}

/// The fewest nodes and the fewest cores that a feasible request can be allocated.
pub(crate) fn min_size(census: &NodeCensus, request: &Request) -> Size {
    let per_slot = per_slot(request);
    let Some(nnodes) = &request.nnodes else {
        let mut by_units: Vec<(u32, u64)> = census
            .0
            .iter()
            .map(|nodes| (nodes.has.slots(per_slot), nodes.count))
            .filter(|(units, _)| *units > 0)
            .collect();
        by_units.sort_unstable_by_key(|(units, _)| Reverse(*units));
        let (mut nodes, mut left) = (0, u64::from(request.slots.min().max(1)));
        for (units, count) in by_units {
            let units = u64::from(units);
            let taken = left.div_ceil(units).min(count);
            nodes += taken;
            left = left.saturating_sub(taken.saturating_mul(units));
        }
        return Size {
            nodes,
            cores: request.total_cores(),
        };
    };
    let wanted = u64::from(nnodes.min().max(1));
    let slots = u64::from(request.slots.min().max(1));
    let per_node = slots * u64::from(per_slot.cores.max(1));
    if !request.exclusive {
        return Size {
            nodes: wanted,
            cores: wanted.saturating_mul(per_node),
        };
    }
    let is_large_enough = |nodes: &&NodeCount| {
        u64::from(nodes.has.cores) >= per_node
            && u64::from(nodes.has.gpus) >= slots * u64::from(per_slot.gpus)
    };
    // The census begins with the smallest nodes.
    let smallest = census.0.iter().filter(is_large_enough);
    Size {
        nodes: wanted,
        cores: cores_of(smallest, wanted),
    }
}

/// The most nodes and the most cores that a request can be allocated with its minimum counts.
pub(crate) fn max_size(census: &NodeCensus, request: &Request) -> Size {
    let Some(nnodes) = &request.nnodes else {
        return Size {
            nodes: request.slots.min().max(1).into(),
            cores: request.total_cores(),
        };
    };
    if !request.exclusive {
        return min_size(census, request);
    }
    let wanted = u64::from(nnodes.min().max(1));
    Size {
        nodes: wanted,
        cores: cores_of(census.0.iter().rev(), wanted),
    }
}

/// The cores of the first `wanted` nodes.
fn cores_of<'a>(nodes: impl Iterator<Item = &'a NodeCount>, wanted: u64) -> u64 {
    let (mut cores, mut left) = (0_u64, wanted);
    for nodes in nodes {
        let taken = left.min(nodes.count);
        cores = cores.saturating_add(taken.saturating_mul(u64::from(nodes.has.cores)));
        left -= taken;
    }
    cores
}

/// A kind of resource that a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    Core,
    Gpu,
}

impl Resource {
    const ALL: [Self; 2] = [Self::Core, Self::Gpu];

    fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Gpu => "gpu",
        }
    }

    /// The number of them, among cores and gpus.
    fn of(self, amounts: Amounts) -> u32 {
        match self {
            Self::Core => amounts.cores,
            Self::Gpu => amounts.gpus,
        }
    }
}

/// The cores and gpus that are needed on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeNeed {
    cores: u64,
    gpus: u64,
}

impl NodeNeed {
    /// The cores and gpus of `slots` slots.
    fn of(request: &Request, slots: u64) -> Self {
        Self {
            cores: slots * u64::from(request.cores_per_slot.min()),
            gpus: slots * u64::from(request.gpus_per_slot.min()),
        }
    }
}

impl fmt::Display for NodeNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.cores, "core"))?;
        match self.gpus {
            0 => Ok(()),
            gpus => write!(f, " and {}", counted(gpus, "gpu")),
        }
    }
}

/// The requirement of a request that is impossible, and the available maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shortfall {
    /// There is no node that the request may use.
    NoNodes,
    Nodes {
        requested: u64,
        exist: u64,
    },
    /// All nodes together have too few.
    Total {
        resource: Resource,
        requested: u64,
        exist: u64,
    },
    /// No node has enough for one `unit`.
    LargestNode {
        resource: Resource,
        unit: &'static str,
        requested: u64,
        most: u64,
    },
    /// Too few slots fit.
    Slots {
        requested: u64,
        need: NodeNeed,
        most: u64,
    },
    /// Too few nodes have enough.
    EquippedNodes {
        requested: u64,
        need: NodeNeed,
        most: u64,
    },
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoNodes => f.write_str("the instance has no nodes"),
            Self::Nodes { requested, exist } => {
                write!(f, "{} requested, {exist} exist", counted(requested, "node"))
            }
            Self::Total {
                resource,
                requested,
                exist,
            } => {
                let requested = counted(requested, resource.name());
                write!(f, "{requested} requested, {exist} exist")
            }
            Self::LargestNode {
                resource,
                unit,
                requested,
                most,
            } => {
                let what = resource.name();
                let requested = counted(requested, what);
                write!(f, "{requested} per {unit} requested, no node has ")?;
                match most {
                    0 => write!(f, "{what}s"),
                    most => write!(f, "more than {most}"),
                }
            }
            Self::Slots {
                requested,
                need,
                most,
            } => {
                let requested = counted(requested, "slot");
                write!(
                    f,
                    "{requested} of {need} requested, no more than {most} fit"
                )
            }
            Self::EquippedNodes {
                requested,
                need,
                most,
            } => {
                let requested = counted(requested, "node");
                write!(
                    f,
                    "{requested} with {need} requested, only {most} have that"
                )
            }
        }
    }
}

/// The reason why the whole inventory, idle and up, cannot run a request.
///
/// Its text is the note of a denial: which requirement is impossible, and the available maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infeasible {
    shortfall: Shortfall,
    /// Shared, as the node table caches the error and returns copies.
    constraint: Option<Arc<Constraint>>,
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.shortfall, &self.constraint) {
            (Shortfall::NoNodes, Some(constraint)) => {
                let constraint = ShownConstraint(constraint);
                write!(f, "no node meets the constraint {constraint}")
            }
            (shortfall, Some(constraint)) => {
                let constraint = ShownConstraint(constraint);
                write!(
                    f,
                    "{shortfall} among the nodes that meet the constraint {constraint}"
                )
            }
            (shortfall, None) => shortfall.fmt(f),
        }
    }
}

impl std::error::Error for Infeasible {}

/// A number with its noun, which gets an `s` unless the number is 1.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Checks whether a request can be met with its minimum counts.
pub(crate) fn check(census: &NodeCensus, request: &Request) -> Result<(), Infeasible> {
    let checked = match &request.nnodes {
        _ if census.nodes() == 0 => Err(Shortfall::NoNodes),
        None => check_slots(census, request),
        Some(wanted) => check_nodes(census, request, wanted.min().into()),
    };
    checked.map_err(|shortfall| Infeasible {
        shortfall,
        constraint: request.constraint.clone().map(Arc::new),
    })
}

/// The minimum cores and gpus of a slot.
fn per_slot(request: &Request) -> Amounts {
    Amounts {
        cores: request.cores_per_slot.min(),
        gpus: request.gpus_per_slot.min(),
    }
}

fn check_slots(census: &NodeCensus, request: &Request) -> Result<(), Shortfall> {
    let per_slot = per_slot(request);
    let most = census.sum(|has| has.slots(per_slot));
    let wanted = u64::from(request.slots.min().max(1));
    if most >= wanted {
        return Ok(());
    }
    check_largest_node(census, request, 1)?;
    for resource in Resource::ALL {
        let exist = census.sum(|has| resource.of(has));
        let requested = wanted.saturating_mul(u64::from(resource.of(per_slot)));
        if requested > exist {
            return Err(Shortfall::Total {
                resource,
                requested,
                exist,
            });
        }
    }
    Err(Shortfall::Slots {
        requested: wanted,
        need: NodeNeed::of(request, 1),
        most,
    })
}

fn check_nodes(census: &NodeCensus, request: &Request, wanted: u64) -> Result<(), Shortfall> {
    let wanted = wanted.max(1);
    let slots = u64::from(request.slots.min().max(1));
    let need_cores = slots * u64::from(request.cores_per_slot.min().max(1));
    let need_gpus = slots * u64::from(request.gpus_per_slot.min());
    let fits = |has: Amounts| {
        u32::from(u64::from(has.cores) >= need_cores && u64::from(has.gpus) >= need_gpus)
    };
    let most = census.sum(fits);
    if most >= wanted {
        return Ok(());
    }
    let exist = census.nodes();
    if wanted > exist {
        return Err(Shortfall::Nodes {
            requested: wanted,
            exist,
        });
    }
    check_largest_node(census, request, slots)?;
    Err(Shortfall::EquippedNodes {
        requested: wanted,
        need: NodeNeed::of(request, slots),
        most,
    })
}

/// Checks whether some node has the cores, and some node the gpus, of `slots` slots together.
fn check_largest_node(census: &NodeCensus, request: &Request, slots: u64) -> Result<(), Shortfall> {
    let unit = if request.nnodes.is_some() {
        "node"
    } else {
        "slot"
    };
    let per_slot = per_slot(request);
    for resource in Resource::ALL {
        let requested = slots * u64::from(resource.of(per_slot));
        let most = census.most(|has| resource.of(has));
        if requested > most {
            return Err(Shortfall::LargestNode {
                resource,
                unit,
                requested,
                most,
            });
        }
    }
    Ok(())
}
