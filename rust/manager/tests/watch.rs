//! Abandoned requests: `wait`, `drain` and `idle`.

mod common;

use common::{Bench, OWNER, body, rejection, settings};
use penstock_flux::errno::ECANCELED;
use penstock_flux::flags::STREAMING;
use penstock_manager::{Queue, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

/// Sends as `from` and returns the matchtag that went with it.
fn send(bench: &mut Bench, from: &str, topic: &str, payload: &Value, flags: u8) -> u32 {
    let out = bench.request_as(from, OWNER, topic, payload, flags);
    assert!(out.is_empty(), "{topic} waits");
    bench.tag()
}

fn named<'a>(out: &'a [Message], topic: &str) -> Vec<&'a Message> {
    out.iter()
        .filter(|message| message.topic() == topic)
        .collect()
}

fn outstanding(bench: &mut Bench) -> Value {
    let out = bench.request("job-manager.stats-get", &Value::Null);
    body(&out[0])["outstanding"].clone()
}

#[test]
fn a_wait_that_is_cancelled_leaves_nothing_behind() {
    let mut bench = Bench::new();
    let ids: Vec<u64> = (0..3).map(|_| bench.submit(&json!({})).0).collect();
    let none = json!({"followers": 0, "waits": 0, "awaited": 0, "drains": 0});
    assert_eq!(outstanding(&mut bench), none);
    let wait = json!({ "ids": ids });
    let first = send(&mut bench, "a", "job-list.wait", &wait, STREAMING);
    send(&mut bench, "b", "job-list.wait", &wait, STREAMING);
    assert_eq!(outstanding(&mut bench)["awaited"], 6);
    let cancel = json!({ "matchtag": first });
    let out = bench.request_as("a", OWNER, "job-list.wait-cancel", &cancel, 0);
    assert_eq!((out[0].matchtag, out[0].errnum()), (first, 61));
    assert_eq!(outstanding(&mut bench)["awaited"], 3);
    bench.request_as("b", OWNER, "job-list.disconnect", &Value::Null, 4);
    assert_eq!(outstanding(&mut bench), none);
    // The stream of an eventlog ends in the same ways.
    let watch = json!({"id": ids[0]});
    bench.request_as("a", OWNER, "job-info.eventlog-watch", &watch, STREAMING);
    let cancel = json!({"matchtag": bench.tag()});
    bench.request_as("a", OWNER, "job-info.eventlog-watch-cancel", &cancel, 0);
    assert_eq!(outstanding(&mut bench), none);
}

