//! Failures of nodes, and their effect on jobs.

mod support;

use std::sync::Arc;

use penstock_sim::{JobResult, Machine, RandomFailures, Setup, Simulation};

use support::{failure, lines, nodes, run, setup, starts};

#[test]
fn jobs_of_a_failed_node_are_queued_again_at_their_former_position() {
    let text = r#"{"submit": 0, "run": 10, "nodes": 1, "exclusive": true}
{"submit": 0, "run": 10, "nodes": 1, "exclusive": true}
{"submit": 1, "run": 4, "nodes": 1, "exclusive": true}"#;
    let failures = vec![failure(20, "1", true), failure(5, "1", false)];
    let fails = |requeue| Setup {
        failures: failures.clone(),
        requeue,
        ..setup("fcfs")
    };
    // Rank 1 fails at 5 under the second job, which then starts before the third.
    let simulation = run(lines(text), &nodes(2, 4), fails(true));
    assert_eq!(starts(&simulation), "0 10 20");
    assert_eq!(simulation.results().ranks(1).to_string(), "0");
    assert_eq!(simulation.tally().failed, 1);
    // 4 cores for 10, 5 (lost), 10 and 4 seconds, of 8 cores for 24 seconds.
    let expected = 4.0 * 29.0 / (8.0 * 24.0);
    assert!((simulation.summary().utilisation - expected).abs() < 1e-12);
    let simulation = run(lines(text), &nodes(2, 4), fails(false));
    assert_eq!(starts(&simulation), "0 0 10");
    assert_eq!(simulation.results().job_results()[1], JobResult::Lost);
    assert_eq!(simulation.results().end(), [10.0, 5.0, 14.0]);
}

#[test]
fn a_job_ended_by_a_failure_counts_for_as_long_as_it_ran() {
    let text = r#"{"submit": 0, "run": 10, "nodes": 1}
{"submit": 0, "run": 100, "nodes": 2}"#;
    let setup = Setup {
        failures: vec![failure(90, "0,2", false)],
        ..setup("fcfs")
    };
    let simulation = run(lines(text), &nodes(3, 1), setup);
    // The second ran from 0 to 90; after that, two nodes are never up again.
    assert_eq!(starts(&simulation), "0 -");
    let summary = simulation.summary();
    assert!((summary.makespan - 90.0).abs() < 1e-12);
    let expected = (10.0 + 2.0 * 90.0) / (3.0 * 90.0);
    assert!((summary.utilisation - expected).abs() < 1e-12);
    assert!((simulation.tally().lost_core_seconds - 180.0).abs() < 1e-12);
}

#[test]
fn a_job_that_ends_as_its_node_fails_has_completed() {
    let text = r#"{"submit": 0, "run": 5, "nodes": 2}
{"submit": 5, "run": 5, "nodes": 2}"#;
    let with = |failures| Setup {
        failures,
        ..setup("fcfs")
    };
    let machine = nodes(2, 1);
    let simulation = run(lines(text), &machine, with(vec![failure(5, "0", false)]));
    // The node never returns: the second job stays pending, and the simulation ends.
    assert_eq!(starts(&simulation), "0 -");
    assert_eq!(simulation.results().job_results()[0], JobResult::Completed);
    let back = vec![failure(5, "0", false), failure(9, "0-1", true)];
    assert_eq!(starts(&run(lines(text), &machine, with(back))), "0 9");
}

#[test]
fn random_failures_stop_with_the_last_job() {
    // Submitted at second 0; the node fails much later.
    let text = r#"{"submit": 0, "run": 300, "nodes": 1}
{"submit": 0, "run": 300, "nodes": 1, "priority": 0}"#;
    let random_failures = RandomFailures {
        mtbf: 200.0,
        mttr: 50.0,
        seed: 1,
    };
    let fails = |seed, requeue| Setup {
        random_failures: Some(RandomFailures {
            seed,
            ..random_failures
        }),
        requeue,
        ..setup("easy")
    };
    let failed: u64 = (0..20)
        .map(|seed| {
            let simulation = run(lines(text), &nodes(1, 1), fails(seed, true));
            let results = simulation.results();
            // It has completed in the end, and the held job prolongs nothing.
            assert_eq!(
                results.job_results(),
                [JobResult::Completed, JobResult::Pending]
            );
            assert!((results.end()[0] - results.start()[0] - 300.0).abs() < 1e-9);
            simulation.tally().failed
        })
        .sum();
    assert!(failed > 20, "{failed} failures in 20 runs");
    let simulation = run(lines(text), &nodes(1, 1), fails(1, false));
    assert!(matches!(
        simulation.results().job_results()[0],
        JobResult::Lost | JobResult::Completed
    ));
}

#[test]
fn random_failures_need_mean_times_and_nodes() {
    let rejection = |mtbf, machine: &Machine| {
        let random_failures = RandomFailures {
            mtbf,
            mttr: 1.0,
            seed: 1,
        };
        let setup = Setup {
            random_failures: Some(random_failures),
            ..setup("easy")
        };
        let jobs = lines(
            "{\"submit\": 0, \"run\": 1, \"cores\": 1}\n{\"submit\": 1000, \"run\": 1, \"cores\": 1}",
        );
        let simulation = Simulation::new(Arc::new(jobs), machine, setup);
        simulation
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    for mtbf in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = rejection(mtbf, &nodes(1, 1));
        assert!(error.contains("expected seconds above 0"), "{error}");
    }
    let error = rejection(1e-4, &nodes(1000, 1));
    assert!(error.contains("expected at most 1,000,000"), "{error}");
    let error = rejection(1.0, &Machine::Pool(4));
    assert!(error.contains("has no nodes"), "{error}");
}
