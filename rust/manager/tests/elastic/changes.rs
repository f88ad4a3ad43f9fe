//! Elastic allocations: releases, loans and their return; time; limits; a restart.

use crate::common::elastic::*;
use crate::common::{Directory, body, settings, topics};
use penstock_jobspec::job_id::JobId;
use penstock_manager::{ElasticLimits, ElasticSettings, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

#[test]
fn ranks_go_back_but_not_the_requesters_own() {
    let (mut bench, job) = start(settings());
    let request = request_job(&alloc(&mut bench, job, "extend", &json!([nodes(2)])));
    give(&mut bench, request, "4-5");
    // Nodes of the grant are released first, then the job's own.
    let out = alloc(&mut bench, job, "release", &json!([nodes(3)]));
    assert_eq!(topics(&out)[..2], ["sched.free", "job-exec.shrink"]);
    assert_eq!(body(&out[1]), json!({"id": job, "ranks": "3"}));
    assert_eq!(
        freed(&out),
        [
            (job, "3".to_owned(), false),
            (request, "4-5".to_owned(), true)
        ]
    );
    assert_eq!(result(&answer(&out).1, "pmix.alloc.nlist"), "n[3-5]");
    assert_eq!(bench.row(job)["nodelist"], "n[0-2]");
    // Task 0 runs on n0.
    let own = json!({"key": "pmix.alloc.nlist", "required": true, "value": "n0"});
    assert_eq!(
        answer(&alloc(&mut bench, job, "release", &json!([own]))).0,
        -29
    );
    let too_many = alloc(&mut bench, job, "release", &json!([required(3)]));
    assert_eq!(answer(&too_many).0, -29);
    let rest = alloc(&mut bench, job, "release", &json!([nodes(99)]));
    assert_eq!(freed(&rest), [(job, "1-2".to_owned(), false)]);
    // The remaining ranks are freed at the end, whichever the execution service names.
    bench.exec(job, "finish", &json!({"status": 0}));
    let out = bench.exec(job, "release", &json!({"ranks": "0-3", "final": true}));
    assert_eq!(freed(&out), [(job, "0".to_owned(), true)]);
    assert_eq!(bench.row(job)["result"], 1);
}

#[test]
fn a_release_of_its_own_does_not_cost_a_job_its_epilog() {
    let hooks = Settings {
        epilog: true,
        ..settings()
    };
    let (mut bench, job) = start(hooks);
    alloc(&mut bench, job, "release", &json!([nodes(1)]));
    bench.exec(job, "finish", &json!({"status": 0}));
    let out = bench.exec(job, "release", &json!({"ranks": "1", "final": false}));
    assert!(freed(&out).is_empty(), "kept for the epilog");
    let out = bench.exec(job, "release", &json!({"ranks": "all", "final": true}));
    assert_eq!(topics(&out), ["hooks.epilog"]);
    let out = bench.reply(&out, "hooks.epilog", &json!({"status": 0}));
    assert_eq!(freed(&out), [(job, "0-2".to_owned(), true)]);
}

#[test]
fn an_allocation_is_released_by_its_name() {
    let (mut bench, job) = start(settings());
    let new = request_job(&alloc(
        &mut bench,
        job,
        "new",
        &json!([named("mine"), nodes(3)]),
    ));
    give(&mut bench, new, "4-6");
    let part = alloc(
        &mut bench,
        job,
        "release",
        &json!([named("mine"), nodes(1)]),
    );
    assert_eq!(freed(&part), [(new, "6".to_owned(), false)]);
    let all = alloc(&mut bench, job, "release", &json!([named("mine")]));
    assert_eq!(freed(&all), [(new, "4-5".to_owned(), true)]);
    assert_eq!(bench.row(new)["result"], 1);
    assert_eq!(
        answer(&alloc(&mut bench, job, "release", &json!([named("mine")]))).0,
        -46
    );
}

#[test]
fn a_loan_is_returned_once() {
    let (mut bench, job) = start(settings());
    let time = json!({"key": "pmix.alloc.time", "value": 600});
    let lent = alloc(
        &mut bench,
        job,
        "release",
        &json!([reqid("loan"), nodes(2), time]),
    );
    assert_eq!(freed(&lent), [(job, "2-3".to_owned(), false)]);
    assert_eq!(result(&answer(&lent).1, "pmix.alloc.time"), 600);
    let out = alloc(
        &mut bench,
        job,
        "reacquire",
        &json!([named("loan"), nodes(1)]),
    );
    let first = request_job(&out);
    let spec = jobspec(&out);
    assert_eq!(
        spec["attributes"]["system"]["constraints"],
        json!({"hostlist": ["n[2-3]"]})
    );
    assert_eq!(
        spec["resources"][0]["exclusive"], true,
        "whole nodes were lent"
    );
    give(&mut bench, first, "3");
    assert_eq!(bench.row(job)["nodelist"], "n[0-1,3]");
    // The other loan is reclaimed at its time, and is not requested twice.
    let second = request_job(&bench.pass(700.0));
    let again = alloc(&mut bench, job, "reacquire", &json!([]));
    assert_eq!(answer(&again).0, -46);
    // Cancelling the request for a loan leaves it lent.
    bench.request(
        "job-manager.raise",
        &json!({"id": second, "type": "cancel", "severity": 0}),
    );
    cancelled(&mut bench, second);
    let third = request_job(&alloc(&mut bench, job, "reacquire", &json!([])));
    give(&mut bench, third, "7");
    assert_eq!(bench.row(job)["nodelist"], "n[0-1,3,7]");
    assert_eq!(
        answer(&alloc(&mut bench, job, "reacquire", &json!([]))).0,
        -46
    );
}

#[test]
fn time_is_extended_when_the_scheduler_agrees() {
    let (mut bench, job) = start(settings());
    let request = request_job(&alloc(&mut bench, job, "extend", &json!([nodes(1)])));
    give(&mut bench, request, "4");
    let time = |seconds: u32| json!([{"key": "pmix.alloc.time", "value": seconds}]);
    let first = alloc(&mut bench, job, "extend", &time(600));
    let second = alloc(&mut bench, job, "extend", &time(300));
    assert_eq!(topics(&first), ["sched.expiration"]);
    assert!(topics(&second).is_empty(), "one at a time");
    assert_eq!(body(&first[0])["expiration"], 9600.0);
    let out = bench.reply(&first, "sched.expiration", &json!({}));
    assert_eq!(result(&answer(&out).1, "pmix.alloc.time"), 600);
    // The grant ends with the job; then the second request is made.
    let requests: Vec<Value> = out
        .iter()
        .filter(|message| message.topic() == "sched.expiration")
        .map(body)
        .collect();
    assert_eq!(requests[0]["id"], request);
    assert_eq!(requests[0]["expiration"], 9600.0);
    assert_eq!(
        (&requests[1]["id"], &requests[1]["expiration"]),
        (&json!(job), &json!(9900.0))
    );
    let row = bench.row(job);
    assert_eq!(row["expiration"], 9600.0);
    assert!(bench.events(job).contains(&"resource-update".to_owned()));
    let second: Vec<Message> = out
        .into_iter()
        .filter(|message| message.topic() == "sched.expiration" && body(message)["id"] == job)
        .collect();
    let rejected = bench.deny(&second, "sched.expiration", 22, "reserved");
    let (status, response) = answer(&rejected);
    assert_eq!(status, -29);
    assert_eq!(
        response["reason"],
        "the scheduler rejects the update: reserved"
    );
}

#[test]
fn time_beyond_the_resources_is_granted_in_part_at_the_timeout() {
    let (mut bench, job) = start(settings());
    let time = json!({"key": "pmix.alloc.time", "value": 100_000});
    let out = alloc(&mut bench, job, "extend", &json!([time]));
    assert_eq!(answer(&out).0, -29);
    assert!(unanswered(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([time, limit(60)])
    )));
    let out = bench.pass(61.0);
    assert_eq!(body(&out[0])["expiration"], 20000.0);
    let out = bench.reply(&out, "sched.expiration", &json!({}));
    assert_eq!(result(&answer(&out).1, "pmix.alloc.time"), 11000);
}

