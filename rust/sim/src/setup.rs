//! The setup of a simulation: the machine, and the rules.

use std::collections::BTreeSet;

use penstock_engine::{Policy, Selection};
use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::{Count, Operator, Request};
use penstock_rset::ResourceSet;

use crate::Error;
use crate::error::{brief, grouped};
use crate::failures::{Failure, Failures, RandomFailures};
use crate::workload::{JobShape, MAX_TIME_S, Requested, SubmitSpan, Workload};

/// The cores of each internal node of a pool. Few large nodes are used, because a node costs more
/// than a word of its cores.
const POOL_NODE_CORES: u64 = 4096;
/// Maximum number of cores of a pool.
pub(crate) const MAX_POOL_CORES: u64 = 100_000_000;

/// The simulated machine.
#[derive(Clone, Debug)]
pub enum Machine {
    /// A number of identical cores; a job may get any of them.
    Pool(u64),
    /// The nodes of an R. Its start time and expiration are ignored: the trace has a time of its
    /// own.
    Nodes(Box<ResourceSet>),
}

/// The rules of a simulation.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, each named where it is set"
)]
pub struct Setup {
    /// The queue policy.
    pub policy: Policy,
    /// Which of the nodes that fit are allocated to a job.
    pub selection: Selection,
    /// Whether jobs get whole nodes: as many as they request, or as many as have their cores and
    /// gpus.
    pub whole_nodes: bool,
    /// Whether a job is killed when it reaches its estimate.
    pub kill_at_limit: bool,
    /// Whether jobs of failed nodes are queued again, at their former position; otherwise they are
    /// lost.
    pub requeue: bool,
    /// One in this many of the jobs that cannot start at once gets an estimate of its start; 0 for
    /// no estimates. Each estimate plans the whole queue ahead.
    pub estimate_every: u32,
    /// Whether the ranks of each job are recorded.
    pub allocations: bool,
    /// Failures and returns of nodes, in any order.
    pub failures: Vec<Failure>,
    /// Random failures in addition.
    pub random_failures: Option<RandomFailures>,
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
            random_failures: None,
        }
    }
}

/// The cores and gpus of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeSize {
    cores: u32,
    gpus: u32,
}

/// The machine in the terms of the engine.
pub(crate) struct Hardware {
    pub resources: ResourceSet,
    pub cores: u64,
    /// The number of nodes in the results: a pool is one.
    pub nodes: u64,
    pub is_pool: bool,
    /// The distinct sizes of nodes, by which whole nodes are counted.
    sizes: BTreeSet<NodeSize>,
}

impl Hardware {
    pub fn new(machine: &Machine) -> Result<Self, Error> {
        match machine {
            Machine::Pool(cores) => Self::pool(*cores),
            Machine::Nodes(resources) => Self::nodes(resources),
        }
    }

