//! The engine: jobs in, decisions out.

use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use crate::Error;
use crate::allocation_log::AllocationLog;
use crate::ids::{ClassId, JobHandle, LaneId, QueueId};
use crate::job::{Job, JobState, Jobs};
use crate::node_table::{Allocation, Infeasible, NodeTable, Selection, ShapeId};
use crate::policy::{Policy, PolicyState};
use crate::queue::{ClassKey, Key, Queue};
use crate::queues::{QueueOptions, Queues};
use crate::running_jobs::RunningJobs;
use crate::state::EngineState;
use crate::verdict::{Decision, Overlong};

/// The options of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which of the nodes that fit are allocated to a job.
    pub selection: Selection,
    /// Which pending jobs may start before earlier ones.
    pub policy: Policy,
    /// Treatment of jobs whose time limit exceeds the expiration of the resources.
    pub overlong: Overlong,
}

/// The scheduling engine: inventory, pending jobs and running jobs.
///
/// A clone is a snapshot. It copies the arrays of nodes, the data of each shape, and the chunks of
/// jobs that have changed since [`share`](Self::share).
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) state: EngineState,
    pub(crate) policy: Policy,
    pub(crate) policy_state: PolicyState,
    settled: Settled,
    /// Jobs that may have become impossible, in reverse order.
    suspects: Vec<JobId>,
    /// Whether every pending job may have become impossible.
    recheck: bool,
}

/// The [work](EngineState::work) of a pass that visits no job.
const PASS_WORK: u64 = 32;

/// The counts of changes at the end of the last pass after which nothing was left to decide. The
/// count of a node table's changes restarts in a copy, so a copy is not settled.
#[derive(Debug, Default)]
struct Settled(Option<[u64; 4]>);

impl Clone for Settled {
    fn clone(&self) -> Self {
        Self(None)
    }
}

/// The handle and the lane of a pending job.
#[derive(Clone, Copy, Debug)]
struct Pending {
    handle: JobHandle,
    lane: LaneId,
}

/// A duration as a time limit: infinite for none.
fn limit(duration: f64) -> f64 {
    if duration > 0.0 {
        duration
    } else {
        f64::INFINITY
    }
}

impl Engine {
    /// An engine for these resources, with the default options. Every node is down until it is
    /// marked up.
    ///
    /// # Errors
    ///
    /// The R has no `execution`, or its nodes have more cores and gpus than the engine can hold, on
    /// one node or together.
    pub fn new(inventory: &ResourceSet) -> Result<Self, Error> {
        Self::with_options(inventory, Options::default())
    }

    /// An engine for these resources. Every node is down until it is marked up.
    ///
    /// # Errors
    ///
    /// The R has no `execution`, or its nodes have more cores and gpus than the engine can hold, on
    /// one node or together.
    pub fn with_options(inventory: &ResourceSet, options: Options) -> Result<Self, Error> {
        let mut node_table = NodeTable::new(inventory)?;
        node_table.set_selection(options.selection);
        let state = EngineState {
            node_table,
            jobs: Jobs::default(),
            queue: Queue::default(),
            queues: Queues::default(),
            running_jobs: RunningJobs::default(),
            timeline: None,
            overlong: options.overlong,
            partial: 0,
            freed: None,
            changes: 0,
            logged_changes: 0,
            allocation_log: AllocationLog::default(),
            starts: 0,
            work: 0,
        };
        Ok(Self {
            state,
            policy: options.policy,
            policy_state: PolicyState::default(),
            settled: Settled::default(),
            suspects: Vec::new(),
            recheck: false,
        })
    }

    /// Makes the next snapshots cheap: they share the current jobs until either side changes them.
    /// The cost is proportional to what has changed since the last time.
    pub fn share(&mut self) {
        self.state.jobs.share();
        self.state.queue.share();
        self.state.running_jobs.share();
    }

    /// The current options.
    pub fn options(&self) -> Options {
        Options {
            selection: self.state.node_table.selection(),
            policy: self.policy,
            overlong: self.state.overlong,
        }
    }

    /// Changes the options, from the next decision on.
    pub fn set_options(&mut self, options: Options) {
        self.settled = Settled(None);
        self.state.node_table.set_selection(options.selection);
        self.state.overlong = options.overlong;
        if options.policy != self.policy {
            // Reservations of another policy mean nothing to this one.
            self.policy = options.policy;
            self.policy_state = PolicyState::default();
            self.state.allocation_log = AllocationLog::default();
        }
    }

    /// The queue with this name, created if there is none. The empty name is the default queue.
    pub fn queue(&mut self, name: &str) -> QueueId {
        self.state.queues.id(name)
    }

