//! Elastic allocations: denials, and how they are reported.

use crate::common::elastic::*;
use crate::common::{Bench, body, settings};
use penstock_manager::{ElasticLimits, ElasticSettings, Settings};
use penstock_rset::ResourceSet;
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

#[test]
fn every_denial_is_reported_to_the_waiting_caller() {
    let (mut bench, job) = start(settings());
    let attribute = |key: &str, value: Value| json!({"key": key, "value": value, "required": true});
    let (one, zero) = (nodes(1), nodes(0));
    let requests = [
        (
            json!("new"),
            vec![one.clone(), attribute("pmix.alloc.msize", json!(64.0))],
            -47,
        ),
        (
            json!("extend"),
            vec![one.clone(), attribute("pmix.alloc.netid", json!("eth0"))],
            -47,
        ),
        (
            json!("new"),
            vec![one.clone(), attribute("foo.bar", json!(1))],
            -47,
        ),
        (
            json!("new"),
            vec![attribute("pmix.alloc.cpulist", json!("0"))],
            -47,
        ),
        (
            json!("new"),
            vec![attribute("pmix.alloc.nnodes", json!(1_u64 << 40))],
            -29,
        ),
        (
            json!("new"),
            vec![attribute("pmix.alloc.nlist", json!("n[1"))],
            -27,
        ),
        (json!("new"), vec![zero], -27),
        (json!("new"), vec![], -27),
        (json!("release"), vec![], -27),
        (json!("reacquire"), vec![], -46),
        (json!(99), vec![one.clone()], -47),
    ];
    let out = bench.stream("pmix.events", &json!({ "job": job }));
    assert!(out.is_empty());
    for (place, (directive, attributes, status)) in requests.into_iter().enumerate() {
        for name in [None, Some(format!("r{place}"))] {
            let mut all = attributes.clone();
            all.extend(name.as_deref().map(reqid));
            check_denial(&mut bench, job, &directive, &all, &json!(name), status);
        }
    }
    // An allocation id without a request id is the name of the request.
    let unread = [named("mine"), one.clone(), attribute("foo", json!(1))];
    check_denial(&mut bench, job, &json!("new"), &unread, &json!("mine"), -47);
    // Not if a request of that name is pending.
    alloc(&mut bench, job, "new", &json!([reqid("open"), one]));
    for wrong in [reqid("open"), named("open")] {
        let unread = [wrong, nodes(0)];
        check_denial(&mut bench, job, &json!("new"), &unread, &Value::Null, -27);
    }
}

/// A denied request is reported to its caller, to watches and to queries.
fn check_denial(
    bench: &mut Bench,
    job: u64,
    directive: &Value,
    attributes: &[Value],
    id: &Value,
    status: i64,
) {
    let payload = json!({"job": job, "rank": 0, "directive": directive, "attributes": attributes});
    let before = query(bench, job).len();
    let out = bench.request("pmix.alloc", &payload);
    let reports = out
        .iter()
        .filter(|message| message.kind == MessageType::Response)
        .map(body);
    let reports: Vec<Value> = reports.collect();
    let event = reports
        .iter()
        .find(|answer| answer.get("directive").is_some());
    let event = event.unwrap_or_else(|| panic!("no event for {payload}"));
    assert_eq!(reports.len(), 2, "{payload}");
    assert_eq!(
        (&event["id"], &event["status"]),
        (id, &json!(status)),
        "{payload}"
    );
    let rows = query(bench, job);
    assert_eq!(rows.len(), before + 1, "{payload}");
    let row = &rows[before];
    assert_eq!(
        (&row["id"], &row["state"]),
        (id, &json!("denied")),
        "{payload}"
    );
    let text = directive
        .as_str()
        .map_or_else(|| directive.to_string(), str::to_owned);
    assert_eq!(row["directive"], text);
}

/// A bench with 10 nodes of 4 cores and 2 of 8, and limits for each job.
fn limited(most: ElasticLimits) -> (Bench, u64) {
    let settings = Settings {
        elastic: ElasticSettings {
            job: most,
            user: ElasticLimits::default(),
        },
        ..settings()
    };
    let (mut bench, job) = start(settings);
    let small = r#"{"rank": "0-9", "children": {"core": "0-3"}}"#;
    let large = r#"{"rank": "10-11", "children": {"core": "0-7"}}"#;
    let r = format!(
        r#"{{"version": 1, "execution": {{"R_lite": [{small}, {large}], "nodelist": ["n[0-11]"],
           "starttime": 0, "expiration": 0}}}}"#
    );
    bench
        .manager
        .set_inventory(ResourceSet::from_json(&r).unwrap());
    (bench, job)
}

