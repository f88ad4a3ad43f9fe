//! Another order of pending jobs, in slices: while one is under way, jobs may be queued, removed and prioritized, and no
//! pass is made.
//!
//! A class has its new order from the beginning, so that a job that arrives is queued by it. Its lanes follow, one after
//! the other. The keys of a long lane are taken out, sorted in runs, and merged.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::Queue;
use super::key::Key;
use super::lane::is_live;
use super::sorted_keys::SortedKeys;
use crate::ids::{ClassId, LaneId, QueueId};
use crate::job::Jobs;

/// The cost of a lane, in keys.
const LANE_COST: usize = 4;

/// The keys of a long lane, which are put in order in slices.
#[derive(Clone, Debug)]
struct LongLane {
    lane: LaneId,
    /// Keys in the former order.
    sorted: SortedKeys,
    others: Vec<Reverse<Key>>,
    /// Keys in the new order, in runs of which each is sorted in descending order.
    runs: Vec<Vec<Key>>,
    /// The first key of each run that is not merged, with the number of the run.
    heads: BinaryHeap<Reverse<(Key, usize)>>,
    merged: SortedKeys,
}

/// The progress of a new order.
#[derive(Clone, Debug, Default)]
pub(super) struct Reordering {
    /// The queues whose order is another one.
    queues: BTreeSet<QueueId>,
    /// The class whose lanes are being put in order.
    class: usize,
    /// The time limit of its last lane that is in order.
    limit: Option<f64>,
    long: Option<Box<LongLane>>,
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
    /// Puts the next keys of jobs in the new order, as a run. Returns whether these were the last.
    fn sort_run(&mut self, queue: &Queue, jobs: &mut Jobs, max: usize) -> bool {
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
                let priority = queue.update_priority(jobs, key.handle(), self.lane);
                run.push(Key::new(priority, key.id(), key.handle()));
            }
        }
        run.sort_unstable_by_key(|key| Reverse(*key));
        if let Some(first) = run.pop() {
            self.heads.push(Reverse((first, self.runs.len())));
            self.runs.push(run);
        }
        self.sorted.len() + self.others.len() == 0
    }

    /// Merges the next keys of all runs. Returns whether these were the last.
    fn merge(&mut self, jobs: &Jobs, max: usize) -> bool {
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

impl Queue {
    /// Whether [`reorder`](Self::reorder) has something to do.
    pub fn is_reordering(&self) -> bool {
        self.reordering.is_some()
    }

    /// Puts the next jobs in the new order of their queues, about `max`. Returns whether more are left.
    pub fn reorder(&mut self, jobs: &mut Jobs, max: usize) -> bool {
        let Some(mut progress) = self.reordering.take() else {
            return false;
        };
        self.changes += 1;
        let mut left = max;
        while left > 0 {
            let cost = if let Some(mut long) = progress.long.take() {
                if !self.reorder_long(jobs, &mut long, left) {
                    progress.long = Some(long);
                }
                max
            } else if let Some(cost) = self.reorder_next(jobs, &mut progress, max) {
                cost
            } else {
                return false;
            };
            left = left.saturating_sub(cost);
        }
        self.reordering = Some(progress);
        true
    }

    /// Puts the next lane in order, or begins with it if it has more than `max` keys. Returns the cost; `None` after the
    /// last one.
    fn reorder_next(
        &mut self,
        jobs: &mut Jobs,
        progress: &mut Reordering,
        max: usize,
    ) -> Option<usize> {
        let class = self.classes.get(progress.class)?;
        let is_reordered = class.has_jobs() && progress.queues.contains(&class.queue);
        let next = class.lanes.next_after(progress.limit);
        let Some(next) = next.filter(|_| is_reordered) else {
            self.update_group_head(ClassId::from_usize(progress.class));
            progress.class += 1;
            progress.limit = None;
            return Some(1);
        };
        progress.limit = Some(next.limit);
        let index = next.lane;
        let lane = &mut self.lanes[index.index()];
        let keys = lane.keys();
        if keys > max {
            let (sorted, others) = lane.take_keys();
            progress.long = Some(Box::new(LongLane {
                lane: index,
                sorted,
                others,
                runs: Vec::new(),
                heads: BinaryHeap::new(),
                merged: SortedKeys::default(),
            }));
            return Some(0);
        }
        let (order, cores) = (class.order, class.cores);
        lane.reorder(jobs, index, |priority| {
            order.effective_priority(priority, next.limit, cores)
        });
        let first = lane.first;
        self.classes[progress.class].lanes.set(next.limit, first);
        Some(keys + LANE_COST)
    }

    /// Continues with the keys of a long lane. Returns whether it is in order.
    fn reorder_long(&mut self, jobs: &mut Jobs, long: &mut LongLane, max: usize) -> bool {
        if long.sorted.len() + long.others.len() > 0 {
            long.sort_run(self, jobs, max);
            return false;
        }
        if !long.merge(jobs, max) {
            return false;
        }
        // Unless all of its jobs have left meanwhile.
        if self.lanes[long.lane.index()].jobs > 0 {
            self.lanes[long.lane.index()].put_before(std::mem::take(&mut long.merged));
            self.advance(jobs, long.lane);
        }
        true
    }

    /// Updates the head of a class in its group.
    fn update_group_head(&mut self, index: ClassId) {
        let class = &self.classes[index.index()];
        if class.has_jobs() {
            let heads = &mut self.groups[class.group.index()].heads;
            heads.set(class.slot, class.lanes.first());
        }
    }
}