    pub fn pool(cores: u64) -> Result<Self, Error> {
        if !(1..=MAX_POOL_CORES).contains(&cores) {
            let most = grouped(MAX_POOL_CORES);
            let found = grouped(cores);
            let text = format!("a pool: expected 1 to {most} cores, found {found}");
            return Err(Error::new(text));
        }
        let mut resources = ResourceSet::new();
        let full = cores / POOL_NODE_CORES;
        let fail = |error: &dyn std::fmt::Display| Error::new(format!("a pool: {error}"));
        for (first, count, size) in [
            (0, full, POOL_NODE_CORES),
            (full, 1, cores % POOL_NODE_CORES),
        ] {
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
        let sizes: BTreeSet<NodeSize> = nodes
            .map(|node| NodeSize {
                cores: number(node.cores.len()),
                gpus: number(node.gpus.len()),
            })
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

    /// The request to the engine for a shape on this machine.
    pub fn request(&self, shape: &JobShape, setup: &Setup) -> Result<Request, Error> {
        let mut shape = shape.clone();
        if self.is_pool {
            if !shape.is_cores_alone() {
                return Err(Error::new(
                    "asks for nodes, gpus or a constraint, and the machine is one pool of cores\n\
                     hint: give the nodes there are",
                ));
            }
            // In a pool, a slot of many cores fits on any free cores, whatever internal nodes they
            // are on.
            if shape.is_exact() {
                shape = JobShape::cores(u32::try_from(shape.ncores()).unwrap_or(u32::MAX));
            } else if shape.cores_per_slot != 1 {
                return Err(Error::new(
                    "asks for a range of slots of several cores, or of cores for each slot, and \
                     the machine is one pool of cores\nhint: give the nodes there are",
                ));
            }
        } else if setup.whole_nodes {
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

    /// A shape in whole nodes: as many as it requests, or as many as have its cores and gpus.
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
            let most = shape.max_cores().map(|cores| nodes(cores, each));
            (nodes(shape.ncores(), each), most, JobShape::cores(1))
        } else {
            // Count by the node with room for the fewest slots, among nodes with room for at least
            // one.
            let (cores, gpus) = (shape.cores_per_slot.min(), shape.gpus_per_slot.min());
            let slots = |size: &NodeSize| (size.cores / cores.max(1)).min(size.gpus / gpus.max(1));
            let per_node = self.sizes.iter().map(slots).filter(|slots| *slots > 0);
            let Some(each) = per_node.min() else {
                return Ok(shape); // The engine will say why it never fits.
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

    /// The cores of the smallest node.
    fn smallest(&self) -> u32 {
        self.sizes.first().map_or(1, |size| size.cores.max(1))
    }

    /// The fewest cores and nodes that a job with this request gets; the number of nodes is 0 if
    /// any number is acceptable.
    pub fn requested(&self, shape: &JobShape, request: &Request) -> Requested {
        if self.is_pool {
            let cores = u32::try_from(shape.ncores()).unwrap_or(u32::MAX);
            return Requested { cores, nodes: 1 };
        }
        let nodes = request.nnodes.as_ref().map_or(0, Count::min);
        let whole = if request.exclusive {
            u64::from(nodes) * u64::from(self.smallest())
        } else {
            0
        };
        let cores = shape.ncores().max(whole);
        Requested {
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            nodes,
        }
    }

    /// Requests for all shapes of a workload.
    pub fn requests(&self, workload: &Workload, setup: &Setup) -> Result<Vec<Request>, Error> {
        let mut requests = Vec::with_capacity(workload.shapes.len());
        for (number, shape) in workload.shapes.iter().enumerate() {
            let request = self.request(shape, setup).map_err(|error| {
                let mut places = workload.shape.iter();
                let place = places
                    .position(|shape| shape.index() == number)
                    .unwrap_or(0);
                let id = workload.id.get(place).copied().unwrap_or_default();
                Error::new(format!("{}: job {id} {error}", workload.name))
            })?;
            requests.push(request);
        }
        Ok(requests)
    }

    /// The failures, if all of them are of nodes of the machine.
    pub fn failures(&self, setup: &Setup, span: Option<SubmitSpan>) -> Result<Failures, Error> {
        let mut listed = setup.failures.clone();
        let ranks = self.resources.ranks();
        if self.is_pool && !(listed.is_empty() && setup.random_failures.is_none()) {
            return Err(Error::new(
                "failures: a pool of cores has no nodes that could fail\n\
                 hint: give the nodes there are",
            ));
        }
        for failure in &listed {
            let Failure { time, .. } = failure;
            if !(0.0..=MAX_TIME_S).contains(time) {
                let time = brief(*time);
                return Err(Error::new(format!(
                    "failures: time {time}: expected seconds from 0 on, at most {MAX_TIME_S:e}"
                )));
            }
            let unknown = failure.ranks.difference(&ranks);
            if !unknown.is_empty() {
                return Err(Error::new(format!(
                    "failures: at {time}: there are no ranks {unknown}; the inventory has {ranks}"
                )));
            }
        }
        listed.sort_by(|a, b| a.time.total_cmp(&b.time));
        Failures::new(listed, setup.random_failures, &ranks, span)
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
