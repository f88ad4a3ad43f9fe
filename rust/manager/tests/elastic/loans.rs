//! Elastic allocations: loans return, on request or when their time expires, and no more than was
//! lent.

use crate::common::elastic::*;
use crate::common::{Bench, OWNER, body, settings, topics};
use penstock_flux::flags::STREAMING;
use penstock_manager::{ElasticLimits, ElasticSettings, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

fn time(seconds: u32) -> Value {
    json!({"key": "pmix.alloc.time", "value": seconds})
}

fn host(name: &str) -> Value {
    json!({"key": "pmix.alloc.nlist", "value": name})
}

fn lend(bench: &mut Bench, job: u64, attributes: &Value) -> Vec<Message> {
    let out = alloc(bench, job, "release", attributes);
    assert_eq!(answer(&out).0, 0, "{:?}", answer(&out));
    out
}

fn lent(bench: &mut Bench, job: u64) -> Vec<Value> {
    let out = bench.request("pmix.query", &json!({ "job": job }));
    answer(&out).1["lent"].as_array().unwrap().clone()
}

#[test]
fn a_loan_whose_return_failed_returns_by_itself() {
    let (mut bench, job) = start(settings());
    lend(
        &mut bench,
        job,
        &json!([reqid("loan"), nodes(2), time(600)]),
    );
    let until = lent(&mut bench, job)[0]["until"].clone();
    // No resources are free until the caller's timeout.
    let name = named("loan");
    let early = request_job(&alloc(
        &mut bench,
        job,
        "reacquire",
        &json!([name, limit(5)]),
    ));
    let out = bench.pass(6.0);
    assert_eq!(topics(&out), ["sched.cancel"]);
    let out = cancelled(&mut bench, early);
    assert_eq!(answer(&answer_probe(&mut bench, &out)).0, -24);
    cancelled(&mut bench, early);
    assert_eq!(lent(&mut bench, job)[0]["until"], until);
    // A cancelled request.
    let name = named("loan");
    alloc(&mut bench, job, "reacquire", &json!([name, reqid("back")]));
    bench.request("pmix.cancel", &json!({"job": job, "id": "back"}));
    // Granted in part.
    let name = named("loan");
    let part = request_job(&alloc(
        &mut bench,
        job,
        "reacquire",
        &json!([name, nodes(1)]),
    ));
    give(&mut bench, part, "2");
    assert_eq!(lent(&mut bench, job)[0]["until"], until);
    let out = bench.pass(700.0);
    assert_eq!(jobspec(&out)["resources"][0]["count"], 1);
    assert_eq!(lent(&mut bench, job)[0]["reason"], "");
    // The owner cancels that: it is requested again.
    let raise = json!({"id": request_job(&out), "type": "cancel", "severity": 0});
    bench.request("job-manager.raise", &raise);
    let reason = "its job in the queue was cancelled";
    assert_eq!(lent(&mut bench, job)[0]["reason"], reason);
    cancelled(&mut bench, request_job(&out));
    let again = request_job(&bench.pass(61.0));
    give(&mut bench, again, "3");
    assert_eq!(lent(&mut bench, job), Vec::<Value>::new());
    assert_eq!(bench.row(job)["nodelist"], "n[0-3]");
    lend(&mut bench, job, &json!([nodes(1), time(600)]));
    bench.end(job, 0);
    assert_eq!(
        lent(&mut bench, job),
        Vec::<Value>::new(),
        "the job has ended"
    );
}

#[test]
fn no_more_is_returned_than_was_lent() {
    let (mut bench, job) = start(settings());
    let cpus = json!({"key": "pmix.alloc.ncpus", "value": 1});
    let grant = request_job(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("c"), cpus]),
    ));
    give_cores(&mut bench, grant, "4", "0");
    lend(&mut bench, job, &json!([reqid("a"), named("c"), time(600)]));
    lend(&mut bench, job, &json!([reqid("b"), host("n3"), time(600)]));
    let out = alloc(&mut bench, job, "reacquire", &json!([]));
    let shapes: Vec<(Value, Value, Value)> = out
        .iter()
        .filter(|message| message.topic() == "sched.alloc")
        .map(|message| {
            let node = body(message)["jobspec"]["resources"][0].clone();
            let cores = node["with"][0]["with"][0]["count"].clone();
            (node["count"].clone(), cores, node["exclusive"].clone())
        })
        .collect();
    assert_eq!(
        shapes,
        [
            (json!(1), json!(1), json!(false)),
            (json!(1), json!(1), json!(true))
        ],
        "a cpu, and a whole node"
    );
    let waiting = query(&mut bench, job);
    let back: Vec<&Value> = waiting
        .iter()
        .filter(|row| row["directive"] == "reacquire" && row["state"] == "queued")
        .collect();
    assert_eq!(back.len(), 2);
    let first = request_job(&out);
    give_cores(&mut bench, first, "5", "3");
    let rows = query(&mut bench, job);
    let granted: Vec<&Value> = rows.iter().filter(|row| row["status"] == 0).collect();
    assert_eq!(
        granted.last().unwrap()["reason"],
        "reclaimed by other requests: 1 of the nodes; not met: pmix.alloc.nlist"
    );
}

