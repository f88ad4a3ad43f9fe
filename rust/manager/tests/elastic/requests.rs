//! Elastic allocations: requests of running jobs, and the decisions about them.

use crate::common::elastic::*;
use crate::common::{Directory, OWNER, body, settings, topics};
use penstock_flux::flags::STREAMING;
use penstock_manager::Settings;
use serde_json::{Value, json};

#[test]
fn an_extension_waits_in_the_queue_and_joins_the_job() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &json!([named("more"), nodes(2)]));
    assert!(unanswered(&out));
    let request = request_job(&out);
    let spec = jobspec(&out);
    assert_eq!(spec["resources"][0]["count"], 2);
    assert_eq!(spec["resources"][0]["exclusive"], true);
    let waiting = query(&mut bench, job);
    assert_eq!(waiting[0]["state"], "queued");
    let (status, response) = answer(&give(&mut bench, request, "4-5"));
    assert_eq!(status, 0);
    assert_eq!(result(&response, "pmix.alloc.nlist"), "n[4-5]");
    assert_eq!(result(&response, "pmix.alloc.ncpulist"), "4,4");
    assert_eq!(result(&response, "pmix.alloc.reqid"), "more");
    let row = bench.row(job);
    assert_eq!(
        (&row["nodelist"], &row["nnodes"]),
        (&json!("n[0-5]"), &json!(6))
    );
    let found = bench.request("job-info.lookup", &json!({"id": job, "keys": ["R"]}));
    let r: Value = serde_json::from_str(body(&found[0])["R"].as_str().unwrap()).unwrap();
    assert_eq!(r["execution"]["R_lite"][0]["rank"], "0-5");
    let there = json!({"constraint": {"hostlist": ["n5"]}, "attrs": ["id"], "order": "newest"});
    let listed = bench.stream("job-list.list", &there);
    let listed = body(&listed[0])["jobs"].as_array().unwrap().clone();
    assert_eq!(listed, [json!({ "id": request }), json!({ "id": job })]);
    assert_eq!(bench.row(request)["ntasks"], 0);
    assert!(
        bench
            .events(job)
            .contains(&"penstock.resource-add".to_owned())
    );
    // The job and its grant end together, and all resources are freed.
    bench.exec(job, "finish", &json!({"status": 0}));
    let out = bench.exec(job, "release", &json!({"ranks": "all", "final": true}));
    assert_eq!(
        freed(&out),
        [
            (job, "0-3".to_owned(), true),
            (request, "4-5".to_owned(), true)
        ]
    );
    assert_eq!(bench.row(request)["result"], 1);
    assert_eq!(bench.row(job)["result"], 1);
}

#[test]
fn a_new_allocation_outlives_its_requester_and_ends_by_its_time() {
    let (mut bench, job) = start(settings());
    let time = json!({"key": "pmix.alloc.time", "value": "1:00:00"});
    let out = alloc(&mut bench, job, "new", &json!([nodes(2), time]));
    assert_eq!(jobspec(&out)["attributes"]["system"]["duration"], 3600.0);
    let new = request_job(&out);
    let (status, response) = answer(&give(&mut bench, new, "4-5"));
    assert_eq!(status, 0);
    assert_eq!(result(&response, "pmix.alloc.time"), 8000);
    assert_eq!(bench.row(job)["nnodes"], 4, "the requester has what it had");
    bench.end(job, 0);
    assert_eq!(bench.row(new)["state"], 16);
    bench.manager.advance(8999.0);
    bench.manager.flush().unwrap();
    assert_eq!(bench.row(new)["state"], 16);
    bench.now = 9001.0;
    assert!(
        bench
            .manager
            .deadline()
            .is_some_and(|deadline| deadline <= 9001.0)
    );
    bench.manager.advance(9001.0);
    let out = bench.manager.flush().unwrap();
    assert_eq!(freed(&out), [(new, "4-5".to_owned(), true)]);
    assert_eq!(bench.row(new)["result"], 1);
}

