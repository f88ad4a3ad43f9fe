//! An index over leaves with a number each: finds the first leaf from one on whose number lies in a
//! range without visiting the others, and counts numbers.
//!
//! It is a tree: each inner entry holds which numbers are below it, as bits of a word.

mod scale;

use std::ops::ControlFlow;

use self::scale::{Scale, Siblings};

/// Children per entry.
const BLOCK_CHILDREN: usize = 16;
const BLOCK_CHILDREN_U32: u32 = 16;

/// A range of numbers, both ends included, prepared for searches in one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    low: u32,
    high: u32,
    mask: u64,
}

/// Leaves with their numbers. Level 0 has an entry for every 16 leaves, each further level one for
/// every 16 entries of the level below; the last level has a single entry.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    leaves: Vec<u32>,
    len: u32,
    max: u32,
    scale: Scale,
    levels: Vec<Vec<u64>>,
    /// The number of leaves with each number.
    counts: Vec<u32>,
    /// The sum of all numbers.
    sum: u64,
}

#[inline]
fn block<T>(items: &[T], number: usize) -> &[T; BLOCK_CHILDREN] {
    items[number * BLOCK_CHILDREN..]
        .first_chunk()
        .expect("levels are padded to whole blocks")
}

/// The subset of an entry's `bits` that another entry of its block has too.
#[inline]
fn others(siblings: &[u64; BLOCK_CHILDREN], at: usize, bits: u64) -> u64 {
    if bits.is_power_of_two() {
        let shift = bits.trailing_zeros();
        let having: u64 = siblings.iter().map(|word| word >> shift & 1).sum();
        return if having > 1 { bits } else { 0 };
    }
    let siblings = siblings.iter().enumerate();
    let all = siblings.fold(0, |all, (index, entry)| {
        all | if index == at % BLOCK_CHILDREN {
            0
        } else {
            *entry
        }
    });
    all & bits
}

