//! Views: an index over the nodes that one constraint allows, by what one kind of shape asks of
//! them. A view is kept in step when it is looked at, from the journal of changed places.

use std::cmp::Reverse;
use std::sync::Arc;

use penstock_idset::IdSet;

use super::index::Tree;
use super::journal::Journal;
use super::nodes::Nodes;
use super::shape::{Shape, slots};

/// What a node's number says in a view. A node that is down has 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Measure {
    /// Free cores, of nodes with so many free gpus.
    Cores { gpus: u32 },
    /// Cores of nodes of which nothing is in use, with so many gpus.
    Whole { gpus: u32 },
    /// Slots of so many cores and gpus.
    Slots { cores: u32, gpus: u32 },
}

impl Measure {
    /// The number of a node that is up.
    #[inline]
    fn number(self, nodes: &Nodes, place: u32) -> u32 {
        let free = nodes.free(place);
        let cores_if = |fits: bool| if fits { free.cores } else { 0 };
        match self {
            Self::Cores { gpus } => cores_if(free.gpus >= gpus),
            Self::Whole { gpus } => cores_if(free.whole && free.gpus >= gpus),
            Self::Slots { cores, gpus } => slots(free.cores, free.gpus, cores, gpus),
        }
    }

    /// The largest number that a node can have.
    fn largest(self, nodes: &Nodes, place: u32) -> u32 {
        let kind = nodes.kind(place);
        match self {
            Self::Slots { cores, gpus } => slots(kind.cores.len, kind.gpus.len, cores, gpus),
            _ => kind.cores.len,
        }
    }
}

/// Which view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The number of the set of places.
    pub places: u32,
    pub measure: Measure,
    /// The number of the order of the leaves; 0 is by rank.
    pub order: u32,
}

/// The places that a constraint allows.
#[derive(Debug)]
pub(crate) struct Places {
    /// Distinct for distinct sets; 0 is all places.
    pub number: u32,
    pub ids: IdSet,
}

/// Which place a leaf stands for, and the other way round.
#[derive(Debug)]
struct Leaves {
    places: Vec<u32>,
    /// `u32::MAX` for a place that is not in the view.
    leaves: Vec<u32>,
}

/// An index over some nodes.
#[derive(Debug)]
pub(crate) struct View {
    key: Key,
    /// Distinct from that of any other view there has been.
    stamp: u64,
    used: u64,
    seen: u64,
    tree: Tree,
    /// `None` where the leaves are all places in their order.
    leaves: Option<Leaves>,
    /// Sums of units that have been asked for: what had been seen then, plus one, and the sum.
    sums: Vec<(u64, u64)>,
}

