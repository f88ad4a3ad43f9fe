//! The event loop: virtual time, and the events in it.
//!
//! At one instant, first all completions, then failures and returns of nodes, then all arrivals,
//! then passes of the scheduler until nothing more starts. A job without run time has its resources
//! for the pass that starts it and frees them before the next one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use penstock_engine::Decision;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;

use crate::Error;
use crate::failures::Failures;
use crate::results::{JobResult, RankRange, Recorded, Results};
use crate::scheduler::Scheduler;
use crate::series::Series;
use crate::setup::{Hardware, Machine, Setup};
use crate::unit_pool::{Pooled, UnitPool};
use crate::workload::{Dependencies, Dependent, JobIndex, Requested, TraceJobId, Workload, real};

/// Maximum number of recorded reasons of denials.
const MAX_LISTED_DENIALS: usize = 100;

/// Counters of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Arrivals, completions, and failures and returns of nodes.
    pub events: u64,
    /// Passes of the scheduler.
    pub passes: u64,
    /// Jobs that have ended, with any result.
    pub done: u64,
    /// The number of times that a job was stopped by the failure of a node.
    pub failed: u64,
    /// Maximum number of pending jobs after all passes of an instant.
    pub deepest: u32,
    /// Core-seconds used by jobs that have ended or were stopped.
    pub core_seconds: f64,
    /// Core-seconds used up to the last submit time.
    pub(crate) early_core_seconds: f64,
    /// Core-seconds lost to failures of nodes, a part of `core_seconds`.
    pub lost_core_seconds: f64,
    /// The first submit time of the jobs that were started.
    pub(crate) first_submit: Option<f64>,
    /// When a job last freed its cores.
    pub(crate) last_end: Option<f64>,
    /// Jobs that did not start at once; some of them get estimates.
    pub(crate) waited: u64,
}

/// A reason for which jobs were denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The note of the denials.
    pub reason: String,
    /// The number of jobs that were denied with it.
    pub jobs: u64,
    /// The id of the first of them.
    pub first: TraceJobId,
}

/// The planned completion of a job; completions are ordered by time, then job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Completion {
    /// The bits of the time, which sort as times from 0 on do.
    time_bits: u64,
    job: JobIndex,
}

impl Completion {
    fn new(time: f64, job: JobIndex) -> Self {
        let time_bits = time.to_bits();
        Self { time_bits, job }
    }

    fn time(&self) -> f64 {
        f64::from_bits(self.time_bits)
    }
}

/// A simulation of a workload on a machine.
pub struct Simulation {
    workload: Arc<Workload>,
    setup: Setup,
    scheduler: Scheduler,
    /// If all nodes are alike: the pool that stands for them (see [`UnitPool`]).
    unit_pool: Option<UnitPool>,
    machine_cores: u64,
    machine_nodes: u64,
    is_pool: bool,
    /// The request of the jobs of each shape, in cores and nodes.
    requested: Vec<Requested>,
    failures: Failures,
    next_arrival: usize,
    /// Planned completions, the earliest first.
    completions: BinaryHeap<Reverse<Completion>>,
    /// For each job, the number of its dependencies that have not ended; empty without
    /// dependencies.
    open_dependencies: Vec<u32>,
    /// All dependencies, ordered by the job that others depend on.
    dependents: Vec<Dependent>,
    /// The ends of think times: from then on a job no longer waits for a dependency.
    think_ends: BinaryHeap<Reverse<Completion>>,
    /// Jobs whose submit time is past and whose last dependency has ended.
    released: Vec<JobIndex>,
    now: f64,
    used: u64,
    queued: u32,
    /// Pending jobs with priority 0, which never start.
    held: u32,
    results: Results,
    series: Series,
    tally: Tally,
    denials: Vec<Denial>,
    ranks: Vec<u32>,
    /// Pending jobs that arrived at this instant and are to get an estimate.
    unestimated: Vec<JobId>,
}

