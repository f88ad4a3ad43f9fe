//! Queue policies against a walk over a plain list that looks at one job after the other, on
//! machines with gpus, whole nodes and constraints.

use std::collections::BTreeMap;

use penstock_engine::{Decision, Engine, Job, Options, Policy, QueueId, QueueOptions};
use penstock_idset::IdSet;
use penstock_jobspec::{Constraint, Count, Request};
use penstock_rset::ResourceSet;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Node {
    cores: u32,
    gpus: u32,
    big: bool,
    up: bool,
}

#[derive(Clone, Copy, Debug)]
struct Want {
    nnodes: Option<u32>,
    exclusive: bool,
    slots: u32,
    cores: u32,
    gpus: u32,
    big: bool,
    limit: u32,
    priority: u32,
}

impl Want {
    fn request(self) -> Request {
        Request {
            nnodes: self.nnodes.map(Count::exactly),
            exclusive: self.exclusive && self.nnodes.is_some(),
            slots: Count::exactly(self.slots),
            cores_per_slot: Count::exactly(self.cores),
            gpus_per_slot: Count::exactly(self.gpus),
            duration: f64::from(self.limit),
            constraint: self
                .big
                .then(|| Constraint::Properties(vec!["big".to_owned()])),
        }
    }

    fn limit(self) -> f64 {
        match self.limit {
            0 => f64::INFINITY,
            limit => f64::from(limit),
        }
    }
}

/// What is free of each node: cores, gpus.
type Free = Vec<(u32, u32)>;
/// What a job holds: cores and gpus by node.
type Held = BTreeMap<usize, (u32, u32)>;

#[derive(Clone, Debug)]
struct Model {
    nodes: Vec<Node>,
    free: Free,
    queue: BTreeMap<u64, Want>,
    running: BTreeMap<u64, (Held, f64)>,
}

impl Model {
    fn units(&self, want: Want, place: usize, free: (u32, u32)) -> u32 {
        let node = self.nodes[place];
        if !node.up || (want.big && !node.big) {
            return 0;
        }
        let slots = (free.0 / want.cores).min(free.1.checked_div(want.gpus).unwrap_or(u32::MAX));
        if want.nnodes.is_none() {
            return slots;
        }
        let whole = free == (node.cores, node.gpus);
        u32::from(slots >= want.slots && (whole || !want.exclusive))
    }

    fn need(want: Want) -> u32 {
        want.nnodes.unwrap_or(want.slots)
    }

    fn all_units(&self, want: Want, free: &Free) -> u32 {
        let places = free.iter().enumerate();
        places
            .map(|(place, free)| self.units(want, place, *free))
            .sum()
    }

    fn amount(&self, want: Want, place: usize, units: u32) -> (u32, u32) {
        if want.nnodes.is_some() && want.exclusive {
            let node = self.nodes[place];
            return (node.cores, node.gpus);
        }
        let slots = if want.nnodes.is_some() {
            want.slots
        } else {
            units
        };
        (want.cores * slots, want.gpus * slots)
    }

    /// First fit, on nodes that `accept` takes.
    fn place(&self, want: Want, accept: impl Fn(usize, (u32, u32)) -> bool) -> Option<Held> {
        let mut left = Self::need(want);
        let mut held = Held::new();
        for (place, free) in self.free.iter().enumerate() {
            let units = self.units(want, place, *free).min(left);
            if units > 0 {
                let amount = self.amount(want, place, units);
                if accept(place, amount) {
                    held.insert(place, amount);
                    left -= units;
                }
            }
        }
        (left == 0).then_some(held)
    }

    fn take(&mut self, id: u64, held: Held, end: f64) {
        for (place, (cores, gpus)) in &held {
            self.free[*place].0 -= cores;
            self.free[*place].1 -= gpus;
        }
        self.queue.remove(&id);
        self.running.insert(id, (held, end));
    }

    fn finish(&mut self, id: u64) {
        let (held, _) = self.running.remove(&id).expect("it runs");
        for (place, (cores, gpus)) in held {
            self.free[place].0 += cores;
            self.free[place].1 += gpus;
        }
    }

