//! Pools of units in place of identical nodes: the results must equal those of matching nodes.

mod support;

use std::fmt::Write as _;

use penstock_engine::Selection;
use penstock_jobspec::Count;
use penstock_sim::{
    Failure, JobShape, Machine, Priority, Setup, Simulation, TraceJob, TraceJobId, Workload,
};
use proptest::prelude::*;

use support::{nodes, run, setup};

/// Submit, run, limit, nodes, slots on each, priority.
type Job = (u32, u32, u32, u32, u32, u32);

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let priority = prop::sample::select(vec![0, 15, 16, 16, 16, 17]);
    let job = (0..40u32, 0..12u32, 0..15u32, 1..8u32, 1..3u32, priority);
    proptest::collection::vec(job, 0..40)
}

/// The jobs, for whole nodes of two cores or for cores anywhere.
fn workload(jobs: &[Job], whole: bool) -> Workload {
    let mut workload = Workload::new("test");
    for (id, (submit, run, limit, nodes, slots, priority)) in (1..).zip(jobs) {
        let shape = JobShape {
            nodes: Some(Count::exactly(*nodes)),
            exclusive: true,
            ..JobShape::cores(*slots)
        };
        let job = TraceJob {
            id: TraceJobId::new(id),
            submit: f64::from(*submit),
            run: f64::from(*run),
            limit: f64::from(*limit),
            shape: if whole {
                shape
            } else {
                JobShape::cores(nodes * slots)
            },
            priority: Priority::new(*priority),
            queue: String::new(),
        };
        workload.push(job).unwrap();
    }
    workload.finish()
}

/// All results of a simulation, as text.
fn report(simulation: &Simulation) -> String {
    let results = simulation.results();
    let mut text = String::new();
    for index in 0..simulation.workload().len() {
        let _ = writeln!(
            text,
            "{:?} {} {} {} on {} of {}, first {}, {}, {:?}",
            results.job_results()[index],
            results.start()[index],
            results.end()[index],
            results.backfilled()[index],
            results.ranks(index),
            results.cores()[index],
            results.first_rank()[index],
            results.nodes()[index],
            results.estimate().get(index),
        );
    }
    text + &format!("{:?}\n{:?}", simulation.summary(), simulation.denials())
}

proptest! {
    #[test]
    fn a_unit_pool_gives_the_same_results_as_matching(
        jobs in jobs(),
        whole in any::<bool>(),
        cores in 1..4u32,
        policy in prop::sample::select(vec!["fcfs", "easy", "conservative", "hybrid:2"]),
        selection in prop::sample::select(Selection::ALL.to_vec()),
        property in any::<bool>(),
        kill_at_limit in any::<bool>(),
        estimate_every in 0..2u32,
    ) {
        let workload = workload(&jobs, whole);
        let mut machine = nodes(6, if whole { 2 } else { cores });
        if property && let Machine::Nodes(resources) = &mut machine {
            resources.add_property("few", &"0,3".parse().unwrap()).unwrap();
        }
        let counted = Setup { selection, kill_at_limit, estimate_every, ..setup(policy) };
        // A return of a node that is up, after the end of all jobs, changes nothing but makes the
        // engine match nodes.
        let back = Failure { time: 1e6, ranks: "0".parse().unwrap(), up: true };
        let matched = Setup { failures: vec![back], ..counted.clone() };
        prop_assert_eq!(
            report(&run(workload.clone(), &machine, counted)),
            report(&run(workload, &machine, matched))
        );
    }
}
