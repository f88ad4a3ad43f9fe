//! Helpers of the tests of the event loop.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_sim::{
    Failure, JobShape, Machine, Priority, Setup, Simulation, TraceJob, TraceJobId, Workload, jsonl,
};

pub fn setup(policy: &str) -> Setup {
    Setup {
        policy: policy.parse().unwrap(),
        ..Setup::default()
    }
}

/// A job of a pool: submit, run, cores, limit.
pub type Line = (u32, u32, u32, u32);

pub fn workload(lines: &[Line]) -> Workload {
    let mut workload = Workload::new("test");
    for (id, (submit, run, cores, limit)) in (1..).zip(lines) {
        let job = TraceJob {
            id: TraceJobId::new(id),
            submit: f64::from(*submit),
            run: f64::from(*run),
            limit: f64::from(*limit),
            shape: JobShape::cores(*cores),
            priority: Priority::DEFAULT,
            queue: String::new(),
        };
        workload.push(job).unwrap();
    }
    workload.finish()
}

pub fn run(workload: Workload, machine: &Machine, setup: Setup) -> Simulation {
    let mut simulation = Simulation::new(Arc::new(workload), machine, setup).unwrap();
    while simulation.advance(3).unwrap() {}
    simulation
}

pub fn pool(policy: &str, cores: u64, lines: &[Line]) -> Simulation {
    run(workload(lines), &Machine::Pool(cores), setup(policy))
}

/// The starts, with a `b` after those of backfilled jobs; `-` for jobs that never started.
pub fn starts(simulation: &Simulation) -> String {
    let results = simulation.results();
    let starts = results.start().iter().zip(results.backfilled());
    let words = starts.map(|(start, backfilled)| match (start.is_nan(), backfilled) {
        (true, _) => "-".to_owned(),
        (false, true) => format!("{start}b"),
        (false, false) => start.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Nodes with this number of cores each, named `n0`, `n1` and so on.
pub fn nodes(count: u32, cores: u32) -> Machine {
    let ids = |count: u32| IdSet::with_range(0..=count - 1).to_string();
    let text = format!(
        r#"{{"version":1,"execution":{{"R_lite":[{{"rank":"{}","children":{{"core":"{}"}}}}],
        "starttime":5,"expiration":7,"nodelist":["n[{}]"]}}}}"#,
        ids(count),
        ids(cores),
        ids(count),
    );
    Machine::Nodes(Box::new(ResourceSet::from_json(&text).unwrap()))
}

pub fn lines(text: &str) -> Workload {
    jsonl::read(text.as_bytes(), "test", None).unwrap()
}

pub fn failure(time: u32, ranks: &str, up: bool) -> Failure {
    Failure {
        time: f64::from(time),
        ranks: ranks.parse().unwrap(),
        up,
    }
}