#[test]
fn whole_nodes_count_with_the_cores_that_they_can_have() {
    let cores = ElasticLimits {
        ncores: Some(20),
        ..ElasticLimits::default()
    };
    let (mut bench, job) = limited(cores);
    let only = |hosts: &str| json!({"key": "pmix.alloc.nlist", "value": hosts, "required": true});
    let wished = json!({"key": "pmix.alloc.nlist", "value": "n[4-8]"});
    for (attributes, would) in [
        (json!([nodes(3)]), 8 + 8 + 4),
        (json!([nodes(4)]), 8 + 8 + 4 + 4),
        (json!([only("n[4-8]")]), 5 * 4),
        (json!([only("n[4-9]")]), 6 * 4),
        (json!([only("n[10-11]"), nodes(1)]), 8),
        (json!([only("n[9-11]")]), 4 + 8 + 8),
        // They may be others, and larger.
        (json!([wished]), 8 + 8 + 3 * 4),
    ] {
        let out = alloc(&mut bench, job, "new", &attributes);
        if would <= 20 {
            assert_eq!(answer_or_none(&out), None, "{attributes}");
            bench.request("pmix.cancel", &json!({ "job": job }));
            cancelled(&mut bench, request_job(&out));
        } else {
            let reason =
                format!("the policy allows a job 20 cores from requests: it would be {would}");
            let (status, response) = answer(&out);
            assert_eq!(
                (status, &response["reason"]),
                (-29, &json!(reason)),
                "{attributes}"
            );
        }
    }
    // Existing grants count with their actual amounts.
    let grant = request_job(&alloc(&mut bench, job, "new", &json!([nodes(3)])));
    assert_eq!(
        answer(&alloc(&mut bench, job, "new", &json!([nodes(1)]))).0,
        -29
    );
    give(&mut bench, grant, "4-6");
    assert!(unanswered(&alloc(
        &mut bench,
        job,
        "new",
        &json!([nodes(1)])
    )));
}

fn answer_or_none(out: &[Message]) -> Option<Value> {
    (!unanswered(out)).then(|| answer(out).1)
}

#[test]
fn returned_resources_of_the_job_itself_do_not_count() {
    let most = |number: i64| ElasticLimits {
        requests: Some(number),
        nnodes: Some(number),
        ncores: Some(4 * number),
    };
    let (mut bench, job) = limited(most(3));
    let grant = request_job(&alloc(&mut bench, job, "new", &json!([nodes(1)])));
    give(&mut bench, grant, "4");
    let waits = request_job(&alloc(&mut bench, job, "new", &json!([nodes(1)])));
    let loan = json!([reqid("own"), nodes(2), {"key": "pmix.alloc.time", "value": 600}]);
    assert_eq!(answer(&alloc(&mut bench, job, "release", &loan)).0, 0);
    // Requests already exceed the new limits.
    let less = Settings {
        elastic: ElasticSettings {
            job: most(1),
            user: ElasticLimits::default(),
        },
        ..settings()
    };
    let now = bench.now;
    bench.manager.set_settings(less, now);
    assert_eq!(
        answer(&alloc(&mut bench, job, "new", &json!([nodes(1)]))).0,
        -29
    );
    let required = json!([existing("own"), {"key": "pmix.timeout", "value": 9, "required": true}]);
    let back = request_job(&alloc(&mut bench, job, "reacquire", &required));
    give(&mut bench, back, "2-3");
    assert_eq!(bench.row(job)["nodelist"], "n[0-3]");
    assert_ne!(back, waits);
}

#[test]
fn ids_of_a_cpulist_are_a_preference() {
    let (mut bench, job) = start(settings());
    let list = json!({"key": "pmix.alloc.cpulist", "value": "pmix[[1:0-9]]"});
    let out = alloc(&mut bench, job, "new", &json!([nodes(1), list]));
    let request = request_job(&out);
    let node = &jobspec(&out)["resources"][0];
    assert_eq!(node["exclusive"], false);
    assert_eq!(node["with"][0]["with"][0]["count"], 10);
    let never = json!({"id": request, "type": 2, "note": "no node has 10 cpus"});
    let out = bench.answer("sched.alloc", &never);
    assert!(unanswered(&out));
    assert_eq!(jobspec(&out)["resources"][0]["exclusive"], true);
    let (status, response) = answer(&give(&mut bench, request, "4"));
    assert_eq!(
        (status, &response["reason"]),
        (0, &json!("not met: pmix.alloc.cpulist"))
    );
    assert_eq!(
        result(&response, "penstock.alloc.dropped"),
        "pmix.alloc.cpulist"
    );
}

