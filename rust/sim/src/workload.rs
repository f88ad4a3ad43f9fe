//! `Workload`: the jobs that come, in columns, in the order in which they come.

use std::collections::HashMap;

use penstock_jobspec::{Constraint, Count};

use crate::Error;
use crate::error::{brief, grouped};
use crate::estimates::Estimates;
use crate::random::Random;

/// The priority of a job that names none.
pub const DEFAULT_PRIORITY: u32 = 16;

/// Jobs that a workload may have: their places are 32 bits wide.
const MAX_JOBS: usize = (u32::MAX - 1) as usize;

/// Jobs that a model makes up at most: more hardly fit into the memory of a machine.
pub const MAX_MADE_UP: u32 = 100_000_000;

/// After so many made-up jobs it is asked whether to go on, some milliseconds each.
const GO_ON_EVERY: usize = 1 << 14;

/// The most that a time of a job may be, in seconds: some 30,000 years. Beyond some thousand times
/// that, a second more would be none.
pub(crate) const MAX_SECONDS: f64 = 1e12;

/// How a sentence ends that says what was taken for an estimate.
pub(crate) const RUN_TIME_TAKEN: &str = "the run time is taken as the estimate";

/// What a job asks for, without times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobShape {
    /// Nodes, where there is a node level.
    pub nodes: Option<Count>,
    /// Slots: on each node where there is a node level, else in total and anywhere.
    pub slots: Count,
    /// Cores of each slot.
    pub cores_per_slot: Count,
    /// Gpus of each slot.
    pub gpus_per_slot: Count,
    /// Whether the nodes are wanted whole.
    pub exclusive: bool,
    /// Which nodes will do; `None` for any.
    pub constraint: Option<Constraint>,
}

impl JobShape {
    /// So many cores, anywhere.
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

    /// Cores of all slots together, the least that will do.
    pub fn ncores(&self) -> u64 {
        let nodes = self.nodes.as_ref().map_or(1, Count::min);
        u64::from(self.slots.min())
            .saturating_mul(self.cores_per_slot.min().into())
            .saturating_mul(nodes.into())
    }

    /// Cores of all slots together, the most that are taken; `None` where there is no end.
    pub fn most_cores(&self) -> Option<u64> {
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

    /// Whether it asks for nothing but cores, wherever they are: what a pool of cores can give.
    pub fn is_cores_alone(&self) -> bool {
        self.nodes.is_none() && self.gpus_per_slot == 0 && self.constraint.is_none()
    }
}

/// One job of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceJob {
    /// Its name in the results.
    pub id: u64,
    /// When it is submitted, in seconds of the trace.
    pub submit: f64,
    /// How long it runs, in seconds.
    pub run: f64,
    /// The estimate, in seconds: what the scheduler plans with. Infinite for none.
    pub limit: f64,
    /// What it asks for.
    pub shape: JobShape,
    /// Its priority; 0 is held.
    pub priority: u32,
    /// The queue it is in; empty for the one without name.
    pub queue: String,
}

/// Jobs in the order of their submit times, those with equal ones in file order.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    pub(crate) name: String,
    pub(crate) id: Vec<u64>,
    pub(crate) submit: Vec<f64>,
    pub(crate) run: Vec<f64>,
    pub(crate) limit: Vec<f64>,
    pub(crate) shape: Vec<u32>,
    pub(crate) priority: Vec<u32>,
    pub(crate) queue: Vec<u16>,
    /// The place of each job in file order; empty where that is the order already.
    pub(crate) file_order: Vec<u32>,
    /// Places of a job and of one that it waits for, by the first.
    pub(crate) after: Vec<(u32, u32)>,
    pub(crate) shapes: Vec<JobShape>,
    pub(crate) queues: Vec<String>,
    shape_numbers: HashMap<JobShape, u32>,
    queue_numbers: HashMap<String, u16>,
    header: Vec<(String, String)>,
    assumptions: Vec<String>,
    pool: Option<(u64, String)>,
}

impl Workload {
    /// No jobs yet. The name is that of the file or of the model.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds a job. [`finish`](Self::finish) puts them in order.
    ///
    /// Fails where a time is negative or not a number, and where there are too many jobs, or
    /// more than 65,535 queues.
    pub fn push(&mut self, job: TraceJob) -> Result<(), Error> {
        let shape = self.shape_number(job.shape)?;
        let queue = self.queue_number(job.queue)?;
        self.push_shape(
            job.id,
            [job.submit, job.run, job.limit],
            shape,
            (job.priority, queue),
        )
    }

