//! Workloads: the jobs of a simulation, in columns, in the order of submission.

use std::collections::HashMap;
use std::fmt;

use penstock_jobspec::{Constraint, Count};

use crate::Error;
use crate::error::{brief, grouped};
use crate::estimates::Estimates;
use crate::random::Random;

/// Maximum number of jobs of a workload: their indices are 32 bits wide.
const MAX_JOBS: usize = (u32::MAX - 1) as usize;

/// Maximum number of jobs that a model generates: more hardly fit into memory.
pub const MAX_GENERATED_JOBS: u32 = 100_000_000;

/// Number of generated jobs, taking some milliseconds, between two checks of whether to stop.
const JOBS_PER_STOP_CHECK: usize = 1 << 14;

/// The largest time of a job, in seconds: about 30,000 years. Far beyond that, adding a second
/// would change nothing.
pub(crate) const MAX_TIME_S: f64 = 1e12;

/// The end of the sentence about the default for a missing estimate.
pub(crate) const RUN_TIME_TAKEN: &str = "the run time is taken as the estimate";

/// A job of a workload, by its index in the order of submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct JobIndex(u32);

impl JobIndex {
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The index of an entry of the columns. A workload has fewer than `u32::MAX` jobs.
    pub fn from_usize(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub const fn get(self) -> u32 {
        self.0
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A job shape of a workload, by its index in the order of first occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct ShapeIndex(u32);

impl ShapeIndex {
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    pub const fn get(self) -> u32 {
        self.0
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A queue of a workload, by its index in the order of first occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct QueueIndex(u16);

impl QueueIndex {
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The id that a workload gives a job. A trace may repeat it; the engine has ids of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct TraceJobId(u64);

impl TraceJobId {
    /// The id with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TraceJobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The priority of a job (RFC 30); jobs of a higher one come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Priority(u32);

impl Priority {
    /// The priority of a job that names none.
    pub const DEFAULT: Self = Self(16);

    /// The priority with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether a job with this priority is held: it never starts.
    pub const fn is_held(self) -> bool {
        self.0 == 0
    }
}

/// A dependency, seen from the job that depends on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dependency {
    pub job: JobIndex,
    /// The job that has to end first.
    pub before: JobIndex,
}

/// A dependency, seen from the job that has to end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dependent {
    pub before: JobIndex,
    pub job: JobIndex,
}

/// The dependencies of a workload, indexed for processing in the order of completions.
pub(crate) struct Dependencies {
    /// For each job, how many others have to end first; empty without dependencies.
    pub open_dependencies: Vec<u32>,
    /// Ordered by the job that has to end first.
    pub dependents: Vec<Dependent>,
}

/// The cores and nodes that a job requests, at least; nodes are 0 if any number is acceptable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requested {
    pub cores: u32,
    pub nodes: u32,
}

/// The times of a job, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobTimes {
    pub submit: f64,
    pub run: f64,
    /// Infinite for none.
    pub limit: f64,
}

/// The resources that a job requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobShape {
    /// Nodes, if it requests nodes.
    pub nodes: Option<Count>,
    /// Slots: on each node if it requests nodes, otherwise in all and anywhere.
    pub slots: Count,
    /// Cores of each slot.
    pub cores_per_slot: Count,
    /// Gpus of each slot.
    pub gpus_per_slot: Count,
    /// Whether it requests whole nodes.
    pub exclusive: bool,
    /// The condition on its nodes; `None` for any.
    pub constraint: Option<Constraint>,
}

impl JobShape {
    /// A shape of `cores` cores on any nodes.
    pub fn cores(cores: u32) -> Self {
        Self {
            nodes: None,
            slots: Count::exactly(cores),
            cores_per_slot: Count::exactly(1),
            gpus_per_slot: Count::exactly(0),
            exclusive: false,
            constraint: None,
        }
    }

    /// The cores of all slots together, at least.
    pub fn ncores(&self) -> u64 {
        let nodes = self.nodes.as_ref().map_or(1, Count::min);
        u64::from(self.slots.min())
            .saturating_mul(self.cores_per_slot.min().into())
            .saturating_mul(nodes.into())
    }

    /// The cores of all slots together, at most; `None` for no limit.
    pub fn max_cores(&self) -> Option<u64> {
        let nodes = self.nodes.as_ref().map_or(Some(1), Count::max)?;
        let slots = u64::from(self.slots.max()?);
        let cores = self.cores_per_slot.max()?;
        Some(
            slots
                .saturating_mul(cores.into())
                .saturating_mul(nodes.into()),
        )
    }

    /// Whether no count is a range.
    pub fn is_exact(&self) -> bool {
        let per_slot = [&self.slots, &self.cores_per_slot, &self.gpus_per_slot];
        self.nodes.iter().chain(per_slot).all(Count::is_exact)
    }

    /// Whether it requests nothing but cores, anywhere: all that a pool of cores has.
    pub fn is_cores_alone(&self) -> bool {
        self.nodes.is_none() && self.gpus_per_slot == 0 && self.constraint.is_none()
    }
}

/// One job of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceJob {
    /// Its id in the results.
    pub id: TraceJobId,
    /// When it is submitted, in seconds of the trace.
    pub submit: f64,
    /// Its run time, in seconds.
    pub run: f64,
    /// The user's estimate, in seconds, by which the scheduler plans. Infinite for no estimate.
    pub limit: f64,
    /// The resources that it requests.
    pub shape: JobShape,
    /// Its priority; 0 is held.
    pub priority: Priority,
    /// Its queue; empty for the default one.
    pub queue: String,
}

/// A value of each job that a trace has beside the simulated ones, in file order.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Numbers, NaN for unknown ones.
    Numbers(Vec<f64>),
    /// Texts, empty for unknown ones.
    Texts(Vec<Box<str>>),
    /// Values in JSON, empty for unknown ones.
    Json(Vec<Box<str>>),
}

