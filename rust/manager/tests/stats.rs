//! The statistics of `stats-get`: counts of jobs, and how long their stages took.

mod common;

use common::{Bench, OWNER, body, jobspec};
use penstock_flux::role;
use penstock_manager::Queue;
use penstock_wire::Message;
use serde_json::{Value, json};

fn stats(bench: &mut Bench) -> Value {
    body(&bench.request("job-manager.stats-get", &json!({}))[0])
}

/// The number of durations of a stage, and their sum.
fn stage(stats: &Value, name: &str) -> (u64, f64) {
    let stage = &stats["stages"][name];
    (
        stage["count"].as_u64().unwrap(),
        stage["sum"].as_f64().unwrap(),
    )
}

/// The time between two events of a job.
fn between(log: &[Value], first: &str, last: &str) -> f64 {
    let time = |name| {
        let event = log.iter().find(|event| event["name"] == name);
        event.unwrap()["timestamp"].as_f64().unwrap()
    };
    time(last) - time(first)
}

#[test]
fn the_stages_of_a_job_are_counted_when_they_end() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, _) = bench.submit(&json!({}));
    bench.now += 2.0;
    bench.allocate(id);
    bench.now += 0.25;
    bench.exec(id, "start", &json!({}));
    bench.now += 30.0;
    let found = stats(&mut bench);
    assert_eq!(stage(&found, "run"), (0, 0.0));
    assert_eq!(found["states"]["run"], 1);
    bench.exec(id, "finish", &json!({"status": 0}));
    bench.now += 1.5;
    bench.exec(id, "release", &json!({"ranks": "all", "final": true}));
    bench.rest();
    let (log, found) = (bench.log(id), stats(&mut bench));
    for (name, first, last) in [
        ("pending", "submit", "alloc"),
        ("start", "alloc", "start"),
        ("run", "alloc", "finish"),
        ("cleanup", "finish", "clean"),
    ] {
        let duration = between(&log, first, last);
        assert!(duration > 0.2, "{name}");
        assert_eq!(stage(&found, name), (1, duration), "{name}");
    }
    assert_eq!(found["states"]["inactive"], 1);
    assert_eq!(found["ended"]["completed"], 1);
    assert!(found["store_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_job_that_is_cancelled_before_it_starts_has_no_run() {
    let mut bench = Bench::new();
    let (id, _) = bench.submit(&json!({}));
    bench.request(
        "job-manager.raise",
        &json!({"id": id, "type": "cancel", "severity": 0}),
    );
    let found = stats(&mut bench);
    for name in ["pending", "start", "run", "cleanup"] {
        assert_eq!(stage(&found, name).0, 0, "{name}");
    }
    assert_eq!(found["ended"]["canceled"], 1);
    let counts = body(&bench.request("job-list.job-stats", &Value::Null)[0]);
    assert_eq!(
        (&counts["canceled"], &counts["failed"]),
        (&json!(1), &json!(0))
    );
    bench.request("job-manager.purge", &json!({"force": true, "num_limit": 0}));
    bench.rest();
    let found = stats(&mut bench);
    assert_eq!(
        (&found["purged"], &found["submitted"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(found["states"]["inactive"], 0);
}

#[test]
fn submissions_of_one_job_and_of_many_are_counted() {
    let mut bench = Bench::new();
    bench.submit(&json!({}));
    bench.submit_copies(&json!({}), 2000);
    bench.rest();
    let found = stats(&mut bench);
    assert_eq!(found["submitted"], 2001);
    assert_eq!(found["states"]["sched"], 2001);
}

#[test]
fn named_queues_have_counts_of_their_own() {
    let mut settings = common::settings();
    settings.queues.insert("batch".to_owned(), Queue::default());
    let mut bench = Bench::with(settings);
    bench.scheduler(None);
    bench.executor();
    bench.running(&json!({"queue": "batch"}));
    bench.submit(&json!({"queue": "batch"}));
    let found = stats(&mut bench);
    assert_eq!(
        found["queues"],
        json!({"batch": {"pending": 1, "running": 1}})
    );
}

#[test]
fn a_query_counts_the_jobs_with_and_without_an_alloc_request() {
    let mut bench = Bench::new();
    bench.scheduler(Some(1));
    bench.executor();
    bench.running(&json!({}));
    bench.submit(&json!({}));
    bench.submit(&json!({}));
    let counts = body(&bench.request("job-manager.alloc-query", &Value::Null)[0]);
    assert_eq!(
        counts,
        json!({"queue_length": 1, "alloc_pending": 1, "running": 1})
    );
}

#[test]
fn the_duration_of_a_submission_is_that_of_the_monotonic_clock() {
    let mut bench = Bench::new();
    bench.manager.set_monotonic(100.0);
    bench.submit(&json!({}));
    // The clock is set back meanwhile.
    bench.now -= 3600.0;
    bench.manager.record_commit(100.25);
    assert_eq!(stats(&mut bench)["submissions"]["count"], 1);
    assert_eq!(stats(&mut bench)["submissions"]["sum"], 0.25);
    // A submission that comes while the disk syncs an earlier commit.
    let payload = json!({"jobspec": jobspec(&json!({}))}).to_string();
    let mut request = Message::request("job-ingest.submit", &payload);
    (request.userid, request.rolemask) = (OWNER, role::OWNER);
    bench.manager.handle(&request, bench.now);
    bench.manager.record_commit(100.5);
    bench.manager.flush().unwrap();
    assert_eq!(stats(&mut bench)["submissions"]["count"], 1);
    bench.manager.record_commit(101.0);
    assert_eq!(stats(&mut bench)["submissions"]["sum"], 1.25);
}