#[test]
fn limits_by_configuration() {
    let most = |requests, nnodes| ElasticLimits {
        requests: Some(requests),
        nnodes: Some(nnodes),
        ncores: None,
    };
    let limited = Settings {
        elastic: ElasticSettings {
            job: most(2, 4),
            user: most(3, -1),
        },
        ..settings()
    };
    let (mut bench, job) = start(limited);
    assert!(unanswered(&alloc(
        &mut bench,
        job,
        "new",
        &json!([nodes(3)])
    )));
    let (status, response) = answer(&alloc(&mut bench, job, "new", &json!([nodes(2)])));
    assert_eq!(status, -29);
    assert_eq!(
        response["reason"],
        "the policy allows a job 4 nodes from requests: it would be 5"
    );
    assert!(unanswered(&alloc(
        &mut bench,
        job,
        "new",
        &json!([nodes(1)])
    )));
    let ncpus = json!({"key": "pmix.alloc.ncpus", "value": 1});
    assert_eq!(
        answer(&alloc(&mut bench, job, "new", &json!([ncpus]))).0,
        -29
    );
    bench.request("pmix.cancel", &json!({ "job": job }));
    assert!(unanswered(&alloc(
        &mut bench,
        job,
        "new",
        &json!([nodes(4)])
    )));
}

