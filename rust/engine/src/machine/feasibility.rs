//! Whether the whole machine, idle and up, could run a request, and if not, why.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use penstock_idset::IdSet;
use penstock_jobspec::Request;

use super::measure;
use super::nodes::Nodes;
use super::size::Size;
use crate::ids::NodeClassId;

/// The nodes by what each has, ascending: what is there if nothing is allocated.
#[derive(Debug)]
pub(crate) struct Census(Vec<NodeCount>);

/// How many nodes have just so many cores and gpus.
#[derive(Clone, Copy, Debug)]
struct NodeCount {
    cores: u32,
    gpus: u32,
    count: u64,
}

impl Census {
    /// Counts all nodes, or some of them by their indices.
    pub fn new(nodes: &Nodes, subset: Option<&IdSet>) -> Self {
        // By class first, which needs no map.
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
        let mut census: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for (count, class) in by_class.into_iter().zip(0_u32..) {
            if count > 0 {
                let class = nodes.classes().get(NodeClassId::new(class));
                *census.entry((class.cores.len, class.gpus.len)).or_default() += count;
            }
        }
        let counts =
            census
                .into_iter()
                .map(|((cores, gpus), count)| NodeCount { cores, gpus, count });
        Self(counts.collect())
    }

    fn nodes(&self) -> u64 {
        self.0.iter().map(|nodes| nodes.count).sum()
    }

    fn sum(&self, of: impl Fn(u32, u32) -> u32) -> u64 {
        self.0
            .iter()
            .map(|nodes| u64::from(of(nodes.cores, nodes.gpus)).saturating_mul(nodes.count))
            .fold(0, u64::saturating_add)
    }

    /// The number of cores of the largest node.
    pub fn max_cores_per_node(&self) -> u64 {
        self.most(|cores, _| cores)
    }

    fn most(&self, of: impl Fn(u32, u32) -> u32) -> u64 {
        let most = self.0.iter().map(|nodes| of(nodes.cores, nodes.gpus)).max();
        most.unwrap_or(0).into()
    }
}

/// The fewest nodes and the fewest cores that a feasible request can be allocated.
pub(crate) fn min_size(census: &Census, request: &Request) -> Size {
    let (cores, gpus) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    let Some(nnodes) = &request.nnodes else {
        let mut by_units: Vec<(u32, u64)> = census
            .0
            .iter()
            .map(|nodes| {
                let units = measure::slots(nodes.cores, nodes.gpus, cores, gpus);
                (units, nodes.count)
            })
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
    let per_node = slots * u64::from(cores.max(1));
    if !request.exclusive {
        return Size {
            nodes: wanted,
            cores: wanted.saturating_mul(per_node),
        };
    }
    let is_large_enough = |nodes: &&NodeCount| {
        u64::from(nodes.cores) >= per_node && u64::from(nodes.gpus) >= slots * u64::from(gpus)
    };
    // The census begins with the smallest nodes.
    let smallest = census.0.iter().filter(is_large_enough);
    Size {
        nodes: wanted,
        cores: cores_of(smallest, wanted),
    }
}

/// The most nodes and the most cores that a request can be allocated with the least of its counts.
pub(crate) fn max_size(census: &Census, request: &Request) -> Size {
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
        cores = cores.saturating_add(taken.saturating_mul(u64::from(nodes.cores)));
        left -= taken;
    }
    cores
}

/// A kind of resource: its name, and how many of it a node has.
type ResourceKind = (&'static str, fn(u32, u32) -> u32);

const CORES: ResourceKind = ("core", |cores, _| cores);
const GPUS: ResourceKind = ("gpu", |_, gpus| gpus);

/// A number with its noun, in the plural unless it is one.
fn amount(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Checks whether a request can be met with the least of its counts. The error is the note of a
/// denial: what is impossible, and the most there is.
pub(crate) fn check(census: &Census, request: &Request) -> Result<(), String> {
    if census.nodes() == 0 {
        return Err(match &request.constraint {
            Some(constraint) => format!("no node meets the constraint {constraint}"),
            None => "the instance has no nodes".to_owned(),
        });
    }
    let checked = match &request.nnodes {
        None => check_slots(census, request),
        Some(wanted) => check_nodes(census, request, wanted.min().into()),
    };
    checked.map_err(|note| match &request.constraint {
        Some(constraint) => {
            format!("{note} among the nodes that meet the constraint {constraint}")
        }
        None => note,
    })
}

fn check_slots(census: &Census, request: &Request) -> Result<(), String> {
    let (cores, gpus) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    let most = census.sum(|has_cores, has_gpus| measure::slots(has_cores, has_gpus, cores, gpus));
    let wanted = u64::from(request.slots.min().max(1));
    if most >= wanted {
        return Ok(());
    }
    check_largest_node(census, request, 1)?;
    for ((what, of), each) in [(CORES, cores), (GPUS, gpus)] {
        let total = census.sum(of);
        let asked = wanted.saturating_mul(u64::from(each));
        if asked > total {
            return Err(format!("{} requested, {total} exist", amount(asked, what)));
        }
    }
    let shape = describe(request, 1);
    Err(format!(
        "{} of {shape} requested, no more than {most} fit",
        amount(wanted, "slot")
    ))
}

fn check_nodes(census: &Census, request: &Request, wanted: u64) -> Result<(), String> {
    let wanted = wanted.max(1);
    let slots = u64::from(request.slots.min().max(1));
    let need_cores = slots * u64::from(request.cores_per_slot.min().max(1));
    let need_gpus = slots * u64::from(request.gpus_per_slot.min());
    let fits = |cores: u32, gpus: u32| {
        u32::from(u64::from(cores) >= need_cores && u64::from(gpus) >= need_gpus)
    };
    let most = census.sum(fits);
    if most >= wanted {
        return Ok(());
    }
    let exist = census.nodes();
    if wanted > exist {
        return Err(format!(
            "{} requested, {exist} exist",
            amount(wanted, "node")
        ));
    }
    check_largest_node(census, request, slots)?;
    let shape = describe(request, slots);
    Err(format!(
        "{} with {shape} requested, only {most} have that",
        amount(wanted, "node")
    ))
}

/// Checks whether a node has the cores, and one the gpus, of so many slots together.
fn check_largest_node(census: &Census, request: &Request, slots: u64) -> Result<(), String> {
    let per = if request.nnodes.is_some() {
        "node"
    } else {
        "slot"
    };
    let (cores, gpus) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    for ((what, of), each) in [(CORES, cores), (GPUS, gpus)] {
        let asked = slots * u64::from(each);
        let most = census.most(of);
        if asked > most {
            let asked = amount(asked, what);
            return Err(if most == 0 {
                format!("{asked} per {per} requested, no node has {what}s")
            } else {
                format!("{asked} per {per} requested, no node has more than {most}")
            });
        }
    }
    Ok(())
}

/// The cores and gpus of so many slots, in words.
fn describe(request: &Request, slots: u64) -> String {
    let cores = amount(slots * u64::from(request.cores_per_slot.min()), "core");
    match slots * u64::from(request.gpus_per_slot.min()) {
        0 => cores,
        gpus => format!("{cores} and {}", amount(gpus, "gpu")),
    }
}
