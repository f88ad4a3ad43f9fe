//! Flexible allocations: what running jobs ask for, and what becomes of it.

mod common;

use common::{Bench, Directory, OWNER, body, settings, topics};
use penstock_manager::{Elastic, Most, Settings};
use penstock_wire::{Kind, Message, STREAMING};
use serde_json::{Value, json};

/// R of whole nodes with four cores.
fn r_of(ranks: &str) -> String {
    format!(
        r#"{{"version":1,"execution":{{"R_lite":[{{"rank":"{ranks}","children":{{"core":"0-3"}}}}],"nodelist":["n[{ranks}]"],"starttime":1000.0,"expiration":9000.0}}}}"#
    )
}

fn start(settings: Settings) -> (Bench, u64) {
    let mut bench = Bench::with(settings);
    let inventory = penstock_rset::ResourceSet::from_json(
        r#"{"version":1,"execution":{"R_lite":[{"rank":"0-9","children":{"core":"0-3"}}],"nodelist":["n[0-9]"],"starttime":0.0,"expiration":20000.0}}"#,
    );
    bench.manager.set_inventory(inventory.unwrap());
    let job = ready(&mut bench);
    (bench, job)
}

/// A scheduler, an execution service, and a job that runs on ranks 0 to 3.
fn ready(bench: &mut Bench) -> u64 {
    bench.scheduler(None);
    bench.executor();
    let (job, _) = bench.submit(&json!({"duration": 8000}));
    give(bench, job, "0-3");
    bench.exec(job, "start", &json!({}));
    job
}

fn give(bench: &mut Bench, job: u64, ranks: &str) -> Vec<Message> {
    let committed = bench.commit_r(job, &r_of(ranks));
    assert_eq!(committed[0].errnum(), 0, "{:?}", committed[0].error_text());
    bench.answer("sched.alloc", &json!({"id": job, "type": 0}))
}

fn call(job: u64, directive: &str, attributes: &Value) -> Value {
    json!({"job": job, "rank": 0, "directive": directive, "attributes": attributes})
}

fn alloc(bench: &mut Bench, job: u64, directive: &str, attributes: &Value) -> Vec<Message> {
    bench.request("pmix.alloc", &call(job, directive, attributes))
}

fn nodes(number: u32) -> Value {
    json!({"key": "pmix.alloc.nnodes", "type": "uint64", "value": number})
}

fn required(number: u32) -> Value {
    json!({"key": "pmix.alloc.nnodes", "required": true, "value": number})
}

fn named(id: &str) -> Value {
    json!({"key": "pmix.alloc.id", "value": id})
}

fn limit(seconds: u32) -> Value {
    json!({"key": "pmix.timeout", "value": seconds})
}

/// The job that is asked for in what came out.
fn asked(out: &[Message]) -> u64 {
    let request = out.iter().find(|it| it.topic() == "sched.alloc");
    body(request.expect("a request for resources"))["id"]
        .as_u64()
        .unwrap()
}

fn jobspec(out: &[Message]) -> Value {
    let request = out.iter().find(|it| it.topic() == "sched.alloc").unwrap();
    body(request)["jobspec"].clone()
}

/// The last answer to a `pmix` call, and its status.
fn answer(out: &[Message]) -> (i64, Value) {
    let is_it = |it: &&Message| it.kind == Kind::Response && it.topic().starts_with("pmix.");
    let mut answers = out.iter().filter(is_it).filter(|it| it.errnum() == 0);
    let answer = body(answers.next_back().expect("an answer"));
    (answer["status"].as_i64().unwrap(), answer)
}

fn unanswered(out: &[Message]) -> bool {
    !out.iter()
        .any(|it| it.kind == Kind::Response && it.topic().starts_with("pmix."))
}

fn result(answer: &Value, key: &str) -> Value {
    let mut results = answer["results"].as_array().unwrap().iter();
    let found = results.rfind(|it| it["key"] == key);
    found.map_or(Value::Null, |it| it["value"].clone())
}

/// The scheduler has looked, and has nothing.
fn looked(bench: &mut Bench, out: &[Message]) -> Vec<Message> {
    bench.reply(out, "sched.explain", &json!({"jobs": [], "errors": {}}))
}

fn cancelled(bench: &mut Bench, job: u64) -> Vec<Message> {
    bench.answer("sched.alloc", &json!({"id": job, "type": 3}))
}

fn query(bench: &mut Bench, job: u64) -> Vec<Value> {
    let out = bench.request("pmix.query", &json!({ "job": job }));
    answer(&out).1["requests"].as_array().unwrap().clone()
}

