//! Nodes that are all alike, of which every job takes whole ones, or of which every job takes
//! cores, wherever they are: which of them a job gets makes no difference to when it starts. The
//! scheduler then has one pool to look after, whose cores are these units, and which units a job
//! has is counted out here, from the lowest rank on, where the selection would take these. The
//! starts and the ranks are those that the nodes themselves would have given; the cost no longer
//! grows with the nodes of a job, but with the ranges of its units.

use std::collections::{BTreeMap, HashMap};

use penstock_engine::{Engine, Options, Selection};
use penstock_idset::IdSet;
use penstock_jobspec::{Count, Request};

use crate::Error;
use crate::setup::{Hardware, POOL_CORES, Setup};

/// Who has which of the units. Those of rank `r` have the numbers from `r * per_rank` on.
pub(crate) struct Units {
    /// Ranges of those that are free: the last of each by its first. No two touch.
    free: BTreeMap<u32, u32>,
    /// Ranges of those that each running job has.
    held: HashMap<u32, Vec<(u32, u32)>>,
    /// The ranks that the job which started last is on: first and last of ranges, in order.
    ranks: Vec<(u32, u32)>,
    count: u64,
    per_rank: u32,
    /// Cores of a unit.
    cores: u64,
    /// Units of a job of each shape.
    counts: Vec<u32>,
    /// Why jobs of some shapes can never run, in the words of the nodes.
    notes: HashMap<u32, String>,
}

impl Units {
    /// The units, and what the pool of them is asked for; nothing where it makes a difference which
    /// of them a job has.
    pub fn of(
        hardware: &Hardware,
        setup: &Setup,
        requests: &[Request],
    ) -> Result<Option<(Self, Vec<Request>)>, Error> {
        let fails = setup.chance.is_some() || !setup.failures.is_empty();
        if hardware.is_pool || fails {
            return Ok(None);
        }
        let all = hardware.resources.nodes();
        let mut sizes = all.map(|node| (node.cores.len(), node.gpus.len()));
        let Some(size) = sizes.next().filter(|first| sizes.all(|it| it == *first)) else {
            return Ok(None);
        };
        // Whether the lowest ranks are taken: of nodes with free cores, and of nodes all free.
        let (parts, whole) = match setup.selection {
            Selection::First => (true, true),
            Selection::Pack | Selection::Spread => (size.0 == 1, true),
            Selection::Thrifty => {
                let alike = hardware.resources.properties().is_empty();
                (alike, alike)
            }
            Selection::Contiguous => (false, false),
        };
        // Beside each other the two ways are not quite the same to every policy.
        let counts = |lowest: bool, count: &dyn Fn(&Request) -> Option<u32>| {
            let counts = requests.iter().map(|it| count(it).filter(|_| lowest));
            counts.collect::<Option<Vec<u32>>>()
        };
        let (counts, per_rank, cores) = if let Some(counts) = counts(parts, &cores_anywhere) {
            (counts, size.0, 1)
        } else if let Some(counts) = counts(whole, &|it| whole_nodes(it, size)) {
            (counts, 1, size.0)
        } else {
            return Ok(None);
        };
        let Some((all, per_rank)) = units(&hardware.resources.ranks(), per_rank) else {
            return Ok(None);
        };
        let (mut pooled, mut large) = (Vec::with_capacity(requests.len()), Vec::new());
        for ((shape, request), count) in (0u32..).zip(requests).zip(&counts) {
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
                if let Err(note) = engine.feasible(&requests[shape as usize]) {
                    notes.insert(shape, note);
                }
            }
        }
        let units = Self {
            count: all.len(),
            free: all.ranges().map(|it| (*it.start(), *it.end())).collect(),
            held: HashMap::new(),
            ranks: Vec::new(),
            per_rank,
            cores,
            counts,
            notes,
        };
        Ok(Some((units, pooled)))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A job of a shape starts: returns its cores, and the ranks that it is on as first and last of
    /// ranges.
    pub fn take(&mut self, place: u32, shape: u32) -> (u64, &[(u32, u32)]) {
        let count = self.counts[shape as usize];
        let mut taken = Vec::new();
        self.ranks.clear();
        let (mut left, mut next) = (count, 0);
        while left > 0
            && let Some((first, last)) = self.free.pop_first()
        {
            // As many of the range as are left, which are at least one.
            let until = last.min(first.saturating_add(left - 1));
            left -= until - first + 1;
            if until < last {
                self.free.insert(until + 1, last);
            }
            taken.push((first, until));
            // It may begin on the rank that the one before ends on.
            let (on, to) = (next.max(first / self.per_rank), until / self.per_rank);
            if on <= to {
                self.ranks.push((on, to));
                next = to + 1;
            }
        }
        self.held.insert(place, taken);
        (u64::from(count) * self.cores, &self.ranks)
    }

    /// A job gives its units back.
    pub fn give(&mut self, place: u32) {
        for (mut first, mut last) in self.held.remove(&place).unwrap_or_default() {
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

    /// Why jobs of a shape can never run.
    pub fn note(&self, shape: u32) -> Option<&String> {
        self.notes.get(&shape)
    }
}

/// So many units of each rank, with how many those are; nothing where they have no numbers, or a
/// pool has no room for them.
fn units(ranks: &IdSet, per_rank: u64) -> Option<(IdSet, u32)> {
    let per_rank = u32::try_from(per_rank).ok().filter(|it| *it > 0)?;
    let mut units = IdSet::new();
    for range in ranks.ranges() {
        let last = range.end().checked_mul(per_rank)?.checked_add(per_rank)?;
        units.insert_range(range.start() * per_rank..=last - 1);
    }
    (units.len() <= POOL_CORES).then_some((units, per_rank))
}

/// How many cores a request is for, if any cores will do.
fn cores_anywhere(request: &Request) -> Option<u32> {
    let (each, gpus_each) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    let anywhere = request.nnodes.is_none() && !request.exclusive;
    let exactly = (each, gpus_each) == (1, 0) && request.is_exact();
    let will_do = anywhere && exactly && request.constraint.is_none();
    will_do.then(|| request.slots.min())
}

/// How many whole nodes of so many cores and gpus a request is for, if any will do; nothing where
/// it takes parts of nodes, asks for certain ones, or could be met in several ways.
fn whole_nodes(request: &Request, (cores, gpus): (u64, u64)) -> Option<u32> {
    let nodes = request.nnodes.as_ref().filter(|_| request.exclusive)?;
    let slots = u64::from(request.slots.min());
    let (each, gpus_each) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    let fits = slots * u64::from(each) <= cores && slots * u64::from(gpus_each) <= gpus;
    let will_do = fits && request.constraint.is_none() && request.is_exact();
    will_do.then(|| nodes.min())
}
