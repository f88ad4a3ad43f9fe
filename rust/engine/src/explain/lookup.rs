//! Explanations: the verdicts of the last pass, with the numbers that the books show.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use penstock_jobspec::Constraint;

use super::shortage::Census;
use super::{Interference, Reason, Shortage};
use crate::Engine;
use crate::books::Books;
use crate::ids::{ClassId, GroupId};
use crate::machine::{Allocation, ShapeId};
use crate::policy::{Policy, Scratch};
use crate::queue::{Key, QueueId};
use crate::verdict::Cause;

impl Engine {
    /// Why a job is pending, as of now; `None` if it is not.
    ///
    /// Formats what the last pass found. If something has changed since, a pass is made on a copy
    /// first, so the answer is that of the next pass at `now`: a job that it starts is
    /// [unconsidered](Reason::Unconsidered).
    ///
    /// Costs a look at every node, whatever the number of pending jobs; after a change, a copy and
    /// its passes besides. Decides nothing.
    pub fn explain(&mut self, id: u64, now: f64) -> Option<Reason> {
        self.explain_each(&[id], now).pop().flatten()
    }

    /// As [`explain`](Self::explain), of several jobs: what they have in common is looked at once.
    pub fn explain_each(&mut self, ids: &[u64], now: f64) -> Vec<Option<Reason>> {
        let key = |id: &u64| {
            let (handle, _) = self.waiting(*id)?;
            Some(Key::new(
                self.books.jobs.at(handle).effective_priority,
                *id,
                handle,
            ))
        };
        let keys: Vec<Option<Key>> = ids.iter().map(key).collect();
        let is_held = |key: &Key| key.priority() == 0;
        let pending = keys.iter().flatten().copied();
        let pending: Vec<Key> = pending.filter(|key| !is_held(key)).collect();
        let mut reasons = self.reasons(&pending, now).into_iter();
        let mut reason = |key: Key| {
            if is_held(&key) {
                Some(Reason::Held)
            } else {
                reasons.next()
            }
        };
        keys.into_iter()
            .map(|key| key.and_then(&mut reason))
            .collect()
    }

    /// Why the first jobs of the queue are pending, in their order; jobs that are held are not among
    /// them.
    ///
    /// As [`explain`](Self::explain), with a look at every node for each different constraint among
    /// them, and for each different shape a look at every kind of node: nodes are of a kind that
    /// have the same and have the same free.
    pub fn explain_all(&mut self, now: f64, max: usize) -> Vec<(u64, Reason)> {
        let keys = self.first_pending(max);
        let reasons = self.reasons(&keys, now);
        keys.into_iter().map(Key::id).zip(reasons).collect()
    }

    /// The first jobs of the queue in their order, held ones left out.
    fn first_pending(&mut self, max: usize) -> Vec<Key> {
        let books = &mut self.books;
        let mut heads = BinaryHeap::new();
        for group in &books.queue.groups {
            let classes = group.heads.all().iter().zip(&group.classes);
            let pending = classes.filter(|(key, _)| !key.is_none());
            heads.extend(pending.map(|(key, class)| Reverse((*key, *class))));
        }
        let mut keys = Vec::new();
        while keys.len() < max
            && let Some(Reverse((key, class))) = heads.pop()
        {
            keys.push(key);
            let next = books.queue.after(&books.jobs, class, key, |_| true);
            if !next.is_none() {
                heads.push(Reverse((next, class)));
            }
        }
        keys
    }

    /// Why these jobs, which are not held, are pending.
    fn reasons(&mut self, keys: &[Key], now: f64) -> Vec<Reason> {
        if keys.is_empty() {
            return Vec::new();
        }
        if self.is_settled() {
            let mut lookup = Lookup::new(self, now);
            return keys.iter().map(|key| lookup.reason(*key)).collect();
        }
        self.share();
        let mut ahead = self.clone();
        ahead.schedule(now, usize::MAX);
        let pending: Vec<bool> = keys.iter().map(|key| ahead.is_queued(key.id())).collect();
        let started: Vec<bool> = keys.iter().map(|key| ahead.is_running(key.id())).collect();
        let mut denied = Lookup::new(self, now);
        let mut lookup = Lookup::new(&mut ahead, now);
        let reason = |((key, pending), started): ((&Key, bool), bool)| {
            if pending {
                lookup.reason(*key)
            } else if started {
                Reason::Unconsidered
            } else {
                denied.reason(*key)
            }
        };
        keys.iter().zip(pending).zip(started).map(reason).collect()
    }
}

