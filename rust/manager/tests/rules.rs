//! RFC 27: faults of a scheduler are logged, and change nothing.

mod common;

use common::{Bench, OWNER, R, body, rejection, topics};
use penstock_flux::flags::STREAMING;
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

fn other_r() -> String {
    R.replace("0-3", "4-7")
}

fn success(id: u64) -> Value {
    json!({"id": id, "type": 0})
}

/// The one line that the last message has logged.
fn logged(bench: &mut Bench) -> String {
    let mut log = bench.manager.take_log();
    assert_eq!(log.len(), 1, "{log:?}");
    log.remove(0)
}

fn scheduler_with(bench: &mut Bench, hello: &Value) -> Vec<Message> {
    let mut out = bench.request_as("sched", OWNER, "job-manager.sched-hello", hello, STREAMING);
    let ready = json!({"mode": "unlimited"});
    out.extend(bench.request_as("sched", OWNER, "job-manager.sched-ready", &ready, 0));
    out
}

#[test]
fn a_success_without_a_committed_r_leaves_the_request_open() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.manager.take_log();
    bench.answer("sched.alloc", &success(id));
    let line = logged(&mut bench);
    assert!(line.ends_with("without committing R: ignored"), "{line}");
    assert_eq!(bench.row(id)["state"], 8);
    // The scheduler may still send a correct response.
    bench.allocate(id);
    assert_eq!(bench.row(id)["state"], 16);
}

#[test]
fn a_success_with_another_r_than_the_committed_one_is_ignored() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.commit_r(id, R);
    bench.manager.take_log();
    let r: Value = serde_json::from_str(&other_r()).unwrap();
    bench.answer("sched.alloc", &json!({"id": id, "type": 0, "R": r}));
    let line = logged(&mut bench);
    assert!(
        line.ends_with("with another R than was committed: ignored"),
        "{line}"
    );
    bench.answer(
        "sched.alloc",
        &json!({"id": id, "type": 0, "R": "nonsense"}),
    );
    assert_eq!(bench.row(id)["state"], 8);
    logged(&mut bench);
    // R with another text and the same value is the same R.
    let mut same: Value = serde_json::from_str(R).unwrap();
    let parts = [("0", "0-3"), ("1", "0,1,2-3")]
        .map(|(rank, cores)| json!({"children": {"core": cores}, "rank": rank}));
    same["execution"]["R_lite"] = json!(parts);
    bench.answer("sched.alloc", &json!({"id": id, "type": 0, "R": same}));
    assert_eq!(bench.row(id)["state"], 16);
}

#[test]
fn a_second_success_and_one_for_an_unknown_job_change_nothing() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.allocate(id);
    let before = bench.events(id);
    bench.manager.take_log();
    for id in [id, 12345] {
        let out = bench.answer("sched.alloc", &success(id));
        assert_eq!(topics(&out), [""; 0]);
        assert!(logged(&mut bench).ends_with("none is due"));
    }
    assert_eq!(bench.events(id), before);
}

#[test]
fn nothing_is_taken_before_ready() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.commit_r(id, R);
    let hello = json!({"partial-ok": true});
    bench.request_as("sched", OWNER, "job-manager.sched-hello", &hello, STREAMING);
    bench.manager.take_log();
    bench.answer("sched.alloc", &success(id));
    assert_eq!(
        logged(&mut bench),
        "alloc response before sched-ready: ignored"
    );
    let (errnum, _) = rejection(&bench.commit_r(id, R));
    assert_eq!(errnum, 71);
    assert_eq!(bench.row(id)["state"], 8);
}

#[test]
fn malformed_responses_are_logged_and_change_nothing() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.commit_r(id, R);
    bench.manager.take_log();
    for payload in [
        json!({"id": id, "type": 4}),
        json!({"id": id, "type": -1}),
        json!({"id": id, "type": "0"}),
        json!({"id": id}),
        json!({"type": 0}),
        json!({"id": "x", "type": 0}),
        json!({"id": id, "type": 0, "annotations": 7}),
        json!({"id": id, "type": 1}),
        json!({"id": id, "type": 2, "note": {}}),
        json!([id, 0]),
    ] {
        bench.answer("sched.alloc", &payload);
        logged(&mut bench);
        assert_eq!(bench.row(id)["state"], 8, "{payload}");
    }
    bench.answer("sched.alloc", &success(id));
    assert_eq!(bench.row(id)["state"], 16);
}

