//! `Keys`: the keys of a lane, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::key::Key;

/// The greatest number of keys in a block.
const BLOCK_KEYS: usize = 1024;

/// Two neighbouring blocks with at most this many keys together become one.
const JOINED_KEYS: usize = BLOCK_KEYS / 2;

/// The number of keys whose memory is retained when all are removed.
const RETAINED_KEYS: usize = 64;

/// Distinct keys in ascending order. Mostly they are added at the end and removed at the front, which is fast; elsewhere the
/// cost is that of a block, however many keys there are. A clone shares all blocks: a lane may have millions of keys, and
/// snapshots are made every second.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    blocks: VecDeque<Block>,
    /// The keys after the blocks; not empty if there is a block.
    last: VecDeque<Key>,
}

#[derive(Clone, Debug)]
struct Block {
    /// No key of this block is greater, and all keys of the next ones are.
    end: Key,
    /// At least one.
    keys: Arc<VecDeque<Key>>,
}

impl Block {
    fn new(keys: VecDeque<Key>) -> Self {
        Self {
            end: keys.back().copied().unwrap_or(Key::NONE),
            keys: Arc::new(keys),
        }
    }
}

impl Keys {
    /// The first key.
    pub fn first(&self) -> Option<Key> {
        self.block(0).front().copied()
    }

    /// Whether there are other keys, and this one comes after them.
    pub fn is_behind(&self, key: Key) -> bool {
        self.last.back().is_some_and(|last| *last < key)
    }

    /// Adds a key, unless it is there.
    pub fn insert(&mut self, key: Key) {
        let index = self.index_of(key);
        let block = self.block(index);
        let position = match block.back() {
            Some(last) if *last >= key => match block.binary_search(&key) {
                Ok(_) => return,
                Err(position) => position,
            },
            _ => block.len(),
        };
        if block.len() < BLOCK_KEYS {
            let block = self.block_mut(index);
            if position == block.len() {
                block.push_back(key);
                return;
            }
            if block.len() == block.capacity() {
                // A full block at most.
                block.reserve_exact((BLOCK_KEYS - block.len()).min(block.len()));
            }
            block.insert(position, key);
        } else if index == self.blocks.len() && position == BLOCK_KEYS {
            let full = std::mem::replace(&mut self.last, VecDeque::with_capacity(BLOCK_KEYS));
            self.last.push_back(key);
            self.blocks.push_back(Block::new(full));
        } else {
            self.split(index);
            self.insert(key);
        }
    }

    /// Divides a full block into two.
    fn split(&mut self, index: usize) {
        let block = self.block_mut(index);
        let mut upper = VecDeque::with_capacity(BLOCK_KEYS);
        upper.extend(block.drain(BLOCK_KEYS / 2..));
        if let Some(lower) = self.blocks.get_mut(index) {
            let end = std::mem::replace(&mut lower.end, lower.keys[BLOCK_KEYS / 2 - 1]);
            let keys = Arc::new(upper);
            self.blocks.insert(index + 1, Block { end, keys });
        } else {
            let lower = std::mem::replace(&mut self.last, upper);
            self.blocks.push_back(Block::new(lower));
        }
    }

    /// Removes a key. Returns whether it was there.
    pub fn remove(&mut self, key: Key) -> bool {
        let index = self.index_of(key);
        let block = self.block(index);
        let position = if block.front() == Some(&key) {
            0
        } else if let Ok(position) = block.binary_search(&key) {
            position
        } else {
            return false;
        };
        self.block_mut(index).remove(position);
        self.join(index);
        true
    }

    /// Removes the first key, and returns it.
    pub fn remove_first(&mut self) -> Option<Key> {
        let first = self.first()?;
        self.block_mut(0).pop_front();
        self.join(0);
        Some(first)
    }

