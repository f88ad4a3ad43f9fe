//! The event loop: every tie rule on an example that can be checked by hand, then invariants for
//! any workload.

mod support;

use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_sim::{Failure, JobResult, Machine, Setup, Simulation, TraceJobId, Workload};
use proptest::prelude::*;

use support::{Line, failure, lines, nodes, pool, run, setup, starts, workload};

#[test]
fn completions_precede_arrivals_of_the_same_instant() {
    let simulation = pool("fcfs", 1, &[(0, 10, 1, 10), (10, 5, 1, 5)]);
    assert_eq!(starts(&simulation), "0 10");
    assert_eq!(simulation.results().end(), [10.0, 15.0]);
}

#[test]
fn jobs_with_equal_submit_times_start_in_file_order() {
    let simulation = pool("fcfs", 1, &[(5, 2, 1, 2), (0, 9, 1, 9), (5, 3, 1, 3)]);
    // In order of submission: the second line, then the first, then the third.
    assert_eq!(starts(&simulation), "0 9 11");
    assert_eq!(simulation.workload().ids(), [2, 1, 3].map(TraceJobId::new));
}

#[test]
fn fcfs_backfills_no_job() {
    // The second job needs two cores; the third would fit beside the first, but stays pending.
    let simulation = pool("fcfs", 2, &[(0, 10, 1, 10), (1, 5, 2, 5), (2, 1, 1, 1)]);
    assert_eq!(starts(&simulation), "0 10 15");
}

#[test]
fn a_job_without_run_time_needs_its_cores_for_the_pass_that_starts_it() {
    // Each of the first two needs all cores: they start in the first and the second pass at
    // second 3, the third job in the third.
    let simulation = pool("fcfs", 2, &[(3, 0, 2, 0), (3, 0, 2, 0), (3, 4, 1, 4)]);
    assert_eq!(starts(&simulation), "3 3 3");
    assert_eq!(simulation.results().end(), [3.0, 3.0, 7.0]);
    assert!(simulation.tally().passes >= 3);
    // A job without run time holds its cores during the pass that starts it: in the first pass the
    // third job, of one core, does not fit beside the two cores of the first, and the second is the
    // blocked head.
    let simulation = pool("easy", 2, &[(3, 0, 2, 0), (3, 4, 2, 4), (3, 1, 1, 1)]);
    assert_eq!(starts(&simulation), "3 3 7");
}

#[test]
fn a_candidate_that_is_planned_to_end_at_the_shadow_time_has_ended_by_it() {
    // The second job is blocked until second 10. The third would run from 1 to 10.
    let simulation = pool("easy", 4, &[(0, 10, 3, 10), (1, 5, 4, 5), (1, 9, 1, 9)]);
    assert_eq!(starts(&simulation), "0 10 1b");
    // Until 11: no core is spare, so it stays pending until the second has ended.
    let simulation = pool("easy", 4, &[(0, 10, 3, 10), (1, 5, 4, 5), (1, 10, 1, 10)]);
    assert_eq!(starts(&simulation), "0 10 15");
}

#[test]
fn a_running_job_that_is_planned_to_end_at_the_shadow_time_adds_to_the_spare_cores() {
    // At 10, the shadow time of the third, both have ended: 5 cores are free, 2 of them spare. The
    // fourth takes one of the two beyond that time.
    let jobs = [
        (0, 10, 2, 10),
        (0, 10, 2, 10),
        (1, 5, 3, 5),
        (1, 100, 1, 100),
    ];
    assert_eq!(starts(&pool("easy", 5, &jobs)), "0 0 10 1b");
}

#[test]
fn only_jobs_backfilled_on_spare_cores_use_them_up() {
    // Shadow time 10, and 5 - 4 = 1 spare core. The third, until 10, uses none of it; the fourth
    // takes it; for the fifth none is left, though two cores are free.
    let jobs = [
        (0, 10, 2, 10),
        (1, 5, 4, 5),
        (1, 9, 1, 9),
        (1, 100, 1, 100),
        (1, 100, 1, 100),
    ];
    assert_eq!(starts(&pool("easy", 5, &jobs)), "0 10 1b 1b 15");
}

