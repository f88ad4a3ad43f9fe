//! Invariants of every policy, selection, kind of request and set of queues, on random machines.
//! The test knows the resources of each node; it places no job itself, it only counts.

use std::collections::BTreeMap;

use penstock_engine::{Decision, Engine, Job, Options, Policy, QueueId, QueueOptions, Selection};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Count, Operator, Request};
use penstock_rset::ResourceSet;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Node {
    cores: u32,
    gpus: u32,
    big: bool,
}

#[derive(Clone, Debug)]
struct Want {
    request: Request,
    queue: usize,
    priority: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Submit(Box<Want>),
    /// Advances the time.
    Wait(u32),
    /// Advances to the next planned end, and ends the jobs that are due.
    Due,
    /// Ends a job early.
    Finish(usize),
    Cancel(usize),
    Mark(usize, bool),
}

/// The allocation of a job: cores and gpus by rank.
type JobAllocation = BTreeMap<usize, (u32, u32)>;

struct World {
    nodes: Vec<Node>,
    up: Vec<bool>,
    queues: Vec<(QueueId, QueueOptions)>,
    engine: Engine,
    policy: Policy,
    now: f64,
    waiting: BTreeMap<u64, Want>,
    running: BTreeMap<u64, (Want, JobAllocation, f64)>,
    /// The last reported reserved starts.
    promised: BTreeMap<u64, f64>,
}

fn inventory(nodes: &[Node]) -> ResourceSet {
    let mut r = ResourceSet::new();
    let mut big = IdSet::new();
    for (rank, node) in (0_u32..).zip(nodes) {
        let (cores, gpus) = ((0..node.cores).collect(), (0..node.gpus).collect());
        r.insert(rank, &format!("n{rank}"), cores, gpus)
            .expect("a new rank");
        if node.big {
            big.insert(rank);
        }
    }
    if !big.is_empty() {
        r.add_property("big", &big).expect("the ranks exist");
    }
    r
}

fn limit(request: &Request) -> f64 {
    if request.duration > 0.0 {
        request.duration
    } else {
        f64::INFINITY
    }
}

/// The number of slots in these cores and gpus, with the minimum of a range.
fn slots(request: &Request, (cores, gpus): (u32, u32)) -> u32 {
    let by_gpus = gpus.checked_div(request.gpus_per_slot.min());
    (cores / request.cores_per_slot.min()).min(by_gpus.unwrap_or(u32::MAX))
}

impl World {
    fn new(
        nodes: Vec<Node>,
        (policy, selection): (Policy, Selection),
        queues: &[QueueOptions],
    ) -> Self {
        let r = inventory(&nodes);
        let options = Options {
            policy,
            selection,
            ..Options::default()
        };
        let mut engine = Engine::with_options(&r, options).expect("R is complete");
        engine.mark_up(&r.ranks());
        let queues = queues.iter().enumerate().map(|(number, options)| {
            let id = engine.queue(&format!("q{number}"));
            engine.set_queue(id, options.clone());
            (id, options.clone())
        });
        let queues = queues.collect();
        Self {
            up: vec![true; nodes.len()],
            nodes,
            queues,
            engine,
            policy,
            now: 100.0,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            promised: BTreeMap::new(),
        }
    }

    fn is_limited(&self) -> bool {
        let mut limits = self.queues.iter();
        limits.any(|(_, options)| {
            (options.max_jobs, options.max_nodes, options.max_cores) != (None, None, None)
        })
    }

    /// Whether all jobs are in one group: jobs of another group may use any free resources.
    fn is_one_group(&self) -> bool {
        self.group(0) == self.group(1)
    }

    fn group(&self, queue: usize) -> String {
        let group = self.queues[queue].1.group.clone();
        group.unwrap_or_else(|| format!("of {queue}"))
    }

