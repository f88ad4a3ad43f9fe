//! The state of the engine: the node table, the pending jobs, the running jobs and their planned ends.

use std::fmt;

use penstock_jobspec::job_id::JobId;

use crate::allocation_log::AllocationLog;
use crate::error::Error;
use crate::ids::{ClassId, JobHandle, LaneId, NodeIndex, QueueId, RunId};
use crate::job::{JobState, Jobs};
use crate::node_table::{Allocation, NodeAmount, NodeTable, ShapeId, Size};
use crate::queue::{ClassKey, ClassProperties, Key, Queue};
use crate::queues::{Queues, ReachedLimit};
use crate::running_jobs::{RunningJob, RunningJobs, RunningRequest};
use crate::timeline::{Ending, Timeline};
use crate::verdict::{Decision, Impossible, Overlong, PastExpiration};

/// A job with a shorter time limit, in seconds, is planned to end as it starts.
pub(crate) const SHORTEST_LIMIT_S: f64 = 1e-9;

/// The [work](EngineState::work) of the search for an allocation.
const PLACEMENT_WORK: u64 = 16;

/// The first and the last planned end of some jobs that have released resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreedEnds {
    pub first: f64,
    pub last: f64,
}

/// The class and the time limit of a pending job; the limit is infinite for none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingClass {
    pub class: ClassId,
    pub limit: f64,
}

/// The start of a job if no other job were pending.
#[derive(Debug)]
pub(crate) struct Unhindered {
    /// Its allocation; `None` if it does not fit into the free resources.
    pub allocation: Option<Allocation>,
    /// The limit of its queue that prevents it.
    pub limit: Option<ReachedLimit>,
}

/// The state of the engine that queue policies read and change: nodes, pending jobs, running jobs.
#[derive(Clone, Debug)]
pub(crate) struct EngineState {
    pub node_table: NodeTable,
    pub jobs: Jobs,
    pub queue: Queue,
    pub queues: Queues,
    pub running_jobs: RunningJobs,
    /// Running jobs by planned end; built on first use, and updated from then on.
    pub timeline: Option<Timeline>,
    pub overlong: Overlong,
    /// The number of running jobs whose allocation includes a part of a node.
    pub partial: usize,
    /// The planned ends of the jobs that have released resources since a policy last read this.
    pub freed: Option<FreedEnds>,
    /// Counts changes of nodes, changes of planned ends other than by starts and ends of jobs, and
    /// jobs that are already running when they are registered.
    pub changes: u64,
    /// The number of these changes in the log of allocations.
    pub logged_changes: u64,
    /// The allocations and releases of running jobs.
    pub allocation_log: AllocationLog,
    /// The number of jobs started so far.
    pub starts: u64,
    /// The work of the passes so far, in steps of some nanoseconds: a measure without a clock, by which forecasts are
    /// divided.
    pub work: u64,
}

fn holds_nothing(id: JobId) -> Error {
    Error::unknown_job(format!("job {} holds no resources", id.get()))
}

impl EngineState {
    /// The index of a running job in the table.
    pub fn run_index(&self, id: JobId) -> Result<RunId, Error> {
        match self.jobs.state(id) {
            Some(JobState::Running(run)) => Ok(run),
            _ => Err(holds_nothing(id)),
        }
    }

    /// A running job.
    pub fn running_job(&self, id: JobId) -> Result<&RunningJob, Error> {
        let running = self.running_jobs.at(self.run_index(id)?);
        running.ok_or_else(|| holds_nothing(id))
    }

    /// Running jobs by planned end.
    pub fn timeline(&mut self) -> &mut Timeline {
        let (node_table, runs) = (&self.node_table, &self.running_jobs);
        self.timeline.get_or_insert_with(|| {
            let ending = |(run, running): (RunId, &RunningJob)| Ending {
                end: running.end,
                run,
                cores: cores_up(node_table, &running.shares),
            };
            Timeline::new(runs.iter().map(ending).collect())
        })
    }

    /// The first planned end of a running job.
    pub fn first_end(&self) -> Option<f64> {
        match &self.timeline {
            Some(timeline) => timeline.first().map(|ending| ending.end),
            None => self
                .running_jobs
                .iter()
                .map(|(_, running)| running.end)
                .min_by(f64::total_cmp),
        }
    }

    /// The cores that a running job releases on nodes that are up.
    pub fn cores_up(&self, run: RunId) -> u32 {
        let running = self.running_jobs.at(run);
        running.map_or(0, |running| cores_up(&self.node_table, &running.shares))
    }

