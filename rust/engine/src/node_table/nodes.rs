//! The nodes: the resources of each, which of them are free, whether it is up. Flat arrays in rank
//! order.

use std::ops::RangeInclusive;
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

use super::allocation::NodeShare;
use super::bits::{Bits, words_for};
use super::node_class::{Amounts, NodeClass, NodeClasses};
use crate::Error;
use crate::ids::{NodeClassId, NodeIndex};

/// Maximum number of words of free cores and gpus of a node table: 2 GiB.
const MAX_NODE_TABLE_WORDS: u32 = 1 << 28;

/// Numbers of cores and gpus of one node: free now, free at a future time, or in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeResources {
    pub cores: u32,
    pub gpus: u32,
    /// Whether these are all that the node has.
    pub whole: bool,
}

impl From<NodeResources> for Amounts {
    #[inline]
    fn from(NodeResources { cores, gpus, .. }: NodeResources) -> Self {
        Self { cores, gpus }
    }
}

/// The free resources of one node.
#[derive(Clone, Copy, Debug)]
struct Cell {
    cores: u32,
    gpus: u32,
    class: NodeClassId,
    /// Index of its first word: those of the cores, then those of the gpus.
    at: u32,
}

impl Cell {
    /// Its free cores and gpus.
    fn free(self) -> Amounts {
        Amounts {
            cores: self.cores,
            gpus: self.gpus,
        }
    }
}

/// A node to be added to the arrays.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub rank: u32,
    pub class: NodeClassId,
    pub up: bool,
    /// `None` if all are free.
    free: Option<FreeBits>,
}

/// The free cores and gpus of a node.
#[derive(Clone, Debug)]
struct FreeBits {
    cores: Bits,
    gpus: Bits,
}

/// The words of a node's free cores, and those of its free gpus.
struct NodeWords<'a> {
    cores: &'a [u64],
    gpus: &'a [u64],
}

/// The numbers of cores and gpus of a node that have changed.
struct ChangedCounts {
    cores: u32,
    gpus: u32,
}

/// A run of consecutive nodes of one class, up to the next run.
#[derive(Clone, Copy, Debug)]
struct ClassRun {
    first: u32,
    class: NodeClassId,
}

/// The number of nodes of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassCount {
    pub class: NodeClassId,
    pub count: u32,
}

/// All nodes.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    classes: Arc<NodeClasses>,
    ranks: Arc<[u32]>,
    runs: Arc<[ClassRun]>,
    cells: Vec<Cell>,
    words: Vec<u64>,
    up: Vec<u64>,
    /// Free cores of the nodes that are up.
    free_cores: u64,
}

