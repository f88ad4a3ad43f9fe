//! Flexible allocations: what is refused, and what is told of it.

mod common;

use common::elastic::*;
use common::{Bench, body, settings};
use penstock_wire::Kind;
use serde_json::{Value, json};

#[test]
fn every_refusal_is_told_to_who_waits_for_the_request() {
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
            told(&mut bench, job, &directive, &all, &json!(name), status);
        }
    }
    // What stands alone in the place of an allocation's id is the name.
    let unread = [named("mine"), one.clone(), attribute("foo", json!(1))];
    told(&mut bench, job, &json!("new"), &unread, &json!("mine"), -47);
    // Not where a request of that name waits.
    alloc(&mut bench, job, "new", &json!([reqid("open"), one]));
    for wrong in [reqid("open"), named("open")] {
        let unread = [wrong, nodes(0)];
        told(&mut bench, job, &json!("new"), &unread, &Value::Null, -27);
    }
}

/// A request that is refused is told to who asks, to who listens and to who looks.
fn told(
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
    let told = out.iter().filter(|it| it.kind == Kind::Response).map(body);
    let told: Vec<Value> = told.collect();
    let event = told.iter().find(|it| it.get("directive").is_some());
    let event = event.unwrap_or_else(|| panic!("no event for {payload}"));
    assert_eq!(told.len(), 2, "{payload}");
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
        (id, &json!("refused")),
        "{payload}"
    );
    let text = directive
        .as_str()
        .map_or_else(|| directive.to_string(), str::to_owned);
    assert_eq!(row["directive"], text);
}