#[test]
fn an_overrun_is_taken_to_end_one_second_from_now() {
    // The first was planned to end at 5 and runs to 20. At 10 its planned end is 11, as that of the
    // third would be; at 12 it is 13, and the fourth would end at 14.
    let jobs = [(0, 20, 2, 5), (1, 5, 3, 5), (10, 1, 1, 1), (12, 2, 1, 2)];
    let simulation = pool("easy", 3, &jobs);
    assert_eq!(starts(&simulation), "0 20 10b 25");
    assert_eq!(simulation.results().job_results()[0], JobResult::Completed);
}

#[test]
fn an_estimate_of_no_time_is_overrun_as_soon_as_the_job_runs() {
    // All arrive at second 0. In the first pass the first two start, and the third finds one core
    // free. The first was planned to end at 0; its planned end is now 1, as is that of the second.
    // The reservation of the third is at 1, and the fourth, which would end at 1, starts before it.
    // Run times are 0 throughout, so that the second pass finds all cores free.
    let jobs = [(0, 0, 1, 0), (0, 0, 6, 1), (0, 0, 2, 0), (0, 0, 1, 1)];
    assert_eq!(starts(&pool("easy", 8, &jobs)), "0 0 0 0b");
}

#[test]
fn a_job_is_killed_at_its_limit_if_configured() {
    let jobs = [(0, 20, 2, 5), (1, 5, 3, 5), (10, 0, 1, 0)];
    let setup = Setup {
        kill_at_limit: true,
        ..setup("easy")
    };
    let simulation = run(workload(&jobs), &Machine::Pool(3), setup);
    assert_eq!(starts(&simulation), "0 5 10");
    assert_eq!(simulation.results().job_results()[0], JobResult::Killed);
    let summary = simulation.summary();
    assert_eq!((summary.killed, summary.ended), (1, 2));
    // 2 cores for 5 seconds and 3 for 5, of 3 cores for 10 seconds.
    assert!((summary.utilisation - 25.0 / 30.0).abs() < 1e-12);
}

#[test]
fn a_job_without_limit_never_ends_as_planned() {
    let text = r#"{"submit": 0, "run": 10, "cores": 1, "limit": null}
{"submit": 1, "run": 5, "cores": 2}
{"submit": 2, "run": 50, "cores": 1}"#;
    // The second job has no shadow time, so the third delays nothing that was planned.
    let simulation = run(lines(text), &Machine::Pool(2), setup("easy"));
    assert_eq!(starts(&simulation), "0 52 2b");
}

#[test]
fn a_held_job_never_starts_and_does_not_prolong_the_simulation() {
    let text = r#"{"submit": 0, "run": 10, "cores": 1, "priority": 0}
{"submit": 1, "run": 5, "cores": 2, "priority": 1}
{"submit": 1, "run": 5, "cores": 2, "priority": 20}"#;
    for policy in ["fcfs", "easy"] {
        let simulation = run(lines(text), &Machine::Pool(2), setup(policy));
        assert_eq!(starts(&simulation), "- 6 1", "{policy}");
        assert_eq!(simulation.results().job_results()[0], JobResult::Pending);
        assert_eq!((simulation.summary().pending, simulation.done()), (1, 2));
    }
}

#[test]
fn a_denied_job_releases_its_dependents() {
    let text = r#"{"submit": 0, "run": 10, "cores": 3, "id": 7}
{"submit": 0, "run": 5, "cores": 2, "after": 7}
{"submit": 1, "run": 5, "cores": 2, "after": [7, 9]}
{"submit": 2, "run": 20, "cores": 1, "id": 9}"#;
    let simulation = run(lines(text), &Machine::Pool(2), setup("fcfs"));
    assert_eq!(starts(&simulation), "- 0 25 5");
    assert_eq!(simulation.results().job_results()[0], JobResult::Denied);
    let [denial] = simulation.denials() else {
        panic!("one job was denied")
    };
    assert_eq!((denial.first.get(), denial.jobs), (7, 1));
    assert!(!denial.reason.is_empty());
    // The makespan is that of the jobs that ran.
    assert!((simulation.summary().makespan - 30.0).abs() < 1e-12);
}

#[test]
fn dependent_jobs_arrive_when_their_dependencies_have_ended() {
    let text = r#"{"submit": 0, "run": 10, "cores": 1, "id": 1}
{"submit": 0, "run": 0, "cores": 1, "id": 2, "after": 1}
{"submit": 0, "run": 5, "cores": 2, "id": 3, "after": 2}
{"submit": 30, "run": 5, "cores": 2, "id": 4, "after": 3}"#;
    let simulation = run(lines(text), &Machine::Pool(2), setup("fcfs"));
    assert_eq!(starts(&simulation), "0 10 10 30");
}