#[test]
fn a_required_request_is_denied_when_the_scheduler_has_considered_it() {
    let (mut bench, job) = start(settings());
    let out = alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("now"), required(6)]),
    );
    let request = request_job(&out);
    assert_eq!(topics(&out), ["sched.alloc", "sched.explain"]);
    let out = answer_probe(&mut bench, &out);
    let (status, response) = answer(&out);
    assert_eq!(status, -29);
    assert_eq!(response["reason"], "not available now: 6 whole nodes");
    assert_eq!(topics(&out), ["job-exception", "sched.cancel"]);
    cancelled(&mut bench, request);
    assert_eq!(bench.row(request)["result"], 2);
    let over = query(&mut bench, job);
    assert_eq!(
        (&over[0]["state"], &over[0]["status"]),
        (&json!("denied"), &json!(-29))
    );
}

#[test]
fn a_required_request_for_free_nodes_is_granted() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &json!([required(2)]));
    let request = request_job(&out);
    // R is committed before the scheduler responds to the probe.
    bench.commit_r(request, &r_of("4-5"));
    assert!(unanswered(&answer_probe(&mut bench, &out)));
    let out = bench.answer("sched.alloc", &json!({"id": request, "type": 0}));
    assert_eq!(answer(&out).0, 0);
}

#[test]
fn a_scheduler_without_probes_has_two_seconds() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &json!([required(6)]));
    assert!(unanswered(&bench.deny(&out, "sched.explain", 38, "")));
    bench.manager.advance(bench.now + 3.0);
    assert_eq!(answer(&bench.manager.flush().unwrap()).0, -29);
    bench.request_as("sched", OWNER, "job-manager.disconnect", &Value::Null, 4);
    let out = alloc(&mut bench, job, "extend", &json!([required(1)]));
    assert_eq!(answer(&out).0, -29, "no scheduler is ready");
}

#[test]
fn a_scheduler_that_is_slow_to_answer_is_awaited() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &json!([required(2)]));
    let request = request_job(&out);
    assert!(bench.pass(20.0).is_empty());
    bench.commit_r(request, &r_of("4-5"));
    answer_probe(&mut bench, &out);
    let out = bench.answer("sched.alloc", &json!({"id": request, "type": 0}));
    assert_eq!(answer(&out).0, 0);
}

#[test]
fn a_scheduler_that_never_answers_has_thirty_seconds() {
    let (mut bench, job) = start(settings());
    alloc(&mut bench, job, "extend", &json!([required(6)]));
    bench.manager.advance(bench.now + 29.0);
    assert!(bench.manager.flush().unwrap().is_empty());
    bench.manager.advance(bench.now + 31.0);
    assert_eq!(answer(&bench.manager.flush().unwrap()).0, -29);
}

#[test]
fn a_scheduler_that_leaves_ends_the_wait_for_its_answer() {
    let (mut bench, job) = start(settings());
    alloc(&mut bench, job, "extend", &json!([required(6)]));
    bench.request_as("sched", OWNER, "job-manager.disconnect", &Value::Null, 4);
    bench.manager.advance(bench.now + 3.0);
    assert_eq!(answer(&bench.manager.flush().unwrap()).0, -29);
}

#[test]
fn a_dropped_preference_is_reported() {
    let (mut bench, job) = start(settings());
    let list = json!({"key": "pmix.alloc.nlist", "value": "pmix[n[1:8-9]]"});
    let memory = json!({"key": "pmix.alloc.msize", "type": "float", "value": 1.0});
    let out = alloc(&mut bench, job, "extend", &json!([list, memory]));
    let request = request_job(&out);
    let constraints = &jobspec(&out)["attributes"]["system"]["constraints"];
    assert_eq!(*constraints, json!({"hostlist": ["n[8-9]"]}));
    assert_eq!(topics(&answer_probe(&mut bench, &out)), ["sched.cancel"]);
    let out = cancelled(&mut bench, request);
    assert_eq!(topics(&out), ["sched.alloc"], "now it waits");
    let spec = jobspec(&out);
    assert_eq!(spec["attributes"]["system"]["constraints"], Value::Null);
    assert_eq!(spec["resources"][0]["count"], 2);
    let (status, response) = answer(&give(&mut bench, request, "4-5"));
    assert_eq!(status, 0);
    assert_eq!(
        response["reason"],
        "not met: pmix.alloc.msize,pmix.alloc.nlist"
    );
}