impl Simulation {
    /// A simulation that has not begun.
    ///
    /// A job that is only too large for the machine is denied at its submit time.
    ///
    /// # Errors
    ///
    /// A job or a failure names resources that such a machine cannot have.
    pub fn new(workload: Arc<Workload>, machine: &Machine, setup: Setup) -> Result<Self, Error> {
        let hardware = Hardware::new(machine)?;
        let requests = hardware.requests(&workload, &setup)?;
        let failures = hardware.failures(&setup, workload.span())?;
        let shapes = workload.shapes.iter().zip(&requests);
        let requested: Vec<Requested> = shapes
            .map(|(shape, request)| hardware.requested(shape, request))
            .collect();
        let pooled = UnitPool::of(&hardware, &setup, &requests)?;
        let (scheduler, unit_pool) = if let Some(Pooled { pool, requests }) = pooled {
            let resources = Hardware::pool(pool.count())?.resources;
            let scheduler = Scheduler::new(&resources, &setup, &requests, &workload.queues)?;
            (scheduler, Some(pool))
        } else {
            let resources = &hardware.resources;
            let scheduler = Scheduler::new(resources, &setup, &requests, &workload.queues)?;
            (scheduler, None)
        };
        let jobs = workload.len();
        let Dependencies {
            open_dependencies,
            dependents,
        } = workload.dependencies();
        let allocations = setup.allocations && !hardware.is_pool;
        let recorded = Recorded {
            estimates: setup.estimate_every > 0,
            allocations,
        };
        let mut results = Results::new(jobs, recorded);
        for (index, shape) in workload.shape.iter().enumerate() {
            let requested = requested[shape.index()];
            results.cores[index] = requested.cores;
            results.nodes[index] = requested.nodes;
        }
        Ok(Self {
            results,
            requested,
            workload,
            setup,
            scheduler,
            unit_pool,
            machine_cores: hardware.cores,
            machine_nodes: hardware.nodes,
            is_pool: hardware.is_pool,
            failures,
            next_arrival: 0,
            completions: BinaryHeap::new(),
            open_dependencies,
            dependents,
            think_ends: BinaryHeap::new(),
            released: Vec::new(),
            now: 0.0,
            used: 0,
            queued: 0,
            held: 0,
            series: Series::default(),
            tally: Tally::default(),
            denials: Vec::new(),
            ranks: Vec::new(),
            unestimated: Vec::new(),
        })
    }

    /// Runs until `events` events have been processed, and to the end of the instant of the last
    /// one. Returns whether any events are left.
    ///
    /// # Errors
    ///
    /// The scheduler contradicts itself, which is a bug.
    pub fn advance(&mut self, events: u64) -> Result<bool, Error> {
        self.advance_while(events, &mut |_, _| true)
    }

    /// As [`advance`](Self::advance), until `may_continue` returns `false`. It is called after each
    /// instant and at each step of an estimate, with the number of jobs that have ended and the
    /// time of the trace. A stopped simulation can be advanced again, with the same final results.
    ///
    /// # Errors
    ///
    /// The scheduler contradicts itself, which is a bug.
    pub fn advance_while(
        &mut self,
        events: u64,
        may_continue: &mut dyn FnMut(u64, f64) -> bool,
    ) -> Result<bool, Error> {
        let until = self.tally.events.saturating_add(events);
        if !self.estimate_starts(may_continue) {
            return Ok(true);
        }
        while self.tally.events < until {
            let Some(time) = self.next_time() else {
                return Ok(false);
            };
            let last = self.workload.submit.last().copied().unwrap_or(0.0);
            if self.now < last {
                let lasts = time.min(last) - self.now;
                self.tally.early_core_seconds += real(self.used) * lasts;
            }
            self.now = time;
            self.process_instant()?;
            if !self.estimate_starts(may_continue) || !may_continue(self.tally.done, self.now) {
                break;
            }
        }
        Ok(!self.unestimated.is_empty() || self.next_time().is_some())
    }

    /// The time of the next event.
    fn next_time(&self) -> Option<f64> {
        let completion = self
            .completions
            .peek()
            .map(|Reverse(completion)| completion.time());
        let arrival = self.workload.submit.get(self.next_arrival).copied();
        let think_end = self.think_ends.peek().map(|Reverse(end)| end.time());
        let next = [completion, arrival, think_end]
            .into_iter()
            .flatten()
            .min_by(f64::total_cmp);
        // Without jobs that could run, changes of nodes do not matter.
        if next.is_none() && (self.queued == self.held || !self.failures.may_help()) {
            return None;
        }
        next.into_iter()
            .chain(self.failures.time())
            .min_by(f64::total_cmp)
    }

