//! The model: a node table that scans every node.

use std::collections::{BTreeMap, BTreeSet};

use penstock_idset::IdSet;
use penstock_jobspec::{Constraint, Count, Request};

use crate::node_table::{NodeResources, Selection};

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) host: String,
    pub(super) cores: IdSet,
    pub(super) gpus: IdSet,
    pub(super) free_cores: IdSet,
    pub(super) free_gpus: IdSet,
    pub(super) up: bool,
    pub(super) properties: BTreeSet<String>,
}

impl Node {
    pub(super) fn free(&self) -> NodeResources {
        let whole = self.free_cores == self.cores && self.free_gpus == self.gpus;
        NodeResources {
            cores: size(&self.free_cores),
            gpus: size(&self.free_gpus),
            whole,
        }
    }

    pub(super) fn has_property(&self, name: &str) -> bool {
        let suffixed = format!("{name}@");
        let mut properties = self.properties.iter();
        properties.any(|known| known == name || known.starts_with(&suffixed))
    }

    pub(super) fn meets(&self, rank: u32, constraint: &Constraint) -> bool {
        match constraint {
            Constraint::And(parts) => parts.iter().all(|part| self.meets(rank, part)),
            Constraint::Or(parts) => {
                parts.is_empty() || parts.iter().any(|part| self.meets(rank, part))
            }
            Constraint::Not(parts) => !parts.iter().all(|part| self.meets(rank, part)),
            Constraint::Properties(names) => {
                names.iter().all(|name| match name.strip_prefix('^') {
                    Some(name) => !self.has_property(name),
                    None => self.has_property(name),
                })
            }
            Constraint::Hostlist(hosts) => hosts.contains(&self.host),
            Constraint::Ranks(ranks) => ranks.contains(rank),
        }
    }
}

pub(super) fn size(ids: &IdSet) -> u32 {
    u32::try_from(ids.len()).unwrap()
}

/// Cores and gpus of a rank.
pub(super) type Part = (IdSet, IdSet);

/// An allocation, by rank.
pub(super) type Allocated = BTreeMap<u32, Part>;

/// The naive node table.
#[derive(Clone, Debug, Default)]
pub(super) struct Naive {
    pub(super) nodes: BTreeMap<u32, Node>,
}

pub(super) fn lowest(ids: &IdSet, count: u32) -> IdSet {
    ids.iter().take(count as usize).collect()
}

impl Naive {
    pub(super) fn units(&self, rank: u32, request: &Request, free: NodeResources) -> u32 {
        let node = &self.nodes[&rank];
        let allowed = request.constraint.as_ref();
        if !node.up || allowed.is_some_and(|constraint| !node.meets(rank, constraint)) {
            return 0;
        }
        let (cores, gpus) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
        let by_gpus = free.gpus.checked_div(gpus);
        let slots = (free.cores / cores).min(by_gpus.unwrap_or(u32::MAX));
        match request.nnodes {
            None => slots,
            Some(_) => {
                u32::from(slots >= request.slots.min() && (free.whole || !request.exclusive))
            }
        }
    }

    /// The key of a node by a selection policy: the less, the earlier it is taken.
    pub(super) fn order(
        &self,
        rank: u32,
        request: &Request,
        selection: Selection,
    ) -> (i64, i64, u32) {
        let node = &self.nodes[&rank];
        let free = node.free();
        let fullness = match request.nnodes {
            None if request.gpus_per_slot.min() > 0 => self.units(rank, request, free),
            _ => free.cores,
        };
        let fullness = i64::from(fullness);
        let (first, second) = match selection {
            Selection::First | Selection::Contiguous => (0, 0),
            Selection::Pack => (fullness, 0),
            Selection::Spread => (-fullness, 0),
            Selection::Thrifty => {
                let mut names = Vec::new();
                if let Some(constraint) = &request.constraint {
                    collect_names(constraint, &mut names);
                }
                let unnamed = node.properties.iter().filter(|property| {
                    let bare = property.split('@').next().unwrap();
                    !names.contains(&property.as_str()) && !names.contains(&bare)
                });
                let gpus = if request.gpus_per_slot.min() > 0 {
                    0
                } else {
                    node.gpus.len()
                };
                (
                    i64::try_from(gpus).unwrap(),
                    i64::try_from(unnamed.count()).unwrap(),
                )
            }
        };
        (first, second, rank)
    }

