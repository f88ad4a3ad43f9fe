//! The engine itself: requests in, decisions out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::{Constraint, Count, Request};
use penstock_rset::ResourceSet;

use crate::inventory::{Inventory, Share};
use crate::queue::{Job, Queue};
use crate::{Error, feasibility, matching};

/// What the engine has decided. It never acts.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The job gets these resources.
    Alloc {
        /// The job, as it was queued.
        job: Box<Job>,
        /// Its resources, with start time and expiration.
        r: Box<ResourceSet>,
    },
    /// The job can never run here.
    Deny {
        /// The job.
        id: u64,
        /// What is impossible, and the most there is.
        note: String,
    },
}

/// What a job holds.
#[derive(Clone, Debug)]
struct Running {
    shares: Vec<Share>,
    /// Cores and gpus on ranks that are not in the inventory (any more).
    outside: BTreeMap<u32, (IdSet, IdSet)>,
    expiration: Option<f64>,
}

/// What is known of requests that differ only in their duration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    nnodes: Option<Count>,
    exclusive: bool,
    slots: Count,
    cores_per_slot: Count,
    gpus_per_slot: Count,
    constraint: Option<Constraint>,
}

impl Shape {
    fn of(request: &Request) -> Self {
        Self {
            nnodes: request.nnodes.clone(),
            exclusive: request.exclusive,
            slots: request.slots.clone(),
            cores_per_slot: request.cores_per_slot.clone(),
            gpus_per_slot: request.gpus_per_slot.clone(),
            constraint: request.constraint.clone(),
        }
    }
}

/// A shape's ranks (`None` for all) and whether it could ever be met.
#[derive(Clone, Debug)]
struct Known {
    allowed: Option<IdSet>,
    feasible: Result<(), String>,
}

/// Inventory, queue and running jobs.
#[derive(Clone, Debug)]
pub struct Engine {
    inventory: Inventory,
    queue: Queue,
    running: HashMap<u64, Running>,
    /// Answers that hold until the inventory or its properties change.
    known: HashMap<Shape, Arc<Known>>,
    /// Jobs that may have become impossible, the first in line last.
    suspects: Vec<u64>,
    /// Whether every job in the queue has become a suspect.
    recheck: bool,
    /// The job that did not fit, and the inventory's version at that time.
    stuck: Option<(u64, u64)>,
}

/// Shapes remembered before the memory is cleared.
const MAX_KNOWN: usize = 100_000;

impl Engine {
    /// An engine for these resources. Every target is down until it is marked up.
    pub fn new(inventory: &ResourceSet) -> Result<Self, Error> {
        Ok(Self {
            inventory: Inventory::new(inventory)?,
            queue: Queue::default(),
            running: HashMap::new(),
            known: HashMap::new(),
            suspects: Vec::new(),
            recheck: false,
            stuck: None,
        })
    }

    /// The ranks of the inventory, up or not.
    pub fn ranks(&self) -> &IdSet {
        self.inventory.ranks()
    }

    /// Adds ranks to the inventory, down until they are marked up. What a job holds of them
    /// already, as far as the engine knows, stays held. Fails, and changes nothing, where a rank
    /// is known.
    pub fn grow(&mut self, more: &ResourceSet) -> Result<(), Error> {
        let ranks = self.ranks_of_places();
        self.inventory.grow(more)?;
        self.relocate(&ranks);
        self.known.clear();
        Ok(())
    }

    /// Removes ranks from the inventory for good; unknown ones do not matter. Jobs on them are
    /// left alone: what they give back there is nobody's. Jobs in the queue that have become
    /// impossible are denied at the next call of [`schedule`](Self::schedule).
    pub fn shrink(&mut self, ranks: &IdSet) {
        let before = self.ranks_of_places();
        self.inventory.shrink(ranks);
        self.relocate(&before);
        self.reconsider();
    }

    fn ranks_of_places(&self) -> Vec<u32> {
        let nodes = self.inventory.nodes.iter();
        nodes.map(|node| node.rank).collect()
    }

    /// The places of nodes have changed: finds those of everybody's shares, given the ranks of
    /// the places before.
    fn relocate(&mut self, ranks: &[u32]) {
        for running in self.running.values_mut() {
            for share in std::mem::take(&mut running.shares) {
                let rank = ranks[share.place];
                match self.inventory.place(rank) {
                    Some(place) => running.shares.push(Share { place, ..share }),
                    None => {
                        running.outside.insert(rank, (share.cores, share.gpus));
                    }
                }
            }
            let mut back = Vec::new();
            running.outside.retain(|rank, (cores, gpus)| {
                let Some(place) = self.inventory.place(*rank) else {
                    return true;
                };
                let node = &self.inventory.nodes[place];
                back.push(Share {
                    place,
                    cores: cores.intersection(&node.free_cores),
                    gpus: gpus.intersection(&node.free_gpus),
                });
                false
            });
            self.inventory.take(&back);
            running.shares.append(&mut back);
        }
    }

