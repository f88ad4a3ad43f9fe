//! What a workload runs on, and under which rules.

use std::collections::BTreeSet;

use penstock_engine::{Policy, Selection};
use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::{Count, Operator, Request};
use penstock_rset::ResourceSet;

use crate::Error;
use crate::error::{brief, grouped};
use crate::failures::Failures;
use crate::workload::{JobShape, MAX_SECONDS, Workload};

/// Cores of the nodes that a pool is made of inside: few nodes, as each costs more than a word of
/// cores does.
const POOL_NODE: u64 = 4096;
/// Cores of a pool at most.
pub(crate) const POOL_CORES: u64 = 100_000_000;

/// What there is.
#[derive(Clone, Debug)]
pub enum Machine {
    /// So many cores, all alike, in one place: a job gets any of them.
    Pool(u64),
    /// Nodes, as an R names them. Its start time and expiration do not matter: the time of the
    /// trace is another one.
    Nodes(Box<ResourceSet>),
}

/// Nodes that fail or come back.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// When, in seconds of the trace.
    pub time: f64,
    /// Which ranks.
    pub ranks: IdSet,
    /// Whether they come back; else they fail.
    pub up: bool,
}

/// Nodes that fail by chance, each for itself, from the first submit time on: times between
/// failures and of repair are exponential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// The mean time from a node's return to its next failure, in seconds.
    pub mtbf: f64,
    /// The mean time of a repair, in seconds.
    pub mttr: f64,
    /// Equal seeds give equal failures, whatever the policy.
    pub seed: u64,
}

/// The rules of a simulation.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, each named where it is set"
)]
pub struct Setup {
    /// Who goes next.
    pub policy: Policy,
    /// Which nodes a job gets.
    pub selection: Selection,
    /// Whether jobs get whole nodes: those that they ask for, or as many as hold their cores and gpus.
    pub whole_nodes: bool,
    /// Whether a job that reaches its estimate is killed.
    pub kill_at_limit: bool,
    /// Whether jobs of failed nodes wait again, in their old place; else they are lost.
    pub requeue: bool,
    /// Of how many jobs that must wait one is given an estimate of its start; 0 for none. Each
    /// estimate plans the whole queue ahead.
    pub estimate_every: u32,
    /// Whether it is kept which ranks each job had.
    pub allocations: bool,
    /// Failures and returns of nodes, in any order.
    pub failures: Vec<Failure>,
    /// Failures by chance, beside those.
    pub chance: Option<Chance>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policy: Policy::Easy,
            selection: Selection::First,
            whole_nodes: false,
            kill_at_limit: false,
            requeue: true,
            estimate_every: 0,
            allocations: true,
            failures: Vec::new(),
            chance: None,
        }
    }
}

/// The machine as the engine gets it.
pub(crate) struct Hardware {
    pub resources: ResourceSet,
    pub cores: u64,
    /// Nodes as the results name them: a pool is one.
    pub nodes: u64,
    pub is_pool: bool,
    /// Cores and gpus of the nodes, each pair once: what whole nodes are counted by.
    sizes: BTreeSet<(u32, u32)>,
}

impl Hardware {
    pub fn new(machine: &Machine) -> Result<Self, Error> {
        match machine {
            Machine::Pool(cores) => Self::pool(*cores),
            Machine::Nodes(resources) => Self::nodes(resources),
        }
    }

