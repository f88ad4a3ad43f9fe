//! The lanes of a class by time limit: finds the first job with a limit within a bound.

use super::key::Key;
use crate::ids::LaneId;

/// Maximum number of lanes in a block; a full block is split in two.
const MAX_LANES: usize = 64;

/// A lane with its time limit and its first job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneHead {
    pub head: Key,
    pub limit: f64,
    pub lane: LaneId,
}

#[derive(Clone, Debug)]
struct Block {
    least: Key,
    lanes: Vec<LaneHead>,
}

impl Block {
    /// Recomputes the first job.
    fn update_least(&mut self) {
        let heads = self.lanes.iter().map(|lane| lane.head);
        self.least = heads.min().unwrap_or(Key::NONE);
    }

    /// Whether it has a limit of at least this.
    fn reaches(&self, limit: f64) -> bool {
        self.lanes.last().is_some_and(|lane| lane.limit >= limit)
    }
}

/// The first job of some blocks.
fn first_of(blocks: &[Block]) -> Key {
    let least = blocks.iter().map(|block| block.least);
    least.min().unwrap_or(Key::NONE)
}

/// Whether the limits of all lanes of some blocks are within a bound.
fn is_within(blocks: &[Block], within: impl Fn(f64) -> bool) -> bool {
    let least = blocks.first().and_then(|block| block.lanes.first());
    let most = blocks.last().and_then(|block| block.lanes.last());
    [least, most]
        .into_iter()
        .flatten()
        .all(|lane| within(lane.limit))
}

/// Lanes by ascending limit, in blocks that record their first job. A block is empty only if it is
/// the only one.
#[derive(Clone, Debug, Default)]
pub(crate) struct LanesByLimit {
    blocks: Vec<Block>,
    /// The first job of each 64 blocks, if there are more than 64.
    tops: Vec<Key>,
}

/// The block of a limit, and its index in the block; an error is the index at which it would be
/// inserted.
struct LimitLocation {
    block: usize,
    index: Result<usize, usize>,
}

impl LanesByLimit {
    /// The position of a limit.
    fn locate(&self, limit: f64) -> LimitLocation {
        // Fast path: many classes have a single limit.
        if let Some(first) = self.blocks.first().and_then(|block| block.lanes.first())
            && first.limit.total_cmp(&limit).is_eq()
        {
            return LimitLocation {
                block: 0,
                index: Ok(0),
            };
        }
        let block = self.blocks.partition_point(|block| !block.reaches(limit));
        let block = block.min(self.blocks.len().saturating_sub(1));
        let index = match self.blocks.get(block) {
            Some(block) => block
                .lanes
                .binary_search_by(|lane| lane.limit.total_cmp(&limit)),
            None => Err(0),
        };
        LimitLocation { block, index }
    }

    /// The lane with exactly this limit.
    pub fn find(&self, limit: f64) -> Option<LaneId> {
        let LimitLocation { block, index } = self.locate(limit);
        index.ok().map(|index| self.blocks[block].lanes[index].lane)
    }

    /// The first lane with a greater limit than this; without one, the first of all.
    pub fn next_after(&self, limit: Option<f64>) -> Option<LaneHead> {
        let Some(limit) = limit else {
            return self.blocks.first()?.lanes.first().copied();
        };
        let is_greater = |lane: &LaneHead| lane.limit.total_cmp(&limit).is_gt();
        let is_before = |block: &Block| !block.lanes.last().is_some_and(is_greater);
        let block = self.blocks.get(self.blocks.partition_point(is_before))?;
        let index = block.lanes.partition_point(|lane| !is_greater(lane));
        block.lanes.get(index).copied()
    }

    /// Adds a lane with a new limit.
    pub fn insert(&mut self, lane: LaneHead) {
        let LimitLocation { block, index } = self.locate(lane.limit);
        let Err(index) = index else {
            return;
        };
        if self.blocks.is_empty() {
            self.blocks.push(Block {
                least: lane.head,
                lanes: vec![lane],
            });
            return;
        }
        let full = &mut self.blocks[block];
        full.lanes.insert(index, lane);
        full.least = full.least.min(lane.head);
        if full.lanes.len() > MAX_LANES {
            let mut upper = Block {
                least: Key::NONE,
                lanes: full.lanes.split_off(MAX_LANES / 2),
            };
            full.update_least();
            upper.update_least();
            self.blocks.insert(block + 1, upper);
            self.update_tops();
        } else {
            self.update_top(block);
        }
    }

    /// Recomputes the first job of each 64 blocks, after blocks were added or removed.
    fn update_tops(&mut self) {
        self.tops.clear();
        if self.blocks.len() > MAX_LANES {
            self.tops
                .extend(self.blocks.chunks(MAX_LANES).map(first_of));
        }
    }

