//! Measures how the engine's cost grows: a table of curve, series, x, and nanoseconds, as tab-separated
//! text. `bench/curves.py` runs and plots it.
//!
//! Every figure is the median of several rounds on the state that the curve's title names.

use std::time::Instant;

use penstock_engine::{Decision, Engine, Horizon, Options, Policy, QueueId, Selection, ShapeId};
use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

/// Cores of each node.
const CORES: u32 = 64;
/// The number of jobs that one call decides.
const BATCH_JOBS: u32 = 1000;
/// The number of planned ends until which a start is searched.
const HORIZON: Horizon = Horizon {
    ends: 64,
    decisions: 4096,
    work: u64::MAX,
};
/// Nodes of the machine that the curves of the queue share.
const NODES: u32 = 10_000;

/// Pseudo-random numbers, the same on every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(((self.0 >> 32) * u64::from(bound)) >> 32).unwrap_or(0)
    }
}

fn request(nodes: Option<u32>, slots: u32, cores: u32) -> Request {
    Request {
        nnodes: nodes.map(Into::into),
        exclusive: false,
        slots: slots.into(),
        cores_per_slot: cores.into(),
        gpus_per_slot: 0.into(),
        duration: 0.0,
        constraint: None,
    }
}

fn engine(nodes: u32, policy: Policy, selection: Selection) -> Engine {
    let ranks = IdSet::from(0..=nodes - 1);
    let hosts = format!("node[0-{}]", nodes - 1)
        .parse()
        .expect("a hostlist");
    let cores = IdSet::from(0..=CORES - 1);
    let inventory = ResourceSet::uniform(&ranks, &hosts, cores, IdSet::new()).expect("an R");
    let options = Options {
        selection,
        policy,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&inventory, options).expect("an inventory");
    engine.mark_up(&ranks);
    engine
}

/// The time that `work` takes, in nanoseconds.
fn time(work: impl FnOnce()) -> u128 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_nanos()
}

fn median(mut figures: Vec<u128>) -> u128 {
    figures.sort_unstable();
    figures[figures.len() / 2]
}

fn print(curve: &str, series: &str, x: u32, nanoseconds: u128) {
    println!("{curve}\t{series}\t{x}\t{nanoseconds}");
}

/// Queues a job of one shape without a time limit, or with one.
fn submit(engine: &mut Engine, id: u64, shape: ShapeId, duration: f64) {
    let queued = engine.submit_shape(JobId::new(id), 16, shape, duration, QueueId::default());
    queued.expect("ids are distinct");
}

/// Fills the machine's cores up to a percentage with one-core jobs, at least one. Returns their
/// number.
fn fill(engine: &mut Engine, nodes: u32, percent: u32, duration: impl Fn(u32) -> f64) -> u32 {
    let shape = engine.shape(&request(None, 1, 1));
    let jobs = u32::try_from(u64::from(nodes * CORES) * u64::from(percent) / 100).unwrap_or(0);
    let jobs = jobs.max(1);
    for job in 0..jobs {
        submit(engine, job.into(), shape, duration(job));
    }
    assert_eq!(engine.schedule(0.0, usize::MAX).len(), jobs as usize);
    jobs
}

/// Matches of a batch on an empty machine, each decision separately.
fn matches(
    curve: &str,
    series: &str,
    nodes: u32,
    selection: Selection,
    requested: &Request,
    batch: u32,
) {
    let mut engine = engine(nodes, Policy::Fcfs, selection);
    let shape = engine.shape(requested);
    let ids: Vec<JobId> = (0..batch.into()).map(JobId::new).collect();
    let rounds = (0..21).map(|_| {
        for id in &ids {
            submit(&mut engine, (*id).get(), shape, 0.0);
        }
        let mut decided = Vec::new();
        let took = time(|| decided = engine.schedule(1.0, usize::MAX));
        assert_eq!(decided.len(), ids.len());
        engine.finish(&ids);
        took
    });
    print(
        curve,
        series,
        nodes,
        median(rounds.collect()) / u128::from(batch),
    );
}

/// Replaces a random job, on a machine filled to `percent`; with 0 the job is alone.
fn replace(percent: u32, selection: Selection) {
    let mut engine = engine(NODES, Policy::Fcfs, selection);
    let jobs = fill(&mut engine, NODES, percent, |_| 0.0);
    let shape = engine.shape(&request(None, 1, 1));
    let mut random = Random(42);
    let mut ids: Vec<u64> = (0..jobs.into()).collect();
    // The free resources are scattered, as after some time of operation.
    let mut next = u64::from(jobs);
    let mut round = |engine: &mut Engine, count: u32| {
        for _ in 0..count {
            let place = random.below(jobs) as usize;
            engine.finish(&[JobId::new(ids[place])]);
            submit(engine, next, shape, 0.0);
            ids[place] = next;
            next += 1;
            assert_eq!(engine.schedule(1.0, usize::MAX).len(), 1);
        }
    };
    round(&mut engine, jobs);
    let rounds = (0..11).map(|_| time(|| round(&mut engine, BATCH_JOBS)) / u128::from(BATCH_JOBS));
    let rounds = rounds.collect();
    print("fill", selection.name(), percent, median(rounds));
}