#[test]
fn a_preference_that_can_never_be_met_is_dropped_too() {
    let (mut bench, job) = start(settings());
    let list = json!({"key": "pmix.alloc.nlist", "value": "other1"});
    let out = alloc(&mut bench, job, "extend", &json!([list, required(1)]));
    let request = request_job(&out);
    // The responses of one pass come together: the denial, then the response to the probe.
    let denied = bench.answer(
        "sched.alloc",
        &json!({"id": request, "type": 2, "note": "never"}),
    );
    assert_eq!(topics(&denied), ["sched.alloc", "sched.explain"]);
    assert!(
        unanswered(&answer_probe(&mut bench, &out)),
        "that was about the form before"
    );
    assert_eq!(answer(&answer_probe(&mut bench, &denied)).0, -29);
}

#[test]
fn the_callers_limit_ends_in_a_part_or_in_a_timeout() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &json!([nodes(6), limit(60)]));
    let request = request_job(&out);
    bench.manager.advance(bench.now + 61.0);
    assert_eq!(topics(&bench.manager.flush().unwrap()), ["sched.cancel"]);
    let out = cancelled(&mut bench, request);
    assert_eq!(jobspec(&out)["resources"][0]["count"], "1-6");
    assert_eq!(topics(&out), ["sched.alloc", "sched.explain"]);
    let (status, response) = answer(&give(&mut bench, request, "4-6"));
    assert_eq!(
        (status, result(&response, "pmix.alloc.nlist")),
        (0, json!("n[4-6]"))
    );
    assert_eq!(response["reason"], "in part: 3 of 6 nodes");
    // No resources are free.
    bench.now += 100.0;
    let out = alloc(&mut bench, job, "extend", &json!([nodes(3), limit(60)]));
    let request = request_job(&out);
    bench.pass(61.0);
    let out = cancelled(&mut bench, request);
    let (status, response) = answer(&answer_probe(&mut bench, &out));
    assert_eq!(
        (status, &response["reason"]),
        (
            -24,
            &json!(
                "no part of 3 whole nodes is free and not reserved, and the timeout has expired"
            )
        )
    );
    // A request for one node cannot be granted in part.
    alloc(&mut bench, job, "extend", &json!([nodes(1), limit(60)]));
    assert_eq!(answer(&bench.pass(61.0)).0, -24);
}

#[test]
fn an_unsatisfiable_request_is_denied_with_the_schedulers_note() {
    let (mut bench, job) = start(settings());
    let request = request_job(&alloc(&mut bench, job, "new", &json!([nodes(99)])));
    let denied = json!({"id": request, "type": 2, "note": "99 nodes are not there"});
    let (status, response) = answer(&bench.answer("sched.alloc", &denied));
    assert_eq!(
        (status, &response["reason"]),
        (-29, &json!("99 nodes are not there"))
    );
}

#[test]
fn more_than_there_is_beside_the_job_is_denied() {
    let (mut bench, job) = start(settings());
    let (status, response) = answer(&alloc(&mut bench, job, "extend", &json!([nodes(10)])));
    assert_eq!(
        (status, &response["reason"]),
        (
            -29,
            &json!(
                "10 more nodes can never be granted: there are 10, of which the allocation keeps 1"
            )
        )
    );
    let cpus = |number| json!([{"key": "pmix.alloc.ncpus", "value": number}]);
    assert_eq!(answer(&alloc(&mut bench, job, "extend", &cpus(37))).0, -29);
    // The job may release some of its own before; and at the timeout there is a part.
    for most in [cpus(36), json!([nodes(9)]), json!([nodes(10), limit(60)])] {
        assert!(unanswered(&alloc(&mut bench, job, "extend", &most)));
    }
}