/// Explains several jobs of one state, and caches what they have in common.
struct Lookup<'a> {
    books: &'a mut Books,
    scratch: &'a Scratch,
    policy: Policy,
    now: f64,
    /// By constraint, the nodes that it allows.
    censuses: HashMap<Option<Constraint>, Census>,
    shortages: BTreeMap<ShapeId, Shortage>,
    /// By class, where it fits now, if it does.
    placements: BTreeMap<ClassId, Option<Allocation>>,
}

impl<'a> Lookup<'a> {
    fn new(engine: &'a mut Engine, now: f64) -> Self {
        Self {
            books: &mut engine.books,
            scratch: &engine.scratch,
            policy: engine.policy,
            now,
            censuses: HashMap::new(),
            shortages: BTreeMap::new(),
            placements: BTreeMap::new(),
        }
    }

    fn reason(&mut self, key: Key) -> Reason {
        let Some((class, limit)) = self.books.waits(key.handle()) else {
            return Reason::Unconsidered;
        };
        if let Err(reason) = self.books.possible(class) {
            let note = reason.to_string();
            return Reason::Impossible { note };
        }
        if self.books.end_after(limit, self.now).is_err() {
            return Reason::Outlives {
                end: self.now + limit,
                resources: self.books.machine.expiration().unwrap_or(f64::INFINITY),
            };
        }
        let group = self.books.queue.classes[class.index()].group;
        let cause = (self.scratch).cause(self.policy, self.books, (group, class), key);
        let head = self.scratch.head(self.policy, group);
        let head = head.filter(|head| *head < key).map(Key::id);
        let queue_limit = self.queue_limit(class);
        let by = match cause {
            Some(Cause::Reserved { at }) => return self.reserved(class, at, queue_limit),
            _ if queue_limit.is_some() => return self.queue_full(class, queue_limit),
            _ if self.placement(class).is_none() => return self.unfit(class, head),
            None => return Reason::Unconsidered,
            Some(Cause::DelaysByLimit { by }) => return self.behind_limit(class, by),
            Some(Cause::Delays { by, .. }) => by,
            // It fits, but not beside the reservations, or not both beside them and within the limits.
            Some(Cause::Unfit | Cause::Unreachable | Cause::Behind | Cause::QueueFull) => self.now,
        };
        let reservation = (self.scratch).reservation_at(self.policy, self.books, group, (by, None));
        let interference = self.interference(class);
        match (reservation, head) {
            (Some((job, at)), _) => Reason::BehindReservation {
                job,
                at,
                interference,
            },
            (None, Some(job)) => Reason::Behind { job },
            (None, None) if cause == Some(Cause::QueueFull) => self.queue_full(class, None),
            (None, None) => Reason::Unconsidered,
        }
    }

    /// The reason of a job with a reservation. `queue_limit` tells how its queue is full now.
    fn reserved(&mut self, class: ClassId, at: f64, queue_limit: Option<String>) -> Reason {
        let fits = self.placement(class).is_some();
        let shortage = (!fits).then(|| self.shortage(class));
        match shortage {
            Some(shortage) if shortage.nodes_up == 0 => self.down(class, shortage.nodes),
            shortage => Reason::Reserved {
                at,
                shortage,
                limit: queue_limit.map(|note| (self.queue(class), note)),
            },
        }
    }

    /// The reason of a class whose queue is at a limit.
    fn queue_full(&mut self, class: ClassId, note: Option<String>) -> Reason {
        let queue = self.queue(class);
        let note = note.unwrap_or_else(|| self.books.queues.limits(queue));
        Reason::QueueLimit { queue, note }
    }