    /// Processes all events of the current instant.
    fn process_instant(&mut self) -> Result<(), Error> {
        self.complete_jobs()?;
        self.end_think_times();
        self.process_failures()?;
        let arrived = self.next_arrival;
        self.process_arrivals()?;
        loop {
            self.submit_released()?;
            let decided = self.pass();
            self.complete_jobs()?;
            if !decided && self.released.is_empty() {
                break;
            }
        }
        self.series.push(self.now, self.used, self.queued);
        self.tally.deepest = self.tally.deepest.max(self.queued);
        self.select_for_estimates(arrived);
        Ok(())
    }

    /// Completes the jobs that end now.
    fn complete_jobs(&mut self) -> Result<(), Error> {
        let now = self.now.to_bits();
        while let Some(Reverse(Completion { time_bits, job })) = self.completions.peek().copied() {
            if time_bits != now {
                break;
            }
            self.completions.pop();
            let index = job.index();
            // A job that has been stopped since, or stopped and started again, does not end now.
            let ends_now = self.results.result[index] == JobResult::Running
                && self.results.end[index].to_bits() == now;
            if !ends_now {
                continue;
            }
            self.tally.events += 1;
            let overran = self.workload.run[index] > self.workload.limit[index];
            let result = if overran && self.setup.kill_at_limit {
                JobResult::Killed
            } else {
                JobResult::Completed
            };
            self.stop(job)?;
            self.end(job, result);
        }
        Ok(())
    }

    /// Stops a running job. Returns the core-seconds that it used.
    fn stop(&mut self, job: JobIndex) -> Result<f64, Error> {
        let index = job.index();
        if self.failures.any() {
            self.scheduler.ranks_of(id(job), &mut self.ranks);
            self.failures.stop(job, &self.ranks);
        }
        self.scheduler.finish(id(job))?;
        if let Some(pool) = &mut self.unit_pool {
            pool.release(job);
        }
        let cores = u64::from(self.results.cores[index]);
        self.used = self.used.saturating_sub(cores);
        let core_seconds = real(cores) * (self.now - self.results.start[index]);
        self.tally.core_seconds += core_seconds;
        self.tally.last_end = Some(self.now);
        self.results.end[index] = self.now;
        Ok(core_seconds)
    }

    /// Ends a job with any result, and releases the jobs that depend on it.
    fn end(&mut self, job: JobIndex, result: JobResult) {
        self.results.result[job.index()] = result;
        self.tally.done += 1;
        let first = self
            .dependents
            .partition_point(|dependent| dependent.before < job);
        let dependents = self.dependents[first..].iter();
        let dependents = dependents.take_while(|dependent| dependent.before == job);
        let dependents: Vec<JobIndex> = dependents.map(|dependent| dependent.job).collect();
        for job in dependents {
            let think_times = &self.workload.think_times;
            match think_times.get(job.index()).filter(|think| **think > 0.0) {
                Some(think) => {
                    let end = Completion::new(self.now + think, job);
                    self.think_ends.push(Reverse(end));
                }
                None => self.close_dependency(job),
            }
        }
    }

    /// Counts a dependency of a job as ended, and releases the job after the last one.
    fn close_dependency(&mut self, job: JobIndex) {
        let open = &mut self.open_dependencies[job.index()];
        *open -= 1;
        if *open == 0 && job.index() < self.next_arrival {
            self.released.push(job);
        }
    }

    /// Ends the think times that have ended.
    fn end_think_times(&mut self) {
        while let Some(Reverse(end)) = self.think_ends.peek().copied() {
            if end.time() > self.now {
                break;
            }
            self.think_ends.pop();
            self.tally.events += 1;
            self.close_dependency(end.job);
        }
    }