/// Jobs in the order of their submit times, equal ones in file order.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    pub(crate) name: String,
    pub(crate) id: Vec<TraceJobId>,
    pub(crate) submit: Vec<f64>,
    pub(crate) run: Vec<f64>,
    pub(crate) limit: Vec<f64>,
    pub(crate) shape: Vec<ShapeIndex>,
    pub(crate) priority: Vec<Priority>,
    pub(crate) queue: Vec<QueueIndex>,
    /// The index of each job of the file, by its number there; empty if the order is the same.
    pub(crate) file_order: Vec<u32>,
    /// The dependencies, by the dependent job.
    pub(crate) after: Vec<Dependency>,
    /// For each job, the seconds from the end of its last dependency to its release; empty if none has any.
    pub(crate) think_times: Vec<f64>,
    /// Further columns of the trace, by name.
    columns: Vec<(Box<str>, Column)>,
    pub(crate) shapes: Vec<JobShape>,
    pub(crate) queues: Vec<String>,
    shape_indices: HashMap<JobShape, ShapeIndex>,
    queue_indices: HashMap<String, QueueIndex>,
    header: Vec<(String, String)>,
    assumptions: Vec<String>,
    pool: Option<Pool>,
}

/// The cores that the jobs ran on, and the source of their number.
#[derive(Clone, Debug)]
struct Pool {
    cores: u64,
    origin: String,
}

/// The first and the last submit time of a workload, in seconds of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SubmitSpan {
    /// The first one.
    pub first: f64,
    /// The last one.
    pub last: f64,
}

impl Workload {
    /// A workload without jobs. The name is that of the file or of the model.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds a job. [`finish`](Self::finish) sorts the jobs.
    ///
    /// # Errors
    ///
    /// A time is negative, NaN or too late, there are too many jobs, or there are
    /// more than 65,536 queues.
    pub fn push(&mut self, job: TraceJob) -> Result<(), Error> {
        let shape = self.shape_index(job.shape)?;
        let queue = self.queue_index(job.queue)?;
        let times = JobTimes {
            submit: job.submit,
            run: job.run,
            limit: job.limit,
        };
        self.push_shape(job.id, times, shape, job.priority, queue)
    }