#[test]
fn an_unsolicited_cancel_is_ignored_and_one_with_other_keys_is_logged() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.manager.take_log();
    let out = bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    // Not requested again at once: requests and cancels could alternate forever.
    assert_eq!(topics(&out), [""; 0]);
    assert!(logged(&mut bench).ends_with("it was not requested"));
    let out = bench.request("job-manager.urgency", &json!({"id": id, "urgency": 0}));
    assert_eq!(topics(&out), ["sched.cancel"]);
    let cancel = json!({"id": id, "type": 3, "note": "x", "annotations": {}});
    bench.answer("sched.alloc", &cancel);
    assert!(logged(&mut bench).ends_with("note, annotations"));
    let out = bench.request("job-manager.urgency", &json!({"id": id, "urgency": 16}));
    assert_eq!(topics(&out), ["sched.alloc"]);
}

#[test]
fn annotations_are_kept_by_success_and_discarded_by_whatever_else() {
    let annotate =
        |id: u64| json!({"id": id, "type": 1, "annotations": {"sched": {"a": 1, "b": 2}}});
    let ends = [
        "success",
        "deny",
        "cancel",
        "suspend",
        "exception",
        "late success",
    ];
    for end in ends {
        let mut bench = Bench::new();
        bench.scheduler(None);
        let (id, _) = bench.submit(&json!({}));
        bench.answer("sched.alloc", &annotate(id));
        assert_eq!(bench.row(id)["annotations"]["sched"]["a"], 1);
        match end {
            "success" => {
                bench.commit_r(id, R);
                let kept =
                    json!({"id": id, "type": 0, "annotations": {"sched": {"a": null, "c": 3}}});
                bench.answer("sched.alloc", &kept);
                assert_eq!(
                    bench.row(id)["annotations"],
                    json!({"sched": {"b": 2, "c": 3}})
                );
                // No longer in SCHED.
                bench.answer("sched.alloc", &annotate(id));
                assert_eq!(
                    bench.row(id)["annotations"],
                    json!({"sched": {"b": 2, "c": 3}})
                );
                continue;
            }
            "deny" => drop(bench.answer("sched.alloc", &json!({"id": id, "type": 2}))),
            "cancel" => {
                bench.request("job-manager.urgency", &json!({"id": id, "urgency": 0}));
                bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
            }
            "suspend" => drop(bench.fail("sched.free", 5)),
            "late success" => {
                bench.commit_r(id, R);
                bench.request("job-manager.raise", &json!({"id": id, "type": "x"}));
                let late = json!({"id": id, "type": 0, "annotations": {"sched": {"c": 3}}});
                bench.answer("sched.alloc", &late);
                assert_eq!(bench.row(id)["state"], 64);
            }
            _ => {
                bench.request("job-manager.raise", &json!({"id": id, "type": "x"}));
                bench.answer("sched.alloc", &annotate(id));
            }
        }
        assert_eq!(bench.row(id).get("annotations"), None, "{end}");
    }
}

#[test]
fn an_error_to_alloc_or_free_suspends_until_the_next_hello_and_ready() {
    for topic in ["sched.alloc", "sched.free"] {
        let mut bench = Bench::new();
        bench.scheduler(None);
        let (id, _) = bench.submit(&json!({}));
        bench.manager.take_log();
        bench.fail(topic, 22);
        assert_eq!(
            logged(&mut bench),
            format!("scheduling is suspended: {topic} failed: Invalid argument")
        );
        assert_eq!(topics(&bench.submit(&json!({})).1), [""; 0]);
        bench.answer("sched.alloc", &success(id));
        assert_eq!(bench.row(id)["state"], 8);
        // Ready alone is not enough.
        let ready = json!({"mode": "unlimited"});
        let out = bench.request_as("sched", OWNER, "job-manager.sched-ready", &ready, 0);
        assert_eq!(rejection(&out).0, 71);
        assert_eq!(
            topics(&bench.scheduler(None)),
            ["sched.alloc", "sched.alloc"]
        );
    }
}

