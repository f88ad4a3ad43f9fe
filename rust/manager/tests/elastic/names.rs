//! Resolution of names: existing allocations, grants and loans come first, whatever else has the name.

use crate::common::elastic::*;
use crate::common::{Bench, body, settings};
use serde_json::{Value, json};

fn seconds(number: u32) -> Value {
    json!({"key": "pmix.alloc.time", "value": number})
}

/// A request of this name that is granted these ranks; the job that stands for it.
fn grant(bench: &mut Bench, job: u64, directive: &str, name: &str, ranks: &str) -> u64 {
    let out = alloc(bench, job, directive, &json!([reqid(name), nodes(1)]));
    let request = request_job(&out);
    assert_eq!(answer(&give(bench, request, ranks)).0, 0);
    request
}

/// A denied request of this name.
fn deny(bench: &mut Bench, job: u64, directive: &str, name: &str) {
    let out = alloc(bench, job, directive, &json!([reqid(name), required(90)]));
    let out = if unanswered(&out) {
        answer_probe(bench, &out)
    } else {
        out
    };
    assert_eq!(answer(&out).0, -29);
}

/// The allocation that a release by this name frees, or the status.
fn release(bench: &mut Bench, job: u64, alone: bool, name: &str) -> Result<Value, i64> {
    let meant = if alone { named(name) } else { existing(name) };
    let (status, response) = answer(&alloc(bench, job, "release", &json!([meant])));
    if status == 0 {
        Ok(result(&response, "pmix.alloc.nlist"))
    } else {
        Err(status)
    }
}

#[test]
fn a_denied_request_does_not_hide_the_allocation_of_its_name() {
    for alone in [true, false] {
        for directive in ["new", "extend"] {
            let (mut bench, job) = start(settings());
            let first = grant(&mut bench, job, directive, "mine", "4");
            deny(&mut bench, job, "new", "mine");
            if directive == "new" {
                // More for that allocation, not a request of the name.
                let meant = if alone {
                    named("mine")
                } else {
                    existing("mine")
                };
                let out = alloc(&mut bench, job, "extend", &json!([meant, nodes(1)]));
                give(&mut bench, request_job(&out), "5");
                let row = bench.row(first);
                assert_eq!(row["nodelist"], "n[4-5]");
            }
            let all = if directive == "new" { "n[4-5]" } else { "n4" };
            assert_eq!(release(&mut bench, job, alone, "mine"), Ok(json!(all)));
            assert_eq!(release(&mut bench, job, alone, "mine"), Err(-46));
        }
    }
}

#[test]
fn of_two_allocations_of_a_name_the_newest_that_is_left_is_meant() {
    let (mut bench, job) = start(settings());
    grant(&mut bench, job, "new", "mine", "4");
    grant(&mut bench, job, "new", "mine", "5");
    assert_eq!(release(&mut bench, job, true, "mine"), Ok(json!("n5")));
    assert_eq!(release(&mut bench, job, true, "mine"), Ok(json!("n4")));
    assert_eq!(release(&mut bench, job, true, "mine"), Err(-46));
}

#[test]
fn a_request_that_waits_does_not_hide_the_allocation_of_its_name() {
    let (mut bench, job) = start(settings());
    grant(&mut bench, job, "new", "mine", "4");
    let waits = json!([reqid("mine"), nodes(2)]);
    assert!(unanswered(&alloc(&mut bench, job, "new", &waits)));
    assert_eq!(release(&mut bench, job, true, "mine"), Ok(json!("n4")));
}

#[test]
fn a_loan_and_a_release_do_not_hide_the_allocation_of_their_name() {
    let (mut bench, job) = start(settings());
    let first = grant(&mut bench, job, "new", "mine", "4");
    let out = alloc(
        &mut bench,
        job,
        "extend",
        &json!([named("mine"), reqid("more"), nodes(1)]),
    );
    give(&mut bench, request_job(&out), "5");
    // A node of the allocation is lent, under the allocation's own name.
    let lend = json!([named("mine"), reqid("mine"), nodes(1), seconds(100)]);
    assert_eq!(answer(&alloc(&mut bench, job, "release", &lend)).0, 0);
    assert_eq!(bench.row(first)["nodelist"], "n4");
    let back = alloc(&mut bench, job, "reacquire", &json!([named("mine")]));
    let (status, _) = answer(&give(&mut bench, request_job(&back), "6"));
    assert_eq!((status, &bench.row(first)["nnodes"]), (0, &json!(2)));
    // A release of the name, of which something stays.
    let part = json!([named("mine"), reqid("mine"), nodes(1)]);
    assert_eq!(answer(&alloc(&mut bench, job, "release", &part)).0, 0);
    assert_eq!(release(&mut bench, job, true, "mine"), Ok(json!("n4")));
}

#[test]
fn an_ended_job_does_not_hide_the_allocation_named_by_its_id() {
    let (mut bench, job) = start(settings());
    let (over, _) = bench.submit(&json!({}));
    let cancel = json!({"id": over, "severity": 0, "type": "cancel"});
    bench.request("job-manager.raise", &cancel);
    let name = over.to_string();
    grant(&mut bench, job, "new", &name, "4");
    assert_eq!(release(&mut bench, job, false, &name), Ok(json!("n4")));
    let out = bench.request("pmix.query", &json!({"job": job, "id": name}));
    assert_eq!(body(&out[0])["requests"][0]["state"], "granted");
}
