//! Whether a shape could ever be met, by all nodes, empty and up, and if not, why.

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use penstock_jobspec::Request;

use super::nodes::Nodes;
use super::shape::slots as fitting;

/// How many nodes have so many cores and gpus: what there is, if nothing is in use.
#[derive(Debug)]
pub(crate) struct Census(Vec<(u32, u32, u64)>);

impl Census {
    /// Of all nodes, or of some places.
    pub fn new(nodes: &Nodes, places: Option<&IdSet>) -> Self {
        // By kind first: that is a number.
        let mut kinds: Vec<u64> = Vec::new();
        let all = nodes.len().checked_sub(1).map(|last| 0..=last);
        let some = places.into_iter().flat_map(IdSet::ranges);
        let ranges = some.chain(all.filter(|_| places.is_none()));
        for (count, kind) in ranges.flat_map(|range| nodes.kinds_of(range)) {
            let kind = kind as usize;
            if kinds.len() <= kind {
                kinds.resize(kind + 1, 0);
            }
            kinds[kind] += u64::from(count);
        }
        let mut census: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for (count, kind) in kinds.into_iter().zip(0_u32..) {
            if count > 0 {
                let kind = nodes.kinds().get(kind);
                *census.entry((kind.cores.len, kind.gpus.len)).or_default() += count;
            }
        }
        let census = census.into_iter();
        Self(
            census
                .map(|((cores, gpus), count)| (cores, gpus, count))
                .collect(),
        )
    }

    fn nodes(&self) -> u64 {
        self.0.iter().map(|(_, _, count)| count).sum()
    }

    fn sum(&self, of: impl Fn(u32, u32) -> u32) -> u64 {
        let parts = self.0.iter();
        parts
            .map(|(cores, gpus, count)| u64::from(of(*cores, *gpus)).saturating_mul(*count))
            .fold(0, u64::saturating_add)
    }

    /// The most cores that a node has.
    pub fn most_cores(&self) -> u64 {
        self.most(|cores, _| cores)
    }

    fn most(&self, of: impl Fn(u32, u32) -> u32) -> u64 {
        let parts = self.0.iter();
        u64::from(
            parts
                .map(|(cores, gpus, _)| of(*cores, *gpus))
                .max()
                .unwrap_or(0),
        )
    }
}

/// The fewest nodes, and the fewest cores, that a request can have, given that it is feasible.
pub(crate) fn least(census: &Census, request: &Request) -> (u64, u64) {
    let (cores, gpus) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    let Some(nnodes) = &request.nnodes else {
        let units = |(has_cores, has_gpus, count): &(u32, u32, u64)| {
            let units = fitting(*has_cores, *has_gpus, cores, gpus);
            (u64::from(units), *count)
        };
        let mut kinds: Vec<_> = census.0.iter().map(units).filter(|it| it.0 > 0).collect();
        kinds.sort_unstable_by_key(|it| std::cmp::Reverse(it.0));
        let (mut nodes, mut left) = (0, u64::from(request.slots.min().max(1)));
        for (units, count) in kinds {
            let taken = left.div_ceil(units).min(count);
            nodes += taken;
            left = left.saturating_sub(taken.saturating_mul(units));
        }
        return (nodes, request.total_cores());
    };
    let wanted = u64::from(nnodes.min().max(1));
    let slots = u64::from(request.slots.min().max(1));
    let each = slots * u64::from(cores.max(1));
    if !request.exclusive {
        return (wanted, wanted.saturating_mul(each));
    }
    // The smallest come first.
    let enough = |it: &&(u32, u32, u64)| {
        u64::from(it.0) >= each && u64::from(it.1) >= slots * u64::from(gpus)
    };
    let (mut all, mut left) = (0_u64, wanted);
    for (has, _, count) in census.0.iter().filter(enough) {
        let taken = left.min(*count);
        all = all.saturating_add(taken.saturating_mul(u64::from(*has)));
        left -= taken;
    }
    (wanted, all)
}

/// The most nodes, and the most cores, that a request can have with the least of its counts.
pub(crate) fn most(census: &Census, request: &Request) -> (u64, u64) {
    let Some(nnodes) = &request.nnodes else {
        return (request.slots.min().max(1).into(), request.total_cores());
    };
    if !request.exclusive {
        return least(census, request);
    }
    // The largest come first.
    let wanted = u64::from(nnodes.min().max(1));
    let (mut all, mut left) = (0_u64, wanted);
    for (has, _, count) in census.0.iter().rev() {
        let taken = left.min(*count);
        all = all.saturating_add(taken.saturating_mul(u64::from(*has)));
        left -= taken;
    }
    (wanted, all)
}

/// What is counted on a node, with its name.
type Part = (&'static str, fn(u32, u32) -> u32);

const CORES: Part = ("core", |cores, _| cores);
const GPUS: Part = ("gpu", |_, gpus| gpus);

/// A number with its noun, which gets an `s` unless there is exactly one.
fn amount(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// `Ok`, or a sentence that names what is impossible and the most there is. Of a range the least
/// counts.
pub(crate) fn check(census: &Census, request: &Request) -> Result<(), String> {
    if census.nodes() == 0 {
        return Err(match &request.constraint {
            Some(constraint) => format!("no node meets the constraint {constraint}"),
            None => "the instance has no nodes".to_owned(),
        });
    }
    let outcome = match &request.nnodes {
        None => slots(census, request),
        Some(wanted) => whole_nodes(census, request, wanted.min().into()),
    };
    outcome.map_err(|note| match &request.constraint {
        Some(constraint) => {
            format!("{note} among the nodes that meet the constraint {constraint}")
        }
        None => note,
    })
}

fn slots(census: &Census, request: &Request) -> Result<(), String> {
    let (cores, gpus) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    let most = census.sum(|has_cores, has_gpus| fitting(has_cores, has_gpus, cores, gpus));
    let wanted = u64::from(request.slots.min().max(1));
    if most >= wanted {
        return Ok(());
    }
    per_slot(census, request, 1)?;
    for ((what, of), each) in [(CORES, cores), (GPUS, gpus)] {
        let total = census.sum(of);
        let asked = wanted.saturating_mul(u64::from(each));
        if asked > total {
            return Err(format!("{} requested, {total} exist", amount(asked, what)));
        }
    }
    let shape = shape(request, 1);
    Err(format!(
        "{} of {shape} requested, no more than {most} fit",
        amount(wanted, "slot")
    ))
}

fn whole_nodes(census: &Census, request: &Request, wanted: u64) -> Result<(), String> {
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
    per_slot(census, request, slots)?;
    let shape = shape(request, slots);
    Err(format!(
        "{} with {shape} requested, only {most} have that",
        amount(wanted, "node")
    ))
}

/// Whether some node has the cores and gpus of this many slots together.
fn per_slot(census: &Census, request: &Request, slots: u64) -> Result<(), String> {
    let place = if request.nnodes.is_some() {
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
                format!("{asked} per {place} requested, no node has {what}s")
            } else {
                format!("{asked} per {place} requested, no node has more than {most}")
            });
        }
    }
    Ok(())
}

fn shape(request: &Request, slots: u64) -> String {
    let cores = amount(slots * u64::from(request.cores_per_slot.min()), "core");
    match slots * u64::from(request.gpus_per_slot.min()) {
        0 => cores,
        gpus => format!("{cores} and {}", amount(gpus, "gpu")),
    }
}
