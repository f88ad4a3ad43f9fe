//! Many dependencies, and the syntax of a dependency (RFC 26).

mod common;

use common::queues::{ids_of, responses};
use common::{Bench, Directory, OWNER, body, jobspec, rejection, settings, topics};
use penstock_manager::Settings;
use serde_json::{Value, json};

/// Maximum number of dependencies tested in one slice.
const SLICE: u64 = 200;

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
    bench.advance();
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
fn the_dependents_of_a_job_are_released_in_slices() {
    for (scheme, state) in [("afterany", 8), ("afternotok", 8), ("afterok", 64)] {
        let mut bench = Bench::new();
        let (first, _) = bench.submit(&json!({}));
        let dependents = many(&mut bench, 1000, &on(scheme, &[first]));
        bench.request("job-manager.raise", &json!({"id": first, "type": "cancel"}));
        assert_eq!(bench.row(dependents[0])["state"], 2);
        // One of them ends before its turn, and one is added.
        bench.request(
            "job-manager.raise",
            &json!({"id": dependents[500], "type": "cancel"}),
        );
        let (later, _) = bench.submit(&on(scheme, &[first]));
        let slices = count_slices(&mut bench);
        assert!(slices >= 5, "{slices}");
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
    // A begin time in the past is met in the next slice.
    let (id, _) = bench.submit(&begin);
    bench.advance();
    assert_eq!(bench.row(id)["state"], 8);
}

#[test]
fn jobs_with_many_dependencies_get_few_of_them_in_one_slice() {
    let mut bench = Bench::new();
    let begins =
        (0..1000).map(|time| json!({"scheme": "begin-time", "value": (9000 + time).to_string()}));
    let begins = json!({"dependencies": begins.collect::<Vec<_>>()});
    let jobspec = common::jobspec(&begins);
    let out = bench.request(
        "job-ingest.submit",
        &json!({"jobspec": jobspec, "count": 20}),
    );
    let ids: Vec<u64> = serde_json::from_value(body(&out[0])["ids"].clone()).unwrap();
    let slices = count_slices(&mut bench);
    assert!(slices >= 19, "{slices}");
    for id in ids {
        assert_eq!(bench.events(id).len(), 2 + 1000);
    }
}

/// The number of jobs in a state of `job-list.job-stats`.
fn count(bench: &mut Bench, state: &str) -> u64 {
    let response = bench.request("job-list.job-stats", &json!({}));
    body(&response[0])["job_states"][state].as_u64().unwrap()
}

/// Advances until nothing is due. Asserts that one call takes at most a slice of jobs out of DEPEND.
fn release_in_slices(bench: &mut Bench) {
    let mut left = count(bench, "depend");
    while bench.is_due() {
        bench.pass(0.0);
        let now_left = count(bench, "depend");
        assert!(left - now_left <= SLICE, "{left}, then {now_left}");
        left = now_left;
    }
    assert_eq!(left, 0);
}

#[test]
fn a_job_is_not_purged_while_its_dependents_are_released_also_after_a_restart() {
    let by_limit = Settings {
        inactive_num_limit: 0,
        ..settings()
    };
    let purge_id = ("job-manager.purge-id", json!({"force": 1}));
    let purge_ids = ("job-manager.purge", json!({"force": true}));
    let purge_all = ("job-manager.purge", json!({"force": true, "num_limit": 0}));
    for (settings, purge) in [
        (settings(), Some(purge_id)),
        (settings(), Some(purge_ids)),
        (settings(), Some(purge_all)),
        (by_limit, None),
    ] {
        let directory = Directory::new("depend-purge");
        let mut bench = directory.open(settings.clone(), 1000.0);
        let (first, _) = bench.submit(&json!({}));
        let dependents = many(&mut bench, 1000, &on("afterany", &[first]));
        bench.request("job-manager.raise", &json!({"id": first, "type": "cancel"}));
        let mut out = Vec::new();
        if let Some((topic, mut payload)) = purge {
            match payload.get("num_limit") {
                Some(_) => {}
                None if topic == "job-manager.purge" => payload["ids"] = json!([first]),
                None => payload["id"] = json!(first),
            }
            out = bench.request(topic, &payload);
        }
        assert!(responses(&out).is_empty());
        bench.pass(2.0);
        let kept = bench.request("job-list.list-id", &json!({ "id": first }));
        assert_eq!(body(&kept[0])["job"]["state"], 64);
        assert_eq!(count(&mut bench, "depend"), 800);
        drop(bench);
        let mut bench = directory.open(settings, 2000.0);
        assert_eq!(count(&mut bench, "depend"), 800);
        release_in_slices(&mut bench);
        for id in dependents {
            assert_eq!(bench.row(id)["state"], 8);
        }
    }
}

#[test]
fn a_purge_is_answered_when_the_dependents_are_released() {
    let mut bench = Bench::new();
    let (first, _) = bench.submit(&json!({}));
    let (other, _) = bench.submit(&json!({}));
    many(&mut bench, 1000, &on("afterany", &[first]));
    bench.request(
        "job-manager.raise",
        &json!({"ids": [first, other], "type": "cancel"}),
    );
    bench.request(
        "job-manager.purge",
        &json!({"force": true, "ids": [first, other]}),
    );
    // The other one is gone at once.
    let gone = bench.request("job-list.list-id", &json!({ "id": other }));
    assert_eq!(rejection(&gone).0, 2);
    let out = bench.advance();
    assert_eq!(responses(&out), ["job-manager.purge"]);
    let purged = out.iter().find(|out| out.topic() == "job-manager.purge");
    assert_eq!(body(purged.unwrap())["count"], 2);
    assert_eq!(count(&mut bench, "sched"), 1000);
}

#[test]
fn the_limits_leave_out_a_job_whose_dependents_are_released() {
    let mut bench = Bench::with(Settings {
        inactive_num_limit: 0,
        ..settings()
    });
    let ids = many(&mut bench, 10, &json!({}));
    many(&mut bench, 1000, &on("afterany", &ids[..1]));
    bench.request("job-manager.raise", &json!({"ids": ids, "type": "cancel"}));
    bench.pass(2.0);
    assert_eq!(count(&mut bench, "inactive"), 1);
    assert_eq!(bench.row(ids[0])["state"], 64);
    release_in_slices(&mut bench);
    bench.pass(2.0);
    assert_eq!(count(&mut bench, "inactive"), 0);
}

#[test]
fn a_chain_and_a_tree_of_dependents_end_in_slices() {
    // Each job depends on the one before.
    let mut bench = Bench::new();
    let mut chain = vec![bench.submit(&json!({})).0];
    for _ in 0..600 {
        let before = *chain.last().unwrap();
        chain.push(bench.submit(&on("afterok", &[before])).0);
    }
    let cancel = |ids: &[u64]| json!({"ids": ids, "type": "cancel"});
    bench.request("job-manager.raise", &cancel(&chain[..1]));
    assert_eq!(count(&mut bench, "inactive"), 1);
    release_in_slices(&mut bench);
    assert_eq!(count(&mut bench, "inactive"), 601);
    // Some jobs, all cancelled by one request, with dependents that have dependents.
    let mut bench = Bench::new();
    let roots = many(&mut bench, 20, &json!({}));
    for root in &roots {
        for middle in many(&mut bench, 10, &on("afternotok", &[*root])) {
            many(&mut bench, 4, &on("afterok", &[middle]));
        }
    }
    let middles = count(&mut bench, "depend");
    assert_eq!(middles, 1000);
    bench.request("job-manager.raise", &cancel(&roots));
    assert_eq!(count(&mut bench, "depend"), 1000);
    bench.request(
        "job-manager.raise",
        &json!({"id": roots[0], "type": "cancel"}),
    );
    assert_eq!(count(&mut bench, "depend"), 1000);
    while bench.is_due() {
        bench.pass(0.0);
    }
    assert_eq!(count(&mut bench, "sched"), 200);
    let all = json!({"all": true, "type": "cancel", "severity": 0, "note": ""});
    bench.request("job-manager.raise", &all);
    release_in_slices(&mut bench);
    assert_eq!(count(&mut bench, "inactive"), 1020);
}

#[test]
fn the_step_of_a_job_does_not_release_the_dependents_of_others() {
    let mut bench = Bench::new();
    let (first, _) = bench.submit(&json!({}));
    many(&mut bench, 1000, &on("afterany", &[first]));
    bench.request("job-manager.raise", &json!({"id": first, "type": "cancel"}));
    let ids = bench.running_jobs(1);
    bench.end(ids[0], 0);
    assert_eq!(count(&mut bench, "depend"), 1000);
}

#[test]
fn dependents_are_released_by_priority() {
    let urgency = |bench: &mut Bench, id: u64, urgency: u8| {
        let payload = json!({"id": id, "urgency": urgency});
        bench.request("job-manager.urgency", &payload);
    };
    let begin = json!({"dependencies": [{"scheme": "begin-time", "value": "9000"}]});
    for scheme in ["afterany", "begin-time"] {
        let mut bench = Bench::new();
        let (first, _) = bench.submit(&json!({}));
        let system = match scheme {
            "afterany" => on(scheme, &[first]),
            _ => begin.clone(),
        };
        let ids = many(&mut bench, 1000, &system);
        urgency(&mut bench, ids[999], 31);
        urgency(&mut bench, ids[10], 5);
        urgency(&mut bench, ids[500], 31);
        urgency(&mut bench, ids[500], 20);
        bench.request("job-manager.raise", &json!({"id": first, "type": "cancel"}));
        bench.scheduler(None);
        if scheme == "begin-time" {
            bench.now = 9000.0;
        }
        let mut out = bench.pass(0.0);
        // In the middle of the release.
        urgency(&mut bench, ids[900], 18);
        while bench.is_due() || bench.manager.has_more() {
            out.extend(bench.pass(0.0));
        }
        let allocs = ids_of(&out, "sched.alloc");
        assert_eq!(allocs.len(), 1000);
        assert_eq!(allocs[..2], [ids[999], ids[500]]);
        assert_eq!(allocs[200], ids[900]);
        assert_eq!(allocs[999], ids[10]);
        assert!(allocs[2..200].is_sorted() && allocs[201..999].is_sorted());
    }
}

#[test]
fn a_start_releases_no_job_before_its_slices() {
    let directory = Directory::new("depend-start");
    let mut bench = directory.open(settings(), 1000.0);
    let (first, _) = bench.submit(&json!({}));
    many(&mut bench, 500, &on("afterany", &[first]));
    many(&mut bench, 500, &on("afterok", &[first]));
    let begin = json!({"dependencies": [{"scheme": "begin-time", "value": "5000"}]});
    many(&mut bench, 500, &begin);
    bench.request("job-manager.raise", &json!({"id": first, "type": "cancel"}));
    bench.pass(0.0);
    assert_eq!(count(&mut bench, "depend"), 1300);
    drop(bench);
    let mut bench = directory.open(settings(), 6000.0);
    assert_eq!(count(&mut bench, "depend"), 1300);
    assert!(bench.manager.has_open_request() && bench.is_due());
    release_in_slices(&mut bench);
    let states = ["sched", "inactive"].map(|state| count(&mut bench, state));
    assert_eq!(states, [1000, 501]);
}

#[test]
fn the_dependents_of_the_users_are_released_in_turn() {
    const GUEST: u32 = 2000;
    let settings = Settings {
        guests: true,
        ..settings()
    };
    let mut bench = Bench::with(settings);
    let guest = |bench: &mut Bench, system: &Value| {
        let payload = json!({"jobspec": jobspec(system)});
        let out = bench.request_as("guest", GUEST, "job-ingest.submit", &payload, 0);
        body(&out[0])["id"].as_u64().unwrap()
    };
    let begin = json!({"dependencies": [{"scheme": "begin-time", "value": "9000"}]});
    let (first, _) = bench.submit(&json!({}));
    many(&mut bench, 500, &on("afterany", &[first]));
    many(&mut bench, 500, &begin);
    let second = guest(&mut bench, &json!({}));
    let dependent = guest(&mut bench, &on("afterany", &[second]));
    let later = guest(&mut bench, &begin);
    for id in [first, second] {
        bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    }
    assert!(bench.manager.has_open_request());
    assert!(!bench.manager.delays(&[OWNER, GUEST]) && bench.manager.delays(&[GUEST + 1]));
    bench.pass(0.0);
    assert_eq!(bench.row(dependent)["state"], 8);
    assert!(bench.manager.delays(&[GUEST]) && !bench.manager.delays(&[OWNER]));
    bench.now = 9000.0;
    bench.pass(0.0);
    assert_eq!(bench.row(later)["state"], 8);
    assert!(bench.is_due());
    while bench.manager.has_open_request() {
        bench.pass(0.0);
    }
    assert!(!bench.is_due() && !bench.manager.delays(&[GUEST]));
    assert_eq!(count(&mut bench, "depend"), 0);
}
