//! Matching: selects the nodes of a view for an allocation of a shape.

use smallvec::SmallVec;

use super::allocation::{Allocation, Size};
use super::node_class::Amounts;
use super::nodes::Nodes;
use super::select::{First, Pack, Selection, Spread, Walk, smallest_row, smallest_span};
use super::shape::Shape;
use super::view::View;
use crate::ids::NodeIndex;

/// A search for a shape in its view.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub nodes: &'a Nodes,
    pub view: &'a View,
    pub shape: &'a Shape,
    pub selection: Selection,
}

/// The number of units to take from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pick {
    pub node: NodeIndex,
    pub units: u32,
}

/// Picked nodes; mostly few.
type Picks = SmallVec<[Pick; 4]>;

/// The numbers of slots per node, cores and gpus of an allocation if the request has ranges.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counts {
    /// The least of each.
    Least,
    /// As many as fit on the picked nodes within a limit.
    UpTo(Size),
}

impl Search<'_> {
    /// Allocates as many units as the shape accepts of those that are available; the number does
    /// not matter for a single unit.
    pub fn place(self, available: u64) -> Option<Allocation> {
        let (tree, min_number) = (self.view.tree(), self.shape.min_number);
        if self.shape.is_single() {
            return match self.selection {
                Selection::Pack => self.place_single(Pack::new(tree, min_number)),
                Selection::Spread => self.place_single(Spread::new(tree, min_number)),
                _ => self.place_single(First::new(tree, min_number, 0)),
            };
        }
        if available < u64::from(self.shape.need) {
            return None;
        }
        let want = self.shape.max_units(available);
        let picks = self.pick(want)?;
        Some(self.allocation(&picks, Counts::UpTo(Size::UNLIMITED)))
    }

    /// Allocates the least units that the shape needs, on nodes that `accept` accepts.
    pub fn place_where(self, accept: &mut dyn FnMut(NodeIndex, u32) -> bool) -> Option<Allocation> {
        let picks = self.pick_in_order(self.shape.need, accept)?;
        Some(self.allocation(&picks, Counts::Least))
    }

    #[inline]
    fn place_single(self, mut walk: impl Walk) -> Option<Allocation> {
        let node = self.view.node(walk.next(self.view.tree())?);
        if self.shape.exact && !self.shape.request.exclusive {
            let share = self.nodes.lowest_free(node, self.shape.unit_amounts());
            let slots = if self.shape.has_nodes() {
                self.shape.request.slots.min()
            } else {
                1
            };
            return Some(Allocation::new(SmallVec::from_buf([share]), slots));
        }
        let picks = [Pick { node, units: 1 }];
        Some(self.allocation(&picks, Counts::UpTo(Size::UNLIMITED)))
    }

    /// Picks nodes by the selection policy until there are enough units.
    fn pick(self, want: u32) -> Option<Picks> {
        if self.selection == Selection::Contiguous && want > 1 {
            let start = self.start_of_span(want)?;
            let walk = First::new(self.view.tree(), self.shape.min_number, start);
            return self.pick_along(walk, want, |_, _| true);
        }
        self.pick_in_order(want, |_, _| true)
    }

    /// As [`pick`](Self::pick), of nodes that `accept` accepts, contiguous or not.
    fn pick_in_order(self, want: u32, accept: impl FnMut(NodeIndex, u32) -> bool) -> Option<Picks> {
        let (tree, min_number) = (self.view.tree(), self.shape.min_number);
        match self.selection {
            Selection::Pack => self.pick_along(Pack::new(tree, min_number), want, accept),
            Selection::Spread => self.pick_along(Spread::new(tree, min_number), want, accept),
            _ => self.pick_along(First::new(tree, min_number, 0), want, accept),
        }
    }

    /// The first leaf of the smallest span of ranks that has enough units.
    fn start_of_span(self, want: u32) -> Option<u32> {
        let (tree, min_number) = (self.view.tree(), self.shape.min_number);
        let rank = |leaf| self.nodes.rank(self.view.node(leaf));
        if self.shape.has_nodes() {
            // A node is one unit, and no two nodes have the same rank.
            return smallest_row(tree, min_number, want, want - 1, rank);
        }
        let units = |leaf| self.shape.units_at(tree.get(leaf));
        smallest_span(tree, min_number, want, 0, units, rank)
    }

    /// Picks nodes in the order of a walk, until there are enough units.
    fn pick_along(
        self,
        mut walk: impl Walk,
        want: u32,
        mut accept: impl FnMut(NodeIndex, u32) -> bool,
    ) -> Option<Picks> {
        let tree = self.view.tree();
        // A node has many slots: a capacity of 64 nodes is seldom too small.
        let mut picks = Picks::with_capacity(want.min(64) as usize);
        let mut left = want;
        let mut ascending = true;
        while left > 0 {
            let leaf = walk.next(tree)?;
            let node = self.view.node(leaf);
            let units = self.shape.units_at(tree.get(leaf)).min(left);
            if !accept(node, units) {
                continue;
            }
            ascending &= picks.last().is_none_or(|last| last.node < node);
            picks.push(Pick { node, units });
            left -= units;
        }
        if !ascending {
            picks.sort_unstable();
        }
        Some(picks)
    }

    /// The allocation of picked nodes, in rank order.
    pub(super) fn allocation(self, picks: &[Pick], counts: Counts) -> Allocation {
        let shape = self.shape;
        let request = &shape.request;
        let per_unit = if shape.has_nodes() {
            request.slots.min()
        } else {
            1
        };
        let mut slots_per_unit = per_unit;
        let mut cores = request.cores_per_slot.min();
        let mut gpus = request.gpus_per_slot.min();
        let units: u32 = picks.iter().map(|pick| pick.units).sum();
        if let Counts::UpTo(limit) = counts
            && !shape.exact
        {
            // As many as fit on every node, from the outermost count to the innermost.
            let room = |of: &dyn Fn(Amounts) -> u32, units: &dyn Fn(u32) -> u32| {
                let rooms = picks.iter().map(|pick| {
                    let free = self.nodes.free(pick.node);
                    of(free.into()) / units(pick.units).max(1)
                });
                rooms.min().unwrap_or(0)
            };
            // As many as the limit admits, if each takes that many cores of every unit.
            let below = |each: u64| {
                let most = limit.cores / (u64::from(units) * each).max(1);
                u32::try_from(most).unwrap_or(u32::MAX)
            };
            if shape.has_nodes() {
                let per_slot = Amounts { cores, gpus };
                let most = room(&|free| free.slots(per_slot), &|_| 1);
                let most = most.min(below(cores.into()));
                slots_per_unit = request.slots.largest_up_to(most).unwrap_or(per_unit);
            }
            let times = |picked: u32| picked.saturating_mul(slots_per_unit);
            let most = room(&|free| free.cores, &times);
            let most = most.min(below(slots_per_unit.into()));
            cores = request.cores_per_slot.largest_up_to(most).unwrap_or(cores);
            let most = room(&|free| free.gpus, &times);
            gpus = request.gpus_per_slot.largest_up_to(most).unwrap_or(gpus);
        }
        let amounts_of = |pick: &Pick| -> Amounts {
            if shape.has_nodes() && request.exclusive {
                return self.nodes.free(pick.node).into();
            }
            let slots = pick.units.saturating_mul(slots_per_unit);
            Amounts {
                cores: cores.saturating_mul(slots),
                gpus: gpus.saturating_mul(slots),
            }
        };
        // `collect` would copy each share once more.
        let mut shares = SmallVec::with_capacity(picks.len());
        for pick in picks {
            shares.push(self.nodes.lowest_free(pick.node, amounts_of(pick)));
        }
        Allocation::new(shares, units.saturating_mul(slots_per_unit))
    }

    /// As [`place`](Self::place), within a limit.
    pub fn place_within(self, available: u64, limit: Size) -> Option<Allocation> {
        let (shape, request) = (self.shape, &self.shape.request);
        let whole = shape.has_nodes() && request.exclusive;
        let mut most = available;
        if shape.has_nodes() {
            most = most.min(limit.nodes);
        }
        if !whole && let Some(units) = limit.cores.checked_div(u64::from(shape.cores)) {
            most = most.min(units);
        }
        let want = self.largest_count(most)?;
        let picks = self.pick(want)?;
        let allocation = self.allocation(&picks, Counts::UpTo(limit));
        if limit.admits(&allocation) {
            return Some(allocation);
        }
        let tree = self.view.tree();
        let mut picks = if whole {
            self.pick_sparingly(Pack::new(tree, shape.min_number), want, limit)
        } else {
            self.pick_sparingly(Spread::new(tree, shape.min_number), want, limit)
        };
        let picked: u32 = picks.iter().map(|pick| pick.units).sum();
        let mut excess = picked - self.largest_count(picked.into())?;
        while let Some(last) = picks.last_mut().filter(|_| excess > 0) {
            let less = excess.min(last.units);
            last.units -= less;
            excess -= less;
            if last.units == 0 {
                picks.pop();
            }
        }
        picks.sort_unstable();
        Some(self.allocation(&picks, Counts::UpTo(limit)))
    }

    /// The largest acceptable unit count not above `most`.
    fn largest_count(self, most: u64) -> Option<u32> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let units = self.shape.units().largest_up_to(most);
        units.filter(|units| *units >= self.shape.need)
    }

    /// Picks nodes in the order of a walk, as far as the limit admits.
    fn pick_sparingly(self, mut walk: impl Walk, want: u32, limit: Size) -> Picks {
        let tree = self.view.tree();
        let whole = self.shape.has_nodes() && self.shape.request.exclusive;
        let mut picks = Picks::new();
        let (mut left, mut cores) = (want, limit.cores);
        while left > 0
            && (picks.len() as u64) < limit.nodes
            && let Some(leaf) = walk.next(tree)
        {
            let node = self.view.node(leaf);
            if whole {
                let node_cores = self.nodes.class(node).cores.len;
                let Some(rest) = cores.checked_sub(u64::from(node_cores)) else {
                    break;
                };
                cores = rest;
            }
            let units = self.shape.units_at(tree.get(leaf)).min(left);
            picks.push(Pick { node, units });
            left -= units;
        }
        picks
    }
}
