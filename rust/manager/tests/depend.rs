//! Many dependencies, and the syntax of a dependency (RFC 26).

mod common;

use common::{Bench, OWNER, jobspec, rejection, topics};
use serde_json::{Value, json};

fn cancel(bench: &mut Bench, ids: &[u64]) {
    let payload = json!({"ids": ids, "type": "cancel"});
    bench.request("job-manager.raise", &payload);
    bench.advance();
}

/// As many jobs, in one request.
fn many(bench: &mut Bench, count: usize, system: &Value) -> Vec<u64> {
    bench.submit_copies(system, count).0
}

fn on(scheme: &str, ids: &[u64]) -> Value {
    let dependency = |id: &u64| json!({"scheme": scheme, "value": id.to_string()});
    let all: Vec<Value> = ids.iter().map(dependency).collect();
    json!({ "dependencies": all })
}

/// The work for each antecedent does not depend on their number: otherwise this test would take
/// minutes.
#[test]
fn a_job_leaves_depend_with_the_last_of_many_dependencies() {
    const JOBS: usize = 10_000;
    let mut bench = Bench::new();
    let antecedents = many(&mut bench, JOBS, &json!({}));
    let (id, _) = bench.submit(&on("afterany", &antecedents));
    let (last, others) = antecedents.split_last().unwrap();
    cancel(&mut bench, others);
    let row = bench.row(id);
    assert_eq!(row["state"], 2);
    assert_eq!(row["dependencies"], json!([format!("afterany={last}")]));
    cancel(&mut bench, &[*last]);
    let events = bench.events(id);
    let count = |name: &str| events.iter().filter(|event| *event == name).count();
    assert_eq!(count("dependency-add"), JOBS);
    assert_eq!(count("dependency-remove"), JOBS);
    assert_eq!(events.last().unwrap(), "priority");
    let row = bench.row(id);
    let times = ["t_depend", "t_priority", "t_sched"].map(|key| row[key].as_f64().unwrap());
    assert!(times.is_sorted(), "{times:?}");
    // The last antecedent was cancelled by another request.
    assert!(times[1] - times[0] >= 1.0, "{times:?}");
}

#[test]
fn many_begin_times_of_one_job_are_met_together_or_one_by_one() {
    const JOBS: u32 = 10_000;
    let mut bench = Bench::new();
    let begin = |at: u32| json!({"scheme": "begin-time", "value": at.to_string()});
    let all: Vec<Value> = (0..JOBS).map(|at| begin(5000 + at)).collect();
    let (id, _) = bench.submit(&json!({ "dependencies": all }));
    for at in 0..JOBS {
        bench.manager.advance(f64::from(5000 + at));
    }
    let events = bench.events(id);
    let removed = events.iter().filter(|event| *event == "dependency-remove");
    assert_eq!(removed.count(), JOBS as usize);
    assert_eq!(events.last().unwrap(), "priority");
}

#[test]
fn a_dependency_that_is_named_twice_is_one() {
    let mut bench = Bench::new();
    let (first, _) = bench.submit(&json!({}));
    let (id, _) = bench.submit(&on("afterany", &[first, first]));
    cancel(&mut bench, &[first]);
    let events = bench.events(id);
    let count = |name: &str| events.iter().filter(|event| *event == name).count();
    assert_eq!(
        (count("dependency-add"), count("dependency-remove")),
        (1, 1)
    );
}

#[test]
fn dependencies_of_an_ended_job_are_no_longer_tested() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (first, second) = (
        bench.running(&json!({})),
        many(&mut bench, 1, &json!({}))[0],
    );
    let mut wanted = on("afterok", &[second]);
    wanted["dependencies"]
        .as_array_mut()
        .unwrap()
        .push(json!({"scheme": "after", "value": first.to_string()}));
    let (id, _) = bench.submit(&wanted);
    let removed = |bench: &mut Bench| {
        let events = bench.events(id);
        let removed = events.iter().filter(|event| *event == "dependency-remove");
        removed.count()
    };
    assert_eq!(removed(&mut bench), 1);
    cancel(&mut bench, &[id]);
    bench.end(first, 0);
    cancel(&mut bench, &[second]);
    let out = bench.answer("sched.alloc", &json!({"id": second, "type": 3}));
    assert!(topics(&out).is_empty());
    assert_eq!(removed(&mut bench), 1);
    assert_eq!(bench.events(id).last().unwrap(), "clean");
    assert_eq!(bench.row(id)["result"], 4);
}

#[test]
fn a_begin_time_is_absolute() {
    let mut bench = Bench::new();
    for value in ["+3", "-3", "+0", "-0", "3s", "inf", "nan", ""] {
        let dependencies = json!([{"scheme": "begin-time", "value": value}]);
        let spec = jobspec(&json!({ "dependencies": dependencies }));
        let out = bench.request("job-ingest.submit", &json!({ "jobspec": spec }));
        let expected = "expected seconds since the epoch, without a sign";
        let text = format!("dependency `begin-time:{value}`: {expected}");
        assert_eq!(rejection(&out), (22, text));
    }
}

/// Advances until nothing is due; another client is served between two slices. Returns the number of slices.
fn count_slices(bench: &mut Bench) -> usize {
    let mut slices = 0;
    while bench.is_due() {
        let pong = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
        assert_eq!(pong[0].topic(), "job-manager.ping");
        bench.pass(0.0);
        slices += 1;
    }
    slices
}

#[test]
fn the_dependents_of_a_job_are_released_in_slices_also_if_it_is_purged_meanwhile() {
    for (scheme, state) in [("afterany", 8), ("afternotok", 8), ("afterok", 64)] {
        let mut bench = Bench::new();
        let (first, _) = bench.submit(&json!({}));
        let dependents = many(&mut bench, 1000, &on(scheme, &[first]));
        bench.request("job-manager.raise", &json!({"id": first, "type": "cancel"}));
        assert_eq!(bench.row(dependents[0])["state"], state);
        assert_eq!(bench.row(dependents[999])["state"], 2);
        // One of them ends before its turn, and one is added.
        bench.request(
            "job-manager.raise",
            &json!({"id": dependents[500], "type": "cancel"}),
        );
        let (later, _) = bench.submit(&on(scheme, &[first]));
        let purged = bench.request("job-manager.purge-id", &json!({"id": first, "force": 1}));
        assert!(purged.iter().all(|message| message.errnum() == 0));
        let slices = count_slices(&mut bench);
        assert!(slices >= 4, "{slices}");
        let gone = bench.request("job-list.list-id", &json!({ "id": first }));
        assert_eq!(rejection(&gone).0, 2);
        for id in dependents.iter().chain([&later]) {
            let expected = if *id == dependents[500] { 64 } else { state };
            assert_eq!(bench.row(*id)["state"], expected, "{scheme}");
        }
        assert_eq!(bench.events(dependents[500]).last().unwrap(), "clean");
    }
}

#[test]
fn jobs_with_one_begin_time_are_released_in_slices() {
    let mut bench = Bench::new();
    let begin = json!({"dependencies": [{"scheme": "begin-time", "value": "9000"}]});
    let ids = many(&mut bench, 1000, &begin);
    assert!(!bench.is_due());
    bench.now = 9000.0;
    let slices = count_slices(&mut bench);
    assert!(slices >= 5, "{slices}");
    for id in ids {
        assert_eq!(bench.row(id)["state"], 8);
    }
    // A begin time in the past is met at once.
    let (id, _) = bench.submit(&begin);
    assert_eq!(bench.row(id)["state"], 8);
}
