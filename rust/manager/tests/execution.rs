//! RFC 32: the responses that an execution service may send, and the rejection of all others.

mod common;

use common::queues::ids_of;
use common::{Bench, Directory, OWNER, body, rejection, settings, topics};
use penstock_flux::errno;
use penstock_manager::{ExecHello, Settings};
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

const HELLO: &str = "job-manager.exec-hello";

fn nothing() -> Value {
    json!({})
}

/// A job on ranks 0 and 1 whose start was requested.
fn requested() -> (Bench, u64) {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, _) = bench.submit(&nothing());
    let out = bench.allocate(id);
    assert_eq!(topics(&out), ["job-exec.start"]);
    bench.manager.take_log();
    (bench, id)
}

/// Sends a response that must be rejected: one line in the log, and nothing changes.
fn rejects(bench: &mut Bench, id: u64, kind: &str, data: &Value, why: &str) {
    let (before, row) = (bench.events(id), bench.row(id));
    let out = bench.exec(id, kind, data);
    assert_eq!(topics(&out), [""; 0], "{kind} {data}");
    let log = bench.manager.take_log();
    assert_eq!(log.len(), 1, "{kind} {data}: {log:?}");
    assert!(log[0].contains(why), "{}", log[0]);
    assert_eq!((bench.events(id), bench.row(id)), (before, row));
}

fn named_executor(bench: &mut Bench, name: &str) -> Vec<Message> {
    let hello = json!({ "service": name });
    bench.request_as(name, OWNER, "job-manager.exec-hello", &hello, 0)
}

fn answer_as(bench: &mut Bench, service: &str, id: u64, kind: &str, data: &Value) -> Vec<Message> {
    let payload = json!({"id": id, "type": kind, "data": data});
    bench.answer(&format!("{service}.start"), &payload)
}

#[test]
fn answers_come_in_order_or_not_at_all() {
    let (mut bench, id) = requested();
    let bench = &mut bench;
    let last = json!({"ranks": "all", "final": true});
    rejects(
        bench,
        id,
        "finish",
        &json!({"status": 0}),
        "has not started",
    );
    rejects(
        bench,
        id,
        "reattached",
        &nothing(),
        "reattach was not requested",
    );
    let part = json!({"ranks": "0", "final": false});
    rejects(bench, id, "release", &part, "has not started");
    bench.exec(id, "start", &nothing());
    rejects(bench, id, "start", &nothing(), "has started before");
    rejects(bench, id, "dance", &nothing(), "unknown type");
    rejects(bench, id, "finish", &nothing(), "malformed data");
    rejects(bench, id, "finish", &json!({"status": -5}), "status -5");
    rejects(
        bench,
        id,
        "exception",
        &json!({"severity": 0}),
        "malformed data",
    );
    let odd = json!({"severity": 8, "type": "x"});
    rejects(bench, id, "exception", &odd, "expected 0 to 7");
    bench.exec(id, "finish", &json!({"status": 0}));
    rejects(
        bench,
        id,
        "finish",
        &json!({"status": 9}),
        "has finished before",
    );
    for (ranks, why) in [
        ("x", "expected"),
        ("", "no ranks"),
        ("1-2", "ranks 2"),
        ("7", "ranks 7"),
    ] {
        let part = json!({"ranks": ranks, "final": false});
        rejects(bench, id, "release", &part, why);
    }
    bench.exec(id, "release", &part);
    rejects(
        bench,
        id,
        "release",
        &part,
        "ranks 0 are no longer the job's",
    );
    assert_eq!(bench.row(id)["state"], 32);
    assert_eq!(topics(&bench.exec(id, "release", &last)), ["sched.free"]);
    for (kind, data) in [
        ("start", nothing()),
        ("exception", json!({"severity": 0, "type": "late"})),
        ("finish", json!({"status": 1})),
        ("release", last),
    ] {
        rejects(bench, id, kind, &data, "none is due");
    }
    let row = bench.row(id);
    assert_eq!((&row["state"], &row["result"]), (&json!(64), &json!(1)));
}