    /// The name of a queue.
    pub fn queue_name(&self, queue: QueueId) -> &str {
        self.state.queues.name(queue)
    }

    /// Configures a queue. Its pending jobs move to its new group and order. The cost is that of their classes, jobs with
    /// one shape; for another order that of the jobs.
    pub fn set_queue(&mut self, queue: QueueId, options: QueueOptions) {
        self.begin_set_queue(queue, options);
        self.complete_order();
    }

    /// As [`set_queue`](Self::set_queue), but the moves are left to [`reorder`](Self::reorder).
    ///
    /// Until they are complete, jobs may be submitted, cancelled and prioritized, and resources may change. A pass completes
    /// them first; whatever else depends on groups and orders is not defined.
    pub fn begin_set_queue(&mut self, queue: QueueId, options: QueueOptions) {
        if *self.state.queues.options(queue) == options {
            return;
        }
        self.state.queues.set(queue, options);
        self.state.changes += 1;
        let state = &mut self.state;
        let (group, order) = (state.queues.group(queue), state.queues.order(queue));
        state.queue.begin_reorder(queue, group, order);
    }

    /// Moves the next pending jobs to the new group and order of their queues, about `max`. Returns whether more are left.
    pub fn reorder(&mut self, max: usize) -> bool {
        let state = &mut self.state;
        state.queue.reorder(&mut state.jobs, max.max(1))
    }

    /// Whether pending jobs are to be moved to a new group or order of their queues, by [`reorder`](Self::reorder).
    pub fn is_reordering(&self) -> bool {
        self.state.queue.is_reordering()
    }

    fn complete_order(&mut self) {
        while self.reorder(usize::MAX) {}
    }

    /// The shape of a request, for [`submit_shape`](Self::submit_shape). Requests that differ only
    /// in duration have the same shape. The engine knows it for good; those of [`submit`](Self::submit) are forgotten some time after
    /// their jobs.
    pub fn shape(&mut self, request: &Request) -> ShapeId {
        let shape = self.state.node_table.shape(request);
        self.state.node_table.hold(shape);
        shape
    }

    /// Queues a job.
    ///
    /// # Errors
    ///
    /// The job is known already, or its queue is not one of this engine's.
    pub fn submit(&mut self, job: Job) -> Result<(), Error> {
        let Job {
            id,
            priority,
            request,
            queue,
        } = job;
        let shape = self.state.node_table.shape(&request);
        self.submit_shape(id, priority, shape, request.duration, queue)
    }

    /// Queues a job whose shape is known. `duration` is in seconds, 0 for no limit; a job with less
    /// than a nanosecond is planned to end as it starts.
    ///
    /// # Errors
    ///
    /// The job is known already, or its queue is not one of this engine's.
    pub fn submit_shape(
        &mut self,
        id: JobId,
        priority: u32,
        shape: ShapeId,
        duration: f64,
        queue: QueueId,
    ) -> Result<(), Error> {
        if !self.state.queues.has(queue) {
            return Err(Error::new(format!(
                "job {}: its queue is not one of this engine's",
                id.get()
            )));
        }
        let Some(handle) = self.state.jobs.insert(id, priority) else {
            return Err(Error::known_job(id));
        };
        let key = ClassKey { shape, queue };
        self.state.enqueue(handle, key, limit(duration));
        Ok(())
    }

    /// A pending job, or a running one that was started by this engine.
    pub fn job(&self, id: JobId) -> Option<Job> {
        let known = self.state.jobs.at(self.state.jobs.find(id)?);
        let (shape, queue, limit) = match known.state {
            JobState::Pending(lane) => {
                let key = self.state.queue.key_of(self.state.queue.class_of(lane));
                (key.shape, key.queue, self.state.queue.limit_of(lane))
            }
            JobState::Running(run) => {
                let running = self.state.running_jobs.at(run)?;
                let request = running.request?;
                (request.shape, running.queue, request.limit)
            }
            JobState::Unused(_) => return None,
        };
        let mut request = self.state.node_table.request(shape).clone();
        request.duration = if limit.is_finite() { limit } else { 0.0 };
        Some(Job {
            id,
            priority: known.priority,
            request,
            queue,
        })
    }

    /// The handle of a pending job.
    pub(crate) fn pending_handle(&self, id: JobId) -> Option<JobHandle> {
        Some(self.pending_job(id)?.handle)
    }

