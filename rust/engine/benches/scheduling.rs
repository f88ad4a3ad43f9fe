//! The cost of passes: `cargo bench -p penstock-engine --bench scheduling`.
//!
//! | bench | state and work |
//! |---|---|
//! | `decide` | empty machine of the given number of nodes with 64 cores, 10,000 one-core jobs of one lane in the queue: one decision, queue and counters included |
//! | `submit` | one job of a known shape into a queue of 100,000 |
//! | `full` | 1,000 nodes without a free core, the given number of jobs of 1,000 shapes pending: one pass that starts no job |
//! | `easy` | 10,000 nodes with 5,000 jobs running, 100,000 pending in 1,000 shapes with 50 limits each: one pass that starts no job, and one after a job has ended |
//! | `estimate` | the same: estimates for all pending jobs |
//! | `prioritize` | 100,000 pending jobs get new priorities |
//! | `snapshot` | 100,000 nodes, 100,000 one-core jobs running: one clone |

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use penstock_engine::{Engine, Options, Policy, QueueId, ShapeId};
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Count, Request};
use penstock_rset::ResourceSet;

/// A small generator of pseudo-random numbers, the same on every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn small(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(bound.into())).unwrap_or(bound)
    }
}

fn machine(nodes: u32, policy: Policy) -> Engine {
    let last = nodes - 1;
    let text = format!(
        r#"{{"version":1,"execution":{{"R_lite":[{{"rank":"0-{last}","children":{{"core":"0-63"}}}}],
            "nodelist":["node[0-{last}]"]}}}}"#
    );
    let inventory = ResourceSet::from_json(&text).expect("R is well formed");
    let options = Options {
        policy,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&inventory, options).expect("R is complete");
    engine.mark_up(&inventory.ranks());
    engine
}

fn request(nnodes: Option<u32>, slots: u32, cores: u32) -> Request {
    Request {
        nnodes: nnodes.map(Count::exactly),
        exclusive: nnodes.is_some(),
        slots: Count::exactly(slots),
        cores_per_slot: Count::exactly(cores),
        gpus_per_slot: Count::exactly(0),
        duration: 0.0,
        constraint: None,
    }
}