    /// Something that jobs may need is there no more: looks at every job in the queue again.
    fn reconsider(&mut self) {
        self.known.clear();
        self.recheck = true;
    }

    /// Targets that may be allocated from now on.
    pub fn mark_up(&mut self, ranks: &IdSet) {
        self.inventory.mark(ranks, true);
    }

    /// Targets that may not be allocated any more. Jobs on them are left alone.
    pub fn mark_down(&mut self, ranks: &IdSet) {
        self.inventory.mark(ranks, false);
    }

    /// The targets that are up.
    pub fn up(&self) -> IdSet {
        self.inventory.up()
    }

    /// Gives ranks a property. As with [`remove_property`](Self::remove_property), jobs in the
    /// queue that have become impossible are denied at the next call of
    /// [`schedule`](Self::schedule).
    pub fn add_property(&mut self, name: &str, ranks: &IdSet) -> Result<(), Error> {
        self.inventory.add_property(name, ranks)?;
        self.reconsider();
        Ok(())
    }

    /// Takes a property from ranks.
    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        self.inventory.remove_property(name, ranks);
        self.reconsider();
    }

    /// When the resources themselves end, in seconds since the epoch; `None` for never.
    pub fn set_inventory_expiration(&mut self, expiration: Option<f64>) {
        self.inventory.expiration = expiration;
    }

    /// Queues a job.
    pub fn submit(&mut self, job: Job) -> Result<(), Error> {
        if self.queue.contains(job.id) || self.running.contains_key(&job.id) {
            return Err(Error::new(format!("job {} is known already", job.id)));
        }
        self.queue.push(job);
        Ok(())
    }

    /// Takes a job out of the queue. Returns whether it was there.
    pub fn cancel(&mut self, id: u64) -> bool {
        self.queue.remove(id).is_some()
    }

    /// Gives a queued job another priority. Returns whether it was there.
    pub fn prioritize(&mut self, id: u64, priority: u32) -> bool {
        self.queue.prioritize(id, priority)
    }

    /// Jobs in the queue.
    pub fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// The job that is next, where there is one that is not held.
    pub fn head(&self) -> Option<u64> {
        self.queue.first().map(|job| job.id)
    }

    /// Jobs that hold resources.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Decides about jobs in queue order, first come first served: the first that does not fit
    /// ends the pass. At most `max` decisions; `now` is in seconds since the epoch.
    pub fn schedule(&mut self, now: f64, max: usize) -> Vec<Decision> {
        let mut decisions = self.deny_impossible(max);
        while decisions.len() < max {
            let Some(job) = self.queue.first() else {
                break;
            };
            let id = job.id;
            // Nothing was freed since it last did not fit.
            if self.stuck == Some((id, self.inventory.version)) {
                break;
            }
            let known = Self::look_up(&mut self.known, &self.inventory, &job.request);
            if let Err(note) = &known.feasible {
                decisions.push(Decision::Deny {
                    id,
                    note: note.clone(),
                });
                self.queue.remove(id);
                continue;
            }
            let allowed = known.allowed.as_ref();
            let Some(shares) = matching::place(&self.inventory, &job.request, allowed) else {
                self.stuck = Some((id, self.inventory.version));
                break;
            };
            let r = self.r(&job.request, &shares, now);
            let Some(job) = self.queue.remove(id) else {
                break;
            };
            decisions.push(match r {
                Ok(r) => {
                    self.inventory.take(&shares);
                    let expiration = r.expiration();
                    self.hold(id, shares, expiration);
                    Decision::Alloc {
                        job: Box::new(job),
                        r: Box::new(r),
                    }
                }
                Err(error) => Decision::Deny {
                    id,
                    note: error.to_string(),
                },
            });
        }
        decisions
    }

    /// Denies jobs, wherever they are in line, that cannot be run any more after a change.
    fn deny_impossible(&mut self, max: usize) -> Vec<Decision> {
        if std::mem::take(&mut self.recheck) {
            self.suspects = self.queue.backwards().collect();
        }
        let mut decisions = Vec::new();
        while decisions.len() < max {
            let Some(id) = self.suspects.pop() else {
                break;
            };
            let Some(job) = self.queue.get(id) else {
                continue;
            };
            let known = Self::look_up(&mut self.known, &self.inventory, &job.request);
            if let Err(note) = &known.feasible {
                let note = note.clone();
                decisions.push(Decision::Deny { id, note });
                self.queue.remove(id);
            }
        }
        decisions
    }

    fn look_up(
        known: &mut HashMap<Shape, Arc<Known>>,
        inventory: &Inventory,
        request: &Request,
    ) -> Arc<Known> {
        let shape = Shape::of(request);
        if let Some(known) = known.get(&shape) {
            return Arc::clone(known);
        }
        let allowed = request.constraint.as_ref().map(|it| inventory.matching(it));
        let feasible = feasibility::check(inventory, request, allowed.as_ref());
        let answer = Arc::new(Known { allowed, feasible });
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(shape, Arc::clone(&answer));
        answer
    }

    /// R of an allocation: it begins now and ends with the job's time limit, or with the
    /// resources, whichever comes first.
    fn r(&self, request: &Request, shares: &[Share], now: f64) -> Result<ResourceSet, Error> {
        let wrap = |error: penstock_rset::Error| Error::new(error.to_string());
        let mut r = self.inventory.r(shares)?;
        let limit = (request.duration > 0.0 && request.duration.is_finite())
            .then_some(now + request.duration);
        let expiration = match (limit, self.inventory.expiration) {
            (Some(limit), Some(end)) => Some(limit.min(end)),
            (limit, end) => limit.or(end),
        };
        if expiration.is_some_and(|expiration| expiration <= now) {
            return Err(Error::new("the resources have expired"));
        }
        r.set_starttime(Some(now).filter(|now| *now > 0.0))
            .map_err(wrap)?;
        r.set_expiration(expiration).map_err(wrap)?;
        r.set_nslots(Some(request.total_slots()));
        Ok(r)
    }

    /// Whether the request could ever be met: the inventory as a whole, empty and up. The error
    /// is the note that a denial would have.
    pub fn feasible(&mut self, request: &Request) -> Result<(), String> {
        Self::look_up(&mut self.known, &self.inventory, request)
            .feasible
            .clone()
    }

    /// Registers what a job holds already, up or not. Fails, and changes nothing, where it lies
    /// outside the inventory or is allocated.
    pub fn allocate(&mut self, id: u64, r: &ResourceSet) -> Result<(), Error> {
        if self.queue.contains(id) || self.running.contains_key(&id) {
            return Err(Error::new(format!("job {id} is known already")));
        }
        let shares = self.inventory.shares(r)?;
        self.inventory.take(&shares);
        self.hold(id, shares, r.expiration());
        Ok(())
    }

    /// As [`allocate`](Self::allocate), for a job that may also hold what is not in the
    /// inventory (any more): the rest counts. Returns the ranks that do not.
    pub fn adopt(&mut self, id: u64, r: &ResourceSet) -> Result<IdSet, Error> {
        let strange = r.ranks().difference(self.ranks());
        if strange.is_empty() {
            return self.allocate(id, r).map(|()| strange);
        }
        self.allocate(id, &r.restrict(self.ranks()))?;
        if let Some(running) = self.running.get_mut(&id) {
            let lost = r.restrict(&strange);
            let lost = lost.nodes();
            let lost = lost.map(|node| (node.rank, (node.cores.clone(), node.gpus.clone())));
            running.outside = lost.collect();
        }
        Ok(strange)
    }

    fn hold(&mut self, id: u64, shares: Vec<Share>, expiration: Option<f64>) {
        let running = Running {
            shares,
            outside: BTreeMap::new(),
            expiration,
        };
        self.running.insert(id, running);
    }

    /// Frees what a job holds: everything, or what it has on some ranks.
    pub fn free(&mut self, id: u64, ranks: Option<&IdSet>) -> Result<(), Error> {
        let Some(running) = self.running.get_mut(&id) else {
            return Err(Error::new(format!("job {id} holds no resources")));
        };
        let all = std::mem::take(&mut running.shares);
        let nodes = &self.inventory.nodes;
        let (given, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|share| {
            let rank = nodes[share.place].rank;
            ranks.is_none_or(|ranks| ranks.contains(rank))
        });
        self.inventory.give(&given);
        running.shares = kept;
        running
            .outside
            .retain(|rank, _| ranks.is_some_and(|ranks| !ranks.contains(*rank)));
        if running.shares.is_empty() && running.outside.is_empty() {
            self.running.remove(&id);
        }
        Ok(())
    }

    /// Forgets a job, and gives what it was to hold to nobody: whose that is, is in doubt.
    pub fn set_aside(&mut self, id: u64) {
        self.running.remove(&id);
    }

    /// Tells when a running job will end, in seconds since the epoch; 0 for no known time. Fails,
    /// and changes nothing, where the resources end before.
    pub fn set_expiration(&mut self, id: u64, expiration: f64) -> Result<(), Error> {
        let Some(running) = self.running.get_mut(&id) else {
            return Err(Error::new(format!("job {id} holds no resources")));
        };
        let expiration = Some(expiration).filter(|it| *it > 0.0);
        if let Some(end) = self.inventory.expiration
            && expiration.is_none_or(|expiration| expiration > end)
        {
            let found = expiration.map_or_else(|| "none".to_owned(), |it| it.to_string());
            return Err(Error::new(format!(
                "the resources end at {end}: expected an expiration up to then, found {found}"
            )));
        }
        running.expiration = expiration;
        Ok(())
    }

    /// When a running job will end, where that is known.
    pub fn expiration(&self, id: u64) -> Option<f64> {
        self.running.get(&id)?.expiration
    }

    /// Everything that jobs hold.
    pub fn allocated(&self) -> Result<ResourceSet, Error> {
        let mut all: Vec<Share> = Vec::new();
        for running in self.running.values() {
            all.extend(running.shares.iter().cloned());
        }
        all.sort_by_key(|share| share.place);
        self.inventory.r(&all)
    }
}
