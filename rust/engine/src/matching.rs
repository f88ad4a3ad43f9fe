//! First fit by rank: which shares of which nodes a request gets, if it fits now.

use penstock_idset::IdSet;
use penstock_jobspec::Request;

use crate::index::Free;
use crate::inventory::{Inventory, Share};

/// Places to look at, in rank order: all of them, or those that a constraint allows.
struct Candidates<'a> {
    inventory: &'a Inventory,
    allowed: Option<&'a IdSet>,
    need: Free,
    next: usize,
}

impl Iterator for Candidates<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            let place = self.inventory.index.find(self.next, self.need)?;
            let rank = self.inventory.nodes[place].rank;
            match self.allowed {
                Some(allowed) if !allowed.contains(rank) => {
                    // On to the next rank that is allowed, wherever it is.
                    self.next = self.inventory.place_from(allowed.next(rank)?);
                }
                _ => {
                    self.next = place + 1;
                    return Some(place);
                }
            }
        }
    }
}

fn lowest(ids: &IdSet, count: u64) -> IdSet {
    let mut left = ids.clone();
    left.take_first(count).unwrap_or_default()
}

/// Where the request fits now. `allowed` are the ranks that its constraint admits.
pub(crate) fn place(
    inventory: &Inventory,
    request: &Request,
    allowed: Option<&IdSet>,
) -> Option<Vec<Share>> {
    match request.least_nodes() {
        None => place_slots(inventory, request, allowed),
        Some(nnodes) => place_nodes(inventory, request, nnodes, allowed),
    }
}

/// Slots go to the lowest ranks, as many on each node as fit.
fn place_slots(
    inventory: &Inventory,
    request: &Request,
    allowed: Option<&IdSet>,
) -> Option<Vec<Share>> {
    let need = Free {
        cores: request.cores_per_slot.min(),
        gpus: request.gpus_per_slot.min(),
        whole: 0,
    };
    let candidates = Candidates {
        inventory,
        allowed,
        need,
        next: 0,
    };
    let mut left = request.slots.min();
    let mut shares = Vec::new();
    for place in candidates {
        let free = inventory.index.get(place);
        let count = fitting(free, need).min(left);
        shares.push(share(inventory, place, need, count));
        left -= count;
        if left == 0 {
            return Some(shares);
        }
    }
    None
}

/// How often `need` goes into `free`.
pub(crate) fn fitting(free: Free, need: Free) -> u32 {
    let cores = free.cores / need.cores.max(1);
    match free.gpus.checked_div(need.gpus) {
        Some(gpus) => cores.min(gpus),
        None => cores,
    }
}

fn share(inventory: &Inventory, place: usize, slot: Free, count: u32) -> Share {
    let node = &inventory.nodes[place];
    let amount = |each: u32| u64::from(each) * u64::from(count);
    Share {
        place: u32::try_from(place).unwrap_or(u32::MAX),
        cores: lowest(&node.free_cores, amount(slot.cores)),
        gpus: lowest(&node.free_gpus, amount(slot.gpus)),
    }
}

/// Distinct nodes, each with all the slots; whole and empty ones where they are exclusive.
fn place_nodes(
    inventory: &Inventory,
    request: &Request,
    nnodes: u32,
    allowed: Option<&IdSet>,
) -> Option<Vec<Share>> {
    // What does not fit a number does not fit a node.
    let cores = request
        .slots
        .min()
        .checked_mul(request.cores_per_slot.min())?;
    let gpus = request
        .slots
        .min()
        .checked_mul(request.gpus_per_slot.min())?;
    let need = Free {
        cores,
        gpus,
        whole: if request.exclusive { cores } else { 0 },
    };
    let candidates = Candidates {
        inventory,
        allowed,
        need,
        next: 0,
    };
    let count = usize::try_from(nnodes).ok()?;
    let shares: Vec<Share> = candidates
        .take(count)
        .map(|place| {
            if request.exclusive {
                let node = &inventory.nodes[place];
                Share {
                    place: u32::try_from(place).unwrap_or(u32::MAX),
                    cores: node.cores.clone(),
                    gpus: node.gpus.clone(),
                }
            } else {
                share(inventory, place, need, 1)
            }
        })
        .collect();
    (shares.len() == count).then_some(shares)
}