    /// Removes a block that is empty by now, or joins it with one next to it if both have few keys.
    fn join(&mut self, index: usize) {
        let left = self.block(index).len();
        if left > JOINED_KEYS {
            return;
        }
        if left == 0 {
            if self.blocks.remove(index).is_none()
                && let Some(block) = self.blocks.pop_back()
            {
                self.last = Arc::unwrap_or_clone(block.keys);
            }
            return;
        }
        for lower in index.saturating_sub(1)..=index {
            let (Some(one), Some(other)) = (self.blocks.get(lower), self.blocks.get(lower + 1))
            else {
                continue;
            };
            if one.keys.len() + other.keys.len() <= JOINED_KEYS {
                let keys = one.keys.iter().chain(&*other.keys).copied();
                let block = Block {
                    end: other.end,
                    keys: Arc::new(keys.collect()),
                };
                self.blocks.remove(lower);
                self.blocks[lower] = block;
                return;
            }
        }
    }

    /// The keys after one, in order.
    pub fn after(&self, key: Key) -> impl Iterator<Item = Key> {
        let start = self.index_of(key);
        let skipped = self.block(start).partition_point(|other| *other <= key);
        self.keys_from(start).skip(skipped)
    }

    /// All keys in order.
    pub fn iter(&self) -> impl Iterator<Item = Key> {
        self.keys_from(0)
    }

    fn keys_from(&self, start: usize) -> impl Iterator<Item = Key> {
        let blocks = self
            .blocks
            .range(start..)
            .flat_map(|block| block.keys.iter());
        blocks.chain(&self.last).copied()
    }

    /// Removes all keys. Little memory is retained.
    pub fn clear(&mut self) {
        self.blocks = VecDeque::new();
        self.last.clear();
        self.last.shrink_to(RETAINED_KEYS);
    }

    /// Bytes on the heap. Memory shared with clones is counted in each of them.
    pub fn heap_bytes(&self) -> usize {
        const SHARED: usize = size_of::<VecDeque<Key>>() + 2 * size_of::<usize>();
        let keys: usize = self.blocks.iter().map(|block| block.keys.capacity()).sum();
        (keys + self.last.capacity()) * size_of::<Key>()
            + self.blocks.capacity() * size_of::<Block>()
            + self.blocks.len() * SHARED
    }

    /// The number of the block that has a key, or would have it; that of `last` is the number of blocks.
    fn index_of(&self, key: Key) -> usize {
        match self.blocks.back() {
            Some(block) if key <= block.end => self.blocks.partition_point(|block| block.end < key),
            _ => self.blocks.len(),
        }
    }

    fn block(&self, index: usize) -> &VecDeque<Key> {
        self.blocks
            .get(index)
            .map_or(&self.last, |block| &*block.keys)
    }

    /// A block of this lane alone.
    fn block_mut(&mut self, index: usize) -> &mut VecDeque<Key> {
        self.blocks
            .get_mut(index)
            .map_or(&mut self.last, |block| Arc::make_mut(&mut block.keys))
    }
}

impl FromIterator<Key> for Keys {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let mut all = Self::default();
        keys.into_iter().for_each(|key| all.insert(key));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use penstock_jobspec::job_id::JobId;
    use proptest::prelude::*;

    use super::{BLOCK_KEYS, Keys};
    use crate::ids::JobHandle;
    use crate::queue::Key;

    fn key(id: u64) -> Key {
        Key::new(1, JobId::new(id), JobHandle::new(0))
    }

    #[test]
    fn a_clone_shares_the_blocks_that_do_not_change() {
        let ids = 0..10 * BLOCK_KEYS as u64 + 7;
        let mut keys: Keys = ids.clone().map(key).collect();
        let clone = keys.clone();
        keys.remove_first();
        keys.insert(key(1 << 40));
        keys.remove(key(3 * BLOCK_KEYS as u64));
        let shared = keys.blocks.iter().zip(&clone.blocks);
        let shared = shared.filter(|(one, other)| Arc::ptr_eq(&one.keys, &other.keys));
        // All but those of the two removed keys.
        assert_eq!(shared.count(), 8);
        assert!(clone.iter().eq(ids.map(key)));
        assert_eq!(keys.iter().count(), clone.iter().count() - 1);
        assert_eq!(keys.first(), Some(key(1)));
    }

