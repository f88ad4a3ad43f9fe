//! The queue of pending jobs, in the [`Order`] of their queues, then by ascending id.
//!
//! Jobs with the same shape, time limit and queue share a *lane*; lanes with the same shape and
//! queue share a *class*. A pass visits the heads of classes only: a decision about a shape holds
//! for the class, and the cost does not grow with the number of jobs.

mod classes_by_unit;
mod key;
mod keys;
mod lane;
mod lanes_by_limit;
mod order;
mod reorder;

use std::collections::HashMap;

use classes_by_unit::{ClassesByUnit, Member};
pub(crate) use key::{Key, MinTree};
use keys::Keys;
use lane::Lane;
use lanes_by_limit::{LaneHead, LanesByLimit};
pub use order::Order;
use reorder::Reordering;

use crate::chunked_vec::ChunkedVec;
use crate::ids::{ClassId, GroupId, JobHandle, LaneId, QueueId};
use crate::job::{JobState, Jobs};
use crate::node_table::{ShapeId, Unit};

/// The shape and queue that all jobs of a class have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClassKey {
    pub shape: ShapeId,
    pub queue: QueueId,
}

/// The pending jobs with the same shape and queue.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub shape: ShapeId,
    pub queue: QueueId,
    /// Its group of queues, and its slot in the group.
    pub group: GroupId,
    pub slot: u32,
    /// The number of units that a job needs.
    pub need: u64,
    /// Whether a unit is any one core.
    pub fungible: bool,
    /// The minimum number of cores of a job.
    pub cores: u64,
    order: Order,
    /// The properties of unit.
    unit: Unit,
    /// The generation of the node table in which it last did not fit.
    pub failed: Option<u64>,
    /// Whether it is known to be possible on this inventory, within its queue's limits.
    pub possible: bool,
    lanes: LanesByLimit,
    jobs: u32,
}

impl Class {
    /// Whether it has pending jobs, held ones included.
    pub fn has_jobs(&self) -> bool {
        self.jobs > 0
    }

    /// The first job with a time limit within a bound (see [`LanesByLimit::first_within`]).
    pub fn first_within(&self, within: impl Fn(f64) -> bool) -> Key {
        self.lanes.first_within(within)
    }
}

/// A group of queues, which share one order: a pending job that cannot start blocks the later ones
/// of its group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// The head of each class, by slot.
    pub heads: MinTree,
    /// The class of each slot.
    pub classes: Vec<ClassId>,
    /// The classes by their properties of unit.
    pub classes_by_unit: ClassesByUnit,
    /// Classes that have not been checked for being possible at all.
    pub unchecked: Vec<ClassId>,
    unused: Vec<u32>,
}

impl Group {
    /// Whether it has pending jobs that are not held.
    pub fn has_jobs(&self) -> bool {
        !self.heads.first().is_absent()
    }
}

/// The properties of a new class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassProperties {
    pub shape: ShapeId,
    pub queue: QueueId,
    pub group: GroupId,
    pub need: u64,
    pub fungible: bool,
    pub cores: u64,
    pub order: Order,
    pub unit: Unit,
}

/// The pending jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pub classes: Vec<Class>,
    pub groups: Vec<Group>,
    lanes: ChunkedVec<Lane, 32>,
    by_key: HashMap<ClassKey, ClassId, rustc_hash::FxBuildHasher>,
    /// The number of classes with jobs, by queue.
    class_counts: Vec<u32>,
    unused_classes: Vec<ClassId>,
    unused_lanes: Vec<LaneId>,
    len: usize,
    changes: u64,
    /// The new groups and orders that are not complete: see [`reorder`](Self::reorder).
    reordering: Option<Reordering>,
}

/// The number of unused lanes that retain the memory of keys, and of lanes in a queue without jobs.
const MAX_UNUSED_KEYS: usize = if cfg!(debug_assertions) { 4 } else { 1024 };

