//! Views: indices over the nodes that one constraint allows, by the resources that one kind of
//! shape needs. A view is updated from the journal of changed nodes when it is used.

use std::cmp::Reverse;
use std::sync::Arc;

use penstock_idset::IdSet;

use super::index::Tree;
use super::journal::Journal;
use super::nodes::Nodes;
use super::shape::{Measure, Shape, UnitKind};
use crate::ids::NodeIndex;

/// The key of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ViewKey {
    /// The number of the node set.
    pub node_set: u32,
    pub measure: Measure,
    /// The number of the order of the leaves; 0 for rank order.
    pub order: u32,
}

/// The nodes that a constraint allows.
#[derive(Debug)]
pub(crate) struct NodeSet {
    /// Distinct for distinct sets; 0 for all nodes.
    pub number: u32,
    pub ids: IdSet,
}

/// The node of each leaf, and the leaf of each node.
#[derive(Debug)]
struct Leaves {
    nodes: Vec<NodeIndex>,
    /// `NO_LEAF` for a node that is not in the view.
    leaves: Vec<u32>,
}

/// The leaf of a node that is not in a view.
const NO_LEAF: u32 = u32::MAX;

/// A sum of units over all nodes of a view.
#[derive(Clone, Copy, Debug, Default)]
struct UnitSum {
    /// The number of changes that the view had seen, plus one.
    seen: u64,
    units: u64,
}

/// An index over some nodes.
#[derive(Debug)]
pub(crate) struct View {
    key: ViewKey,
    /// Distinct for all views there have been.
    stamp: u64,
    /// The value of the use counter when this view was last used.
    used: u64,
    /// Changes of the journal that it reflects.
    seen: u64,
    tree: Tree,
    /// `None` if the leaves are all nodes in rank order.
    leaves: Option<Leaves>,
    /// Cached sums of units, by units' least number and kind.
    sums: Vec<UnitSum>,
}

impl View {
    fn new(
        key: ViewKey,
        stamp: u64,
        nodes: &Nodes,
        eligible: &NodeSet,
        waste: Option<&WasteOf>,
    ) -> Self {
        let mut order: Option<Vec<NodeIndex>> =
            (eligible.number != 0).then(|| eligible.ids.iter().map(NodeIndex::new).collect());
        if let Some(waste) = waste {
            let mut by_waste = order.unwrap_or_else(|| nodes.indices().collect());
            by_waste.sort_by_cached_key(|node| (waste(*node), *node));
            order = Some(by_waste);
        }
        let leaves = order.map(|order| {
            let mut leaves = vec![NO_LEAF; nodes.len() as usize];
            for (node, leaf) in order.iter().zip(0..) {
                leaves[node.index()] = leaf;
            }
            Leaves {
                nodes: order,
                leaves,
            }
        });
        let mut view = Self {
            key,
            stamp,
            used: 0,
            seen: 0,
            tree: Tree::new(std::iter::empty(), 0),
            leaves,
            sums: Vec::new(),
        };
        view.rebuild(nodes);
        view
    }

    fn rebuild(&mut self, nodes: &Nodes) {
        let measure = self.key.measure;
        let count = match &self.leaves {
            Some(leaves) => u32::try_from(leaves.nodes.len()).unwrap_or(u32::MAX),
            None => nodes.len(),
        };
        let largest = (0..count)
            .map(|leaf| measure.largest(nodes, self.node(leaf)))
            .max();
        let numbers = (0..count).map(|leaf| number(nodes, measure, self.node(leaf)));
        self.tree = Tree::new(numbers, largest.unwrap_or(0));
    }