#[test]
fn responses_of_others_are_not_the_schedulers() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.commit_r(id, R);
    bench.manager.take_log();
    let request = Message::request("sched.alloc", "");
    for errnum in [0, 38] {
        let payload = Some(Message::json_payload(&success(id).to_string()));
        let mut response = Message::response_to(&request, errnum, payload);
        (response.userid, response.rolemask) = (OWNER, penstock_flux::role::USER);
        bench.manager.handle(&response, 2000.0);
        assert!(logged(&mut bench).starts_with("response of another user"));
    }
    assert_eq!(bench.row(id)["state"], 8);
    assert_eq!(topics(&bench.submit(&json!({})).1), ["sched.alloc"]);
}

#[test]
fn ready_counts_once_and_only_from_whom_has_said_hello() {
    let mut bench = Bench::new();
    bench.submit(&json!({}));
    bench.submit(&json!({}));
    let hello = json!({});
    let ready = json!({"mode": "limited", "limit": 1});
    bench.request_as("a", OWNER, "job-manager.sched-hello", &hello, STREAMING);
    let out = bench.request_as("b", OWNER, "job-manager.sched-ready", &ready, 0);
    assert_eq!(
        rejection(&out),
        (71, "sched-ready without sched-hello".to_owned())
    );
    let out = bench.request_as("a", OWNER, "job-manager.sched-ready", &ready, 0);
    assert_eq!(body(&out[0])["count"], 2);
    let out = bench.request_as("a", OWNER, "job-manager.sched-ready", &ready, 0);
    assert_eq!(rejection(&out).0, 71);
    // Another hello of its own: outstanding requests are sent again.
    let out = bench.request_as("a", OWNER, "job-manager.sched-hello", &hello, STREAMING);
    assert_eq!((out.len(), out[0].errnum()), (1, 61));
    // A scheduler that is not ready yet is replaced.
    let out = bench.request_as("b", OWNER, "job-manager.sched-hello", &hello, STREAMING);
    assert_eq!((out.len(), out[0].errnum()), (1, 61));
    let out = bench.request_as("a", OWNER, "job-manager.sched-ready", &ready, 0);
    assert_eq!(rejection(&out).0, 71);
    let most = json!({"mode": "limited", "limit": 2_147_483_647});
    let out = bench.request_as("b", OWNER, "job-manager.sched-ready", &most, 0);
    assert_eq!(body(&out[0])["count"], 2);
    assert_eq!(topics(&out), ["sched.alloc", "sched.alloc"]);
    let out = bench.request_as(
        "c",
        OWNER,
        "job-manager.sched-hello",
        &json!({"partial-ok": 3}),
        STREAMING,
    );
    assert_eq!(rejection(&out).0, 71);
}

#[test]
fn a_scheduler_at_work_is_not_replaced_by_a_stranger() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.manager.take_log();
    let hello = json!({"partial-ok": true});
    let out = bench.request_as("b", OWNER, "job-manager.sched-hello", &hello, STREAMING);
    assert_eq!((out.len(), rejection(&out).0), (1, 16));
    assert!(logged(&mut bench).contains("sched-hello rejected"));
    let ready = json!({"mode": "unlimited"});
    let out = bench.request_as("b", OWNER, "job-manager.sched-ready", &ready, 0);
    assert_eq!((out.len(), rejection(&out).0), (1, 71));
    bench.allocate(id);
    assert_eq!(bench.row(id)["state"], 16);
    bench.request_as("sched", OWNER, "job-manager.disconnect", &Value::Null, 4);
    let out = bench.request_as("b", OWNER, "job-manager.sched-hello", &hello, STREAMING);
    assert_eq!((out.len(), rejection(&out).0), (2, 0));
}

#[test]
fn a_hello_without_response_is_ignored() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.submit(&json!({}));
    let hello = json!({"partial-ok": true});
    bench.manager.take_log();
    for flags in [4, 4 | STREAMING] {
        let out = bench.request_as("sched", OWNER, "job-manager.sched-hello", &hello, flags);
        assert_eq!(out, []);
        assert!(logged(&mut bench).contains("marked as without response"));
    }
    // The handshake has not changed.
    assert_eq!(topics(&bench.submit(&json!({})).1), ["sched.alloc"]);
}

