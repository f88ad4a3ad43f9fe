//! Another group and order of a queue, in slices: while one is under way, jobs may be queued, removed and prioritized, and
//! no pass is made.
//!
//! One class moves after the other. If its order is another one, so do its lanes: the keys of a lane are taken out, and
//! added again in the new order.

use std::collections::{BTreeMap, BTreeSet};

use super::key::Key;
use super::keys::Keys;
use super::{Order, Queue};
use crate::ids::{ClassId, GroupId, LaneId, QueueId};
use crate::job::Jobs;

/// The cost of a class or a lane, in keys.
const CLASS_COST: usize = 4;

/// The progress of new groups and orders.
#[derive(Clone, Debug)]
pub(super) struct Reordering {
    /// The queues that have other ones.
    queues: BTreeMap<QueueId, (GroupId, Order)>,
    /// The next class, or the present one.
    class: usize,
    /// Whether its lanes are being put in order.
    is_in_class: bool,
    /// The time limit of the last one of these that was begun.
    limit: Option<f64>,
    lane: LaneId,
    /// The keys of that lane in the former order.
    keys: Keys,
    /// The classes some of whose lanes may have a former order.
    incomplete: BTreeSet<usize>,
}

impl Default for Reordering {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            class: 0,
            is_in_class: false,
            limit: None,
            lane: LaneId::NONE,
            keys: Keys::default(),
            incomplete: BTreeSet::new(),
        }
    }
}

impl Queue {
    /// Moves the pending jobs of a queue, if there are any, to a group and an order, by [`reorder`](Self::reorder).
    pub fn begin_reorder(&mut self, queue: QueueId, group: GroupId, order: Order) {
        self.changes += 1;
        if self.classes_of(queue) == 0 {
            // Its next jobs are queued by the present options; an earlier change of these no longer holds.
            if let Some(progress) = &mut self.reordering {
                progress.queues.remove(&queue);
            }
            return;
        }
        let progress = self.reordering.get_or_insert_default();
        progress.queues.insert(queue, (group, order));
        // All are looked at again.
        (progress.class, progress.is_in_class, progress.limit) = (0, false, None);
    }

    /// Whether [`reorder`](Self::reorder) has something to do.
    pub fn is_reordering(&self) -> bool {
        self.reordering.is_some()
    }

    /// Moves the next jobs to the new group and order of their queue, about `max`. Returns whether more are left.
    pub fn reorder(&mut self, jobs: &mut Jobs, max: usize) -> bool {
        let Some(mut progress) = self.reordering.take() else {
            return false;
        };
        self.changes += 1;
        let mut left = max;
        while left > 0 {
            if let Some(key) = progress.keys.remove_first() {
                let priority = self.update_priority(jobs, key.handle(), progress.lane);
                let key = Key::new(priority, key.id(), key.handle());
                self.lanes[progress.lane.index()].keys.insert(key);
                left -= 1;
            } else if let Some(cost) = self.begin_lane(&mut progress) {
                left = left.saturating_sub(cost);
            } else {
                return false;
            }
        }
        self.reordering = Some(progress);
        true
    }

    /// Ends with a lane, and begins with the next one or the next class. Returns the cost; `None` after the last
    /// class.
    fn begin_lane(&mut self, progress: &mut Reordering) -> Option<usize> {
        let lane = std::mem::replace(&mut progress.lane, LaneId::NONE);
        if lane != LaneId::NONE && self.lanes[lane.index()].jobs > 0 {
            self.update_heads(lane);
        }
        let class = self.classes.get(progress.class)?;
        let mut cost = 1;
        if progress.is_in_class {
            let next = class.lanes.next_after(progress.limit);
            if let Some(next) = next.filter(|_| class.has_jobs()) {
                progress.limit = Some(next.limit);
                progress.lane = next.lane;
                progress.keys = std::mem::take(&mut self.lanes[next.lane.index()].keys);
                return Some(CLASS_COST);
            }
            progress.incomplete.remove(&progress.class);
        } else if let Some((group, order)) = progress.queues.get(&class.queue)
            && class.has_jobs()
        {
            if class.order != *order {
                progress.incomplete.insert(progress.class);
            }
            self.move_class(ClassId::from_usize(progress.class), *group, *order);
            if progress.incomplete.contains(&progress.class) {
                progress.is_in_class = true;
                return Some(CLASS_COST);
            }
            cost = CLASS_COST;
        }
        (progress.is_in_class, progress.limit) = (false, None);
        progress.class += 1;
        Some(cost)
    }

    /// Moves a class to a group, where it has not been tested yet, and to an order.
    fn move_class(&mut self, index: ClassId, group: GroupId, order: Order) {
        self.leave_group(index);
        let class = &mut self.classes[index.index()];
        (class.group, class.order) = (group, order);
        class.failed = None;
        class.possible = false;
        self.join_group(index);
    }

    /// Removes a key that [`reorder`](Self::reorder) has taken out of its lane.
    pub(super) fn remove_former(&mut self, lane: LaneId, key: Key) {
        let progress = self.reordering.as_mut();
        if let Some(progress) = progress.filter(|progress| progress.lane == lane) {
            progress.keys.remove(key);
        }
    }
}
