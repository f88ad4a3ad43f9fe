//! Requests about many jobs whose texts are long: a slice reads few of them.

mod common;

use common::{Bench, OWNER, body};
use penstock_flux::flags::STREAMING;
use serde_json::{Value, json};

const JOBS: usize = 24;
/// Two of these are what a slice reads.
const JOBSPEC_BYTES: usize = 200_000;
/// The slices of a request that reads the jobspecs, but for those of the two jobs that ended last.
const SLICES: usize = JOBS / 2 - 1;

/// Jobs that have a long jobspec each.
fn pending(bench: &mut Bench) -> Vec<u64> {
    let long = "x".repeat(JOBSPEC_BYTES);
    let jobs = 0..JOBS;
    jobs.map(|number| {
        bench
            .submit(&json!({"environment": {"NUMBER": number.to_string(), "LONG": long}}))
            .0
    })
    .collect()
}

/// The same, which have ended: they are read from the store.
fn ended(bench: &mut Bench) -> Vec<u64> {
    let ids = pending(bench);
    bench.request("job-manager.raise", &json!({"all": true, "type": "cancel"}));
    bench.advance();
    ids
}

/// The number of slices of a request, and the payload of its last response without an error.
fn slices(bench: &mut Bench, topic: &str, payload: &Value, flags: u8) -> (usize, Value) {
    let mut out = bench.request_as("client", OWNER, topic, payload, flags);
    let mut slices = 1;
    while bench.is_due() || bench.manager.has_more() {
        if bench.is_due() {
            bench.manager.advance(bench.now);
        }
        out.extend(bench.manager.flush().unwrap());
        slices += 1;
    }
    let done =
        |message: &&penstock_wire::Message| message.topic() == topic && message.errnum() == 0;
    (slices, body(out.iter().rfind(done).unwrap()))
}

#[test]
fn changes_of_ended_jobs_read_few_jobspecs_at_once() {
    let mut bench = Bench::new();
    let ids = ended(&mut bench);
    for (topic, payload) in [
        (
            "job-manager.raise",
            json!({"ids": ids, "type": "cancel", "severity": 0, "note": ""}),
        ),
        ("job-manager.urgency", json!({"ids": ids, "urgency": 20})),
        ("job-manager.kill", json!({"ids": ids, "signum": 15})),
    ] {
        let (slices, response) = slices(&mut bench, topic, &payload, 0);
        assert!(slices >= SLICES, "{topic}: {slices}");
        assert_eq!(response["count"], 0, "{topic}");
        assert_eq!(
            response["errors"].as_object().unwrap().len(),
            JOBS,
            "{topic}"
        );
    }
}

#[test]
fn waits_and_journals_read_few_jobspecs_at_once() {
    let mut bench = Bench::new();
    let ids = ended(&mut bench);
    let (found, _) = slices(&mut bench, "job-list.wait", &json!({"ids": ids}), STREAMING);
    assert!(found >= SLICES, "wait: {found}");
    let journal = "job-manager.events-journal";
    let (found, _) = slices(&mut bench, journal, &json!({"full": true}), STREAMING);
    assert!(found >= SLICES, "full journal: {found}");
    let mut bench = Bench::new();
    pending(&mut bench);
    let (found, _) = slices(&mut bench, journal, &json!({}), STREAMING);
    assert!(found >= SLICES, "journal: {found}");
}

#[test]
fn sums_by_project_read_few_jobspecs_at_once() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let long = "x".repeat(JOBSPEC_BYTES);
    for number in 0..JOBS {
        let environment = json!({"environment": {"NUMBER": number.to_string(), "LONG": long}});
        let id = bench.running(&environment);
        bench.end(id, 0);
    }
    let payload = json!({"by": ["project"], "times": [0.0, bench.now + 100.0]});
    let (found, response) = slices(&mut bench, "job-list.usage", &payload, 0);
    assert!(found >= SLICES, "{found}");
    assert_eq!(response["sums"][0]["jobs"], JOBS);
}

#[test]
fn a_purge_frees_few_pages_at_once() {
    for payload in [
        json!({"force": true}),
        json!({"force": true, "age_limit": 0.0}),
    ] {
        let mut bench = Bench::new();
        ended(&mut bench);
        let (found, response) = slices(&mut bench, "job-manager.purge", &payload, 0);
        // Each jobspec has 49 pages of 512 that a slice frees.
        assert!(found >= 2, "{payload}: {found}");
        assert_eq!(response["count"], JOBS, "{payload}");
    }
    let mut bench = Bench::new();
    let ids = ended(&mut bench);
    let payload = json!({"force": true, "ids": ids});
    let (found, response) = slices(&mut bench, "job-manager.purge", &payload, 0);
    assert!(found >= SLICES, "{found}");
    assert_eq!(response["count"], JOBS);
    assert_eq!(bench.manager.take_purged().len(), JOBS);
}
