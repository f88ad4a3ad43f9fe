//! Pools of units, which stand for identical nodes.
//!
//! If all nodes are identical, and every job takes whole nodes, or every job takes cores on any
//! nodes, the choice of nodes does not affect when a job starts. The scheduler then gets one pool
//! whose cores are these units, and the units of each job are chosen here, lowest rank first, as
//! the selection would. Starts and ranks are the same as with matching; the cost grows with the
//! number of ranges of a job's units, not with its nodes.

use std::collections::{BTreeMap, HashMap};

use penstock_engine::{Engine, Options, Selection};
use penstock_idset::IdSet;
use penstock_jobspec::{Count, Request};

use crate::Error;
use crate::results::RankRange;
use crate::setup::{Hardware, MAX_POOL_CORES, Setup};
use crate::workload::{JobIndex, ShapeIndex};

/// Consecutive units, both ends included.
#[derive(Clone, Copy, Debug)]
struct UnitRange {
    first: u32,
    last: u32,
}

/// The cores and gpus of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeSize {
    cores: u64,
    gpus: u64,
}

/// The allocation of a job.
pub(crate) struct Allocated<'a> {
    pub cores: u64,
    pub ranks: &'a [RankRange],
}

/// The units of a machine: free ones, and those of each running job. The units of rank `r` are
/// numbered from `r * per_rank` on.
pub(crate) struct UnitPool {
    /// Ranges of free units: the last unit by the first. No two ranges touch.
    free: BTreeMap<u32, u32>,
    /// The ranges of units of each running job.
    allocated: HashMap<JobIndex, Vec<UnitRange>>,
    /// The ranks of the job that started last, in order.
    ranks: Vec<RankRange>,
    count: u64,
    per_rank: u32,
    /// Cores of a unit.
    cores: u64,
    /// The units of a job of each shape.
    counts: Vec<u32>,
    /// Notes of denial of shapes that can never run, in terms of the nodes.
    notes: HashMap<ShapeIndex, String>,
}

/// A pool, with the requests to it in place of those to the nodes.
pub struct Pooled {
    pub pool: UnitPool,
    pub requests: Vec<Request>,
}

impl UnitPool {
    /// The pool for these requests; `None` if it matters which nodes a job gets.
    pub fn of(
        hardware: &Hardware,
        setup: &Setup,
        requests: &[Request],
    ) -> Result<Option<Pooled>, Error> {
        let fails = setup.random_failures.is_some() || !setup.failures.is_empty();
        if hardware.is_pool || fails {
            return Ok(None);
        }
        let mut sizes = hardware.resources.nodes().map(|node| NodeSize {
            cores: node.cores.len(),
            gpus: node.gpus.len(),
        });
        let Some(size) = sizes
            .next()
            .filter(|first| sizes.all(|size| size == *first))
        else {
            return Ok(None);
        };
        // Whether the selection takes the lowest ranks: of nodes with free cores, and of idle
        // nodes.
        let (parts, whole) = match setup.selection {
            Selection::First => (true, true),
            Selection::Pack | Selection::Spread => (size.cores == 1, true),
            Selection::Thrifty => {
                let alike = hardware.resources.properties().is_empty();
                (alike, alike)
            }
            Selection::Contiguous => (false, false),
        };
        // All jobs have to be of one kind: some policies decide differently about a mixture.
        let of_cores = || -> Option<Vec<u32>> { requests.iter().map(cores_anywhere).collect() };
        let of_nodes = || -> Option<Vec<u32>> {
            let counts = requests.iter().map(|request| whole_nodes(request, size));
            counts.collect()
        };
        let (counts, per_rank, cores) = if let Some(counts) = parts.then(of_cores).flatten() {
            (counts, size.cores, 1)
        } else if let Some(counts) = whole.then(of_nodes).flatten() {
            (counts, 1, size.cores)
        } else {
            return Ok(None);
        };
        let Some(per_rank) = u32::try_from(per_rank).ok().filter(|count| *count > 0) else {
            return Ok(None);
        };
        let Some(all) = units(&hardware.resources.ranks(), per_rank) else {
            return Ok(None);
        };
        let (mut pooled, mut large) = (Vec::with_capacity(requests.len()), Vec::new());
        let shapes = (0u32..).map(ShapeIndex::new);
        for ((shape, request), count) in shapes.zip(requests).zip(&counts) {
            if u64::from(*count) > all.len() {
                large.push(shape);
            }
            pooled.push(Request {
                nnodes: None,
                exclusive: false,
                slots: Count::exactly(*count),
                cores_per_slot: Count::exactly(1),
                gpus_per_slot: Count::exactly(0),
                duration: request.duration,
                constraint: None,
            });
        }
        let mut notes = HashMap::new();
        if !large.is_empty() {
            let mut engine = Engine::with_options(&hardware.resources, Options::default())
                .map_err(|error| Error::new(error.to_string()))?;
            for shape in large {
                if let Err(reason) = engine.feasible(&requests[shape.index()]) {
                    notes.insert(shape, reason.to_string());
                }
            }
        }
        let pool = Self {
            count: all.len(),
            free: all
                .ranges()
                .map(|range| (*range.start(), *range.end()))
                .collect(),
            allocated: HashMap::new(),
            ranks: Vec::new(),
            per_rank,
            cores,
            counts,
            notes,
        };
        Ok(Some(Pooled {
            pool,
            requests: pooled,
        }))
    }