#[test]
fn after_a_fatal_exception_start_and_finish_may_be_missing() {
    let fatal = json!({"severity": 0, "type": "exec", "note": "no such directory"});
    let last = json!({"ranks": "all", "final": true});
    for answers in [
        vec![],
        vec![("start", nothing())],
        vec![("finish", json!({"status": 256}))],
        vec![("start", nothing()), ("finish", json!({"status": 256}))],
        vec![("release", json!({"ranks": "1", "final": false}))],
    ] {
        let (mut bench, id) = requested();
        bench.exec(id, "exception", &fatal);
        for (kind, data) in &answers {
            bench.exec(id, kind, data);
            assert_eq!(bench.row(id)["state"], 32);
        }
        bench.exec(id, "release", &last);
        let row = bench.row(id);
        assert_eq!((&row["state"], &row["result"]), (&json!(64), &json!(2)));
        assert_eq!(row["exception_note"], "no such directory");
        assert_eq!(bench.manager.take_log(), [""; 0]);
    }
}

#[test]
fn a_job_is_cleaned_only_after_the_final_release() {
    let (mut bench, id) = requested();
    bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    bench.exec(id, "finish", &json!({"status": 15}));
    bench.exec(id, "release", &json!({"ranks": "0-1", "final": false}));
    assert_eq!(bench.row(id)["state"], 32);
    bench.exec(id, "exception", &json!({"severity": 3, "type": "slow"}));
    bench.exec(id, "release", &json!({"ranks": "", "final": true}));
    assert_eq!(bench.row(id)["state"], 64);
}

#[test]
fn a_final_release_frees_all_remaining_ranks_whichever_it_names() {
    for ranks in ["0", "0-3", "all", "9"] {
        let (mut bench, id) = requested();
        bench.exec(id, "start", &nothing());
        bench.exec(id, "finish", &json!({"status": 0}));
        let out = bench.exec(id, "release", &json!({"ranks": ranks, "final": true}));
        let free = body(
            out.iter()
                .find(|message| message.topic() == "sched.free")
                .unwrap(),
        );
        assert_eq!(free["R"]["execution"]["R_lite"][0]["rank"], "0-1");
        assert_eq!(bench.row(id)["state"], 64);
    }
}

#[test]
fn a_release_without_an_end_fails_the_job() {
    let (mut bench, id) = requested();
    bench.exec(id, "start", &nothing());
    bench.exec(id, "release", &json!({"ranks": "all", "final": true}));
    let row = bench.row(id);
    assert_eq!(row["exception_note"], "released without having finished");
    assert_eq!(row["state"], 64);
}

#[test]
fn the_wait_status_of_an_exception_is_passed_on() {
    let (mut bench, id) = requested();
    let exception = |out: &[Message]| {
        let event = out
            .iter()
            .find(|message| message.kind == MessageType::Event)
            .unwrap();
        body(event)
    };
    let raise = json!({"id": id, "type": "x", "severity": 2, "wait_status": 256});
    let event = exception(&bench.request("job-manager.raise", &raise));
    assert_eq!(
        event,
        json!({"id": id, "type": "x", "severity": 2, "wait_status": 256})
    );
    let data = json!({"severity": 0, "type": "timeout", "wait_status": 14});
    let event = exception(&bench.exec(id, "exception", &data));
    assert_eq!(event["wait_status"], 14);
    let out = bench.request("job-info.lookup", &json!({"id": id, "keys": ["eventlog"]}));
    let log = body(&out[0])["eventlog"].as_str().unwrap().to_owned();
    let contexts: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["name"] == "exception")
        .map(|event| event["context"]["wait_status"].clone())
        .collect();
    assert_eq!(contexts, [json!(256), json!(14)]);
    let bad = json!({"id": id, "type": "x", "wait_status": -1});
    assert_eq!(rejection(&bench.request("job-manager.raise", &bad)).0, 71);
}

