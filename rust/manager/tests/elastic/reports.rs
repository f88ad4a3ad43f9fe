//! The response, the event and a query report a grant in the same words.

use crate::common::elastic::*;
use crate::common::{Bench, body, settings};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::{Value, json};

fn seconds(number: u32) -> Value {
    json!({"key": "pmix.alloc.time", "value": number})
}

fn memory() -> Value {
    json!({"key": "pmix.alloc.msize", "value": 512.0})
}

/// The row of a request, after a check that row and event agree with `response`.
fn row_of(bench: &mut Bench, job: u64, name: &str, response: &Value) -> Value {
    let out = bench.request("pmix.query", &json!({"job": job, "id": name}));
    let row = body(&out[0])["requests"][0].clone();
    let events = bench.stream("pmix.events", &json!({"job": job, "id": name}));
    let event = body(events.last().unwrap());
    for other in [&row, &event] {
        for key in ["status", "reason", "results"] {
            assert_eq!(other[key], response[key], "{name}: {key}");
        }
        assert_eq!(other["alloc"], result(response, "pmix.alloc.id"), "{name}");
    }
    row
}

/// Checks that a response names the allocation, and that the memory was not provided.
fn check_names(response: &Value, alloc: u64) {
    let name = JobId::new(alloc).to_string();
    assert_eq!(result(response, "pmix.alloc.id"), name);
    let dropped = result(response, "penstock.alloc.dropped");
    assert_eq!(dropped, "pmix.alloc.msize");
}

/// Nodes, cores and time of a row.
fn amounts(row: &Value) -> (Value, Value, Value) {
    (
        row["nodes"].clone(),
        row["cores"].clone(),
        row["time"].clone(),
    )
}

/// The scheduler agrees to a later end.
fn agree(bench: &mut Bench, out: &[Message]) -> Vec<Message> {
    bench.reply(out, "sched.expiration", &json!({}))
}

#[test]
fn a_new_allocation_is_reported_with_the_granted_amounts() {
    let (mut bench, job) = start(settings());
    let wanted = json!([reqid("a"), nodes(1), seconds(60), memory()]);
    let out = alloc(&mut bench, job, "new", &wanted);
    let new = request_job(&out);
    let waits = query(&mut bench, job);
    assert_eq!(amounts(&waits[0]), (json!(1), json!(0), json!(60)));
    let (_, response) = answer(&give(&mut bench, new, "4"));
    check_names(&response, new);
    // The scheduler has granted more time than was requested.
    let row = row_of(&mut bench, job, "a", &response);
    assert_eq!(amounts(&row), (json!(1), json!(4), json!(8000)));
}

#[test]
fn an_extension_by_nodes_is_reported_with_the_granted_amounts() {
    let (mut bench, job) = start(settings());
    let wanted = json!([reqid("a"), nodes(3), limit(5), memory()]);
    let whole = request_job(&alloc(&mut bench, job, "extend", &wanted));
    let out = bench.pass(6.0);
    assert!(unanswered(&out));
    cancelled(&mut bench, whole);
    let (_, response) = answer(&give(&mut bench, whole, "4-5"));
    let reason = response["reason"].as_str().unwrap();
    assert!(reason.contains("in part: 2 of 3 nodes"), "{reason}");
    let row = row_of(&mut bench, job, "a", &response);
    assert_eq!(amounts(&row), (json!(2), json!(8), json!(0)));
}

#[test]
fn a_release_a_loan_and_its_return_are_reported_with_their_amounts() {
    let (mut bench, job) = start(settings());
    let release = json!([reqid("r"), nodes(1), memory()]);
    let (_, response) = answer(&alloc(&mut bench, job, "release", &release));
    check_names(&response, job);
    assert_eq!(response["reason"], "not met: pmix.alloc.msize");
    let row = row_of(&mut bench, job, "r", &response);
    assert_eq!(amounts(&row), (json!(1), json!(4), json!(0)));
    let lend = json!([reqid("l"), nodes(9), seconds(100)]);
    let (_, response) = answer(&alloc(&mut bench, job, "release", &lend));
    let row = row_of(&mut bench, job, "l", &response);
    assert_eq!(amounts(&row), (json!(2), json!(8), json!(100)));
    assert_eq!(row["reason"], "in part: 2 of 9 nodes");
    let back = alloc(
        &mut bench,
        job,
        "reacquire",
        &json!([named("l"), reqid("b")]),
    );
    let back = request_job(&back);
    let (_, response) = answer(&give(&mut bench, back, "4-5"));
    let row = row_of(&mut bench, job, "b", &response);
    assert_eq!(amounts(&row), (json!(2), json!(8), json!(0)));
    assert_eq!(row["alloc"], JobId::new(back).to_string());
}

#[test]
fn an_extension_by_time_is_reported_with_the_granted_time() {
    let (mut bench, job) = start(settings());
    let wanted = json!([reqid("a"), seconds(60), memory()]);
    let out = alloc(&mut bench, job, "extend", &wanted);
    let (_, response) = answer(&agree(&mut bench, &out));
    check_names(&response, job);
    let row = row_of(&mut bench, job, "a", &response);
    assert_eq!(amounts(&row), (json!(0), json!(0), json!(60)));
    // The resources end at 20000, the job at 9060 so far.
    let wanted = json!([reqid("p"), seconds(20_000), limit(5)]);
    alloc(&mut bench, job, "extend", &wanted);
    let out = bench.pass(6.0);
    let (_, response) = answer(&agree(&mut bench, &out));
    assert_eq!(response["reason"], "in part: 10940 of 20000 s");
    let row = row_of(&mut bench, job, "p", &response);
    assert_eq!(amounts(&row), (json!(0), json!(0), json!(10_940)));
}

#[test]
fn time_beyond_the_range_of_pmix_is_reported_as_its_maximum() {
    let (mut bench, job) = start(settings());
    let inventory = r_of("0-9").replace("9000.0", "9000000000.0");
    let inventory = penstock_rset::ResourceSet::from_json(&inventory).unwrap();
    bench.manager.set_inventory(inventory);
    let out = alloc(&mut bench, job, "new", &json!([reqid("a"), nodes(1)]));
    let new = request_job(&out);
    let r = r_of("4").replace("9000.0", "5000000000.0");
    assert_eq!(bench.commit_r(new, &r)[0].errnum(), 0);
    let out = bench.answer("sched.alloc", &json!({"id": new, "type": 0}));
    let (_, response) = answer(&out);
    assert_eq!(result(&response, "pmix.alloc.time"), u32::MAX);
    let row = row_of(&mut bench, job, "a", &response);
    assert_eq!(amounts(&row), (json!(1), json!(4), json!(u32::MAX)));
}