    /// Processes the failures and returns of nodes that are due.
    fn process_failures(&mut self) -> Result<(), Error> {
        while let Some(failure) = self.failures.take_due(self.now)? {
            self.tally.events += 1;
            self.scheduler.mark(&failure);
            if failure.up {
                continue;
            }
            for job in self.failures.jobs_on(&failure.ranks) {
                self.tally.failed += 1;
                self.tally.lost_core_seconds += self.stop(job)?;
                if self.setup.requeue {
                    let shape = self.workload.shape[job.index()];
                    let requested = self.requested[shape.index()];
                    self.results.requeue(job.index(), requested);
                    self.submit(job)?;
                } else {
                    self.end(job, JobResult::Lost);
                }
            }
        }
        Ok(())
    }

    /// Submits the jobs that arrive now and have no open dependency.
    fn process_arrivals(&mut self) -> Result<(), Error> {
        while let Some(submit) = self.workload.submit.get(self.next_arrival) {
            if *submit > self.now {
                break;
            }
            let job = JobIndex::from_usize(self.next_arrival);
            self.next_arrival += 1;
            self.tally.events += 1;
            if !self.has_open_dependencies(job.index()) {
                self.submit(job)?;
            }
        }
        Ok(())
    }

    /// Whether a job has dependencies that have not ended.
    fn has_open_dependencies(&self, index: usize) -> bool {
        let open = self.open_dependencies.get(index);
        open.is_some_and(|open| *open > 0)
    }

    /// Submits the jobs whose last dependency has ended.
    fn submit_released(&mut self) -> Result<(), Error> {
        for job in std::mem::take(&mut self.released) {
            self.submit(job)?;
        }
        Ok(())
    }

    fn submit(&mut self, job: JobIndex) -> Result<(), Error> {
        let index = job.index();
        let limit = self.workload.limit[index];
        self.scheduler.submit(
            id(job),
            limit,
            self.workload.shape[index],
            self.workload.priority[index],
            self.workload.queue[index],
        )?;
        self.queued += 1;
        self.held += u32::from(self.workload.priority[index].is_held());
        Ok(())
    }

    /// Makes a scheduler pass. Returns whether it decided anything.
    fn pass(&mut self) -> bool {
        if self.queued == 0 {
            return false;
        }
        self.tally.passes += 1;
        let decisions = self.scheduler.pass(self.now);
        let decided = !decisions.is_empty();
        for decision in decisions {
            self.queued = self.queued.saturating_sub(1);
            match decision {
                Decision::Alloc { id, backfilled } => {
                    let job = job_of(id);
                    self.results.backfilled[job.index()] = backfilled;
                    self.start(job);
                }
                Decision::Deny { id, note } => {
                    let job = job_of(id);
                    let held = self.workload.priority[job.index()].is_held();
                    self.held -= u32::from(held);
                    let shape = self.workload.shape[job.index()];
                    let pool = self.unit_pool.as_ref();
                    let of_nodes = pool.and_then(|pool| pool.note(shape)).cloned();
                    self.record_denial(job, of_nodes.unwrap_or(note));
                    self.end(job, JobResult::Denied);
                }
            }
        }
        decided
    }

    /// Records why a job was denied.
    fn record_denial(&mut self, job: JobIndex, reason: String) {
        if let Some(known) = self
            .denials
            .iter_mut()
            .find(|denial| denial.reason == reason)
        {
            known.jobs += 1;
        } else if self.denials.len() < MAX_LISTED_DENIALS {
            let first = self.workload.id[job.index()];
            self.denials.push(Denial {
                reason,
                jobs: 1,
                first,
            });
        }
    }

