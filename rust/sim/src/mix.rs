//! Simple mixes: `80%:1c:10m,20%:64n:2h` and the like.

use std::ops::RangeInclusive;

use penstock_jobspec::{Count, duration};

use crate::Error;
use crate::error::excerpt;
use crate::estimates::Estimates;
use crate::lublin::{check_load, stretch};
use crate::random::Random;
use crate::workload::{
    JobShape, JobTimes, Priority, TraceJobId, Workload, check_job_count, check_stop,
};

/// The named mixes.
const NAMED_MIXES: [(&str, &str); 3] = [
    ("uniform", "1-64c:1m-4h"),
    ("1core", "1c:10m"),
    ("nodes", "1-16n:10m-4h"),
];

/// One component of a mix.
#[derive(Clone, Debug, PartialEq)]
struct Component {
    weight: f64,
    sizes: RangeInclusive<u32>,
    whole_nodes: bool,
    /// Run times, in seconds.
    runs: RangeInclusive<f64>,
}

/// The parameters of a mix.
#[derive(Clone, Debug)]
pub struct Mix {
    /// `WEIGHT%:SIZE:TIME` for each component, separated by commas; components without a weight
    /// share the rest equally. SIZE is `4c` for cores anywhere or `4n` for whole nodes, TIME a
    /// duration (RFC 23); each may be a range (`1-8c`, `1m-2h`), drawn uniformly. Or the name of a
    /// mix: `uniform`, `1core`, `nodes`.
    pub shapes: String,
    /// The number of jobs.
    pub jobs: u32,
    /// The cores of the machine, for the load.
    pub cores: u64,
    /// The cores of each node, for jobs of whole nodes.
    pub cores_per_node: u32,
    /// The seed. Equal seeds give equal jobs.
    pub seed: u64,
    /// As for [`Lublin`](crate::Lublin); `None` submits all jobs at second 0.
    pub load: Option<f64>,
    /// The distribution of estimates.
    pub estimates: Estimates,
}

impl Mix {
    /// Generates the jobs; they arrive at random (a Poisson process). All times are whole seconds.
    ///
    /// # Errors
    ///
    /// The text is not a mix, there are no cores, the load is not above 0, or there are more than
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
        let components = parse(&self.shapes)?;
        if self.cores == 0 || self.cores_per_node == 0 {
            return Err(Error::new("cores: expected 1 or more, found 0"));
        }
        check_load(self.load)?;
        let mut random = Random::new(self.seed);
        let mut workload = Workload::new(format!("mix {}, seed {}", self.shapes, self.seed));
        let queue = workload.queue_index(String::new())?;
        let (mut submits, mut jobs) = (Vec::new(), Vec::new());
        let (mut now, mut work) = (0.0, 0.0);
        for _ in 0..self.jobs {
            check_stop(jobs.len(), may_continue)?;
            let component = choose(&components, random.uniform());
            let size = random.among(*component.sizes.start(), *component.sizes.end());
            let (low, high) = (component.runs.start(), component.runs.end());
            let run = (low + (high - low) * random.uniform()).round();
            let limit = self.estimates.draw(run, &mut random);
            let shape = if component.whole_nodes {
                JobShape {
                    nodes: Some(Count::exactly(size)),
                    exclusive: true,
                    ..JobShape::cores(1)
                }
            } else {
                JobShape::cores(size)
            };
            let cores = if component.whole_nodes {
                f64::from(size) * f64::from(self.cores_per_node)
            } else {
                f64::from(size)
            };
            work += cores * run;
            submits.push(now);
            jobs.push((workload.shape_index(shape)?, run, limit));
            now += random.exponential(1.0);
        }
        let machine = crate::workload::real(self.cores);
        let scale = match self.load {
            Some(_) => stretch(&submits, work / machine, self.load)?,
            None => 0.0,
        };
        let ids = (1u64..).map(TraceJobId::new);
        for (id, (submit, (shape, run, limit))) in ids.zip(submits.iter().zip(jobs)) {
            check_stop(workload.len(), may_continue)?;
            let submit = (submit * scale).round();
            let times = JobTimes { submit, run, limit };
            workload.push_shape(id, times, shape, Priority::DEFAULT, queue)?;
        }
        let arrivals = match self.load {
            Some(load) => format!(
                "random arrivals for a load of {load} on {} cores",
                self.cores
            ),
            None => "all submitted at once".to_owned(),
        };
        let plural = if self.jobs == 1 { "" } else { "s" };
        workload.assume(format!(
            "{} job{plural} of the mix {}, {arrivals}, seed {}, estimates {}",
            self.jobs, self.shapes, self.seed, self.estimates
        ));
        workload.add_header("Computer", &format!("mix {}", self.shapes));
        workload.set_pool(self.cores, "the machine of the mix");
        Ok(workload)
    }
}

