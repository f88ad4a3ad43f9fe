//! Jobs that wait, in the order of their queue (see [`Order`]), then id (ascending).
//!
//! Jobs with the same shape, time limit and queue share a *lane*; lanes with the same shape and
//! queue share a *class*. A pass looks at the heads of classes only: whatever a job's shape is
//! told, holds for the class, and the cost does not grow with the number of jobs.

mod alike;
mod key;
mod ladder;
mod lane;
mod order;

use std::collections::HashMap;

use alike::Alikes;
pub(crate) use key::{Key, Least};
use ladder::{Ladder, Rung};
use lane::Lane;
pub use order::Order;

use crate::chunked_vec::ChunkedVec;
use crate::job::{Jobs, State};
use crate::machine::{ShapeId, Unit};

/// A named queue, as the engine numbers it; the default one has no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub(crate) u32);

/// Jobs with the same shape and queue.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub shape: ShapeId,
    pub queue: QueueId,
    /// The group of queues it belongs to, and its slot there.
    pub group: u32,
    pub slot: u32,
    /// Units it needs.
    pub need: u64,
    /// Whether a unit is any core.
    pub fungible: bool,
    /// Cores it needs at the least.
    pub cores: u64,
    order: Order,
    /// What a unit is.
    unit: Unit,
    /// The machine's generation when it did not fit.
    pub failed: Option<u64>,
    /// Whether it can be met at all is known.
    pub possible: bool,
    lanes: Ladder,
    jobs: u32,
}

impl Class {
    /// Whether jobs of it wait, held ones too.
    pub fn has_jobs(&self) -> bool {
        self.jobs > 0
    }

    /// The first job with a time limit within a bound (see [`Ladder::first_within`]).
    pub fn first_within(&self, within: impl Fn(f64) -> bool) -> Key {
        self.lanes.first_within(within)
    }
}

/// Queues that share one order: a job that waits blocks the later ones of its group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// The head of each class, by slot.
    pub heads: Least,
    /// The class of each slot.
    pub classes: Vec<u32>,
    /// The classes by what a unit is.
    pub alikes: Alikes,
    /// Classes of which it is not known yet whether they can be met at all.
    pub unknown: Vec<u32>,
    unused: Vec<u32>,
}

impl Group {
    /// Whether jobs that are not held wait.
    pub fn has_jobs(&self) -> bool {
        !self.heads.first().is_none()
    }
}

