//! Matching, decisions included: `cargo bench -p penstock-engine --bench matching`.
//!
//! Nodes have 64 cores and the hosts `node0`, `node1` and so on; every tenth has the property
//! `tenth`. A round submits jobs of one shape, and times the pass that decides them; their
//! allocations are freed between rounds. The figures are per round: divide by the jobs in the name.
#![allow(missing_docs, reason = "criterion's macros write undocumented items")]

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use penstock_engine::{Engine, Options, QueueId, Selection};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Request};
use penstock_rset::ResourceSet;

const SIZES: [u32; 3] = [1_000, 10_000, 100_000];

fn resources(nodes: u32) -> ResourceSet {
    let ranks: IdSet = (0..=nodes - 1).into();
    let hosts = format!("node[0-{}]", nodes - 1).parse().expect("hosts");
    let mut set = ResourceSet::uniform(&ranks, &hosts, (0..=63).into(), IdSet::new())
        .expect("a host for each rank");
    let tenth = (0..nodes).step_by(10).collect();
    set.add_property("tenth", &tenth).expect("a property");
    set
}

fn engine(nodes: u32, selection: Selection) -> Engine {
    let options = Options {
        selection,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&resources(nodes), options).expect("an engine");
    engine.mark_up(&(0..=nodes - 1).into());
    engine
}

fn cores(cores: u32) -> Request {
    Request {
        nnodes: None,
        exclusive: false,
        slots: 1.into(),
        cores_per_slot: cores.into(),
        gpus_per_slot: 0.into(),
        duration: 0.0,
        constraint: None,
    }
}

fn whole(nodes: u32) -> Request {
    Request {
        nnodes: Some(nodes.into()),
        exclusive: true,
        ..cores(64)
    }
}

fn on_a_tenth(request: Request) -> Request {
    let tenth = Constraint::Properties(vec!["tenth".to_owned()]);
    Request {
        constraint: Some(tenth),
        ..request
    }
}

/// An engine with the ids of its jobs.
struct Bench {
    engine: Engine,
    next: u64,
}

impl Bench {
    fn new(nodes: u32, selection: Selection) -> Self {
        Self {
            engine: engine(nodes, selection),
            next: 1,
        }
    }

    fn submit(&mut self, request: &Request, jobs: u64) -> Vec<JobId> {
        let shape = self.engine.shape(request);
        let ids: Vec<JobId> = (self.next..self.next + jobs).map(JobId::new).collect();
        self.next += jobs;
        for id in &ids {
            self.engine
                .submit_shape(*id, 16, shape, 0.0, QueueId::default())
                .expect("a new job");
        }
        ids
    }

    /// Starts jobs of one shape; only the pass is timed.
    fn start(&mut self, request: &Request, jobs: u64) -> (Vec<JobId>, Duration) {
        let ids = self.submit(request, jobs);
        let start = Instant::now();
        let decisions = self.engine.schedule(1.0, ids.len());
        let time = start.elapsed();
        assert_eq!(decisions.len(), ids.len(), "all of them fit");
        (ids, time)
    }

    /// The time of a number of rounds, between which everything is freed.
    fn rounds(&mut self, rounds: u64, request: &Request, jobs: u64) -> Duration {
        (0..rounds)
            .map(|_| {
                let (ids, time) = self.start(request, jobs);
                self.engine.finish(&ids);
                time
            })
            .sum()
    }
}

fn load(criterion: &mut Criterion) {
    for nodes in SIZES {
        let set = resources(nodes);
        let bytes = engine(nodes, Selection::First).node_table_bytes();
        println!("{nodes} nodes: {} bytes per node", bytes / nodes as usize);
        criterion.bench_function(&format!("load/{nodes}"), |bench| {
            bench.iter(|| Engine::new(&set).expect("an engine"));
        });
    }
}