/// The component that a draw from [0, 1) falls on.
fn choose(parts: &[Component], draw: f64) -> &Component {
    let mut left = draw;
    for part in parts {
        if left < part.weight {
            return part;
        }
        left -= part.weight;
    }
    &parts[parts.len() - 1]
}

fn parse(text: &str) -> Result<Vec<Component>, Error> {
    let named = NAMED_MIXES.iter().find(|(name, _)| *name == text);
    let spec = named.map_or(text, |(_, spec)| *spec);
    let fail = |part: &str, detail: &str| {
        Error::new(format!("invalid mix: `{}`: {detail}", excerpt(part)))
    };
    let mut parts = Vec::new();
    let mut open = Vec::new();
    for text in spec.split(',') {
        let text = text.trim();
        let fields: Vec<&str> = text.split(':').collect();
        let (weight, size, run) = match fields[..] {
            [size, run] => (None, size, run),
            [weight, size, run] => (Some(weight), size, run),
            _ => {
                return Err(fail(
                    text,
                    "expected WEIGHT%:SIZE:TIME, such as 80%:1c:10m, or the name of a mix: \
                     uniform, 1core, nodes",
                ));
            }
        };
        let weight = match weight {
            None => {
                open.push(parts.len());
                0.0
            }
            Some(weight) => weight
                .strip_suffix('%')
                .and_then(|weight| weight.parse::<f64>().ok())
                .filter(|weight| (0.0..=100.0).contains(weight))
                .ok_or_else(|| fail(text, "expected a weight such as 80%"))
                .and_then(|weight| {
                    let is_positive = weight > 0.0;
                    is_positive
                        .then_some(weight)
                        .ok_or_else(|| fail(text, "expected a weight above 0%"))
                })?,
        };
        let (sizes, whole_nodes) = match (size.strip_suffix('c'), size.strip_suffix('n')) {
            (Some(sizes), _) => (sizes, false),
            (None, Some(sizes)) => (sizes, true),
            (None, None) => return Err(fail(text, "expected a size such as 4c or 2n")),
        };
        let (low, high) = sizes.split_once('-').unwrap_or((sizes, sizes));
        let sizes = match (low.parse::<u32>(), high.parse::<u32>()) {
            (Ok(low), Ok(high)) if 1 <= low && low <= high => low..=high,
            _ => return Err(fail(text, "expected a size such as 4c, 2n or 1-8c")),
        };
        let (low, high) = run.split_once('-').unwrap_or((run, run));
        let runs = match (duration::parse(low), duration::parse(high)) {
            (Ok(low), Ok(high)) if low <= high && high.is_finite() => low..=high,
            _ => return Err(fail(text, "expected a time such as 10m or 1m-2h")),
        };
        parts.push(Component {
            weight,
            sizes,
            whole_nodes,
            runs,
        });
    }
    let sum: f64 = parts.iter().map(|part| part.weight).sum();
    if sum > 100.0 + 1e-9 {
        return Err(fail(
            text,
            &format!("expected weights of 100 % at most together, found {sum} %"),
        ));
    }
    let left = if sum > 100.0 - 1e-9 { 0.0 } else { 100.0 - sum };
    if left == 0.0 && !open.is_empty() {
        return Err(fail(
            text,
            "expected weights below 100 % together, for those that have none",
        ));
    }
    for place in &open {
        parts[*place].weight = left / crate::workload::real(open.len() as u64);
    }
    let sum: f64 = parts.iter().map(|part| part.weight).sum();
    for part in &mut parts {
        part.weight /= sum;
    }
    Ok(parts)
}