    pub fn pool(cores: u64) -> Result<Self, Error> {
        if !(1..=POOL_CORES).contains(&cores) {
            let most = grouped(POOL_CORES);
            let found = grouped(cores);
            let text = format!("a pool: expected 1 to {most} cores, found {found}");
            return Err(Error::new(text));
        }
        let mut resources = ResourceSet::new();
        let full = cores / POOL_NODE;
        let fail = |error: &dyn std::fmt::Display| Error::new(format!("a pool: {error}"));
        for (first, count, size) in [(0, full, POOL_NODE), (full, 1, cores % POOL_NODE)] {
            if count == 0 || size == 0 {
                continue;
            }
            let ranks = ids(first, count)?;
            let hosts = if count == 1 {
                format!("pool{first}")
            } else {
                format!("pool[{first}-{}]", first + count - 1)
            };
            let hosts: Hostlist = hosts
                .parse()
                .map_err(|error: penstock_hostlist::Error| fail(&error))?;
            let part = ResourceSet::uniform(&ranks, &hosts, ids(0, size)?, IdSet::new())
                .map_err(|error| fail(&error))?;
            resources = resources.union(&part).map_err(|error| fail(&error))?;
        }
        Ok(Self {
            resources,
            cores,
            nodes: 1,
            is_pool: true,
            sizes: BTreeSet::new(),
        })
    }

    fn nodes(resources: &ResourceSet) -> Result<Self, Error> {
        let mut resources = resources.clone();
        let reset = resources
            .set_starttime(None)
            .and_then(|()| resources.set_expiration(None));
        reset.map_err(|error| Error::new(error.to_string()))?;
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let nodes = resources.nodes();
        let sizes: BTreeSet<(u32, u32)> = nodes
            .map(|node| (number(node.cores.len()), number(node.gpus.len())))
            .collect();
        if sizes.is_empty() {
            return Err(Error::new("the inventory: expected at least one node"));
        }
        let count = u64::try_from(resources.nnodes()).unwrap_or(u64::MAX);
        Ok(Self {
            cores: resources.ncores(),
            nodes: count,
            is_pool: false,
            sizes,
            resources,
        })
    }

    /// What the engine is asked for a shape, here.
    pub fn request(&self, shape: &JobShape, whole_nodes: bool) -> Result<Request, Error> {
        let mut shape = shape.clone();
        if self.is_pool {
            if !shape.is_cores_alone() {
                return Err(Error::new(
                    "asks for nodes, gpus or a constraint, and the machine is one pool of cores\n\
                     hint: give the nodes there are",
                ));
            }
            // In one place, slots of many cores fit wherever as many cores are free.
            if shape.is_exact() {
                shape = JobShape::cores(u32::try_from(shape.ncores()).unwrap_or(u32::MAX));
            } else if shape.cores_per_slot != 1 {
                return Err(Error::new(
                    "asks for a range of slots of several cores, or of cores for each slot, and \
                     the machine is one pool of cores\nhint: give the nodes there are",
                ));
            }
        } else if whole_nodes {
            shape = self.whole(shape)?;
        }
        Ok(Request {
            nnodes: shape.nodes,
            exclusive: shape.exclusive,
            slots: shape.slots,
            cores_per_slot: shape.cores_per_slot,
            gpus_per_slot: shape.gpus_per_slot,
            duration: 0.0,
            constraint: shape.constraint,
        })
    }

    /// A shape on whole nodes: those that it asks for, or as many as hold its cores and gpus.
    fn whole(&self, shape: JobShape) -> Result<JobShape, Error> {
        if shape.nodes.is_some() {
            return Ok(JobShape {
                exclusive: true,
                ..shape
            });
        }
        let nodes = |amount: u64, each: u32| {
            u32::try_from(amount.div_ceil(u64::from(each.max(1)))).unwrap_or(u32::MAX)
        };
        let (least, most, on_each) = if shape.gpus_per_slot == 0 {
            let each = self.smallest();
            let most = shape.most_cores().map(|cores| nodes(cores, each));
            (nodes(shape.ncores(), each), most, JobShape::cores(1))
        } else {
            // By the node that has room for the fewest slots, of those that have room for one.
            let (cores, gpus) = (shape.cores_per_slot.min(), shape.gpus_per_slot.min());
            let room = |size: &(u32, u32)| (size.0 / cores.max(1)).min(size.1 / gpus.max(1));
            let Some(each) = self.sizes.iter().map(room).filter(|it| *it > 0).min() else {
                return Ok(shape); // The engine says why there is no place for it.
            };
            let (least, most) = (shape.slots.min(), shape.slots.max());
            let on_each = JobShape {
                slots: Count::exactly(each.min(least)),
                cores_per_slot: Count::exactly(cores),
                gpus_per_slot: Count::exactly(gpus),
                ..JobShape::cores(1)
            };
            let most = most.map(|slots| nodes(slots.into(), each));
            (nodes(least.into(), each), most, on_each)
        };
        let count = Count::range(least, most, Operator::Add, 1);
        Ok(JobShape {
            nodes: Some(count.map_err(|error| Error::new(error.to_string()))?),
            exclusive: true,
            constraint: shape.constraint,
            ..on_each
        })
    }