    /// The number of units.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Allocates units to a job of a shape.
    pub fn allocate(&mut self, job: JobIndex, shape: ShapeIndex) -> Allocated<'_> {
        let count = self.counts[shape.index()];
        let mut taken = Vec::new();
        self.ranks.clear();
        let (mut left, mut next) = (count, 0);
        while left > 0
            && let Some((first, last)) = self.free.pop_first()
        {
            // As much of the range as is still needed, which is at least one unit.
            let until = last.min(first.saturating_add(left - 1));
            left -= until - first + 1;
            if until < last {
                self.free.insert(until + 1, last);
            }
            taken.push(UnitRange { first, last: until });
            // The range may begin on the rank on which the one before ends.
            let on_ranks = RankRange {
                first: next.max(first / self.per_rank),
                last: until / self.per_rank,
            };
            if on_ranks.first <= on_ranks.last {
                self.ranks.push(on_ranks);
                next = on_ranks.last + 1;
            }
        }
        self.allocated.insert(job, taken);
        Allocated {
            cores: u64::from(count) * self.cores,
            ranks: &self.ranks,
        }
    }

    /// Frees the units of a job.
    pub fn release(&mut self, job: JobIndex) {
        for range in self.allocated.remove(&job).unwrap_or_default() {
            let UnitRange {
                mut first,
                mut last,
            } = range;
            let before = self.free.range(..first).next_back();
            if let Some((start, _)) = before.filter(|(_, end)| **end + 1 == first) {
                first = *start;
            }
            if let Some(end) = self.free.remove(&(last + 1)) {
                last = end;
            }
            self.free.insert(first, last);
        }
    }

    /// The note with which jobs of a shape are denied, if they are.
    pub fn note(&self, shape: ShapeIndex) -> Option<&String> {
        self.notes.get(&shape)
    }
}

/// The numbers of `per_rank` units of each rank; `None` if they do not fit, or exceed the size of a
/// pool.
fn units(ranks: &IdSet, per_rank: u32) -> Option<IdSet> {
    let mut units = IdSet::new();
    for range in ranks.ranges() {
        let last = range.end().checked_mul(per_rank)?.checked_add(per_rank)?;
        units.insert_range(range.start() * per_rank..=last - 1);
    }
    (units.len() <= MAX_POOL_CORES).then_some(units)
}

/// The number of cores that a request is for, if it is for any cores.
fn cores_anywhere(request: &Request) -> Option<u32> {
    let (each, gpus_each) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    let anywhere = request.nnodes.is_none() && !request.exclusive;
    let exactly = (each, gpus_each) == (1, 0) && request.is_exact();
    let is_any = anywhere && exactly && request.constraint.is_none();
    is_any.then(|| request.slots.min())
}

/// The number of whole nodes that a request is for, if it is for any nodes; `None` if it takes
/// parts of nodes, has a constraint, or has a range.
fn whole_nodes(request: &Request, size: NodeSize) -> Option<u32> {
    let nodes = request.nnodes.as_ref().filter(|_| request.exclusive)?;
    let slots = u64::from(request.slots.min());
    let (each, gpus_each) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    let fits = slots * u64::from(each) <= size.cores && slots * u64::from(gpus_each) <= size.gpus;
    let is_any = fits && request.constraint.is_none() && request.is_exact();
    is_any.then(|| nodes.min())
}