    fn pending_job(&self, id: JobId) -> Option<Pending> {
        let handle = self.state.jobs.find(id)?;
        match self.state.jobs.at(handle).state {
            JobState::Pending(lane) => Some(Pending { handle, lane }),
            _ => None,
        }
    }

    /// Removes a pending job. Returns whether there was one.
    pub fn cancel(&mut self, id: JobId) -> bool {
        let Some(handle) = self.pending_handle(id) else {
            return false;
        };
        self.state.remove_pending(handle);
        true
    }

    /// Changes the priorities of pending jobs. Returns how many of the jobs are pending.
    pub fn prioritize(&mut self, jobs: &[(JobId, u32)]) -> usize {
        let mut found = 0;
        for (id, priority) in jobs {
            if let Some(Pending { handle, lane }) = self.pending_job(*id) {
                let state = &mut self.state;
                state
                    .queue
                    .prioritize(&mut state.jobs, handle, lane, *priority);
                found += 1;
            }
        }
        found
    }

    /// The reserved start of a pending job as of the last pass (conservative and hybrid backfill);
    /// infinite if no time was found for it.
    pub fn reservation(&self, id: JobId) -> Option<f64> {
        let start = self.policy_state.reserved(self.policy, id);
        start.filter(|_| self.is_queued(id))
    }

    /// Counts of changes of everything that a pass depends on, except time and options.
    fn progress(&self) -> [u64; 4] {
        let state = &self.state;
        let (queue, runs) = (state.queue.changes(), state.running_jobs.changes());
        [queue, runs, state.node_table.change_count(), state.changes]
    }