    /// Updates the first job of the 64 blocks around a block.
    fn update_top(&mut self, block: usize) {
        if let Some(top) = self.tops.get_mut(block / MAX_LANES) {
            let siblings = &self.blocks[block / MAX_LANES * MAX_LANES..];
            *top = first_of(&siblings[..MAX_LANES.min(siblings.len())]);
        }
    }

    /// Removes the lane with this limit.
    pub fn remove(&mut self, limit: f64) {
        if let LimitLocation {
            block,
            index: Ok(index),
        } = self.locate(limit)
        {
            let head = self.blocks[block].lanes.remove(index).head;
            if self.blocks[block].lanes.is_empty() && self.blocks.len() > 1 {
                self.blocks.remove(block);
                self.update_tops();
            } else if self.blocks[block].least == head {
                self.blocks[block].update_least();
                self.update_top(block);
            }
        }
    }

    /// Sets the first job of the lane with this limit.
    pub fn set(&mut self, limit: f64, head: Key) {
        if let LimitLocation {
            block: at,
            index: Ok(index),
        } = self.locate(limit)
        {
            let block = &mut self.blocks[at];
            let least = block.least;
            let before = std::mem::replace(&mut block.lanes[index].head, head);
            if head <= least || block.lanes.len() == 1 {
                block.least = head;
            } else if before == least {
                block.update_least();
            }
            if block.least != least {
                self.update_top(at);
            }
        }
    }

    /// The first job of all lanes.
    pub fn first(&self) -> Key {
        if self.tops.is_empty() {
            return first_of(&self.blocks);
        }
        self.tops.iter().copied().min().unwrap_or(Key::NONE)
    }

    /// The first job with a limit within a bound. `within` must be monotone in the limit, except at
    /// zero, which may be planned as a longer limit.
    pub fn first_within(&self, within: impl Fn(f64) -> bool) -> Key {
        let mut first = Key::NONE;
        for (number, blocks) in self.blocks.chunks(MAX_LANES).enumerate() {
            if let Some(top) = self.tops.get(number)
                && is_within(blocks, &within)
            {
                first = first.min(*top);
                continue;
            }
            for block in blocks {
                if is_within(std::slice::from_ref(block), &within) {
                    first = first.min(block.least);
                    continue;
                }
                let met = block.lanes.iter().filter(|lane| within(lane.limit));
                first = met.map(|lane| lane.head).fold(first, Key::min);
                if !block.lanes.last().is_some_and(|most| within(most.limit)) {
                    return first;
                }
            }
        }
        first
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let lanes: usize = self.blocks.iter().map(|block| block.lanes.capacity()).sum();
        self.blocks.capacity() * size_of::<Block>()
            + self.tops.capacity() * size_of::<Key>()
            + lanes * size_of::<LaneHead>()
    }

    pub fn iter(&self) -> impl Iterator<Item = &LaneHead> {
        self.blocks.iter().flat_map(|block| &block.lanes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use penstock_jobspec::job_id::JobId;
    use proptest::prelude::*;

    use super::{LaneHead, LanesByLimit};
    use crate::ids::{JobHandle, LaneId};
    use crate::queue::Key;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn behaves_like_a_map_by_limit(
            lanes in 1_u32..12_000,
            steps in proptest::collection::vec((0_u32..12_000, 0_u64..1000, 0_u32..4), 1..300),
            bounds in proptest::collection::vec(0_u32..12_500, 1..10),
        ) {
            let mut lanes_by_limit = LanesByLimit::default();
            let mut plain = BTreeMap::new();
            let key = |id: u64| Key::new(1, JobId::new(id), JobHandle::new(0));
            // Many lanes first, not in the order of their limits.
            let many = (0..lanes).map(|number| (number * 7919 % lanes, u64::from(number % 977), 0));
            for (limit, id, what) in many.chain(steps) {
                let time = f64::from(limit);
                let known = plain.contains_key(&limit);
                prop_assert_eq!(lanes_by_limit.find(time).is_some(), known);
                match what {
                    0 if !known => {
                        let head = key(id);
                        lanes_by_limit.insert(LaneHead { head, limit: time, lane: LaneId::new(limit) });
                        plain.insert(limit, head);
                    }
                    1 if known => {
                        lanes_by_limit.remove(time);
                        plain.remove(&limit);
                    }
                    _ if known => {
                        let head = if what == 2 { Key::NONE } else { key(id) };
                        lanes_by_limit.set(time, head);
                        plain.insert(limit, head);
                    }
                    _ => {}
                }
            }
            let first = plain.values().copied().min().unwrap_or(Key::NONE);
            prop_assert_eq!(lanes_by_limit.first(), first);
            for bound in bounds {
                let within = plain.range(..=bound).map(|entry| *entry.1).min();
                let found = lanes_by_limit.first_within(|limit| limit <= f64::from(bound));
                prop_assert_eq!(found, within.unwrap_or(Key::NONE));
            }
            prop_assert!(lanes_by_limit.iter().map(|lane| lane.lane.get()).eq(plain.keys().copied()));
        }
    }
}