    /// Returns whether a unit of a shape is any idle node; computed once.
    pub fn check_any_node(&mut self, shape: ShapeId) -> bool {
        let node_table = &mut self.node_table;
        let known = node_table.any_node.get(shape.0).copied();
        known.unwrap_or_else(|| {
            let takes = takes_any_node(node_table, shape);
            node_table.any_node.set(shape.0, takes);
            takes
        })
    }

    /// Returns whether a shape could start if all running jobs had ended, on the nodes that are up;
    /// computed once until nodes change.
    pub fn check_reachable(&mut self, shape: ShapeId) -> bool {
        let node_table = &mut self.node_table;
        let known = node_table.reachable.get(shape.0).copied();
        known.unwrap_or_else(|| {
            let is_reachable = node_table.is_reachable(shape);
            node_table.reachable.set(shape.0, is_reachable);
            is_reachable
        })
    }

    /// The running job of a handle.
    pub fn running(&self, handle: JobHandle) -> Option<&RunningJob> {
        match self.jobs.at(handle).state {
            JobState::Running(run) => self.running_jobs.at(run),
            _ => None,
        }
    }

    /// Removes a pending job.
    pub fn remove_pending(&mut self, handle: JobHandle) {
        if let JobState::Pending(lane) = self.jobs.at(handle).state {
            self.unqueue(handle, lane);
            self.jobs.remove(handle);
        }
    }

    /// Removes a pending job from its lane. The caller sets its state.
    fn unqueue(&mut self, handle: JobHandle, lane: LaneId) {
        let shape = self.queue.remove(&mut self.jobs, handle, lane);
        if let Some(shape) = shape {
            self.node_table.release_shape(shape);
        }
    }

    /// The class and the time limit of a pending job.
    #[inline]
    pub fn pending_class(&self, handle: JobHandle) -> Option<PendingClass> {
        match self.jobs.at(handle).state {
            JobState::Pending(lane) => Some(PendingClass {
                class: self.queue.class_of(lane),
                limit: self.queue.limit_of(lane),
            }),
            _ => None,
        }
    }

    /// The time limit of a pending job, infinite for none.
    pub fn limit(&self, handle: JobHandle) -> f64 {
        match self.jobs.at(handle).state {
            JobState::Pending(lane) => self.queue.limit_of(lane),
            _ => f64::INFINITY,
        }
    }

    /// Checks whether the whole inventory and the limits of the queue allow a class at all. The error
    /// is boxed: passes check every class, and seldom fail.
    pub fn possible(&mut self, class: ClassId) -> Result<(), Box<Impossible>> {
        let class = &mut self.queue.classes[class.index()];
        if class.possible {
            return Ok(());
        }
        self.node_table
            .feasible(class.shape)
            .map_err(Impossible::from)?;
        if self.queues.is_limited(class.queue) {
            let least = self.node_table.min_size(class.shape);
            self.queues
                .may_ever(class.queue, least)
                .map_err(Impossible::from)?;
        }
        class.possible = true;
        Ok(())
    }

    /// Finds an allocation for a class now: of a count range as much as the limits of its queue
    /// admit. If they admit no allocation that fits, the returned one exceeds them.
    pub fn place(&mut self, class: ClassId) -> Option<Allocation> {
        let generation = self.node_table.generation();
        let class = &mut self.queue.classes[class.index()];
        if class.failed == Some(generation) {
            return None;
        }
        let (shape, queue) = (class.shape, class.queue);
        self.work += PLACEMENT_WORK;
        let Some(allocation) = self.node_table.place(shape) else {
            class.failed = Some(generation);
            return None;
        };
        let room = self.queues.room(queue);
        if room == Size::UNLIMITED || room.admits(&allocation) {
            return Some(allocation);
        }
        let within = self.node_table.place_within(shape, room);
        within.or(Some(allocation))
    }

    /// Finds an allocation for a class now, within a limit and those of its queue.
    pub fn place_within(&mut self, class: ClassId, limit: Size) -> Option<Allocation> {
        let class = &self.queue.classes[class.index()];
        let room = self.queues.room(class.queue);
        self.node_table.place_within(class.shape, limit.min(room))
    }

    /// The end of a pending job if it started now.
    pub fn end(&self, handle: JobHandle, now: f64) -> Result<f64, PastExpiration> {
        self.end_after(self.limit(handle), now)
    }