impl Tree {
    /// A tree of leaves with these numbers, none above `max`.
    pub fn new(numbers: impl Iterator<Item = u32>, max: u32) -> Self {
        let mut leaves: Vec<u32> = numbers.collect();
        let len = u32::try_from(leaves.len()).unwrap_or(u32::MAX);
        let mut counts = vec![0; max as usize + 1];
        for number in &leaves {
            counts[*number as usize] += 1;
        }
        let sum = leaves.iter().map(|number| u64::from(*number)).sum();
        leaves.resize(
            leaves
                .len()
                .next_multiple_of(BLOCK_CHILDREN)
                .max(BLOCK_CHILDREN),
            0,
        );
        let scale = Scale::new(max);
        let blocks = leaves.chunks_exact(BLOCK_CHILDREN);
        let mut level: Vec<u64> = blocks
            .map(|block| {
                block
                    .iter()
                    .fold(0, |all, number| all | scale.mask(*number))
            })
            .collect();
        let mut levels = Vec::new();
        while level.len() > 1 {
            level.resize(level.len().next_multiple_of(BLOCK_CHILDREN), 0);
            let blocks = level.chunks_exact(BLOCK_CHILDREN);
            let next = blocks
                .map(|block| block.iter().fold(0, |all, mask| all | mask))
                .collect();
            levels.push(std::mem::replace(&mut level, next));
        }
        levels.push(level);
        Self {
            leaves,
            len,
            max,
            scale,
            levels,
            counts,
            sum,
        }
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    /// The largest number that a leaf can have.
    pub fn max(&self) -> u32 {
        self.max
    }

    pub fn get(&self, leaf: u32) -> u32 {
        self.leaves[leaf as usize]
    }

    /// The sum of all numbers.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The block of a leaf.
    pub fn block_of(leaf: u32) -> u32 {
        leaf / BLOCK_CHILDREN_U32
    }

    /// Changes the number of a leaf without its ancestors, until its block is
    /// [repaired](Self::repair). Returns the former number.
    #[inline]
    pub fn write(&mut self, leaf: u32, number: u32) -> u32 {
        let before = std::mem::replace(&mut self.leaves[leaf as usize], number);
        if before != number {
            self.counts[before as usize] -= 1;
            self.counts[number as usize] += 1;
            self.sum = self.sum - u64::from(before) + u64::from(number);
        }
        before
    }

    /// Updates the ancestors of a block after [`write`](Self::write).
    pub fn repair(&mut self, number: u32) {
        let at = number as usize;
        let scale = &self.scale;
        let leaves = block(&self.leaves, at).iter();
        let mask = leaves.fold(0, |all, number| all | scale.mask(*number));
        self.climb(at, mask);
    }

    /// Changes the number of a leaf.
    #[inline]
    pub fn set(&mut self, leaf: u32, number: u32) {
        let at = leaf as usize / BLOCK_CHILDREN;
        let before = self.leaves[leaf as usize];
        if before == number {
            return;
        }
        let (removed, added) = (self.scale.mask(before), self.scale.mask(number));
        let mut mask = self.levels[0][at] | added;
        if removed != added && removed != 0 {
            let Siblings { low, high } = self.scale.siblings(before);
            // Read before the leaf is written: a processor stalls on a read that overlaps a pending
            // smaller write.
            let block = block(&self.leaves, at);
            let siblings: u32 = if low == high {
                block.iter().map(|number| u32::from(*number == low)).sum()
            } else {
                let among = |number: u32| u32::from(number >= low && number <= high);
                block.iter().map(|number| among(*number)).sum()
            };
            if siblings == 1 {
                mask &= !removed;
            }
        }
        self.write(leaf, number);
        self.climb(at, mask);
    }

    /// Sets the mask of a block, and updates its ancestors.
    #[inline]
    fn climb(&mut self, block_number: usize, mask: u64) {
        let (mut at, mut mask) = (block_number, mask);
        for level in 0..self.levels.len() {
            let before = self.levels[level][at];
            if before == mask {
                return;
            }
            let mut above = mask;
            if level + 1 < self.levels.len() {
                above |= self.levels[level + 1][at / BLOCK_CHILDREN];
                let lost = before & !mask;
                if lost != 0 {
                    // As in `set`, read before the entry is written.
                    above &=
                        !lost | others(block(&self.levels[level], at / BLOCK_CHILDREN), at, lost);
                }
            }
            self.levels[level][at] = mask;
            (at, mask) = (at / BLOCK_CHILDREN, above);
        }
    }

    /// A query for leaves with numbers from `low`, which is not 0, to `high`.
    pub fn query(&self, low: u32, high: u32) -> Query {
        let high = high.min(self.max);
        let mask = if low > high {
            0
        } else {
            self.scale.range(low.max(1), high)
        };
        Query { low, high, mask }
    }

    /// The first leaf from `start` on that meets a query.
    #[inline]
    pub fn find(&self, start: u32, query: Query) -> Option<u32> {
        let root = self.levels.last().and_then(|level| level.first());
        if start >= self.len || root.is_none_or(|root| root & query.mask == 0) {
            return None;
        }
        let (mut at, skip) = (
            start as usize / BLOCK_CHILDREN,
            start as usize % BLOCK_CHILDREN,
        );
        if start == 0 {
            at = self.descend(self.levels.len() - 1, 0, query.mask);
        }
        loop {
            // Numbers may share a bit: a block with the bit may have no leaf that meets the query.
            let skip = if at == start as usize / BLOCK_CHILDREN {
                skip
            } else {
                0
            };
            if let Some(found) = self.find_in(at, skip, query) {
                return Some(found);
            }
            at = self.next_block(at, query.mask)?;
        }
    }

    /// Calls `see` with the leaves that meet a query, in order and block by block, until it breaks.
    pub fn visit(&self, query: Query, mut see: impl FnMut(&[u32]) -> ControlFlow<()>) {
        let Some(first) = self.find(0, query) else {
            return;
        };
        let (low, span) = (query.low, query.high - query.low);
        let mut next = Some(first as usize / BLOCK_CHILDREN);
        while let Some(at) = next {
            let start = u32::try_from(at * BLOCK_CHILDREN).unwrap_or(u32::MAX);
            // No branch per leaf: which of them match is hard to predict.
            let (mut leaves, mut count) = ([0; BLOCK_CHILDREN], 0);
            for (leaf, number) in (start..).zip(block(&self.leaves, at)) {
                leaves[count % BLOCK_CHILDREN] = leaf;
                count += usize::from(number.wrapping_sub(low) <= span);
            }
            if see(&leaves[..count]).is_break() {
                return;
            }
            next = self.next_block(at, query.mask);
        }
    }

    /// The first leaf of a block, after skipping some, that meets a query.
    #[inline]
    fn find_in(&self, at: usize, skip: usize, query: Query) -> Option<u32> {
        let (low, span) = (query.low, query.high - query.low);
        let leaves = &block(&self.leaves, at)[skip..];
        let found = leaves
            .iter()
            .position(|number| number.wrapping_sub(low) <= span)?;
        u32::try_from(at * BLOCK_CHILDREN + skip + found).ok()
    }

    /// The first block of leaves after `after` with a bit of the mask.
    #[inline]
    fn next_block(&self, after: usize, mask: u64) -> Option<usize> {
        let (mut level, mut at) = (0, after);
        // Climb while no entry to the right within the block has a bit of the mask.
        loop {
            let entries = self.levels.get(level).filter(|level| level.len() > 1)?;
            let right = &block(entries, at / BLOCK_CHILDREN)[at % BLOCK_CHILDREN + 1..];
            if let Some(found) = right.iter().position(|entry| entry & mask != 0) {
                at += found + 1;
                break;
            }
            at /= BLOCK_CHILDREN;
            level += 1;
        }
        Some(self.descend(level, at, mask))
    }

    /// The first block of leaves below an entry with a bit of the mask.
    #[inline]
    fn descend(&self, level: usize, entry: usize, mask: u64) -> usize {
        let mut at = entry;
        for level in self.levels[..level].iter().rev() {
            let mut children = block(level, at).iter();
            let found = children.position(|entry| entry & mask != 0);
            at = at * BLOCK_CHILDREN + found.unwrap_or_default();
        }
        at
    }

    /// The largest number from `low` to `from` that a leaf has.
    pub fn last_count(&self, from: u32, low: u32) -> Option<u32> {
        let from = from.min(self.max);
        (low..=from)
            .rev()
            .find(|number| self.counts[*number as usize] > 0)
    }

    /// The smallest number from `from` on that a leaf has.
    pub fn first_count(&self, from: u32) -> Option<u32> {
        (from..=self.max).find(|number| self.counts[*number as usize] > 0)
    }

    /// The number of leaves with at least `low`.
    pub fn at_least(&self, low: u32) -> u64 {
        let Some(counts) = self.counts.get(low as usize..) else {
            return 0;
        };
        if counts.len() > self.leaves.len() {
            return self
                .leaves
                .iter()
                .map(|number| u64::from(*number >= low))
                .sum();
        }
        counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// The sum of the leaves' numbers each divided by `divisor`, which is not 0, and rounded down.
    pub fn quotients(&self, divisor: u32) -> u64 {
        if self.counts.len() > self.leaves.len() {
            return self
                .leaves
                .iter()
                .map(|number| u64::from(number / divisor))
                .sum();
        }
        let chunks = self.counts.chunks(divisor as usize).zip(0_u64..);
        chunks
            .map(|(counts, quotient)| {
                quotient * counts.iter().map(|count| u64::from(*count)).sum::<u64>()
            })
            .sum()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let levels: usize = self.levels.iter().map(|level| level.capacity() * 8).sum();
        levels + (self.leaves.capacity() + self.counts.capacity()) * 4
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::Tree;

    proptest! {
        #[test]
        fn finds_and_counts_what_a_scan_does(
            (max, mut plain, changes) in prop_oneof![1_u32..10, Just(64), 65_u32..400, Just(5000)]
                .prop_flat_map(|max| {
                    let number = prop_oneof![0..=max, Just(0), Just(max)];
                    let numbers = proptest::collection::vec(number, 1..600);
                    let changes = proptest::collection::vec((0_usize..600, 0..=max), 0..60);
                    (Just(max), numbers, changes)
                }),
            low in 1_u32..500,
            span in 0_u32..200,
            starts in proptest::collection::vec(0_u32..700, 1..10),
        ) {
            let mut tree = Tree::new(plain.iter().copied(), max);
            for (step, (leaf, number)) in changes.into_iter().enumerate() {
                let leaf = leaf % plain.len();
                plain[leaf] = number;
                let number_of_leaf = u32::try_from(leaf).unwrap();
                if step % 3 == 0 {
                    tree.write(number_of_leaf, number);
                    tree.repair(Tree::block_of(number_of_leaf));
                } else {
                    tree.set(number_of_leaf, number);
                }
                prop_assert_eq!(tree.get(u32::try_from(leaf).unwrap()), number);
            }
            for (low, high) in [(low, low + span), (low % (max + 1), u32::MAX), (1, 1), (max, max)] {
                let low = low.max(1);
                let query = tree.query(low, high);
                let matches = |number: u32| (low..=high).contains(&number);
                for start in starts.iter().copied().chain(0..3) {
                    let scan = (start as usize..plain.len()).find(|at| matches(plain[*at]));
                    let found = tree.find(start, query).map(|at| at as usize);
                    prop_assert_eq!(found, scan, "{}-{} from {}", low, high, start);
                }
                let mut seen = Vec::new();
                tree.visit(query, |leaves| {
                    seen.extend(leaves.iter().map(|leaf| *leaf as usize));
                    if seen.len() >= 100 {
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                });
                let all = (0..plain.len()).filter(|at| matches(plain[*at]));
                let all: Vec<_> = all.take(if seen.len() < 100 { 600 } else { seen.len() }).collect();
                prop_assert_eq!(all, seen);
            }
            let at_least = plain.iter().filter(|number| **number >= low).count() as u64;
            prop_assert_eq!(tree.at_least(low), at_least);
            let quotients: u64 = plain.iter().map(|number| u64::from(number / low)).sum();
            prop_assert_eq!(tree.quotients(low), quotients);
            prop_assert_eq!(tree.sum(), tree.quotients(1));
            let largest = plain.iter().copied().filter(|number| *number > 0).max();
            prop_assert_eq!(tree.last_count(u32::MAX, 1), largest);
            let next = plain.iter().copied().filter(|number| *number >= low).min();
            prop_assert_eq!(tree.first_count(low), next);
            let last = plain.iter().copied().filter(|number| (1..=low).contains(number)).max();
            prop_assert_eq!(tree.last_count(low, 1), last);
        }
    }
}
