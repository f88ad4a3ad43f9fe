//! A node table and its naive model, to which the same operations are applied.

use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_rset::ResourceSet;
use proptest::prelude::*;
use proptest::sample::Index;

use super::naive::{Allocated, Naive, Node, size};
use crate::ids::NodeIndex;
use crate::node_table::{
    Allocation, NodeResources, NodeShare, NodeTable, Relocated, Relocation, Selection, ShapeId,
};

/// A node table and its model, with the allocations on both.
pub(super) struct Pair {
    pub(super) node_table: NodeTable,
    pub(super) naive: Naive,
    pub(super) held: Vec<(Allocation, Allocated)>,
    pub(super) selection: Selection,
}

impl Pair {
    pub(super) fn new(nodes: &[(u32, Node)], selection: Selection) -> Self {
        let set = resources(nodes);
        let mut node_table = NodeTable::new(&set).unwrap();
        node_table.set_selection(selection);
        let nodes = nodes.iter().cloned().collect();
        Self {
            node_table,
            naive: Naive { nodes },
            held: Vec::new(),
            selection,
        }
    }

    pub(super) fn allocated(&self, shares: &[NodeShare]) -> Allocated {
        let r = self.node_table.r(shares).unwrap();
        let nodes = r.nodes();
        nodes
            .map(|node| (node.rank, (node.cores.clone(), node.gpus.clone())))
            .collect()
    }

    pub(super) fn mark(&mut self, ranks: &IdSet, up: bool) {
        if up {
            self.node_table.mark_up(ranks);
        } else {
            self.node_table.mark_down(ranks);
        }
        for rank in ranks {
            if let Some(node) = self.naive.nodes.get_mut(&rank) {
                node.up = up;
            }
        }
    }

    pub(super) fn submit(&mut self, request: &Request, keep: bool) -> Result<(), TestCaseError> {
        let shape = self.node_table.shape(request);
        self.check_units(shape, request)?;
        let expected = self.naive.place(request, self.selection);
        let found = self.node_table.place(shape);
        let allocated = found.as_ref().map(|allocation| {
            let slots = u32::try_from(allocation.slots()).unwrap();
            (self.allocated(allocation), slots)
        });
        prop_assert_eq!(&allocated, &expected, "{:?} by {}", request, self.selection);
        self.check_where(shape, request)?;
        if let (true, Some(shares), Some((allocated, slots))) = (keep, found, expected) {
            prop_assert!(shares.iter().is_sorted_by_key(|share| share.node));
            self.check_text(&shares, slots);
            self.node_table.allocate(&shares);
            self.naive.allocate(&allocated);
            self.held.push((shares, allocated));
        }
        Ok(())
    }

    pub(super) fn check_text(&self, shares: &Allocation, slots: u32) {
        for (start, end) in [(Some(1000.0), Some(1060.25)), (None, None)] {
            let mut r = self.node_table.r(shares).unwrap();
            r.set_starttime(start).unwrap();
            r.set_expiration(end).unwrap();
            r.set_nslots(Some(slots.into()));
            let mut text = String::from("before ");
            let slots = Some(slots.into());
            self.node_table
                .write_r(shares, start, end, slots, &mut text);
            assert_eq!(text, format!("before {}", r.to_json()));
        }
    }

    pub(super) fn check_units(
        &mut self,
        shape: ShapeId,
        request: &Request,
    ) -> Result<(), TestCaseError> {
        let ranks: Vec<u32> = self.naive.nodes.keys().copied().collect();
        let mut sum = 0;
        for (rank, node) in ranks.into_iter().zip(self.node_table.node_indices()) {
            let model = &self.naive.nodes[&rank];
            let free = self.node_table.free(node);
            prop_assert_eq!(free, model.free());
            prop_assert_eq!(self.node_table.rank(node), rank);
            prop_assert_eq!(self.node_table.node_of(rank), Some(node));
            let units = self.node_table.units(shape, node, free);
            prop_assert_eq!(units, self.naive.units(rank, request, model.free()));
            sum += u64::from(units);
        }
        prop_assert_eq!(self.node_table.units_now(shape), sum);
        prop_assert_eq!(
            self.node_table.need(shape),
            u64::from(request.nnodes.as_ref().unwrap_or(&request.slots).min())
        );
        let everything: u64 = self
            .naive
            .nodes
            .iter()
            .map(|(rank, node)| {
                let mut node = node.clone();
                node.up = true;
                let naive = Naive {
                    nodes: [(*rank, node.clone())].into(),
                };
                let free = NodeResources {
                    cores: size(&node.cores),
                    gpus: size(&node.gpus),
                    whole: true,
                };
                u64::from(naive.units(*rank, request, free))
            })
            .sum();
        let feasible = self.node_table.feasible(shape).is_ok();
        prop_assert_eq!(feasible, everything >= self.node_table.need(shape));
        Ok(())
    }

