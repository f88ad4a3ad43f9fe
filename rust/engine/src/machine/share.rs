//! What is taken of the machine: parts of nodes.

use std::ops::Deref;

use smallvec::SmallVec;

use super::bits::Bits;

/// A part of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Place of the node in rank order.
    pub place: u32,
    pub(super) cores: Bits,
    pub(super) gpus: Bits,
}

impl Share {
    pub fn ncores(&self) -> u32 {
        self.cores.len()
    }

    pub fn ngpus(&self) -> u32 {
        self.gpus.len()
    }

    /// Whether nothing is left of it.
    pub fn is_empty(&self) -> bool {
        self.cores.is_empty() && self.gpus.is_empty()
    }
}

/// Parts of nodes, in the order of places. One share is held in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares {
    shares: SmallVec<[Share; 1]>,
    slots: u32,
}

impl Shares {
    pub(super) fn new(shares: SmallVec<[Share; 1]>, slots: u32) -> Self {
        Self { shares, slots }
    }

    /// Bytes on the heap; sets of cores that are no run are left out.
    pub fn heap_bytes(&self) -> usize {
        if self.shares.spilled() {
            self.shares.capacity() * size_of::<Share>()
        } else {
            0
        }
    }

    /// Slots that these are, as they were placed or as their R says; 0 where it does not.
    pub fn slots(&self) -> u64 {
        self.slots.into()
    }

    /// As [`slots`](Self::slots), as it is held.
    pub(super) fn count(&self) -> u32 {
        self.slots
    }

    /// Adds a part of a node of which there may be one already.
    pub fn push(&mut self, share: Share) {
        match self.binary_search_by_key(&share.place, |it| it.place) {
            Ok(at) => {
                let known = &mut self.shares[at];
                known.cores = known.cores.union(&share.cores);
                known.gpus = known.gpus.union(&share.gpus);
            }
            Err(at) => self.shares.insert(at, share),
        }
    }

    /// Adds others, which may be in any order. How many slots they are together is known where it
    /// is known of both.
    pub fn merge(&mut self, others: Self) {
        self.slots = match (self.slots, others.slots) {
            (0, _) | (_, 0) => 0,
            (some, more) => some.saturating_add(more),
        };
        if others.shares.len() < 8 {
            others.shares.into_iter().for_each(|share| self.push(share));
            return;
        }
        // By place, so that equal places are neighbours.
        self.shares.extend(others.shares);
        self.shares.sort_by_key(|share| share.place);
        self.shares.dedup_by(|next, share| {
            let same = next.place == share.place;
            if same {
                share.cores = share.cores.union(&next.cores);
                share.gpus = share.gpus.union(&next.gpus);
            }
            same
        });
    }
}

impl Deref for Shares {
    type Target = [Share];

    #[inline]
    fn deref(&self) -> &[Share] {
        &self.shares
    }
}

impl FromIterator<Share> for Shares {
    fn from_iter<I: IntoIterator<Item = Share>>(shares: I) -> Self {
        Self::new(shares.into_iter().collect(), 0)
    }
}

impl IntoIterator for Shares {
    type Item = Share;
    type IntoIter = smallvec::IntoIter<[Share; 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.shares.into_iter()
    }
}

impl<'a> IntoIterator for &'a Shares {
    type Item = &'a Share;
    type IntoIter = std::slice::Iter<'a, Share>;

    fn into_iter(self) -> Self::IntoIter {
        self.shares.iter()
    }
}
