//! Finds the reasons in the books.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use penstock_jobspec::Constraint;

use super::ahead::{Ahead, Disturbed};
use super::shortage::Census;
use super::{Harm, Reason, Shortage};
use crate::Engine;
use crate::books::Books;
use crate::machine::{Allocation, ShapeId};
use crate::policy::{Overlay, Policy, Scratch, Shadow};
use crate::queue::{Key, QueueId};
use crate::quotas::Quotas;

/// The first job of a group that waits for resources.
#[derive(Debug)]
struct Front {
    key: Key,
    class: u32,
    /// Whether it would start if it were looked at.
    fits: bool,
    /// When it can start, under a policy that reserves for it.
    shadow: Option<(Shadow, Overlay)>,
}

/// Looks for the reasons of several jobs, with nothing changed in between.
struct Lookup<'a> {
    books: &'a mut Books,
    policy: Policy,
    now: f64,
    fronts: BTreeMap<u32, Option<Front>>,
    censuses: HashMap<Option<Constraint>, Census>,
    shortages: BTreeMap<ShapeId, Shortage>,
    places: BTreeMap<u32, Option<Allocation>>,
    /// Under a hybrid policy, by group.
    aheads: BTreeMap<u32, Ahead>,
    scratch: &'a Scratch,
    limited: bool,
}

impl Engine {
    /// Why a job waits, given that nothing has changed since the last pass at `now`; `None` where
    /// it does not wait.
    ///
    /// Costs a look at every node, and for a job that fits but waits behind another as much as
    /// finding when that can start. Decides nothing.
    pub fn explain(&mut self, id: u64, now: f64) -> Option<Reason> {
        let (handle, lane) = self.waiting(id)?;
        let known = self.books.jobs.at(handle);
        if known.priority == 0 {
            return Some(Reason::Held);
        }
        let key = Key::new(known.rank, id, handle);
        let class = self.books.queue.class_of(lane);
        Some(self.lookup(now).reason(key, class))
    }

    /// Why the first jobs of the queue wait, in their order; jobs that are held are not among
    /// them.
    ///
    /// Costs a look at every node for each different constraint among them, as much as finding when
    /// the first job of each group of queues can start, and for each different shape a look at
    /// every kind of node: nodes are of a kind that have the same and have the same free.
    pub fn explain_all(&mut self, now: f64, max: usize) -> Vec<(u64, Reason)> {
        let mut lookup = self.lookup(now);
        let mut heads = BinaryHeap::new();
        for group in &lookup.books.queue.groups {
            let known = group.heads.all().iter().zip(&group.classes);
            let waiting = known.filter(|(key, _)| !key.is_none());
            heads.extend(waiting.map(|(key, class)| Reverse((*key, *class))));
        }
        let mut reasons = Vec::new();
        while reasons.len() < max
            && let Some(Reverse((key, class))) = heads.pop()
        {
            reasons.push((key.id(), lookup.reason(key, class)));
            let books = &mut *lookup.books;
            let next = books.queue.after(&books.jobs, class, key, |_| true);
            if !next.is_none() {
                heads.push(Reverse((next, class)));
            }
        }
        reasons
    }

    fn lookup(&mut self, now: f64) -> Lookup<'_> {
        Lookup {
            limited: self.books.queues.any_limited(),
            books: &mut self.books,
            policy: self.policy,
            now,
            fronts: BTreeMap::new(),
            censuses: HashMap::new(),
            shortages: BTreeMap::new(),
            places: BTreeMap::new(),
            aheads: BTreeMap::new(),
            scratch: &self.scratch,
        }
    }
}

/// Whether the limits of a queue let one more job take these resources.
fn may_take(books: &Books, queue: QueueId, shares: &Allocation) -> Result<(), String> {
    let cores = shares.iter().map(|it| u64::from(it.ncores())).sum();
    books.queues.admits(queue, shares.len() as u64, cores)
}

