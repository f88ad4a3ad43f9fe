//! Lanes by time limit: which job comes first among those with a limit up to a bound.

use super::key::Key;

/// Lanes in a block at the most; a full block is halved.
const WIDE: usize = 64;

/// One lane: its time limit, and the first of its jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rung {
    pub head: Key,
    pub limit: f64,
    pub lane: u32,
}

#[derive(Clone, Debug)]
struct Block {
    least: Key,
    rungs: Vec<Rung>,
}

impl Block {
    fn repair(&mut self) {
        let heads = self.rungs.iter().map(|rung| rung.head);
        self.least = heads.min().unwrap_or(Key::NONE);
    }

    fn reaches(&self, limit: f64) -> bool {
        self.rungs.last().is_some_and(|rung| rung.limit >= limit)
    }
}

/// The first job of some blocks.
fn first_of(blocks: &[Block]) -> Key {
    let least = blocks.iter().map(|block| block.least);
    least.min().unwrap_or(Key::NONE)
}

/// Whether the limits of all lanes of some blocks are within a bound.
fn is_within(blocks: &[Block], within: impl Fn(f64) -> bool) -> bool {
    let least = blocks.first().and_then(|it| it.rungs.first());
    let most = blocks.last().and_then(|it| it.rungs.last());
    [least, most]
        .into_iter()
        .flatten()
        .all(|rung| within(rung.limit))
}

/// Lanes by ascending limit, in blocks that know their first job. Only where there is one block
/// may it be empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ladder {
    blocks: Vec<Block>,
    /// The first job of each 64 blocks, where there are more than that.
    tops: Vec<Key>,
}

impl Ladder {
    /// The block that has the limit or is to have it, and the place in it.
    fn locate(&self, limit: f64) -> (usize, Result<usize, usize>) {
        // Many shapes come with one limit.
        if let Some(first) = self.blocks.first().and_then(|it| it.rungs.first())
            && first.limit.total_cmp(&limit).is_eq()
        {
            return (0, Ok(0));
        }
        let block = self.blocks.partition_point(|it| !it.reaches(limit));
        let block = block.min(self.blocks.len().saturating_sub(1));
        let place = match self.blocks.get(block) {
            Some(it) => it
                .rungs
                .binary_search_by(|rung| rung.limit.total_cmp(&limit)),
            None => Err(0),
        };
        (block, place)
    }

    /// The lane with just this limit.
    pub fn find(&self, limit: f64) -> Option<u32> {
        let (block, place) = self.locate(limit);
        place.ok().map(|place| self.blocks[block].rungs[place].lane)
    }

    /// Puts in a lane with a limit that no other has.
    pub fn insert(&mut self, rung: Rung) {
        let (block, place) = self.locate(rung.limit);
        let Err(place) = place else {
            return;
        };
        if self.blocks.is_empty() {
            self.blocks.push(Block {
                least: rung.head,
                rungs: vec![rung],
            });
            return;
        }
        let full = &mut self.blocks[block];
        full.rungs.insert(place, rung);
        full.least = full.least.min(rung.head);
        if full.rungs.len() > WIDE {
            let mut upper = Block {
                least: Key::NONE,
                rungs: full.rungs.split_off(WIDE / 2),
            };
            full.repair();
            upper.repair();
            self.blocks.insert(block + 1, upper);
            self.raise();
        } else {
            self.mend(block);
        }
    }

    /// The blocks are others: finds the first job of each 64 of them.
    fn raise(&mut self) {
        self.tops.clear();
        if self.blocks.len() > WIDE {
            self.tops.extend(self.blocks.chunks(WIDE).map(first_of));
        }
    }

    /// A block has another first job.
    fn mend(&mut self, block: usize) {
        if let Some(top) = self.tops.get_mut(block / WIDE) {
            let fellows = &self.blocks[block / WIDE * WIDE..];
            *top = first_of(&fellows[..WIDE.min(fellows.len())]);
        }
    }