#[test]
fn queues_do_not_block_each_other() {
    let text = r#"{"submit": 0, "run": 10, "cores": 1, "queue": "a"}
{"submit": 1, "run": 5, "cores": 2, "queue": "a"}
{"submit": 2, "run": 5, "cores": 1, "queue": "b"}"#;
    let simulation = run(lines(text), &Machine::Pool(2), setup("fcfs"));
    assert_eq!(starts(&simulation), "0 10 2");
}

#[test]
fn whole_nodes_are_as_many_as_have_the_cores() {
    let jobs = [(0, 10, 5, 10), (0, 10, 4, 10), (0, 10, 1, 10)];
    let whole = Setup {
        whole_nodes: true,
        ..setup("fcfs")
    };
    let simulation = run(workload(&jobs), &nodes(3, 4), whole);
    assert_eq!(starts(&simulation), "0 0 10");
    assert_eq!(simulation.results().nodes(), [2, 1, 1]);
    assert_eq!(simulation.results().cores(), [8, 4, 4]);
    assert_eq!(simulation.results().first_rank(), [0, 2, 0]);
    assert_eq!(simulation.results().ranks(0).to_string(), "0-1");
    // Without the option, cores are taken on any nodes.
    let simulation = run(workload(&jobs), &nodes(3, 4), setup("fcfs"));
    assert_eq!(starts(&simulation), "0 0 0");
    assert_eq!(simulation.results().cores(), [5, 4, 1]);
    assert_eq!(simulation.results().nodes()[0], 2);
}

#[test]
fn a_job_gets_as_many_whole_nodes_as_it_requests() {
    let text = r#"{"submit": 0, "run": 10, "nodes": 2, "slots": 1}
{"submit": 0, "run": 10, "nodes": 2, "slots": 1}
{"submit": 0, "run": 10, "cores": 5, "constraint": {"hostlist": ["n[0-1]"]}}
{"submit": 0, "run": 10, "nodes": 3, "slots": 1}"#;
    let whole = Setup {
        whole_nodes: true,
        ..setup("fcfs")
    };
    let simulation = run(lines(text), &nodes(2, 4), whole);
    assert_eq!(starts(&simulation), "0 10 20 -");
    let results = simulation.results();
    assert_eq!(results.nodes(), [2, 2, 2, 3]);
    assert_eq!(results.cores(), [8, 8, 8, 12]);
}

#[test]
fn whole_nodes_are_as_many_as_have_room_for_the_gpus() {
    // Two nodes of four cores, two of them with two gpus each.
    let r = r#"{"version": 1, "execution": {"R_lite": [
        {"rank": "0-1", "children": {"core": "0-3"}},
        {"rank": "2-3", "children": {"core": "0-3", "gpu": "0-1"}}],
        "nodelist": ["n[0-3]"]}}"#;
    let machine = Machine::Nodes(Box::new(ResourceSet::from_json(r).unwrap()));
    let text = r#"{"submit": 0, "run": 10, "slots": 3, "gpus_per_slot": 1}
{"submit": 0, "run": 10, "slots": 1, "gpus_per_slot": 1}
{"submit": 0, "run": 10, "slots": 1, "gpus_per_slot": 3}"#;
    let whole = Setup {
        whole_nodes: true,
        ..setup("fcfs")
    };
    let simulation = run(lines(text), &machine, whole);
    assert_eq!(starts(&simulation), "0 10 -");
    assert_eq!(simulation.results().job_results()[2], JobResult::Denied);
    assert_eq!(simulation.results().nodes(), [2, 1, 0]);
    assert_eq!(simulation.results().cores(), [8, 4, 1]);
    assert_eq!(simulation.results().first_rank()[..2], [2, 2]);
}