impl Lookup<'_> {
    fn reason(&mut self, key: Key, class: u32) -> Reason {
        let now = self.now;
        if let Err(note) = self.books.possible(class) {
            return Reason::Impossible { note };
        }
        if self.books.end(key.handle(), now).is_err() {
            return Reason::Outlives {
                end: now + self.books.limit(key.handle()),
                resources: self.books.machine.expiration().unwrap_or(f64::INFINITY),
            };
        }
        let known = &self.books.queue.classes[class as usize];
        let (shape, queue, group) = (known.shape, known.queue, known.group);
        if let Err(note) = self.may_run(shape, queue)
            && !self.keeps(key, class)
        {
            return Reason::QueueLimit { queue, note };
        }
        self.place(class);
        let reserved = self.reserved(key, group).filter(|at| *at > now);
        let Some(shares) = self.places.get(&class).and_then(Option::as_ref) else {
            return self.unfit(key, shape, group, reserved);
        };
        if let Err(note) = may_take(self.books, queue, shares) {
            return Reason::QueueLimit { queue, note };
        }
        if let Some(at) = reserved {
            return Reason::Reserved { at, shortage: None };
        }
        let kept_out = self.policy == Policy::Conservative
            && self.scratch.reserved(self.policy, key.id()) == Some(f64::INFINITY);
        if self.policy == Policy::Conservative && !kept_out {
            return Reason::Unconsidered;
        }
        self.find_front(group);
        let before = self.fronts.get(&group).and_then(Option::as_ref);
        if kept_out && before.is_none_or(|front| key <= front.key) {
            return match self.scratch.first_reserved(group) {
                Some((job, at)) => Reason::BehindReservation {
                    job,
                    at,
                    harm: None,
                },
                None => Reason::Unconsidered,
            };
        }
        let (Some(Some(front)), Some(Some(shares))) =
            (self.fronts.get_mut(&group), self.places.get(&class))
        else {
            return Reason::Unconsidered;
        };
        if kept_out && key > front.key {
            // What those before it have reserved is never its own, as planned.
            let job = front.key.id();
            return Reason::Behind { job };
        }
        if front.fits || key <= front.key {
            return Reason::Unconsidered;
        }
        let job = front.key.id();
        let limit = self.books.limit(key.handle());
        if let Some(ahead) = self.aheads.get_mut(&group) {
            let disturbed = ahead.disturbed(self.books, class, now, limit);
            return self.disturbs(disturbed);
        }
        let Some((shadow, overlay)) = &mut front.shadow else {
            return Reason::Behind { job };
        };
        let takes = shadow.cost(&self.books.machine, overlay, shares);
        // Where no planned end lets that job start, everything ends before.
        if shadow.sees_end(now, limit) {
            return Reason::Unconsidered;
        }
        let machine = &mut self.books.machine;
        if takes <= shadow.spare
            || !shadow.fungible && shadow.place_beside(machine, overlay, shape).is_some()
        {
            if self.books.queue.classes[front.class as usize].queue == queue {
                let mut quotas = shadow.quotas(self.books, front.class, now);
                let placed = quotas.place(self.books, class, limit, |books| books.place(class));
                if matches!(placed, Some(Err(_))) {
                    let at = shadow.time;
                    return self.behind_limit(queue, job, at);
                }
            }
            return Reason::Unconsidered;
        }
        Reason::BehindReservation {
            job,
            at: shadow.time,
            harm: Some(Harm {
                takes,
                spare: shadow.spare,
            }),
        }
    }

    /// A job that fits would disturb one of several reservations, or none.
    fn disturbs(&self, disturbed: Option<Disturbed>) -> Reason {
        let Some(Disturbed { key, at, limit }) = disturbed else {
            return Reason::Unconsidered;
        };
        let job = key.id();
        match limit {
            Some(queue) => self.behind_limit(queue, job, at),
            None => Reason::BehindReservation {
                job,
                at,
                harm: None,
            },
        }
    }

    /// A job that fits would leave too little in the limits of its queue to one with a reservation.
    fn behind_limit(&self, queue: QueueId, job: u64, at: f64) -> Reason {
        Reason::BehindLimit {
            queue,
            job,
            at,
            note: self.books.queues.limits(queue),
        }
    }

    /// Whether the limits of a queue let one more job of a shape run, as far as the shape says.
    fn may_run(&self, shape: ShapeId, queue: QueueId) -> Result<(), String> {
        let request = self.books.machine.request(shape);
        let nodes = u64::from(request.least_nodes().unwrap_or(1));
        let cores = request.total_cores();
        self.books.queues.admits(queue, nodes, cores)
    }

    /// Whether a job keeps its reservation though the limits of its queue do not let it run now:
    /// they do by then.
    fn keeps(&mut self, key: Key, class: u32) -> bool {
        let group = self.books.queue.classes[class as usize].group;
        let told = self.scratch.told(self.policy, group, key.id());
        told.is_some_and(|at| Quotas::new(self.now).leaves_by(self.books, class, at))
    }

    /// Whether jobs of a shape are passed over by the policy: nodes that they need are down.
    fn is_passed(&mut self, shape: ShapeId) -> bool {
        self.policy != Policy::Fcfs && !self.books.is_reachable(shape)
    }

    /// When a job is to start, where a policy with several reservations has one for it.
    fn reserved(&mut self, key: Key, group: u32) -> Option<f64> {
        let at = match self.policy {
            Policy::Fcfs | Policy::Easy => None,
            Policy::Conservative => self.scratch.reserved(self.policy, key.id()),
            Policy::Hybrid { depth } => {
                if !self.aheads.contains_key(&group) {
                    let jobs = self.line(group, depth);
                    let ahead = Ahead::of(self.books, self.scratch, group, &jobs, self.now);
                    self.aheads.insert(group, ahead);
                }
                self.aheads.get(&group)?.start(key)
            }
        };
        at.filter(|at| at.is_finite())
    }

    /// The first jobs of a group that no limit of their queue stops.
    fn line(&mut self, group: u32, count: u32) -> Vec<(Key, u32)> {
        let known = &self.books.queue.groups[group as usize];
        let heads = known.heads.all().iter().zip(&known.classes);
        let heads = heads.filter(|(key, _)| !key.is_none());
        let mut heads: BinaryHeap<_> = heads.map(|it| Reverse((*it.0, *it.1))).collect();
        let mut line = Vec::new();
        while line.len() < count as usize
            && let Some(Reverse((key, class))) = heads.pop()
        {
            let known = &self.books.queue.classes[class as usize];
            let (shape, queue) = (known.shape, known.queue);
            if self.books.possible(class).is_err()
                || (self.may_run(shape, queue).is_err() && !self.keeps(key, class))
                || self.is_passed(shape)
            {
                continue;
            }
            line.push((key, class));
            let books = &mut *self.books;
            let next = books.queue.after(&books.jobs, class, key, |_| true);
            if !next.is_none() {
                heads.push(Reverse((next, class)));
            }
        }
        line
    }

    /// Where a class fits.
    fn place(&mut self, class: u32) {
        let books = &mut *self.books;
        let places = self.places.entry(class);
        places.or_insert_with(|| books.place(class));
    }

    /// What a shape lacks.
    fn shortage(&mut self, shape: ShapeId) -> Shortage {
        if let Some(shortage) = self.shortages.get(&shape) {
            return shortage.clone();
        }
        let machine = &mut self.books.machine;
        let constraint = machine.request(shape).constraint.clone();
        let census = self.censuses.entry(constraint);
        let census = census.or_insert_with(|| Census::of(machine, shape));
        let shortage = Shortage::of(machine, shape, census);
        self.shortages.insert(shape, shortage.clone());
        shortage
    }

    /// The reason of a job whose shape does not fit.
    fn unfit(&mut self, key: Key, shape: ShapeId, group: u32, reserved: Option<f64>) -> Reason {
        let shortage = self.shortage(shape);
        if shortage.nodes_up == 0 {
            let constraint = self.books.machine.request(shape).constraint.as_ref();
            return Reason::Down {
                constraint: constraint.map(ToString::to_string),
                nodes: shortage.nodes,
            };
        }
        if let Some(at) = reserved {
            let shortage = Some(shortage);
            return Reason::Reserved { at, shortage };
        }
        if self.is_passed(shape) {
            return Reason::Insufficient {
                shortage,
                behind: None,
            };
        }
        self.find_front(group);
        let front = self.fronts.get(&group).and_then(Option::as_ref);
        match front {
            Some(front) if front.key < key => Reason::Insufficient {
                shortage,
                behind: Some(front.key.id()),
            },
            Some(Front {
                shadow: Some((shadow, _)),
                ..
            }) if shadow.time.is_finite() => Reason::Reserved {
                at: shadow.time,
                shortage: Some(shortage),
            },
            _ => Reason::Insufficient {
                shortage,
                behind: None,
            },
        }
    }

    /// Finds the first job of a group that neither a limit of its queue nor a node that is down
    /// stops.
    fn find_front(&mut self, group: u32) {
        if self.fronts.contains_key(&group) {
            return;
        }
        let known = &self.books.queue.groups[group as usize];
        let heads = known.heads.all().iter().zip(&known.classes);
        let mut heads: Vec<(Key, u32)> = heads
            .filter(|(key, _)| !key.is_none())
            .map(|(key, class)| (*key, *class))
            .collect();
        if !self.limited
            && let Some(first) = heads.iter().min().copied()
            && !self.is_passed(self.books.queue.classes[first.1 as usize].shape)
        {
            heads = vec![first];
        }
        heads.sort_unstable();
        let front = heads.into_iter().find_map(|(key, class)| {
            let known = &self.books.queue.classes[class as usize];
            let (shape, queue) = (known.shape, known.queue);
            let stopped =
                self.limited && self.may_run(shape, queue).is_err() && !self.keeps(key, class);
            if stopped || self.is_passed(shape) {
                return None;
            }
            self.place(class);
            let shares = self.places.get(&class).and_then(Option::as_ref);
            let fits = match shares {
                None => false,
                Some(shares) if may_take(self.books, queue, shares).is_ok() => true,
                Some(_) => return None,
            };
            let reserves = !fits && self.policy == Policy::Easy;
            let shadow = reserves.then(|| {
                let mut overlay = Overlay::default();
                let shadow = Shadow::of(self.books, shape, self.now, &mut overlay);
                (shadow, overlay)
            });
            Some(Front {
                key,
                class,
                fits,
                shadow,
            })
        });
        self.fronts.insert(group, front);
    }
}