#[test]
fn a_request_is_cancelled_by_name_by_task_and_by_its_job() {
    let (mut bench, job) = start(settings());
    for id in ["a", "b"] {
        alloc(&mut bench, job, "new", &json!([named(id), nodes(1)]));
    }
    let third = request_job(&alloc(&mut bench, job, "extend", &json!([nodes(1)])));
    let twice = alloc(&mut bench, job, "new", &json!([named("a"), nodes(1)]));
    assert_eq!(answer(&twice).0, -27);
    let out = alloc(&mut bench, job, "cancel", &json!([named("a")]));
    let first = body(
        out.iter()
            .find(|message| message.topic() == "pmix.alloc")
            .unwrap(),
    );
    assert_eq!(first["status"], -180, "the caller is notified");
    assert_eq!(answer(&out).1["cancelled"], json!(["a"]));
    let out = alloc(&mut bench, job, "cancel", &json!([named("a")]));
    assert_eq!(answer(&out).0, -46);
    let other = json!({"job": job, "rank": 1});
    let out = bench.request("pmix.cancel", &other);
    assert_eq!(answer(&out).1["cancelled"], json!([]), "they are task 0's");
    // The owner cancels a request job.
    let raise = json!({"id": third, "type": "cancel", "severity": 0});
    let (status, response) = answer(&bench.request("job-manager.raise", &raise));
    assert_eq!(
        (status, &response["reason"]),
        (-180, &json!("its job in the queue was cancelled"))
    );
    // Pending requests end with their job.
    let out = bench.end(job, 0);
    assert_eq!(query(&mut bench, job)[1]["status"], -180);
    drop(out);
}

#[test]
fn requests_need_the_owner_and_a_running_job() {
    let guests = Settings {
        guests: true,
        ..settings()
    };
    let (mut bench, job) = start(guests);
    let payload = call(job, "new", &json!([nodes(1)]));
    let out = bench.request_as("guest", 7, "pmix.alloc", &payload, 0);
    assert_eq!(answer(&out).0, -23);
    for topic in ["pmix.query", "pmix.cancel"] {
        let out = bench.request_as("guest", 7, topic, &json!({"job": job}), 0);
        assert_eq!(answer(&out).0, -23, "{topic}");
    }
    let out = bench.request_as("guest", 7, "pmix.events", &json!({"job": job}), STREAMING);
    assert_eq!(out[0].errnum(), 1);
    let out = bench.request("pmix.alloc", &call(99, "new", &json!([nodes(1)])));
    assert_eq!(answer(&out).0, -46);
    let (pending, _) = bench.submit(&json!({"duration": 60}));
    let out = bench.request("pmix.alloc", &call(pending, "new", &json!([nodes(1)])));
    assert_eq!(answer(&out).0, -46);
    for directive in [json!("shrink"), json!(0), json!(6), json!(128), json!(null)] {
        let payload = json!({"job": job, "rank": 0, "directive": directive, "attributes": []});
        let out = bench.request("pmix.alloc", &payload);
        assert_eq!(answer(&out).0, -47, "{directive}");
    }
    for wrong in [
        json!({"rank": 0, "directive": 1}),
        json!({"job": job, "directive": 1, "attributes": [{"value": 1}]}),
    ] {
        assert_eq!(
            crate::common::rejection(&bench.request("pmix.alloc", &wrong)).0,
            71
        );
    }
}

#[test]
fn events_come_for_all_also_to_who_is_late() {
    let (mut bench, job) = start(settings());
    alloc(&mut bench, job, "new", &json!([named("a"), nodes(1)]));
    alloc(&mut bench, job, "cancel", &json!([named("a")]));
    let out = bench.stream("pmix.events", &json!({ "job": job }));
    let event = body(&out[0]);
    assert_eq!(
        (&event["id"], &event["status"]),
        (&json!("a"), &json!(-180))
    );
    let one = bench.stream("pmix.events", &json!({"job": job, "id": "b"}));
    assert!(one.is_empty());
    let request = request_job(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("b"), nodes(1)]),
    ));
    let out = give(&mut bench, request, "4");
    let events: Vec<Value> = out
        .iter()
        .filter(|message| message.topic() == "pmix.events")
        .map(body)
        .collect();
    assert_eq!(events.len(), 2);
    assert!(
        events
            .iter()
            .all(|event| event["id"] == "b" && event["status"] == 0)
    );
    let out = bench.end(job, 0);
    let ends = out
        .iter()
        .filter(|message| message.topic() == "pmix.events");
    assert_eq!(ends.filter(|message| message.errnum() == 61).count(), 2);
}

