//! A machine and its naive twin.

use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_rset::ResourceSet;
use proptest::prelude::*;
use proptest::sample::Index;

use super::naive::{Granted, Naive, Node, size};
use crate::machine::{Free, Machine, Moves, Selection, ShapeId, Share, Shares};

/// A machine and its naive twin, with what was taken of both.
pub(super) struct Pair {
    pub(super) machine: Machine,
    pub(super) naive: Naive,
    pub(super) held: Vec<(Shares, Granted)>,
    pub(super) selection: Selection,
}

impl Pair {
    pub(super) fn new(nodes: &[(u32, Node)], selection: Selection) -> Self {
        let set = resources(nodes);
        let mut machine = Machine::new(&set).unwrap();
        machine.set_selection(selection);
        let nodes = nodes.iter().cloned().collect();
        Self {
            machine,
            naive: Naive { nodes },
            held: Vec::new(),
            selection,
        }
    }

    pub(super) fn granted(&self, shares: &[Share]) -> Granted {
        let r = self.machine.r(shares).unwrap();
        let nodes = r.nodes();
        nodes
            .map(|it| (it.rank, (it.cores.clone(), it.gpus.clone())))
            .collect()
    }

    pub(super) fn mark(&mut self, ranks: &IdSet, up: bool) {
        self.machine.mark(ranks, up);
        for rank in ranks {
            if let Some(node) = self.naive.nodes.get_mut(&rank) {
                node.up = up;
            }
        }
    }

    pub(super) fn submit(&mut self, request: &Request, keep: bool) -> Result<(), TestCaseError> {
        let shape = self.machine.shape(request);
        self.check_units(shape, request)?;
        let expected = self.naive.place(request, self.selection);
        let found = self.machine.place(shape);
        let granted = found.as_ref().map(|it| {
            let slots = u32::try_from(it.slots()).unwrap();
            (self.granted(it), slots)
        });
        prop_assert_eq!(&granted, &expected, "{:?} by {}", request, self.selection);
        self.check_where(shape, request)?;
        if let (true, Some(shares), Some((granted, slots))) = (keep, found, expected) {
            let places: Vec<u32> = shares.iter().map(|it| it.place).collect();
            prop_assert!(places.is_sorted());
            self.check_text(&shares, slots);
            self.machine.take(&shares);
            self.naive.take(&granted);
            self.held.push((shares, granted));
        }
        Ok(())
    }

    pub(super) fn check_text(&self, shares: &Shares, slots: u32) {
        for (start, end) in [(Some(1000.0), Some(1060.25)), (None, None)] {
            let mut r = self.machine.r(shares).unwrap();
            r.set_starttime(start).unwrap();
            r.set_expiration(end).unwrap();
            r.set_nslots(Some(slots.into()));
            let mut text = String::from("before ");
            let slots = Some(slots.into());
            self.machine.write_r(shares, start, end, slots, &mut text);
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
        for (rank, place) in ranks.into_iter().zip(0..) {
            let node = &self.naive.nodes[&rank];
            let free = self.machine.free(place);
            prop_assert_eq!(free, node.free());
            prop_assert_eq!(self.machine.rank(place), rank);
            prop_assert_eq!(self.machine.place_of(rank), Some(place));
            let units = self.machine.units(shape, place, free);
            prop_assert_eq!(units, self.naive.units(rank, request, node.free()));
            sum += u64::from(units);
        }
        prop_assert_eq!(self.machine.units_now(shape), sum);
        prop_assert_eq!(
            self.machine.need(shape),
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
                let free = Free {
                    cores: size(&node.cores),
                    gpus: size(&node.gpus),
                    whole: true,
                };
                u64::from(naive.units(*rank, request, free))
            })
            .sum();
        let feasible = self.machine.feasible(shape).is_ok();
        prop_assert_eq!(feasible, everything >= self.machine.need(shape));
        Ok(())
    }