    /// Whether nothing has changed since a pass left nothing to decide.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.0 == Some(self.progress())
    }

    /// Whether a job is pending.
    pub fn is_queued(&self, id: JobId) -> bool {
        self.pending_handle(id).is_some()
    }

    /// The number of pending jobs.
    pub fn queue_len(&self) -> usize {
        self.state.queue.len()
    }

    /// The first pending job that is not held.
    pub fn head(&self) -> Option<JobId> {
        let groups = self.state.queue.groups.iter();
        groups
            .map(|group| group.heads.first())
            .min()
            .filter(|key| !key.is_absent())
            .map(Key::id)
    }

    /// The pending jobs that are not held, in queue order.
    pub fn queue_order(&self) -> Vec<JobId> {
        let keys = self.state.queue.in_order();
        keys.into_iter().map(Key::id).collect()
    }

    /// Checks all pending jobs again in the next pass: resources that they need may have been
    /// removed.
    pub(crate) fn reconsider(&mut self) {
        self.state.queue.uncheck();
        self.state.node_table.reachable.clear();
        self.recheck = true;
        self.state.changes += 1;
    }

    /// Decides which jobs start now, and which never can: makes passes over the pending jobs, in
    /// order, until nothing more starts or `max` decisions are made. `now` is in seconds since the
    /// epoch.
    pub fn schedule(&mut self, now: f64, max: usize) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.schedule_until(now, max, u64::MAX, &mut decisions);
        decisions
    }

    /// As [`schedule`](Self::schedule), until the count of work has reached `work_end` after a pass. Returns whether nothing
    /// is left to decide.
    pub(crate) fn schedule_until(
        &mut self,
        now: f64,
        max: usize,
        work_end: u64,
        decisions: &mut Vec<Decision>,
    ) -> bool {
        self.complete_order();
        let mut is_final = self.first_pass(now, max, decisions);
        while !is_final && decisions.len() < max && self.state.work < work_end {
            let before = decisions.len();
            self.run_policy(now, max, decisions);
            is_final = decisions.len() == before;
        }
        let is_complete = is_final && decisions.len() < max;
        if is_complete {
            self.settled = Settled(Some(self.progress()));
        }
        is_complete
    }

    /// As [`schedule`](Self::schedule), with a single pass, for callers that change the engine's
    /// state between passes.
    pub fn pass(&mut self, now: f64, max: usize) -> Vec<Decision> {
        self.complete_order();
        let mut decisions = Vec::new();
        let is_final = self.first_pass(now, max, &mut decisions);
        if is_final && decisions.len() < max {
            self.settled = Settled(Some(self.progress()));
        }
        decisions
    }

    /// Denies jobs that have become impossible, and makes a pass. Returns whether another pass would
    /// add no decision, unless this one has stopped at `max`.
    fn first_pass(&mut self, now: f64, max: usize, decisions: &mut Vec<Decision>) -> bool {
        // A start may use resources that another job would have had to leave free, or that another
        // group has reserved; or it fills its queue, whose other jobs lose their reservations. Then
        // other jobs can start in the next pass.
        let is_final = match self.policy {
            Policy::Fcfs => true,
            Policy::Easy | Policy::Hybrid { .. } => false,
            Policy::Conservative => {
                let groups = self.state.queue.groups.iter();
                groups.filter(|group| group.has_jobs()).count() <= 1
                    && !self.state.queues.any_limited()
            }
        };
        self.deny_impossible(max, decisions);
        self.run_policy(now, max, decisions);
        is_final || decisions.is_empty()
    }

    fn run_policy(&mut self, now: f64, max: usize, decisions: &mut Vec<Decision>) {
        self.settled = Settled(None);
        let state = &mut self.state;
        state.work += PASS_WORK;
        self.policy_state
            .run(self.policy, state, now, max, decisions);
    }

    /// Denies jobs, at any position, that can no longer run after a change.
    fn deny_impossible(&mut self, max: usize, decisions: &mut Vec<Decision>) {
        let state = &mut self.state;
        if std::mem::take(&mut self.recheck) {
            let classes = (0..state.queue.classes.len()).map(ClassId::from_usize);
            let impossible: Vec<bool> = classes
                .map(|class| state.possible(class).is_err())
                .collect();
            let mut suspects: Vec<Key> = Vec::new();
            if impossible.contains(&true) {
                for (handle, job) in state.jobs.iter() {
                    if let JobState::Pending(lane) = job.state
                        && impossible[state.queue.class_of(lane).index()]
                    {
                        suspects.push(Key::new(job.effective_priority, job.id, handle));
                    }
                }
            }
            suspects.sort_unstable();
            self.suspects = suspects.into_iter().rev().map(Key::id).collect();
        }
        while decisions.len() < max {
            let Some(id) = self.suspects.pop() else {
                break;
            };
            let Some(Pending { handle, lane }) = self.pending_job(id) else {
                continue;
            };
            let state = &mut self.state;
            let class = state.queue.class_of(lane);
            if let Err(reason) = state.possible(class) {
                let note = reason.to_string();
                state.remove_pending(handle);
                decisions.push(Decision::Deny { id, note });
            }
        }
    }

    /// Checks whether the whole inventory, idle and up, could run a request.
    ///
    /// # Errors
    ///
    /// It could not; the text of the error is the note of a denial.
    pub fn feasible(&mut self, request: &Request) -> Result<(), Infeasible> {
        let node_table = &mut self.state.node_table;
        let shape = node_table.shape(request);
        node_table.feasible(shape).map_err(Clone::clone)
    }

    /// The R of a running job, with start time and expiration.
    ///
    /// # Errors
    ///
    /// The job is not running.
    pub fn r(&self, id: JobId) -> Result<ResourceSet, Error> {
        let wrap = |error: penstock_rset::Error| Error::new(error.to_string());
        let running = self.state.running_job(id)?;
        let mut r = self.state.node_table.r(&running.shares)?;
        r.set_starttime(Some(running.start).filter(|start| *start > 0.0))
            .map_err(wrap)?;
        r.set_expiration(running.expiration()).map_err(wrap)?;
        let slots = running.shares.slots();
        r.set_nslots(Some(slots).filter(|slots| *slots > 0));
        Ok(r)
    }

    /// Appends the JSON text of a running job's R.
    ///
    /// # Errors
    ///
    /// The job is not running.
    pub fn write_r(&self, id: JobId, text: &mut String) -> Result<(), Error> {
        let running = self.state.running_job(id)?;
        let slots = running.shares.slots();
        self.state.node_table.write_r(
            &running.shares,
            Some(running.start),
            running.expiration(),
            Some(slots).filter(|slots| *slots > 0),
            text,
        );
        Ok(())
    }

    /// Bytes on the heap for nodes and the views over them; shapes, queues and jobs are not
    /// counted.
    pub fn node_table_bytes(&self) -> usize {
        self.state.node_table.heap_bytes()
    }

    /// The R of all allocated resources.
    ///
    /// # Errors
    ///
    /// The allocations do not form an R, which is a bug.
    pub fn allocated(&self) -> Result<ResourceSet, Error> {
        let shares = self
            .state
            .running_jobs
            .iter()
            .flat_map(|(_, running)| running.shares.iter());
        let mut all = Allocation::default();
        all.merge(shares.cloned().collect());
        self.state.node_table.r(&all)
    }

    /// The ranks of the inventory, up or down.
    pub fn ranks(&self) -> &IdSet {
        self.state.node_table.ranks()
    }

    /// The ranks that are up.
    pub fn up(&self) -> IdSet {
        self.state.node_table.up()
    }
}
