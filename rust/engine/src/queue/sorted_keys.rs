//! `SortedKeys`: the keys of a lane that were added in order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::key::Key;

/// The number of keys in a full block.
const BLOCK_KEYS: usize = 1024;

/// Ascending keys, added at the end and removed at the front. A clone shares all blocks but the last one: a lane may have
/// millions of keys, and snapshots are made every second.
#[derive(Clone, Debug, Default)]
pub(crate) struct SortedKeys {
    blocks: VecDeque<Arc<[Key]>>,
    /// The keys after the full blocks.
    last: Vec<Key>,
    /// The number of keys of the first block that were removed; of `last` if there is no full block.
    removed: usize,
}

impl SortedKeys {
    pub fn len(&self) -> usize {
        self.blocks.len() * BLOCK_KEYS + self.last.len() - self.removed
    }

    /// The first key.
    pub fn first(&self) -> Option<Key> {
        let block = self.blocks.front().map_or(&*self.last, |block| block);
        block.get(self.removed).copied()
    }

    /// The last key.
    pub fn last(&self) -> Option<Key> {
        let block = self.blocks.back().and_then(|block| block.last());
        self.last.last().or(block).copied()
    }

    /// Adds a key, which is not less than the others.
    pub fn push(&mut self, key: Key) {
        if self.last.len() == BLOCK_KEYS {
            self.blocks.push_back(Arc::from(&*self.last));
            self.last.clear();
        }
        self.last.push(key);
    }

    /// Removes the first key, if there is one.
    pub fn pop(&mut self) {
        self.removed += 1;
        if !self.blocks.is_empty() {
            if self.removed == BLOCK_KEYS {
                self.blocks.pop_front();
                self.removed = 0;
            }
        } else if self.removed >= self.last.len() {
            self.last.clear();
            self.removed = 0;
        }
    }

    /// The keys after one, in order.
    pub fn after(&self, key: Key) -> impl Iterator<Item = Key> {
        let before = |block: &Arc<[Key]>| block.last().is_some_and(|last| *last <= key);
        let start = self.blocks.partition_point(before);
        let removed = |block: usize| if block == 0 { self.removed } else { 0 };
        let in_first = self.blocks.get(start).map_or(&*self.last, |block| block);
        let skipped = in_first
            .partition_point(|other| *other <= key)
            .max(removed(start));
        let full = self.blocks.range(start..).flat_map(|block| block.iter());
        full.chain(&self.last).skip(skipped).copied()
    }

    /// All keys in order.
    pub fn iter(&self) -> impl Iterator<Item = Key> {
        let full = self.blocks.iter().flat_map(|block| block.iter());
        full.chain(&self.last).skip(self.removed).copied()
    }

    /// Removes all keys. Little memory is retained.
    pub fn clear(&mut self) {
        self.blocks = VecDeque::new();
        self.last.clear();
        self.removed = 0;
    }

    /// Bytes on the heap. Memory shared with clones is counted in each of them.
    pub fn heap_bytes(&self) -> usize {
        let keys = self.blocks.len() * BLOCK_KEYS + self.last.capacity();
        keys * size_of::<Key>() + self.blocks.capacity() * size_of::<Arc<[Key]>>()
    }
}

impl FromIterator<Key> for SortedKeys {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let mut sorted = Self::default();
        keys.into_iter().for_each(|key| sorted.push(key));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use penstock_jobspec::job_id::JobId;
    use proptest::prelude::*;

    use super::{BLOCK_KEYS, SortedKeys};
    use crate::ids::JobHandle;
    use crate::queue::Key;

    fn key(id: u64) -> Key {
        Key::new(1, JobId::new(id), JobHandle::new(0))
    }

    #[test]
    fn a_clone_shares_the_full_blocks() {
        let ids = 0..10 * BLOCK_KEYS as u64 + 7;
        let mut keys: SortedKeys = ids.clone().map(key).collect();
        let clone = keys.clone();
        keys.pop();
        keys.push(key(1 << 40));
        let shared = keys.blocks.iter().zip(&clone.blocks);
        assert_eq!(
            shared
                .filter(|(one, other)| Arc::ptr_eq(one, other))
                .count(),
            10
        );
        assert!(clone.iter().eq(ids.map(key)));
        assert_eq!(keys.len(), clone.len());
        assert_eq!(keys.first(), Some(key(1)));
    }

    #[test]
    fn removed_keys_take_no_memory() {
        let mut keys = SortedKeys::default();
        for id in 0..100_000 {
            keys.push(key(id));
            if id >= 100 {
                keys.pop();
            }
        }
        assert_eq!(keys.len(), 100);
        assert!(keys.heap_bytes() <= 3 * BLOCK_KEYS * size_of::<Key>());
    }

    proptest! {
        #[test]
        fn behaves_like_a_deque(
            steps in proptest::collection::vec((any::<bool>(), 1_u64..3000), 1..20),
            after in 0_u64..20_000,
        ) {
            let (mut keys, mut model) = (SortedKeys::default(), VecDeque::new());
            let mut next = 0;
            for (adds, count) in steps {
                for _ in 0..count {
                    if adds {
                        // Every other id.
                        next += 2;
                        keys.push(key(next));
                        model.push_back(key(next));
                    } else if model.pop_front().is_some() {
                        keys.pop();
                    }
                }
                prop_assert_eq!(keys.len(), model.len());
                prop_assert_eq!(keys.first(), model.front().copied());
                prop_assert_eq!(keys.last(), model.back().copied());
            }
            prop_assert!(keys.iter().eq(model.iter().copied()));
            let later = model.iter().copied().filter(|other| *other > key(after));
            prop_assert!(keys.after(key(after)).eq(later));
            let copy: SortedKeys = keys.iter().collect();
            prop_assert!(copy.iter().eq(model.iter().copied()));
            keys.clear();
            prop_assert_eq!((keys.len(), keys.first(), keys.last()), (0, None, None));
        }
    }
}