    /// Nodes may be refused: what is placed is on others, as needed, and legal.
    pub(super) fn check_where(
        &mut self,
        shape: ShapeId,
        request: &Request,
    ) -> Result<(), TestCaseError> {
        let odd = |machine: &Machine, place: u32| machine.rank(place) % 2 == 1;
        let mut seen: u64 = 0;
        let found = self
            .machine
            .place_where(shape, &mut |machine, place, units| {
                let accepted = odd(machine, place);
                if accepted {
                    seen += u64::from(units);
                }
                accepted
            });
        let there: u64 = (0..self.machine.nodes())
            .filter(|place| odd(&self.machine, *place))
            .map(|place| {
                let free = self.machine.free(place);
                u64::from(self.machine.units(shape, place, free))
            })
            .sum();
        let need = self.machine.need(shape);
        prop_assert_eq!(found.is_some(), there >= need, "{:?}", request);
        if let Some(shares) = found {
            prop_assert_eq!(seen, need);
            prop_assert!(shares.iter().all(|it| odd(&self.machine, it.place)));
            let mut naive = self.naive.clone();
            naive.take(&self.granted(&shares));
        }
        Ok(())
    }

    pub(super) fn free(&mut self, which: Index) {
        if self.held.is_empty() {
            return;
        }
        let (shares, granted) = self.held.swap_remove(which.index(self.held.len()));
        self.machine.give(&shares);
        self.naive.give(&granted);
    }

    /// Gives back what is held on some ranks, and looks at what an R of it stands for.
    pub(super) fn free_part(&mut self, which: Index, ranks: &IdSet) -> Result<(), TestCaseError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (shares, mut granted) = self.held.swap_remove(which.index(self.held.len()));
        let r = self.machine.r(&shares).unwrap();
        prop_assert!(self.machine.shares(&r).is_err(), "it is allocated");
        let part = r.restrict(ranks);
        let (named, rest) = self.machine.part(&shares, &part).unwrap();
        let (given, kept) = self.machine.split(shares, ranks);
        prop_assert_eq!(&*named, &*given);
        prop_assert_eq!(&*rest, &*kept);
        self.machine.give(&given);
        let again = self.machine.shares(&part).unwrap();
        prop_assert_eq!(&*again, &*given);
        let mut off = granted.clone();
        off.retain(|rank, _| ranks.contains(*rank));
        granted.retain(|rank, _| !ranks.contains(*rank));
        self.naive.give(&off);
        if !kept.is_empty() {
            self.held.push((kept, granted));
        }
        Ok(())
    }

    pub(super) fn moved(&mut self, moves: &Moves) {
        let held = std::mem::take(&mut self.held);
        for (shares, mut granted) in held {
            let (still, lost) = self.machine.relocate(&shares, moves);
            for (rank, cores, gpus) in lost {
                assert_eq!(granted.remove(&rank), Some((cores, gpus)));
            }
            assert_eq!(self.granted(&still), granted);
            if !still.is_empty() {
                self.held.push((still, granted));
            }
        }
    }

    pub(super) fn shrink(&mut self, ranks: &IdSet) {
        let moves = self.machine.shrink(ranks);
        self.naive.nodes.retain(|rank, _| !ranks.contains(*rank));
        self.moved(&moves);
    }

    pub(super) fn grow(&mut self, nodes: &[(u32, Node)]) {
        let known: Vec<u32> = nodes.iter().map(|(rank, _)| *rank).collect();
        let set = resources(nodes);
        if known.iter().any(|it| self.naive.nodes.contains_key(it)) {
            assert!(self.machine.grow(&set).is_err());
            return;
        }
        let moves = self.machine.grow(&set).unwrap();
        self.naive.nodes.extend(nodes.iter().cloned());
        self.moved(&moves);
    }

    pub(super) fn set_property(&mut self, name: &str, ranks: &IdSet, add: bool) {
        let ranks = ranks.intersection(self.machine.ranks());
        if add {
            self.machine.add_property(name, &ranks).unwrap();
        } else {
            self.machine.remove_property(name, &ranks);
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