    /// The free resources of each node if these jobs are running.
    fn free<'a>(&self, running: impl Iterator<Item = &'a JobAllocation>) -> Vec<(u32, u32)> {
        let mut free: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (node.cores, node.gpus))
            .collect();
        for held in running {
            for (rank, (cores, gpus)) in held {
                free[*rank].0 -= cores;
                free[*rank].1 -= gpus;
            }
        }
        free
    }

    /// The units of each node that is up and eligible, with the cores that they would count.
    fn units(&self, request: &Request, free: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let units = free.iter().enumerate().filter_map(|(rank, free)| {
            let node = self.nodes[rank];
            if !self.up[rank] || (request.constraint.is_some() && !node.big) {
                return None;
            }
            let slots = slots(request, *free);
            if request.nnodes.is_none() {
                return Some((slots, slots * request.cores_per_slot.min()));
            }
            let whole = *free == (node.cores, node.gpus);
            let fits = slots >= request.slots.min() && (whole || !request.exclusive);
            let cores = if request.exclusive {
                node.cores
            } else {
                request.cores_per_slot.min() * request.slots.min()
            };
            fits.then_some((1, cores))
        });
        units.filter(|(count, _)| *count > 0).collect()
    }

    fn fits(&self, request: &Request, free: &[(u32, u32)]) -> bool {
        let there: u32 = self
            .units(request, free)
            .iter()
            .map(|(count, _)| count)
            .sum();
        there >= need(request)
    }

    /// Whether the minimum that a job requests fits now within the limits of its queue.
    fn may_start(&self, want: &Want) -> bool {
        let request = &want.request;
        let options = &self.queues[want.queue].1;
        let mates = self
            .running
            .values()
            .filter(|(other, ..)| other.queue == want.queue);
        let (mut jobs, mut nodes, mut cores) = (1, 0_u64, 0_u64);
        for (_, held, _) in mates {
            jobs += 1;
            nodes += held.len() as u64;
            cores += held
                .values()
                .map(|(cores, _)| u64::from(*cores))
                .sum::<u64>();
        }
        let mut units = self.units(
            request,
            &self.free(self.running.values().map(|(_, held, _)| held)),
        );
        // The fewest nodes are the nodes with the most units, the fewest cores the nodes with the
        // least.
        if request.nnodes.is_some() {
            units.sort_by_key(|(_, cores)| *cores);
        } else {
            units.sort_by_key(|(count, _)| u32::MAX - count);
        }
        let mut left = need(request);
        for (here, its_cores) in units {
            if left == 0 {
                break;
            }
            let taken = here.min(left);
            left -= taken;
            nodes += 1;
            cores += u64::from(if request.nnodes.is_some() {
                its_cores
            } else {
                taken * request.cores_per_slot.min()
            });
        }
        left == 0
            && options.max_jobs.is_none_or(|most| jobs <= most)
            && options.max_nodes.is_none_or(|most| nodes <= most)
            && options.max_cores.is_none_or(|most| cores <= most)
    }

    /// The pending jobs of a group that are not held, in order.
    fn line(&self, group: &str) -> Vec<u64> {
        let mates = self.waiting.iter();
        let mates = mates.filter(|(_, want)| want.priority > 0 && self.group(want.queue) == group);
        let mut line: Vec<(u32, u64)> = mates
            .map(|(id, want)| (u32::MAX - want.priority, *id))
            .collect();
        line.sort_unstable();
        line.into_iter().map(|(_, id)| id).collect()
    }

    /// The time at which a job fits as planned, if these jobs are running.
    fn earliest(&self, request: &Request, running: &[&(Want, JobAllocation, f64)]) -> f64 {
        let planned = |end: f64| if end <= self.now { self.now + 1.0 } else { end };
        let mut times: Vec<f64> = running.iter().map(|(.., end)| planned(*end)).collect();
        times.push(self.now);
        times.sort_by(f64::total_cmp);
        let found = times.into_iter().find(|time| {
            let still = running.iter().filter(|(.., end)| planned(*end) > *time);
            self.fits(request, &self.free(still.map(|(_, held, _)| held)))
        });
        found.unwrap_or(f64::INFINITY)
    }

    /// Makes a pass, and checks its decisions. Returns whether there are any.
    fn pass(&mut self) -> bool {
        let decisions = self.engine.pass(self.now, usize::MAX);
        let mut started = Vec::new();
        for decision in &decisions {
            match decision {
                Decision::Alloc { id, backfilled } => {
                    let id = id.get();
                    let want = self.waiting.remove(&id).expect("it waits");
                    let held = self.check_r(id, &want.request);
                    let end = self.now + limit(&want.request);
                    started.push((id, want.clone(), *backfilled));
                    self.running.insert(id, (want, held, end));
                }
                Decision::Deny { id, .. } => {
                    self.waiting.remove(&id.get()).expect("it waits");
                    self.promised.remove(&id.get());
                }
            }
        }
        self.check_limits();
        self.check_promises(&started);
        self.check_backfill(&started);
        self.check_quotas();
        !decisions.is_empty()
    }

    /// Checks that the allocation of a job meets its request and was free. Returns the allocation.
    fn check_r(&self, id: u64, request: &Request) -> JobAllocation {
        let r = self.engine.r(JobId::new(id)).expect("it runs");
        for other in self.running.keys() {
            let other_r = self.engine.r(JobId::new(*other)).expect("it runs");
            let both = other_r.intersection(&r).expect("of one machine");
            assert!(
                both.ranks().is_empty(),
                "jobs {other} and {id} share {both:?}"
            );
        }
        let mut held = JobAllocation::new();
        let mut all = 0;
        for node in r.nodes() {
            let rank = node.rank as usize;
            let amount = (
                u32::try_from(node.cores.len()).expect("few"),
                u32::try_from(node.gpus.len()).expect("few"),
            );
            assert!(self.up[rank] && (request.constraint.is_none() || self.nodes[rank].big));
            let slots = slots(request, amount);
            if request.exclusive {
                assert_eq!(amount, (self.nodes[rank].cores, self.nodes[rank].gpus));
            } else if request.nnodes.is_some() {
                assert!(slots >= request.slots.min());
            }
            all += slots;
            held.insert(rank, amount);
        }
        let units = match &request.nnodes {
            Some(_) => u32::try_from(held.len()).expect("few"),
            None => all,
        };
        let wanted = request.nnodes.as_ref().unwrap_or(&request.slots);
        let counts = wanted.contains(units) || (request.nnodes.is_none() && !request.is_exact());
        assert!(
            counts && units >= wanted.min(),
            "job {id} holds {held:?} of {request:?}"
        );
        held
    }

    fn check_limits(&self) {
        for (number, (_, options)) in self.queues.iter().enumerate() {
            let mates = self
                .running
                .values()
                .filter(|(want, ..)| want.queue == number);
            let held: Vec<&JobAllocation> = mates.map(|(_, held, _)| held).collect();
            let nodes: usize = held.iter().map(|held| held.len()).sum();
            let cores = held.iter().flat_map(|held| held.values());
            let cores: u64 = cores.map(|(cores, _)| u64::from(*cores)).sum();
            assert!(
                options
                    .max_jobs
                    .is_none_or(|most| held.len() as u64 <= most)
            );
            assert!(options.max_nodes.is_none_or(|most| nodes as u64 <= most));
            assert!(options.max_cores.is_none_or(|most| cores <= most));
        }
    }

    /// Checks that a reservation moves later only if one before it moves earlier (hybrid), or never
    /// (conservative).
    fn check_promises(&mut self, started: &[(u64, Want, bool)]) {
        if !matches!(self.policy, Policy::Hybrid { .. } | Policy::Conservative) {
            return;
        }
        let comparable = self.is_one_group();
        let mut reserved = BTreeMap::new();
        for id in self.waiting.keys() {
            if let Some(at) = self.engine.reservation(JobId::new(*id)) {
                reserved.insert(*id, at);
            }
        }
        let order = |id: u64, want: &Want| (u32::MAX - want.priority, id);
        for (id, at) in &reserved {
            let before = self.promised.get(id).copied().unwrap_or(f64::INFINITY);
            if *at <= before || !comparable {
                continue;
            }
            let mine = order(*id, &self.waiting[id]);
            let known = |id: u64| self.promised.get(&id).copied();
            let earlier = reserved.iter().any(|(other, at)| {
                order(*other, &self.waiting[other]) < mine
                    && known(*other).is_none_or(|promised| *at < promised)
            });
            let passed = started.iter().any(|(other, want, _)| {
                order(*other, want) < mine
                    && known(*other).is_none_or(|promised| self.now < promised)
            });
            let excused = matches!(self.policy, Policy::Hybrid { .. }) && (earlier || passed);
            assert!(
                excused,
                "job {id} was to start at {before}, and is to at {at}"
            );
        }
        for (id, ..) in started {
            let before = self.promised.get(id).copied().unwrap_or(f64::INFINITY);
            let late = self.policy == Policy::Conservative && comparable && before < self.now;
            assert!(
                !late,
                "job {id} was to start at {before}, and starts at {}",
                self.now
            );
        }
        self.promised = reserved;
    }

    /// Checks that under EASY the blocked head is not delayed by jobs that have passed it.
    fn check_backfill(&self, started: &[(u64, Want, bool)]) {
        if self.policy != Policy::Easy || !self.is_one_group() || self.is_limited() {
            return;
        }
        let Some(want) = self.waiting.values().next() else {
            return;
        };
        let all: Vec<_> = self.running.values().collect();
        let line = self.line(&self.group(want.queue));
        let first = line.into_iter().find(|id| {
            let request = &self.waiting[id].request;
            self.fits(request, &self.free(std::iter::empty()))
        });
        let Some(first) = first else {
            return;
        };
        let request = &self.waiting[&first].request;
        let order = (u32::MAX - self.waiting[&first].priority, first);
        let passed = |id: &u64| {
            let mut started = started.iter().filter(|(other, ..)| other == id);
            started.any(|(id, want, _)| (u32::MAX - want.priority, *id) > order)
        };
        let others = self.running.iter().filter(|(id, _)| !passed(id));
        let others: Vec<_> = others.map(|(_, running)| running).collect();
        let (with, without) = (
            self.earliest(request, &all),
            self.earliest(request, &others),
        );
        assert!(
            with <= without,
            "job {first} is delayed from {without} to {with}"
        );
    }

    /// Checks that running jobs leave room in the limits of the queues for each reservation.
    fn check_quotas(&self) {
        let planned = |end: f64| if end <= self.now { self.now + 1.0 } else { end };
        for (id, want) in &self.waiting {
            let Some(at) = self
                .engine
                .reservation(JobId::new(*id))
                .filter(|at| at.is_finite())
            else {
                continue;
            };
            let mates = self
                .running
                .values()
                .filter(|(other, ..)| other.queue == want.queue);
            let still: Vec<_> = mates
                .filter(|(.., end)| planned(*end) > at)
                .map(|(_, held, _)| held)
                .collect();
            let request = &want.request;
            let nodes: usize = still.iter().map(|held| held.len()).sum();
            let nodes = nodes as u64 + u64::from(request.least_nodes().unwrap_or(1));
            let cores = still.iter().flat_map(|held| held.values());
            let cores: u64 = cores.map(|(cores, _)| u64::from(*cores)).sum();
            let cores = cores + request.total_cores();
            let options = &self.queues[want.queue].1;
            let held = [still.len() as u64 + 1, nodes, cores];
            let limits = [options.max_jobs, options.max_nodes, options.max_cores];
            assert!(
                limits
                    .iter()
                    .zip(held)
                    .all(|(most, held)| most.is_none_or(|most| held <= most)),
                "job {id} is to start at {at} in its queue, of which {held:?} would be held: {limits:?}"
            );
        }
    }

    /// Makes passes until no job starts; then no blocked head could start.
    fn settle(&mut self) {
        while self.pass() {}
        let again = self.engine.schedule(self.now, usize::MAX);
        assert_eq!(again, [], "a pass after the last one");
        let groups: Vec<String> = (0..self.queues.len())
            .map(|queue| self.group(queue))
            .collect();
        for group in groups {
            let mut line = self.line(&group);
            line.retain(|id| {
                let request = &self.waiting[id].request;
                self.policy == Policy::Fcfs || self.fits(request, &self.free(std::iter::empty()))
            });
            let may = |id: &u64| self.may_start(&self.waiting[id]);
            // The first job that the limits of its queue do not exclude.
            let first = line.iter().find(|id| {
                let want = &self.waiting[id];
                let free = self.free(self.running.values().map(|(_, held, _)| held));
                may(id) || !self.fits(&want.request, &free)
            });
            let Some(first) = first else {
                continue;
            };
            // Jobs whose reservations may hold what the first needs: under conservative backfill
            // any of the line, else those that are at a limit. EASY tells no start of these.
            let index = line.iter().position(|id| id == first);
            let before = &line[..index.expect("it is in the line")];
            let is_reserved = |id: &u64| {
                let reservation = self.engine.reservation(JobId::new(*id));
                id != first && reservation.is_some_and(f64::is_finite)
            };
            let may_be_reserved = match self.policy {
                Policy::Fcfs => false,
                Policy::Easy => !before.is_empty(),
                Policy::Hybrid { .. } => before.iter().any(is_reserved),
                Policy::Conservative => line.iter().any(is_reserved),
            };
            assert!(
                may_be_reserved || !may(first),
                "job {first} is first, can run, and waits"
            );
        }
    }

    fn end(&mut self, id: u64) {
        self.running.remove(&id);
        self.engine.free(JobId::new(id), None).expect("it runs");
    }

    fn perform(&mut self, step: Step, id: u64) {
        match step {
            Step::Submit(want) => {
                let job = Job {
                    id: JobId::new(id),
                    priority: want.priority,
                    request: want.request.clone(),
                    queue: self.queues[want.queue].0,
                };
                self.engine.submit(job).expect("a new job");
                self.waiting.insert(id, *want);
            }
            Step::Wait(seconds) => {
                // Stops at every planned end on the way, and ends the jobs that are due then.
                let until = self.now + f64::from(seconds);
                while let Some(next) = self.next_end().filter(|end| *end <= until) {
                    self.now = next;
                    self.end_due();
                    self.settle();
                }
                self.now = until;
            }
            Step::Due => {
                if let Some(next) = self.next_end() {
                    self.now = next;
                    self.end_due();
                }
            }
            Step::Finish(index) => {
                let ids: Vec<u64> = self.running.keys().copied().collect();
                if let Some(id) = ids.get(index % ids.len().max(1)) {
                    self.end(*id);
                }
            }
            Step::Cancel(index) => {
                let ids: Vec<u64> = self.waiting.keys().copied().collect();
                if let Some(id) = ids.get(index % ids.len().max(1)) {
                    self.waiting.remove(id);
                    assert!(self.engine.cancel(JobId::new(*id)));
                    self.promised.remove(id);
                }
            }
            Step::Mark(place, up) => {
                let place = place % self.nodes.len();
                self.up[place] = up;
                let rank = IdSet::from_iter([u32::try_from(place).expect("few nodes")]);
                if up {
                    self.engine.mark_up(&rank);
                } else {
                    self.engine.mark_down(&rank);
                }
                self.promised.clear();
            }
        }
    }

    fn next_end(&self) -> Option<f64> {
        let ends = self.running.values().map(|(.., end)| *end);
        ends.filter(|end| end.is_finite()).min_by(f64::total_cmp)
    }

    fn end_due(&mut self) {
        let due = self
            .running
            .iter()
            .filter(|(_, (.., end))| *end <= self.now);
        for id in due.map(|(id, _)| *id).collect::<Vec<u64>>() {
            self.end(id);
        }
    }
}

