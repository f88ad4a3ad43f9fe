//! The life of a job, seen from the three protocols at once.

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::{Bench, Directory, OWNER, R, body, rejection, settings, topics};
use penstock_flux::flags::STREAMING;
use penstock_flux::{TypedPayload, kvs};
use penstock_jobspec::job_id::JobId;
use penstock_manager::Settings;
use penstock_rset::ResourceSet;
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

fn nothing() -> Value {
    json!({})
}

#[test]
fn a_job_goes_from_submit_to_clean() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, out) = bench.submit(&nothing());
    assert_eq!(topics(&out), ["sched.alloc"]);
    let request = body(&out[1]);
    assert_eq!(request["id"], id);
    assert_eq!(request["priority"], 16);
    assert_eq!(request["userid"], OWNER);
    assert_eq!(out[1].matchtag, 0);
    let out = bench.allocate(id);
    assert_eq!(topics(&out), ["job-exec.start"]);
    let start = body(&out[0]);
    assert_eq!(start["reattach"], false);
    assert_eq!(start["R"]["execution"]["nodelist"][0], "n[0-1]");
    bench.exec(id, "start", &nothing());
    bench.exec(id, "finish", &json!({"status": 0}));
    let out = bench.exec(id, "release", &json!({"ranks": "all", "final": true}));
    assert_eq!(topics(&out), ["sched.free"]);
    let free = body(&out[0]);
    assert_eq!((&free["id"], &free["final"]), (&json!(id), &json!(true)));
    assert_eq!(free["R"]["execution"]["R_lite"][0]["rank"], "0-1");
    assert_eq!(
        bench.events(id),
        [
            "submit", "validate", "depend", "priority", "alloc", "start", "finish", "release",
            "free", "clean"
        ]
    );
    let row = bench.row(id);
    assert_eq!((&row["state"], &row["result"]), (&json!(64), &json!(1)));
    assert_eq!((&row["ncores"], &row["nnodes"]), (&json!(8), &json!(2)));
    assert_eq!(row["ngpus"], 0);
    assert_eq!(row["returncode"], 0);
}

#[test]
fn the_environment_stays_out_of_the_alloc_request_and_is_in_the_start() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, out) = bench.submit(&json!({"environment": {"SECRET": "x"}}));
    assert!(body(&out[1])["jobspec"]["attributes"]["system"]["environment"].is_null());
    let out = bench.allocate(id);
    let system = &body(&out[0])["jobspec"]["attributes"]["system"];
    assert_eq!(system["environment"]["SECRET"], "x");
}

#[test]
fn ranks_are_freed_in_parts_as_they_are_released() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, _) = bench.submit(&nothing());
    bench.allocate(id);
    bench.exec(id, "start", &nothing());
    bench.exec(id, "finish", &json!({"status": 0}));
    let out = bench.exec(id, "release", &json!({"ranks": "1", "final": false}));
    let free = body(&out[0]);
    assert_eq!(free["final"], false);
    assert_eq!(free["R"]["execution"]["R_lite"][0]["rank"], "1");
    let hello = bench.scheduler(None);
    assert_eq!(body(&hello[0])["free"], "1");
    let out = bench.exec(id, "release", &json!({"ranks": "0", "final": true}));
    let free = body(&out[0]);
    assert_eq!(free["final"], true);
    assert_eq!(free["R"]["execution"]["R_lite"][0]["rank"], "0");
    assert_eq!(bench.row(id)["state"], 64);
}

#[test]
fn a_denied_job_fails_with_the_note_and_without_annotations() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&nothing());
    let annotate = json!({"id": id, "type": 1, "annotations": {"sched": {"reason_pending": "x"}}});
    bench.answer("sched.alloc", &annotate);
    assert_eq!(bench.row(id)["annotations"]["sched"]["reason_pending"], "x");
    let out = bench.answer(
        "sched.alloc",
        &json!({"id": id, "type": 2, "note": "too big"}),
    );
    assert_eq!(topics(&out), ["job-exception"]);
    let row = bench.row(id);
    assert_eq!(row["exception_type"], "alloc");
    assert_eq!(row["exception_note"], "too big");
    assert_eq!((&row["result"], row.get("annotations")), (&json!(2), None));
    assert!(
        bench
            .events(id)
            .ends_with(&["exception".to_owned(), "clean".to_owned()])
    );
}