#[test]
fn a_new_allocation_is_not_one_that_must_exist() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "new", &json!([existing("mine"), nodes(1)]));
    let (status, response) = answer(&out);
    assert_eq!(status, -46);
    let reason = "`pmix.alloc.id`: there is no allocation `mine`";
    assert_eq!(response["reason"], reason);
    let out = alloc(&mut bench, job, "new", &json!([named("mine"), nodes(1)]));
    assert!(unanswered(&out), "it is the name");
    give(&mut bench, request_job(&out), "4");
    let out = alloc(&mut bench, job, "new", &json!([existing("mine"), nodes(1)]));
    assert_eq!(answer(&out).0, -27, "it is another");
}

#[test]
fn a_denied_release_says_which_nodes_stay_and_why() {
    let (mut bench, job) = start(settings());
    let reason = |bench: &mut Bench, attributes: &Value, status: i64| {
        let (found, response) = answer(&alloc(bench, job, "release", attributes));
        assert_eq!(found, status, "{attributes}: {response}");
        response["reason"].as_str().unwrap().to_owned()
    };
    let hosts = |names: &str, required: bool| json!({"key": "pmix.alloc.nlist", "required": required, "value": names});
    for (attributes, status, expected) in [
        (
            json!([required(9)]),
            -29,
            "9 nodes to release: 3 can be released; the requester's own node stays",
        ),
        (json!([hosts("n7", true)]), -29, "`n7` is not the job's"),
        (
            json!([hosts("n7", false)]),
            -29,
            "nodes to release: 0 can be released; `n7` is not the job's",
        ),
        (
            json!([hosts("n[0,3,8-9]", true)]),
            -29,
            "`n[8-9]` are not the job's; `n0`: the requester's own node stays",
        ),
        (
            json!([hosts("n0", false), nodes(1)]),
            -29,
            "1 node to release: 0 can be released; `n0`: the requester's own node stays",
        ),
        (
            json!([hosts("n[0-1]", false)]),
            0,
            "`n0`: the requester's own node stays",
        ),
        (
            json!([hosts("n[2,7]", false), nodes(2)]),
            0,
            "in part: 1 of 2 nodes; `n7` is not the job's",
        ),
        (json!([nodes(2)]), 0, "in part: 1 of 2 nodes"),
        (
            json!([nodes(1)]),
            -29,
            "1 node to release: 0 can be released; the requester's own node stays",
        ),
    ] {
        assert_eq!(
            reason(&mut bench, &attributes, status),
            expected,
            "{attributes}"
        );
    }
    let grant = request_job(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("g"), nodes(1)]),
    ));
    give(&mut bench, grant, "5");
    let other = json!([named("g"), hosts("n0", true)]);
    assert_eq!(reason(&mut bench, &other, -29), "`n0` is not the grant's");
    let new = request_job(&alloc(
        &mut bench,
        job,
        "new",
        &json!([named("n"), nodes(1)]),
    ));
    give(&mut bench, new, "6");
    let other = json!([named("n"), hosts("n0", true)]);
    assert_eq!(
        reason(&mut bench, &other, -29),
        "`n0` is not the allocation's"
    );
    // The requesting task runs on a node that the job did not begin with.
    let payload = json!({"job": job, "directive": "release", "attributes": [hosts("n0", true)]});
    let response = answer(&bench.request("pmix.alloc", &payload)).1;
    assert_eq!(
        response["reason"],
        "`n0`: one of the nodes that the job began with stays"
    );
}

#[test]
fn a_request_in_a_stopped_queue_says_so() {
    let (mut bench, job) = start(settings());
    let stop = json!({"start": false, "reason": "maintenance"});
    bench.request("job-manager.queue-start", &stop);
    let why = "the queue is stopped: maintenance";
    let (status, response) = answer(&alloc(&mut bench, job, "new", &json!([required(1)])));
    assert_eq!(status, -29);
    assert_eq!(response["reason"], format!("not available now: {why}"));
    let wished = json!({"key": "pmix.alloc.nlist", "value": "n[4-5]"});
    let out = alloc(&mut bench, job, "new", &json!([reqid("waits"), wished]));
    assert!(unanswered(&out));
    assert_eq!(query(&mut bench, job)[1]["reason"], why);
    let out = bench.request("job-manager.queue-start", &json!({"start": true}));
    assert_eq!(
        jobspec(&out)["attributes"]["system"]["constraints"],
        Value::Null
    );
}