    /// The reason of a class whose shape does not fit.
    fn unfit(&mut self, class: ClassId, head: Option<u64>) -> Reason {
        let shortage = self.shortage(class);
        if shortage.nodes_up == 0 {
            return self.down(class, shortage.nodes);
        }
        let shape = self.books.queue.classes[class.index()].shape;
        // Only first come first served blocks jobs whose nodes are down.
        let is_in_line = self.policy == Policy::Fcfs || self.books.is_reachable(shape);
        Reason::Insufficient {
            shortage,
            behind: head.filter(|_| is_in_line),
        }
    }

    /// The reason of a class none of whose nodes is up.
    fn down(&self, class: ClassId, nodes: u32) -> Reason {
        let shape = self.books.queue.classes[class.index()].shape;
        let constraint = self.books.machine.request(shape).constraint.as_ref();
        Reason::Down {
            constraint: constraint.map(ToString::to_string),
            nodes,
        }
    }

    /// The reason of a class that fits, but would leave too little of the limits of its queue to the
    /// reservation that begins at `by`.
    fn behind_limit(&mut self, class: ClassId, by: f64) -> Reason {
        let (group, queue) = (self.group(class), self.queue(class));
        let at = (by, Some(queue));
        let reservation = (self.scratch).reservation_at(self.policy, self.books, group, at);
        match reservation {
            Some((job, at)) => Reason::BehindLimit {
                queue,
                job,
                at,
                note: self.books.queues.limits(queue),
            },
            None => self.queue_full(class, None),
        }
    }

    /// What a class would take of the blocked head's reservation, under EASY backfill.
    fn interference(&mut self, class: ClassId) -> Option<Interference> {
        if self.policy != Policy::Easy {
            return None;
        }
        let group = self.group(class);
        let shares = self.placements.get(&class)?.as_ref()?;
        let (takes, spare) = self.scratch.interference(self.books, group, shares)?;
        (takes > spare).then_some(Interference { takes, spare })
    }

    /// The limit of its queue that a class would exceed now, and what is in use.
    fn queue_limit(&mut self, class: ClassId) -> Option<String> {
        let known = &self.books.queue.classes[class.index()];
        let (shape, queue) = (known.shape, known.queue);
        if !self.books.queues.is_limited(queue) {
            return None;
        }
        let (nodes, cores) = self.books.least(shape);
        if let Err(limit) = self.books.queues.admits(queue, nodes, cores) {
            return Some(limit.to_string());
        }
        self.placement(class);
        let shares = self.placements.get(&class)?.as_ref()?;
        let cores = shares.iter().map(|it| u64::from(it.ncores())).sum();
        let admitted = self.books.queues.admits(queue, shares.len() as u64, cores);
        admitted.err().map(|limit| limit.to_string())
    }

    fn queue(&self, class: ClassId) -> QueueId {
        self.books.queue.classes[class.index()].queue
    }

    fn group(&self, class: ClassId) -> GroupId {
        self.books.queue.classes[class.index()].group
    }

    /// Where a class fits now.
    fn placement(&mut self, class: ClassId) -> Option<&Allocation> {
        let books = &mut *self.books;
        let placement = self.placements.entry(class);
        placement.or_insert_with(|| books.place(class)).as_ref()
    }

    /// What the shape of a class lacks now.
    fn shortage(&mut self, class: ClassId) -> Shortage {
        let shape = self.books.queue.classes[class.index()].shape;
        if let Some(shortage) = self.shortages.get(&shape) {
            return shortage.clone();
        }
        let machine = &mut self.books.machine;
        let constraint = machine.request(shape).constraint.clone();
        let census = self.censuses.entry(constraint);
        let census = census.or_insert_with(|| Census::of(machine, shape));
        let shortage = Shortage::of(machine, shape, census);
        self.shortages.insert(shape, shortage.clone());
        shortage
    }
}