#[test]
fn another_service_takes_over_running_jobs() {
    let (mut bench, running) = requested();
    bench.exec(running, "start", &nothing());
    let (starting, _) = bench.submit(&nothing());
    bench.commit_r(starting, &common::R.replace("0-3", "4-7"));
    bench.answer("sched.alloc", &json!({"id": starting, "type": 0}));
    let out = named_executor(&mut bench, "sim");
    assert_eq!(
        topics(&out),
        ["job-exec.replaced", "sim.start", "sim.start"]
    );
    let replaced = out
        .iter()
        .find(|message| message.method() == "replaced")
        .unwrap();
    assert!(replaced.is_noresponse());
    assert_eq!(body(replaced), json!({"service": "sim"}));
    let starts: Vec<Value> = out
        .iter()
        .filter(|message| message.method() == "start")
        .map(|message| json!([body(message)["id"], body(message)["reattach"]]))
        .collect();
    assert_eq!(starts, [json!([running, true]), json!([starting, true])]);
    bench.manager.take_log();
    // Late responses of the replaced service are ignored, errors included.
    rejects(
        &mut bench,
        running,
        "finish",
        &json!({"status": 9}),
        "not the execution service",
    );
    bench.fail("job-exec.start", 5);
    assert!(bench.manager.take_log()[0].contains("not the execution service"));
    answer_as(&mut bench, "sim", running, "reattached", &nothing());
    answer_as(&mut bench, "sim", running, "finish", &json!({"status": 0}));
    let last = json!({"ranks": "all", "final": true});
    answer_as(&mut bench, "sim", running, "release", &last);
    assert_eq!(bench.row(running)["result"], 1);
    let events = bench.events(running);
    assert_eq!(events.iter().filter(|event| *event == "start").count(), 1);
    assert!(events.contains(&"reattached".to_owned()));
}

/// The topics of all messages, responses included.
fn all_topics(out: &[Message]) -> Vec<&str> {
    out.iter().map(Message::topic).collect()
}

fn reattaches(out: &[Message]) -> Vec<Value> {
    let starts = out.iter().filter(|message| message.method() == "start");
    starts
        .map(|message| body(message)["reattach"].clone())
        .collect()
}

#[test]
fn a_job_that_may_have_been_started_is_not_started_again() {
    // The first service is replaced, disconnects or fails before it has answered.
    for end in ["replaced", "gone", "error"] {
        let (mut bench, id) = requested();
        match end {
            "gone" => {
                bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4);
            }
            "error" => drop(bench.fail("job-exec.start", 5)),
            _ => {}
        }
        let out = named_executor(&mut bench, "sim");
        assert_eq!(reattaches(&out), [json!(true)], "{end}");
        // Its start was not reported before.
        answer_as(&mut bench, "sim", id, "reattached", &nothing());
        let out = named_executor(&mut bench, "third");
        assert_eq!(reattaches(&out), [json!(true)], "{end}");
        answer_as(&mut bench, "third", id, "reattached", &nothing());
        let events = bench.events(id);
        assert_eq!(events[events.len() - 2..], ["start", "reattached"], "{end}");
        answer_as(&mut bench, "third", id, "finish", &json!({"status": 0}));
        let last = json!({"ranks": "all", "final": true});
        answer_as(&mut bench, "third", id, "release", &last);
        assert_eq!(bench.row(id)["result"], 1, "{end}");
    }
}