/// The number of units that a request needs.
fn need(request: &Request) -> u32 {
    request.nnodes.as_ref().unwrap_or(&request.slots).min()
}

fn count(most: u32) -> impl Strategy<Value = Count> {
    let range = |(min, more): (u32, u32)| {
        Count::range(min, Some(min + more), Operator::Add, 1).expect("a range")
    };
    prop_oneof![
        3 => (1..=most).prop_map(Count::exactly),
        1 => (1..=most, 0..=most).prop_map(range),
    ]
}

fn want() -> impl Strategy<Value = Want> {
    let shape = (
        prop::option::of(count(3)),
        any::<bool>(),
        count(5),
        count(3),
        prop_oneof![4 => Just(0_u32), 1 => 1_u32..3],
        prop::bool::weighted(0.2),
    );
    // Mostly requests that sums decide: any cores, or any whole nodes.
    let cores = count(6).prop_map(|slots| (None, false, slots, 1.into(), 0, false));
    let whole = count(3).prop_map(|nodes| (Some(nodes), true, 1.into(), 1.into(), 0, false));
    let shape = prop_oneof![3 => shape, 1 => cores, 1 => whole];
    (shape, 0_u32..12, 0_usize..2, 0_u32..6).prop_map(|(shape, duration, queue, priority)| {
        let (nnodes, exclusive, slots, cores_per_slot, gpus, big) = shape;
        let exclusive = exclusive && nnodes.is_some();
        let slots = if nnodes.is_some() && slots.is_exact() {
            Count::exactly(slots.min().div_ceil(2))
        } else {
            slots
        };
        Want {
            request: Request {
                nnodes,
                exclusive,
                slots,
                cores_per_slot,
                gpus_per_slot: gpus.into(),
                duration: f64::from(duration),
                constraint: big.then(|| Constraint::Properties(vec!["big".to_owned()])),
            },
            queue,
            priority: if priority == 0 {
                0
            } else {
                priority.div_ceil(3)
            },
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => want().prop_map(|want| Step::Submit(Box::new(want))),
        4 => (0_u32..6).prop_map(Step::Wait),
        4 => (0_usize..20).prop_map(Step::Finish),
        4 => Just(Step::Due),
        1 => (0_usize..20).prop_map(Step::Cancel),
        1 => (0_usize..6, any::<bool>()).prop_map(|(node, up)| Step::Mark(node, up)),
    ]
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let node = (1_u32..6, 0_u32..3, any::<bool>());
    let node = node.prop_map(|(cores, gpus, big)| Node { cores, gpus, big });
    prop::collection::vec(node, 1..6)
}

fn queues() -> impl Strategy<Value = Vec<QueueOptions>> {
    let most = || prop::option::weighted(0.3, 1_u64..6);
    let limits = prop_oneof![
        2 => Just((None, None, None)),
        1 => (most(), most(), most()),
    ];
    let queue = (any::<bool>(), limits).prop_map(|(shared, (max_jobs, max_nodes, max_cores))| {
        QueueOptions {
            group: shared.then(|| "shared".to_owned()),
            max_jobs,
            max_nodes,
            max_cores,
            ..QueueOptions::default()
        }
    });
    let one = QueueOptions {
        group: Some("shared".to_owned()),
        ..QueueOptions::default()
    };
    prop_oneof![
        1 => Just(vec![one.clone(), one]),
        1 => prop::collection::vec(queue, 2),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let hybrid = (1_u32..4).prop_map(|depth| Policy::Hybrid { depth });
    prop_oneof![
        Just(Policy::Fcfs),
        Just(Policy::Easy),
        Just(Policy::Conservative),
        hybrid,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn policies_keep_their_word(
        nodes in nodes(),
        policy in policy(),
        selection in prop::sample::select(Selection::ALL.to_vec()),
        queues in queues(),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let mut world = World::new(nodes, (policy, selection), &queues);
        for (id, step) in (1..).zip(steps) {
            world.perform(step, id);
            world.settle();
        }
    }
}