    pub fn remove(&mut self, limit: f64) {
        if let (block, Ok(place)) = self.locate(limit) {
            let head = self.blocks[block].rungs.remove(place).head;
            if self.blocks[block].rungs.is_empty() && self.blocks.len() > 1 {
                self.blocks.remove(block);
                self.raise();
            } else if self.blocks[block].least == head {
                self.blocks[block].repair();
                self.mend(block);
            }
        }
    }

    /// Sets the first job of the lane with this limit.
    pub fn set(&mut self, limit: f64, head: Key) {
        if let (at, Ok(place)) = self.locate(limit) {
            let block = &mut self.blocks[at];
            let least = block.least;
            let before = std::mem::replace(&mut block.rungs[place].head, head);
            if head <= least || block.rungs.len() == 1 {
                block.least = head;
            } else if before == least {
                block.repair();
            }
            if block.least != least {
                self.mend(at);
            }
        }
    }

    /// The first job of all.
    pub fn first(&self) -> Key {
        if self.tops.is_empty() {
            return first_of(&self.blocks);
        }
        self.tops.iter().copied().min().unwrap_or(Key::NONE)
    }

    /// The first job with a limit that is within a bound. Whatever is within it, so are all
    /// lesser limits, but for those of no time at all, which may be planned as longer ones.
    pub fn first_within(&self, within: impl Fn(f64) -> bool) -> Key {
        let mut first = Key::NONE;
        for (number, blocks) in self.blocks.chunks(WIDE).enumerate() {
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
                let met = block.rungs.iter().filter(|rung| within(rung.limit));
                first = met.map(|rung| rung.head).fold(first, Key::min);
                if !block.rungs.last().is_some_and(|most| within(most.limit)) {
                    return first;
                }
            }
        }
        first
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let rungs: usize = self.blocks.iter().map(|it| it.rungs.capacity()).sum();
        self.blocks.capacity() * size_of::<Block>()
            + self.tops.capacity() * size_of::<Key>()
            + rungs * size_of::<Rung>()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rung> {
        self.blocks.iter().flat_map(|block| &block.rungs)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Ladder, Rung};
    use crate::queue::Key;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn it_is_a_map_by_limit(
            lanes in 1_u32..12_000,
            steps in proptest::collection::vec((0_u32..12_000, 0_u64..1000, 0_u32..4), 1..300),
            bounds in proptest::collection::vec(0_u32..12_500, 1..10),
        ) {
            let mut ladder = Ladder::default();
            let mut plain = BTreeMap::new();
            let key = |id: u64| Key::new(1, id, 0);
            // Many lanes first, in another order than that of their limits.
            let many = (0..lanes).map(|it| (it * 7919 % lanes, u64::from(it % 977), 0));
            for (limit, id, what) in many.chain(steps) {
                let time = f64::from(limit);
                let known = plain.contains_key(&limit);
                prop_assert_eq!(ladder.find(time).is_some(), known);
                match what {
                    0 if !known => {
                        let head = key(id);
                        ladder.insert(Rung { head, limit: time, lane: limit });
                        plain.insert(limit, head);
                    }
                    1 if known => {
                        ladder.remove(time);
                        plain.remove(&limit);
                    }
                    _ if known => {
                        let head = if what == 2 { Key::NONE } else { key(id) };
                        ladder.set(time, head);
                        plain.insert(limit, head);
                    }
                    _ => {}
                }
            }
            let first = plain.values().copied().min().unwrap_or(Key::NONE);
            prop_assert_eq!(ladder.first(), first);
            for bound in bounds {
                let within = plain.range(..=bound).map(|it| *it.1).min();
                let found = ladder.first_within(|limit| limit <= f64::from(bound));
                prop_assert_eq!(found, within.unwrap_or(Key::NONE));
            }
            prop_assert!(ladder.iter().map(|it| it.lane).eq(plain.keys().copied()));
        }
    }
}
