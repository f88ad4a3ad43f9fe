//! Explanations: the verdicts of the last pass, with figures from the current state.

use std::collections::{BTreeMap, HashMap};

use penstock_jobspec::Constraint;
use penstock_jobspec::job_id::JobId;

use super::shortage::GroupCensus;
use super::{QueueLimit, Reason, Shortage};
use crate::Engine;
use crate::ids::{ClassId, GroupedClass};
use crate::node_table::ShapeId;
use crate::policy::{LastPass, Policy};
use crate::queue::Key;
use crate::queue_scan::QueueScan;
use crate::queues::ReachedLimit;
use crate::shown_constraint::ShownConstraint;
use crate::state::{EngineState, PendingClass, Unhindered};
use crate::verdict::Cause;

impl Engine {
    /// Why a job is pending, as of now; `None` if it is not.
    ///
    /// The reason is the verdict of the last pass. If the state has changed since, a pass is made
    /// on a copy first, so the answer is that of the next pass at `now`: a job that it starts is
    /// [unconsidered](Reason::Unconsidered).
    ///
    /// The cost is proportional to the number of nodes, not of pending jobs, except for a job that
    /// has no start under conservative backfill: all reservations of its group are scanned. After a
    /// change, a copy and its passes are added. No decision is made.
    pub fn explain(&mut self, id: JobId, now: f64) -> Option<Reason> {
        self.explain_each(&[id], now).pop().flatten()
    }