/// The first pass over `jobs` jobs, in slots of 1 to 15 cores, on an empty machine: time per job.
fn first_pass(jobs: u32) {
    let mut engine = engine(NODES, Policy::Conservative, Selection::First);
    let mut random = Random(42);
    for job in 0..jobs {
        let requested = request(None, 1 + random.below(200), 1 + random.below(15));
        let shape = engine.shape(&requested);
        let limit = f64::from(60 * (1 + random.below(600)));
        submit(&mut engine, job.into(), shape, limit);
    }
    let rounds = (0..if jobs > 10_000 { 1 } else { 3 }).map(|_| {
        let mut engine = engine.clone();
        time(|| assert!(!engine.schedule(0.0, usize::MAX).is_empty()))
    });
    let median = median(rounds.collect());
    let policy = Policy::Conservative.to_string();
    print("conservative", &policy, jobs, median / u128::from(jobs));
}

/// Fills a machine: each node has a job, and `depth` jobs of `shapes` shapes are pending behind one
/// that requests half of the nodes. Returns the running jobs.
fn full(engine: &mut Engine, nodes: u32, depth: u32, shapes: u32) -> Vec<u64> {
    let whole = engine.shape(&request(Some(1), 1, CORES));
    for job in 0..nodes {
        submit(engine, job.into(), whole, f64::from(1000 + job % 997));
    }
    assert_eq!(engine.schedule(0.0, usize::MAX).len(), nodes as usize);
    // The blocked head requests a large part of the machine: all other jobs have to pass it.
    let most = engine.shape(&request(Some(nodes / 2), 1, CORES));
    let first = u64::from(nodes);
    submit(engine, first, most, 5000.0);
    let shapes: Vec<ShapeId> = (0..shapes)
        .map(|index| engine.shape(&request(Some(1 + index / 32), 1 + index % 32, 2)))
        .collect();
    for job in 1..depth {
        let shape = shapes[job as usize % shapes.len()];
        let limit = f64::from(100 + job / 7 % 50 * 10);
        submit(engine, first + u64::from(job), shape, limit);
    }
    engine.schedule(1.0, usize::MAX);
    (0..nodes.into()).collect()
}

/// A job ends and one starts, while `depth` jobs of `shapes` shapes are pending on a full machine.
fn waiting(curve: &str, x: u32, policy: Policy, depth: u32, shapes: u32) {
    let mut engine = engine(NODES, policy, Selection::First);
    let mut running = full(&mut engine, NODES, depth, shapes);
    let rounds = (0..101).map(|round| {
        let gone = running.swap_remove(round * 31 % running.len());
        engine.finish(&[JobId::new(gone)]);
        let mut decided = Vec::new();
        let took = time(|| decided = engine.schedule(2.0, usize::MAX));
        running.extend(decided.iter().filter_map(|decision| match decision {
            Decision::Alloc { id, .. } => Some(id.get()),
            Decision::Deny { .. } => None,
        }));
        took
    });
    print(curve, &policy.to_string(), x, median(rounds.collect()));
}

/// Why the job in the middle of the queue is pending, and when it starts if that is soon.
fn explain(policy: Policy, depth: u32) {
    let nodes = 1000;
    let mut engine = engine(nodes, policy, Selection::First);
    full(&mut engine, nodes, depth, 100);
    let middle = u64::from(nodes + depth / 2);
    engine.share();
    let rounds =
        (0..21).map(|_| time(|| assert!(engine.explain(JobId::new(middle), 1.0).is_some())));
    print(
        "explain",
        &format!("{policy}: why"),
        depth,
        median(rounds.collect()),
    );
    let rounds = (0..5).map(|_| {
        time(|| {
            engine.share();
            assert_eq!(
                engine
                    .estimate_within(1.0, &[JobId::new(middle)], HORIZON)
                    .len(),
                1
            );
        })
    });
    print(
        "explain",
        &format!("{policy}: when"),
        depth,
        median(rounds.collect()),
    );
}

fn main() {
    for nodes in [100, 1000, 10_000, 100_000] {
        matches(
            "nodes",
            "1 core",
            nodes,
            Selection::First,
            &request(None, 1, 1),
            BATCH_JOBS,
        );
        let whole = request(Some(1), 1, CORES);
        matches("nodes", "1 node", nodes, Selection::First, &whole, 50);
        if nodes >= 1000 {
            let many = request(Some(64), 1, CORES);
            matches("nodes", "64 nodes", nodes, Selection::First, &many, 10);
        }
        for selection in Selection::ALL {
            let requested = request(None, 1, 1);
            matches(
                "selection",
                selection.name(),
                nodes,
                selection,
                &requested,
                BATCH_JOBS,
            );
        }
    }
    for percent in [0, 1, 10, 25, 50, 75, 90, 99, 100] {
        for selection in [Selection::First, Selection::Pack, Selection::Spread] {
            replace(percent, selection);
        }
    }
    let backfill = [Policy::Fcfs, Policy::Easy, Policy::Hybrid { depth: 8 }];
    for policy in backfill {
        for shapes in [1, 10, 100, 1000, 10_000] {
            waiting("shapes", shapes, policy, 20_000, shapes);
        }
    }
    for policy in backfill {
        for depth in [1000, 10_000, 100_000, 1_000_000] {
            waiting("depth", depth, policy, depth, 100);
        }
    }
    for depth in [1000, 10_000, 100_000] {
        waiting("depth", depth, Policy::Conservative, depth, 100);
    }
    for policy in [Policy::Fcfs, Policy::Easy, Policy::Hybrid { depth: 8 }] {
        for depth in [1000, 10_000, 100_000, 1_000_000] {
            explain(policy, depth);
        }
    }
    for depth in [1000, 10_000, 100_000] {
        explain(Policy::Conservative, depth);
    }
    for jobs in [1000, 4000, 16_000, 64_000] {
        first_pass(jobs);
    }
}