#[test]
fn a_stream_reports_that_its_request_is_queued() {
    let (mut bench, job) = start(settings());
    let payload = call(job, "new", &json!([named("a"), nodes(1)]));
    let out = bench.stream("pmix.alloc", &payload);
    let (status, response) = answer(&out);
    assert_eq!(
        (status, &response["queued"], &response["id"]),
        (1, &json!(true), &json!("a"))
    );
    let out = give(&mut bench, request_job(&out), "4");
    assert_eq!(answer(&out).0, 0);
    assert_eq!(out.last().unwrap().errnum(), 61);
    // A cancelled stream ends, and its request stays open.
    let out = bench.stream(
        "pmix.alloc",
        &call(job, "new", &json!([named("b"), nodes(1)])),
    );
    let request = request_job(&out);
    let tag = bench.tag();
    let left = bench.request("pmix.alloc-cancel", &json!({ "matchtag": tag }));
    assert_eq!((left[0].matchtag, left[0].errnum()), (tag, 61));
    assert!(unanswered(&give(&mut bench, request, "5")));
    assert_eq!(query(&mut bench, job)[1]["state"], "granted");
}

#[test]
fn a_stream_has_no_response_after_its_end() {
    let (mut bench, job) = start(settings());
    bench.request_as("sched", OWNER, "job-manager.disconnect", &Value::Null, 4);
    // Without a scheduler that could object, the time is granted at once.
    let time = json!({"key": "pmix.alloc.time", "value": 60});
    let out = bench.stream("pmix.alloc", &call(job, "extend", &json!([time])));
    let responses = out.iter().filter(|message| message.topic() == "pmix.alloc");
    let errnums: Vec<u32> = responses.map(penstock_wire::Message::errnum).collect();
    assert_eq!(errnums, [0, 61]);
    assert_eq!(answer(&out).0, 0);
}

#[test]
fn a_request_stays_open_after_its_caller_has_disconnected() {
    let (mut bench, job) = start(settings());
    let out = bench.request_as(
        "task",
        OWNER,
        "pmix.alloc",
        &call(job, "extend", &json!([named("a"), nodes(1)])),
        0,
    );
    let request = request_job(&out);
    bench.request_as("task", OWNER, "job-manager.disconnect", &Value::Null, 4);
    assert!(unanswered(&give(&mut bench, request, "4")));
    assert_eq!(query(&mut bench, job)[0]["state"], "granted");
}

#[test]
fn a_thousand_requests_of_one_job() {
    let (mut bench, job) = start(settings());
    for number in 0..1000 {
        let id = named(&format!("r{number}"));
        assert!(unanswered(&alloc(
            &mut bench,
            job,
            "extend",
            &json!([id, nodes(1)])
        )));
    }
    assert_eq!(query(&mut bench, job).len(), 1000);
    let out = bench.end(job, 0);
    assert_eq!(
        out.iter()
            .filter(|message| message.topic() == "sched.cancel")
            .count(),
        0
    );
    let stands = query(&mut bench, job);
    assert!(stands.iter().all(|row| row["status"] == -180));
}

#[test]
fn a_job_that_is_to_end_has_its_grants_until_its_tasks_have_ended_also_after_a_restart() {
    let directory = Directory::new("elastic-ending");
    let mut bench = directory.open(settings(), 1000.0);
    let inventory = penstock_rset::ResourceSet::from_json(&r_of("0-9")).unwrap();
    bench.manager.set_inventory(inventory.clone());
    let job = ready(&mut bench);
    let grant = request_job(&alloc(&mut bench, job, "extend", &json!([nodes(1)])));
    give(&mut bench, grant, "4");
    let raise = json!({"id": job, "type": "cancel", "severity": 0});
    bench.request("job-manager.raise", &raise);
    assert_eq!(bench.row(job)["state"], 32);
    let now = bench.now;
    // Only one manager may have the store open.
    bench.manager = crate::common::empty_manager();
    let (mut bench, _) = directory.reopen(settings(), now + 1.0);
    bench.manager.set_inventory(inventory);
    let hello = bench.scheduler(None);
    let announced = hello.iter().filter(|message| message.errnum() == 0);
    let held = announced.filter_map(|message| body(message)["id"].as_u64());
    assert_eq!(held.collect::<Vec<_>>(), [job, grant]);
    bench.executor();
    let out = bench.exec(job, "release", &json!({"ranks": "all", "final": true}));
    assert_eq!(
        freed(&out),
        [(job, "0-3".to_owned(), true), (grant, "4".to_owned(), true)]
    );
}