    /// The allocation that a request gets, and its number of slots.
    pub(super) fn place(
        &self,
        request: &Request,
        selection: Selection,
    ) -> Option<(Allocated, u32)> {
        let mut fits: Vec<(u32, u32)> = self
            .nodes
            .iter()
            .map(|(rank, node)| (*rank, self.units(*rank, request, node.free())))
            .filter(|(_, units)| *units > 0)
            .collect();
        fits.sort_by_key(|(rank, _)| self.order(*rank, request, selection));
        let available: u32 = fits.iter().map(|(_, units)| units).sum();
        let units = request.nnodes.as_ref().unwrap_or(&request.slots);
        let want = (1..=available).rev().find(|count| units.contains(*count))?;
        if selection == Selection::Contiguous && want > 1 {
            let enough = |(from, to): &(usize, usize)| {
                fits[*from..=*to]
                    .iter()
                    .map(|(_, units)| units)
                    .sum::<u32>()
                    >= want
            };
            let all = (0..fits.len()).flat_map(|from| (from..fits.len()).map(move |to| (from, to)));
            let best = all.filter(enough).min_by_key(|(from, to)| {
                let span = fits[*to].0 - fits[*from].0;
                (span, *from)
            });
            fits.drain(..best?.0);
        }
        let mut left = want;
        let mut picks = Vec::new();
        for (rank, units) in fits {
            let take = units.min(left);
            if take > 0 {
                picks.push((rank, take));
            }
            left -= take;
        }
        let largest = |count: &Count, fits: &dyn Fn(u32) -> bool| {
            (0..=200)
                .rev()
                .find(|number| count.contains(*number) && fits(*number))
        };
        let frees: Vec<(NodeResources, u32)> = picks
            .iter()
            .map(|(rank, units)| (self.nodes[rank].free(), *units))
            .collect();
        let (least_cores, least_gpus) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
        let per_unit = match request.nnodes {
            Some(_) => largest(&request.slots, &|slots| {
                frees.iter().all(|(free, _)| {
                    slots * least_cores <= free.cores && slots * least_gpus <= free.gpus
                })
            })?,
            None => 1,
        };
        let cores = largest(&request.cores_per_slot, &|cores| {
            let mut frees = frees.iter();
            frees.all(|(free, units)| units * per_unit * cores <= free.cores)
        })?;
        let gpus = largest(&request.gpus_per_slot, &|gpus| {
            let mut frees = frees.iter();
            frees.all(|(free, units)| units * per_unit * gpus <= free.gpus)
        })?;
        let allocated = picks.iter().map(|(rank, units)| {
            let node = &self.nodes[rank];
            let part = if request.nnodes.is_some() && request.exclusive {
                (node.cores.clone(), node.gpus.clone())
            } else {
                (
                    lowest(&node.free_cores, units * per_unit * cores),
                    lowest(&node.free_gpus, units * per_unit * gpus),
                )
            };
            (*rank, part)
        });
        Some((allocated.collect(), want * per_unit))
    }

    pub(super) fn allocate(&mut self, allocated: &Allocated) {
        for (rank, (cores, gpus)) in allocated {
            let node = self.nodes.get_mut(rank).unwrap();
            assert!(cores.is_subset(&node.free_cores) && gpus.is_subset(&node.free_gpus));
            node.free_cores.subtract(cores);
            node.free_gpus.subtract(gpus);
        }
    }

    pub(super) fn release(&mut self, allocated: &Allocated) {
        for (rank, (cores, gpus)) in allocated {
            if let Some(node) = self.nodes.get_mut(rank) {
                node.free_cores.union_with(cores);
                node.free_gpus.union_with(gpus);
            }
        }
    }
}

pub(super) fn collect_names<'a>(constraint: &'a Constraint, names: &mut Vec<&'a str>) {
    match constraint {
        Constraint::And(parts) | Constraint::Or(parts) | Constraint::Not(parts) => {
            for part in parts {
                collect_names(part, names);
            }
        }
        Constraint::Properties(all) => names.extend(all.iter().map(String::as_str)),
        _ => {}
    }
}