    /// Adds a job whose shape and queue are known by index.
    pub(crate) fn push_shape(
        &mut self,
        id: TraceJobId,
        times: JobTimes,
        shape: ShapeIndex,
        priority: Priority,
        queue: QueueIndex,
    ) -> Result<(), Error> {
        let JobTimes { submit, run, limit } = times;
        if self.id.len() >= MAX_JOBS {
            let most = grouped(MAX_JOBS as u64);
            return Err(Error::new(format!("expected at most {most} jobs")));
        }
        for (what, time) in [("submit time", submit), ("run time", run), ("limit", limit)] {
            let is_none = what == "limit" && time == f64::INFINITY;
            if !is_none && !(0.0..=MAX_TIME_S).contains(&time) {
                let time = brief(time);
                return Err(Error::new(format!(
                    "job {id}: {what} {time}: expected seconds from 0 on, at most {MAX_TIME_S:e}"
                )));
            }
        }
        self.id.push(id);
        // Adding 0 turns -0.0, which sorts before 0, into 0.
        self.submit.push(submit + 0.0);
        self.run.push(run + 0.0);
        self.limit.push(limit + 0.0);
        self.shape.push(shape);
        self.priority.push(priority);
        self.queue.push(queue);
        Ok(())
    }

    /// The index of a shape, which is added if it is new.
    pub(crate) fn shape_index(&mut self, shape: JobShape) -> Result<ShapeIndex, Error> {
        if let Some(index) = self.shape_indices.get(&shape) {
            return Ok(*index);
        }
        let number = u32::try_from(self.shapes.len()).map_err(|_| Error::new("too many shapes"))?;
        let index = ShapeIndex::new(number);
        self.shapes.push(shape.clone());
        self.shape_indices.insert(shape, index);
        Ok(index)
    }

    /// The index of a queue, which is added if it is new.
    pub(crate) fn queue_index(&mut self, queue: String) -> Result<QueueIndex, Error> {
        if let Some(index) = self.queue_indices.get(&queue) {
            return Ok(*index);
        }
        let number = u16::try_from(self.queues.len())
            .map_err(|_| Error::new("expected at most 65,536 queues"))?;
        let index = QueueIndex::new(number);
        self.queues.push(queue.clone());
        self.queue_indices.insert(queue, index);
        Ok(index)
    }

    /// Sorts the jobs by submit time, stably. Returns whether they were out of order.
    pub(crate) fn sort(&mut self) -> bool {
        if self.submit.is_sorted() {
            return false;
        }
        // `push` ensures that the indices fit into 32 bits.
        let mut order: Vec<u32> = (0u32..).take(self.id.len()).collect();
        order.sort_by(|a, b| self.submit[*a as usize].total_cmp(&self.submit[*b as usize]));
        permute(&mut self.id, &order);
        permute(&mut self.submit, &order);
        permute(&mut self.run, &order);
        permute(&mut self.limit, &order);
        permute(&mut self.shape, &order);
        permute(&mut self.priority, &order);
        permute(&mut self.queue, &order);
        if !self.think_times.is_empty() {
            permute(&mut self.think_times, &order);
        }
        let mut new_index = vec![0; order.len()];
        for (new, old) in (0u32..).zip(&order) {
            new_index[*old as usize] = new;
        }
        for Dependency { job, before } in &mut self.after {
            *job = JobIndex::new(new_index[job.index()]);
            *before = JobIndex::new(new_index[before.index()]);
        }
        self.after.sort_unstable();
        self.file_order = new_index;
        true
    }

