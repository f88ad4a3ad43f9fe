//! The loss of a scheduler with many outstanding requests, and the hello of the next one: both are done in slices.

mod common;

use common::queues::{ids_of, responses};
use common::{Bench, OWNER, R, body, rejection, topics};
use penstock_flux::flags::STREAMING;
use penstock_wire::Message;
use serde_json::{Value, json};

const READY: &str = "job-manager.sched-ready";
const HELLO: &str = "job-manager.sched-hello";
const ENODATA: u32 = 61;

fn lose(bench: &mut Bench) -> Vec<Message> {
    bench.request_as("sched", OWNER, "job-manager.disconnect", &json!({}), 0)
}

/// A scheduler says hello.
fn greet(bench: &mut Bench, peer: &str) -> Vec<Message> {
    let hello = json!({"partial-ok": true});
    bench.request_as(peer, OWNER, "job-manager.sched-hello", &hello, STREAMING)
}

fn make_ready(bench: &mut Bench, peer: &str) -> Vec<Message> {
    bench.request_as(peer, OWNER, READY, &json!({"mode": "unlimited"}), 0)
}

fn queued(bench: &mut Bench) -> Value {
    body(&bench.request("job-manager.stats-get", &json!({}))[0])["sched"]["queued"].clone()
}

/// Ends the requests that are left; others are served in between.
fn end_slices(bench: &mut Bench) -> Vec<Message> {
    let mut out = Vec::new();
    let mut slices = 0;
    while bench.is_due() {
        assert!(responses(&out).is_empty() && ids_of(&out, "sched.alloc").is_empty());
        let pong = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
        assert_eq!(responses(&pong), ["job-manager.ping"]);
        out.extend(bench.pass(0.0));
        slices += 1;
    }
    assert!(slices > 4, "{slices}");
    out.extend(bench.rest());
    out
}

#[test]
fn the_requests_of_a_lost_scheduler_end_in_slices_before_the_next_one_is_ready() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({}), 1500);
    bench.commit_r(ids[1400], R);
    lose(&mut bench);
    assert!(bench.is_due());
    assert_eq!(queued(&mut bench), 1500);
    greet(&mut bench, "next");
    assert!(make_ready(&mut bench, "next").is_empty());
    // Changes of jobs whose requests have not ended yet, and a commit for one.
    let changes = [
        ("raise", json!({"id": ids[1401], "type": "cancel"})),
        ("urgency", json!({"id": ids[1402], "urgency": 0})),
        ("urgency", json!({"id": ids[1403], "urgency": 20})),
    ];
    for (method, payload) in changes {
        let out = bench.request(&format!("job-manager.{method}"), &payload);
        assert!(!topics(&out).contains(&"sched.cancel"));
    }
    assert_eq!(bench.row(ids[1401])["state"], 64);
    assert_ne!(bench.commit_r(ids[1404], R)[0].errnum(), 0);
    let out = end_slices(&mut bench);
    assert_eq!(responses(&out), [READY]);
    let mut expected = ids.clone();
    let urgent = expected.remove(1403);
    expected.drain(1401..1403);
    expected.insert(0, urgent);
    assert_eq!(ids_of(&out, "sched.alloc"), expected);
    // The commit to the lost scheduler is void: another job gets these resources.
    bench.allocate(ids[0]);
    assert_eq!(bench.row(ids[0])["state"], 16);
}

#[test]
fn a_scheduler_that_begins_again_meanwhile_is_ready_once() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({}), 1500);
    lose(&mut bench);
    greet(&mut bench, "next");
    make_ready(&mut bench, "next");
    // A second one before the response.
    assert_eq!(rejection(&make_ready(&mut bench, "next")).0, 71);
    let out = greet(&mut bench, "another");
    let (errnum, text) = rejection(&out[..1]);
    assert_eq!((out[0].topic(), errnum), (READY, 11));
    assert_eq!(text, "the scheduler has begun another handshake");
    make_ready(&mut bench, "another");
    let out = end_slices(&mut bench);
    assert_eq!(responses(&out), [READY]);
    assert_eq!(ids_of(&out, "sched.alloc"), ids);
}