#[test]
fn a_cancelled_pending_job_first_cancels_its_request() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&nothing());
    let cancel = json!({"id": id, "type": "cancel", "severity": 0, "note": "enough"});
    let out = bench.request("job-manager.raise", &cancel);
    assert_eq!(topics(&out), ["job-exception", "sched.cancel"]);
    assert!(
        out.iter()
            .any(|message| message.topic() == "sched.cancel" && message.is_noresponse())
    );
    assert_eq!(bench.row(id)["state"], 32);
    bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    let row = bench.row(id);
    assert_eq!((&row["state"], &row["result"]), (&json!(64), &json!(4)));
    let (errnum, text) = rejection(&bench.request("job-manager.raise", &cancel));
    assert_eq!(errnum, 2);
    assert!(text.ends_with("is inactive"), "{text}");
}

#[test]
fn an_allocation_that_crosses_a_cancel_is_freed() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&nothing());
    bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    let out = bench.allocate(id);
    assert_eq!(topics(&out), ["sched.free"]);
    assert_eq!(bench.row(id)["result"], 4);
    let events = bench.events(id);
    let end = events.split_last_chunk::<3>().map(|(_, end)| end).unwrap();
    assert_eq!(end, &["priority", "exception", "clean"]);
}

#[test]
fn cancelling_a_running_job_waits_for_the_release() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, _) = bench.submit(&nothing());
    bench.allocate(id);
    bench.exec(id, "start", &nothing());
    let out = bench.request(
        "job-manager.raise",
        &json!({"ids": [id, 7], "type": "cancel"}),
    );
    let answer = out
        .iter()
        .find(|message| message.kind == MessageType::Response)
        .unwrap();
    assert_eq!(body(answer)["count"], 1);
    assert_eq!(body(answer)["errors"].as_object().unwrap().len(), 1);
    assert_eq!(bench.row(id)["state"], 32);
    bench.exec(id, "finish", &json!({"status": 15}));
    bench.exec(id, "release", &json!({"ranks": "all", "final": true}));
    let row = bench.row(id);
    assert_eq!(
        (&row["result"], &row["returncode"]),
        (&json!(4), &json!(143))
    );
}

#[test]
fn a_lost_scheduler_leaves_running_jobs_and_hello_announces_them_to_the_next() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (running, _) = bench.submit(&nothing());
    let (waiting, _) = bench.submit(&nothing());
    bench.allocate(running);
    bench.exec(running, "start", &nothing());
    bench.request_as("sched", OWNER, "job-manager.disconnect", &Value::Null, 4);
    let (late, out) = bench.submit(&nothing());
    assert_eq!(topics(&out), Vec::<&str>::new());
    // Without a scheduler its responses are not accepted.
    bench.answer(
        "sched.alloc",
        &json!({"id": waiting, "type": 2, "note": "forged"}),
    );
    assert_eq!(bench.row(waiting)["state"], 8);
    let out = bench.scheduler(None);
    assert_eq!(body(&out[0])["id"], running);
    assert_eq!(out[1].errnum(), 61);
    assert_eq!(body(&out[2])["count"], 2);
    let requested: Vec<_> = out[3..]
        .iter()
        .map(|message| body(message)["id"].clone())
        .collect();
    assert_eq!(requested, [json!(waiting), json!(late)]);
}

#[test]
fn the_handshake_is_checked() {
    let mut bench = Bench::new();
    let ready = json!({"mode": "unlimited"});
    let out = bench.request_as("sched", OWNER, "job-manager.sched-ready", &ready, 0);
    assert_eq!(
        rejection(&out),
        (71, "sched-ready without sched-hello".to_owned())
    );
    let out = bench.request_as("sched", OWNER, "job-manager.sched-hello", &Value::Null, 0);
    assert_eq!(rejection(&out).0, 71);
    let out = bench.request_as("x", 7, "job-manager.sched-hello", &Value::Null, STREAMING);
    assert_eq!(rejection(&out).0, 1);
}