#[test]
fn the_starts_of_a_lost_service_end_in_slices_before_the_next_one_is_accepted() {
    let mut bench = Bench::new();
    let ids = bench.running_jobs(7);
    bench.manager.set_slice(2);
    bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4);
    let stats = body(&bench.request("job-manager.stats-get", &json!({}))[0]);
    assert_eq!(stats["exec"]["queued"], 7);
    // No service could send a signal meanwhile.
    for id in &ids {
        let out = bench.request("job-manager.kill", &json!({"id": id, "signum": 15}));
        assert_eq!(rejection(&out).0, 113);
    }
    // Others say hello meanwhile; one disconnects.
    assert_eq!(named_executor(&mut bench, "gone"), []);
    bench.request_as("gone", OWNER, "job-manager.disconnect", &Value::Null, 4);
    assert_eq!(named_executor(&mut bench, "early"), []);
    let out = named_executor(&mut bench, "sim");
    assert_eq!(rejection(&out).0, 11);
    // A job that ends meanwhile.
    bench.request(
        "job-manager.raise",
        &json!({"id": ids[6], "type": "cancel"}),
    );
    let mut out = Vec::new();
    let mut slices = 0;
    while bench.is_due() {
        let pong = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
        assert_eq!(pong.len(), 1);
        out.extend(bench.pass(0.0));
        slices += 1;
    }
    // The next one gets its requests in as many.
    assert_eq!(slices, 6);
    assert_eq!((out[0].topic(), out[0].errnum()), (HELLO, 0));
    assert_eq!(ids_of(&out, "sim.start"), ids);
    assert_eq!(reattaches(&out), vec![json!(true); 7]);
    for id in &ids {
        answer_as(&mut bench, "sim", *id, "reattached", &nothing());
        answer_as(&mut bench, "sim", *id, "finish", &json!({"status": 0}));
        let last = json!({"ranks": "all", "final": true});
        answer_as(&mut bench, "sim", *id, "release", &last);
        assert_eq!(bench.row(*id)["state"], 64);
    }
}

#[test]
fn the_start_requests_of_many_jobs_are_sent_in_slices_before_a_ping_of_the_service_is_answered() {
    const PING: &str = "job-manager.ping";
    let directory = Directory::new("many-starts");
    let mut bench = directory.open(settings(), 1000.0);
    bench.manager.set_slice(2);
    let ids = bench.allocated_jobs(7);
    assert_eq!(all_topics(&named_executor(&mut bench, "early")), [HELLO]);
    // A service that is lost meanwhile is not told that it has all requests.
    assert_eq!(ids_of(&bench.pass(0.0), "early.start"), ids[..2]);
    let early = bench.request_as("early", OWNER, PING, &json!({}), 0);
    assert_eq!(early, []);
    let out = named_executor(&mut bench, "sim");
    assert_eq!(all_topics(&out), ["early.replaced", PING, HELLO]);
    assert_eq!(out[1].errnum(), 11);
    // Signals of jobs whose requests are not sent yet are rejected; jobs may end before it.
    let kill = json!({"id": ids[6], "signum": 15});
    assert_eq!(rejection(&bench.request("job-manager.kill", &kill)).0, 22);
    let cancel = json!({"id": ids[5], "type": "cancel"});
    bench.request("job-manager.raise", &cancel);
    let mut out = bench.request_as("sim", OWNER, PING, &json!({}), 0);
    let mut slices = 0;
    while bench.is_due() {
        let pong = bench.request_as("other", OWNER, PING, &json!({}), 0);
        assert_eq!(pong.len(), 1);
        let part = bench.pass(0.0);
        let starts = ids_of(&part, "sim.start").len();
        assert!((1..=4).contains(&starts), "{starts} start requests");
        out.extend(part);
        slices += 1;
    }
    assert_eq!(slices, 2);
    assert_eq!(ids_of(&out, "sim.start"), [&ids[..5], &ids[6..]].concat());
    assert_eq!(all_topics(&out).last().copied(), Some(PING));
    assert_eq!(
        reattaches(&out),
        [vec![json!(true); 2], vec![json!(false); 4]].concat()
    );
    // No start is marked as unsent after a restart.
    drop(bench);
    let mut bench = directory.open(settings(), 2000.0);
    bench.manager.set_slice(2);
    let out = named_executor(&mut bench, "third");
    let mut starts = reattaches(&out);
    while bench.is_due() {
        starts.extend(reattaches(&bench.pass(0.0)));
    }
    assert_eq!(starts, vec![json!(true); 6]);
}

#[test]
fn a_start_that_no_service_received_is_sent_again() {
    // The broker's answer for a name that is not registered.
    let (mut bench, id) = requested();
    bench.fail("job-exec.start", 38);
    let out = bench.executor();
    assert_eq!(reattaches(&out), [json!(false)]);
    // A service that has sent a response did exist.
    let data = json!({"severity": 3, "type": "note"});
    bench.exec(id, "exception", &data);
    bench.fail("job-exec.start", 38);
    assert_eq!(reattaches(&bench.executor()), [json!(true)]);
}