#[test]
fn hello_is_answered_in_slices_before_the_scheduler_is_ready() {
    let mut bench = Bench::new();
    let ids = bench.running_jobs(7);
    lose(&mut bench);
    bench.advance();
    bench.manager.set_slice(2);
    let mut out = greet(&mut bench, "next");
    assert_eq!(ids_of(&out, HELLO), ids[..2]);
    assert!(bench.is_due() && make_ready(&mut bench, "next").is_empty());
    // Of two jobs that end meanwhile, the scheduler knows the first one alone.
    for id in [ids[0], ids[6]] {
        assert!(
            bench
                .end(id, 0)
                .iter()
                .all(|message| message.topic() != "sched.free")
        );
    }
    let mut slices = 1;
    while bench.is_due() {
        let pong = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
        assert_eq!(responses(&pong), ["job-manager.ping"]);
        out.extend(bench.pass(0.0));
        slices += 1;
    }
    assert_eq!(slices, 4);
    let (announced, rest) = out.split_at(6);
    assert_eq!(ids_of(announced, HELLO), ids[..6]);
    assert_eq!((rest[0].topic(), rest[0].errnum()), (HELLO, ENODATA));
    assert_eq!(responses(&rest[1..]), [READY]);
    assert_eq!(rest.last().unwrap().topic(), "sched.free");
    assert_eq!(ids_of(rest, "sched.free"), [ids[0]]);
}

#[test]
fn ranks_that_are_freed_before_their_job_is_announced_are_in_the_response_to_hello() {
    for partial in [true, false] {
        let mut bench = Bench::new();
        bench.executor();
        bench.scheduler(None);
        let ids = [0, 2].map(|rank| {
            let ranks = format!("{rank}-{}", rank + 1);
            let (id, _) = bench.submit(&json!({}));
            bench.allocate_as(id, &R.replace("0-1", &ranks));
            bench.exec(id, "start", &json!({}));
            id
        });
        lose(&mut bench);
        bench.manager.set_slice(1);
        let hello = json!({ "partial-ok": partial });
        bench.request_as("next", OWNER, HELLO, &hello, STREAMING);
        make_ready(&mut bench, "next");
        for (id, rank) in [(ids[0], "0"), (ids[1], "3")] {
            bench.exec(id, "finish", &json!({"status": 0}));
            bench.exec(id, "release", &json!({"ranks": rank, "final": false}));
        }
        let out = bench.advance();
        let announced = out.iter().find(|message| message.topic() == HELLO);
        let announced = body(announced.unwrap());
        assert_eq!(
            (&announced["id"], &announced["free"]),
            (&json!(ids[1]), &json!("3"))
        );
        let freed = ids_of(&out, "sched.free");
        assert_eq!(freed, if partial { vec![ids[0]] } else { vec![] });
        let out = bench.exec(ids[1], "release", &json!({"ranks": "all", "final": true}));
        assert_eq!(ids_of(&out, "sched.free"), [ids[1]]);
    }
}

#[test]
fn jobs_without_resources_are_looked_at_in_slices_by_hello() {
    let mut bench = Bench::new();
    bench.submit_copies(&json!({}), 12_000);
    let mut out = greet(&mut bench, "sched");
    let mut slices = 1;
    while bench.is_due() {
        assert!(out.is_empty());
        out.extend(bench.pass(0.0));
        slices += 1;
    }
    assert_eq!(slices, 2);
    assert_eq!((out[0].topic(), out[0].errnum()), (HELLO, ENODATA));
}

#[test]
fn a_scheduler_that_disconnects_or_begins_again_gets_no_more_responses_to_its_hello() {
    let mut bench = Bench::new();
    let ids = bench.running_jobs(5);
    lose(&mut bench);
    bench.advance();
    bench.manager.set_slice(2);
    greet(&mut bench, "next");
    make_ready(&mut bench, "next");
    let out = greet(&mut bench, "another");
    let failed: Vec<_> = out[..2].iter().map(|m| (m.topic(), m.errnum())).collect();
    assert_eq!(failed, [(HELLO, 11), (READY, 11)]);
    assert_eq!(ids_of(&out[2..], HELLO), ids[..2]);
    bench.request_as("another", OWNER, "job-manager.disconnect", &json!({}), 0);
    assert!(!bench.is_due());
    let mut out = greet(&mut bench, "last");
    out.extend(bench.advance());
    out.extend(make_ready(&mut bench, "last"));
    assert_eq!(ids_of(&out[..5], HELLO), ids);
    assert_eq!(responses(&out[5..]), [HELLO, READY]);
}
