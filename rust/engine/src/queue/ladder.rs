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

/// Lanes by ascending limit, in blocks that know their first job. No block is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ladder {
    blocks: Vec<Block>,
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
        }
    }

    pub fn remove(&mut self, limit: f64) {
        if let (block, Ok(place)) = self.locate(limit) {
            let head = self.blocks[block].rungs.remove(place).head;
            if self.blocks[block].rungs.is_empty() && self.blocks.len() > 1 {
                self.blocks.remove(block);
            } else if self.blocks[block].least == head {
                self.blocks[block].repair();
            }
        }
    }

    /// Sets the first job of the lane with this limit.
    pub fn set(&mut self, limit: f64, head: Key) {
        if let (block, Ok(place)) = self.locate(limit) {
            let block = &mut self.blocks[block];
            let before = block.rungs[place].head;
            block.rungs[place].head = head;
            if head <= block.least || block.rungs.len() == 1 {
                block.least = head;
            } else if before == block.least {
                block.repair();
            }
        }
    }

    /// The first job of all.
    pub fn first(&self) -> Key {
        let least = self.blocks.iter().map(|block| block.least);
        least.min().unwrap_or(Key::NONE)
    }

    /// The first job with a limit that is within a bound. Whatever is within it, so are all
    /// lesser limits, but for those of no time at all, which may be planned as longer ones.
    pub fn first_within(&self, within: impl Fn(f64) -> bool) -> Key {
        let mut first = Key::NONE;
        for block in &self.blocks {
            let [least, .., most] = block.rungs.as_slice() else {
                let met = block.rungs.iter().filter(|rung| within(rung.limit));
                first = met.map(|rung| rung.head).fold(first, Key::min);
                continue;
            };
            match (within(least.limit), within(most.limit)) {
                (true, true) => first = first.min(block.least),
                (_, more) => {
                    let met = block.rungs.iter().filter(|rung| within(rung.limit));
                    first = met.map(|rung| rung.head).fold(first, Key::min);
                    if !more {
                        return first;
                    }
                }
            }
        }
        first
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rung> {
        self.blocks.iter().flat_map(|block| &block.rungs)
    }
}