fn matches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("match");
    for nodes in SIZES {
        for (name, request, jobs) in [
            ("1 core x1000", cores(1), 1000),
            ("whole node x1000", whole(1), 1000),
            ("64 nodes x15", whole(64), 15),
            ("1 core on a tenth x1000", on_a_tenth(cores(1)), 1000),
        ] {
            let mut bench = Bench::new(nodes, Selection::First);
            group.bench_function(BenchmarkId::new(name, nodes), |bencher| {
                bencher.iter_custom(|rounds| bench.rounds(rounds, &request, jobs));
            });
        }
    }
    group.finish();
}

/// The difference between selection policies, and the cost of fill: the machine is filled to a
/// percentage.
fn selections(criterion: &mut Criterion) {
    let nodes = 10_000;
    let mut group = criterion.benchmark_group("selection, 1 core x1000");
    for selection in Selection::ALL {
        for fill in [0, 50, 90, 99] {
            let mut bench = Bench::new(nodes, selection);
            bench.start(&cores(1), u64::from(nodes) * 64 * fill / 100);
            group.bench_function(BenchmarkId::new(selection.name(), fill), |bencher| {
                bencher.iter_custom(|rounds| bench.rounds(rounds, &cores(1), 1000));
            });
        }
    }
    group.finish();
}

/// The difference between selection policies if nodes are requested: on an empty machine, and on
/// one with half of the nodes, at random, in use.
fn many_nodes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("selection, 64 nodes x15");
    for selection in Selection::ALL {
        for scattered in [false, true] {
            let mut bench = Bench::new(10_000, selection);
            if scattered {
                let (ids, _) = bench.start(&whole(1), 10_000);
                let gone = |id: &JobId| id.get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 0;
                let gone: Vec<JobId> = ids.into_iter().filter(gone).collect();
                bench.engine.finish(&gone);
            }
            let state = if scattered { "scattered" } else { "empty" };
            group.bench_function(BenchmarkId::new(selection.name(), state), |bencher| {
                bencher.iter_custom(|rounds| bench.rounds(rounds, &whole(64), 15));
            });
        }
    }
    group.finish();
}

/// Nodes that are nearly full: a random job ends, and a pending one starts in its place.
fn again(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("free and match again");
    for nodes in SIZES {
        let mut bench = Bench::new(nodes, Selection::First);
        let (mut held, _) = bench.start(&cores(1), u64::from(nodes) * 64 - u64::from(nodes) / 10);
        let mut seed = 88_172_645_463_325_252_usize;
        let shape = bench.engine.shape(&cores(1));
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter(|| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let at = seed % held.len();
                bench.engine.finish(&held[at..=at]);
                held[at] = JobId::new(bench.next);
                bench.next += 1;
                bench
                    .engine
                    .submit_shape(held[at], 16, shape, 0.0, QueueId::default())
                    .expect("a new job");
                bench.engine.schedule(1.0, 1)
            });
        });
    }
    group.finish();
}

/// A job that does not fit, after resources were freed and allocated that do not fit it.
fn fails(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a pass in which nothing fits");
    for nodes in SIZES {
        let mut bench = Bench::new(nodes, Selection::First);
        bench.start(&cores(1), u64::from(nodes) * 64);
        bench.submit(&whole(64), 1);
        group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
            bencher.iter(|| bench.engine.schedule(1.0, 1));
        });
    }
    group.finish();
}

fn text(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("R as text");
    for (name, request) in [
        ("1 core", cores(1)),
        ("64 nodes", whole(64)),
        ("64 nodes of a tenth", on_a_tenth(whole(64))),
    ] {
        let mut bench = Bench::new(10_000, Selection::First);
        let (ids, _) = bench.start(&request, 1);
        let mut text = String::new();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                text.clear();
                bench.engine.write_r(JobId::new(ids[0].get()), &mut text)
            });
        });
    }
    group.finish();
}

criterion_group!(
    benches, load, matches, selections, many_nodes, again, fails, text
);
criterion_main!(benches);