#[test]
fn a_whole_node_is_reclaimed_as_one_of_its_size() {
    let mut bench = Bench::new();
    let inventory = penstock_rset::ResourceSet::from_json(
        r#"{"version":1,"execution":{"R_lite":[{"rank":"0-5","children":{"core":"0-3"}},{"rank":"6-9","children":{"core":"0-7"}}],"nodelist":["n[0-9]"],"starttime":0.0,"expiration":20000.0}}"#,
    );
    bench.manager.set_inventory(inventory.unwrap());
    let job = ready(&mut bench);
    lend(&mut bench, job, &json!([host("n3"), time(600)]));
    let out = alloc(&mut bench, job, "reacquire", &json!([]));
    let request = request_job(&out);
    assert_eq!(topics(&answer_probe(&mut bench, &out)), ["sched.cancel"]);
    let spec = jobspec(&cancelled(&mut bench, request));
    assert_eq!(
        spec["attributes"]["system"]["constraints"],
        json!({"hostlist": ["n[0-5]"]})
    );
}

fn limited(nnodes: i64) -> Settings {
    Settings {
        elastic: ElasticSettings {
            job: ElasticLimits {
                nnodes: Some(nnodes),
                ..ElasticLimits::default()
            },
            user: ElasticLimits::default(),
        },
        ..settings()
    }
}

#[test]
fn a_denied_return_is_requested_again() {
    let (mut bench, job) = start(limited(2));
    let grant = request_job(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("a"), nodes(2)]),
    ));
    give(&mut bench, grant, "4-5");
    let part = json!([reqid("loan"), named("a"), nodes(1), time(60)]);
    lend(&mut bench, job, &part);
    let fill = request_job(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("b"), nodes(1)]),
    ));
    give(&mut bench, fill, "5");
    assert!(topics(&bench.pass(61.0)).is_empty(), "the limit");
    let loan = &lent(&mut bench, job)[0];
    let reason = "the policy allows a job 2 nodes from requests: it would be 3";
    assert_eq!(loan["reason"], reason);
    let again = loan["until"].as_f64().unwrap();
    assert!(again > bench.now, "when it is requested again");
    alloc(&mut bench, job, "release", &json!([named("b")]));
    let back = request_job(&bench.pass(61.0));
    give(&mut bench, back, "5");
    assert_eq!(lent(&mut bench, job), Vec::<Value>::new());
}

#[test]
fn denied_returns_are_requested_with_backoff() {
    let (mut bench, job) = start(limited(2));
    let both = json!([named("a"), nodes(2)]);
    let grant = request_job(&alloc(&mut bench, job, "extend", &both));
    give(&mut bench, grant, "4-5");
    let part = json!([reqid("loan"), named("a"), nodes(1), time(60)]);
    lend(&mut bench, job, &part);
    let fill = json!([named("b"), nodes(1)]);
    let fill = request_job(&alloc(&mut bench, job, "extend", &fill));
    give(&mut bench, fill, "5");
    let tries = |bench: &mut Bench| {
        let log = bench.manager.take_log();
        log.iter()
            .filter(|line| line.starts_with("loan of"))
            .count()
    };
    let start = bench.now;
    bench.pass(60.0);
    assert_eq!(tries(&mut bench), 1);
    let mut times = Vec::new();
    while bench.now < start + 7_600.0 {
        let next = bench.manager.deadline().unwrap();
        let seconds = (next - bench.now).max(0.0);
        bench.pass(seconds);
        if tries(&mut bench) > 0 {
            times.push(bench.now);
        }
    }
    let gaps = times.windows(2).map(|pair| (pair[1] - pair[0]).round());
    let gaps: Vec<f64> = gaps.collect();
    assert_eq!(gaps, [120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0]);
    // With other limits it is requested at once.
    let (settings, now) = (limited(3), bench.now);
    bench.manager.set_settings(settings, now);
    let back = request_job(&bench.pass(1.0));
    give(&mut bench, back, "4");
    assert_eq!(lent(&mut bench, job), Vec::<Value>::new());
}

#[test]
fn a_loan_of_a_queue_that_is_disabled_comes_back_when_it_is_enabled() {
    let queues = [("batch".to_owned(), penstock_manager::Queue::default())];
    let (mut bench, job) = start(Settings {
        queues: queues.into(),
        default_queue: Some("batch".to_owned()),
        ..settings()
    });
    lend(&mut bench, job, &json!([nodes(1), time(60)]));
    let enable = |enable: bool| json!({"name": "batch", "enable": enable, "reason": "no"});
    bench.request("job-manager.queue-enable", &enable(false));
    assert!(topics(&bench.pass(100.0)).is_empty());
    bench.request("job-manager.queue-enable", &enable(true));
    let back = request_job(&bench.pass(1.0));
    give(&mut bench, back, "3");
    assert_eq!(bench.row(job)["nodelist"], "n[0-3]");
}