#[test]
fn a_job_that_grows_stays_within_the_size_that_the_site_allows() {
    let limited = Settings {
        limits: penstock_manager::Limits {
            max_nnodes: Some(6),
            min_nnodes: Some(2),
            ..penstock_manager::Limits::NONE
        },
        ..settings()
    };
    let (mut bench, job) = start(limited);
    let first = request_job(&alloc(&mut bench, job, "extend", &json!([nodes(1)])));
    assert!(unanswered(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([nodes(1)])
    )));
    let (status, response) = answer(&alloc(&mut bench, job, "extend", &json!([nodes(1)])));
    assert_eq!(status, -29);
    assert_eq!(
        response["reason"],
        "it would have 7 nodes, the policy allows 6"
    );
    give(&mut bench, first, "4");
    assert_eq!(
        answer(&alloc(&mut bench, job, "extend", &json!([nodes(1)]))).0,
        -29
    );
    // Released nodes may be requested again.
    alloc(&mut bench, job, "release", &json!([nodes(1)]));
    assert!(unanswered(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([nodes(1)])
    )));
    // An allocation of its own is a job like any other.
    for size in [1, 7] {
        assert_eq!(
            answer(&alloc(&mut bench, job, "new", &json!([nodes(size)]))).0,
            -29
        );
    }
}

#[test]
fn all_of_it_survives_a_restart() {
    let directory = Directory::new("elastic");
    let mut bench = directory.open(settings(), 1000.0);
    let job = ready(&mut bench);
    let grant = request_job(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("got"), nodes(1)]),
    ));
    give(&mut bench, grant, "4");
    let new = request_job(&alloc(&mut bench, job, "new", &json!([nodes(1)])));
    give(&mut bench, new, "5");
    let time = json!({"key": "pmix.alloc.time", "value": 600});
    alloc(
        &mut bench,
        job,
        "release",
        &json!([reqid("loan"), time,
        {"key": "pmix.alloc.nlist", "value": "n3"}]),
    );
    let waiting = request_job(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("waits"), nodes(2), limit(900)]),
    ));
    let before = (bench.row(job), query(&mut bench, job));
    let now = bench.now;
    drop(bench);

    let mut bench = directory.open(settings(), now + 1.0);
    assert_eq!(bench.row(job)["nodelist"], "n[0-2,4]");
    assert_eq!(bench.row(job)["annotations"], before.0["annotations"]);
    assert_eq!(query(&mut bench, job), before.1);
    let out = bench.scheduler(None);
    let announced: Vec<Value> = out
        .iter()
        .filter(|message| message.topic() == "job-manager.sched-hello" && message.errnum() == 0)
        .map(body)
        .collect();
    let ids: Vec<u64> = announced
        .iter()
        .map(|job| job["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, [job, grant, new]);
    assert_eq!(announced[0]["free"], "3");
    assert_eq!(request_job(&out), waiting);
    bench.executor();
    give(&mut bench, waiting, "6-7");
    assert_eq!(bench.row(job)["nodelist"], "n[0-2,4,6-7]");
    // The loan is due, and so is the end of the new allocation.
    bench.now = 9500.0;
    bench.manager.advance(9500.0);
    let out = bench.manager.flush().unwrap();
    assert_eq!(
        jobspec(&out)["attributes"]["system"]["constraints"],
        json!({"hostlist": ["n3"]})
    );
    assert!(freed(&out).contains(&(new, "5".to_owned(), true)));
}

#[test]
fn ended_requests_do_not_count_against_the_limits_after_a_restart() {
    let limited = || Settings {
        elastic: ElasticSettings {
            job: ElasticLimits::default(),
            user: ElasticLimits {
                nnodes: Some(3),
                ..ElasticLimits::default()
            },
        },
        ..settings()
    };
    let directory = Directory::new("elastic-limits");
    let mut bench = directory.open(limited(), 1000.0);
    let job = ready(&mut bench);
    for _ in 0..2 {
        let grant = request_job(&alloc(&mut bench, job, "extend", &json!([nodes(3)])));
        give(&mut bench, grant, "4-6");
        let name = json!({"key": "pmix.alloc.id", "value": JobId::new(grant).to_string()});
        assert_eq!(
            answer(&alloc(&mut bench, job, "release", &json!([name]))).0,
            0
        );
    }
    let now = bench.now;
    drop(bench);

    let mut bench = directory.open(limited(), now + 1.0);
    assert!(unanswered(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([nodes(3)])
    )));
    assert_eq!(
        answer(&alloc(&mut bench, job, "extend", &json!([nodes(1)]))).0,
        -29
    );
}