    /// As [`explain`](Self::explain), for several jobs: what they have in common is computed once.
    pub fn explain_each(&mut self, ids: &[JobId], now: f64) -> Vec<Option<Reason>> {
        let key = |id: &JobId| {
            let handle = self.pending_handle(*id)?;
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

    /// The greatest number of jobs that [`explain_each`](Self::explain_each) explains in some milliseconds.
    pub fn max_explained(&self) -> usize {
        match self.policy {
            // The plan is searched for each job without a reservation.
            Policy::Conservative => 4,
            _ => 256,
        }
    }

    /// Why the first jobs of the queue that are not held are pending, in their order.
    ///
    /// The cost is that of [`explain`](Self::explain), with a scan of all nodes for each distinct
    /// constraint among the jobs. Each distinct shape costs a scan of the node classes, by their numbers of free
    /// cores and gpus.
    pub fn explain_all(&mut self, now: f64, max: usize) -> Vec<(JobId, Reason)> {
        let keys = self.first_pending(max);
        let reasons = self.reasons(&keys, now);
        keys.into_iter().map(Key::id).zip(reasons).collect()
    }

    /// The first jobs of the queue that are not held, in their order.
    fn first_pending(&mut self, max: usize) -> Vec<Key> {
        let mut scan = QueueScan::new(&self.state);
        let keys = std::iter::from_fn(|| scan.next(&self.state));
        keys.take(max).collect()
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
        ahead.state.jobs.keep_removed_ids();
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
    last_pass: Box<dyn LastPass + 'a>,
    now: f64,
    /// By constraint, the nodes that it allows.
    censuses: HashMap<Option<Constraint>, GroupCensus>,
    shortages: BTreeMap<ShapeId, Shortage>,
}

impl<'a> Lookup<'a> {
    fn new(engine: &'a mut Engine, now: f64) -> Self {
        Self {
            state: &mut engine.state,
            last_pass: engine.policy_state.last_pass(engine.policy),
            now,
            censuses: HashMap::new(),
            shortages: BTreeMap::new(),
        }
    }

    /// The reasons for a denial come before the verdict: such a job never starts, whatever the
    /// last pass found in its way.
    fn reason(&mut self, key: Key) -> Reason {
        let Some(PendingClass { class, limit }) = self.state.pending_class(key.handle()) else {
            return Reason::Unconsidered;
        };
        if let Err(reason) = self.state.possible(class) {
            let note = reason.to_string();
            return Reason::Impossible { note };
        }
        if self.state.end_after(limit, self.now).is_err() {
            return Reason::Outlives {
                end: self.now + limit,
                resources: self.state.node_table.expiration().unwrap_or(f64::INFINITY),
            };
        }
        let group = self.state.queue.classes[class.index()].group;
        let of = GroupedClass { group, class };
        let Some(cause) = self.last_pass.cause(self.state, of, key) else {
            return Reason::Unconsidered;
        };
        let head = self.last_pass.head(group);
        let head = head.filter(|head| *head < key).map(Key::id);
        match cause {
            Cause::Reserved { at } => self.explain_reservation(class, at),
            Cause::QueueFull(limit) => self.queue_full(class, limit),
            Cause::Unfit => self.unfit(class, head),
            Cause::Unreachable => self.unfit(class, None),
            Cause::DelaysByLimit { delayed, .. } => {
                let queue = self.state.queue.key_of(class).queue;
                Reason::BehindLimit {
                    queue,
                    job: delayed.job,
                    at: delayed.start,
                    note: self.state.queues.limits(queue),
                }
            }
            Cause::Delays {
                delayed,
                interference,
                ..
            } => Reason::BehindReservation {
                job: delayed.job,
                at: delayed.start,
                interference,
            },
            Cause::Behind => match head {
                Some(job) => Reason::Behind { job },
                None => self.limits(class),
            },
        }
    }

    /// The reason of a job with a reservation.
    fn explain_reservation(&mut self, class: ClassId, at: f64) -> Reason {
        let queue = self.state.queue.key_of(class).queue;
        let Unhindered { allocation, limit } = self.state.place_unhindered(class);
        let shortage = allocation.is_none().then(|| self.shortage(class));
        match shortage {
            Some(shortage) if shortage.nodes_up == 0 => self.down(class, shortage.nodes),
            shortage => Reason::Reserved {
                at,
                shortage,
                limit: limit.map(|limit| QueueLimit {
                    queue,
                    note: self.state.queues.note(queue, limit),
                }),
            },
        }
    }

    /// The reason of a class whose queue is at a limit.
    fn queue_full(&self, class: ClassId, limit: ReachedLimit) -> Reason {
        let queue = self.state.queue.key_of(class).queue;
        Reason::QueueLimit(QueueLimit {
            queue,
            note: self.state.queues.note(queue, limit),
        })
    }

    /// The reason of a class whose shape does not fit.
    fn unfit(&mut self, class: ClassId, behind: Option<JobId>) -> Reason {
        let shortage = self.shortage(class);
        if shortage.nodes_up == 0 {
            return self.down(class, shortage.nodes);
        }
        Reason::Insufficient { shortage, behind }
    }

    /// The reason of a class all of whose eligible nodes are down.
    fn down(&self, class: ClassId, nodes: u32) -> Reason {
        let shape = self.state.queue.classes[class.index()].shape;
        let constraint = self.state.node_table.request(shape).constraint.as_ref();
        Reason::Down {
            constraint: constraint.map(|constraint| ShownConstraint(constraint).to_string()),
            nodes,
        }
    }

    /// The reason of a class that no job is before: it cannot both leave reservations alone and
    /// stay within the limits of its queue.
    fn limits(&self, class: ClassId) -> Reason {
        let queue = self.state.queue.key_of(class).queue;
        if !self.state.queues.is_limited(queue) {
            return Reason::Unconsidered;
        }
        Reason::QueueLimit(QueueLimit {
            queue,
            note: self.state.queues.limits(queue),
        })
    }

    /// The shortage of the shape of a class now.
    fn shortage(&mut self, class: ClassId) -> Shortage {
        let shape = self.state.queue.classes[class.index()].shape;
        if let Some(shortage) = self.shortages.get(&shape) {
            return shortage.clone();
        }
        let node_table = &mut self.state.node_table;
        let constraint = node_table.request(shape).constraint.clone();
        let census = self.censuses.entry(constraint);
        let census = census.or_insert_with(|| GroupCensus::of(node_table, shape));
        let shortage = Shortage::of(node_table, shape, census);
        self.shortages.insert(shape, shortage.clone());
        shortage
    }
}