/// What a new class is to be known by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub shape: ShapeId,
    pub queue: QueueId,
    pub group: u32,
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
    by_shape: HashMap<(ShapeId, QueueId), u32, rustc_hash::FxBuildHasher>,
    unused_classes: Vec<u32>,
    unused_lanes: Vec<u32>,
    len: usize,
    changes: u64,
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl Queue {
    /// Jobs in it, held ones too.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How often jobs have come, gone or moved so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The class of a shape in a queue, where jobs of it wait.
    pub fn class(&self, shape: ShapeId, queue: QueueId) -> Option<u32> {
        self.by_shape.get(&(shape, queue)).copied()
    }

    /// The class and time limit (infinite for none) of a lane.
    #[inline]
    pub fn lane(&self, lane: u32) -> (&Class, f64) {
        let lane = &self.lanes[lane as usize];
        (&self.classes[lane.class as usize], lane.limit)
    }

    /// The class that a lane belongs to.
    #[inline]
    pub fn class_of(&self, lane: u32) -> u32 {
        self.lanes[lane as usize].class
    }

    fn open_class(&mut self, kind: Kind) -> u32 {
        while self.groups.len() <= kind.group as usize {
            self.groups.push(Group::default());
        }
        let index = self.unused_classes.pop();
        let index = index.unwrap_or(number(self.classes.len()));
        let group = &mut self.groups[kind.group as usize];
        let slot = group.unused.pop().unwrap_or(number(group.classes.len()));
        if slot as usize == group.classes.len() {
            group.classes.push(index);
        } else {
            group.classes[slot as usize] = index;
        }
        group.heads.set(slot, Key::NONE);
        group
            .alikes
            .insert(kind.unit, kind.shape, (kind.need, slot));
        if group.unknown.len() > 2 * self.classes.len() {
            group.unknown.sort_unstable();
            group.unknown.dedup();
        }
        group.unknown.push(index);
        let class = Class {
            shape: kind.shape,
            queue: kind.queue,
            group: kind.group,
            slot,
            need: kind.need,
            fungible: kind.fungible,
            cores: kind.cores,
            order: kind.order,
            unit: kind.unit,
            failed: None,
            possible: false,
            lanes: Ladder::default(),
            jobs: 0,
        };
        if index as usize == self.classes.len() {
            self.classes.push(class);
        } else {
            let lanes = std::mem::take(&mut self.classes[index as usize].lanes);
            self.classes[index as usize] = Class { lanes, ..class };
        }
        self.by_shape.insert((kind.shape, kind.queue), index);
        index
    }

    fn open_lane(&mut self, class: u32, limit: f64) -> u32 {
        let index = self.unused_lanes.pop();
        let index = index.unwrap_or(number(self.lanes.len()));
        if index as usize == self.lanes.len() {
            self.lanes.push(Lane::default());
        }
        self.lanes[index as usize].reset(class, limit);
        self.classes[class as usize].lanes.insert(Rung {
            head: Key::NONE,
            limit,
            lane: index,
        });
        index
    }

    /// From now on, clones share what there is now; what is kept of classes they copy.
    pub fn share(&mut self) {
        self.lanes.share();
    }

    /// Forgets of every class whether it can be met at all.
    pub fn doubt(&mut self) {
        for group in &mut self.groups {
            group.unknown.clear();
        }
        for (class, index) in self.classes.iter_mut().zip(0_u32..) {
            class.possible = false;
            if class.jobs > 0 {
                self.groups[class.group as usize].unknown.push(index);
            }
        }
    }

    /// Queues a job; `limit` is its time limit, infinite for none. `kind` is asked where no job of
    /// the shape waits in the queue.
    pub fn push(
        &mut self,
        jobs: &mut Jobs,
        handle: u32,
        (shape, queue): (ShapeId, QueueId),
        limit: f64,
        kind: impl FnOnce() -> Kind,
    ) {
        let class = match self.class(shape, queue) {
            Some(class) => class,
            None => self.open_class(kind()),
        };
        let lane = match self.classes[class as usize].lanes.find(limit) {
            Some(lane) => lane,
            None => self.open_lane(class, limit),
        };
        self.len += 1;
        self.changes += 1;
        let class = &mut self.classes[class as usize];
        class.jobs += 1;
        let known = jobs.at_mut(handle);
        known.state = State::Waits(lane);
        known.rank = class.order.rank(known.priority, limit, class.cores);
        let (rank, key) = (known.rank, Key::new(known.rank, known.id, handle));
        let it = &mut self.lanes[lane as usize];
        it.jobs += 1;
        if rank > 0 && it.is_behind(key) {
            // Whoever is first stays first.
            it.push(key);
        } else {
            self.enter(jobs, handle, lane);
        }
    }

    /// Gives a job that waits in a lane its rank.
    fn rank(&self, jobs: &mut Jobs, handle: u32, index: u32) -> u32 {
        let (class, limit) = self.lane(index);
        let known = jobs.at_mut(handle);
        known.rank = class.order.rank(known.priority, limit, class.cores);
        known.rank
    }

    /// Gives a job that waits in a lane its key there, unless it is held.
    fn enter(&mut self, jobs: &Jobs, handle: u32, index: u32) {
        let known = jobs.at(handle);
        if known.rank == 0 {
            return;
        }
        let key = Key::new(known.rank, known.id, handle);
        let lane = &mut self.lanes[index as usize];
        if lane.keys() > lane.most_keys() {
            lane.tidy(jobs, index);
        }
        lane.push(key);
        self.advance(jobs, index);
    }

    /// Finds the head of a lane, and passes it on.
    fn advance(&mut self, jobs: &Jobs, index: u32) {
        let lane = &mut self.lanes[index as usize];
        let head = lane.head(jobs, index);
        lane.first = head;
        let class = &mut self.classes[lane.class as usize];
        class.lanes.set(lane.limit, head);
        let first = class.lanes.first();
        let heads = &mut self.groups[class.group as usize].heads;
        if heads.get(class.slot) != first {
            heads.set(class.slot, first);
        }
    }

    /// Takes a job out that waits in a lane. Its state is the caller's to set anew, and is not
    /// this lane's any more.
    pub fn remove(&mut self, jobs: &mut Jobs, handle: u32, index: u32) {
        jobs.at_mut(handle).state = State::Waits(u32::MAX);
        self.len -= 1;
        self.changes += 1;
        let lane = &mut self.lanes[index as usize];
        lane.jobs -= 1;
        let class_index = lane.class;
        let class = &mut self.classes[class_index as usize];
        class.jobs -= 1;
        if lane.jobs > 0 {
            return self.advance(jobs, index);
        }
        class.lanes.remove(lane.limit);
        self.unused_lanes.push(index);
        let group = &mut self.groups[class.group as usize];
        group.heads.set(class.slot, class.lanes.first());
        if class.jobs == 0 {
            group.alikes.remove(class.unit, (class.need, class.slot));
            group.unused.push(class.slot);
            self.by_shape.remove(&(class.shape, class.queue));
            self.unused_classes.push(class_index);
        }
    }

    /// Gives a job that waits in a lane another priority.
    pub fn prioritize(&mut self, jobs: &mut Jobs, handle: u32, index: u32, priority: u32) {
        let known = jobs.at_mut(handle);
        let before = known.rank;
        known.priority = priority;
        let rank = self.rank(jobs, handle, index);
        if rank == before {
            return;
        }
        self.changes += 1;
        if rank == 0 {
            self.advance(jobs, index);
        } else {
            self.enter(jobs, handle, index);
        }
    }

    /// The first job of a class after a key, with a time limit within a bound.
    pub fn after(
        &mut self,
        jobs: &Jobs,
        class: u32,
        key: Key,
        within: impl Fn(f64) -> bool,
    ) -> Key {
        let class = &self.classes[class as usize];
        let mut first = Key::NONE;
        for rung in class.lanes.iter().take_while(|rung| within(rung.limit)) {
            let found = if rung.head > key {
                rung.head
            } else {
                self.lanes[rung.lane as usize].after(jobs, rung.lane, key)
            };
            first = first.min(found);
        }
        first
    }

    /// Bytes on the heap; what is kept of a class beside its lanes is left out.
    pub fn heap_bytes(&self) -> usize {
        let lanes: usize = self.lanes.iter().map(Lane::heap_bytes).sum();
        let ladders: usize = self.classes.iter().map(|it| it.lanes.heap_bytes()).sum();
        let heads: usize = self.groups.iter().map(|it| it.heads.heap_bytes()).sum();
        self.classes.capacity() * size_of::<Class>() + self.lanes.bytes() + lanes + ladders + heads
    }

    /// Every job that is not held, in order.
    pub fn in_order(&mut self, jobs: &Jobs) -> Vec<Key> {
        let mut keys = Vec::with_capacity(self.len);
        for index in 0..self.lanes.len() {
            if self.lanes[index].jobs > 0 {
                let lane = &mut self.lanes[index];
                lane.tidy(jobs, number(index));
                keys.extend(lane.tidied());
            }
        }
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use penstock_idset::IdSet;
    use penstock_jobspec::Request;
    use penstock_rset::ResourceSet;

    use crate::{Engine, Job};

    #[test]
    fn doubt_is_about_every_class_that_has_jobs_once() {
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
                id,
                priority: 16,
                request,
                queue: queues[queue],
            };
            engine.submit(job).unwrap();
        }
        engine.schedule(0.0, usize::MAX);
        // The third is alone in its class, which is none without it.
        assert!(engine.cancel(3));
        for _ in 0..2 {
            engine.books.queue.doubt();
            let queue = &engine.books.queue;
            assert!(queue.classes.iter().all(|it| !it.possible));
            let unknown = queue.groups.iter().map(|group| {
                let needs = group.unknown.iter().map(|class| {
                    let class = &queue.classes[*class as usize];
                    assert!(class.has_jobs());
                    class.cores
                });
                needs.collect::<Vec<_>>()
            });
            let unknown: Vec<Vec<u64>> = unknown.filter(|it| !it.is_empty()).collect();
            assert_eq!(unknown, [vec![4], vec![3, 2]]);
        }
    }
}