#[test]
fn limited_mode_keeps_to_its_limit_and_recalls_for_a_more_urgent_job() {
    let mut bench = Bench::new();
    bench.scheduler(Some(2));
    let ids: Vec<u64> = (0..3).map(|_| bench.submit(&nothing()).0).collect();
    let stats = body(&bench.request("job-manager.stats-get", &Value::Null)[0]);
    assert_eq!(stats["sched"]["requested"], 2);
    let out = bench.request("job-manager.urgency", &json!({"id": ids[2], "urgency": 20}));
    assert_eq!(topics(&out), ["sched.cancel"]);
    let recalled = out
        .iter()
        .find(|message| message.topic() == "sched.cancel")
        .unwrap();
    assert_eq!(body(recalled)["id"], ids[1]);
    let out = bench.answer("sched.alloc", &json!({"id": ids[1], "type": 3}));
    assert_eq!(body(&out[0])["id"], ids[2]);
    assert_eq!(bench.row(ids[1])["state"], 8);
    let out = bench.answer(
        "sched.alloc",
        &json!({"id": ids[0], "type": 2, "note": "no"}),
    );
    let again = out
        .iter()
        .find(|message| message.topic() == "sched.alloc")
        .unwrap();
    assert_eq!(body(again)["id"], ids[1]);
}

#[test]
fn no_resources_are_requested_for_a_held_job_until_it_is_released() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let held = json!({"jobspec": common::jobspec(&nothing()), "urgency": 0});
    let out = bench.request("job-ingest.submit", &held);
    assert_eq!(topics(&out), Vec::<&str>::new());
    let id = body(&out[0])["id"].as_u64().unwrap();
    let out = bench.request("job-manager.urgency", &json!({"id": id, "urgency": 31}));
    let request = out
        .iter()
        .find(|message| message.topic() == "sched.alloc")
        .unwrap();
    assert_eq!(body(request)["priority"], u32::MAX);
    let out = bench.request("job-manager.urgency", &json!({"id": id, "urgency": 8}));
    assert_eq!(topics(&out), ["sched.prioritize"]);
    let out = bench.request("job-manager.urgency", &json!({"id": id, "urgency": 0}));
    assert_eq!(topics(&out), ["sched.cancel"]);
    let out = bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    assert_eq!(topics(&out), Vec::<&str>::new());
    assert_eq!(bench.row(id)["state"], 8);
}

#[test]
fn r_can_be_committed_only_for_a_job_that_asked_and_only_if_it_is_one() {
    let mut bench = Bench::new();
    let (id, _) = bench.submit(&nothing());
    let (errnum, text) = rejection(&bench.commit_r(id, R));
    assert_eq!(errnum, 71);
    assert!(
        text.ends_with("has no outstanding request for resources"),
        "{text}"
    );
    bench.scheduler(None);
    assert_eq!(rejection(&bench.commit_r(id, "{}")).0, 22);
    assert_eq!(rejection(&bench.commit_r(99, R)).0, 2);
    assert_eq!(bench.commit_r(id, R)[0].errnum(), 0);
}

#[test]
fn the_execution_service_can_be_replaced_while_a_job_runs() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, _) = bench.submit(&nothing());
    bench.allocate(id);
    bench.exec(id, "start", &nothing());
    bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4);
    bench.exec(id, "finish", &json!({"status": 9}));
    assert_eq!(bench.row(id)["state"], 16);
    let out = bench.executor();
    let start = out
        .iter()
        .find(|message| message.topic() == "job-exec.start")
        .unwrap();
    assert_eq!(body(start)["reattach"], true);
    bench.exec(id, "reattached", &nothing());
    bench.exec(id, "finish", &json!({"status": 0}));
    bench.exec(id, "release", &json!({"ranks": "all", "final": true}));
    assert_eq!(bench.row(id)["result"], 1);
}