    /// The end of a job with this time limit if it started now.
    #[inline]
    pub fn end_after(&self, limit: f64, now: f64) -> Result<f64, PastExpiration> {
        let expiration = self.node_table.expiration().unwrap_or(f64::INFINITY);
        let end = if limit < SHORTEST_LIMIT_S {
            now
        } else {
            now + limit
        };
        if end > expiration && limit.is_finite() && self.overlong == Overlong::Deny {
            return Err(PastExpiration::Ends {
                limit,
                now,
                end,
                expiration,
            });
        }
        let end = end.min(expiration);
        if expiration <= now {
            return Err(PastExpiration::Expired);
        }
        Ok(end)
    }

    /// The longest possible run time of a job that starts now; infinite if the resources do not
    /// expire.
    pub fn longest(&self, now: f64) -> f64 {
        let expiration = self.node_table.expiration().filter(|end| *end > now);
        let Some(end) = expiration.filter(|_| self.overlong == Overlong::Shorten) else {
            return f64::INFINITY;
        };
        let mut longest = end - now;
        while now + longest > end {
            longest = longest.next_down();
        }
        longest
    }

    /// Checks whether the limits of a queue admit one more job of a shape, as far as its request
    /// tells.
    pub fn may_run(&self, shape: ShapeId, queue: QueueId) -> Result<(), ReachedLimit> {
        let request = self.node_table.request(shape);
        let least = Size {
            nodes: u64::from(request.least_nodes().unwrap_or(1)),
            cores: request.total_cores(),
        };
        self.queues.admits(queue, least)
    }

    /// Checks whether the limits of a queue admit one more job with this allocation.
    pub fn may_take(&self, queue: QueueId, shares: &Allocation) -> Result<(), ReachedLimit> {
        self.queues.admits(queue, shares.size())
    }

    /// The start of a job of a class now, if no other job were pending.
    pub fn place_unhindered(&mut self, class: ClassId) -> Unhindered {
        let ClassKey { shape, queue } = self.queue.key_of(class);
        let allocation = self.place(class);
        let mut limit = self.may_run(shape, queue).err();
        if let (None, Some(allocation)) = (limit, &allocation) {
            limit = self.may_take(queue, allocation).err();
        }
        Unhindered { allocation, limit }
    }

    /// Starts a pending job with this allocation; it ends at `end`.
    pub fn start(&mut self, handle: JobHandle, shares: Allocation, now: f64, end: f64) {
        let JobState::Pending(lane) = self.jobs.at(handle).state else {
            return;
        };
        let ClassKey { shape, queue } = self.queue.key_of(self.queue.class_of(lane));
        let limit = self.queue.limit_of(lane);
        self.starts += 1;
        // Before the job's class has no other user of it.
        self.node_table.hold(shape);
        self.unqueue(handle, lane);
        self.node_table.allocate(&shares);
        let running = RunningJob {
            handle,
            queue,
            request: Some(RunningRequest { shape, limit }),
            counted: shares.size(),
            shares,
            outside: None,
            start: now,
            end,
        };
        let run = self.add_running(running);
        self.jobs.at_mut(handle).state = JobState::Running(run);
    }

    /// Registers a running job, whose resources are allocated already. Returns its index.
    #[inline]
    pub fn add_running(&mut self, running: RunningJob) -> RunId {
        self.queues.count_start(running.queue, running.counted);
        self.partial += usize::from(!is_whole(&self.node_table, &running.shares));
        let end = running.end;
        let up = self
            .timeline
            .is_some()
            .then(|| cores_up(&self.node_table, &running.shares));
        let allocation_log = &mut self.allocation_log;
        allocation_log.record(running.handle, &running.shares, f64::NEG_INFINITY, end);
        let run = self.running_jobs.insert(running);
        if let (Some(timeline), Some(cores)) = (&mut self.timeline, up) {
            timeline.insert(Ending { end, run, cores });
        }
        run
    }

    /// Removes a running job. The caller frees its resources.
    pub fn remove_running(&mut self, run: RunId) -> Option<RunningJob> {
        let running = self.running_jobs.remove(run)?;
        if let Some(request) = running.request {
            self.node_table.release_shape(request.shape);
        }
        self.queues.count_end(running.queue, running.counted);
        self.partial -= usize::from(!is_whole(&self.node_table, &running.shares));
        let end = running.end;
        let allocation_log = &mut self.allocation_log;
        allocation_log.record(running.handle, &running.shares, end, f64::NEG_INFINITY);
        let freed = self.freed.get_or_insert(FreedEnds {
            first: end,
            last: end,
        });
        freed.first = freed.first.min(end);
        freed.last = freed.last.max(end);
        if let Some(timeline) = &mut self.timeline {
            timeline.remove(end, run);
        }
        Some(running)
    }