#[test]
fn a_service_that_knows_no_reattached_says_start() {
    let (mut bench, id) = requested();
    bench.exec(id, "start", &nothing());
    bench.executor();
    bench.exec(id, "start", &nothing());
    bench.exec(id, "finish", &json!({"status": 0}));
    bench.exec(id, "release", &json!({"ranks": "all", "final": true}));
    let events = bench.events(id);
    assert_eq!(events.iter().filter(|event| *event == "start").count(), 1);
    assert_eq!(bench.row(id)["result"], 1);
}

#[test]
fn a_job_that_has_ended_is_reattached_to_be_released() {
    let (mut bench, id) = requested();
    bench.exec(id, "start", &nothing());
    bench.exec(id, "finish", &json!({"status": 256}));
    bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4);
    assert_eq!(bench.row(id)["state"], 32);
    let out = bench.executor();
    assert_eq!(topics(&out), ["job-exec.start"]);
    bench.exec(id, "reattached", &nothing());
    bench.exec(id, "finish", &json!({"status": 0}));
    bench.exec(id, "release", &json!({"ranks": "all", "final": true}));
    let events = bench.events(id);
    assert_eq!(events.iter().filter(|event| *event == "finish").count(), 1);
    assert_eq!(bench.row(id)["returncode"], 1);
}

#[test]
fn an_exception_raised_between_services_is_announced_to_the_next() {
    let (mut bench, id) = requested();
    bench.exec(id, "start", &nothing());
    bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4);
    let raise = json!({"id": id, "type": "mine", "wait_status": 512});
    bench.request("job-manager.raise", &raise);
    // Only the first one counts.
    let raise = json!({"id": id, "type": "cancel", "wait_status": 9});
    bench.request("job-manager.raise", &raise);
    assert_eq!(bench.row(id)["state"], 32);
    let out = bench.executor();
    assert_eq!(topics(&out), ["job-exec.start", "job-exception"]);
    assert_eq!(
        body(&out[2]),
        json!({"id": id, "type": "mine", "severity": 0, "wait_status": 512})
    );
}

#[test]
fn a_second_service_is_rejected_while_a_start_is_outstanding_if_so_configured() {
    let settings = Settings {
        exec_hello: ExecHello::Reject,
        ..settings()
    };
    let mut bench = Bench::with(settings);
    bench.scheduler(None);
    named_executor(&mut bench, "a");
    // An idle service may be replaced.
    let out = named_executor(&mut bench, "b");
    assert_eq!(topics(&out), ["a.replaced"]);
    let (id, _) = bench.submit(&nothing());
    assert_eq!(topics(&bench.allocate(id)), ["b.start"]);
    let (errnum, text) = rejection(&named_executor(&mut bench, "c"));
    assert_eq!(
        (errnum, text.as_str()),
        (22, "`b` has start requests to answer: 1")
    );
    answer_as(&mut bench, "b", id, "start", &nothing());
    assert_eq!(rejection(&named_executor(&mut bench, "c")).0, 22);
    answer_as(&mut bench, "b", id, "finish", &json!({"status": 0}));
    answer_as(
        &mut bench,
        "b",
        id,
        "release",
        &json!({"ranks": "all", "final": true}),
    );
    assert_eq!(bench.row(id)["result"], 1);
    // A disconnected service has no outstanding requests.
    let (id, _) = bench.submit(&nothing());
    bench.allocate(id);
    bench.request_as("b", OWNER, "job-manager.disconnect", &Value::Null, 4);
    assert_eq!(topics(&named_executor(&mut bench, "c")), ["c.start"]);
    assert_eq!(bench.row(id)["state"], 16);
}