    /// Adds a job of a known shape; `times` are submit time, run time and limit.
    pub(crate) fn push_shape(
        &mut self,
        id: u64,
        times: [f64; 3],
        shape: u32,
        (priority, queue): (u32, u16),
    ) -> Result<(), Error> {
        let [submit, run, limit] = times;
        if self.id.len() >= MAX_JOBS {
            let most = grouped(MAX_JOBS as u64);
            return Err(Error::new(format!("expected at most {most} jobs")));
        }
        for (what, time) in [("submit time", submit), ("run time", run), ("limit", limit)] {
            let is_none = what == "limit" && time == f64::INFINITY;
            if !is_none && !(0.0..=MAX_SECONDS).contains(&time) {
                let time = brief(time);
                return Err(Error::new(format!(
                    "job {id}: {what} {time}: expected seconds from 0 on, at most {MAX_SECONDS:e}"
                )));
            }
        }
        self.id.push(id);
        // `-0.0` would not sort as 0 does.
        self.submit.push(submit + 0.0);
        self.run.push(run + 0.0);
        self.limit.push(limit + 0.0);
        self.shape.push(shape);
        self.priority.push(priority);
        self.queue.push(queue);
        Ok(())
    }

    pub(crate) fn shape_number(&mut self, shape: JobShape) -> Result<u32, Error> {
        if let Some(number) = self.shape_numbers.get(&shape) {
            return Ok(*number);
        }
        let number = u32::try_from(self.shapes.len()).map_err(|_| Error::new("too many shapes"))?;
        self.shapes.push(shape.clone());
        self.shape_numbers.insert(shape, number);
        Ok(number)
    }

    pub(crate) fn queue_number(&mut self, queue: String) -> Result<u16, Error> {
        if let Some(number) = self.queue_numbers.get(&queue) {
            return Ok(*number);
        }
        let number = u16::try_from(self.queues.len())
            .map_err(|_| Error::new("expected at most 65,536 queues"))?;
        self.queues.push(queue.clone());
        self.queue_numbers.insert(queue, number);
        Ok(number)
    }

    /// Puts the jobs in the order of their submit times, stably. Returns whether they were not.
    pub(crate) fn sort(&mut self) -> bool {
        if self.submit.is_sorted() {
            return false;
        }
        // Places fit 32 bits: `push` sees to that.
        let mut order: Vec<u32> = (0u32..).take(self.id.len()).collect();
        order.sort_by(|a, b| self.submit[*a as usize].total_cmp(&self.submit[*b as usize]));
        permute(&mut self.id, &order);
        permute(&mut self.submit, &order);
        permute(&mut self.run, &order);
        permute(&mut self.limit, &order);
        permute(&mut self.shape, &order);
        permute(&mut self.priority, &order);
        permute(&mut self.queue, &order);
        let mut place = vec![0; order.len()];
        for (new, old) in (0u32..).zip(&order) {
            place[*old as usize] = new;
        }
        for (job, before) in &mut self.after {
            *job = place[*job as usize];
            *before = place[*before as usize];
        }
        self.after.sort_unstable();
        self.file_order = place;
        true
    }