fn freed(out: &[Message]) -> Vec<(u64, String, bool)> {
    let frees = out.iter().filter(|it| it.topic() == "sched.free");
    frees
        .map(|it| {
            let free = body(it);
            let ranks = free["R"]["execution"]["R_lite"][0]["rank"]
                .as_str()
                .unwrap();
            let last = free["final"].as_bool().unwrap();
            (free["id"].as_u64().unwrap(), ranks.to_owned(), last)
        })
        .collect()
}

#[test]
fn an_extension_waits_in_the_queue_and_joins_the_job() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &json!([named("more"), nodes(2)]));
    assert!(unanswered(&out));
    let request = asked(&out);
    let spec = jobspec(&out);
    assert_eq!(spec["resources"][0]["count"], 2);
    assert_eq!(spec["resources"][0]["exclusive"], true);
    let waiting = query(&mut bench, job);
    assert_eq!(waiting[0]["state"], "queued");
    let (status, told) = answer(&give(&mut bench, request, "4-5"));
    assert_eq!(status, 0);
    assert_eq!(result(&told, "pmix.alloc.nlist"), "n[4-5]");
    assert_eq!(result(&told, "pmix.alloc.ncpulist"), "4,4");
    assert_eq!(result(&told, "pmix.alloc.reqid"), "more");
    let row = bench.row(job);
    assert_eq!(
        (&row["nodelist"], &row["nnodes"]),
        (&json!("n[0-5]"), &json!(6))
    );
    let found = bench.request("job-info.lookup", &json!({"id": job, "keys": ["R"]}));
    let r: Value = serde_json::from_str(body(&found[0])["R"].as_str().unwrap()).unwrap();
    assert_eq!(r["execution"]["R_lite"][0]["rank"], "0-5");
    assert_eq!(bench.row(request)["ntasks"], 0);
    assert!(
        bench
            .events(job)
            .contains(&"penstock.resource-add".to_owned())
    );
    // Both end together, and everything goes back.
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
    let new = asked(&out);
    let (status, told) = answer(&give(&mut bench, new, "4-5"));
    assert_eq!(status, 0);
    assert_eq!(result(&told, "pmix.alloc.time"), 8000);
    assert_eq!(bench.row(job)["nnodes"], 4, "the requester has what it had");
    bench.end(job, 0);
    assert_eq!(bench.row(new)["state"], 16);
    bench.manager.advance(8999.0);
    bench.manager.flush().unwrap();
    assert_eq!(bench.row(new)["state"], 16);
    bench.now = 9001.0;
    assert!(bench.manager.deadline().is_some_and(|it| it <= 9001.0));
    bench.manager.advance(9001.0);
    let out = bench.manager.flush().unwrap();
    assert_eq!(freed(&out), [(new, "4-5".to_owned(), true)]);
    assert_eq!(bench.row(new)["result"], 1);
}

#[test]
fn what_is_required_and_not_there_is_refused_when_the_scheduler_has_looked() {
    let (mut bench, job) = start(settings());
    let out = alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("now"), required(9)]),
    );
    let request = asked(&out);
    assert_eq!(topics(&out), ["sched.alloc", "sched.explain"]);
    let out = looked(&mut bench, &out);
    let (status, told) = answer(&out);
    assert_eq!(status, -29);
    assert_eq!(told["reason"], "not available now: 9 whole nodes");
    assert_eq!(topics(&out), ["job-exception", "sched.cancel"]);
    cancelled(&mut bench, request);
    assert_eq!(bench.row(request)["result"], 2);
    let over = query(&mut bench, job);
    assert_eq!(
        (&over[0]["state"], &over[0]["status"]),
        (&json!("refused"), &json!(-29))
    );
}

#[test]
fn what_is_required_and_there_is_granted() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &json!([required(2)]));
    let request = asked(&out);
    // R is committed before the scheduler says that it has looked.
    bench.commit_r(request, &r_of("4-5"));
    assert!(unanswered(&looked(&mut bench, &out)));
    let out = bench.answer("sched.alloc", &json!({"id": request, "type": 0}));
    assert_eq!(answer(&out).0, 0);
}

#[test]
fn a_scheduler_that_does_not_say_has_two_seconds() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &json!([required(9)]));
    assert!(unanswered(&bench.deny(&out, "sched.explain", 38, "")));
    bench.manager.advance(bench.now + 3.0);
    assert_eq!(answer(&bench.manager.flush().unwrap()).0, -29);
    bench.request_as("sched", OWNER, "job-manager.disconnect", &Value::Null, 4);
    let out = alloc(&mut bench, job, "extend", &json!([required(1)]));
    assert_eq!(answer(&out).0, -29, "nobody is there to look");
}

