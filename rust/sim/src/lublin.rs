//! The workload model of Lublin and Feitelson.
//!
//! U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the
//! characteristics of rigid jobs", Journal of Parallel and Distributed Computing 63 (2003). Sizes
//! are two-stage uniform in their logarithm, with extra weight on one and on powers of two; the
//! logarithm of the run time is hyper-gamma, its mixture depending on the size; the logarithm of
//! the gap between arrivals is gamma, and time passes faster in busy half hours. The constants are
//! the published ones, fitted to machines of 128 to 400 processors; sizes scale with the machine.

use crate::Error;
use crate::error::brief;
use crate::estimates::Estimates;
use crate::random::{Random, exp, exp2, ln, log2};
use crate::workload::{
    JobShape, JobTimes, MAX_TIME_S, Priority, TraceJobId, Workload, check_job_count, check_stop,
    real,
};

/// The half hours of a day, the steps of its cycle.
const HALF_HOURS_PER_DAY: u16 = 48;
const HALF_HOUR_S: f64 = 1800.0;
/// The half hour at which the model's day begins: 5:30.
const DAY_START_HALF_HOUR: u16 = 11;
/// The logarithm of the longest run time: 45 hours.
const MAX_LN_RUN: f64 = 12.0;
/// The logarithm of the longest gap, in seconds of busy time: five days.
const MAX_LN_GAP: f64 = 13.0;

/// The populations of the model that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKinds {
    /// Batch and interactive jobs, each with parameters and arrivals of their own.
    Both,
    /// Batch jobs alone.
    Batch,
    /// Interactive jobs alone.
    Interactive,
}

/// The parameters of a population, named as in the paper.
struct Population {
    serial: f64,
    power_of_two: f64,
    low: f64,
    /// The distance of the change of slope below the largest job, in logarithms.
    med_below: f64,
    /// The distance of the largest job below the size of the machine, in logarithms.
    high_below: f64,
    prob: f64,
    a1: f64,
    b1: f64,
    a2: f64,
    b2: f64,
    pa: f64,
    pb: f64,
    /// Of the gaps: the published shape in rush hours times its ratio to all hours.
    aarr: f64,
    barr: f64,
    anum: f64,
    bnum: f64,
}

const BATCH: Population = Population {
    serial: 0.2927,
    power_of_two: 0.6686,
    low: 1.2,
    med_below: 2.0,
    high_below: 0.0,
    prob: 0.875,
    a1: 6.57,
    b1: 0.823,
    a2: 639.1,
    b2: 0.0156,
    pa: -0.003,
    pb: 0.6986,
    aarr: 6.0415 * 1.0519,
    barr: 0.8531,
    anum: 6.1271,
    bnum: 5.2740,
};

const INTERACTIVE: Population = Population {
    serial: 0.1541,
    power_of_two: 0.625,
    low: 1.0,
    med_below: 2.5,
    high_below: 1.5,
    prob: 0.705,
    a1: 3.8351,
    b1: 0.6605,
    a2: 7.073,
    b2: 0.6856,
    pa: -0.0118,
    pb: 0.9156,
    aarr: 6.5510 * 0.9797,
    barr: 0.6621,
    anum: 8.9186,
    bnum: 3.6680,
};

impl Population {
    fn size(&self, cores: u32, random: &mut Random) -> u32 {
        let draw = random.uniform();
        if draw < self.serial || cores < 2 {
            return 1;
        }
        let high = (log2(f64::from(cores)) - self.high_below).max(1.0);
        let low = self.low.min(high);
        let med = (high - self.med_below).clamp(low, high);
        let (from, to) = if random.uniform() < self.prob {
            (low, med)
        } else {
            (med, high)
        };
        let mut logarithm = from + (to - from) * random.uniform();
        if draw < self.serial + self.power_of_two {
            logarithm = logarithm.round();
        }
        rounded(exp2(logarithm)).clamp(1, cores)
    }

    fn run(&self, size: u32, random: &mut Random) -> f64 {
        let first = (self.pa * f64::from(size) + self.pb).clamp(0.0, 1.0);
        loop {
            let logarithm = if random.uniform() < first {
                random.gamma(self.a1, self.b1)
            } else {
                random.gamma(self.a2, self.b2)
            };
            if logarithm <= MAX_LN_RUN {
                return exp(logarithm).round();
            }
        }
    }

