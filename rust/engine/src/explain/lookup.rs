//! Explanations: the verdicts of the last pass, with figures from the current state.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use penstock_jobspec::Constraint;
use penstock_jobspec::job_id::JobId;

use super::shortage::Census;
use super::{Interference, Reason, Shortage};
use crate::Engine;
use crate::ids::{ClassId, GroupId, GroupedClass, QueueId};
use crate::machine::{Allocation, ShapeId};
use crate::policy::{Policy, PolicyState};
use crate::queue::Key;
use crate::state::EngineState;
use crate::verdict::Cause;

impl Engine {
    /// Why a job is pending, as of now; `None` if it is not.
    ///
    /// The reason is the verdict of the last pass. If the state has changed since, a pass is made
    /// on a copy first, so the answer is that of the next pass at `now`: a job that it starts is
    /// [unconsidered](Reason::Unconsidered).
    ///
    /// The cost is proportional to the number of nodes, not of pending jobs; after a change, a copy
    /// and its passes are added. No decision is made.
    pub fn explain(&mut self, id: JobId, now: f64) -> Option<Reason> {
        self.explain_each(&[id], now).pop().flatten()
    }

    /// As [`explain`](Self::explain), for several jobs: what they have in common is computed once.
    pub fn explain_each(&mut self, ids: &[JobId], now: f64) -> Vec<Option<Reason>> {
        let key = |id: &JobId| {
            let (handle, _) = self.pending_handle(*id)?;
            Some(Key::new(
                self.state.jobs.at(handle).effective_priority,
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

    /// Why the first jobs of the queue that are not held are pending, in their order.
    ///
    /// The cost is that of [`explain`](Self::explain), with a scan of all nodes for each distinct
    /// constraint among the jobs, and a scan of all kinds of nodes for each distinct shape. Nodes
    /// of one kind have the same cores and gpus, and the same number of them free.
    pub fn explain_all(&mut self, now: f64, max: usize) -> Vec<(JobId, Reason)> {
        let keys = self.first_pending(max);
        let reasons = self.reasons(&keys, now);
        keys.into_iter().map(Key::id).zip(reasons).collect()
    }

    /// The first jobs of the queue that are not held, in their order.
    fn first_pending(&mut self, max: usize) -> Vec<Key> {
        let state = &mut self.state;
        let mut heads = BinaryHeap::new();
        for group in &state.queue.groups {
            let classes = group.heads.all().iter().zip(&group.classes);
            let pending = classes.filter(|(key, _)| !key.is_absent());
            heads.extend(pending.map(|(key, class)| Reverse((*key, *class))));
        }
        let mut keys = Vec::new();
        while keys.len() < max
            && let Some(Reverse((key, class))) = heads.pop()
        {
            keys.push(key);
            let next = state.queue.after(&state.jobs, class, key, |_| true);
            if !next.is_absent() {
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

/// Explains several jobs in one state, and caches what they have in common.
struct Lookup<'a> {
    state: &'a mut EngineState,
    policy_state: &'a PolicyState,
    policy: Policy,
    now: f64,
    /// By constraint, the nodes that it allows.
    censuses: HashMap<Option<Constraint>, Census>,
    shortages: BTreeMap<ShapeId, Shortage>,
    /// By class, the allocation that it would get now; `None` if it does not fit.
    placements: BTreeMap<ClassId, Option<Allocation>>,
}

impl<'a> Lookup<'a> {
    fn new(engine: &'a mut Engine, now: f64) -> Self {
        Self {
            state: &mut engine.state,
            policy_state: &engine.policy_state,
            policy: engine.policy,
            now,
            censuses: HashMap::new(),
            shortages: BTreeMap::new(),
            placements: BTreeMap::new(),
        }
    }

    fn reason(&mut self, key: Key) -> Reason {
        let Some((class, limit)) = self.state.pending_class(key.handle()) else {
            return Reason::Unconsidered;
        };
        if let Err(reason) = self.state.possible(class) {
            let note = reason.to_string();
            return Reason::Impossible { note };
        }
        if self.state.end_after(limit, self.now).is_err() {
            return Reason::Outlives {
                end: self.now + limit,
                resources: self.state.machine.expiration().unwrap_or(f64::INFINITY),
            };
        }
        let group = self.state.queue.classes[class.index()].group;
        let cause =
            (self.policy_state).cause(self.policy, self.state, GroupedClass { group, class }, key);
        let head = self.policy_state.head(self.policy, group);
        let head = head.filter(|head| *head < key).map(Key::id);
        let queue_limit = self.queue_limit(class);
        let by = match cause {
            Some(Cause::Reserved { at }) => return self.reserved(class, at, queue_limit),
            _ if queue_limit.is_some() => return self.queue_full(class, queue_limit),
            _ if self.placement(class).is_none() => return self.unfit(class, head),
            None => return Reason::Unconsidered,
            Some(Cause::DelaysByLimit { by }) => return self.behind_limit(class, by),
            Some(Cause::Delays { by, .. }) => by,
            // It fits, but would delay a reservation, or cannot both avoid that and stay within the
            // limits.
            Some(Cause::Unfit | Cause::Unreachable | Cause::Behind | Cause::QueueFull) => self.now,
        };
        let reservation =
            (self.policy_state).reservation_at(self.policy, self.state, group, (by, None));
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

    /// The reason of a job with a reservation. `queue_limit` is the limit that its queue has
    /// reached now.
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
        let note = note.unwrap_or_else(|| self.state.queues.limits(queue));
        Reason::QueueLimit { queue, note }
    }

    /// The reason of a class whose shape does not fit.
    fn unfit(&mut self, class: ClassId, head: Option<JobId>) -> Reason {
        let shortage = self.shortage(class);
        if shortage.nodes_up == 0 {
            return self.down(class, shortage.nodes);
        }
        let shape = self.state.queue.classes[class.index()].shape;
        // Only first come first served blocks jobs whose nodes are down.
        let is_in_line = self.policy == Policy::Fcfs || self.state.is_reachable(shape);
        Reason::Insufficient {
            shortage,
            behind: head.filter(|_| is_in_line),
        }
    }

    /// The reason of a class all of whose eligible nodes are down.
    fn down(&self, class: ClassId, nodes: u32) -> Reason {
        let shape = self.state.queue.classes[class.index()].shape;
        let constraint = self.state.machine.request(shape).constraint.as_ref();
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
        let reservation = (self.policy_state).reservation_at(self.policy, self.state, group, at);
        match reservation {
            Some((job, at)) => Reason::BehindLimit {
                queue,
                job,
                at,
                note: self.state.queues.limits(queue),
            },
            None => self.queue_full(class, None),
        }
    }

    /// The units of the blocked head's reservation that a class would take, under EASY backfill.
    fn interference(&mut self, class: ClassId) -> Option<Interference> {
        if self.policy != Policy::Easy {
            return None;
        }
        let group = self.group(class);
        let shares = self.placements.get(&class)?.as_ref()?;
        let (takes, spare) = self.policy_state.interference(self.state, group, shares)?;
        (takes > spare).then_some(Interference { takes, spare })
    }

    /// The limit of its queue that a class would exceed now, and what is in use.
    fn queue_limit(&mut self, class: ClassId) -> Option<String> {
        let known = &self.state.queue.classes[class.index()];
        let (shape, queue) = (known.shape, known.queue);
        if !self.state.queues.is_limited(queue) {
            return None;
        }
        let (nodes, cores) = self.state.least(shape);
        if let Err(limit) = self.state.queues.admits(queue, nodes, cores) {
            return Some(limit.to_string());
        }
        self.placement(class);
        let shares = self.placements.get(&class)?.as_ref()?;
        let cores = shares.iter().map(|share| u64::from(share.ncores())).sum();
        let admitted = self.state.queues.admits(queue, shares.len() as u64, cores);
        admitted.err().map(|limit| limit.to_string())
    }

    fn queue(&self, class: ClassId) -> QueueId {
        self.state.queue.classes[class.index()].queue
    }

    fn group(&self, class: ClassId) -> GroupId {
        self.state.queue.classes[class.index()].group
    }

    /// The allocation that a class would get now; `None` if it does not fit.
    fn placement(&mut self, class: ClassId) -> Option<&Allocation> {
        let state = &mut *self.state;
        let placement = self.placements.entry(class);
        placement.or_insert_with(|| state.place(class)).as_ref()
    }

    /// The shortage of the shape of a class now.
    fn shortage(&mut self, class: ClassId) -> Shortage {
        let shape = self.state.queue.classes[class.index()].shape;
        if let Some(shortage) = self.shortages.get(&shape) {
            return shortage.clone();
        }
        let machine = &mut self.state.machine;
        let constraint = machine.request(shape).constraint.clone();
        let census = self.censuses.entry(constraint);
        let census = census.or_insert_with(|| Census::of(machine, shape));
        let shortage = Shortage::of(machine, shape, census);
        self.shortages.insert(shape, shortage.clone());
        shortage
    }
}
