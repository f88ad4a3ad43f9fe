//! Where a shape fits now.

use smallvec::SmallVec;

use super::nodes::Nodes;
use super::select::{First, Pack, Selection, Spread, Walk, smallest_row, smallest_span};
use super::shape::Shape;
use super::share::{Share, Shares};
use super::view::View;
use super::within::Cap;

/// What matching looks at.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub nodes: &'a Nodes,
    pub view: &'a View,
    pub shape: &'a Shape,
    pub selection: Selection,
}

/// A node, with the units that are to be taken of it.
pub(super) type Pick = (u32, u32);

impl Search<'_> {
    /// The shares of the most units that will do and fit, of so many that are there; how many does
    /// not matter to a single one.
    pub fn place(self, there: u64) -> Option<Shares> {
        let (tree, least) = (self.view.tree(), self.shape.least);
        if self.shape.is_single() {
            return match self.selection {
                Selection::Pack => self.one(Pack::new(tree, least)),
                Selection::Spread => self.one(Spread::new(tree, least)),
                _ => self.one(First::new(tree, least, 0)),
            };
        }
        if there < u64::from(self.shape.need) {
            return None;
        }
        let want = self.shape.most(there);
        let picks = self.walk(want, |_, _| true)?;
        Some(self.shares(&picks, Some(Cap::NONE)))
    }

    /// The shares of the units that are needed, on nodes that `accept` takes.
    pub fn place_where(self, accept: &mut dyn FnMut(u32, u32) -> bool) -> Option<Shares> {
        let picks = self.walk_all(self.shape.need, accept)?;
        Some(self.shares(&picks, None))
    }

    #[inline]
    fn one(self, mut walk: impl Walk) -> Option<Shares> {
        let place = self.view.place(walk.next(self.view.tree())?);
        if self.shape.exact && !self.shape.request.exclusive {
            let share = self.nodes.share(place, self.shape.cores, self.shape.gpus);
            let slots = if self.shape.has_nodes() {
                self.shape.request.slots.min()
            } else {
                1
            };
            return Some(Shares::new(SmallVec::from_buf([share]), slots));
        }
        Some(self.shares(&[(place, 1)], Some(Cap::NONE)))
    }

    /// Nodes by the selection policy until there are enough units.
    pub(super) fn walk(
        self,
        want: u32,
        accept: impl FnMut(u32, u32) -> bool,
    ) -> Option<SmallVec<[Pick; 4]>> {
        if self.selection == Selection::Contiguous && want > 1 {
            let start = self.start_of_span(want)?;
            let walk = First::new(self.view.tree(), self.shape.least, start);
            return self.pick(walk, want, accept);
        }
        self.walk_all(want, accept)
    }

    /// The same, one after the other, whatever span they have.
    fn walk_all(
        self,
        want: u32,
        accept: impl FnMut(u32, u32) -> bool,
    ) -> Option<SmallVec<[Pick; 4]>> {
        let (tree, least) = (self.view.tree(), self.shape.least);
        match self.selection {
            Selection::Pack => self.pick(Pack::new(tree, least), want, accept),
            Selection::Spread => self.pick(Spread::new(tree, least), want, accept),
            _ => self.pick(First::new(tree, least, 0), want, accept),
        }
    }

    fn start_of_span(self, want: u32) -> Option<u32> {
        let (tree, least) = (self.view.tree(), self.shape.least);
        let rank = |leaf| self.nodes.rank(self.view.place(leaf));
        if self.shape.has_nodes() {
            // A node is one unit, and no two nodes have the same rank.
            return smallest_row(tree, least, want, want - 1, rank);
        }
        let units = |leaf| self.shape.units_at(tree.get(leaf));
        smallest_span(tree, least, want, 0, units, rank)
    }

    /// Nodes in the order of a walk, until there are enough units.
    fn pick(
        self,
        mut walk: impl Walk,
        want: u32,
        mut accept: impl FnMut(u32, u32) -> bool,
    ) -> Option<SmallVec<[Pick; 4]>> {
        let tree = self.view.tree();
        // A node has many slots: more is seldom needed.
        let mut picks: SmallVec<[Pick; 4]> = SmallVec::with_capacity(want.min(64) as usize);
        let mut left = want;
        let mut ascending = true;
        while left > 0 {
            let leaf = walk.next(tree)?;
            let place = self.view.place(leaf);
            let units = self.shape.units_at(tree.get(leaf)).min(left);
            if !accept(place, units) {
                continue;
            }
            ascending &= picks.last().is_none_or(|(last, _)| *last < place);
            picks.push((place, units));
            left -= units;
        }
        if !ascending {
            picks.sort_unstable();
        }
        Some(picks)
    }

    /// The shares of nodes with units, in the order of ranks; with a cap as much below it as the
    /// nodes have room for, else the least.
    pub(super) fn shares(self, picks: &[Pick], cap: Option<Cap>) -> Shares {
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
        let units: u32 = picks.iter().map(|(_, units)| *units).sum();
        if let Some(cap) = cap.filter(|_| !shape.exact) {
            // As many as every one of the nodes has, from the outermost count to the innermost.
            let room = |per_slot: &dyn Fn(u32, u32) -> u32, units: &dyn Fn(u32) -> u32| {
                let rooms = picks.iter().map(|(place, picked)| {
                    let free = self.nodes.free(*place);
                    per_slot(free.cores, free.gpus) / units(*picked).max(1)
                });
                rooms.min().unwrap_or(0)
            };
            // As many as the cap has room for, for so many at once.
            let below = |each: u64| {
                let most = cap.cores / (u64::from(units) * each).max(1);
                u32::try_from(most).unwrap_or(u32::MAX)
            };
            if shape.has_nodes() {
                let most = room(
                    &|has_cores, has_gpus| super::shape::slots(has_cores, has_gpus, cores, gpus),
                    &|_| 1,
                );
                let most = most.min(below(cores.into()));
                slots_per_unit = request.slots.largest_up_to(most).unwrap_or(per_unit);
            }
            let times = |picked: u32| picked.saturating_mul(slots_per_unit);
            let most = room(&|has_cores, _| has_cores, &times);
            let most = most.min(below(slots_per_unit.into()));
            cores = request.cores_per_slot.largest_up_to(most).unwrap_or(cores);
            let most = room(&|_, has_gpus| has_gpus, &times);
            gpus = request.gpus_per_slot.largest_up_to(most).unwrap_or(gpus);
        }
        let part = |(place, units): &Pick| -> Share {
            if shape.has_nodes() && request.exclusive {
                return self.nodes.free_share(*place);
            }
            let slots = units.saturating_mul(slots_per_unit);
            self.nodes.share(
                *place,
                cores.saturating_mul(slots),
                gpus.saturating_mul(slots),
            )
        };
        Shares::new(
            picks.iter().map(part).collect(),
            units.saturating_mul(slots_per_unit),
        )
    }
}