#[test]
fn a_guest_gets_no_job_for_a_request_beyond_its_limit_of_active_jobs() {
    const GUEST: u32 = 7;
    let mut settings = settings();
    settings.guests = true;
    settings.quota.active_jobs = 3;
    let (mut bench, _) = start(settings);
    let spec = crate::common::jobspec(&json!({"duration": 5000}));
    let out = bench.request_as(
        "guest",
        GUEST,
        "job-ingest.submit",
        &json!({"jobspec": spec}),
        0,
    );
    let job = body(&out[0])["id"].as_u64().unwrap();
    give(&mut bench, job, "4-5");
    bench.exec(job, "start", &json!({}));
    let mut ask = |directive: &str| {
        let call = call(job, directive, &json!([nodes(1)]));
        bench.request_as("guest", GUEST, "pmix.alloc", &call, 0)
    };
    assert!(unanswered(&ask("new")));
    assert!(unanswered(&ask("extend")));
    for directive in ["new", "extend"] {
        let (status, denied) = answer(&ask(directive));
        assert_eq!(status, -29);
        let reason = denied.to_string();
        assert!(reason.contains("penstock.quota.active-jobs"), "{reason}");
    }
    // It can still return resources.
    let release = call(job, "release", &json!([nodes(1)]));
    let out = bench.request_as("guest", GUEST, "pmix.alloc", &release, 0);
    assert_eq!(answer(&out).0, 0);
}

#[test]
fn no_job_is_made_for_a_request_while_submissions_are_rejected() {
    let (mut bench, job) = start(settings());
    let full = penstock_flux::RequestError::new(28, "the disk is full");
    bench.manager.set_rejection(Some(full));
    for directive in ["new", "extend"] {
        let (status, denied) = answer(&alloc(&mut bench, job, directive, &json!([nodes(1)])));
        assert_eq!(status, -29);
        assert!(denied.to_string().contains("the disk is full"), "{denied}");
    }
    bench.manager.set_rejection(None);
    assert!(unanswered(&alloc(
        &mut bench,
        job,
        "new",
        &json!([nodes(1)])
    )));
}

#[test]
fn the_streams_of_ended_requests_of_a_job_are_limited() {
    let (mut bench, job) = start(settings());
    for _ in 0..64 {
        assert!(
            bench
                .stream("pmix.events", &json!({ "job": job }))
                .is_empty()
        );
    }
    let out = bench.stream("pmix.events", &json!({ "job": job }));
    assert_eq!(out[0].errnum(), penstock_flux::errno::EAGAIN);
}

#[test]
fn reasons_and_the_names_in_them_are_short() {
    let (mut bench, job) = start(settings());
    // They cannot be folded.
    let name = |number: u32| format!("{number:b}").replace('0', "a").replace('1', "b");
    let hosts: Vec<String> = (1..5000).map(name).collect();
    let hosts = json!({"key": "pmix.alloc.nlist", "value": hosts.join(","), "required": true});
    let wrong = json!({"key": "pmix.alloc.time", "value": "é".repeat(10_000)});
    for attributes in [json!([hosts]), json!([nodes(1), wrong])] {
        for directive in [json!("release"), json!("x".repeat(4_000))] {
            let payload = json!({"job": job, "directive": directive, "attributes": attributes});
            let (status, response) = answer(&bench.stream("pmix.alloc", &payload));
            assert!(status < 0);
            let reason = response["reason"].as_str().unwrap();
            assert!(reason.len() <= 1024, "{}", reason.len());
            assert!(reason.ends_with('…'), "{reason}");
        }
    }
    let unknown: Vec<Value> = (0..60)
        .map(|number| json!({"key": format!("{number:0511}"), "value": 1}))
        .chain([nodes(1)])
        .collect();
    let out = alloc(&mut bench, job, "release", &json!(unknown));
    let (status, response) = answer(&out);
    assert_eq!(status, 0);
    let dropped = result(&response, "penstock.alloc.dropped");
    assert!(dropped.as_str().unwrap().len() <= 1024);
    assert!(response["reason"].as_str().unwrap().len() <= 1024);
    let length = json!(query(&mut bench, job)).to_string().len();
    assert!(length < 10_000, "{length}");
}

#[test]
fn the_pending_requests_of_a_job_are_limited() {
    let (mut bench, job) = start(settings());
    for _ in 0..1024 {
        let out = alloc(&mut bench, job, "new", &json!([nodes(1)]));
        assert!(unanswered(&out));
    }
    let (status, denied) = answer(&alloc(&mut bench, job, "new", &json!([nodes(1)])));
    assert_eq!(status, -29);
    let reason = "1024 requests of the job are pending: expected less";
    assert_eq!(denied["reason"], reason);
    let out = alloc(&mut bench, job, "cancel", &json!([]));
    assert_eq!(answer(&out).0, 0);
    let out = alloc(&mut bench, job, "new", &json!([nodes(1)]));
    assert!(unanswered(&out));
}
