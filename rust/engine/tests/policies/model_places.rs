//! First come first served and EASY compared with a model that places the jobs of a plain list one
//! after the other, on machines with gpus, whole nodes and constraints.

use std::collections::BTreeMap;

use penstock_engine::{Engine, Job, Options, Policy, QueueId};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use proptest::prelude::*;

use crate::machines::allocs;
use crate::steps::{Node, Step, Want, nodes, step};

/// The free resources of each node: cores, gpus.
type Free = Vec<(u32, u32)>;
/// The allocation of a job: cores and gpus by node.
type JobAllocation = BTreeMap<usize, (u32, u32)>;

#[derive(Clone, Debug)]
struct Model {
    nodes: Vec<Node>,
    free: Free,
    queue: BTreeMap<u64, Want>,
    running: BTreeMap<u64, (JobAllocation, f64)>,
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

    /// Places a job by first fit, on nodes that `accept` accepts.
    fn place(
        &self,
        want: Want,
        accept: impl Fn(usize, (u32, u32)) -> bool,
    ) -> Option<JobAllocation> {
        let mut left = Self::need(want);
        let mut held = JobAllocation::new();
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

    fn take(&mut self, id: u64, held: JobAllocation, end: f64) {
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

    /// Whether the job fits on the nodes that are up if no job is running.
    fn is_reachable(&self, want: Want) -> bool {
        let nodes = self.nodes.iter();
        let free = nodes.map(|node| (node.cores, node.gpus)).collect();
        self.all_units(want, &free) >= Self::need(want)
    }

    /// The time at which the job can start as planned, and the free resources then.
    fn shadow(&self, want: Want, now: f64) -> (f64, Free) {
        let planned = |end: f64| if end <= now { now + 1.0 } else { end };
        let mut ends: Vec<f64> = self
            .running
            .values()
            .map(|(_, end)| planned(*end))
            .collect();
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

    /// Makes one pass. Returns the jobs that started, and whether they are backfilled.
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
            // A job without a limit has no planned end.
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
                    id: JobId::new(next),
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
                    engine.free(JobId::new(*id), None).expect("it runs");
                    model.finish(*id);
                }
            }
            Step::Due => {
                let ends = model.running.values().map(|(_, end)| *end);
                now = ends.fold(f64::INFINITY, f64::min).clamp(now, now + 100.0);
                let due = model.running.iter().filter(|(_, (_, end))| *end <= now);
                let due: Vec<JobId> = due.map(|(id, _)| JobId::new(*id)).collect();
                assert_eq!(engine.finish(&due), due.len());
                for id in due {
                    model.finish(id.get());
                }
            }
            Step::Cancel(index) => {
                let id = index as u64;
                let was_queued = model.queue.remove(&id).is_some();
                assert_eq!(engine.cancel(JobId::new(id)), was_queued);
            }
            Step::Prioritize(index, priority) => {
                let id = index as u64;
                let found = engine.prioritize(&[(JobId::new(id), priority)]);
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
        let found = allocs(&mut engine, now);
        assert_eq!(found, expected);
        for (id, _) in found {
            let r = engine.r(JobId::new(id)).expect("it runs");
            let held: JobAllocation = r
                .nodes()
                .map(|node| {
                    let cores = u32::try_from(node.cores.len()).expect("few cores");
                    let gpus = u32::try_from(node.gpus.len()).expect("few gpus");
                    (node.rank as usize, (cores, gpus))
                })
                .collect();
            assert_eq!(held, model.running[&id].0, "job {id}");
        }
        check_queue(&mut engine, &model);
    }
}

/// Checks that the pending jobs are those of the model, in its order.
fn check_queue(engine: &mut Engine, model: &Model) {
    let order: Vec<JobId> = model.order().into_iter().map(JobId::new).collect();
    assert_eq!(engine.queue_len(), model.queue.len());
    assert_eq!(engine.queue_order(), order);
    assert_eq!(engine.head(), order.first().copied());
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
}