#[test]
fn a_preference_is_dropped_and_that_is_said() {
    let (mut bench, job) = start(settings());
    let list = json!({"key": "pmix.alloc.nlist", "value": "pmix[n[1:8-9]]"});
    let memory = json!({"key": "pmix.alloc.msize", "type": "float", "value": 1.0});
    let out = alloc(&mut bench, job, "extend", &json!([list, memory]));
    let request = asked(&out);
    let constraints = &jobspec(&out)["attributes"]["system"]["constraints"];
    assert_eq!(*constraints, json!({"hostlist": ["n[8-9]"]}));
    assert_eq!(topics(&looked(&mut bench, &out)), ["sched.cancel"]);
    let out = cancelled(&mut bench, request);
    assert_eq!(topics(&out), ["sched.alloc"], "now it waits");
    let spec = jobspec(&out);
    assert_eq!(spec["attributes"]["system"]["constraints"], Value::Null);
    assert_eq!(spec["resources"][0]["count"], 2);
    let (status, told) = answer(&give(&mut bench, request, "4-5"));
    assert_eq!(status, 0);
    assert_eq!(told["reason"], "not met: pmix.alloc.msize,pmix.alloc.nlist");
}

#[test]
fn a_preference_that_can_never_be_met_is_dropped_too() {
    let (mut bench, job) = start(settings());
    let list = json!({"key": "pmix.alloc.nlist", "value": "other1"});
    let out = alloc(&mut bench, job, "extend", &json!([list, required(1)]));
    let request = asked(&out);
    // The answers of one pass come together: the denial, then that it has looked.
    let denied = bench.answer(
        "sched.alloc",
        &json!({"id": request, "type": 2, "note": "never"}),
    );
    assert_eq!(topics(&denied), ["sched.alloc", "sched.explain"]);
    assert!(
        unanswered(&looked(&mut bench, &out)),
        "that was about the form before"
    );
    assert_eq!(answer(&looked(&mut bench, &denied)).0, -29);
}

#[test]
fn the_callers_limit_ends_in_a_part_or_in_a_timeout() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &json!([nodes(6), limit(60)]));
    let request = asked(&out);
    bench.manager.advance(bench.now + 61.0);
    assert_eq!(topics(&bench.manager.flush().unwrap()), ["sched.cancel"]);
    let out = cancelled(&mut bench, request);
    assert_eq!(jobspec(&out)["resources"][0]["count"], "1-6");
    assert_eq!(topics(&out), ["sched.alloc", "sched.explain"]);
    let (status, told) = answer(&give(&mut bench, request, "4-6"));
    assert_eq!(
        (status, result(&told, "pmix.alloc.nlist")),
        (0, json!("n[4-6]"))
    );
    // Nothing is free at all.
    bench.now += 100.0;
    let out = alloc(&mut bench, job, "extend", &json!([nodes(6), limit(60)]));
    let request = asked(&out);
    bench.now += 61.0;
    bench.manager.advance(bench.now);
    bench.manager.flush().unwrap();
    let out = cancelled(&mut bench, request);
    assert_eq!(answer(&looked(&mut bench, &out)).0, -24);
    // Of one node there is no part.
    alloc(&mut bench, job, "extend", &json!([nodes(1), limit(60)]));
    bench.now += 61.0;
    bench.manager.advance(bench.now);
    assert_eq!(answer(&bench.manager.flush().unwrap()).0, -24);
}

#[test]
fn what_can_never_be_is_refused_with_the_schedulers_words() {
    let (mut bench, job) = start(settings());
    let request = asked(&alloc(&mut bench, job, "new", &json!([nodes(99)])));
    let denied = json!({"id": request, "type": 2, "note": "99 nodes are not there"});
    let (status, told) = answer(&bench.answer("sched.alloc", &denied));
    assert_eq!(
        (status, &told["reason"]),
        (-29, &json!("99 nodes are not there"))
    );
}