#[test]
fn the_next_service_is_not_displaced_before_it_is_accepted_if_so_configured() {
    let settings = Settings {
        exec_hello: ExecHello::Reject,
        ..settings()
    };
    let mut bench = Bench::with(settings);
    bench.running_jobs(3);
    bench.manager.set_slice(1);
    bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4);
    assert_eq!(named_executor(&mut bench, "b"), []);
    let (errnum, text) = rejection(&named_executor(&mut bench, "c"));
    assert_eq!((errnum, text.as_str()), (22, "`b` takes over the jobs"));
    let mut out = Vec::new();
    while bench.is_due() {
        out.extend(bench.pass(0.0));
    }
    assert_eq!(topics(&out), ["b.start"; 3]);
}

#[test]
fn exec_hello_is_checked() {
    let mut bench = Bench::new();
    for (hello, errnum) in [
        (json!({}), 71),
        (json!({"service": 7}), 71),
        (json!({"service": ""}), 22),
        (json!({"service": "a b"}), 22),
        (json!({"service": "a.b"}), 22),
    ] {
        let out = bench.request_as("x", OWNER, "job-manager.exec-hello", &hello, 0);
        assert_eq!(rejection(&out).0, errnum, "{hello}");
    }
    let hello = json!({"service": "x"});
    let out = bench.request_as("x", OWNER + 1, "job-manager.exec-hello", &hello, 0);
    assert_eq!(rejection(&out).0, 1);
    let out = bench.request_as("x", OWNER, "job-manager.exec-hello", &hello, 0);
    assert_eq!((out[0].errnum(), out[0].payload_json()), (0, None));
}

#[test]
fn an_error_to_start_stops_starts_until_the_next_exec_hello() {
    let (mut bench, first) = requested();
    bench.fail("job-exec.start", 38);
    assert_eq!(
        bench.manager.take_log(),
        ["the execution service is gone: job-exec.start failed: Function not implemented"]
    );
    let (second, _) = bench.submit(&nothing());
    bench.commit_r(second, &common::R.replace("0-3", "4-7"));
    let out = bench.answer("sched.alloc", &json!({"id": second, "type": 0}));
    assert_eq!(topics(&out), [""; 0]);
    bench.exec(first, "start", &nothing());
    assert_eq!(bench.events(first).last().unwrap(), "alloc");
    let out = bench.executor();
    assert_eq!(topics(&out), ["job-exec.start", "job-exec.start"]);
    assert_eq!(body(&out[1])["reattach"], false);
}

#[test]
fn a_signal_that_no_service_can_send_is_an_error() {
    let (mut bench, id) = requested();
    bench.exec(id, "start", &nothing());
    let kill = json!({"id": id, "signum": 10});
    let several = json!({"ids": [id], "signum": 10});
    let sent = bench.request("job-manager.kill", &kill);
    assert_eq!(topics(&sent), ["job-exec.kill"]);
    bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4);
    let (errnum, text) = rejection(&bench.request("job-manager.kill", &kill));
    assert_eq!(errnum, errno::EHOSTUNREACH, "{text}");
    assert!(text.ends_with("the signal was not sent"), "{text}");
    let counted = body(&bench.request("job-manager.kill", &several)[0]);
    assert_eq!(counted["count"], 0);
    bench.executor();
    let sent = bench.request("job-manager.kill", &kill);
    assert_eq!(topics(&sent), ["job-exec.kill"]);
}

#[test]
fn the_start_at_the_next_service_has_the_changed_expiration() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, _) = bench.submit(&json!({"duration": 60.0}));
    bench.allocate(id);
    bench.exec(id, "start", &nothing());
    bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4);
    let update = json!({"id": id, "updates": {"attributes.system.duration": 600.0}});
    let out = bench.request("job-manager.update", &update);
    let out = bench.reply(&out, "sched.expiration", &nothing());
    assert!(
        !topics(&out).contains(&"job-exec.expiration"),
        "there is no service"
    );
    let expiration = bench.row(id)["expiration"].clone();
    let out = bench.executor();
    let start = out
        .iter()
        .find(|message| message.topic() == "job-exec.start");
    let start = body(start.unwrap());
    assert_eq!(start["reattach"], true);
    assert_eq!(start["R"]["execution"]["expiration"], expiration);
}
