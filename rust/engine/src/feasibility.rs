//! Whether a request could ever be met, by the whole inventory, empty and up, and if not, why.

use penstock_idset::IdSet;
use penstock_jobspec::Request;

use crate::index::Free;
use crate::inventory::{Inventory, Node, size};
use crate::matching::fitting;

/// A number with its noun, which gets an `s` unless there is exactly one.
fn amount(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// `Ok`, or a sentence that names what is impossible and the most there is.
pub(crate) fn check(
    inventory: &Inventory,
    request: &Request,
    allowed: Option<&IdSet>,
) -> Result<(), String> {
    let admits = |node: &&Node| allowed.is_none_or(|allowed| allowed.contains(node.rank));
    let nodes = || inventory.nodes.iter().filter(admits);
    if nodes().next().is_none() {
        return Err(match (&request.constraint, allowed) {
            (Some(constraint), Some(_)) => format!("no node meets the constraint {constraint}"),
            _ => "the instance has no nodes".to_owned(),
        });
    }
    let suffix = match &request.constraint {
        Some(constraint) if allowed.is_some() => {
            format!(" among the nodes that meet the constraint {constraint}")
        }
        _ => String::new(),
    };
    let outcome = match request.least_nodes() {
        None => slots(request, nodes),
        Some(wanted) => whole_nodes(request, u64::from(wanted), nodes),
    };
    outcome.map_err(|note| note + &suffix)
}

fn slots<'a, I: Iterator<Item = &'a Node>>(
    request: &Request,
    nodes: impl Fn() -> I,
) -> Result<(), String> {
    let need = Free {
        cores: request.cores_per_slot.min(),
        gpus: request.gpus_per_slot.min(),
        whole: 0,
    };
    let per_node = nodes().map(|node| u64::from(fitting(everything(node), need)));
    let most: u64 = per_node.sum();
    let wanted = u64::from(request.slots.min());
    if most >= wanted {
        return Ok(());
    }
    per_slot(request, 1, &nodes)?;
    for (what, each, of) in [
        (
            "core",
            request.cores_per_slot.min(),
            cores as fn(&Node) -> u64,
        ),
        ("gpu", request.gpus_per_slot.min(), gpus as fn(&Node) -> u64),
    ] {
        let total: u64 = nodes().map(of).sum();
        let asked = wanted.saturating_mul(u64::from(each));
        if asked > total {
            return Err(format!("{} requested, {total} exist", amount(asked, what)));
        }
    }
    let shape = shape(request, 1);
    Err(format!(
        "{} of {shape} requested, only {most} fit on the nodes",
        amount(wanted, "slot")
    ))
}

fn whole_nodes<'a, I: Iterator<Item = &'a Node>>(
    request: &Request,
    wanted: u64,
    nodes: impl Fn() -> I,
) -> Result<(), String> {
    let slots = u64::from(request.slots.min());
    let need_cores = slots * u64::from(request.cores_per_slot.min());
    let need_gpus = slots * u64::from(request.gpus_per_slot.min());
    let fits = |node: &&Node| cores(node) >= need_cores && gpus(node) >= need_gpus;
    let most = nodes().filter(fits).count() as u64;
    if most >= wanted {
        return Ok(());
    }
    let exist = nodes().count() as u64;
    if wanted > exist {
        return Err(format!(
            "{} requested, {exist} exist",
            amount(wanted, "node")
        ));
    }
    per_slot(request, slots, &nodes)?;
    let shape = shape(request, slots);
    Err(format!(
        "{} with {shape} requested, only {most} have that",
        amount(wanted, "node")
    ))
}

/// Whether some node has the cores and gpus of this many slots together.
fn per_slot<'a, I: Iterator<Item = &'a Node>>(
    request: &Request,
    slots: u64,
    nodes: &impl Fn() -> I,
) -> Result<(), String> {
    let place = if request.nnodes.is_some() {
        "node"
    } else {
        "slot"
    };
    for (what, each, of) in [
        (
            "core",
            request.cores_per_slot.min(),
            cores as fn(&Node) -> u64,
        ),
        ("gpu", request.gpus_per_slot.min(), gpus as fn(&Node) -> u64),
    ] {
        let asked = slots * u64::from(each);
        let most = nodes().map(of).max().unwrap_or(0);
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

fn everything(node: &Node) -> Free {
    Free {
        cores: size(&node.cores),
        gpus: size(&node.gpus),
        whole: size(&node.cores),
    }
}

fn cores(node: &Node) -> u64 {
    node.cores.len()
}

fn gpus(node: &Node) -> u64 {
    node.gpus.len()
}