#[test]
fn a_request_is_cancelled_by_name_by_task_and_by_its_job() {
    let (mut bench, job) = start(settings());
    for id in ["a", "b"] {
        alloc(&mut bench, job, "new", &json!([named(id), nodes(1)]));
    }
    let third = asked(&alloc(&mut bench, job, "extend", &json!([nodes(1)])));
    let twice = alloc(&mut bench, job, "new", &json!([named("a"), nodes(1)]));
    assert_eq!(answer(&twice).0, -27);
    let out = alloc(&mut bench, job, "cancel", &json!([named("a")]));
    let first = body(out.iter().find(|it| it.topic() == "pmix.alloc").unwrap());
    assert_eq!(first["status"], -180, "who asked hears of it");
    assert_eq!(answer(&out).1["cancelled"], json!(["a"]));
    let out = alloc(&mut bench, job, "cancel", &json!([named("a")]));
    assert_eq!(answer(&out).0, -46);
    let other = json!({"job": job, "rank": 1});
    let out = bench.request("pmix.cancel", &other);
    assert_eq!(answer(&out).1["cancelled"], json!([]), "they are task 0's");
    // Somebody cancels the job that stands for a request.
    let raise = json!({"id": third, "type": "cancel", "severity": 0});
    assert_eq!(answer(&bench.request("job-manager.raise", &raise)).0, -180);
    // What still waits when the job ends is over.
    let out = bench.end(job, 0);
    assert_eq!(query(&mut bench, job)[1]["status"], -180);
    drop(out);
}

#[test]
fn ranks_go_back_but_not_the_requesters_own() {
    let (mut bench, job) = start(settings());
    let request = asked(&alloc(&mut bench, job, "extend", &json!([nodes(2)])));
    give(&mut bench, request, "4-5");
    // Of the grant first, then of the job's own.
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
    // What is left is given back at the end, whatever the execution service names.
    bench.exec(job, "finish", &json!({"status": 0}));
    let out = bench.exec(job, "release", &json!({"ranks": "0-3", "final": true}));
    assert_eq!(freed(&out), [(job, "0".to_owned(), true)]);
    assert_eq!(bench.row(job)["result"], 1);
}

#[test]
fn what_a_job_gave_back_itself_does_not_cost_it_its_epilog() {
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
    let new = asked(&alloc(
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
        -27
    );
}

#[test]
fn what_is_lent_comes_back_once() {
    let (mut bench, job) = start(settings());
    let time = json!({"key": "pmix.alloc.time", "value": 600});
    let lent = alloc(
        &mut bench,
        job,
        "release",
        &json!([named("loan"), nodes(2), time]),
    );
    assert_eq!(freed(&lent), [(job, "2-3".to_owned(), false)]);
    assert_eq!(result(&answer(&lent).1, "pmix.alloc.time"), 600);
    let out = alloc(
        &mut bench,
        job,
        "reacquire",
        &json!([named("loan"), nodes(1)]),
    );
    let first = asked(&out);
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
    // The other one comes back by itself, and is not asked for twice.
    bench.now += 700.0;
    bench.manager.advance(bench.now);
    let second = asked(&bench.manager.flush().unwrap());
    let again = alloc(&mut bench, job, "reacquire", &json!([]));
    assert_eq!(answer(&again).0, -46);
    // A request for it that is cancelled leaves it lent.
    bench.request(
        "job-manager.raise",
        &json!({"id": second, "type": "cancel", "severity": 0}),
    );
    cancelled(&mut bench, second);
    let third = asked(&alloc(&mut bench, job, "reacquire", &json!([])));
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
    let request = asked(&alloc(&mut bench, job, "extend", &json!([nodes(1)])));
    give(&mut bench, request, "4");
    let time = |seconds: u32| json!([{"key": "pmix.alloc.time", "value": seconds}]);
    let first = alloc(&mut bench, job, "extend", &time(600));
    let second = alloc(&mut bench, job, "extend", &time(300));
    assert_eq!(topics(&first), ["sched.expiration"]);
    assert!(topics(&second).is_empty(), "one at a time");
    assert_eq!(body(&first[0])["expiration"], 9600.0);
    let out = bench.reply(&first, "sched.expiration", &json!({}));
    assert_eq!(result(&answer(&out).1, "pmix.alloc.time"), 600);
    // The grant ends with the job; and the second one has its turn.
    let asked: Vec<Value> = out
        .iter()
        .filter(|it| it.topic() == "sched.expiration")
        .map(body)
        .collect();
    assert_eq!(asked[0]["id"], request);
    assert_eq!(asked[0]["expiration"], 9600.0);
    assert_eq!(
        (&asked[1]["id"], &asked[1]["expiration"]),
        (&json!(job), &json!(9900.0))
    );
    let row = bench.row(job);
    assert_eq!(row["expiration"], 9600.0);
    assert!(bench.events(job).contains(&"resource-update".to_owned()));
    let second: Vec<Message> = out
        .into_iter()
        .filter(|it| it.topic() == "sched.expiration" && body(it)["id"] == job)
        .collect();
    let refused = bench.deny(&second, "sched.expiration", 22, "reserved");
    let (status, told) = answer(&refused);
    assert_eq!(status, -29);
    assert_eq!(told["reason"], "the scheduler refuses the update: reserved");
}

#[test]
fn time_beyond_the_resources_is_granted_in_part_when_the_caller_waits_no_longer() {
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
    bench.now += 61.0;
    bench.manager.advance(bench.now);
    let out = bench.manager.flush().unwrap();
    assert_eq!(body(&out[0])["expiration"], 20000.0);
    let out = bench.reply(&out, "sched.expiration", &json!({}));
    assert_eq!(result(&answer(&out).1, "pmix.alloc.time"), 11000);
}

#[test]
fn who_may_ask() {
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
        assert_eq!(common::refused(&bench.request("pmix.alloc", &wrong)).0, 71);
    }
}

