//! Conservative and hybrid backfill compared with a model whose plan is a plain list of intervals
//! and core counts.

use std::collections::BTreeMap;

use penstock_engine::{Engine, Job, Options, Policy, QueueId};
use penstock_idset::IdSet;
use penstock_jobspec::Count;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use proptest::prelude::*;

use crate::machines::allocs;
use crate::steps::{Step, Want, step};

/// A machine of equal cores on which jobs request any cores, with a plan that is a plain list.
#[derive(Clone, Debug, Default)]
struct Pool {
    cores: i64,
    queue: BTreeMap<u64, Want>,
    running: BTreeMap<u64, (i64, f64)>,
    reserved: BTreeMap<u64, f64>,
}

/// The plan: start, end (excluded) and number of cores of each use.
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
            let held = plan
                .iter()
                .filter(|(start, end, _)| *start <= at && at < *end);
            held.map(|(.., cores)| cores).sum()
        };
        let begins = plan
            .iter()
            .map(|(start, ..)| *start)
            .filter(|begin| start < *begin && *begin < end);
        let mut times = begins.chain([start]);
        times.all(|at| used(at) + self.size(id) <= self.cores)
    }

    fn earliest(&self, plan: &Plan, not_before: f64, id: u64) -> f64 {
        let ends = plan.iter().map(|(_, end, _)| *end);
        let mut times: Vec<f64> = ends
            .filter(|time| *time > not_before && time.is_finite())
            .collect();
        times.push(not_before);
        times.sort_by(f64::total_cmp);
        let found = times.into_iter().find(|time| self.fits(plan, *time, id));
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
            let starts = order
                .iter()
                .filter_map(|id| Some((*self.reserved.get(id)?, id)));
            let mut starts: Vec<_> = starts.collect();
            // Jobs without a reserved time come first.
            let rank = |start: f64| if start.is_finite() { start } else { 0.0 };
            starts.sort_by(|a, b| rank(a.0).total_cmp(&rank(b.0)));
            for (_, id) in starts {
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

/// Checks a policy on one node of `cores` cores or, with `whole`, on as many nodes of two cores,
/// allocated whole.
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
                    id: JobId::new(next),
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
                    engine.free(JobId::new(*id), None).expect("it runs");
                    pool.running.remove(id);
                }
            }
            Step::Due => {
                let ends = pool.running.values().map(|(_, end)| *end);
                now = ends.fold(f64::INFINITY, f64::min).clamp(now, now + 100.0);
                let due = pool.running.iter().filter(|(_, (_, end))| *end <= now);
                let due: Vec<JobId> = due.map(|(id, _)| JobId::new(*id)).collect();
                assert_eq!(engine.finish(&due), due.len());
                pool.running.retain(|id, _| !due.contains(&JobId::new(*id)));
            }
            Step::Cancel(index) => {
                let id = index as u64;
                assert_eq!(
                    engine.cancel(JobId::new(id)),
                    pool.queue.remove(&id).is_some()
                );
            }
            Step::Prioritize(index, priority) => {
                let id = index as u64;
                engine.prioritize(&[(JobId::new(id), priority)]);
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
        let found = allocs(&mut engine, now);
        assert_eq!(found, expected, "at {now}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

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
