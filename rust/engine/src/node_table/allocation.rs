//! Allocations: shares of nodes.

use std::ops::Deref;

use smallvec::SmallVec;

use super::bits::Bits;
use super::node_class::Amounts;
use crate::ids::NodeIndex;

/// Cores and gpus of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeShare {
    pub node: NodeIndex,
    pub(super) cores: Bits,
    pub(super) gpus: Bits,
}

impl NodeShare {
    #[inline]
    pub fn ncores(&self) -> u32 {
        self.cores.len()
    }

    #[inline]
    pub fn amounts(&self) -> Amounts {
        Amounts {
            cores: self.ncores(),
            gpus: self.ngpus(),
        }
    }

    #[inline]
    pub fn ngpus(&self) -> u32 {
        self.gpus.len()
    }

    /// Whether it has neither cores nor gpus.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.cores.is_empty() && self.gpus.is_empty()
    }
}

/// Shares of nodes, in ascending order of nodes. A single share takes no heap memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    shares: SmallVec<[NodeShare; 1]>,
    slots: u32,
}

/// A number of cores and gpus of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeAmount {
    pub node: NodeIndex,
    pub cores: u32,
    pub gpus: u32,
}

impl NodeAmount {
    pub fn amounts(self) -> Amounts {
        Amounts {
            cores: self.cores,
            gpus: self.gpus,
        }
    }
}

/// An allocation cut in two.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    /// The requested part.
    pub part: Allocation,
    /// The rest of the allocation.
    pub rest: Allocation,
}

impl Allocation {
    pub(super) fn new(shares: SmallVec<[NodeShare; 1]>, slots: u32) -> Self {
        Self { shares, slots }
    }

    /// The number of nodes and of cores.
    #[inline]
    pub fn size(&self) -> Size {
        Size {
            nodes: self.shares.len() as u64,
            cores: self.iter().map(|share| u64::from(share.ncores())).sum(),
        }
    }

    /// Bytes on the heap. Sets of cores that are not contiguous are not counted.
    pub fn heap_bytes(&self) -> usize {
        if self.shares.spilled() {
            self.shares.capacity() * size_of::<NodeShare>()
        } else {
            0
        }
    }

    /// The number of slots, as placed or as the R says; 0 if unknown.
    pub fn slots(&self) -> u64 {
        self.slots.into()
    }

    /// As [`slots`](Self::slots), in the type in which it is stored.
    pub(super) fn slot_count(&self) -> u32 {
        self.slots
    }

    /// Adds a share of a node, which may have one already.
    pub fn push(&mut self, share: NodeShare) {
        match self.binary_search_by_key(&share.node, |known| known.node) {
            Ok(at) => {
                let known = &mut self.shares[at];
                known.cores = known.cores.union(&share.cores);
                known.gpus = known.gpus.union(&share.gpus);
            }
            Err(at) => self.shares.insert(at, share),
        }
    }

    /// Adds another allocation. The slots of both are known only if those of each are.
    pub fn merge(&mut self, other: Self) {
        self.slots = match (self.slots, other.slots) {
            (0, _) | (_, 0) => 0,
            (some, more) => some.saturating_add(more),
        };
        if other.shares.len() < 8 {
            other.shares.into_iter().for_each(|share| self.push(share));
            return;
        }
        // Sorting makes the shares of one node neighbours.
        self.shares.extend(other.shares);
        self.shares.sort_by_key(|share| share.node);
        self.shares.dedup_by(|next, share| {
            let same = next.node == share.node;
            if same {
                share.cores = share.cores.union(&next.cores);
                share.gpus = share.gpus.union(&next.gpus);
            }
            same
        });
    }
}

impl Deref for Allocation {
    type Target = [NodeShare];

    #[inline]
    fn deref(&self) -> &[NodeShare] {
        &self.shares
    }
}

impl FromIterator<NodeShare> for Allocation {
    fn from_iter<I: IntoIterator<Item = NodeShare>>(shares: I) -> Self {
        Self::new(shares.into_iter().collect(), 0)
    }
}

impl IntoIterator for Allocation {
    type Item = NodeShare;
    type IntoIter = smallvec::IntoIter<[NodeShare; 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.shares.into_iter()
    }
}

impl<'a> IntoIterator for &'a Allocation {
    type Item = &'a NodeShare;
    type IntoIter = std::slice::Iter<'a, NodeShare>;

    fn into_iter(self) -> Self::IntoIter {
        self.shares.iter()
    }
}

/// Nodes and cores: the size of an allocation, or a limit on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub nodes: u64,
    pub cores: u64,
}

impl Size {
    /// The limit that any allocation is within.
    pub const UNLIMITED: Self = Self {
        nodes: u64::MAX,
        cores: u64::MAX,
    };

    /// The smaller number of nodes and the smaller number of cores of two limits.
    pub fn min(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.min(other.nodes),
            cores: self.cores.min(other.cores),
        }
    }

    /// Whether an allocation is within this limit.
    pub fn admits(self, allocation: &Allocation) -> bool {
        let size = allocation.size();
        size.nodes <= self.nodes && size.cores <= self.cores
    }
}