    /// Ends the adding of jobs: puts them in the order of their submit times, equal ones in the
    /// order in which they were added.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.sort();
        self
    }

    /// Where the jobs come from: the file, or the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    /// The names of the jobs in the results.
    pub fn ids(&self) -> &[u64] {
        &self.id
    }

    /// When they are submitted, in seconds of the trace, ascending.
    pub fn submits(&self) -> &[f64] {
        &self.submit
    }

    /// The job at a place of the order.
    pub fn job(&self, place: usize) -> Option<TraceJob> {
        Some(TraceJob {
            id: *self.id.get(place)?,
            submit: self.submit[place],
            run: self.run[place],
            limit: self.limit[place],
            shape: self.shapes[self.shape[place] as usize].clone(),
            priority: self.priority[place],
            queue: self.queues[usize::from(self.queue[place])].clone(),
        })
    }

    /// The place of a job, given its number in the file (from 0, of those that were not left out).
    pub fn place_of_file(&self, number: usize) -> usize {
        self.file_order
            .get(number)
            .map_or(number, |place| *place as usize)
    }

    /// What was assumed where the file left something open, a sentence each.
    pub fn assumptions(&self) -> &[String] {
        &self.assumptions
    }

    pub(crate) fn assume(&mut self, sentence: String) {
        self.assumptions.push(sentence);
    }

    /// The `Key: value` pairs of the file's header, in its order; keys may repeat.
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
        self.pool = Some((cores, origin.to_owned()));
    }

    /// The cores of the pool that the jobs ran on: what the header says, else those of the
    /// largest job.
    pub fn max_cores(&self) -> u64 {
        match &self.pool {
            Some((cores, _)) => *cores,
            None => self.largest(),
        }
    }

    /// Where [`max_cores`](Self::max_cores) comes from.
    pub fn pool_origin(&self) -> &str {
        self.pool
            .as_ref()
            .map_or("the largest job", |(_, origin)| origin.as_str())
    }

    fn largest(&self) -> u64 {
        let cores = self.shapes.iter().map(JobShape::ncores);
        cores.max().unwrap_or(0)
    }

    /// The first and the last submit time, in seconds of the trace.
    pub fn span(&self) -> Option<(f64, f64)> {
        Some((*self.submit.first()?, *self.submit.last()?))
    }

    /// Seconds since the epoch at second 0 of the trace, where the header says so.
    pub fn unix_start(&self) -> Option<f64> {
        let value = self.header_value("UnixStartTime")?;
        let number = value.split_whitespace().next()?.parse::<f64>().ok()?;
        Some(number).filter(|it| it.is_finite() && *it >= 0.0)
    }

    /// Core-seconds of all jobs together.
    pub fn core_seconds(&self) -> f64 {
        let jobs = self.shape.iter().zip(&self.run);
        let cores: Vec<f64> = self.shapes.iter().map(|it| real(it.ncores())).collect();
        jobs.map(|(shape, run)| cores[*shape as usize] * run).sum()
    }

    /// The same jobs, coming `pace` times as fast (in whole seconds), and with other estimates
    /// where some are given: traces whose submit times are start times, or that know no estimates,
    /// hardly make anybody wait as they are.
    ///
    /// Fails where the pace is not above 0.
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
            let late = varied.submit.last().filter(|it| **it > MAX_SECONDS);
            let paced = brief(pace);
            if let Some(late) = late {
                let late = brief(*late);
                return Err(Error::new(format!(
                    "pace: {paced} makes jobs come at second {late}: expected {MAX_SECONDS:e} at most"
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
                .retain(|it| !it.ends_with(RUN_TIME_TAKEN));
            varied.assume(format!("estimates are made up: {estimates}, seed {seed}"));
        }
        Ok(varied)
    }

    /// The bytes of heap that the columns take.
    pub fn heap_bytes(&self) -> usize {
        let jobs = self.id.capacity();
        jobs * (4 * size_of::<f64>() + 2 * size_of::<u32>() + size_of::<u16>())
            + self.after.capacity() * size_of::<(u32, u32)>()
    }
}

/// Fails where a model is to make up too many jobs.
pub(crate) fn check_made_up(jobs: u32) -> Result<(), Error> {
    if jobs <= MAX_MADE_UP {
        return Ok(());
    }
    let (most, found) = (grouped(MAX_MADE_UP.into()), grouped(jobs.into()));
    Err(Error::new(format!(
        "jobs: expected at most {most}, found {found}"
    )))
}

/// Asks now and then, as so many jobs are made up, whether to go on; fails once the answer is no.
pub(crate) fn going_on(made_up: usize, go_on: &mut dyn FnMut() -> bool) -> Result<(), Error> {
    if made_up.is_multiple_of(GO_ON_EVERY) && !go_on() {
        return Err(Error::new("stopped while jobs were made up"));
    }
    Ok(())
}

fn permute<T: Copy>(column: &mut Vec<T>, order: &[u32]) {
    *column = order.iter().map(|old| column[*old as usize]).collect();
}

/// A count as a number to calculate with; exact up to 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "no machine has 2^53 cores, no trace so many jobs"
)]
pub(crate) fn real(number: u64) -> f64 {
    number as f64
}