/// The cost of a class or a lane in another order, in keys.
const CLASS_COST: usize = 4;

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl Queue {
    /// The number of pending jobs, held ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of jobs added, removed and moved so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of classes of a queue with pending jobs.
    fn classes_of(&self, queue: QueueId) -> u32 {
        let count = self.class_counts.get(queue.0 as usize);
        count.copied().unwrap_or_default()
    }

    /// The class with a key, if it has pending jobs.
    pub fn find(&self, key: ClassKey) -> Option<ClassId> {
        self.by_key.get(&key).copied()
    }

    /// The shape and queue of a class.
    #[inline]
    pub fn key_of(&self, class: ClassId) -> ClassKey {
        let class = &self.classes[class.index()];
        ClassKey {
            shape: class.shape,
            queue: class.queue,
        }
    }

    /// The time limit of a lane, infinite for none.
    #[inline]
    pub fn limit_of(&self, lane: LaneId) -> f64 {
        self.lanes[lane.index()].limit
    }

    /// The class of a lane.
    #[inline]
    pub fn class_of(&self, lane: LaneId) -> ClassId {
        self.lanes[lane.index()].class
    }

    fn open_class(&mut self, properties: ClassProperties) -> ClassId {
        let index = self.unused_classes.pop();
        let index = index.unwrap_or(ClassId::from_usize(self.classes.len()));
        let class = Class {
            shape: properties.shape,
            queue: properties.queue,
            group: properties.group,
            slot: 0,
            need: properties.need,
            fungible: properties.fungible,
            cores: properties.cores,
            order: properties.order,
            unit: properties.unit,
            failed: None,
            possible: false,
            lanes: LanesByLimit::default(),
            jobs: 0,
        };
        if index.index() == self.classes.len() {
            self.classes.push(class);
        } else {
            let lanes = std::mem::take(&mut self.classes[index.index()].lanes);
            self.classes[index.index()] = Class { lanes, ..class };
        }
        let key = ClassKey {
            shape: properties.shape,
            queue: properties.queue,
        };
        self.by_key.insert(key, index);
        let queue = properties.queue.0 as usize;
        if self.class_counts.len() <= queue {
            self.class_counts.resize(queue + 1, 0);
        }
        self.class_counts[queue] += 1;
        self.join_group(index);
        index
    }

    /// Adds a class to its group.
    fn join_group(&mut self, index: ClassId) {
        let classes = self.classes.len();
        let class = &mut self.classes[index.index()];
        while self.groups.len() <= class.group.index() {
            self.groups.push(Group::default());
        }
        let group = &mut self.groups[class.group.index()];
        let slot = group.unused.pop().unwrap_or(number(group.classes.len()));
        if slot as usize == group.classes.len() {
            group.classes.push(index);
        } else {
            group.classes[slot as usize] = index;
        }
        class.slot = slot;
        group.heads.set(slot, class.lanes.first());
        let need = class.need;
        group.classes_by_unit.insert(
            class.unit,
            Member {
                need,
                slot,
                shape: class.shape,
            },
        );
        if group.unchecked.len() > 2 * classes {
            group.unchecked.sort_unstable();
            group.unchecked.dedup();
        }
        group.unchecked.push(index);
    }

    /// Removes a class from its group.
    fn leave_group(&mut self, index: ClassId) {
        let class = &self.classes[index.index()];
        let group = &mut self.groups[class.group.index()];
        let (need, slot, shape) = (class.need, class.slot, class.shape);
        group.heads.set(slot, Key::NONE);
        group
            .classes_by_unit
            .remove(class.unit, Member { need, slot, shape });
        group.unused.push(slot);
    }

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
    fn remove_former(&mut self, lane: LaneId, key: Key) {
        let progress = self.reordering.as_mut();
        if let Some(progress) = progress.filter(|progress| progress.lane == lane) {
            progress.keys.remove(key);
        }
    }

    fn open_lane(&mut self, class: ClassId, limit: f64) -> LaneId {
        let index = self.unused_lanes.pop();
        let index = index.unwrap_or(LaneId::from_usize(self.lanes.len()));
        if index.index() == self.lanes.len() {
            self.lanes.push(Lane::default());
        }
        let lane = &mut self.lanes[index.index()];
        (lane.class, lane.limit, lane.jobs) = (class, limit, 0);
        self.classes[class.index()].lanes.insert(LaneHead {
            head: Key::NONE,
            limit,
            lane: index,
        });
        index
    }

    /// Makes clones share the current lanes from now on; classes are copied.
    pub fn share(&mut self) {
        self.lanes.share();
    }

    /// Marks every class as unchecked.
    pub fn uncheck(&mut self) {
        for group in &mut self.groups {
            group.unchecked.clear();
        }
        for (class, index) in self.classes.iter_mut().zip(0_u32..) {
            class.possible = false;
            if class.jobs > 0 {
                self.groups[class.group.index()]
                    .unchecked
                    .push(ClassId::new(index));
            }
        }
    }

    /// Queues a job; `limit` is its time limit, infinite for none. `properties` is called if its
    /// class is new.
    pub fn push(
        &mut self,
        jobs: &mut Jobs,
        handle: JobHandle,
        key: ClassKey,
        limit: f64,
        properties: impl FnOnce() -> ClassProperties,
    ) {
        let class = match self.find(key) {
            Some(class) => class,
            None => self.open_class(properties()),
        };
        let lane = match self.classes[class.index()].lanes.find(limit) {
            Some(lane) => lane,
            None => self.open_lane(class, limit),
        };
        self.len += 1;
        self.changes += 1;
        let class = &mut self.classes[class.index()];
        class.jobs += 1;
        let known = jobs.at_mut(handle);
        known.state = JobState::Pending(lane);
        known.effective_priority =
            class
                .order
                .effective_priority(known.priority, limit, class.cores);
        let (effective_priority, key) = (
            known.effective_priority,
            Key::new(known.effective_priority, known.id, handle),
        );
        self.lanes[lane.index()].jobs += 1;
        if effective_priority > 0 {
            self.add_key(lane, key);
        }
    }

    /// Updates the effective priority of a pending job. Returns it.
    fn update_priority(&self, jobs: &mut Jobs, handle: JobHandle, index: LaneId) -> u32 {
        let (class, limit) = (
            &self.classes[self.class_of(index).index()],
            self.limit_of(index),
        );
        let known = jobs.at_mut(handle);
        known.effective_priority =
            class
                .order
                .effective_priority(known.priority, limit, class.cores);
        known.effective_priority
    }

    /// Adds the key of a pending job to its lane.
    fn add_key(&mut self, index: LaneId, key: Key) {
        let lane = &mut self.lanes[index.index()];
        let keeps_first = lane.keys.is_behind(key);
        lane.keys.insert(key);
        if !keeps_first && lane.first() == key {
            self.update_heads(index);
        }
    }

    /// Removes the key of a pending job from its lane; a held job has none.
    fn remove_key(&mut self, index: LaneId, key: Key) {
        let lane = &mut self.lanes[index.index()];
        let is_first = lane.first() == key;
        if !lane.keys.remove(key) {
            self.remove_former(index, key);
        } else if is_first {
            self.update_heads(index);
        }
    }

    /// Updates the heads of a lane's class and group.
    fn update_heads(&mut self, index: LaneId) {
        let lane = &self.lanes[index.index()];
        let class = &mut self.classes[lane.class.index()];
        class.lanes.set(lane.limit, lane.first());
        let first = class.lanes.first();
        let heads = &mut self.groups[class.group.index()].heads;
        if heads.get(class.slot) != first {
            heads.set(class.slot, first);
        }
    }

    /// Removes a pending job from its lane. The caller sets its state. Returns the shape of its class if that has no other job.
    pub fn remove(&mut self, jobs: &mut Jobs, handle: JobHandle, index: LaneId) -> Option<ShapeId> {
        let known = jobs.at_mut(handle);
        known.state = JobState::Pending(LaneId::NONE);
        let key = Key::new(known.effective_priority, known.id, handle);
        self.len -= 1;
        self.changes += 1;
        self.remove_key(index, key);
        let lane = &mut self.lanes[index.index()];
        lane.jobs -= 1;
        let class_index = lane.class;
        let class = &mut self.classes[class_index.index()];
        class.jobs -= 1;
        if lane.jobs > 0 {
            return None;
        }
        if self.unused_lanes.len() < MAX_UNUSED_KEYS {
            lane.keys.clear();
        } else {
            lane.keys = Keys::default();
        }
        class.lanes.remove(lane.limit);
        // Also if the job's key was taken out of the lane for another order.
        let heads = &mut self.groups[class.group.index()].heads;
        heads.set(class.slot, class.lanes.first());
        self.unused_lanes.push(index);
        if class.jobs > 0 {
            return None;
        }
        if self.len == 0 && self.reordering.is_none() && self.lanes.len() > MAX_UNUSED_KEYS {
            (self.lanes, self.unused_lanes) = (ChunkedVec::default(), Vec::new());
        }
        let shape = class.shape;
        self.by_key.remove(&ClassKey {
            shape,
            queue: class.queue,
        });
        self.class_counts[class.queue.0 as usize] -= 1;
        self.leave_group(class_index);
        self.unused_classes.push(class_index);
        Some(shape)
    }

    /// Changes the priority of a pending job.
    pub fn prioritize(&mut self, jobs: &mut Jobs, handle: JobHandle, index: LaneId, priority: u32) {
        let known = jobs.at_mut(handle);
        let (id, before) = (known.id, known.effective_priority);
        known.priority = priority;
        let after = self.update_priority(jobs, handle, index);
        if after == before {
            return;
        }
        self.changes += 1;
        self.remove_key(index, Key::new(before, id, handle));
        if after > 0 {
            self.add_key(index, Key::new(after, id, handle));
        }
    }

    /// The first job of a class after a key, with a time limit within a bound.
    pub fn after(&self, class: ClassId, key: Key, within: impl Fn(f64) -> bool) -> Key {
        let class = &self.classes[class.index()];
        let mut first = Key::NONE;
        for lane in class.lanes.iter().take_while(|lane| within(lane.limit)) {
            let found = if lane.head > key {
                lane.head
            } else {
                self.lanes[lane.lane.index()].after(key)
            };
            first = first.min(found);
        }
        first
    }

    /// The first jobs of the lanes of a class.
    pub fn lane_heads(&self, class: ClassId) -> impl Iterator<Item = (Key, LaneId)> {
        let lanes = self.classes[class.index()].lanes.iter();
        let pending = lanes.filter(|lane| !lane.head.is_absent());
        pending.map(|lane| (lane.head, lane.lane))
    }

    /// The next job of a lane.
    pub fn after_in_lane(&self, lane: LaneId, key: Key) -> Key {
        self.lanes[lane.index()].after(key)
    }

    /// Bytes on the heap; of classes, only their lanes are counted.
    pub fn heap_bytes(&self) -> usize {
        let lanes: usize = self.lanes.iter().map(|lane| lane.keys.heap_bytes()).sum();
        let ladders: usize = self
            .classes
            .iter()
            .map(|class| class.lanes.heap_bytes())
            .sum();
        let heads: usize = self
            .groups
            .iter()
            .map(|group| group.heads.heap_bytes())
            .sum();
        self.classes.capacity() * size_of::<Class>() + self.lanes.bytes() + lanes + ladders + heads
    }

    /// All pending jobs that are not held, in order.
    pub fn in_order(&self) -> Vec<Key> {
        let mut keys = Vec::with_capacity(self.len);
        keys.extend(self.lanes.iter().flat_map(|lane| lane.keys.iter()));
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use penstock_idset::IdSet;
    use penstock_jobspec::Request;
    use penstock_jobspec::job_id::JobId;
    use penstock_rset::ResourceSet;

    use crate::{Engine, Job};

    #[test]
    fn unchecking_lists_each_class_with_jobs_once() {
        let mut r = ResourceSet::new();
        r.insert(0, "n0", (0..4).collect(), IdSet::new()).unwrap();
        let mut engine = Engine::new(&r).unwrap();
        engine.mark_up(&r.ranks());
        let queues = [engine.queue("a"), engine.queue("b")];
        for (id, (queue, cores)) in (1..).zip([(0, 4), (0, 4), (0, 3), (1, 3), (1, 2)]) {
            let request = Request {
                nnodes: None,
                exclusive: false,
                slots: 1.into(),
                cores_per_slot: cores.into(),
                gpus_per_slot: 0.into(),
                duration: 0.0,
                constraint: None,
            };
            let job = Job {
                id: JobId::new(id),
                priority: 16,
                request,
                queue: queues[queue],
            };
            engine.submit(job).unwrap();
        }
        engine.schedule(0.0, usize::MAX);
        // The third job is alone in its class, which becomes empty without it.
        assert!(engine.cancel(JobId::new(3)));
        for _ in 0..2 {
            engine.state.queue.uncheck();
            let queue = &engine.state.queue;
            assert!(queue.classes.iter().all(|class| !class.possible));
            let unknown = queue.groups.iter().map(|group| {
                let needs = group.unchecked.iter().map(|class| {
                    let class = &queue.classes[class.index()];
                    assert!(class.has_jobs());
                    class.cores
                });
                needs.collect::<Vec<_>>()
            });
            let unknown: Vec<Vec<u64>> = unknown.filter(|classes| !classes.is_empty()).collect();
            assert_eq!(unknown, [vec![4], vec![3, 2]]);
        }
    }
}
