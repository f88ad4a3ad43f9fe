//! What a simulation costs: `cargo bench -p penstock-sim --bench replay`.
//!
//! Jobs are of the model of Lublin and Feitelson, seed 1, modal estimates, load 0.9.
//!
//! | bench | state and work |
//! |---|---|
//! | `read` | 100,000 jobs in SWF |
//! | `replay/whole` | 100,000 jobs of 1 to 10,000 nodes on 10,000 nodes of one core |
//! | `replay/wide` | 100,000 jobs of 1 to 20,000 cores on 10,000 nodes of two cores |
//! | `replay/cores` | 100,000 jobs of 1 to 128 cores on 1,000 nodes of 64 cores |
//! | `replay/pool` | 100,000 jobs of 1 to 128 cores on a pool of 128 |

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use penstock_rset::ResourceSet;
use penstock_sim::{Estimates, JobKinds, Lublin, Machine, Setup, Simulation, Workload, swf};

const JOBS: u32 = 100_000;

/// Jobs of up to so many cores, for a machine of so many.
fn workload(largest: u32, cores: u32) -> Workload {
    let model = Lublin {
        jobs: JOBS,
        cores: largest,
        seed: 1,
        // The model takes the largest job for the machine.
        load: Some(0.9 * f64::from(cores) / f64::from(largest)),
        estimates: Estimates::Modal,
        kinds: JobKinds::Both,
    };
    model.draw().expect("the model has a machine")
}

fn nodes(count: u32, cores: u32) -> Machine {
    let ids = |count: u32| match count {
        1 => "0".to_owned(),
        count => format!("0-{}", count - 1),
    };
    let (ranks, cores) = (ids(count), ids(cores));
    let text = format!(
        r#"{{"version":1,"execution":{{"R_lite":[{{"rank":"{ranks}","children":{{"core":"{cores}"}}}}],
            "nodelist":["node[{ranks}]"]}}}}"#
    );
    let resources = ResourceSet::from_json(&text).expect("R is well formed");
    Machine::Nodes(Box::new(resources))
}

fn read(c: &mut Criterion) {
    let text = swf::write(&workload(128, 128)).expect("they are jobs of cores");
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(JOBS.into()));
    group.bench_function("swf", |b| {
        b.iter(|| swf::read(black_box(text.as_bytes()), "bench", None).expect("it was written"));
    });
    group.finish();
}

fn replay(c: &mut Criterion) {
    let mut group = c.benchmark_group("replay");
    group.throughput(Throughput::Elements(JOBS.into()));
    group.sample_size(10);
    group.measurement_time(Duration::from_secs(5));
    for (name, machine, workload) in [
        ("whole", nodes(10_000, 1), workload(10_000, 10_000)),
        ("wide", nodes(10_000, 2), workload(20_000, 20_000)),
        ("cores", nodes(1_000, 64), workload(128, 64_000)),
        ("pool", Machine::Pool(128), workload(128, 128)),
    ] {
        let workload = Arc::new(workload);
        for policy in ["fcfs", "easy"] {
            group.bench_function(format!("{name}/{policy}"), |b| {
                b.iter(|| {
                    let setup = Setup {
                        policy: policy.parse().expect("there is such a policy"),
                        ..Setup::default()
                    };
                    let workload = Arc::clone(&workload);
                    let made = Simulation::new(workload, &machine, setup);
                    let mut simulation = made.expect("the jobs fit the machine");
                    while simulation.advance(u64::MAX).expect("it is sound") {}
                    simulation.summary()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, read, replay);
criterion_main!(benches);