impl Nodes {
    /// Entries for the nodes of a resource set: down, with everything free.
    pub fn entries(classes: &mut NodeClasses, set: &ResourceSet) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::with_capacity(set.nnodes());
        for (ranks, cores, gpus) in set.runs() {
            let first = *ranks.start();
            let class = classes
                .intern(cores, gpus)
                .map_err(|error| error.about(format_args!("rank {first}")))?;
            entries.extend(ranks.map(|rank| Entry {
                rank,
                class,
                up: false,
                free: None,
            }));
        }
        Ok(entries)
    }

    /// As [`new`](Self::new), unless the nodes are too large together.
    pub fn checked(classes: Arc<NodeClasses>, entries: &[Entry]) -> Result<Self, Error> {
        let words = entries.iter();
        let words: u64 = words
            .map(|entry| u64::from(classes.get(entry.class).words()))
            .sum();
        if words > MAX_NODE_TABLE_WORDS.into() {
            return Err(Error::new(
                "the resources have more cores and gpus than the engine can hold",
            ));
        }
        Ok(Self::new(classes, entries))
    }

    /// The arrays of these nodes, which are in rank order.
    pub fn new(classes: Arc<NodeClasses>, entries: &[Entry]) -> Self {
        let mut runs: Vec<ClassRun> = Vec::new();
        for (entry, first) in entries.iter().zip(0..) {
            if runs.last().is_none_or(|last| last.class != entry.class) {
                runs.push(ClassRun {
                    first,
                    class: entry.class,
                });
            }
        }
        let mut nodes = Self {
            runs: runs.into(),
            ranks: entries.iter().map(|entry| entry.rank).collect(),
            cells: Vec::with_capacity(entries.len()),
            words: Vec::with_capacity(entries.len()),
            up: vec![0; entries.len().div_ceil(64)],
            free_cores: 0,
            classes,
        };
        for (entry, node) in entries.iter().zip(0..) {
            nodes.push(entry, NodeIndex::new(node));
        }
        nodes
    }

    fn push(&mut self, entry: &Entry, node: NodeIndex) {
        let class = self.classes.get(entry.class);
        let at = self.words.len();
        let FreeBits { cores, gpus } = entry.free.clone().unwrap_or_else(|| FreeBits {
            cores: Bits::full(class.cores.len),
            gpus: Bits::full(class.gpus.len),
        });
        let (core_words, gpu_words) = (
            words_for(class.cores.len) as usize,
            words_for(class.gpus.len) as usize,
        );
        self.words.resize(at + core_words + gpu_words, 0);
        cores.add_to(&mut self.words[at..at + core_words]);
        gpus.add_to(&mut self.words[at + core_words..]);
        self.cells.push(Cell {
            cores: cores.len(),
            gpus: gpus.len(),
            class: entry.class,
            // At most `MAX_NODE_TABLE_WORDS`.
            at: u32::try_from(at).unwrap_or_default(),
        });
        if entry.up {
            self.mark_up(node);
        }
    }

    /// Entries for the current nodes, from which new arrays can be built.
    pub fn to_entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.indices().map(|node| {
            let class = self.class(node);
            let share = self.free_share(node);
            let whole = share.ncores() == class.cores.len && share.ngpus() == class.gpus.len;
            Entry {
                rank: self.rank(node),
                class: self.cells[node.index()].class,
                up: self.is_up(node),
                free: (!whole).then_some(FreeBits {
                    cores: share.cores,
                    gpus: share.gpus,
                }),
            }
        })
    }

    pub fn classes(&self) -> &Arc<NodeClasses> {
        &self.classes
    }

    /// Every node, in rank order.
    pub fn indices(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.len()).map(NodeIndex::new)
    }

    pub fn len(&self) -> u32 {
        // Ranks are distinct and less than `u32::MAX`.
        u32::try_from(self.cells.len()).unwrap_or(u32::MAX)
    }

    pub fn rank(&self, node: NodeIndex) -> u32 {
        self.ranks[node.index()]
    }

    /// The classes of a range of nodes, in runs.
    pub fn class_runs(&self, nodes: RangeInclusive<u32>) -> impl Iterator<Item = ClassCount> + '_ {
        let (start, end) = (*nodes.start(), u64::from(*nodes.end()) + 1);
        let first = self.runs.partition_point(|run| run.first <= start);
        let runs = self.runs.get(first.saturating_sub(1)..).unwrap_or_default();
        let runs = runs
            .iter()
            .take_while(move |run| u64::from(run.first) < end);
        let later = self.runs.get(first..).unwrap_or_default().iter();
        let ends = later.map(|run| run.first).chain([self.len()]);
        runs.zip(ends).map(move |(run, stop)| {
            let count = u64::from(stop).min(end) - u64::from(run.first.max(start));
            ClassCount {
                class: run.class,
                count: u32::try_from(count).unwrap_or(u32::MAX),
            }
        })
    }

    pub fn class_id(&self, node: NodeIndex) -> NodeClassId {
        self.cells[node.index()].class
    }

    pub fn class(&self, node: NodeIndex) -> &NodeClass {
        self.classes.get(self.cells[node.index()].class)
    }

    #[inline]
    pub fn is_up(&self, node: NodeIndex) -> bool {
        self.up[node.index() / 64] >> (node.get() % 64) & 1 == 1
    }

    /// Marks a node up. Returns whether it was down.
    pub fn mark_up(&mut self, node: NodeIndex) -> bool {
        let was_down = !self.is_up(node);
        if was_down {
            self.up[node.index() / 64] |= 1 << (node.get() % 64);
            self.free_cores += u64::from(self.cells[node.index()].cores);
        }
        was_down
    }

    /// Marks a node down. Returns whether it was up.
    pub fn mark_down(&mut self, node: NodeIndex) -> bool {
        let was_up = self.is_up(node);
        if was_up {
            self.up[node.index() / 64] &= !(1 << (node.get() % 64));
            self.free_cores -= u64::from(self.cells[node.index()].cores);
        }
        was_up
    }

    /// Whether every node is up.
    pub fn all_up(&self) -> bool {
        let up: u32 = self.up.iter().map(|bits| bits.count_ones()).sum();
        up == self.len()
    }

    /// The ranks of the nodes that are up.
    pub fn up(&self) -> IdSet {
        self.indices()
            .filter(|node| self.is_up(*node))
            .map(|node| self.rank(node))
            .collect()
    }

    /// Free cores of the nodes that are up.
    pub fn free_cores(&self) -> u64 {
        self.free_cores
    }

    #[inline]
    pub fn free(&self, node: NodeIndex) -> NodeResources {
        let cell = self.cells[node.index()];
        NodeResources {
            cores: cell.cores,
            gpus: cell.gpus,
            whole: self.is_whole_node(node, cell.free()),
        }
    }

    #[inline]
    pub fn is_whole_node(&self, node: NodeIndex, amounts: Amounts) -> bool {
        amounts == Amounts::from(self.class(node))
    }

    #[inline]
    fn words(&self, node: NodeIndex) -> NodeWords<'_> {
        let cell = self.cells[node.index()];
        let class = self.classes.get(cell.class);
        let at = cell.at as usize;
        let gpus = at + words_for(class.cores.len) as usize;
        let end = gpus + words_for(class.gpus.len) as usize;
        NodeWords {
            cores: &self.words[at..gpus],
            gpus: &self.words[gpus..end],
        }
    }

    /// A share of the lowest free cores and gpus of a node, which has at least that many free.
    #[inline]
    pub fn lowest_free(&self, node: NodeIndex, amounts: Amounts) -> NodeShare {
        let words = self.words(node);
        NodeShare {
            node,
            cores: Bits::lowest(words.cores, amounts.cores),
            gpus: Bits::lowest(words.gpus, amounts.gpus),
        }
    }

    /// A share of everything that is free on a node.
    pub fn free_share(&self, node: NodeIndex) -> NodeShare {
        let cell = self.cells[node.index()];
        self.lowest_free(node, cell.free())
    }

    /// Whether all of a share is free.
    pub fn is_free(&self, share: &NodeShare) -> bool {
        let words = self.words(share.node);
        share.cores.is_within(words.cores) && share.gpus.is_within(words.gpus)
    }

    /// The part of a share that is free.
    pub fn free_of(&self, share: &NodeShare) -> NodeShare {
        let words = self.words(share.node);
        NodeShare {
            node: share.node,
            cores: share.cores.intersection(words.cores),
            gpus: share.gpus.intersection(words.gpus),
        }
    }

    /// Marks a share as allocated.
    #[inline]
    pub fn allocate(&mut self, share: &NodeShare) {
        let ChangedCounts { cores, gpus } = self.apply(share, Bits::remove_from);
        let cell = &mut self.cells[share.node.index()];
        cell.cores -= cores;
        cell.gpus -= gpus;
        if self.is_up(share.node) {
            self.free_cores -= u64::from(cores);
        }
    }

    /// Marks a share as free.
    #[inline]
    pub fn release(&mut self, share: &NodeShare) {
        let ChangedCounts { cores, gpus } = self.apply(share, Bits::add_to);
        let cell = &mut self.cells[share.node.index()];
        cell.cores += cores;
        cell.gpus += gpus;
        if self.is_up(share.node) {
            self.free_cores += u64::from(cores);
        }
    }

    /// Changes the words of a share's node.
    #[inline]
    fn apply(
        &mut self,
        share: &NodeShare,
        change: impl Fn(&Bits, &mut [u64]) -> u32,
    ) -> ChangedCounts {
        let cell = self.cells[share.node.index()];
        let class = self.classes.get(cell.class);
        let at = cell.at as usize;
        let gpus = at + words_for(class.cores.len) as usize;
        let cores = change(&share.cores, &mut self.words[at..gpus]);
        if share.gpus.is_empty() {
            return ChangedCounts { cores, gpus: 0 };
        }
        let end = gpus + words_for(class.gpus.len) as usize;
        ChangedCounts {
            cores,
            gpus: change(&share.gpus, &mut self.words[gpus..end]),
        }
    }

    /// Bytes of the arrays.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.ranks)
            + size_of_val(&*self.runs)
            + self.cells.capacity() * size_of::<Cell>()
            + (self.words.capacity() + self.up.capacity()) * size_of::<u64>()
    }
}