    /// Cores of the smallest node.
    fn smallest(&self) -> u32 {
        self.sizes.first().map_or(1, |size| size.0.max(1))
    }

    /// The least cores and nodes that a job with this request holds once it runs; of nodes 0 where
    /// it may be on any number of them.
    pub fn asked(&self, shape: &JobShape, request: &Request) -> (u32, u32) {
        if self.is_pool {
            let cores = u32::try_from(shape.ncores()).unwrap_or(u32::MAX);
            return (cores, 1);
        }
        let nodes = request.nnodes.as_ref().map_or(0, Count::min);
        let whole = if request.exclusive {
            u64::from(nodes) * u64::from(self.smallest())
        } else {
            0
        };
        let cores = shape.ncores().max(whole);
        (u32::try_from(cores).unwrap_or(u32::MAX), nodes)
    }

    /// Requests for all shapes of a workload.
    pub fn requests(&self, workload: &Workload, setup: &Setup) -> Result<Vec<Request>, Error> {
        let mut requests = Vec::with_capacity(workload.shapes.len());
        for (number, shape) in workload.shapes.iter().enumerate() {
            let request = self.request(shape, setup.whole_nodes).map_err(|error| {
                let mut places = workload.shape.iter();
                let place = places.position(|it| *it as usize == number).unwrap_or(0);
                let id = workload.id.get(place).copied().unwrap_or(0);
                Error::new(format!("{}: job {id} {error}", workload.name))
            })?;
            requests.push(request);
        }
        Ok(requests)
    }

    /// The failures, if they are of nodes that there are.
    pub fn failures(&self, setup: &Setup, span: Option<(f64, f64)>) -> Result<Failures, Error> {
        let mut listed = setup.failures.clone();
        let ranks = self.resources.ranks();
        if self.is_pool && !(listed.is_empty() && setup.chance.is_none()) {
            return Err(Error::new(
                "failures: a pool of cores has no nodes that could fail\n\
                 hint: give the nodes there are",
            ));
        }
        for failure in &listed {
            let Failure { time, .. } = failure;
            if !(0.0..=MAX_SECONDS).contains(time) {
                let time = brief(*time);
                return Err(Error::new(format!(
                    "failures: time {time}: expected seconds from 0 on, at most {MAX_SECONDS:e}"
                )));
            }
            let strange = failure.ranks.difference(&ranks);
            if !strange.is_empty() {
                return Err(Error::new(format!(
                    "failures: at {time}: there are no ranks {strange}; the inventory has {ranks}"
                )));
            }
        }
        listed.sort_by(|a, b| a.time.total_cmp(&b.time));
        Failures::new(listed, setup.chance, &ranks, span)
    }
}

fn ids(first: u64, count: u64) -> Result<IdSet, Error> {
    let range = u32::try_from(first).ok().zip(
        first
            .checked_add(count)
            .and_then(|end| u32::try_from(end - 1).ok()),
    );
    range
        .map(|(first, last)| IdSet::with_range(first..=last))
        .ok_or_else(|| Error::new("a pool: expected fewer cores"))
}