#[test]
fn dependencies_hold_a_job_back_and_let_it_go_or_fail_it() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (first, _) = bench.submit(&nothing());
    let on =
        |scheme: &str| json!({"dependencies": [{"scheme": scheme, "value": first.to_string()}]});
    let (after, _) = bench.submit(&on("after"));
    let (any, _) = bench.submit(&on("afterany"));
    let (ok, _) = bench.submit(&on("afterok"));
    let (notok, _) = bench.submit(&on("afternotok"));
    for id in [after, any, ok, notok] {
        assert_eq!(bench.row(id)["state"], 2);
    }
    bench.allocate(first);
    bench.advance();
    assert_eq!(bench.row(after)["state"], 8);
    assert_eq!(bench.row(any)["state"], 2);
    bench.exec(first, "start", &nothing());
    bench.exec(first, "finish", &json!({"status": 256}));
    bench.exec(first, "release", &json!({"ranks": "all", "final": true}));
    bench.advance();
    assert_eq!(bench.row(any)["state"], 8);
    assert_eq!(bench.row(notok)["state"], 8);
    let row = bench.row(ok);
    assert_eq!(
        (&row["state"], &row["exception_type"]),
        (&json!(64), &json!("dependency"))
    );
    // One on an ended job is tested in the next slice.
    let (late, _) = bench.submit(&on("afterok"));
    bench.advance();
    assert_eq!(bench.row(late)["result"], 2);
    let unknown = json!({"dependencies": [{"scheme": "afterok", "value": "99"}]});
    let request = json!({"jobspec": common::jobspec(&unknown)});
    let (errnum, text) = rejection(&bench.request("job-ingest.submit", &request));
    assert_eq!(errnum, 22);
    assert_eq!(text, "dependency `afterok:99`: no job ƒ2i");
}

#[test]
fn a_job_is_pending_until_its_begin_time() {
    let mut bench = Bench::new();
    let at = json!({"dependencies": [{"scheme": "begin-time", "value": "5000"}]});
    let (id, _) = bench.submit(&at);
    assert_eq!(bench.manager.deadline(), Some(5000.0));
    bench.manager.advance(4999.0);
    assert_eq!(bench.row(id)["state"], 2);
    bench.manager.advance(5000.0);
    bench.manager.flush().unwrap();
    assert_eq!(bench.row(id)["state"], 8);
    assert_eq!(bench.manager.deadline(), None);
}

#[test]
fn independent_submissions_are_checked_each_for_itself() {
    let mut bench = Bench::new();
    let good = common::jobspec(&nothing());
    let bulk = json!({"independent": true, "jobs": [
        {"jobspec": good, "count": 3},
        {"jobspec": {"version": 2}},
        {"jobspec": good, "urgency": 32},
        {"jobspec": good},
    ]});
    let results = body(&bench.request("job-ingest.submit", &bulk)[0]);
    let results = results["results"].as_array().unwrap();
    assert_eq!(results[0]["ids"].as_array().unwrap().len(), 3);
    assert!(results[1]["error"].is_string());
    assert_eq!(
        results[2]["error"],
        "urgency 32 is out of range: expected 0 to 31"
    );
    assert_eq!(results[3]["ids"].as_array().unwrap().len(), 1);
    let request = json!({ "jobspec": good });
    let out = bench.request_as("guest", 7, "job-ingest.submit", &request, 0);
    assert_eq!(rejection(&out).0, 1);
    let out = bench.request("job-ingest.submit", &json!({"jobspec": good, "count": 0}));
    assert_eq!(rejection(&out).0, 22);
    assert_eq!(
        rejection(&bench.request("job-ingest.submit", &json!({}))).0,
        71
    );
    assert_eq!(
        rejection(&bench.request("job-manager.nosuch", &json!({}))).0,
        38
    );
}

#[test]
fn queues_limits_and_defaults_shape_a_submission() {
    let settings = json!({
        "owner": OWNER,
        "queues": {"batch": {"requires": ["big"], "limits": {"max_nnodes": 4}},
                   "debug": {"default_duration": 60.0}},
        "limits": {"duration": 3600.0},
        "default_duration": 600.0,
        "default_queue": "batch",
    });
    let settings = Settings::from_json(&settings.to_string()).unwrap();
    let mut bench = Bench::with(settings);
    bench.scheduler(None);
    let (id, out) = bench.submit(&nothing());
    let row = bench.row(id);
    assert_eq!(
        (&row["queue"], &row["duration"]),
        (&json!("batch"), &json!(600.0))
    );
    let system = &body(&out[1])["jobspec"]["attributes"]["system"];
    assert_eq!(system["constraints"], json!({"properties": ["big"]}));
    let (id, _) = bench.submit(&json!({"queue": "debug"}));
    assert_eq!(bench.row(id)["duration"], 60.0);
    let (_, out) = bench.submit(&json!({"constraints": {"properties": ["gpu"]}}));
    let system = &body(&out[1])["jobspec"]["attributes"]["system"];
    assert_eq!(
        system["constraints"],
        json!({"and": [{"properties": ["gpu"]}, {"properties": ["big"]}]})
    );
    for (system, text) in [
        (
            json!({"queue": "nope"}),
            "unknown queue `nope`: expected batch, debug",
        ),
        (
            json!({"duration": 7200}),
            "a time limit of 7200 s exceeds the policy's 3600 s",
        ),
    ] {
        let request = json!({"jobspec": common::jobspec(&system)});
        assert_eq!(
            rejection(&bench.request("job-ingest.submit", &request)),
            (22, text.to_owned())
        );
    }
}

