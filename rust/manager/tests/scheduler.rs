//! The loss of a scheduler with many outstanding requests, which end in slices.

mod common;

use common::queues::{ids_of, responses};
use common::{Bench, OWNER, R, body, rejection, topics};
use penstock_flux::flags::STREAMING;
use penstock_wire::Message;
use serde_json::{Value, json};

const READY: &str = "job-manager.sched-ready";

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