impl View {
    fn new(key: Key, stamp: u64, nodes: &Nodes, allowed: &Places, waste: Option<&Waste>) -> Self {
        let mut places: Option<Vec<u32>> =
            (allowed.number != 0).then(|| allowed.ids.iter().collect());
        if let Some(waste) = waste {
            let mut order = places.unwrap_or_else(|| (0..nodes.len()).collect());
            order.sort_by_cached_key(|place| (waste(*place), *place));
            places = Some(order);
        }
        let leaves = places.map(|places| {
            let mut leaves = vec![u32::MAX; nodes.len() as usize];
            for (place, leaf) in places.iter().zip(0..) {
                leaves[*place as usize] = leaf;
            }
            Leaves { places, leaves }
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
            Some(leaves) => u32::try_from(leaves.places.len()).unwrap_or(u32::MAX),
            None => nodes.len(),
        };
        let places = (0..count).map(|leaf| self.place(leaf));
        let largest = places.map(|place| measure.largest(nodes, place)).max();
        let numbers = (0..count).map(|leaf| number(nodes, measure, self.place(leaf)));
        self.tree = Tree::new(numbers, largest.unwrap_or(0));
    }

    /// The place that a leaf stands for.
    #[inline]
    pub fn place(&self, leaf: u32) -> u32 {
        match &self.leaves {
            Some(leaves) => leaves.places[leaf as usize],
            None => leaf,
        }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Sees what has changed.
    #[inline]
    fn keep_up(&mut self, nodes: &Nodes, journal: &Journal) {
        let end = journal.end();
        if self.seen == end {
            return;
        }
        match journal.since(self.seen) {
            Some(changed) if changed.len() <= self.tree.len() as usize / 4 + 16 => {
                self.follow(nodes, changed);
            }
            _ => self.rebuild(nodes),
        }
        self.seen = end;
    }

    /// Units that all nodes give, each as many as its number has of `least`, or one if its number
    /// is as much.
    #[inline]
    fn units(&mut self, least: u32, is_node: bool) -> u64 {
        if least > self.tree.max() {
            return 0;
        }
        let at = 2 * least as usize + usize::from(is_node);
        if at >= self.sums.len() {
            self.sums.resize(at + 1, (0, 0));
        }
        let sum = &mut self.sums[at];
        if sum.0 != self.seen + 1 {
            let units = if is_node {
                self.tree.at_least(least)
            } else {
                self.tree.parts(least)
            };
            *sum = (self.seen + 1, units);
        }
        sum.1
    }

    /// The leaf that stands for a place; `u32::MAX` for none.
    #[inline]
    fn leaf(&self, place: u32) -> u32 {
        match &self.leaves {
            Some(leaves) => leaves.leaves[place as usize],
            None => place,
        }
    }

    /// Goes through places that have changed. Neighbours mostly change together: what is above
    /// them is told once.
    #[inline]
    fn follow(&mut self, nodes: &Nodes, changed: &[u32]) {
        let mut left = changed.iter();
        let mut next = left.next().map(|place| (*place, self.leaf(*place)));
        let mut open = false;
        while let Some((place, leaf)) = next {
            next = left.next().map(|place| (*place, self.leaf(*place)));
            if leaf == u32::MAX {
                continue;
            }
            let number = number(nodes, self.key.measure, place);
            let block = Tree::block_of(leaf);
            let goes_on = next.is_some_and(|(_, next)| Tree::block_of(next) == block);
            if !open && !goes_on {
                self.tree.set(leaf, number);
                continue;
            }
            self.tree.write(leaf, number);
            open = goes_on;
            if !goes_on {
                self.tree.mend(block);
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        let leaves = self.leaves.as_ref();
        let leaves = leaves.map_or(0, |it| it.places.capacity() + it.leaves.capacity());
        self.tree.heap_bytes() + leaves * size_of::<u32>()
    }
}

#[inline]
fn number(nodes: &Nodes, measure: Measure, place: u32) -> u32 {
    if nodes.is_up(place) {
        measure.number(nodes, place)
    } else {
        0
    }
}

/// What of a node would be wasted, if the leaves are to be ordered by that.
pub(crate) type Waste<'a> = dyn Fn(u32) -> (u32, u32) + 'a;

/// Bytes that views may take, beside the one in use: then the one that was not used for the
/// longest time goes.
const MOST_BYTES: usize = 64 << 20;
/// Views there may be: each goes through the journal.
const MOST: usize = 256;

/// The views there are.
#[derive(Debug, Default)]
pub(crate) struct Views {
    list: Vec<View>,
    clock: u64,
    stamps: u64,
    bytes: usize,
}

/// Where a view was, if it is still there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewRef {
    index: u32,
    /// Views have stamps from 1.
    stamp: u64,
}

impl Views {
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    /// Whether a view is still there.
    #[inline]
    pub fn has(&self, at: ViewRef) -> bool {
        let view = self.list.get(at.index as usize);
        view.is_some_and(|view| view.stamp == at.stamp)
    }

    /// Brings a view that is there in step with the nodes.
    #[inline]
    pub fn keep_up(&mut self, at: ViewRef, nodes: &Nodes, journal: &Journal) {
        self.clock += 1;
        let view = &mut self.list[at.index as usize];
        view.used = self.clock;
        view.keep_up(nodes, journal);
    }

    /// Units of a shape that all nodes of a view give.
    #[inline]
    pub fn units(&mut self, at: ViewRef, shape: &Shape) -> u64 {
        self.list[at.index as usize].units(shape.least, shape.has_nodes())
    }

    /// A view that is there.
    #[inline]
    pub fn get(&self, at: ViewRef) -> &View {
        &self.list[at.index as usize]
    }

    /// Finds a view, or makes it.
    pub fn find(
        &mut self,
        key: Key,
        nodes: &Nodes,
        journal: &Journal,
        allowed: &Arc<Places>,
        waste: Option<&Waste>,
    ) -> ViewRef {
        let index = match self.list.iter().position(|view| view.key == key) {
            Some(index) => index,
            None => self.insert(key, nodes, journal, allowed, waste),
        };
        ViewRef {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            stamp: self.list[index].stamp,
        }
    }

    fn insert(
        &mut self,
        key: Key,
        nodes: &Nodes,
        journal: &Journal,
        allowed: &Arc<Places>,
        waste: Option<&Waste>,
    ) -> usize {
        while self.list.len() >= MOST || (self.bytes > MOST_BYTES && !self.list.is_empty()) {
            let oldest = self.list.iter().enumerate();
            let oldest = oldest.max_by_key(|(_, view)| Reverse(view.used));
            let Some((index, _)) = oldest else {
                break;
            };
            let view = self.list.swap_remove(index);
            self.bytes = self.bytes.saturating_sub(view.heap_bytes());
        }
        self.stamps += 1;
        let mut view = View::new(key, self.stamps, nodes, allowed, waste);
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