    /// Sorts the jobs by submit time, equal ones in the order in which they were added.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.sort();
        self
    }

    /// The source of the jobs: the file, or the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dependencies, indexed for processing in the order of completions.
    pub(crate) fn dependencies(&self) -> Dependencies {
        let mut open_dependencies = Vec::new();
        let mut dependents: Vec<Dependent> = Vec::with_capacity(self.after.len());
        if !self.after.is_empty() {
            open_dependencies = vec![0; self.len()];
            for Dependency { job, before } in &self.after {
                open_dependencies[job.index()] += 1;
                dependents.push(Dependent {
                    before: *before,
                    job: *job,
                });
            }
            dependents.sort_unstable();
        }
        Dependencies {
            open_dependencies,
            dependents,
        }
    }

    /// The number of jobs.
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// Whether there are no jobs.
    pub fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    /// The ids of the jobs.
    pub fn ids(&self) -> &[TraceJobId] {
        &self.id
    }

    /// The submit times of the jobs, in seconds of the trace, ascending.
    pub fn submits(&self) -> &[f64] {
        &self.submit
    }

    /// The job at an index.
    pub fn job(&self, index: usize) -> Option<TraceJob> {
        Some(TraceJob {
            id: *self.id.get(index)?,
            submit: self.submit[index],
            run: self.run[index],
            limit: self.limit[index],
            shape: self.shapes[self.shape[index].index()].clone(),
            priority: self.priority[index],
            queue: self.queues[self.queue[index].index()].clone(),
        })
    }

    /// The index of a job, given its number in the file, counted from 0 without the jobs left out.
    pub fn index_from_file(&self, number: usize) -> usize {
        self.file_order
            .get(number)
            .map_or(number, |index| *index as usize)
    }

    /// The further columns of the trace, by name, in file order without the jobs left out.
    pub fn columns(&self) -> &[(Box<str>, Column)] {
        &self.columns
    }

    /// The queue of each job, in file order; `None` if every job is in the default one.
    pub fn queue_names(&self) -> Option<Vec<&str>> {
        if self.queues.iter().all(String::is_empty) {
            return None;
        }
        let indices = (0..self.len()).map(|place| self.index_from_file(place));
        let name = |index: usize| self.queues[self.queue[index].index()].as_str();
        Some(indices.map(name).collect())
    }

    /// Adds a column, unless the value of every job is unknown.
    pub(crate) fn add_column(&mut self, name: &str, column: Column) {
        let is_known = match &column {
            Column::Numbers(numbers) => numbers.iter().any(|number| !number.is_nan()),
            Column::Texts(texts) | Column::Json(texts) => texts.iter().any(|text| !text.is_empty()),
        };
        if is_known {
            self.columns.push((name.into(), column));
        }
    }

    /// A number of a further column for each job, in the order of submission; NaN where it is unknown.
    pub(crate) fn numbers_by_submission(&self, name: &str) -> Vec<f64> {
        let mut numbers = vec![f64::NAN; self.len()];
        let column = self.columns.iter().find(|(known, _)| **known == *name);
        if let Some((_, Column::Numbers(column))) = column {
            for (place, number) in column.iter().enumerate() {
                if let Some(slot) = numbers.get_mut(self.index_from_file(place)) {
                    *slot = *number;
                }
            }
        }
        numbers
    }

    /// The indices of the jobs of the file, one after the other; `None` if the file is in the order of submission.
    pub fn file_order(&self) -> Option<&[u32]> {
        Some(&*self.file_order).filter(|order| !order.is_empty())
    }

    /// The assumptions made about missing data in the file, one sentence each.
    pub fn assumptions(&self) -> &[String] {
        &self.assumptions
    }

    pub(crate) fn assume(&mut self, sentence: String) {
        self.assumptions.push(sentence);
    }

    /// The `Key: value` pairs of the file's header, in order; keys may repeat.
    pub fn header(&self) -> &[(String, String)] {
        &self.header
    }

    /// The first value of a key of the header.
    pub fn header_value(&self, key: &str) -> Option<&str> {
        let mut pairs = self.header.iter();
        pairs
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn add_header(&mut self, key: &str, value: &str) {
        self.header.push((key.to_owned(), value.to_owned()));
    }

    pub(crate) fn set_pool(&mut self, cores: u64, origin: &str) {
        self.pool = Some(Pool {
            cores,
            origin: origin.to_owned(),
        });
    }

    /// The number of cores of the pool that the jobs ran on: from the header, otherwise the cores
    /// of the largest job.
    pub fn max_cores(&self) -> u64 {
        match &self.pool {
            Some(pool) => pool.cores,
            None => self.largest(),
        }
    }

    /// The source of [`max_cores`](Self::max_cores).
    pub fn pool_origin(&self) -> &str {
        self.pool
            .as_ref()
            .map_or("the largest job", |pool| pool.origin.as_str())
    }

    fn largest(&self) -> u64 {
        let cores = self.shapes.iter().map(JobShape::ncores);
        cores.max().unwrap_or(0)
    }

    /// The first and the last submit time, in seconds of the trace.
    pub fn span(&self) -> Option<SubmitSpan> {
        Some(SubmitSpan {
            first: *self.submit.first()?,
            last: *self.submit.last()?,
        })
    }

    /// The start of the trace, in seconds since the epoch, if the header has it.
    pub fn unix_start(&self) -> Option<f64> {
        let value = self.header_value("UnixStartTime")?;
        let number = value.split_whitespace().next()?.parse::<f64>().ok()?;
        Some(number).filter(|start| start.is_finite() && *start >= 0.0)
    }

    /// The core-seconds of all jobs together.
    pub fn core_seconds(&self) -> f64 {
        let jobs = self.shape.iter().zip(&self.run);
        let cores: Vec<f64> = self
            .shapes
            .iter()
            .map(|shape| real(shape.ncores()))
            .collect();
        jobs.map(|(shape, run)| cores[shape.index()] * run).sum()
    }

    /// The workload with arrivals `pace` times as fast, in whole seconds, and with other estimates
    /// if given. Without that, hardly any job has to wait in traces whose submit times are start
    /// times, or that have no estimates.
    ///
    /// # Errors
    ///
    /// The pace is not a finite number above 0, or makes submit times too late.
    pub fn vary(&self, pace: f64, estimates: Option<Estimates>, seed: u64) -> Result<Self, Error> {
        if !(pace > 0.0 && pace.is_finite()) {
            let pace = brief(pace);
            let text = format!("pace: expected a number above 0, found {pace}");
            return Err(Error::new(text));
        }
        let mut varied = self.clone();
        if pace.to_bits() != 1.0_f64.to_bits() {
            let first = self.submit.first().copied().unwrap_or(0.0);
            for submit in &mut varied.submit {
                *submit = first + ((*submit - first) / pace).round();
            }
            let late = varied.submit.last().filter(|submit| **submit > MAX_TIME_S);
            let paced = brief(pace);
            if let Some(late) = late {
                let late = brief(*late);
                return Err(Error::new(format!(
                    "pace: {paced} makes jobs come at second {late}: expected {MAX_TIME_S:e} at most"
                )));
            }
            varied.assume(format!(
                "jobs come {paced} times as fast as the workload says, in whole seconds"
            ));
        }
        if let Some(estimates) = estimates {
            let mut random = Random::new(seed);
            for (limit, run) in varied.limit.iter_mut().zip(&self.run) {
                *limit = estimates.draw(*run, &mut random);
            }
            varied
                .assumptions
                .retain(|sentence| !sentence.ends_with(RUN_TIME_TAKEN));
            varied.assume(format!("estimates are generated: {estimates}, seed {seed}"));
        }
        Ok(varied)
    }

    /// Bytes on the heap for the columns.
    pub fn heap_bytes(&self) -> usize {
        let jobs = self.id.capacity();
        jobs * (size_of::<TraceJobId>()
            + 3 * size_of::<f64>()
            + size_of::<ShapeIndex>()
            + size_of::<Priority>()
            + size_of::<QueueIndex>())
            + self.after.capacity() * size_of::<Dependency>()
            + self.think_times.capacity() * size_of::<f64>()
            + self.columns.len() * jobs * size_of::<f64>()
    }
}

/// Checks the number of jobs that a model is to generate.
pub(crate) fn check_job_count(jobs: u32) -> Result<(), Error> {
    if jobs <= MAX_GENERATED_JOBS {
        return Ok(());
    }
    let (most, found) = (grouped(MAX_GENERATED_JOBS.into()), grouped(jobs.into()));
    Err(Error::new(format!(
        "jobs: expected at most {most}, found {found}"
    )))
}

/// Calls `may_continue` at intervals while jobs are generated; fails once it returns `false`.
pub(crate) fn check_stop(
    generated: usize,
    may_continue: &mut dyn FnMut() -> bool,
) -> Result<(), Error> {
    if generated.is_multiple_of(JOBS_PER_STOP_CHECK) && !may_continue() {
        return Err(Error::new("stopped while jobs were generated"));
    }
    Ok(())
}

/// Reorders a column; `order` has the former index of each entry.
fn permute<T: Copy>(column: &mut Vec<T>, order: &[u32]) {
    *column = order.iter().map(|old| column[*old as usize]).collect();
}

/// A count as a real number; exact up to 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "no machine has 2^53 cores, no trace has 2^53 jobs"
)]
pub(crate) fn real(number: u64) -> f64 {
    number as f64
}