#[test]
fn streams_follow_a_job_to_its_end() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&nothing());
    let out = bench.stream(
        "job-info.eventlog-watch",
        &json!({"id": id, "path": "eventlog"}),
    );
    assert_eq!(out.len(), 4);
    let wait = bench.stream("job-list.wait", &json!({"ids": [id]}));
    assert!(wait.is_empty());
    let out = bench.answer("sched.alloc", &json!({"id": id, "type": 2, "note": "no"}));
    let responses = out
        .iter()
        .filter(|message| message.kind == MessageType::Response);
    let ends = responses
        .map(|message| (message.topic(), message.errnum()))
        .collect::<Vec<_>>();
    assert_eq!(
        ends,
        [
            ("job-info.eventlog-watch", 0),
            ("job-info.eventlog-watch", 0),
            ("job-info.eventlog-watch", 61),
            ("job-list.wait", 0),
            ("job-list.wait", 61),
        ]
    );
    let wait = bench.stream("job-list.wait", &json!({"ids": [id]}));
    assert_eq!((wait.len(), wait[1].errnum()), (2, 61));
    assert_eq!(
        rejection(&bench.stream("job-list.wait", &json!({"ids": [1]}))).0,
        2
    );
    let rows = bench.stream(
        "job-list.list",
        &json!({"constraint": {"results": ["failed"]}}),
    );
    assert_eq!(body(&rows[0])["jobs"][0]["id"], id);
    let rows = bench.stream(
        "job-list.list",
        &json!({"constraint": {"states": ["active"]}}),
    );
    assert_eq!((rows.len(), rows[0].errnum()), (1, 61));
    let out = bench.stream("job-list.list", &json!({"constraint": {"nosuch": []}}));
    assert_eq!(
        rejection(&out),
        (22, "job constraint: unknown operator `nosuch`".to_owned())
    );
    // Short texts for many ranges.
    let hosts = json!({"hostlist": ["a[1-40000]b[1-2]"]});
    let out = bench.stream(
        "job-list.list",
        &json!({"constraint": {"or": [hosts, hosts]}}),
    );
    let text = "job constraint: expected at most 65536 ranges of hosts";
    assert_eq!(rejection(&out), (22, text.to_owned()));
    // Very many operators, or values of one.
    for (constraint, most) in [
        (
            json!({"or": vec![json!({"name": ["x"]}); 1000]}),
            "1000 operators",
        ),
        (json!({"name": vec!["x"; (1 << 16) + 1]}), "65536 values"),
    ] {
        let out = bench.stream("job-list.list", &json!({"constraint": constraint}));
        let text = format!("job constraint: expected at most {most}");
        assert_eq!(rejection(&out), (22, text));
    }
}

#[test]
fn a_long_constraint_is_rejected_with_a_short_text() {
    let mut bench = Bench::new();
    let list = |constraint: &Value| json!({"constraint": constraint});
    let long = "x".repeat(100_000);
    for constraint in [json!({&long: []}), json!({"states": [long]}), json!([long])] {
        let (errnum, text) = rejection(&bench.stream("job-list.list", &list(&constraint)));
        assert_eq!((errnum, text.len(), text.ends_with('…')), (22, 1000, true));
    }
    let long = json!({"userid": vec![1; 1 << 20]});
    assert_eq!(
        rejection(&bench.stream("job-list.list", &list(&long))),
        (
            71,
            "job-list.list: `constraint`: expected at most 1048576 bytes of JSON".to_owned()
        )
    );
}