#[test]
fn what_is_not_there_costs_a_job_nothing() {
    let (mut bench, job) = start(settings());
    let grant = request_job(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("a"), nodes(1)]),
    ));
    give(&mut bench, grant, "4");
    alloc(&mut bench, job, "release", &json!([named("a")]));
    let ended = JobId::new(grant).to_string();
    let before = bench.row(job)["nodelist"].clone();
    // Whether it has ended or is a typo, flagged or not.
    for id in [ended.as_str(), "a", "typo"] {
        for name in [named(id), existing(id)] {
            let out = alloc(&mut bench, job, "release", &json!([name, nodes(1)]));
            assert_eq!(answer(&out).0, -46, "{id}");
            assert!(freed(&out).is_empty(), "{id}");
        }
        for directive in ["extend", "reacquire"] {
            let out = alloc(&mut bench, job, directive, &json!([existing(id), nodes(1)]));
            assert_eq!(answer(&out).0, -46, "{directive} {id}");
        }
    }
    let out = alloc(&mut bench, job, "extend", &json!([named(&ended), nodes(1)]));
    assert_eq!(answer(&out).0, -46, "the id of an allocation is no name");
    assert_eq!(bench.row(job)["nodelist"], before);
    // The name of one that has ended may be used again.
    let out = alloc(&mut bench, job, "extend", &json!([named("a"), nodes(1)]));
    assert!(unanswered(&out));
}

#[test]
fn a_grant_on_the_requesters_own_node_goes_and_the_node_stays() {
    let (mut bench, job) = start(settings());
    // A job that has two of the cores of one node.
    let (small, _) = bench.submit(&json!({"duration": 8000}));
    give_cores(&mut bench, small, "5", "0-1");
    bench.exec(small, "start", &json!({}));
    let cpus = json!({"key": "pmix.alloc.ncpus", "value": 1});
    for lent in [false, true] {
        let name = json!([named("c"), cpus]);
        let grant = request_job(&alloc(&mut bench, small, "extend", &name));
        give_cores(&mut bench, grant, "5", "2");
        assert_eq!(bench.row(small)["ncores"], 3);
        let mut attributes = json!([existing("c")]);
        if lent {
            let time = json!({"key": "pmix.alloc.time", "value": 600});
            attributes.as_array_mut().unwrap().push(time);
        }
        let out = alloc(&mut bench, small, "release", &attributes);
        assert_eq!(freed(&out), [(grant, "5".to_owned(), true)]);
        assert_eq!(bench.row(small)["ncores"], 2);
    }
    assert_eq!(
        answer(&alloc(&mut bench, small, "release", &json!([nodes(1)]))).0,
        -29
    );
    // The reason names hosts that are not released.
    let hosts = json!({"key": "pmix.alloc.nlist", "value": "n[0,3]"});
    let (status, response) = answer(&alloc(&mut bench, job, "release", &json!([hosts])));
    assert_eq!(
        (status, &response["reason"]),
        (0, &json!("`n0`: the requester's own node stays"))
    );
    let (status, response) = answer(&alloc(&mut bench, job, "release", &json!([nodes(9)])));
    assert_eq!(
        (status, &response["reason"]),
        (0, &json!("in part: 2 of 9 nodes"))
    );
}

#[test]
fn a_grant_released_in_part_shows_what_is_left() {
    let directory = Directory::new("elastic-part");
    let mut bench = directory.open(settings(), 1000.0);
    let job = ready(&mut bench);
    let grant = request_job(&alloc(&mut bench, job, "extend", &json!([nodes(3)])));
    give(&mut bench, grant, "4-6");
    alloc(&mut bench, job, "release", &json!([nodes(1)]));
    let shown = |bench: &mut crate::common::Bench| {
        let row = bench.row(grant);
        assert_eq!(
            (&row["nodelist"], &row["nnodes"], &row["ncores"]),
            (&json!("n[4-5]"), &json!(2), &json!(8))
        );
        let found = bench.request("job-info.lookup", &json!({"id": grant, "keys": ["R"]}));
        let r: Value = serde_json::from_str(body(&found[0])["R"].as_str().unwrap()).unwrap();
        assert_eq!(r["execution"]["R_lite"][0]["rank"], "4-5");
    };
    shown(&mut bench);
    let now = bench.now;
    drop(bench);
    let mut bench = directory.open(settings(), now + 1.0);
    shown(&mut bench);
    let out = bench.scheduler(None);
    let held: Vec<Value> = out
        .iter()
        .filter(|message| message.topic() == "job-manager.sched-hello" && message.errnum() == 0)
        .map(body)
        .collect();
    assert_eq!(held[1]["free"], "6");
}