#[test]
fn a_long_queue_goes_to_the_scheduler_as_it_reads() {
    let mut bench = Bench::new();
    bench.submit_copies(&json!({}), 30_000);
    let count = |out: &[Message]| topics(out).len();
    let mut first = count(&bench.scheduler(None));
    while first == 0 {
        // The responses to its hello are not complete.
        assert!(bench.is_due());
        first = count(&bench.pass(0.0));
    }
    let scheduler = b"sched".to_vec();
    assert!(bench.manager.readers().contains(&scheduler));
    assert!((100..5_000).contains(&first), "{first}");
    assert!(bench.manager.has_more());
    // The scheduler's send buffer is full: no requests are sent, whatever else happens.
    let full: std::collections::BTreeSet<_> = [scheduler].into();
    bench.manager.set_backlogged(full.clone());
    assert!(!bench.manager.has_more());
    assert_eq!(count(&bench.manager.flush().unwrap()), 0);
    assert_eq!(count(&bench.submit(&json!({})).1), 0);
    let stats = bench.request("job-manager.stats-get", &json!({}));
    let sched = &body(&stats[0])["sched"];
    assert_eq!(sched["queued"], 30_001 - first);
    assert_eq!(sched["requested"], first);
    bench.manager.set_backlogged([].into());
    let mut sent = first;
    while bench.manager.has_more() {
        let part = count(&bench.manager.flush().unwrap());
        assert!((1..=first + 10).contains(&part), "{part}");
        sent += part;
    }
    assert_eq!(sent, 30_001);
    // No requests are sent for a short queue either while the scheduler does not read.
    bench.manager.set_backlogged(full);
    assert_eq!(count(&bench.submit(&json!({})).1), 0);
    // In limited mode the limit holds, however long the queue is.
    bench.manager.set_backlogged([].into());
    let limit = u32::try_from(first).unwrap() + 500;
    let out = bench.scheduler(Some(limit));
    let mut rest = bench.advance();
    rest.extend(bench.rest());
    assert_eq!(count(&out) + count(&rest), first + 500);
    assert!(count(&rest) > 0);
}