    /// The node of a leaf.
    #[inline]
    pub fn node(&self, leaf: u32) -> NodeIndex {
        match &self.leaves {
            Some(leaves) => leaves.nodes[leaf as usize],
            None => NodeIndex::new(leaf),
        }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Updates the view from the journal.
    #[inline]
    fn update(&mut self, nodes: &Nodes, journal: &Journal) {
        let end = journal.end();
        if self.seen == end {
            return;
        }
        match journal.since(self.seen) {
            Some(changed) if changed.len() <= self.tree.len() as usize / 4 + 16 => {
                self.apply_changes(nodes, changed);
            }
            _ => self.rebuild(nodes),
        }
        self.seen = end;
    }

    /// The units of all nodes: of each node its number divided by `min_number`; if a unit is a node,
    /// one if its number is at least that.
    #[inline]
    fn units(&mut self, min_number: u32, kind: UnitKind) -> u64 {
        if min_number > self.tree.max() {
            return 0;
        }
        let at = 2 * min_number as usize + kind as usize;
        if at >= self.sums.len() {
            self.sums.resize(at + 1, UnitSum::default());
        }
        let sum = &mut self.sums[at];
        if sum.seen != self.seen + 1 {
            let units = match kind {
                UnitKind::Node => self.tree.at_least(min_number),
                UnitKind::Slot => self.tree.quotients(min_number),
            };
            *sum = UnitSum {
                seen: self.seen + 1,
                units,
            };
        }
        sum.units
    }

    /// The leaf of a node; `NO_LEAF` for none.
    #[inline]
    fn leaf(&self, node: NodeIndex) -> u32 {
        match &self.leaves {
            Some(leaves) => leaves.leaves[node.index()],
            None => node.get(),
        }
    }

    /// Updates the leaves of changed nodes. Neighbours mostly change together: the levels above a
    /// block are repaired once for all of its leaves.
    #[inline]
    fn apply_changes(&mut self, nodes: &Nodes, changed: &[NodeIndex]) {
        let mut left = changed.iter();
        let mut next = left.next().map(|node| (*node, self.leaf(*node)));
        let mut open = false;
        while let Some((node, leaf)) = next {
            next = left.next().map(|node| (*node, self.leaf(*node)));
            if leaf == NO_LEAF {
                continue;
            }
            let number = number(nodes, self.key.measure, node);
            let block = Tree::block_of(leaf);
            let continues = next.is_some_and(|(_, next)| Tree::block_of(next) == block);
            if !open && !continues {
                self.tree.set(leaf, number);
                continue;
            }
            self.tree.write(leaf, number);
            open = continues;
            if !continues {
                self.tree.repair(block);
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        let leaves = self.leaves.as_ref().map_or(0, |leaves| {
            leaves.nodes.capacity() + leaves.leaves.capacity()
        });
        self.tree.heap_bytes() + leaves * size_of::<u32>()
    }
}

#[inline]
fn number(nodes: &Nodes, measure: Measure, node: NodeIndex) -> u32 {
    if nodes.is_up(node) {
        measure.number(nodes, node)
    } else {
        0
    }
}

/// The waste of a shape on a node, less is better: gpus, then properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Waste {
    pub gpus: u32,
    pub properties: u32,
}

pub(crate) type WasteOf<'a> = dyn Fn(NodeIndex) -> Waste + 'a;

/// Maximum number of bytes of the views beside the one in use; above that, the least recently used
/// view is dropped.
const MAX_VIEW_BYTES: usize = 64 << 20;
/// Maximum number of views: each reads the journal.
const MAX_VIEWS: usize = 256;

/// All views, with the memory that they take.
#[derive(Debug, Default)]
pub(crate) struct Views {
    list: Vec<View>,
    clock: u64,
    stamps: u64,
    bytes: usize,
}

/// A reference to a view, which may have been dropped since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewRef {
    index: u32,
    /// The stamp of the view, from 1.
    stamp: u64,
}

impl Views {
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    /// Whether a view still exists.
    #[inline]
    pub fn has(&self, at: ViewRef) -> bool {
        let view = self.list.get(at.index as usize);
        view.is_some_and(|view| view.stamp == at.stamp)
    }

    /// Updates a view, which exists, from the journal.
    #[inline]
    pub fn update(&mut self, at: ViewRef, nodes: &Nodes, journal: &Journal) {
        self.clock += 1;
        let view = &mut self.list[at.index as usize];
        view.used = self.clock;
        view.update(nodes, journal);
    }

    /// The units that all nodes of a view provide to a shape.
    #[inline]
    pub fn units(&mut self, at: ViewRef, shape: &Shape) -> u64 {
        self.list[at.index as usize].units(shape.min_number, shape.kind())
    }

    /// A view, which exists.
    #[inline]
    pub fn get(&self, at: ViewRef) -> &View {
        &self.list[at.index as usize]
    }

    /// Finds a view, or builds it.
    pub fn find(
        &mut self,
        key: ViewKey,
        nodes: &Nodes,
        journal: &Journal,
        eligible: &Arc<NodeSet>,
        waste: Option<&WasteOf>,
    ) -> ViewRef {
        let index = match self.list.iter().position(|view| view.key == key) {
            Some(index) => index,
            None => self.insert(key, nodes, journal, eligible, waste),
        };
        ViewRef {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            stamp: self.list[index].stamp,
        }
    }

    fn insert(
        &mut self,
        key: ViewKey,
        nodes: &Nodes,
        journal: &Journal,
        eligible: &Arc<NodeSet>,
        waste: Option<&WasteOf>,
    ) -> usize {
        while self.list.len() >= MAX_VIEWS || (self.bytes > MAX_VIEW_BYTES && !self.list.is_empty())
        {
            let oldest = self.list.iter().enumerate();
            let oldest = oldest.max_by_key(|(_, view)| Reverse(view.used));
            let Some((index, _)) = oldest else {
                break;
            };
            let view = self.list.swap_remove(index);
            self.bytes = self.bytes.saturating_sub(view.heap_bytes());
        }
        self.stamps += 1;
        let mut view = View::new(key, self.stamps, nodes, eligible, waste);
        view.seen = journal.end();
        view.used = self.clock;
        self.bytes += view.heap_bytes();
        self.list.push(view);
        self.list.len() - 1
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.bytes
    }
}