#[test]
fn a_scheduler_that_takes_no_parts_gets_whole_allocations_back() {
    let (mut bench, job) = start(settings());
    bench.request_as("sched", OWNER, "job-manager.disconnect", &Value::Null, 4);
    let hello = "job-manager.sched-hello";
    bench.request_as("old", OWNER, hello, &json!({}), STREAMING);
    let ready = json!({"mode": "unlimited"});
    bench.request_as("old", OWNER, "job-manager.sched-ready", &ready, 0);
    let both = json!([named("more"), nodes(2)]);
    let grant = request_job(&alloc(&mut bench, job, "extend", &both));
    give(&mut bench, grant, "4-5");
    let part = json!([named("more"), nodes(1), time(60)]);
    let (status, response) = answer(&alloc(&mut bench, job, "release", &part));
    assert_eq!(status, -47);
    let reason =
        "the scheduler accepts the release of whole allocations only: a part cannot be lent";
    assert_eq!(response["reason"], reason);
    let out = alloc(
        &mut bench,
        job,
        "release",
        &json!([named("more"), nodes(1)]),
    );
    assert_eq!(freed(&out), []);
    let (status, response) = answer(&out);
    assert_eq!(status, 0);
    let reason = response["reason"].as_str().unwrap();
    assert!(reason.starts_with("not free for others before"), "{reason}");
    // The rest of the grant may be lent: that is all of it.
    let rest = json!([reqid("loan"), named("more"), time(60)]);
    let out = alloc(&mut bench, job, "release", &rest);
    assert_eq!(freed(&out), [(grant, "4-5".to_owned(), true)]);
    let back = request_job(&alloc(
        &mut bench,
        job,
        "reacquire",
        &json!([named("loan")]),
    ));
    give(&mut bench, back, "4");
    assert_eq!(bench.row(job)["nodelist"], "n[0-4]");
}

#[test]
fn a_jobs_own_nodes_do_not_count_as_requested_when_they_return() {
    let (mut bench, job) = start(limited(1));
    for _ in 0..2 {
        // The second time they are the nodes returned by the first loan.
        lend(&mut bench, job, &json!([nodes(3), time(60)]));
        let back = request_job(&bench.pass(61.0));
        give(&mut bench, back, "1-3");
        assert_eq!(bench.row(job)["nodelist"], "n[0-3]");
    }
    let out = alloc(&mut bench, job, "extend", &json!([nodes(1)]));
    assert!(unanswered(&out), "{out:?}");
}

#[test]
fn what_is_lent_of_an_allocation_ends_with_it() {
    let (mut bench, job) = start(settings());
    let new = request_job(&alloc(
        &mut bench,
        job,
        "new",
        &json!([named("N"), nodes(2)]),
    ));
    give(&mut bench, new, "4-5");
    let part = json!([reqid("dead"), named("N"), nodes(1), time(1000)]);
    lend(&mut bench, job, &part);
    let more = json!([reqid("more"), named("N"), nodes(1)]);
    let waiting = request_job(&alloc(&mut bench, job, "extend", &more));
    lend(
        &mut bench,
        job,
        &json!([reqid("own"), nodes(1), time(1000)]),
    );
    let out = alloc(&mut bench, job, "release", &json!([named("N")]));
    assert!(topics(&out).contains(&"sched.cancel"), "{out:?}");
    cancelled(&mut bench, waiting);
    let left = lent(&mut bench, job);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["id"], "own");
    let rows = query(&mut bench, job);
    let more = rows.iter().find(|row| row["id"] == "more").unwrap();
    assert_eq!(more["status"], -180);
    let back = request_job(&alloc(&mut bench, job, "reacquire", &json!([])));
    give(&mut bench, back, "3");
    assert_eq!(bench.row(job)["nodelist"], "n[0-3]");
}

#[test]
fn a_return_is_required_by_any_flag() {
    let (mut bench, job) = start(settings());
    alloc(
        &mut bench,
        job,
        "release",
        &json!([reqid("loan"), nodes(1), time(600)]),
    );
    let flag = json!({"key": "pmix.timeout", "required": true, "value": 0});
    let out = alloc(
        &mut bench,
        job,
        "reacquire",
        &json!([existing("loan"), flag]),
    );
    let request = request_job(&out);
    assert_eq!(topics(&answer_probe(&mut bench, &out)), ["sched.cancel"]);
    let out = cancelled(&mut bench, request);
    assert_eq!(answer(&answer_probe(&mut bench, &out)).0, -29);
}
