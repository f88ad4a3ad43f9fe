//! Jobs that differ in nothing but id and priority.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::key::Key;
use crate::job::{Jobs, State};

/// A lane: keys come in mostly in order, and leave mostly at the head.
///
/// A key stays where it is when its job leaves in another way: it is then *stale*, and skipped
/// when it gets to the head.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The class it belongs to.
    pub class: u32,
    pub limit: f64,
    /// Jobs in it, held ones too.
    pub jobs: u32,
    /// The first job, as the class knows it.
    pub first: Key,
    /// Ascending.
    sorted: VecDeque<Key>,
    /// Those that came out of order.
    others: BinaryHeap<Reverse<Key>>,
}

/// Whether the key's job waits in this lane, with the rank that the key has.
fn is_live(jobs: &Jobs, lane: u32, key: Key) -> bool {
    let known = jobs.at(key.handle());
    known.state == State::Waits(lane) && known.id == key.id() && known.rank == key.rank()
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            class: 0,
            limit: f64::INFINITY,
            jobs: 0,
            first: Key::NONE,
            sorted: VecDeque::new(),
            others: BinaryHeap::new(),
        }
    }
}

impl Clone for Lane {
    /// A copy without what is stale in an empty lane: of those there may be many.
    fn clone(&self) -> Self {
        let empty = self.jobs == 0;
        Self {
            sorted: if empty {
                VecDeque::new()
            } else {
                self.sorted.clone()
            },
            others: if empty {
                BinaryHeap::new()
            } else {
                self.others.clone()
            },
            ..*self
        }
    }
}

impl Lane {
    /// An empty lane; the memory is kept.
    pub fn reset(&mut self, class: u32, limit: f64) {
        self.class = class;
        self.limit = limit;
        self.jobs = 0;
        self.first = Key::NONE;
        self.sorted.clear();
        self.others.clear();
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        (self.sorted.capacity() + self.others.capacity()) * size_of::<Key>()
    }

    /// Keys, stale ones too.
    pub fn keys(&self) -> usize {
        self.sorted.len() + self.others.len()
    }

    /// Whether a key comes behind the first job, and the lane needs no tidying.
    pub fn is_behind(&self, key: Key) -> bool {
        self.first < key && self.keys() <= self.most_keys()
    }

    /// Keys that it may have before the stale ones are thrown away: never do they make up most.
    pub fn most_keys(&self) -> usize {
        2 * self.jobs as usize + 64
    }

    pub fn push(&mut self, key: Key) {
        match self.sorted.back() {
            Some(last) if *last > key => self.others.push(Reverse(key)),
            _ => self.sorted.push_back(key),
        }
    }

    /// The first job, with stale keys before it thrown away.
    pub fn head(&mut self, jobs: &Jobs, lane: u32) -> Key {
        loop {
            let sorted = self.sorted.front().copied().unwrap_or(Key::NONE);
            let other = self.others.peek().map_or(Key::NONE, |it| it.0);
            let key = sorted.min(other);
            if key.is_none() || is_live(jobs, lane, key) {
                return key;
            }
            if sorted <= other {
                self.sorted.pop_front();
            } else {
                self.others.pop();
            }
        }
    }

    /// Throws stale keys away, and sorts the rest.
    pub fn tidy(&mut self, jobs: &Jobs, lane: u32) {
        let mut keys = Vec::from(std::mem::take(&mut self.sorted));
        keys.extend(self.others.drain().map(|it| it.0));
        keys.retain(|key| is_live(jobs, lane, *key));
        keys.sort_unstable();
        keys.dedup();
        self.sorted = keys.into();
    }

    /// The first job after a key.
    pub fn after(&mut self, jobs: &Jobs, lane: u32, key: Key) -> Key {
        if !self.others.is_empty() {
            self.tidy(jobs, lane);
        }
        let start = self.sorted.partition_point(|it| *it <= key);
        let mut later = self.sorted.range(start..);
        let found = later.find(|it| is_live(jobs, lane, **it));
        found.copied().unwrap_or(Key::NONE)
    }

    /// The jobs in order, when [`tidy`](Self::tidy) has been called.
    pub fn tidied(&self) -> impl Iterator<Item = Key> + '_ {
        self.sorted.iter().copied()
    }
}