#[test]
fn rejected_commits_and_many_bad_responses_are_logged() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.manager.take_log();
    bench.commit_r(99, R);
    assert!(logged(&mut bench).starts_with("kvs.commit rejected: no job"));
    bench.commit_r(id, "{}");
    assert!(logged(&mut bench).starts_with("kvs.commit rejected: job"));
    let dirent = json!({"ver": 1, "type": "val", "data": "eA=="});
    let ops = json!([{"key": "a", "flags": 1, "dirent": dirent}]);
    let append = json!({"namespace": "primary", "flags": 0, "ops": ops});
    let out = bench.request_as("sched", OWNER, "kvs.commit", &append, 0);
    let (errnum, text) = rejection(&out);
    assert_eq!(errnum, 22);
    assert!(text.ends_with("expected 0, or 32 to append"), "{text}");
    bench.manager.take_log();
    // Of a flood in one second the log has the first hundred, and how many there were.
    let bad = Some(Message::json_payload(r#"{"id":1,"type":0}"#));
    let mut bad = Message::response_to(&Message::request("sched.alloc", ""), 0, bad);
    bad.rolemask = penstock_flux::role::OWNER;
    for _ in 0..5000 {
        bench.manager.handle(&bad, 3000.5);
    }
    assert_eq!(bench.manager.take_log().len(), 100);
    assert_eq!(bench.manager.deadline(), Some(3001.0));
    bench.manager.advance(3001.0);
    assert_eq!(bench.manager.take_log(), ["... and 4900 more such lines"]);
}

/// A job on two ranks whose second is freed.
fn half_free(bench: &mut Bench) -> u64 {
    bench.executor();
    let (id, _) = bench.submit(&json!({}));
    bench.allocate(id);
    bench.exec(id, "start", &json!({}));
    bench.exec(id, "finish", &json!({"status": 0}));
    bench.exec(id, "release", &json!({"ranks": "1", "final": false}));
    id
}

fn freed(out: &[Message]) -> Vec<(Value, Value)> {
    let frees = out.iter().filter(|message| message.topic() == "sched.free");
    frees
        .map(|message| {
            assert_eq!((message.matchtag, message.is_noresponse()), (0, false));
            let free = body(message);
            let ranks = free["R"]["execution"]["R_lite"][0]["rank"].clone();
            (ranks, free["final"].clone())
        })
        .collect()
}

#[test]
fn a_scheduler_that_takes_no_parts_gets_one_free_a_job() {
    let mut bench = Bench::new();
    scheduler_with(&mut bench, &Value::Null);
    bench.executor();
    let (id, _) = bench.submit(&json!({}));
    bench.allocate(id);
    bench.exec(id, "start", &json!({}));
    bench.exec(id, "finish", &json!({"status": 0}));
    let part = json!({"ranks": "1", "final": false});
    assert_eq!(freed(&bench.exec(id, "release", &part)), []);
    let rest = json!({"ranks": "0", "final": true});
    let out = bench.exec(id, "release", &rest);
    assert_eq!(freed(&out), [(json!("0-1"), json!(true))]);
}

#[test]
fn a_half_free_job_is_announced_as_such_and_only_the_rest_is_freed_again() {
    for hello in [json!({"partial-ok": true}), json!({})] {
        let mut bench = Bench::new();
        scheduler_with(&mut bench, &hello);
        let id = half_free(&mut bench);
        let out = scheduler_with(&mut bench, &hello);
        let announced = body(&out[0]);
        assert_eq!(
            (&announced["id"], &announced["free"]),
            (&json!(id), &json!("1"))
        );
        let out = bench.exec(id, "release", &json!({"ranks": "0", "final": true}));
        assert_eq!(freed(&out), [(json!("0"), json!(true))]);
    }
}

#[test]
fn ranks_freed_between_hello_and_ready_are_announced_after_ready() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let id = half_free(&mut bench);
    let hello = json!({"partial-ok": true});
    let response = bench.request_as("sched", OWNER, "job-manager.sched-hello", &hello, STREAMING);
    assert_eq!(body(&response[0])["id"], json!(id));
    let out = bench.exec(id, "release", &json!({"ranks": "0", "final": true}));
    assert_eq!(freed(&out), []);
    let ready = json!({"mode": "unlimited"});
    let out = bench.request_as("sched", OWNER, "job-manager.sched-ready", &ready, 0);
    assert_eq!(out[0].topic(), "job-manager.sched-ready");
    assert_eq!(freed(&out), [(json!("0"), json!(true))]);
}

#[test]
fn ranks_freed_before_hello_are_not_announced() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let id = half_free(&mut bench);
    let hello = json!({"partial-ok": true});
    bench.request_as("sched", OWNER, "job-manager.sched-hello", &hello, STREAMING);
    bench.exec(id, "release", &json!({"ranks": "0", "final": true}));
    // The hello of another scheduler announces no job.
    assert_eq!(freed(&bench.scheduler(None)), []);
}

#[test]
fn a_job_with_all_ranks_free_is_not_announced() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let id = half_free(&mut bench);
    let out = bench.exec(id, "release", &json!({"ranks": "0", "final": false}));
    assert_eq!(freed(&out), [(json!("0"), json!(true))]);
    assert_eq!(bench.row(id)["state"], 32);
    let out = bench.scheduler(None);
    assert_eq!(out[0].errnum(), 61);
    let out = bench.exec(id, "release", &json!({"ranks": "", "final": true}));
    assert_eq!(freed(&out), []);
    assert_eq!(bench.row(id)["state"], 64);
}

#[test]
fn many_new_priorities_are_one_request_a_slice() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let count = 5_000;
    let (ids, out) = bench.submit_copies(&json!({}), count);
    assert_eq!(topics(&out).len() + topics(&bench.rest()).len(), count);
    let priorities: Vec<(u64, u32)> = ids.iter().copied().zip(1000..).collect();
    // A job that is not pending is reported to the caller alone.
    let mut wanted = priorities.clone();
    wanted.push((12345, 7));
    let mut out = bench.request("job-manager.prioritize", &json!({ "jobs": wanted }));
    out.extend(bench.advance());
    let is_response = |message: &&Message| message.kind == MessageType::Response;
    let response = body(out.iter().find(is_response).unwrap());
    assert_eq!(response["count"], count);
    assert_eq!(response["errors"].as_object().unwrap().len(), 1);
    let requests: Vec<&Message> = out
        .iter()
        .filter(|message| message.kind == MessageType::Request)
        .collect();
    assert!(requests.len() <= count / 100, "{}", requests.len());
    let sent = requests.iter().flat_map(|request| {
        assert_eq!(request.topic(), "sched.prioritize");
        assert!(request.is_noresponse());
        serde_json::from_value::<Vec<(u64, u32)>>(body(request)["jobs"].clone()).unwrap()
    });
    assert_eq!(sent.collect::<Vec<_>>(), priorities);
}