#[test]
fn a_wait_for_many_jobs_is_begun_and_removed_in_slices() {
    let mut bench = Bench::new();
    let (ids, _) = bench.submit_copies(&json!({}), 12_000);
    let wait = json!({ "ids": ids });
    let first = send(&mut bench, "a", "job-list.wait", &wait, STREAMING);
    // Another client's wait ends while the first one is begun: jobs end before they are examined, and afterwards.
    let few = json!({"ids": [ids[11_998], ids[11_999]]});
    let second = send(&mut bench, "b", "job-list.wait", &few, STREAMING);
    assert!(outstanding(&mut bench)["awaited"].as_u64().unwrap() < 12_000);
    let cancel =
        json!({"ids": [ids[0], ids[11_998], ids[11_999]], "type": "cancel", "severity": 0});
    let mut out = bench.request("job-manager.raise", &cancel);
    out.extend(bench.rest());
    let rows = |tag: u32| -> Vec<u64> {
        let of = named(&out, "job-list.wait").into_iter();
        let of = of.filter(|message| message.matchtag == tag && message.errnum() == 0);
        let ids = of.flat_map(|message| body(message)["jobs"].as_array().unwrap().clone());
        let mut ids: Vec<u64> = ids.map(|job| job["id"].as_u64().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(rows(first), [ids[0], ids[11_998], ids[11_999]]);
    assert_eq!(rows(second), [ids[11_998], ids[11_999]]);
    assert_eq!(outstanding(&mut bench)["awaited"], 11_997);
    bench.request_as("a", OWNER, "job-list.disconnect", &Value::Null, 4);
    assert!(outstanding(&mut bench)["awaited"].as_u64().unwrap() > 0);
    bench.rest();
    let none = json!({"followers": 0, "waits": 0, "awaited": 0, "drains": 0});
    assert_eq!(outstanding(&mut bench), none);
}

#[test]
fn jobs_that_end_together_share_a_response_which_comes_before_that_of_a_drain() {
    let mut bench = Bench::new();
    let ids: Vec<u64> = (0..4).map(|_| bench.submit(&json!({})).0).collect();
    let three = json!({ "ids": ids[..3] });
    let one = json!({ "ids": [ids[1], ids[3]] });
    let tags = [three, one].map(|wait| send(&mut bench, "a", "job-list.wait", &wait, STREAMING));
    send(&mut bench, "a", "job-manager.drain", &Value::Null, 0);
    let ended = |out: &[Message], tag: u32| -> Vec<Vec<Value>> {
        let rows = named(out, "job-list.wait").into_iter();
        let rows = rows.filter(|message| message.matchtag == tag && message.errnum() == 0);
        let ids = |message: &Message| {
            let body = body(message);
            let jobs = body["jobs"].as_array().unwrap().iter();
            jobs.map(|job| job["id"].clone()).collect()
        };
        rows.map(ids).collect()
    };
    let cancel = |ids: &[u64]| json!({"ids": ids, "type": "cancel", "severity": 0});
    let out = bench.request("job-manager.raise", &cancel(&ids[..2]));
    assert_eq!(ended(&out, tags[0]), [ids[..2].to_vec()]);
    assert_eq!(ended(&out, tags[1]), [[ids[1]]]);
    assert!(named(&out, "job-manager.drain").is_empty());
    let out = bench.request("job-manager.raise", &cancel(&ids[2..]));
    assert_eq!(ended(&out, tags[0]), [[ids[2]]]);
    assert_eq!(ended(&out, tags[1]), [[ids[3]]]);
    let place = |topic: &str| out.iter().rposition(|message| message.topic() == topic);
    assert!(place("job-list.wait") < place("job-manager.drain"));
    assert_eq!(outstanding(&mut bench)["waits"], 0);
}

#[test]
fn a_wait_reports_each_job_and_its_end() {
    let mut bench = Bench::new();
    let ids: Vec<u64> = (0..2).map(|_| bench.submit(&json!({})).0).collect();
    let both = send(
        &mut bench,
        "a",
        "job-list.wait",
        &json!({ "ids": ids }),
        STREAMING,
    );
    let one = send(
        &mut bench,
        "a",
        "job-list.wait",
        &json!({"ids": [ids[1]]}),
        STREAMING,
    );
    let mut responses = Vec::new();
    for id in &ids {
        let out = bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
        let rows = named(&out, "job-list.wait");
        responses.extend(
            rows.iter()
                .map(|message| (message.matchtag, message.errnum())),
        );
    }
    assert_eq!(
        responses,
        [(both, 0), (both, 0), (both, 61), (one, 0), (one, 61)]
    );
    assert_eq!(outstanding(&mut bench)["awaited"], 0);
}

#[test]
fn a_drain_or_idle_that_is_cancelled_ends_and_leaves_the_others() {
    let mut bench = Bench::with(Settings {
        queues: [("batch".to_owned(), Queue::default())]
            .into_iter()
            .collect(),
        ..settings()
    });
    bench.scheduler(None);
    bench.executor();
    let id = bench.running(&json!({"queue": "batch"}));
    for method in ["drain", "idle"] {
        let topic = format!("job-manager.{method}");
        let cancel = format!("{topic}-cancel");
        let all = json!({});
        let first = send(&mut bench, "a", &topic, &all, 0);
        let second = send(&mut bench, "a", &topic, &json!({"name": "batch"}), 0);
        send(&mut bench, "b", &topic, &all, 0);
        // Another client's call is out of reach, and an ended or unknown one is no error.
        for (from, tag) in [("b", first), ("a", 9999)] {
            let out = bench.request_as(from, OWNER, &cancel, &json!({"matchtag": tag}), 0);
            assert_eq!(
                (out.len(), out[0].topic(), out[0].errnum()),
                (1, cancel.as_str(), 0)
            );
        }
        for tag in [first, second] {
            let out = bench.request_as("a", OWNER, &cancel, &json!({"matchtag": tag}), 0);
            assert_eq!((out[0].topic(), out[0].matchtag), (topic.as_str(), tag));
            assert_eq!(rejection(&out), (ECANCELED, "cancelled".to_owned()));
            assert_eq!((out.len(), out[1].errnum()), (2, 0));
        }
    }
    assert_eq!(outstanding(&mut bench)["drains"], 2);
    let out = bench.end(id, 0);
    assert_eq!(named(&out, "job-manager.drain").len(), 1);
    assert_eq!(named(&out, "job-manager.idle").len(), 1);
    assert_eq!(outstanding(&mut bench)["drains"], 0);
}
