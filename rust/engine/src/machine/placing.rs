//! Where a shape fits: it is looked for in the view of its shape.

use std::sync::Arc;

use super::matching::Search;
use super::view::{self, Key, ViewRef};
use super::{Machine, Selection, ShapeId, Shares, select};

impl Machine {
    /// The view of a shape, found or made.
    fn find_view(&mut self, id: ShapeId) -> ViewRef {
        let constraint = self.shapes.get(id).constraint;
        let places = Arc::clone(&self.allow(constraint).places);
        let shape = self.shapes.get(id);
        let thrifty = self.selection == Selection::Thrifty;
        let waste = thrifty.then(|| select::waste(&self.nodes, &self.book, shape));
        let key = Key {
            places: places.number,
            measure: shape.measure,
            order: if thrifty { constraint + 1 } else { 0 },
        };
        let waste = waste.as_ref().map(|waste| waste as &view::Waste);
        let (nodes, journal) = (&self.nodes, &self.journal);
        let view = self.views.find(key, nodes, journal, &places, waste);
        self.known[id.0 as usize].view = view;
        view
    }

    /// Sees to it that the view of a shape is there and in step.
    #[inline]
    pub(super) fn prepare(&mut self, id: ShapeId) -> ViewRef {
        let mut at = self.known[id.0 as usize].view;
        if !self.views.has(at) {
            at = self.find_view(id);
        }
        self.views.keep_up(at, &self.nodes, &self.journal);
        at
    }

    /// What is needed to search for a shape, whose view has been prepared.
    #[inline]
    pub(super) fn search(&self, id: ShapeId, view: ViewRef) -> Search<'_> {
        Search {
            view: self.views.get(view),
            nodes: &self.nodes,
            shape: self.shapes.get(id),
            selection: self.selection,
        }
    }

    /// Whether there are as many free cores as so many units take at the least, wherever they are.
    #[inline]
    pub fn may_have(&self, id: ShapeId, units: u64) -> bool {
        let least = u64::from(self.shapes.get(id).cores.max(1));
        units.saturating_mul(least) <= self.nodes.free_cores()
    }

    /// Units that all nodes would give now.
    pub fn units_now(&mut self, id: ShapeId) -> u64 {
        if self.is_fungible(id) {
            return self.nodes.free_cores();
        }
        let view = self.prepare(id);
        self.views.units(view, self.shapes.get(id))
    }

    /// Where the shape fits now, by the selection policy. Nothing is taken.
    ///
    /// Of a range as much as fits is placed: first of its nodes, or of its slots in all, with the
    /// least of the rest; then, on these nodes, as many slots on each, cores of a slot and gpus
    /// of a slot, in this order, as all of them have room for.
    #[inline]
    pub fn place(&mut self, id: ShapeId) -> Option<Shares> {
        let at = id.0 as usize;
        if self.known[at].failed > self.generation {
            return None;
        }
        let view = self.prepare(id);
        let shape = self.shapes.get(id);
        // A unit takes at least so much of a node's number: most that cannot fit is seen at once.
        let least = u64::from(shape.need) * u64::from(shape.least);
        let there = if shape.is_single() {
            1
        } else if self.views.get(view).tree().sum() < least {
            0
        } else {
            self.views.units(view, shape)
        };
        let shares = self.search(id, view).place(there);
        if shares.is_none() {
            self.known[at].failed = self.generation + 1;
        }
        shares
    }

    /// As [`place`](Self::place), on nodes that `accept` takes, given the place and the units to
    /// be taken. Of a range it places the least. Asks of every node that has room until there is
    /// enough.
    pub fn place_where(
        &mut self,
        id: ShapeId,
        accept: &mut dyn FnMut(&Self, u32, u32) -> bool,
    ) -> Option<Shares> {
        if self.known[id.0 as usize].failed > self.generation {
            return None;
        }
        let view = self.prepare(id);
        let search = self.search(id, view);
        search.place_where(&mut |place, units| accept(self, place, units))
    }
}