#[test]
fn with_a_limit_a_new_priority_is_a_new_request() {
    let mut bench = Bench::new();
    bench.scheduler(Some(2));
    let (first, _) = bench.submit(&json!({}));
    let (second, _) = bench.submit(&json!({}));
    let out = bench.request("job-manager.urgency", &json!({"id": second, "urgency": 20}));
    assert_eq!(topics(&out), ["sched.prioritize", "sched.cancel"]);
    let out = bench.answer("sched.alloc", &json!({"id": second, "type": 3}));
    let request = out
        .iter()
        .find(|message| message.kind == MessageType::Request)
        .unwrap();
    assert_eq!(
        (&body(request)["id"], &body(request)["priority"]),
        (&json!(second), &json!(20))
    );
    assert_eq!(bench.row(first)["state"], 8);
}

#[test]
fn an_alloc_that_crosses_a_new_priority_is_taken() {
    let mut bench = Bench::new();
    bench.scheduler(Some(2));
    let (id, _) = bench.submit(&json!({}));
    bench.request("job-manager.urgency", &json!({"id": id, "urgency": 20}));
    bench.allocate(id);
    assert_eq!(bench.row(id)["state"], 16);
    // The scheduler ignores the cancel, and the job no longer counts against the limit.
    let (_, out) = bench.submit(&json!({}));
    assert_eq!(topics(&out), ["sched.alloc"]);
    let (_, out) = bench.submit(&json!({}));
    assert_eq!(topics(&out), ["sched.alloc"]);
}

#[test]
fn requests_are_counted_with_and_without_a_limit() {
    for limit in [None, Some(100)] {
        let mut bench = Bench::new();
        bench.scheduler(limit);
        let (ids, _) = bench.submit_copies(&json!({}), 4);
        bench.rest();
        let requested = |bench: &mut Bench| {
            let stats = body(&bench.request("job-manager.stats-get", &json!({}))[0]);
            stats["sched"]["requested"].as_u64().unwrap()
        };
        let cancelled = |id: u64| json!({"id": id, "type": 3});
        assert_eq!(requested(&mut bench), 4);
        bench.request("job-manager.urgency", &json!({"id": ids[0], "urgency": 20}));
        assert_eq!(requested(&mut bench), 4);
        if limit.is_some() {
            // It is requested again at its new position.
            let again = bench.answer("sched.alloc", &cancelled(ids[0]));
            assert_eq!(topics(&again), ["sched.alloc"]);
            assert_eq!(requested(&mut bench), 4);
        }
        bench.request("job-manager.urgency", &json!({"id": ids[1], "urgency": 0}));
        assert_eq!(requested(&mut bench), 4);
        bench.answer("sched.alloc", &cancelled(ids[1]));
        assert_eq!(requested(&mut bench), 3);
        bench.allocate(ids[2]);
        assert_eq!(requested(&mut bench), 2);
        let cancel = json!({"id": ids[3], "type": "cancel", "severity": 0, "note": ""});
        bench.request("job-manager.raise", &cancel);
        assert_eq!(requested(&mut bench), 2);
        bench.answer("sched.alloc", &cancelled(ids[3]));
        assert_eq!(requested(&mut bench), 1);
    }
}

#[test]
fn a_guest_without_permission_gets_no_advice_about_flags() {
    let mut bench = Bench::new();
    for topic in ["job-manager.events-journal", "job-manager.sched-hello"] {
        for flags in [0, STREAMING] {
            let out = bench.request_as("guest", 1001, topic, &json!({}), flags);
            assert_eq!(rejection(&out).0, 1, "{topic}");
        }
        let out = bench.request_as("owner", OWNER, topic, &json!({}), 0);
        assert_eq!(rejection(&out).0, 71, "{topic}");
    }
}