    fn order(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.queue.keys().copied().collect();
        ids.retain(|id| self.queue[id].priority > 0);
        ids.sort_by_key(|id| (u32::MAX - self.queue[id].priority, *id));
        ids
    }

    fn cost(&self, first: Want, free: &Free, place: usize, amount: (u32, u32)) -> u32 {
        let before = free[place];
        let after = (before.0 - amount.0, before.1 - amount.1);
        self.units(first, place, before) - self.units(first, place, after)
    }

    /// Whether the nodes that are up would do, if nothing ran.
    fn is_reachable(&self, want: Want) -> bool {
        let nodes = self.nodes.iter();
        let free = nodes.map(|it| (it.cores, it.gpus)).collect();
        self.all_units(want, &free) >= Self::need(want)
    }

    /// When the job can start as planned, and what is free then.
    fn shadow(&self, want: Want, now: f64) -> (f64, Free) {
        let planned = |end: f64| if end <= now { now + 1.0 } else { end };
        let mut ends: Vec<f64> = self.running.values().map(|it| planned(it.1)).collect();
        ends.sort_by(f64::total_cmp);
        let mut free = self.free.clone();
        for time in ends {
            free.clone_from(&self.free);
            for (held, end) in self.running.values() {
                if planned(*end) <= time {
                    for (place, (cores, gpus)) in held {
                        free[*place].0 += cores;
                        free[*place].1 += gpus;
                    }
                }
            }
            if self.all_units(want, &free) >= Self::need(want) {
                return (time, free);
            }
        }
        (f64::INFINITY, free)
    }

    /// One pass. Returns what started, and whether as backfill.
    fn pass(&mut self, now: f64, policy: Policy) -> Vec<(u64, bool)> {
        let mut started = Vec::new();
        let mut blocked: Option<(Want, f64, Free, u32)> = None;
        let mut passed = false;
        for id in self.order() {
            let want = self.queue[&id];
            let end = now + want.limit();
            let Some(held) = self.place(want, |_, _| true) else {
                if blocked.is_none() {
                    if policy == Policy::Fcfs {
                        return started;
                    }
                    if !self.is_reachable(want) {
                        passed = true;
                        continue;
                    }
                    let (time, free) = self.shadow(want, now);
                    let units = self.all_units(want, &free);
                    let spare = units.saturating_sub(Self::need(want));
                    blocked = Some((want, time, free, spare));
                }
                continue;
            };
            let Some((first, time, mut free, mut spare)) = blocked.clone() else {
                self.take(id, held, end);
                started.push((id, passed));
                continue;
            };
            let pool =
                first.nnodes.is_none() && (first.cores, first.gpus, first.big) == (1, 0, false);
            let mut chosen = held;
            // One without a limit never ends as planned.
            if end > time || end.is_infinite() {
                let harm = |place, amount| self.cost(first, &free, place, amount);
                let mut cost: u32 = chosen
                    .iter()
                    .map(|(place, amount)| harm(*place, *amount))
                    .sum();
                if cost > spare {
                    if pool {
                        continue;
                    }
                    let beside = self.place(want, |place, amount| harm(place, amount) == 0);
                    let Some(beside) = beside else {
                        continue;
                    };
                    chosen = beside;
                    cost = 0;
                }
                spare -= cost;
                for (place, (cores, gpus)) in &chosen {
                    free[*place].0 -= cores;
                    free[*place].1 -= gpus;
                }
            }
            blocked = Some((first, time, free, spare));
            self.take(id, chosen, end);
            started.push((id, true));
        }
        started
    }

    fn schedule(&mut self, now: f64, policy: Policy) -> Vec<(u64, bool)> {
        let mut all = Vec::new();
        loop {
            let started = self.pass(now, policy);
            if started.is_empty() {
                return all;
            }
            all.extend(started);
        }
    }