    /// The speed of the arrivals' time in each half hour of the day; 1 on average.
    fn pace(&self) -> [f64; HALF_HOURS_PER_DAY as usize] {
        let density = |x: f64| exp((self.anum - 1.0) * ln(x) - x / self.bnum);
        let mut pace = [0.0; HALF_HOURS_PER_DAY as usize];
        for slot in DAY_START_HALF_HOUR..DAY_START_HALF_HOUR + HALF_HOURS_PER_DAY {
            // Simpson's rule over the half hour around the slot.
            let parts = 16u16;
            let step = 1.0 / f64::from(parts);
            let mut sum = 0.0;
            for part in 0..=parts {
                let weight = match part {
                    0 | 16 => 1.0,
                    odd if odd % 2 == 1 => 4.0,
                    _ => 2.0,
                };
                sum += weight * density(f64::from(slot) - 0.5 + f64::from(part) * step);
            }
            pace[usize::from(slot % HALF_HOURS_PER_DAY)] = sum;
        }
        let mean = pace.iter().sum::<f64>() / f64::from(HALF_HOURS_PER_DAY);
        pace.map(|pace| pace / mean)
    }
}

/// The arrivals of a population.
struct Arrivals {
    population: &'static Population,
    pace: [f64; HALF_HOURS_PER_DAY as usize],
    /// The current half hour of the day, and the seconds of it that have passed.
    slot: usize,
    within: f64,
    slots_before: f64,
}

impl Arrivals {
    fn new(population: &'static Population) -> Self {
        Self {
            population,
            pace: population.pace(),
            slot: 0,
            within: 0.0,
            slots_before: 0.0,
        }
    }

    /// The next arrival, in seconds from the beginning, which is a midnight.
    fn next(&mut self, random: &mut Random) -> f64 {
        let mut gap = loop {
            let logarithm = random.gamma(self.population.aarr, self.population.barr);
            if logarithm <= MAX_LN_GAP {
                break exp(logarithm);
            }
        };
        loop {
            let left = (HALF_HOUR_S - self.within) * self.pace[self.slot];
            if gap < left {
                self.within += gap / self.pace[self.slot];
                return self.slots_before * HALF_HOUR_S + self.within;
            }
            gap -= left;
            self.within = 0.0;
            self.slots_before += 1.0;
            self.slot = (self.slot + 1) % self.pace.len();
        }
    }
}

/// The parameters of a workload by this model.
#[derive(Clone, Copy, Debug)]
pub struct Lublin {
    /// The number of jobs.
    pub jobs: u32,
    /// The number of processors of the machine, which is also that of the largest job.
    pub cores: u32,
    /// The seed. Equal seeds give equal jobs.
    pub seed: u64,
    /// The core-seconds of all jobs, as a fraction of the machine's core-seconds from the first
    /// submit to the last: gaps are scaled to reach it. `None` leaves them as drawn.
    pub load: Option<f64>,
    /// The distribution of estimates.
    pub estimates: Estimates,
    /// The populations.
    pub kinds: JobKinds,
}

impl Lublin {
    /// Generates the jobs. All times are whole seconds.
    ///
    /// # Errors
    ///
    /// There are no cores, the load is not above 0, or there are more than
    /// [`MAX_GENERATED_JOBS`](crate::MAX_GENERATED_JOBS) jobs.
    pub fn draw(&self) -> Result<Workload, Error> {
        self.draw_while(&mut || true)
    }

