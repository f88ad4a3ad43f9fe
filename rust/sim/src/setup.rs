//! What a workload runs on, and under which rules.

use penstock_engine::{Policy, Selection};
use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::{Count, Operator, Request};
use penstock_rset::ResourceSet;

use crate::Error;
use crate::error::{brief, grouped};
use crate::failures::Failures;
use crate::workload::{JobShape, MAX_SECONDS, Workload};

/// Cores of the nodes that a pool is made of inside.
const POOL_NODE: u64 = 64;
/// Nodes that a pool is made of at most; beyond that they grow.
const POOL_NODES: u64 = 100_000;
/// Cores of a pool at most.
const POOL_CORES: u64 = 100_000_000;

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
    /// Whether jobs of so many cores get whole nodes instead: as many as hold these cores.
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
    /// Cores of the smallest node: what whole nodes are counted by.
    smallest: u32,
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
        let size = POOL_NODE.max(cores.div_ceil(POOL_NODES));
        let mut resources = ResourceSet::new();
        let full = cores / size;
        let fail = |error: &dyn std::fmt::Display| Error::new(format!("a pool: {error}"));
        for (first, count, size) in [(0, full, size), (full, 1, cores % size)] {
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
            smallest: 1,
        })
    }

    fn nodes(resources: &ResourceSet) -> Result<Self, Error> {
        let mut resources = resources.clone();
        let reset = resources
            .set_starttime(None)
            .and_then(|()| resources.set_expiration(None));
        reset.map_err(|error| Error::new(error.to_string()))?;
        let sizes = resources.nodes().map(|node| node.cores.len());
        let Some(smallest) = sizes.min() else {
            return Err(Error::new("the inventory: expected at least one node"));
        };
        let count = u64::try_from(resources.nnodes()).unwrap_or(u64::MAX);
        Ok(Self {
            cores: resources.ncores(),
            nodes: count,
            is_pool: false,
            smallest: u32::try_from(smallest).unwrap_or(u32::MAX),
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
        } else if whole_nodes && shape.is_cores_alone() {
            let size = u64::from(self.smallest.max(1));
            let nodes = |cores: u64| u32::try_from(cores.div_ceil(size)).unwrap_or(u32::MAX);
            let (least, most) = (nodes(shape.ncores()), shape.most_cores().map(nodes));
            let count = Count::range(least, most, Operator::Add, 1);
            shape = JobShape {
                nodes: Some(count.map_err(|error| Error::new(error.to_string()))?),
                exclusive: true,
                ..JobShape::cores(1)
            };
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
