//! Placing a shape: the view of the shape is found or built, brought up to date and searched.

use std::sync::Arc;

use super::allocation::Allocation;
use super::matching::Search;
use super::view::{self, ViewKey, ViewRef};
use super::{NodeTable, Selection, ShapeCache, ShapeId, Size, feasibility, select};
use crate::ids::NodeIndex;

impl NodeTable {
    /// Finds the view of a shape, or builds it.
    fn find_view(&mut self, id: ShapeId) -> ViewRef {
        let constraint = self.shapes.get(id).constraint;
        let eligible = Arc::clone(&self.eligible(constraint).nodes);
        let shape = self.shapes.get(id);
        let thrifty = self.selection == Selection::Thrifty;
        let waste = thrifty.then(|| select::waste(&self.nodes, &self.directory, shape));
        let key = ViewKey {
            node_set: eligible.number,
            measure: shape.measure,
            order: if thrifty { constraint + 1 } else { 0 },
        };
        let waste = waste.as_ref().map(|waste| waste as &view::WasteOf);
        let (nodes, journal) = (&self.nodes, &self.journal);
        let view = self.views.find(key, nodes, journal, &eligible, waste);
        let cache = self.shape_cache.get_or_set_with(id.0, ShapeCache::default);
        cache.view = view;
        view
    }

    /// Finds or builds the view of a shape, and updates it.
    #[inline]
    pub(super) fn prepare_view(&mut self, id: ShapeId) -> ViewRef {
        let mut at = self.cache(id).view;
        if !self.views.has(at) {
            at = self.find_view(id);
        }
        self.views.update(at, &self.nodes, &self.journal);
        at
    }

    /// A search for a shape in its prepared view.
    #[inline]
    pub(super) fn search(&self, id: ShapeId, view: ViewRef) -> Search<'_> {
        Search {
            view: self.views.get(view),
            nodes: &self.nodes,
            shape: self.shapes.get(id),
            selection: self.selection,
        }
    }

    /// Whether the node table has at least the free cores that `units` units need, on any nodes.
    #[inline]
    pub fn may_have(&self, id: ShapeId, units: u64) -> bool {
        let min_cores = u64::from(self.shapes.get(id).cores.max(1));
        units.saturating_mul(min_cores) <= self.nodes.free_cores()
    }

    /// The units that all nodes provide now.
    pub fn units_now(&mut self, id: ShapeId) -> u64 {
        if self.is_fungible(id) {
            return self.nodes.free_cores();
        }
        let view = self.prepare_view(id);
        self.views.units(view, self.shapes.get(id))
    }

    /// Finds an allocation for a shape now, by the selection policy. Nothing is allocated yet.
    ///
    /// Of a count range as much as fits is placed: first as many nodes, or slots in all, as fit
    /// with the minimum of the other counts; then, on these nodes, as many slots on each, cores of
    /// a slot and gpus of a slot, in this order, as fit on all of them.
    #[inline]
    pub fn place(&mut self, id: ShapeId) -> Option<Allocation> {
        if self.has_failed(id) {
            return None;
        }
        let view = self.prepare_view(id);
        let shape = self.shapes.get(id);
        // A unit takes at least `min_number` of a node's number: this rejects most shapes that do
        // not fit without counting units.
        let min_sum = u64::from(shape.need) * u64::from(shape.min_number);
        let available = if shape.is_single() {
            1
        } else if self.views.get(view).tree().sum() < min_sum {
            0
        } else {
            self.views.units(view, shape)
        };
        let allocation = self.search(id, view).place(available);
        if allocation.is_none() {
            self.cache(id).failed = self.generation + 1;
        }
        allocation
    }

    /// As [`place`](Self::place), on nodes that `accept` accepts, given the node and the units to
    /// be taken of it. Of a count range the minimum is placed. Calls `accept` for each node with
    /// room until there are enough.
    pub fn place_where(
        &mut self,
        id: ShapeId,
        accept: &mut dyn FnMut(&Self, NodeIndex, u32) -> bool,
    ) -> Option<Allocation> {
        if self.has_failed(id) {
            return None;
        }
        let view = self.prepare_view(id);
        let search = self.search(id, view);
        search.place_where(&mut |node, units| accept(self, node, units))
    }

    /// As [`place`](Self::place), within a limit: of a count range as much as the limit admits. If
    /// the nodes that the selection policy picks exceed the limit, the fewest or the smallest nodes
    /// are taken instead.
    pub fn place_within(&mut self, id: ShapeId, limit: Size) -> Option<Allocation> {
        if self.has_failed(id) {
            return None;
        }
        let view = self.prepare_view(id);
        let available = self.views.units(view, self.shapes.get(id));
        self.search(id, view).place_within(available, limit)
    }

    /// Whether the nodes that are up could run a feasible shape if all of them were idle.
    pub fn is_reachable(&self, id: ShapeId) -> bool {
        if self.nodes.all_up() {
            return true;
        }
        let mut left = self.need(id);
        self.node_indices().any(|node| {
            let units = self.units(id, node, self.total(node));
            left = left.saturating_sub(units.into());
            left == 0
        })
    }

    /// The smallest allocation that a feasible shape can have: the fewest nodes, and the fewest
    /// cores.
    pub fn min_size(&mut self, id: ShapeId) -> Size {
        let constraint = self.shapes.get(id).constraint;
        let census = Arc::clone(&self.eligible(constraint).census);
        feasibility::min_size(&census, self.request(id))
    }

    /// The most nodes and cores that a shape can be allocated with its minimum counts.
    pub fn max_size(&mut self, id: ShapeId) -> Size {
        let constraint = self.shapes.get(id).constraint;
        let census = Arc::clone(&self.eligible(constraint).census);
        feasibility::max_size(&census, self.request(id))
    }
}