    fn inventory(&self) -> ResourceSet {
        let mut r = ResourceSet::new();
        let mut big = IdSet::new();
        for (rank, node) in (0_u32..).zip(&self.nodes) {
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
}

#[derive(Clone, Debug)]
enum Step {
    Submit(Want),
    Wait(u32),
    Finish(usize),
    Cancel(usize),
    Prioritize(usize, u32),
    Mark(usize, bool),
    /// On to the next planned end, at which all that are due end.
    Due,
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let node = (1_u32..6, 0_u32..3, any::<bool>(), prop::bool::weighted(0.9));
    let node = node.prop_map(|(cores, gpus, big, up)| Node {
        cores,
        gpus,
        big,
        up,
    });
    prop::collection::vec(node, 1..6)
}

fn want() -> impl Strategy<Value = Want> {
    let shape = (
        prop::option::weighted(0.4, 1_u32..4),
        any::<bool>(),
        1_u32..6,
        1_u32..4,
        prop_oneof![3 => Just(0_u32), 1 => 1_u32..3],
        prop::bool::weighted(0.2),
    );
    // Mostly one-core slots, whose sums decide.
    let pool = (1_u32..12).prop_map(|slots| (None, false, slots, 1, 0, false));
    let shape = prop_oneof![2 => shape, 1 => pool];
    (shape, 0_u32..9, 0_u32..4).prop_map(|(shape, limit, priority)| {
        let (nnodes, exclusive, slots, cores, gpus, big) = shape;
        let slots = if nnodes.is_some() {
            slots.div_ceil(2)
        } else {
            slots
        };
        Want {
            nnodes,
            exclusive: exclusive && nnodes.is_some(),
            slots,
            cores,
            gpus,
            big,
            limit,
            priority,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => want().prop_map(Step::Submit),
        3 => (0_u32..6).prop_map(Step::Wait),
        4 => (0_usize..20).prop_map(Step::Finish),
        4 => Just(Step::Due),
        1 => (0_usize..20).prop_map(Step::Cancel),
        1 => (0_usize..20, 0_u32..4).prop_map(|(job, to)| Step::Prioritize(job, to)),
        1 => (0_usize..6, any::<bool>()).prop_map(|(node, up)| Step::Mark(node, up)),
    ]
}

#[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
fn check(nodes: Vec<Node>, steps: Vec<Step>, policy: Policy, each: bool) {
    let free = nodes.iter().map(|node| (node.cores, node.gpus)).collect();
    let mut model = Model {
        nodes,
        free,
        queue: BTreeMap::new(),
        running: BTreeMap::new(),
    };
    let options = Options {
        policy,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&model.inventory(), options).expect("R is complete");
    for (rank, node) in (0_u32..).zip(&model.nodes) {
        if node.up {
            engine.mark_up(&IdSet::from_iter([rank]));
        }
    }
    let mut now = 100.0;
    let mut next = 1;
    for step in steps {
        match step {
            Step::Submit(want) => {
                if engine.feasible(&want.request()).is_err() {
                    continue;
                }
                let job = Job {
                    id: next,
                    priority: want.priority,
                    request: want.request(),
                    queue: QueueId::default(),
                };
                engine.submit(job).expect("a new job");
                model.queue.insert(next, want);
                next += 1;
            }
            Step::Wait(halves) => now += f64::from(halves) * 0.5,
            Step::Finish(index) => {
                let ids: Vec<u64> = model.running.keys().copied().collect();
                if let Some(id) = ids.get(index % ids.len().max(1)) {
                    engine.free(*id, None).expect("it runs");
                    model.finish(*id);
                }
            }
            Step::Due => {
                let ends = model.running.values().map(|it| it.1);
                now = ends.fold(f64::INFINITY, f64::min).clamp(now, now + 100.0);
                let due = model.running.iter().filter(|it| it.1.1 <= now);
                let due: Vec<u64> = due.map(|it| *it.0).collect();
                assert_eq!(engine.finish(&due), due.len());
                for id in due {
                    model.finish(id);
                }
            }
            Step::Cancel(index) => {
                let id = index as u64;
                assert_eq!(engine.cancel(id), model.queue.remove(&id).is_some());
            }
            Step::Prioritize(index, priority) => {
                let id = index as u64;
                let found = engine.prioritize(&[(id, priority)]);
                assert_eq!(found, usize::from(model.queue.contains_key(&id)));
                if let Some(want) = model.queue.get_mut(&id) {
                    want.priority = priority;
                }
            }
            Step::Mark(place, up) => {
                if let Some(node) = model.nodes.get_mut(place) {
                    node.up = up;
                    let rank = IdSet::from_iter([u32::try_from(place).expect("few nodes")]);
                    if up {
                        engine.mark_up(&rank);
                    } else {
                        engine.mark_down(&rank);
                    }
                }
            }
        }
        if !each && next % 3 != 0 {
            continue;
        }
        let expected = model.schedule(now, policy);
        let decisions = engine.schedule(now, usize::MAX);
        let found: Vec<(u64, bool)> = decisions
            .iter()
            .map(|decision| match decision {
                Decision::Alloc { id, backfilled } => (*id, *backfilled),
                Decision::Deny { id, note } => panic!("job {id} denied: {note}"),
            })
            .collect();
        assert_eq!(found, expected);
        for (id, _) in found {
            let r = engine.r(id).expect("it runs");
            let held: Held = r
                .nodes()
                .map(|node| {
                    let cores = u32::try_from(node.cores.len()).expect("few cores");
                    let gpus = u32::try_from(node.gpus.len()).expect("few gpus");
                    (node.rank as usize, (cores, gpus))
                })
                .collect();
            assert_eq!(held, model.running[&id].0, "job {id}");
        }
        assert_eq!(engine.queue_len(), model.queue.len());
        assert_eq!(engine.queued(), model.order());
        assert_eq!(engine.head(), model.order().first().copied());
    }
}

/// A machine of equal cores on which jobs ask for any of them, with a plan that is a plain list.
#[derive(Clone, Debug, Default)]
struct Pool {
    cores: i64,
    queue: BTreeMap<u64, Want>,
    running: BTreeMap<u64, (i64, f64)>,
    reserved: BTreeMap<u64, f64>,
}

/// Who holds how many cores from when until before when.
type Plan = Vec<(f64, f64, i64)>;

impl Pool {
    fn size(&self, id: u64) -> i64 {
        i64::from(self.queue[&id].slots)
    }

    fn order(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.queue.keys().copied().collect();
        ids.retain(|id| self.queue[id].priority > 0);
        ids.sort_by_key(|id| (u32::MAX - self.queue[id].priority, *id));
        ids
    }

    fn running(&self, now: f64) -> Plan {
        let planned = |end: f64| if end <= now { now + 1.0 } else { end };
        let holders = self.running.values();
        holders
            .map(|(size, end)| (now, planned(*end), *size))
            .collect()
    }

    fn fits(&self, plan: &Plan, start: f64, id: u64) -> bool {
        let end = start + self.queue[&id].limit();
        let used = |at: f64| -> i64 {
            let held = plan.iter().filter(|it| it.0 <= at && at < it.1);
            held.map(|it| it.2).sum()
        };
        let begins = plan
            .iter()
            .map(|it| it.0)
            .filter(|it| start < *it && *it < end);
        let mut times = begins.chain([start]);
        times.all(|at| used(at) + self.size(id) <= self.cores)
    }

    fn earliest(&self, plan: &Plan, not_before: f64, id: u64) -> f64 {
        let ends = plan.iter().map(|it| it.1);
        let mut times: Vec<f64> = ends
            .filter(|it| *it > not_before && it.is_finite())
            .collect();
        times.push(not_before);
        times.sort_by(f64::total_cmp);
        let found = times.into_iter().find(|it| self.fits(plan, *it, id));
        found.unwrap_or(f64::INFINITY)
    }

    fn hold(&self, plan: &mut Plan, start: f64, id: u64) {
        if start.is_finite() {
            plan.push((start, start + self.queue[&id].limit(), self.size(id)));
        }
    }

    fn start(&mut self, id: u64, now: f64) {
        let end = now + self.queue[&id].limit();
        self.running.insert(id, (self.size(id), end));
        self.queue.remove(&id);
        self.reserved.remove(&id);
    }

    fn hybrid(&mut self, now: f64, depth: u32) -> Vec<(u64, bool)> {
        let mut started = Vec::new();
        let mut plan = self.running(now);
        let mut reservations = 0;
        let mut behind = false;
        for id in self.order() {
            if self.fits(&plan, now, id) {
                self.hold(&mut plan, now, id);
                self.start(id, now);
                started.push((id, behind));
            } else {
                behind = true;
                if reservations < depth {
                    let start = self.earliest(&plan, now, id);
                    self.hold(&mut plan, start, id);
                    reservations += 1;
                }
            }
        }
        started
    }

    fn others(&self, id: u64, now: f64) -> Plan {
        let mut plan = self.running(now);
        for (other, start) in &self.reserved {
            if *other != id {
                self.hold(&mut plan, *start, *other);
            }
        }
        plan
    }

    fn conservative(&mut self, now: f64) -> Vec<(u64, bool)> {
        let order = self.order();
        self.reserved.retain(|id, _| order.contains(id));
        let mut plan = self.running(now);
        for id in &order {
            if let Some(start) = self.reserved.get(id).copied() {
                let start = self.earliest(&plan, start.max(now), *id);
                self.hold(&mut plan, start, *id);
                self.reserved.insert(*id, start);
            }
        }
        let mut moved = true;
        while moved {
            moved = false;
            for id in &order {
                if let Some(before) = self.reserved.get(id).copied() {
                    let start = self.earliest(&self.others(*id, now), now, *id);
                    assert!(
                        start <= before,
                        "job {id} is delayed from {before} to {start}"
                    );
                    moved |= start < before;
                    self.reserved.insert(*id, start);
                }
            }
        }
        for id in &order {
            if !self.reserved.contains_key(id) {
                let start = self.earliest(&self.others(*id, now), now, *id);
                self.reserved.insert(*id, start);
            }
        }
        let mut started = Vec::new();
        let mut behind = false;
        for id in order {
            if self.reserved[&id] <= now {
                self.start(id, now);
                started.push((id, behind));
            } else {
                behind = true;
            }
        }
        started
    }
}

/// As many cores on one node, or as many nodes of two cores that are given out whole.
fn check_plan(cores: u32, whole: bool, steps: Vec<Step>, policy: Policy) {
    let mut pool = Pool {
        cores: i64::from(cores),
        ..Pool::default()
    };
    let mut r = ResourceSet::new();
    for rank in 0..cores {
        let cores = if whole { 0..2 } else { 0..1 };
        r.insert(rank, &format!("n{rank}"), cores.collect(), IdSet::new())
            .expect("a new rank");
    }
    let options = Options {
        policy,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&r, options).expect("R is complete");
    engine.mark_up(&r.ranks());
    let (mut now, mut next) = (100.0, 1);
    for step in steps {
        match step {
            Step::Submit(want) if i64::from(want.slots) <= pool.cores => {
                let mut request = Want {
                    nnodes: None,
                    cores: 1,
                    gpus: 0,
                    big: false,
                    ..want
                }
                .request();
                if whole {
                    request.nnodes = Some(std::mem::replace(&mut request.slots, Count::exactly(1)));
                    request.exclusive = true;
                }
                let job = Job {
                    id: next,
                    priority: want.priority,
                    request,
                    queue: QueueId::default(),
                };
                engine.submit(job).expect("a new job");
                pool.queue.insert(next, want);
                next += 1;
            }
            Step::Wait(halves) => now += f64::from(halves) * 0.5,
            Step::Finish(index) => {
                let ids: Vec<u64> = pool.running.keys().copied().collect();
                if let Some(id) = ids.get(index % ids.len().max(1)) {
                    engine.free(*id, None).expect("it runs");
                    pool.running.remove(id);
                }
            }
            Step::Due => {
                let ends = pool.running.values().map(|it| it.1);
                now = ends.fold(f64::INFINITY, f64::min).clamp(now, now + 100.0);
                let due = pool.running.iter().filter(|it| it.1.1 <= now);
                let due: Vec<u64> = due.map(|it| *it.0).collect();
                assert_eq!(engine.finish(&due), due.len());
                pool.running.retain(|id, _| !due.contains(id));
            }
            Step::Cancel(index) => {
                let id = index as u64;
                assert_eq!(engine.cancel(id), pool.queue.remove(&id).is_some());
            }
            Step::Prioritize(index, priority) => {
                let id = index as u64;
                engine.prioritize(&[(id, priority)]);
                if let Some(want) = pool.queue.get_mut(&id) {
                    want.priority = priority;
                }
            }
            Step::Submit(_) | Step::Mark(..) => continue,
        }
        let expected = match policy {
            Policy::Hybrid { depth } => pool.hybrid(now, depth),
            _ => pool.conservative(now),
        };
        let decisions = engine.schedule(now, usize::MAX);
        let found: Vec<(u64, bool)> = decisions
            .iter()
            .map(|decision| match decision {
                Decision::Alloc { id, backfilled } => (*id, *backfilled),
                Decision::Deny { id, note } => panic!("job {id} denied: {note}"),
            })
            .collect();
        assert_eq!(found, expected, "at {now}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn first_come_first_served(nodes in nodes(), steps in prop::collection::vec(step(), 1..60)) {
        check(nodes, steps, Policy::Fcfs, true);
    }

    #[test]
    fn easy(
        nodes in nodes(),
        steps in prop::collection::vec(step(), 1..60),
        each in any::<bool>(),
    ) {
        check(nodes, steps, Policy::Easy, each);
    }

    #[test]
    fn hybrid(
        cores in 1_u32..14,
        whole in any::<bool>(),
        steps in prop::collection::vec(step(), 1..60),
        depth in 1_u32..4,
    ) {
        check_plan(cores, whole, steps, Policy::Hybrid { depth });
    }

    #[test]
    fn conservative(
        cores in 1_u32..14,
        whole in any::<bool>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        check_plan(cores, whole, steps, Policy::Conservative);
    }
}

/// An engine with one node of so many cores.
fn pool(cores: u32, policy: Policy) -> Engine {
    let mut r = ResourceSet::new();
    r.insert(0, "n0", (0..cores).collect(), IdSet::new())
        .expect("a new rank");
    let options = Options {
        policy,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&r, options).expect("R is complete");
    engine.mark_up(&r.ranks());
    engine
}

fn submit(engine: &mut Engine, id: u64, cores: u32, duration: f64) {
    submit_to(engine, id, cores, duration, QueueId::default());
}

fn submit_to(engine: &mut Engine, id: u64, cores: u32, duration: f64, queue: QueueId) {
    let request = Request {
        nnodes: None,
        exclusive: false,
        slots: Count::exactly(cores),
        cores_per_slot: Count::exactly(1),
        gpus_per_slot: Count::exactly(0),
        duration,
        constraint: None,
    };
    let job = Job {
        id,
        priority: 16,
        request,
        queue,
    };
    engine.submit(job).expect("a new job");
}

fn started(engine: &mut Engine, now: f64) -> Vec<(u64, bool)> {
    let decisions = engine.schedule(now, usize::MAX);
    let alloc = decisions.into_iter().map(|decision| match decision {
        Decision::Alloc { id, backfilled } => (id, backfilled),
        Decision::Deny { id, note } => panic!("job {id} denied: {note}"),
    });
    alloc.collect()
}

#[test]
fn a_job_that_is_to_end_when_it_starts_is_planned_to_end_a_second_later() {
    let mut engine = pool(8, Policy::Easy);
    submit(&mut engine, 2, 1, f64::MIN_POSITIVE);
    submit(&mut engine, 6, 6, 1.0);
    submit(&mut engine, 11, 2, f64::MIN_POSITIVE);
    // Job 11 has its shadow at 1, when both before it end: job 18 has ended by then.
    submit(&mut engine, 18, 1, 1.0);
    assert_eq!(
        started(&mut engine, 0.0),
        [(2, false), (6, false), (18, true)]
    );
}

#[test]
fn estimates_follow_the_policy_and_leave_the_engine_alone() {
    for (policy, expected) in [
        ("fcfs", [Some(110.0), Some(120.0), Some(120.0), None]),
        ("easy", [Some(110.0), Some(100.0), Some(120.0), None]),
        (
            "conservative",
            [Some(110.0), Some(100.0), Some(120.0), None],
        ),
        ("hybrid:2", [Some(110.0), Some(100.0), Some(120.0), None]),
    ] {
        let policy = policy.parse().expect("a policy");
        let mut engine = pool(4, policy);
        submit(&mut engine, 1, 3, 10.0);
        assert_eq!(started(&mut engine, 100.0), [(1, false)]);
        submit(&mut engine, 2, 4, 10.0);
        submit(&mut engine, 3, 1, 10.0);
        submit(&mut engine, 4, 1, 20.0);
        // For ever on all cores: what comes behind it never starts as planned.
        submit(&mut engine, 5, 4, 0.0);
        submit(&mut engine, 6, 4, 1.0);
        let before = format!("{engine:?}");
        let estimates = engine.estimate(100.0);
        assert_eq!(format!("{engine:?}"), before);
        let found: Vec<Option<f64>> = estimates.iter().map(|it| it.start).collect();
        assert_eq!(found[..3], expected[..3], "{policy}");
        assert_eq!(estimates[4].start, None, "{policy}");
        assert_eq!(engine.estimate_of(100.0, &[3]), estimates[1..2]);
        // Long overdue: job 1 ends a second from now.
        let late = engine.estimate_of(500.0, &[2, 7]);
        assert_eq!(
            (late[0].start, late[1].start),
            (Some(501.0), None),
            "{policy}"
        );
    }
}

#[test]
fn a_job_is_backfilled_when_an_earlier_one_of_its_group_stays_waiting() {
    for policy in ["fcfs", "easy", "conservative", "hybrid:2"] {
        let mut engine = pool(8, policy.parse().expect("a policy"));
        let queues = ["a", "b", "c"].map(|name| engine.queue(name));
        for (queue, group, max_jobs) in [
            (queues[0], Some("one"), Some(1)),
            (queues[1], Some("one"), None),
            (queues[2], None, None),
        ] {
            let group = group.map(str::to_owned);
            let options = QueueOptions {
                group,
                max_jobs,
                ..QueueOptions::default()
            };
            engine.set_queue(queue, options);
        }
        // Two in `a`, of which one may run; one behind them in its group, one in another.
        for (id, queue) in [(1, 0), (2, 0), (3, 1), (4, 2)] {
            submit_to(&mut engine, id, 1, 10.0, queues[queue]);
        }
        let mut found = started(&mut engine, 100.0);
        found.sort_unstable();
        assert_eq!(found, [(1, false), (3, true), (4, false)], "{policy}");
        // One waits for cores in a group: those of another are not behind it.
        submit_to(&mut engine, 5, 8, 10.0, queues[1]);
        submit_to(&mut engine, 6, 1, 10.0, queues[2]);
        submit_to(&mut engine, 7, 1, 10.0, queues[1]);
        let found = started(&mut engine, 100.0);
        let past = found.iter().find(|it| it.0 == 7);
        assert_eq!(past.map(|it| it.1), (policy != "fcfs").then_some(true));
        assert!(found.contains(&(6, false)), "{policy}");
    }
}

#[test]
fn a_queue_that_has_become_empty_takes_no_job_from_another() {
    for policy in ["fcfs", "easy", "conservative", "hybrid:2"] {
        let mut engine = pool(8, policy.parse().expect("a policy"));
        let limited = engine.queue("limited");
        let options = QueueOptions {
            max_jobs: Some(1),
            ..QueueOptions::default()
        };
        engine.set_queue(limited, options);
        submit_to(&mut engine, 1, 1, 10.0, limited);
        assert!(engine.cancel(1));
        submit(&mut engine, 2, 1, 10.0);
        assert_eq!(started(&mut engine, 100.0), [(2, false)], "{policy}");
    }
}
