//! Nodes that fail, and what becomes of their jobs.

mod support;

use penstock_sim::{Fate, Setup};

use support::{failure, lines, nodes, run, setup, starts};

#[test]
fn a_failed_node_takes_its_jobs_with_it_and_they_wait_in_their_old_place() {
    let text = r#"{"submit": 0, "run": 10, "nodes": 1, "exclusive": true}
{"submit": 0, "run": 10, "nodes": 1, "exclusive": true}
{"submit": 1, "run": 4, "nodes": 1, "exclusive": true}"#;
    let failures = vec![failure(20, "1", true), failure(5, "1", false)];
    let fails = |requeue| Setup {
        failures: failures.clone(),
        requeue,
        ..setup("fcfs")
    };
    // Rank 1 fails at 5 under the second job, which then goes before the third.
    let simulation = run(lines(text), &nodes(2, 4), fails(true));
    assert_eq!(starts(&simulation), "0 10 20");
    assert_eq!(simulation.results().ranks(1).to_string(), "0");
    assert_eq!(simulation.tally().failed, 1);
    // 4 cores for 10, 5 (lost), 10 and 4 seconds, of 8 cores for 24 seconds.
    let expected = 4.0 * 29.0 / (8.0 * 24.0);
    assert!((simulation.summary().utilisation - expected).abs() < 1e-12);
    let simulation = run(lines(text), &nodes(2, 4), fails(false));
    assert_eq!(starts(&simulation), "0 0 10");
    assert_eq!(simulation.results().fate()[1], Fate::Lost);
    assert_eq!(simulation.results().end(), [10.0, 5.0, 14.0]);
}

#[test]
fn what_failed_nodes_ended_counts_for_as_long_as_it_ran() {
    let text = r#"{"submit": 0, "run": 10, "nodes": 1}
{"submit": 0, "run": 100, "nodes": 2}"#;
    let setup = Setup {
        failures: vec![failure(90, "0,2", false)],
        ..setup("fcfs")
    };
    let simulation = run(lines(text), &nodes(3, 1), setup);
    // The second ran from 0 to 90, and there are never two nodes for it again.
    assert_eq!(starts(&simulation), "0 -");
    let summary = simulation.summary();
    assert!((summary.makespan - 90.0).abs() < 1e-12);
    let expected = (10.0 + 2.0 * 90.0) / (3.0 * 90.0);
    assert!((summary.utilisation - expected).abs() < 1e-12);
    assert!((simulation.tally().lost_core_seconds - 180.0).abs() < 1e-12);
}

#[test]
fn a_job_that_ends_as_its_node_fails_has_ended() {
    let text = r#"{"submit": 0, "run": 5, "nodes": 2}
{"submit": 5, "run": 5, "nodes": 2}"#;
    let with = |failures| Setup {
        failures,
        ..setup("fcfs")
    };
    let machine = nodes(2, 1);
    let simulation = run(lines(text), &machine, with(vec![failure(5, "0", false)]));
    // The node never comes back: the second stays, and time does not go on for ever.
    assert_eq!(starts(&simulation), "0 -");
    assert_eq!(simulation.results().fate()[0], Fate::Ended);
    let back = vec![failure(5, "0", false), failure(9, "0-1", true)];
    assert_eq!(starts(&run(lines(text), &machine, with(back))), "0 9");
}
