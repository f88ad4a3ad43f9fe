//! The metrics of a simulation, and its time series.

mod support;

use support::{Line, pool};

#[test]
fn an_empty_workload_has_no_metrics() {
    let simulation = pool("fcfs", 4, &[]);
    let summary = simulation.summary();
    assert_eq!((summary.jobs, simulation.done()), (0, 0));
    assert!(summary.utilisation.is_nan() && summary.makespan.is_nan() && summary.wait.max.is_nan());
}

#[test]
fn metrics_follow_their_definitions() {
    // Waits 0, 10, 15; runs 10, 5, 1.
    let simulation = pool("fcfs", 2, &[(0, 10, 1, 10), (0, 5, 2, 5), (0, 1, 1, 1)]);
    let summary = simulation.summary();
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
    near(summary.wait.mean, 25.0 / 3.0);
    near(summary.wait.median, 10.0);
    near(summary.wait.p95, 14.5);
    near(summary.wait.max, 15.0);
    // (0 + 10) / 10, (10 + 5) / 10, (15 + 1) / 10.
    near(summary.slowdown.mean, 4.1 / 3.0);
    near(summary.slowdown.max, 1.6);
    near(summary.makespan, 16.0);
    near(summary.utilisation, 21.0 / 32.0);
    assert!(summary.utilisation_to_last_submit.is_nan());
    let classes = simulation.size_classes();
    let sizes: Vec<(u32, u32, u64)> = classes
        .iter()
        .map(|class| (class.from, class.to, class.jobs))
        .collect();
    assert_eq!(sizes, [(1, 1, 2), (2, 2, 1)]);
    let series = simulation.series();
    assert_eq!(series.time(), [0.0, 10.0, 15.0, 16.0]);
    assert_eq!(series.used(), [1, 2, 1, 0]);
    assert_eq!(series.queued(), [2, 1, 0, 0]);
    assert_eq!(simulation.tally().deepest, 2);
}

#[test]
fn utilisation_to_the_last_submit_excludes_the_decline() {
    // One core from 2 to 6, both from 6 to 9; the last job arrives at 7.
    let simulation = pool("fcfs", 2, &[(2, 4, 1, 4), (6, 3, 2, 3), (7, 9, 1, 9)]);
    let summary = simulation.summary();
    assert!((summary.utilisation_to_last_submit - 6.0 / 10.0).abs() < 1e-9);
    assert!((summary.utilisation - 19.0 / 32.0).abs() < 1e-9);
}

#[test]
fn utilisation_begins_with_the_first_job_that_starts() {
    // The first job is denied; then one core is used from 4 to 8, and the last job arrives at 8.
    let jobs = [(0, 9, 3, 9), (4, 4, 1, 4), (8, 4, 2, 4)];
    let summary = pool("fcfs", 2, &jobs).summary();
    assert!((summary.utilisation_to_last_submit - 4.0 / 8.0).abs() < 1e-9);
    assert!((summary.utilisation - 12.0 / 16.0).abs() < 1e-9);
    // No job starts.
    let summary = pool("fcfs", 2, &[(0, 9, 3, 9), (4, 4, 3, 4)]).summary();
    assert!(summary.utilisation.is_nan() && summary.utilisation_to_last_submit.is_nan());
}

#[test]
fn a_series_is_thinned_and_keeps_its_end() {
    let jobs: Vec<Line> = (0..60_000).map(|index| (2 * index, 1, 1, 1)).collect();
    let simulation = pool("fcfs", 1, &jobs);
    let series = simulation.series();
    assert!((1000..65_535).contains(&series.time().len()));
    assert!(series.time().is_sorted());
    assert_eq!(series.used().last(), Some(&0));
}