#[test]
fn a_stream_ends_when_it_is_cancelled_and_with_its_peer() {
    let mut bench = Bench::new();
    let (id, _) = bench.submit(&nothing());
    bench.stream("job-info.eventlog-watch", &json!({"id": id}));
    let tag = 2;
    let out = bench.request("job-info.eventlog-watch-cancel", &json!({"matchtag": tag}));
    assert_eq!((out[0].matchtag, out[0].errnum()), (tag, 61));
    bench.stream("job-list.wait", &json!({"ids": [id]}));
    bench.request_as("client", OWNER, "job-list.disconnect", &Value::Null, 4);
    let out = bench.request_as(
        "other",
        OWNER,
        "job-manager.raise",
        &json!({"id": id, "type": "cancel"}),
        0,
    );
    assert!(out.iter().all(|message| message.topic() != "job-list.wait"));
}

#[test]
fn another_users_job_is_neither_shown_nor_touched() {
    let mut bench = Bench::new();
    let (id, _) = bench.submit(&nothing());
    for (topic, payload) in [
        ("job-info.lookup", json!({"id": id, "keys": ["jobspec"]})),
        ("job-manager.raise", json!({"id": id, "type": "cancel"})),
        ("job-manager.urgency", json!({"id": id, "urgency": 1})),
        ("kvs.commit", json!({"ops": []})),
        ("kvs.lookup", json!({"key": "x"})),
    ] {
        let out = bench.request_as("guest", 7, topic, &payload, 0);
        assert_eq!(rejection(&out).0, 1, "{topic}");
    }
}

#[test]
fn the_store_serves_job_data_and_plain_keys() {
    let mut bench = Bench::new();
    let (id, _) = bench.submit(&nothing());
    let value = json!({"ver": 1, "type": "val", "data": "e30="});
    let set = json!({"ops": [{"key": "a.b", "dirent": value}, {"key": "a.c", "dirent": value}]});
    assert_eq!(bench.request("kvs.commit", &set)[0].errnum(), 0);
    let got = body(&bench.request("kvs.lookup", &json!({"key": "a.b"}))[0]);
    assert_eq!(got["val"]["data"], "e30=");
    bench.request(
        "kvs.commit",
        &json!({"ops": [{"key": "a", "dirent": null}]}),
    );
    assert_eq!(
        rejection(&bench.request("kvs.lookup", &json!({"key": "a.c"}))).0,
        2
    );
    let hex = format!("{id:016x}");
    let dothex: Vec<&str> = (0..4).map(|word| &hex[4 * word..4 * word + 4]).collect();
    let key = format!("job.{}.eventlog", dothex.join("."));
    assert_eq!(
        bench.request("kvs.lookup", &json!({ "key": key }))[0].errnum(),
        0
    );
    // One invalid operation rejects the whole commit.
    let bad = json!({"ops": [{"key": "z", "dirent": value}, {"key": key, "dirent": value}]});
    assert_eq!(rejection(&bench.request("kvs.commit", &bad)).0, 22);
    assert_eq!(
        rejection(&bench.request("kvs.lookup", &json!({"key": "z"}))).0,
        2
    );
}

#[test]
fn a_lookup_of_r_has_the_value_and_the_committed_text() {
    // Not the text that would be made of R.
    const TEXT: &str = r#"{"execution":{"starttime":0.0,"expiration":0.0,"nodelist":["n0"],"R_lite":[{"rank":"0","children":{"core":"0"}}]},"version":1}"#;
    let directory = Directory::new("lookup");
    let mut bench = directory.open(settings(), 1000.0);
    bench.scheduler(None);
    let (id, _) = bench.submit(&nothing());
    let key = kvs::r_key(JobId::new(id));
    let lookup = |bench: &mut Bench| bench.request("kvs.lookup", &json!({ "key": key }));
    assert_eq!(rejection(&lookup(&mut bench)).0, 2);
    bench.commit_r(id, TEXT);
    bench.answer("sched.alloc", &json!({"id": id, "type": 0}));
    for is_restarted in [false, true] {
        if is_restarted {
            drop(bench);
            bench = directory.open(settings(), 1001.0);
        }
        let out = lookup(&mut bench);
        let Some(TypedPayload::StoredR(stored)) = out[0].typed() else {
            panic!("expected a value: {out:?}");
        };
        assert_eq!(*stored.r, ResourceSet::from_json(TEXT).unwrap());
        let data = body(&out[0])["val"]["data"].as_str().unwrap().to_owned();
        assert_eq!(BASE64.decode(data).unwrap(), TEXT.as_bytes());
    }
}