    /// As [`draw`](Self::draw), until `may_continue`, which is called at intervals, returns `false`.
    ///
    /// # Errors
    ///
    /// As [`draw`](Self::draw), or `may_continue` has returned `false`.
    pub fn draw_while(&self, may_continue: &mut dyn FnMut() -> bool) -> Result<Workload, Error> {
        check_job_count(self.jobs)?;
        if self.cores == 0 {
            return Err(Error::new("cores: expected 1 or more, found 0"));
        }
        check_load(self.load)?;
        let kinds = self.kinds;
        let mut workload = Workload::new(format!("lublin, seed {}", self.seed));
        let mut random = Random::new(self.seed);
        let mut streams = match kinds {
            JobKinds::Both => vec![Arrivals::new(&INTERACTIVE), Arrivals::new(&BATCH)],
            JobKinds::Batch => vec![Arrivals::new(&BATCH)],
            JobKinds::Interactive => vec![Arrivals::new(&INTERACTIVE)],
        };
        let mut next: Vec<f64> = Vec::new();
        for stream in &mut streams {
            next.push(stream.next(&mut random));
        }
        let mut submits = Vec::new();
        let mut jobs = Vec::new();
        let mut work = 0.0;
        for _ in 0..self.jobs {
            check_stop(jobs.len(), may_continue)?;
            let first = usize::from(next.len() > 1 && next[1] < next[0]);
            let population = streams[first].population;
            let size = population.size(self.cores, &mut random);
            let run = population.run(size, &mut random);
            let limit = self.estimates.draw(run, &mut random);
            work += f64::from(size) * run;
            submits.push(next[first]);
            jobs.push((size, run, limit));
            next[first] = streams[first].next(&mut random);
        }
        let scale = stretch(&submits, work / f64::from(self.cores), self.load)?;
        let queue = workload.queue_index(String::new())?;
        let start = submits.first().copied().unwrap_or(0.0);
        let ids = (1u64..).map(TraceJobId::new);
        for (id, (submit, (size, run, limit))) in ids.zip(submits.iter().zip(jobs)) {
            check_stop(workload.len(), may_continue)?;
            let shape = workload.shape_index(JobShape::cores(size))?;
            let submit = ((submit - start) * scale).round();
            let times = JobTimes { submit, run, limit };
            workload.push_shape(id, times, shape, Priority::DEFAULT, queue)?;
        }
        let (jobs, cores, seed) = (self.jobs, self.cores, self.seed);
        let plural = if jobs == 1 { "" } else { "s" };
        let s = if cores == 1 { "" } else { "s" };
        workload.assume(format!(
            "{jobs} job{plural} of the model of Lublin and Feitelson (2003) for {cores} processor{s}, \
             seed {seed}, estimates {}",
            self.estimates
        ));
        if let Some(load) = self.load {
            workload.assume(format!(
                "arrival times were multiplied by {scale:.4} for a load of {load}"
            ));
        }
        workload.add_header("Computer", "model of Lublin and Feitelson");
        workload.set_pool(self.cores.into(), "the machine of the model");
        Ok(workload)
    }
}

/// Checks the requested load of a workload.
pub(crate) fn check_load(load: Option<f64>) -> Result<(), Error> {
    let Some(load) = load.filter(|load| !(*load > 0.0 && *load <= 1000.0)) else {
        return Ok(());
    };
    let expected = if load > 1000.0 {
        "at most 1000"
    } else {
        "a number above 0, such as 0.8"
    };
    let load = brief(load);
    Err(Error::new(format!(
        "load: expected {expected}, found {load}"
    )))
}

/// The factor of arrival times that gives a load; `work` is in seconds of the whole machine. Fails
/// if the load is so low that the last job would come too late.
pub(crate) fn stretch(submits: &[f64], work: f64, load: Option<f64>) -> Result<f64, Error> {
    let (Some(load), Some(first), Some(last)) = (load, submits.first(), submits.last()) else {
        return Ok(1.0);
    };
    let jobs = real(submits.len() as u64);
    // The gap after the last job counts as time in which jobs arrive.
    let span = (last - first) * jobs / (jobs - 1.0).max(1.0);
    let scale = if span > 0.0 { work / load / span } else { 1.0 };
    let late = (last - first) * scale;
    if late > MAX_TIME_S {
        return Err(Error::new(format!(
            "load: {} makes jobs come at second {}: expected {MAX_TIME_S:e} at most",
            brief(load),
            brief(late)
        )));
    }
    Ok(scale)
}

/// The nearest whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts saturate, and sizes are clamped to the machine"
)]
pub(crate) fn rounded(number: f64) -> u32 {
    number.round() as u32
}