#[test]
fn a_job_that_never_starts_is_reported_with_its_request() {
    // The third is stopped with its node, and no other node fits it.
    let text = r#"{"submit": 0, "run": 10, "nodes": 2, "slots": 3}
{"submit": 0, "run": 10, "cores": 9}
{"submit": 0, "run": 10, "cores": "1-4"}"#;
    let fails = Setup {
        failures: vec![failure(5, "0-1", false)],
        ..setup("fcfs")
    };
    let simulation = run(lines(text), &nodes(2, 2), fails);
    assert_eq!(starts(&simulation), "- - -");
    assert_eq!(simulation.results().cores(), [6, 9, 1]);
    assert_eq!(simulation.results().nodes(), [2, 0, 0]);
    let simulation = pool("fcfs", 2, &[(0, 1, 3, 1)]);
    assert_eq!(simulation.results().cores(), [3]);
    assert_eq!(simulation.results().nodes(), [1]);
}

#[test]
fn an_estimate_can_be_stopped_between_its_steps_and_resumed() {
    // All arrive at once, and all but one are blocked: one estimate with a step for each.
    let jobs: Vec<Line> = (0..50).map(|index| (0, 10, 1 + index % 2, 10)).collect();
    let setup = Setup {
        estimate_every: 1,
        ..setup("fcfs")
    };
    let whole = run(workload(&jobs), &Machine::Pool(2), setup.clone());
    assert_eq!(starts(&whole).split(' ').count(), 50);
    let mut simulation =
        Simulation::new(Arc::new(workload(&jobs)), &Machine::Pool(2), setup).unwrap();
    let mut calls = 0;
    let mut may_continue = |done, now| {
        assert_eq!((done, now), (0, 0.0));
        calls += 1;
        calls < 20
    };
    assert!(simulation.advance_while(1, &mut may_continue).unwrap());
    assert_eq!(calls, 20);
    assert!(
        simulation
            .results()
            .estimate()
            .iter()
            .all(|estimate| estimate.is_nan())
    );
    while simulation.advance(1).unwrap() {}
    assert_eq!(starts(&simulation), starts(&whole));
    let bits = |simulation: &Simulation| -> Vec<u64> {
        let estimates = simulation.results().estimate().iter();
        estimates.map(|estimate| estimate.to_bits()).collect()
    };
    assert_eq!(bits(&simulation), bits(&whole));
}

#[test]
fn a_count_range_is_allocated_as_much_as_is_free() {
    let text = r#"{"submit": 0, "run": 10, "cores": 3}
{"submit": 1, "run": 10, "cores": "2-8"}
{"submit": 20, "run": 10, "cores": "2-8"}
{"submit": 40, "run": 10, "cores": "1-8:2:*"}"#;
    let given = |machine: &Machine, whole_nodes| {
        let setup = Setup {
            whole_nodes,
            ..setup("fcfs")
        };
        let simulation = run(lines(text), machine, setup);
        assert_eq!(starts(&simulation), "0 1 20 40");
        let results = simulation.results();
        (results.cores().to_vec(), results.nodes().to_vec())
    };
    let (cores, _) = given(&Machine::Pool(6), false);
    assert_eq!(cores, [3, 3, 6, 4]);
    let (cores, _) = given(&nodes(3, 2), false);
    assert_eq!(cores, [3, 3, 6, 4]);
    let (cores, nodes) = given(&nodes(3, 2), true);
    assert_eq!((cores, nodes), (vec![4, 2, 6, 6], vec![2, 1, 3, 3]));
}

#[test]
fn a_slot_of_a_pool_may_exceed_its_internal_nodes() {
    // A slot of 100 cores fits although the pool consists of smaller nodes inside.
    let text = r#"{"submit": 0, "run": 10, "slots": 2, "cores_per_slot": 100}
{"submit": 0, "run": 10, "cores": 1}"#;
    let simulation = run(lines(text), &Machine::Pool(200), setup("fcfs"));
    assert_eq!(starts(&simulation), "0 10");
    assert_eq!(simulation.results().nodes(), [1, 1]);
    assert_eq!((simulation.cores(), simulation.nodes()), (200, 1));
    let cores: Vec<String> = simulation
        .pool_cores()
        .iter()
        .map(IdSet::to_string)
        .collect();
    assert_eq!(cores, ["0-199", "0"]);
}

#[test]
fn jobs_without_run_time_have_cores_of_a_pool_too() {
    // The second starts before the first, and frees its cores at once.
    let text = r#"{"submit": 0, "run": 10, "cores": 2, "priority": 10}
{"submit": 0, "run": 0, "cores": 2, "priority": 20}"#;
    let simulation = run(lines(text), &Machine::Pool(2), setup("fcfs"));
    assert_eq!(starts(&simulation), "0 0");
    let cores: Vec<String> = simulation
        .pool_cores()
        .iter()
        .map(IdSet::to_string)
        .collect();
    assert_eq!(cores, ["0-1", "0-1"]);
}

