//! Lanes: pending jobs that differ only in id and priority.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::key::Key;
use super::sorted_keys::SortedKeys;
use crate::ids::{ClassId, LaneId};
use crate::job::{JobState, Jobs};

/// A lane. Keys are mostly added in order, and mostly removed at the head.
///
/// A key stays when its job leaves in another way: it is then *stale*, and skipped when it reaches
/// the head.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The class of the lane.
    pub class: ClassId,
    pub limit: f64,
    /// The number of its jobs, held ones included.
    pub jobs: u32,
    /// The first job, as recorded in its class.
    pub first: Key,
    /// Ascending.
    sorted: SortedKeys,
    /// Keys that were added out of order.
    others: BinaryHeap<Reverse<Key>>,
}

/// The number of keys whose memory an empty lane retains.
const MIN_CAPACITY: usize = 64;

/// Whether the key's job is pending in this lane, with the key's priority.
pub(super) fn is_live(jobs: &Jobs, lane: LaneId, key: Key) -> bool {
    let known = jobs.at(key.handle());
    known.state == JobState::Pending(lane)
        && known.id == key.id()
        && known.effective_priority == key.priority()
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            class: ClassId::new(0),
            limit: f64::INFINITY,
            jobs: 0,
            first: Key::NONE,
            sorted: SortedKeys::default(),
            others: BinaryHeap::new(),
        }
    }
}

impl Clone for Lane {
    /// A copy without the stale keys of an empty lane, of which there may be many.
    fn clone(&self) -> Self {
        let empty = self.jobs == 0;
        Self {
            sorted: if empty {
                SortedKeys::default()
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
    /// Returns the memory of an empty lane, unless it is little.
    pub fn release_memory(&mut self) {
        self.sorted = SortedKeys::default();
        self.others.clear();
        self.others.shrink_to(MIN_CAPACITY);
    }

    /// Makes the lane empty; its memory is reused.
    pub fn reset(&mut self, class: ClassId, limit: f64) {
        self.class = class;
        self.limit = limit;
        self.jobs = 0;
        self.first = Key::NONE;
        self.sorted.clear();
        self.others.clear();
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.sorted.heap_bytes() + self.others.capacity() * size_of::<Key>()
    }

    /// The number of keys, stale ones included.
    pub fn keys(&self) -> usize {
        self.sorted.len() + self.others.len()
    }

    /// Whether a key comes after the first job, and the lane needs no tidying.
    pub fn is_behind(&self, key: Key) -> bool {
        self.first < key && self.keys() <= self.most_keys()
    }

    /// The number of keys above which stale keys are dropped, so that they are never the majority.
    pub fn most_keys(&self) -> usize {
        2 * self.jobs as usize + 64
    }

    /// Adds a key.
    pub fn push(&mut self, key: Key) {
        match self.sorted.last() {
            Some(last) if last > key => self.others.push(Reverse(key)),
            _ => self.sorted.push(key),
        }
    }

    /// The first job; stale keys before it are dropped.
    pub fn head(&mut self, jobs: &Jobs, lane: LaneId) -> Key {
        loop {
            let sorted = self.sorted.first().unwrap_or(Key::NONE);
            let other = self.others.peek().map_or(Key::NONE, |key| key.0);
            let key = sorted.min(other);
            if key.is_absent() || is_live(jobs, lane, key) {
                self.shrink();
                return key;
            }
            if sorted <= other {
                self.sorted.pop();
            } else {
                self.others.pop();
            }
        }
    }

    /// Returns memory that was for many more keys.
    #[inline]
    fn shrink(&mut self) {
        let others = self.others.len();
        if self.others.capacity() / 4 > others.max(MIN_CAPACITY) {
            self.others.shrink_to(2 * others);
        }
    }

    /// Whether the keys are in order, and each is that of a job.
    fn is_tidy(&self, jobs: &Jobs, lane: LaneId) -> bool {
        let mut before = Key::NONE;
        self.others.is_empty()
            && self.sorted.iter().all(|key| {
                let is_new = key != before;
                before = key;
                is_new && is_live(jobs, lane, key)
            })
    }

    /// Drops stale keys, and sorts the others.
    pub fn tidy(&mut self, jobs: &Jobs, lane: LaneId) {
        if self.is_tidy(jobs, lane) {
            return;
        }
        let mut keys: Vec<Key> = self.sorted.iter().collect();
        keys.extend(self.others.drain().map(|key| key.0));
        keys.retain(|key| is_live(jobs, lane, *key));
        keys.sort_unstable();
        keys.dedup();
        self.sorted = keys.into_iter().collect();
        self.shrink();
    }

    /// Puts the jobs into another order, in which a job's effective priority follows from its priority.
    pub fn reorder(&mut self, jobs: &mut Jobs, lane: LaneId, effective: impl Fn(u32) -> u32) {
        let mut keys = Vec::with_capacity(self.jobs as usize);
        for key in self
            .sorted
            .iter()
            .chain(self.others.drain().map(|key| key.0))
        {
            // Of two equal keys the second one is stale by now, or is the same again.
            if is_live(jobs, lane, key) {
                let job = jobs.at_mut(key.handle());
                job.effective_priority = effective(job.priority);
                keys.push(Key::new(job.effective_priority, job.id, key.handle()));
            }
        }
        self.shrink();
        keys.sort_unstable();
        keys.dedup();
        self.first = keys.first().copied().unwrap_or(Key::NONE);
        self.sorted = keys.into_iter().collect();
    }

    /// Takes all keys: those that were added in order, and the others.
    pub fn take_keys(&mut self) -> (SortedKeys, Vec<Reverse<Key>>) {
        self.first = Key::NONE;
        let sorted = std::mem::take(&mut self.sorted);
        (sorted, std::mem::take(&mut self.others).into_vec())
    }

    /// Adds sorted keys; those that were added since their removal, few, are moved.
    pub fn put_before(&mut self, keys: SortedKeys) {
        let (added, others) = self.take_keys();
        self.sorted = keys;
        for key in added.iter().chain(others.into_iter().map(|key| key.0)) {
            self.push(key);
        }
    }

    /// The first job after a key.
    pub fn after(&mut self, jobs: &Jobs, lane: LaneId, key: Key) -> Key {
        if !self.others.is_empty() {
            self.tidy(jobs, lane);
        }
        let mut later = self.sorted.after(key);
        let found = later.find(|key| is_live(jobs, lane, *key));
        found.unwrap_or(Key::NONE)
    }

    /// The jobs in order, right after [`tidy`](Self::tidy).
    pub fn tidied(&self) -> impl Iterator<Item = Key> + '_ {
        self.sorted.iter()
    }
}