fn submit(engine: &mut Engine, id: u64, shape: ShapeId, limit: f64) {
    let queue = QueueId::default();
    engine
        .submit_shape(JobId::new(id), 16, shape, limit, queue)
        .expect("a new job");
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide");
    for policy in [Policy::Fcfs, Policy::Easy] {
        for nodes in [1_000, 10_000, 100_000] {
            let mut engine = machine(nodes, policy);
            let shape = engine.shape(&request(None, 1, 1));
            let mut next = 0;
            group.bench_function(BenchmarkId::new(policy.to_string(), nodes), |b| {
                b.iter_custom(|count| {
                    let mut spent = Duration::ZERO;
                    let mut left = count;
                    while left > 0 {
                        let batch = left.min(10_000);
                        let first = next;
                        for id in first..first + batch {
                            submit(&mut engine, id, shape, 3600.0);
                        }
                        next += batch;
                        let start = Instant::now();
                        let decisions = engine.schedule(1000.0, usize::MAX);
                        spent += start.elapsed();
                        assert_eq!(decisions.len() as u64, batch);
                        let ids: Vec<JobId> = (first..next).map(JobId::new).collect();
                        engine.finish(&ids);
                        left -= batch;
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

fn full(c: &mut Criterion) {
    let mut group = c.benchmark_group("full");
    for policy in [Policy::Fcfs, Policy::Easy] {
        for jobs in [1_000_u64, 10_000, 100_000, 1_000_000] {
            let mut engine = machine(1_000, policy);
            let all = engine.shape(&request(Some(1_000), 1, 64));
            submit(&mut engine, 0, all, 3600.0);
            assert_eq!(engine.schedule(0.0, usize::MAX).len(), 1);
            for id in 1..=jobs {
                let size = u32::try_from(id % 1_000 + 1).expect("small");
                let shape = engine.shape(&request(None, size, 1 + size % 4));
                submit(&mut engine, id, shape, 60.0);
            }
            engine.schedule(1.0, usize::MAX);
            group.bench_function(BenchmarkId::new(policy.to_string(), jobs), |b| {
                b.iter(|| black_box(engine.schedule(1.0, usize::MAX).len()));
            });
            // As after the end of a job whose resources fit no pending job.
            group.bench_function(BenchmarkId::new(format!("{policy}/freed"), jobs), |b| {
                b.iter(|| {
                    let none = penstock_idset::IdSet::new();
                    engine.free(JobId::new(0), Some(&none)).expect("it runs");
                    black_box(engine.schedule(1.0, usize::MAX).len())
                });
            });
        }
    }
    group.finish();
}

/// 10,000 nodes with 5,000 jobs running, and `jobs` pending in 1,000 shapes with 50 limits each.
fn busy(policy: Policy, jobs: u64) -> Engine {
    let mut engine = machine(10_000, policy);
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    for id in 0..5_000 {
        let nodes = 1 + random.below(3);
        let shape = if id % 2 == 0 {
            request(Some(u32::try_from(nodes).expect("small")), 1, 64)
        } else {
            request(None, u32::try_from(nodes).expect("small") * 32, 2)
        };
        let shape = engine.shape(&shape);
        submit(
            &mut engine,
            id,
            shape,
            60.0 + f64::from(random.small(36_000)),
        );
    }
    let started = engine.schedule(0.0, usize::MAX).len();
    assert_eq!(started, 5_000);
    // Two nodes on average, as for the running jobs.
    let shapes: Vec<ShapeId> = (0..1_000_u32)
        .map(|index| {
            let size = 1 + index / 4;
            engine.shape(&match index % 4 {
                0 => Request {
                    exclusive: false,
                    ..request(Some(1 + size % 4), 1 + size / 4, 1)
                },
                1 => request(None, size, 1),
                2 => request(None, size.div_ceil(2), 2 + size % 3),
                _ => request(None, size.div_ceil(8), 8 + size % 8),
            })
        })
        .collect();
    // The blocked head does not fit.
    let all = engine.shape(&request(Some(9_990), 1, 64));
    submit(&mut engine, 10_000, all, 3600.0);
    for id in 10_001..10_000 + jobs {
        let shape = shapes[usize::try_from(random.below(1_000)).expect("small")];
        let limit = 60.0 * f64::from(1 + random.small(50));
        submit(&mut engine, id, shape, limit);
    }
    engine
}

fn easy(c: &mut Criterion) {
    let mut group = c.benchmark_group("pass");
    group.sample_size(20);
    for policy in ["fcfs", "easy", "hybrid:8"] {
        let policy: Policy = policy.parse().expect("a policy");
        for jobs in [1_000, 10_000, 100_000] {
            let mut engine = busy(policy, jobs);
            let start = Instant::now();
            let started = engine.schedule(1.0, usize::MAX).len();
            println!(
                "{policy}/{jobs}: the first pass starts {started} jobs in {:?}",
                start.elapsed()
            );
            group.bench_function(BenchmarkId::new(format!("{policy}/nothing"), jobs), |b| {
                b.iter(|| black_box(engine.schedule(1.0, usize::MAX).len()));
            });
            let mut ends: Vec<u64> = (0..5_000).collect();
            group.bench_function(BenchmarkId::new(format!("{policy}/ended"), jobs), |b| {
                b.iter_custom(|count| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..count {
                        if let Some(id) = ends.pop() {
                            engine.finish(&[JobId::new(id)]);
                        }
                        let start = Instant::now();
                        let decisions = engine.schedule(1.0, usize::MAX);
                        spent += start.elapsed();
                        black_box(decisions.len());
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

fn estimate(c: &mut Criterion) {
    let mut group = c.benchmark_group("estimate");
    group.sample_size(10);
    for policy in ["fcfs", "easy"] {
        let policy: Policy = policy.parse().expect("a policy");
        for jobs in [1_000, 10_000, 100_000] {
            let engine = busy(policy, jobs);
            let start = Instant::now();
            let estimates = engine.estimate(1.0);
            println!(
                "{policy}/{jobs}: {} estimates in {:?}",
                estimates.len(),
                start.elapsed()
            );
            if jobs < 100_000 {
                group.bench_function(BenchmarkId::new(policy.to_string(), jobs), |b| {
                    b.iter(|| black_box(engine.estimate(1.0).len()));
                });
            }
        }
    }
    group.finish();
}

fn queue(c: &mut Criterion) {
    let mut engine = busy(Policy::Fcfs, 100_000);
    let shape = engine.shape(&request(None, 1, 1));
    let mut next = 1_000_000;
    c.bench_function("submit", |b| {
        b.iter(|| {
            submit(&mut engine, next, shape, 60.0);
            next += 1;
        });
    });
    let mut engine = busy(Policy::Fcfs, 100_000);
    let mut round = 0;
    let mut group = c.benchmark_group("queue");
    group.sample_size(20);
    group.bench_function("prioritize", |b| {
        b.iter(|| {
            round += 1;
            let of = |id: u64| {
                (
                    JobId::new(id),
                    1 + u32::try_from((id * 7919 + round) % 100_000).expect("small"),
                )
            };
            let jobs: Vec<(JobId, u32)> = (10_000..110_000).map(of).collect();
            engine.prioritize(&jobs)
        });
    });
    let mut engine = machine(100_000, Policy::Easy);
    let one = engine.shape(&request(None, 1, 1));
    for id in 0..100_000 {
        submit(&mut engine, id, one, 60.0);
    }
    assert_eq!(engine.schedule(0.0, usize::MAX).len(), 100_000);
    group.bench_function("snapshot", |b| b.iter(|| black_box(engine.clone())));
    group.finish();
}

criterion_group!(benches, decide, full, easy, estimate, queue);
criterion_main!(benches);
