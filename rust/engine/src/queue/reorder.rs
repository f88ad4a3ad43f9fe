//! Another order of pending jobs, in slices: while one is under way, jobs may be queued, removed and prioritized, and no
//! pass is made.
//!
//! A class has its new order from the beginning, so that a job that arrives is queued by it. Its lanes follow, one after
//! the other. The keys of a long lane are taken out, sorted in runs, and merged.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::key::Key;
use super::lane::is_live;
use super::sorted_keys::SortedKeys;
use crate::ids::{JobHandle, LaneId, QueueId};
use crate::job::Jobs;

/// The keys of a long lane, which are put in order in slices.
#[derive(Clone, Debug)]
pub(super) struct LongLane {
    pub lane: LaneId,
    /// Keys in the former order.
    sorted: SortedKeys,
    others: Vec<Reverse<Key>>,
    /// Keys in the new order, in runs of which each is sorted in descending order.
    runs: Vec<Vec<Key>>,
    /// The first key of each run that is not merged, with the number of the run.
    heads: BinaryHeap<Reverse<(Key, usize)>>,
    pub merged: SortedKeys,
}

/// The progress of a new order.
#[derive(Clone, Debug, Default)]
pub(super) struct Reordering {
    /// The queues whose order is another one.
    pub queues: BTreeSet<QueueId>,
    /// The class whose lanes are being put in order.
    pub class: usize,
    /// The time limit of its last lane that is in order.
    pub limit: Option<f64>,
    /// A long lane that is not in order yet.
    pub long: Option<Box<LongLane>>,
}

impl Reordering {
    /// Begins with this queue; all are looked at again.
    pub fn add(&mut self, queue: QueueId) {
        self.queues.insert(queue);
        self.class = 0;
        self.limit = None;
    }
}

impl LongLane {
    /// The keys of a lane in the former order.
    pub fn new(lane: LaneId, sorted: SortedKeys, others: Vec<Reverse<Key>>) -> Self {
        Self {
            lane,
            sorted,
            others,
            runs: Vec::new(),
            heads: BinaryHeap::new(),
            merged: SortedKeys::default(),
        }
    }

    /// Whether all keys are in sorted runs.
    pub fn is_sorted(&self) -> bool {
        self.sorted.len() + self.others.len() == 0
    }

    /// Puts the next keys of jobs in the new order, as a run. `update` returns the priority of a job in that order.
    pub fn sort_run(
        &mut self,
        jobs: &mut Jobs,
        max: usize,
        update: impl Fn(&mut Jobs, JobHandle) -> u32,
    ) {
        let mut run = Vec::with_capacity(max.min(self.sorted.len() + self.others.len()));
        for _ in 0..max {
            let key = self.sorted.first();
            if key.is_some() {
                self.sorted.pop();
            }
            let Some(key) = key.or_else(|| Some(self.others.pop()?.0)) else {
                break;
            };
            // Of two equal keys the second one is stale by now, or is the same again.
            if is_live(jobs, self.lane, key) {
                let priority = update(jobs, key.handle());
                run.push(Key::new(priority, key.id(), key.handle()));
            }
        }
        run.sort_unstable_by_key(|key| Reverse(*key));
        if let Some(first) = run.pop() {
            self.heads.push(Reverse((first, self.runs.len())));
            self.runs.push(run);
        }
    }

    /// Merges the next keys of all runs. Returns whether these were the last.
    pub fn merge(&mut self, jobs: &Jobs, max: usize) -> bool {
        for _ in 0..max {
            let Some(Reverse((key, run))) = self.heads.pop() else {
                return true;
            };
            if let Some(next) = self.runs[run].pop() {
                self.heads.push(Reverse((next, run)));
            }
            if is_live(jobs, self.lane, key) && self.merged.last() != Some(key) {
                self.merged.push(key);
            }
        }
        self.heads.is_empty()
    }
}