    /// Ends the jobs with the next planned end. Returns that time.
    pub fn end_next(&mut self) -> Option<f64> {
        let time = self.timeline().first()?.end;
        if !time.is_finite() {
            return None;
        }
        while let Some(ending) = self.timeline().first().filter(|ending| ending.end <= time) {
            let running = self.remove_running(ending.run)?;
            self.work += running.shares.len() as u64;
            self.node_table.release(&running.shares);
            self.jobs.remove(running.handle);
        }
        Some(time)
    }

    /// Sets the planned end of all jobs that are overdue at `now`.
    pub fn end_overdue(&mut self, end: f64, now: f64) {
        let overdue: Vec<RunId> = self
            .running_jobs
            .iter()
            .filter(|(_, running)| running.end <= now)
            .map(|(run, _)| run)
            .collect();
        for run in &overdue {
            if let Some(running) = self.running_jobs.at_mut(*run) {
                running.end = end;
            }
        }
        if !overdue.is_empty() {
            self.timeline = None;
            self.changes += 1;
        }
    }

    /// Queues a job whose state is not set yet.
    pub fn enqueue(&mut self, handle: JobHandle, key: ClassKey, limit: f64) {
        let queues = &self.queues;
        let node_table = &mut self.node_table;
        // Called if the class is new: it is a user of the shape.
        let properties = || {
            node_table.hold(key.shape);
            class_properties(node_table, queues, key)
        };
        self.queue
            .push(&mut self.jobs, handle, key, limit, properties);
    }

    /// Denies a pending job. Returns the decision, whose note is the text of the reason.
    pub fn deny(&mut self, key: Key, reason: &dyn fmt::Display) -> Decision {
        self.remove_pending(key.handle());
        Decision::Deny {
            id: key.id(),
            note: reason.to_string(),
        }
    }
}

/// The properties of the class of a shape in a queue.
fn class_properties(
    node_table: &NodeTable,
    queues: &Queues,
    ClassKey { shape, queue }: ClassKey,
) -> ClassProperties {
    ClassProperties {
        shape,
        queue,
        group: queues.group(queue),
        unit: node_table.unit(shape),
        need: node_table.need(shape),
        fungible: node_table.is_fungible(shape),
        cores: node_table.request(shape).total_cores(),
        order: queues.order(queue),
    }
}

/// The cores and gpus that `units` units of a shape take on a node, which has them free.
#[inline]
pub(crate) fn amount(
    node_table: &NodeTable,
    shape: ShapeId,
    node: NodeIndex,
    units: u32,
) -> NodeAmount {
    let request = node_table.request(shape);
    if request.exclusive {
        let total = node_table.total(node);
        return NodeAmount {
            node,
            cores: total.cores,
            gpus: total.gpus,
        };
    }
    let slots = match request.nnodes {
        Some(_) => request.slots.min(),
        None => units,
    };
    NodeAmount {
        node,
        cores: request.cores_per_slot.min().saturating_mul(slots),
        gpus: request.gpus_per_slot.min().saturating_mul(slots),
    }
}

/// Whether any node of the inventory, if idle, is a unit of a shape.
fn takes_any_node(node_table: &NodeTable, shape: ShapeId) -> bool {
    let request = node_table.request(shape);
    request.exclusive
        && request.nnodes.is_some()
        && request.is_exact()
        && request.constraint.is_none()
        && node_table.node_indices().all(|node| {
            let total = node_table.total(node);
            let slots = request.slots.min();
            let cores = request.cores_per_slot.min().saturating_mul(slots);
            let gpus = request.gpus_per_slot.min().saturating_mul(slots);
            cores <= total.cores && gpus <= total.gpus
        })
}

/// Whether every share is a whole node.
#[inline]
pub(crate) fn is_whole(node_table: &NodeTable, shares: &Allocation) -> bool {
    let mut shares = shares.iter();
    shares.all(|share| node_table.is_whole_node(share.node, share.amounts()))
}

/// The cores of an allocation on nodes that are up.
fn cores_up(node_table: &NodeTable, shares: &Allocation) -> u32 {
    let up = shares.iter().filter(|share| node_table.is_up(share.node));
    up.fold(0, |sum, share| sum.saturating_add(share.ncores()))
}