    /// Starts a job that the scheduler has allocated resources.
    fn start(&mut self, job: JobIndex) {
        let index = job.index();
        let (cores, nodes, first) = if self.is_pool {
            let shape = &self.workload.shapes[self.workload.shape[index].index()];
            let cores = if shape.is_exact() {
                shape.ncores()
            } else {
                self.scheduler.ranks_of(id(job), &mut self.ranks)
            };
            (cores, 1, 0)
        } else if let Some(pool) = &mut self.unit_pool {
            let allocated = pool.allocate(job, self.workload.shape[index]);
            let ranks = allocated.ranks;
            self.results.record_ranks(index, ranks.iter().copied());
            let nodes = ranks
                .iter()
                .map(|range| u64::from(range.last - range.first) + 1);
            let first = ranks.first().map_or(0, |range| range.first);
            (allocated.cores, nodes.sum(), first)
        } else {
            let cores = self.scheduler.ranks_of(id(job), &mut self.ranks);
            self.failures.start(job, &self.ranks);
            let single = |rank: &u32| RankRange {
                first: *rank,
                last: *rank,
            };
            self.results
                .record_ranks(index, self.ranks.iter().map(single));
            let first = self.ranks.first().copied().unwrap_or(0);
            (cores, self.ranks.len() as u64, first)
        };
        let run = self.workload.run[index];
        let duration = if self.setup.kill_at_limit {
            run.min(self.workload.limit[index])
        } else {
            run
        };
        let end = self.now + duration;
        self.used = self.used.saturating_add(cores);
        let submit = self.workload.submit[index];
        let earliest = self.tally.first_submit.get_or_insert(submit);
        *earliest = earliest.min(submit);
        let results = &mut self.results;
        results.start[index] = self.now;
        results.end[index] = end;
        results.cores[index] = u32::try_from(cores).unwrap_or(u32::MAX);
        results.nodes[index] = u32::try_from(nodes).unwrap_or(u32::MAX);
        results.first_rank[index] = first;
        results.result[index] = JobResult::Running;
        self.completions.push(Reverse(Completion::new(end, job)));
    }

    /// The workload.
    pub fn workload(&self) -> &Arc<Workload> {
        &self.workload
    }

    /// The results so far.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// Cores in use and pending jobs over time.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The core numbers of each job of a pool; empty for jobs that never ran. The cores of a pool
    /// are identical: in the order of starts, each job gets the lowest free ones.
    pub fn pool_cores(&self) -> Vec<IdSet> {
        self.results.pool_cores(self.machine_cores)
    }

    /// The current time of the trace, in seconds.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// The number of jobs that have ended: completed, killed, lost or denied.
    pub fn done(&self) -> u64 {
        self.tally.done
    }

    /// The cores of the machine.
    pub fn cores(&self) -> u64 {
        self.machine_cores
    }

    /// The nodes of the machine; a pool counts as one.
    pub fn nodes(&self) -> u64 {
        self.machine_nodes
    }

    /// Whether the machine is one pool of cores.
    pub fn is_pool(&self) -> bool {
        self.is_pool
    }

    /// The counters so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Why jobs were denied, in the order of the first denial with each reason; only the first 100
    /// reasons are kept.
    pub fn denials(&self) -> &[Denial] {
        &self.denials
    }
}

/// The engine's id of a job: its index in the order of submission, plus 1.
fn id(job: JobIndex) -> JobId {
    JobId::new(u64::from(job.get()) + 1)
}

fn job_of(id: JobId) -> JobIndex {
    JobIndex::new(u32::try_from(id.get().saturating_sub(1)).unwrap_or(u32::MAX))
}

impl Simulation {
    /// Selects jobs for an estimate: of the jobs from index `from` on, which have just arrived,
    /// some of the pending ones.
    fn select_for_estimates(&mut self, from: usize) {
        let every = u64::from(self.setup.estimate_every);
        if every == 0 {
            return;
        }
        for index in from..self.next_arrival {
            let is_pending = self.results.result[index] == JobResult::Pending;
            if is_pending && !self.has_open_dependencies(index) {
                if self.tally.waited.is_multiple_of(every) {
                    self.unestimated.push(id(JobIndex::from_usize(index)));
                }
                self.tally.waited += 1;
            }
        }
    }

    /// Estimates the starts of the selected jobs. Returns `false` if `may_continue` stopped it.
    fn estimate_starts(&mut self, may_continue: &mut dyn FnMut(u64, f64) -> bool) -> bool {
        if self.unestimated.is_empty() {
            return true;
        }
        let (done, now) = (self.tally.done, self.now);
        let pending = &self.unestimated;
        let mut may_continue = || may_continue(done, now);
        let Some(starts) = self.scheduler.forecast(pending, now, &mut may_continue) else {
            return false;
        };
        for (id, start) in self.unestimated.drain(..).zip(starts) {
            if start.is_finite() {
                self.results.estimate[job_of(id).index()] = start;
            }
        }
        true
    }
}