#[test]
fn limits_by_configuration() {
    let most = |requests, nnodes| Most {
        requests: Some(requests),
        nnodes: Some(nnodes),
        ncores: None,
    };
    let limited = Settings {
        elastic: Elastic {
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
    let (status, told) = answer(&alloc(&mut bench, job, "new", &json!([nodes(2)])));
    assert_eq!(status, -29);
    assert_eq!(
        told["reason"],
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
    let request = asked(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("b"), nodes(1)]),
    ));
    let out = give(&mut bench, request, "4");
    let events: Vec<Value> = out
        .iter()
        .filter(|it| it.topic() == "pmix.events")
        .map(body)
        .collect();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|it| it["id"] == "b" && it["status"] == 0));
    let out = bench.end(job, 0);
    let ends = out.iter().filter(|it| it.topic() == "pmix.events");
    assert_eq!(ends.filter(|it| it.errnum() == 61).count(), 2);
}

#[test]
fn a_stream_hears_that_it_waits() {
    let (mut bench, job) = start(settings());
    let payload = call(job, "new", &json!([named("a"), nodes(1)]));
    let out = bench.stream("pmix.alloc", &payload);
    let (status, told) = answer(&out);
    assert_eq!(
        (status, &told["queued"], &told["id"]),
        (1, &json!(true), &json!("a"))
    );
    let out = give(&mut bench, asked(&out), "4");
    assert_eq!(answer(&out).0, 0);
    assert_eq!(out.last().unwrap().errnum(), 61);
    // One that is left ends, and its request goes on.
    let out = bench.stream(
        "pmix.alloc",
        &call(job, "new", &json!([named("b"), nodes(1)])),
    );
    let request = asked(&out);
    let tag = bench.tag();
    let left = bench.request("pmix.alloc-cancel", &json!({ "matchtag": tag }));
    assert_eq!((left[0].matchtag, left[0].errnum()), (tag, 61));
    assert!(unanswered(&give(&mut bench, request, "5")));
    assert_eq!(query(&mut bench, job)[1]["state"], "granted");
}

#[test]
fn all_of_it_survives_a_restart() {
    let directory = Directory::new("elastic");
    let mut bench = directory.open(settings(), 1000.0);
    let job = ready(&mut bench);
    let grant = asked(&alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("got"), nodes(1)]),
    ));
    give(&mut bench, grant, "4");
    let new = asked(&alloc(&mut bench, job, "new", &json!([nodes(1)])));
    give(&mut bench, new, "5");
    let time = json!({"key": "pmix.alloc.time", "value": 600});
    alloc(
        &mut bench,
        job,
        "release",
        &json!([named("loan"), time,
        {"key": "pmix.alloc.nlist", "value": "n3"}]),
    );
    let waiting = asked(&alloc(
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
    let told: Vec<Value> = out
        .iter()
        .filter(|it| it.topic() == "job-manager.sched-hello" && it.errnum() == 0)
        .map(body)
        .collect();
    let ids: Vec<u64> = told.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [job, grant, new]);
    assert_eq!(told[0]["free"], "3");
    assert_eq!(asked(&out), waiting);
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
fn the_caller_may_go_and_the_request_goes_on() {
    let (mut bench, job) = start(settings());
    let out = bench.request_as(
        "task",
        OWNER,
        "pmix.alloc",
        &call(job, "extend", &json!([named("a"), nodes(1)])),
        0,
    );
    let request = asked(&out);
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
        out.iter().filter(|it| it.topic() == "sched.cancel").count(),
        0
    );
    let stands = query(&mut bench, job);
    assert!(stands.iter().all(|it| it["status"] == -180));
}