#[test]
fn a_restart_restores_every_job() {
    let (directory, open) = common::stored_manager("life");
    let mut bench = Bench::new();
    bench.manager = open(1000.0);
    bench.scheduler(None);
    bench.executor();
    let (running, _) = bench.submit(&nothing());
    let (pending, _) = bench.submit(&nothing());
    let (over, _) = bench.submit(&nothing());
    let on = json!({"dependencies": [{"scheme": "afterok", "value": running.to_string()}]});
    let (dependent, _) = bench.submit(&on);
    bench.allocate(running);
    bench.exec(running, "start", &nothing());
    bench.answer("sched.alloc", &json!({"id": over, "type": 2, "note": "no"}));
    let before = bench.row(over);
    drop(std::mem::replace(
        &mut bench.manager,
        common::empty_manager(),
    ));
    bench.manager = open(2000.0);
    assert_eq!(bench.row(over), before);
    assert_eq!(bench.row(running)["state"], 16);
    assert_eq!(bench.row(dependent)["state"], 2);
    let (new, _) = bench.submit(&nothing());
    assert!(new > dependent);
    let out = bench.scheduler(None);
    assert_eq!(body(&out[0])["id"], running);
    let requested: Vec<Value> = out
        .iter()
        .filter(|message| message.topic() == "sched.alloc")
        .map(|message| body(message)["id"].clone())
        .collect();
    assert_eq!(requested, [json!(pending), json!(new)]);
    let out = bench.executor();
    let start = out
        .iter()
        .find(|message| message.topic() == "job-exec.start")
        .unwrap();
    assert_eq!(body(start)["reattach"], true);
    bench.exec(running, "finish", &json!({"status": 0}));
    bench.exec(running, "release", &json!({"ranks": "all", "final": true}));
    bench.advance();
    assert_eq!(bench.row(dependent)["state"], 8);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn messages_that_are_not_due_or_malformed_change_nothing() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, _) = bench.submit(&nothing());
    bench.exec(id, "finish", &json!({"status": 0}));
    bench.answer("sched.alloc", &json!({"id": 12345, "type": 0}));
    bench.answer("sched.alloc", &json!({"id": id, "type": 9}));
    bench.answer("sched.alloc", &json!({"nonsense": true}));
    let stray = Message::request("sched.alloc", "{}");
    let mut garbled = Message::response_to(&stray, 0, Some(b"{\"id\":".to_vec()));
    bench.manager.handle(&garbled, 0.0);
    garbled.rolemask = penstock_flux::role::OWNER;
    bench.manager.handle(&garbled, 0.0);
    assert_eq!(bench.row(id)["state"], 8);
    bench.allocate(id);
    bench.answer("sched.alloc", &json!({"id": id, "type": 0}));
    bench.exec(id, "release", &json!({"ranks": "x", "final": true}));
    bench.exec(id, "dance", &nothing());
    assert_eq!(bench.row(id)["state"], 16);
    assert_eq!(bench.manager.take_log().len(), 9);
}

#[test]
fn once_scheduling_is_stopped_what_is_pending_stays_pending() {
    let mut bench = Bench::new();
    bench.scheduler(Some(1));
    bench.executor();
    let (requested, out) = bench.submit(&nothing());
    assert_eq!(topics(&out), ["sched.alloc"]);
    let (queued, _) = bench.submit(&nothing());
    bench.manager.stop_scheduling();
    // The response to the earlier request comes, and is ignored.
    let out = bench.allocate(requested);
    assert_eq!(topics(&out), [""; 0]);
    // A scheduler that says hello now receives no requests either.
    assert!(!topics(&bench.scheduler(None)).contains(&"sched.alloc"));
    for id in [requested, queued] {
        assert_eq!(
            bench.events(id),
            ["submit", "validate", "depend", "priority"]
        );
    }
}
