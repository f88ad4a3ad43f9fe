//! Simple mixes: `80%:1c:10m,20%:64n:2h` and the like.

use penstock_jobspec::{Count, duration};

use crate::Error;
use crate::error::shown;
use crate::estimates::Estimates;
use crate::lublin::{check_load, stretch};
use crate::random::Random;
use crate::workload::{DEFAULT_PRIORITY, JobShape, Workload, check_made_up, going_on};

/// Mixes that have a name.
const NAMED: [(&str, &str); 3] = [
    ("uniform", "1-64c:1m-4h"),
    ("1core", "1c:10m"),
    ("nodes", "1-16n:10m-4h"),
];

/// One sort of jobs.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    weight: f64,
    sizes: (u32, u32),
    whole_nodes: bool,
    runs: (f64, f64),
}

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Mix {
    /// `WEIGHT%:SIZE:TIME` for each sort of jobs, between commas; a weight that is left out is
    /// an equal part of what the others leave. SIZE is `4c` for cores anywhere or `4n` for whole
    /// nodes, TIME a duration (RFC 23); each may be a range (`1-8c`, `1m-2h`), uniform. Or the
    /// name of a mix: `uniform`, `1core`, `nodes`.
    pub shapes: String,
    /// How many jobs.
    pub jobs: u32,
    /// The cores of the machine, to set the load by.
    pub cores: u64,
    /// The cores of each node, for jobs of whole nodes.
    pub cores_per_node: u32,
    /// The same seed gives the same jobs.
    pub seed: u64,
    /// As for [`Lublin`](crate::Lublin); `None` submits all jobs at second 0.
    pub load: Option<f64>,
    /// What users say.
    pub estimates: Estimates,
}

impl Mix {
    /// Draws the jobs; they arrive at random (a Poisson process). All times are whole seconds.
    ///
    /// Fails where the text is not a mix, where there are no cores, where the load is not above 0,
    /// and where there are more than [`MAX_MADE_UP`](crate::MAX_MADE_UP) jobs.
    pub fn draw(&self) -> Result<Workload, Error> {
        self.draw_while(&mut || true)
    }

    /// As [`draw`](Self::draw), as long as `go_on`, which is asked now and then, says so: fails once
    /// it does not.
    pub fn draw_while(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Workload, Error> {
        check_made_up(self.jobs)?;
        let parts = parse(&self.shapes)?;
        if self.cores == 0 || self.cores_per_node == 0 {
            return Err(Error::new("cores: expected 1 or more, found 0"));
        }
        check_load(self.load)?;
        let mut random = Random::new(self.seed);
        let mut workload = Workload::new(format!("mix {}, seed {}", self.shapes, self.seed));
        let queue = workload.queue_number(String::new())?;
        let (mut submits, mut jobs) = (Vec::new(), Vec::new());
        let (mut now, mut work) = (0.0, 0.0);
        for _ in 0..self.jobs {
            going_on(jobs.len(), go_on)?;
            let part = choose(&parts, random.uniform());
            let size = random.among(part.sizes.0, part.sizes.1);
            let (low, high) = part.runs;
            let run = (low + (high - low) * random.uniform()).round();
            let limit = self.estimates.draw(run, &mut random);
            let shape = if part.whole_nodes {
                JobShape {
                    nodes: Some(Count::exactly(size)),
                    exclusive: true,
                    ..JobShape::cores(1)
                }
            } else {
                JobShape::cores(size)
            };
            let cores = if part.whole_nodes {
                f64::from(size) * f64::from(self.cores_per_node)
            } else {
                f64::from(size)
            };
            work += cores * run;
            submits.push(now);
            jobs.push((workload.shape_number(shape)?, run, limit));
            now += random.exponential(1.0);
        }
        let machine = crate::workload::real(self.cores);
        let scale = match self.load {
            Some(_) => stretch(&submits, work / machine, self.load)?,
            None => 0.0,
        };
        for (number, (submit, (shape, run, limit))) in (1u64..).zip(submits.iter().zip(jobs)) {
            going_on(workload.len(), go_on)?;
            let submit = (submit * scale).round();
            let rest = (DEFAULT_PRIORITY, queue);
            workload.push_shape(number, [submit, run, limit], shape, rest)?;
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

fn choose(parts: &[Part], draw: f64) -> &Part {
    let mut left = draw;
    for part in parts {
        if left < part.weight {
            return part;
        }
        left -= part.weight;
    }
    &parts[parts.len() - 1]
}

fn parse(text: &str) -> Result<Vec<Part>, Error> {
    let named = NAMED.iter().find(|(name, _)| *name == text);
    let spec = named.map_or(text, |(_, spec)| *spec);
    let fail =
        |part: &str, detail: &str| Error::new(format!("invalid mix: `{}`: {detail}", shown(part)));
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
                .and_then(|it| it.parse::<f64>().ok())
                .filter(|it| (0.0..=100.0).contains(it))
                .ok_or_else(|| fail(text, "expected a weight such as 80%"))
                .and_then(|it| {
                    let any = it > 0.0;
                    any.then_some(it)
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
            (Ok(low), Ok(high)) if 1 <= low && low <= high => (low, high),
            _ => return Err(fail(text, "expected a size such as 4c, 2n or 1-8c")),
        };
        let (low, high) = run.split_once('-').unwrap_or((run, run));
        let runs = match (duration::parse(low), duration::parse(high)) {
            (Ok(low), Ok(high)) if low <= high && high.is_finite() => (low, high),
            _ => return Err(fail(text, "expected a time such as 10m or 1m-2h")),
        };
        parts.push(Part {
            weight,
            sizes,
            whole_nodes,
            runs,
        });
    }
    let sum: f64 = parts.iter().map(|it| it.weight).sum();
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
    let sum: f64 = parts.iter().map(|it| it.weight).sum();
    for part in &mut parts {
        part.weight /= sum;
    }
    Ok(parts)
}
