//! The cost of explanations of pending jobs and of what-if queries.
//!
//! The state: 10,000 nodes of 64 cores, 5,000 jobs running, 100,000 pending of 1,000 shapes and 50
//! time limits, EASY backfill, after a pass. A third of the shapes request nodes.
//!
//! In `queries/wide` 100,000 jobs are running, each on one of 100,000 nodes, with as many distinct
//! ends, and a job that requests all nodes is pending.
#![allow(missing_docs, reason = "criterion's macros write undocumented items")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use penstock_engine::{Change, Engine, Job, Options, Policy, QueueId};
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

const NOW: f64 = 1000.0;

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn request(shape: u64, duration: f64) -> Request {
    let nodes = shape.is_multiple_of(3);
    Request {
        nnodes: nodes.then(|| small(shape / 3 + 1).into()),
        exclusive: nodes,
        slots: if nodes { 1 } else { small(shape + 1) }.into(),
        cores_per_slot: small(1 + shape % 4).into(),
        gpus_per_slot: 0.into(),
        duration,
        constraint: None,
    }
}

fn submit(engine: &mut Engine, id: u64, request: Request) {
    let (priority, queue) = (16, QueueId::default());
    let job = Job {
        id: JobId::new(id),
        priority,
        request,
        queue,
    };
    assert!(engine.submit(job).is_ok());
}

/// An engine with idle nodes, all of them up, and EASY backfill.
fn empty(nodes: u32) -> Engine {
    let last = nodes - 1;
    let text = format!(
        r#"{{"version":1,"execution":{{"R_lite":[{{"rank":"0-{last}","children":{{"core":"0-63"}}}}],
            "nodelist":["node[0-{last}]"],"starttime":0,"expiration":0}}}}"#
    );
    let Ok(inventory) = ResourceSet::from_json(&text) else {
        panic!("the inventory is valid")
    };
    let policy = Policy::Easy;
    let options = Options {
        policy,
        ..Options::default()
    };
    let Ok(mut engine) = Engine::with_options(&inventory, options) else {
        panic!("the inventory is valid")
    };
    engine.mark_up(&inventory.ranks());
    engine
}

fn state(nodes: u32, pending: u64) -> Engine {
    let mut engine = empty(nodes);
    let mut numbers = Numbers(7);
    for id in 1..=5000 {
        let cores = small(u64::from(nodes) * 64 / 5000);
        let mut job = request(1, 100.0 + f64::from(small(numbers.below(10_000))));
        job.slots = cores.into();
        job.cores_per_slot = 1.into();
        submit(&mut engine, id, job);
    }
    assert_eq!(engine.schedule(NOW, usize::MAX).len(), 5000);
    for id in 0..pending {
        let limit = f64::from(small(60 * (1 + numbers.below(50))));
        submit(
            &mut engine,
            10_000 + id,
            request(numbers.below(1000), limit),
        );
    }
    engine.schedule(NOW, usize::MAX);
    engine
}

fn queries(criterion: &mut Criterion) {
    let nodes = 10_000;
    let mut engine = state(nodes, 100_000);
    let queued = engine.queue_order();
    let (first, later) = (queued[0], queued[50]);
    let mut group = criterion.benchmark_group(format!("queries/{nodes}"));
    group.sample_size(10);
    group.bench_function("explain the first", |bencher| {
        bencher.iter(|| black_box(engine.explain(first, NOW)));
    });
    group.bench_function("explain the 50th", |bencher| {
        bencher.iter(|| black_box(engine.explain(later, NOW)));
    });
    group.bench_function("explain the first 100", |bencher| {
        bencher.iter(|| black_box(engine.explain_all(NOW, 100)));
    });
    group.bench_function("snapshot", |bencher| {
        bencher.iter_batched(|| (), |()| engine.clone(), BatchSize::PerIteration);
    });
    let new = Change::Submit(Job {
        id: JobId::new(u64::MAX),
        priority: 32,
        request: request(0, 60.0),
        queue: QueueId::default(),
    });
    group.bench_function("what if an urgent job came", |bencher| {
        bencher.iter(|| black_box(engine.what_if(&new, NOW, 0)));
    });
    group.bench_function("most nodes that would start now", |bencher| {
        bencher.iter(|| black_box(engine.fit_now(first, NOW)));
    });
    group.finish();
}

fn wide(criterion: &mut Criterion) {
    let nodes = 100_000;
    let mut engine = empty(nodes);
    let whole = |count: u32, duration: f64| Request {
        nnodes: Some(count.into()),
        exclusive: true,
        slots: 1.into(),
        cores_per_slot: 64.into(),
        ..request(1, duration)
    };
    for id in 0..nodes {
        // 7919 is a prime: each number occurs once.
        let end = 100.0 + f64::from(small(u64::from(id) * 7919 % u64::from(nodes)));
        submit(&mut engine, id.into(), whole(1, end));
    }
    assert_eq!(engine.schedule(NOW, usize::MAX).len(), 100_000);
    submit(&mut engine, 100_000, whole(nodes, 60.0));
    engine.schedule(NOW, usize::MAX);
    let mut group = criterion.benchmark_group("queries/wide");
    group.sample_size(10);
    group.bench_function("snapshot", |bencher| {
        bencher.iter_batched(|| (), |()| engine.clone(), BatchSize::PerIteration);
    });
    let new = Change::Submit(Job {
        id: JobId::new(u64::MAX),
        priority: 32,
        request: whole(nodes / 2, 60.0),
        queue: QueueId::default(),
    });
    group.bench_function("what if a job of half of the nodes came", |bencher| {
        bencher.iter(|| black_box(engine.what_if(&new, NOW, 0)));
    });
    group.bench_function("estimates", |bencher| {
        bencher.iter(|| black_box(engine.estimate(NOW)));
    });
    group.finish();
}

criterion_group!(benches, queries, wide);
criterion_main!(benches);