    #[test]
    fn removed_keys_take_no_memory() {
        let mut keys = Keys::default();
        for id in 0..100_000 {
            keys.insert(key(id));
            if id >= 100 {
                keys.remove_first();
            }
        }
        assert_eq!(keys.iter().count(), 100);
        assert!(keys.heap_bytes() <= 3 * BLOCK_KEYS * size_of::<Key>());
        for id in 100_000..200_000 {
            keys.insert(key(id));
        }
        // Every hundredth one stays.
        for id in (99_900..200_000).filter(|id| id % 100 != 0) {
            assert!(keys.remove(key(id)));
        }
        assert_eq!(keys.iter().count(), 1001);
        assert!(keys.heap_bytes() <= 8 * BLOCK_KEYS * size_of::<Key>());
    }

    #[test]
    fn keys_of_a_new_priority_take_little_more_memory_than_others() {
        let ids = 0..100_000;
        let mut keys: Keys = ids.clone().map(key).collect();
        for id in ids.clone() {
            keys.remove(key(id));
            keys.insert(Key::new(2, JobId::new(id), JobHandle::new(0)));
        }
        assert_eq!(keys.iter().count(), 100_000);
        assert!(keys.heap_bytes() <= 100_000 * size_of::<Key>() * 9 / 4);
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Keys at the end.
        Append(u16),
        /// Keys from a position, with a distance.
        Insert(u16, u16, u16),
        Remove(u16, u16, u16),
        RemoveFirst(u16),
        Clone,
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = (0_u16..9000, 1_u16..9, 1_u16..3000);
        prop_oneof![
            (1_u16..3000).prop_map(Step::Append),
            range
                .clone()
                .prop_map(|(start, by, count)| Step::Insert(start, by, count)),
            range.prop_map(|(start, by, count)| Step::Remove(start, by, count)),
            (1_u16..3000).prop_map(Step::RemoveFirst),
            Just(Step::Clone),
        ]
    }

    fn range(start: u16, by: u16, count: u16) -> impl Iterator<Item = Key> {
        (0..u64::from(count)).map(move |n| key(u64::from(start) + n * u64::from(by)))
    }

    proptest! {
        #[test]
        fn behave_like_an_ordered_set(
            steps in proptest::collection::vec(step(), 1..20),
            after in 0_u64..30_000,
        ) {
            let (mut keys, mut model) = (Keys::default(), BTreeSet::new());
            let mut clone: Option<(Keys, BTreeSet<Key>)> = None;
            for step in steps {
                match step {
                    Step::Append(count) => {
                        let end = model.last().map_or(0, |last: &Key| last.id().get() + 1);
                        for id in end..end + u64::from(count) {
                            prop_assert_eq!(keys.is_behind(key(id)), !model.is_empty());
                            keys.insert(key(id));
                            model.insert(key(id));
                        }
                    }
                    Step::Insert(start, by, count) => range(start, by, count).for_each(|key| {
                        keys.insert(key);
                        model.insert(key);
                    }),
                    Step::Remove(start, by, count) => {
                        for key in range(start, by, count) {
                            prop_assert_eq!(keys.remove(key), model.remove(&key));
                        }
                    }
                    Step::RemoveFirst(count) => {
                        for _ in 0..count {
                            prop_assert_eq!(keys.remove_first(), model.pop_first());
                        }
                    }
                    Step::Clone => clone = Some((keys.clone(), model.clone())),
                }
                prop_assert_eq!(keys.first(), model.first().copied());
                prop_assert!(keys.iter().eq(model.iter().copied()));
                prop_assert!(keys.blocks.iter().all(|block| !block.keys.is_empty()));
                prop_assert!(keys.blocks.is_empty() || !keys.last.is_empty());
                prop_assert!(!model.is_empty() || keys.heap_bytes() <= 2 * BLOCK_KEYS * size_of::<Key>());
            }
            let later = model.iter().copied().filter(|other| *other > key(after));
            prop_assert!(keys.after(key(after)).eq(later));
            if let Some((keys, model)) = clone {
                prop_assert!(keys.iter().eq(model));
            }
            keys.clear();
            prop_assert_eq!((keys.iter().count(), keys.first()), (0, None));
        }
    }
}