#[test]
fn a_request_that_the_machine_cannot_have_is_rejected() {
    let rejected = |workload: Workload, machine: &Machine, setup: Setup| {
        let simulation = Simulation::new(Arc::new(workload), machine, setup);
        simulation.err().unwrap().to_string()
    };
    let text = r#"{"submit": 0, "run": 10, "nodes": 1, "id": 3}"#;
    let error = rejected(lines(text), &Machine::Pool(2), setup("fcfs"));
    assert!(
        error.starts_with("test: job 3 asks for nodes, gpus or a constraint"),
        "{error}"
    );
    let error = rejected(workload(&[]), &Machine::Pool(0), setup("fcfs"));
    assert_eq!(error, "a pool: expected 1 to 100,000,000 cores, found 0");
    let fails = |failure: Failure| Setup {
        failures: vec![failure],
        ..setup("fcfs")
    };
    let error = rejected(
        workload(&[]),
        &Machine::Pool(2),
        fails(failure(0, "0", false)),
    );
    assert!(
        error.starts_with("failures: a pool of cores has no nodes"),
        "{error}"
    );
    let error = rejected(workload(&[]), &nodes(2, 1), fails(failure(3, "1-4", false)));
    assert_eq!(
        error,
        "failures: at 3: there are no ranks 2-4; the inventory has 0-1"
    );
    let late = Failure {
        time: f64::NAN,
        ..failure(0, "0", true)
    };
    let error = rejected(workload(&[]), &nodes(2, 1), fails(late));
    assert_eq!(
        error,
        "failures: time NaN: expected seconds from 0 on, at most 1e12"
    );
    let error = rejected(
        workload(&[]),
        &Machine::Nodes(Box::default()),
        setup("fcfs"),
    );
    assert_eq!(error, "the inventory: expected at least one node");
}

fn random_jobs() -> impl Strategy<Value = Vec<Line>> {
    let job = (0..40u32, 0..12u32, 1..6u32, 0..15u32);
    proptest::collection::vec(job, 0..40)
}

proptest! {
    #[test]
    fn no_core_is_used_twice_and_every_job_ends(
        jobs in random_jobs(),
        policy in prop::sample::select(vec!["fcfs", "easy", "conservative", "hybrid:2"]),
        machine in 0..3usize,
        kill in any::<bool>(),
    ) {
        let cores = 6;
        let machine = [Machine::Pool(6), nodes(3, 2), nodes(6, 1)][machine].clone();
        let setup = Setup { kill_at_limit: kill, ..setup(policy) };
        let workload = workload(&jobs);
        let simulation = run(workload.clone(), &machine, setup.clone());
        let results = simulation.results();
        prop_assert_eq!(simulation.done(), jobs.len() as u64);
        let mut changes = Vec::new();
        for index in 0..workload.len() {
            let job = workload.job(index).unwrap();
            let (start, end) = (results.start()[index], results.end()[index]);
            prop_assert!(start >= job.submit);
            let lasts = if kill { job.run.min(job.limit) } else { job.run };
            prop_assert!((end - start - lasts).abs() < 1e-9);
            let cores = job.shape.slots.min();
            prop_assert_eq!(results.cores()[index], cores);
            if end > start {
                changes.push((end, -i64::from(cores)));
                changes.push((start, i64::from(cores)));
            }
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut used = 0;
        for (time, change) in changes {
            used += change;
            prop_assert!(used <= cores, "{} cores at {}", used, time);
        }
        if simulation.is_pool() {
            for (cores, index) in simulation.pool_cores().iter().zip(0..) {
                let held: usize = index;
                prop_assert_eq!(cores.len(), u64::from(results.cores()[held]));
            }
        }
        // Steps of another length give the same results.
        let mut again = Simulation::new(Arc::new(workload), &machine, setup).unwrap();
        while again.advance(1000).unwrap() {}
        prop_assert_eq!(starts(&again), starts(&simulation));
        prop_assert_eq!(format!("{:?}", again.summary()), format!("{:?}", simulation.summary()));
    }
}