    /// Rejects every other node, and checks that an allocation uses only the others, is large
    /// enough, and was free.
    pub(super) fn check_where(
        &mut self,
        shape: ShapeId,
        request: &Request,
    ) -> Result<(), TestCaseError> {
        let odd = |node_table: &NodeTable, node: NodeIndex| node_table.rank(node) % 2 == 1;
        let mut seen: u64 = 0;
        let found = self
            .node_table
            .place_where(shape, &mut |node_table, node, units| {
                let accepted = odd(node_table, node);
                if accepted {
                    seen += u64::from(units);
                }
                accepted
            });
        let there: u64 = self
            .node_table
            .node_indices()
            .filter(|node| odd(&self.node_table, *node))
            .map(|node| {
                let free = self.node_table.free(node);
                u64::from(self.node_table.units(shape, node, free))
            })
            .sum();
        let need = self.node_table.need(shape);
        prop_assert_eq!(found.is_some(), there >= need, "{:?}", request);
        if let Some(shares) = found {
            prop_assert_eq!(seen, need);
            prop_assert!(shares.iter().all(|share| odd(&self.node_table, share.node)));
            let mut naive = self.naive.clone();
            naive.allocate(&self.allocated(&shares));
        }
        Ok(())
    }

    pub(super) fn free(&mut self, which: Index) {
        if self.held.is_empty() {
            return;
        }
        let (shares, allocated) = self.held.swap_remove(which.index(self.held.len()));
        self.node_table.release(&shares);
        self.naive.release(&allocated);
    }

    /// Releases the part of an allocation on some ranks, and parses its R again.
    pub(super) fn free_part(&mut self, which: Index, ranks: &IdSet) -> Result<(), TestCaseError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (shares, mut allocated) = self.held.swap_remove(which.index(self.held.len()));
        let r = self.node_table.r(&shares).unwrap();
        prop_assert!(
            self.node_table.allocation_of(&r).is_err(),
            "all of it is allocated"
        );
        let part = r.restrict(ranks);
        let by_r = self.node_table.split_by_r(&shares, &part).unwrap();
        let by_ranks = self.node_table.split_by_ranks(&shares, ranks);
        prop_assert_eq!(&*by_r.part, &*by_ranks.part);
        prop_assert_eq!(&*by_r.rest, &*by_ranks.rest);
        let (given, kept) = (by_ranks.part, by_ranks.rest);
        self.node_table.release(&given);
        let again = self.node_table.allocation_of(&part).unwrap();
        prop_assert_eq!(&*again, &*given);
        let mut off = allocated.clone();
        off.retain(|rank, _| ranks.contains(*rank));
        allocated.retain(|rank, _| !ranks.contains(*rank));
        self.naive.release(&off);
        if !kept.is_empty() {
            self.held.push((kept, allocated));
        }
        Ok(())
    }

    pub(super) fn relocate(&mut self, relocation: &Relocation) {
        let held = std::mem::take(&mut self.held);
        for (shares, mut allocated) in held {
            let Relocated {
                allocation: still,
                lost,
            } = self.node_table.relocate(&shares, relocation);
            for lost in lost {
                assert_eq!(allocated.remove(&lost.rank), Some((lost.cores, lost.gpus)));
            }
            assert_eq!(self.allocated(&still), allocated);
            if !still.is_empty() {
                self.held.push((still, allocated));
            }
        }
    }

    pub(super) fn shrink(&mut self, ranks: &IdSet) {
        let relocation = self.node_table.shrink(ranks);
        self.naive.nodes.retain(|rank, _| !ranks.contains(*rank));
        self.relocate(&relocation);
    }

    pub(super) fn grow(&mut self, nodes: &[(u32, Node)]) {
        let known: Vec<u32> = nodes.iter().map(|(rank, _)| *rank).collect();
        let set = resources(nodes);
        if known.iter().any(|rank| self.naive.nodes.contains_key(rank)) {
            assert!(self.node_table.grow(&set).is_err());
            return;
        }
        let relocation = self.node_table.grow(&set).unwrap();
        self.naive.nodes.extend(nodes.iter().cloned());
        self.relocate(&relocation);
    }

    pub(super) fn set_property(&mut self, name: &str, ranks: &IdSet, add: bool) {
        let ranks = ranks.intersection(self.node_table.ranks());
        if add {
            self.node_table.add_property(name, &ranks).unwrap();
        } else {
            self.node_table.remove_property(name, &ranks);
        }
        for rank in &ranks {
            let node = self.naive.nodes.get_mut(&rank).unwrap();
            if add {
                node.properties.insert(name.to_owned());
            } else {
                node.properties.remove(name);
            }
        }
    }
}

pub(super) fn resources(nodes: &[(u32, Node)]) -> ResourceSet {
    let mut set = ResourceSet::new();
    let mut nodes: Vec<_> = nodes.iter().collect();
    nodes.sort_by_key(|(rank, _)| *rank);
    for (rank, node) in &nodes {
        set.insert(*rank, &node.host, node.cores.clone(), node.gpus.clone())
            .unwrap();
    }
    for (rank, node) in &nodes {
        for name in &node.properties {
            set.add_property(name, &[*rank].into_iter().collect())
                .unwrap();
        }
    }
    set
}
