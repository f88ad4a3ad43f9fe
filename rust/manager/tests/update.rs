//! Changes of a job after its submission: duration, memo, urgency and priority.

mod common;

use common::{Bench, Directory, OWNER, body, rejection, settings, topics};
use penstock_flux::flags::STREAMING;
use penstock_manager::{Limits, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

fn duration(id: u64, seconds: f64) -> Value {
    json!({"id": id, "updates": {"attributes.system.duration": seconds}})
}

fn update(bench: &mut Bench, id: u64, seconds: f64) -> Vec<Message> {
    bench.request("job-manager.update", &duration(id, seconds))
}

fn guests() -> Settings {
    Settings {
        guests: true,
        limits: Limits {
            duration: Some(100.0),
            ..Limits::default()
        },
        ..settings()
    }
}

fn submit_as_guest(bench: &mut Bench, system: &Value) -> u64 {
    let payload = json!({"jobspec": common::jobspec(system)});
    let out = bench.request_as("guest", 7, "job-ingest.submit", &payload, 0);
    body(&out[0])["id"].as_u64().unwrap()
}

#[test]
fn a_pending_job_is_requested_again_with_its_new_time_limit() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({"duration": 60}));
    let out = update(&mut bench, id, 30.0);
    assert_eq!(topics(&out), ["sched.cancel"]);
    let out = bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    assert_eq!(topics(&out), ["sched.alloc"]);
    let system = &body(&out[0])["jobspec"]["attributes"]["system"];
    assert_eq!(system["duration"], 30.0);
    assert_eq!(bench.row(id)["duration"], 30.0);
    let event = bench.log(id).pop().unwrap();
    assert_eq!(event["name"], "jobspec-update");
    assert_eq!(
        event["context"],
        json!({"attributes.system.duration": 30.0})
    );
}

#[test]
fn a_job_that_is_not_in_the_queue_yet_is_updated_in_place() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({
        "duration": 60, "dependencies": [{"scheme": "begin-time", "value": "5000"}]}));
    assert!(topics(&update(&mut bench, id, 0.0)).is_empty());
    bench.manager.advance(5000.0);
    let out = bench.manager.flush().unwrap();
    let system = &body(&out[0])["jobspec"]["attributes"]["system"];
    assert_eq!(system["duration"], 0.0);
}

#[test]
fn a_running_job_ends_when_the_scheduler_has_agreed() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let id = bench.running(&json!({"duration": 60}));
    let out = update(&mut bench, id, 600.0);
    assert_eq!(topics(&out), ["sched.expiration"]);
    assert_eq!(out.len(), 1, "the answer waits for the scheduler's");
    let request = body(&out[0]);
    let began = bench.row(id)["t_run"].as_f64().unwrap();
    assert_eq!(request, json!({"id": id, "expiration": began + 600.0}));
    let done = bench.reply(&out, "sched.expiration", &json!({}));
    assert_eq!(topics(&done), ["job-exec.expiration"]);
    assert_eq!(body(&done[0]), request);
    assert!(done[0].is_noresponse());
    assert_eq!(done[1].errnum(), 0);
    let row = bench.row(id);
    assert_eq!(
        (&row["duration"], &row["expiration"]),
        (&json!(600.0), &request["expiration"])
    );
    let names = bench.events(id);
    assert_eq!(
        names[names.len() - 2..],
        ["jobspec-update", "resource-update"]
    );
    let found = bench.request("job-info.lookup", &json!({"id": id, "keys": ["R"]}));
    let r: Value = serde_json::from_str(body(&found[0])["R"].as_str().unwrap()).unwrap();
    assert_eq!(r["execution"]["expiration"], request["expiration"]);
}

#[test]
fn a_scheduler_without_the_method_agrees_and_any_other_error_does_not() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let id = bench.running(&json!({"duration": 60}));
    let out = update(&mut bench, id, 600.0);
    let out = bench.deny(&out, "sched.expiration", 22, "reserved");
    let (errnum, text) = rejection(&out);
    assert_eq!(
        (errnum, text.as_str()),
        (22, "the scheduler rejects the update: reserved")
    );
    assert_eq!(bench.row(id)["duration"], 60.0);
    let out = update(&mut bench, id, 600.0);
    bench.deny(&out, "sched.expiration", 38, "");
    assert_eq!(bench.row(id)["duration"], 600.0);
}

const TOO_SHORT: &str =
    "a time limit of 0.00000001 s is too short: expected 0 (none) or at least 0.000001 s";

#[test]
fn a_time_limit_that_would_end_a_job_at_its_begin_is_rejected_before_it_runs() {
    let mut bench = Bench::new();
    let (id, _) = bench.submit(&json!({"duration": 60}));
    let out = update(&mut bench, id, 1e-8);
    assert_eq!(rejection(&out), (22, TOO_SHORT.to_owned()));
    assert!(
        update(&mut bench, id, 1e-6)
            .iter()
            .all(|message| message.errnum() == 0)
    );
    let submission = json!({"jobspec": common::jobspec(&json!({"duration": 1e-8}))});
    let out = bench.request("job-ingest.submit", &submission);
    assert_eq!(rejection(&out), (22, TOO_SHORT.to_owned()));
}

#[test]
fn a_time_limit_that_ends_a_job_at_its_begin_is_not_requested() {
    let with_start = common::R.replace(r#""starttime":0.0"#, r#""starttime":1000000000.0"#);
    for r in [common::R, &with_start] {
        let mut bench = Bench::new();
        bench.now = 1e9;
        bench.scheduler(None);
        bench.executor();
        let (id, _) = bench.submit(&json!({"duration": 60}));
        assert_eq!(bench.commit_r(id, r)[0].errnum(), 0);
        bench.answer("sched.alloc", &json!({"id": id, "type": 0}));
        bench.exec(id, "start", &json!({}));
        let (row, events) = (bench.row(id), bench.events(id));
        let out = update(&mut bench, id, 1e-8);
        assert!(topics(&out).is_empty(), "{:?}", topics(&out));
        assert_eq!(rejection(&out), (22, TOO_SHORT.to_owned()));
        assert_eq!((bench.row(id), bench.events(id)), (row, events));
        // It does not block the next update.
        let out = update(&mut bench, id, 600.0);
        assert_eq!(topics(&out), ["sched.expiration"]);
    }
}

#[test]
fn one_update_at_a_time_and_none_is_left_hanging() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let id = bench.running(&json!({"duration": 60}));
    let first = update(&mut bench, id, 600.0);
    assert_eq!(rejection(&update(&mut bench, id, 700.0)).0, 16);
    // The job ends before the scheduler has answered.
    bench.end(id, 0);
    let out = bench.reply(&first, "sched.expiration", &json!({}));
    assert!(rejection(&out).1.ends_with("is no longer running"));
    // The scheduler disconnects before it has answered.
    let id = bench.running(&json!({"duration": 60}));
    update(&mut bench, id, 600.0);
    let out = bench.scheduler(None);
    assert_eq!(rejection(&out).0, 11);
}

#[test]
fn without_a_ready_scheduler_no_agreement_is_needed() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let id = bench.running(&json!({"duration": 60}));
    bench.request_as(
        "sched",
        OWNER,
        "job-manager.disconnect",
        &serde_json::Value::Null,
        4,
    );
    let out = update(&mut bench, id, 600.0);
    assert_eq!(topics(&out), ["job-exec.expiration"]);
    assert_eq!(rejection(&out), (0, String::new()));
    let row = bench.row(id);
    assert_eq!(row["duration"], 600.0);
    // A scheduler that has been greeted receives the change as soon as it is ready.
    let hello = json!({"partial-ok": true});
    let greeted = bench.request_as("sched", OWNER, "job-manager.sched-hello", &hello, STREAMING);
    assert_eq!(greeted.len(), 2);
    let out = update(&mut bench, id, 700.0);
    assert_eq!(topics(&out), ["job-exec.expiration"]);
    assert_eq!(rejection(&out), (0, String::new()));
    let ready = json!({"mode": "unlimited"});
    let out = bench.request_as("sched", OWNER, "job-manager.sched-ready", &ready, 0);
    assert_eq!(topics(&out), ["sched.expiration"]);
    let correction = out
        .iter()
        .find(|message| message.topic() == "sched.expiration");
    assert_eq!(
        body(correction.unwrap())["expiration"],
        bench.row(id)["expiration"]
    );
    // The scheduler's response to the correction does not block the next update.
    bench.deny(&out, "sched.expiration", 22, "too late");
    let out = update(&mut bench, id, 800.0);
    assert_eq!(topics(&out), ["sched.expiration"]);
}

#[test]
fn an_answer_that_crosses_the_update_is_corrected() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, _) = bench.submit(&json!({"duration": 60}));
    update(&mut bench, id, 600.0);
    let out = bench.allocate(id);
    assert_eq!(topics(&out), ["sched.expiration", "job-exec.start"]);
    let done = bench.reply(&out, "sched.expiration", &json!({}));
    assert_eq!(topics(&done), ["job-exec.expiration"]);
    assert_eq!(bench.row(id)["expiration"], body(&out[0])["expiration"]);
}

#[test]
fn guests_stay_within_the_limits_and_leave_running_jobs_alone() {
    let mut bench = Bench::with(guests());
    bench.scheduler(None);
    bench.executor();
    let id = submit_as_guest(&mut bench, &json!({"duration": 60}));
    let mut as_guest = |userid, seconds| {
        let payload = duration(id, seconds);
        let out = bench.request_as("guest", userid, "job-manager.update", &payload, 0);
        out.iter()
            .find(|message| message.kind == penstock_wire::MessageType::Response)
            .map_or(0, Message::errnum)
    };
    assert_eq!(as_guest(7, 100.0), 0);
    assert_eq!(as_guest(7, 101.0), 22);
    assert_eq!(as_guest(7, 0.0), 22);
    assert_eq!(as_guest(8, 10.0), 1);
    assert_eq!(as_guest(OWNER, 1000.0), 0);
    bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    bench.allocate(id);
    let out = bench.request_as("guest", 7, "job-manager.update", &duration(id, 10.0), 0);
    let (errnum, text) = rejection(&out);
    assert_eq!(
        (errnum, text.as_str()),
        (
            1,
            "another duration for a running job: only the instance owner may do this"
        )
    );
}

#[test]
fn an_attribute_that_cannot_be_updated_is_named() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (id, _) = bench.submit(&json!({}));
    let other = json!({"id": id, "updates": {"attributes.system.cwd": "/"}});
    let (errnum, text) = rejection(&bench.request("job-manager.update", &other));
    assert_eq!(errnum, 22);
    assert!(text.starts_with("`attributes.system.cwd` cannot be updated"));
    for value in [json!(-1), json!("1h"), json!(null)] {
        let wrong = json!({"id": id, "updates": {"attributes.system.duration": value}});
        assert_eq!(
            rejection(&bench.request("job-manager.update", &wrong)).0,
            22
        );
    }
    let none = json!({"id": id, "updates": {}});
    assert_eq!(rejection(&bench.request("job-manager.update", &none)).0, 22);
    bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    let (errnum, text) = rejection(&update(&mut bench, id, 1.0));
    assert_eq!(errnum, 2);
    assert!(text.ends_with("is inactive"));
}

#[test]
fn updates_and_memos_outlive_a_restart() {
    let directory = Directory::new("update");
    let mut bench = directory.open(settings(), 1000.0);
    bench.scheduler(None);
    bench.executor();
    let running = bench.running(&json!({"duration": 60}));
    let (pending, _) = bench.submit(&json!({"duration": 60}));
    update(&mut bench, pending, 30.0);
    let out = update(&mut bench, running, 600.0);
    let expiration = body(&out[0])["expiration"].clone();
    bench.reply(&out, "sched.expiration", &json!({}));
    let memo = json!({"id": pending, "memo": {"a": {"x": 1, "y": 2}, "b": 2}});
    bench.request("job-manager.memo", &memo);
    // A key is replaced whole (RFC 21), and null removes it.
    let memo = json!({"id": pending, "memo": {"a": {"z": 3}, "b": null, "c": 3}});
    bench.request("job-manager.memo", &memo);
    let user = json!({"user": {"a": {"z": 3}, "c": 3}});
    assert_eq!(bench.row(pending)["annotations"], user);
    drop(bench);
    let mut bench = directory.open(settings(), 2000.0);
    let row = bench.row(pending);
    assert_eq!(
        (&row["duration"], &row["annotations"]),
        (&json!(30.0), &user)
    );
    assert_eq!(bench.row(running)["expiration"], expiration);
    bench.scheduler(None);
    let out = bench.executor();
    let start = out
        .iter()
        .find(|message| message.topic() == "job-exec.start")
        .unwrap();
    assert_eq!(body(start)["R"]["execution"]["expiration"], expiration);
    assert_eq!(
        body(start)["jobspec"]["attributes"]["system"]["duration"],
        600.0
    );
}

#[test]
fn a_memo_is_for_active_jobs_and_their_users() {
    let mut bench = Bench::with(guests());
    let id = submit_as_guest(&mut bench, &json!({"duration": 1}));
    let memo = json!({"id": id, "memo": {"a": 1}});
    let out = bench.request_as("guest", 7, "job-manager.memo", &memo, 0);
    assert_eq!(out[0].errnum(), 0);
    let out = bench.request_as("other", 8, "job-manager.memo", &memo, 0);
    assert_eq!(rejection(&out).0, 1);
    bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    let out = bench.request_as("guest", 7, "job-manager.memo", &memo, 0);
    assert_eq!(rejection(&out).0, 2);
}

/// Adds memos of 16 KB to a job until one is rejected. Returns the number of those that are added.
fn add_memos(bench: &mut Bench, userid: u32, id: u64) -> u32 {
    let memo = |number: u32| {
        let text = format!("{number}{}", "x".repeat(16_000));
        json!({"id": id, "memo": {"a": text}})
    };
    let mut add = |number: u32| {
        let out = bench.request_as("user", userid, "job-manager.memo", &memo(number), 0);
        out[0].errnum() == 0
    };
    (0..1000).find(|number| !add(*number)).unwrap()
}

#[test]
fn guests_add_no_event_to_an_eventlog_of_a_mebibyte() {
    let directory = Directory::new("eventlog");
    let mut bench = directory.open(guests(), 1000.0);
    let id = submit_as_guest(&mut bench, &json!({"duration": 1}));
    assert_eq!(add_memos(&mut bench, 7, id), 65);
    let check = |bench: &mut Bench| {
        let memo = json!({"id": id, "memo": {"a": "x".repeat(16_000)}});
        let out = bench.request_as("guest", 7, "job-manager.memo", &memo, 0);
        let (errnum, text) = rejection(&out);
        assert_eq!(errnum, 27, "{text}");
        assert!(text.contains("expected at most 1048576 bytes"), "{text}");
        let out = bench.request("job-manager.memo", &json!({"id": id, "memo": {"a": 1}}));
        assert_eq!(out[0].errnum(), 0);
    };
    check(&mut bench);
    drop(bench);
    let mut bench = directory.open(guests(), 2000.0);
    check(&mut bench);
    let cancel = json!({"id": id, "type": "cancel"});
    let out = bench.request_as("guest", 7, "job-manager.raise", &cancel, 0);
    assert_eq!(out.last().unwrap().errnum(), 0);
}

#[test]
fn requests_add_no_event_to_an_eventlog_that_is_too_long() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    // 12 MiB of them.
    assert_eq!(add_memos(&mut bench, OWNER, id), 783);
    for length in [100, 0] {
        let fill = json!({"id": id, "memo": {"b": "x".repeat(length)}});
        while bench.request("job-manager.memo", &fill)[0].errnum() == 0 {}
    }
    let memo = |_| json!({"id": id, "memo": {"a": "x".repeat(300)}});
    let note = json!({"id": id, "type": "note", "severity": 7});
    let rejected = [
        ("job-manager.memo", memo(0)),
        ("job-manager.raise", note),
        ("job-manager.urgency", json!({"id": id, "urgency": 17})),
        ("job-manager.update", duration(id, 60.0)),
    ];
    for (topic, request) in &rejected {
        let (errnum, text) = rejection(&bench.request(topic, request));
        assert_eq!(errnum, 27, "{topic}: {text}");
        assert!(text.contains("expected at most 12582912 bytes"), "{text}");
    }
    let ranked = bench.request("job-manager.prioritize", &json!({"jobs": [[id, 5]]}));
    assert!(body(&ranked[0])["errors"][id.to_string()].is_string());
    let stats = bench.request("job-manager.stats-get", &json!({}));
    assert_eq!(body(&stats[0])["rejected"]["eventlog_bytes"], 8);
    let out = bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    assert_eq!(out.last().unwrap().errnum(), 0);
    assert_eq!(bench.log(id).last().unwrap()["context"]["type"], "cancel");
}

#[test]
fn the_urgency_of_many_jobs_changes_in_one_request() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (first, _) = bench.submit(&json!({}));
    let (second, _) = bench.submit(&json!({}));
    let many = json!({"ids": [first, 99, second], "urgency": 31});
    let out = bench.request("job-manager.urgency", &many);
    let answer = out
        .iter()
        .find(|message| message.kind == penstock_wire::MessageType::Response);
    let answer = body(answer.unwrap());
    assert_eq!(answer["count"], 2);
    assert_eq!(answer["errors"]["99"], "no job ƒ2i");
    assert_eq!(bench.row(first)["priority"], 4_294_967_295_u32);
    assert_eq!(bench.row(second)["urgency"], 31);
}

#[test]
fn ten_thousand_jobs_are_put_in_order_by_one_request() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({}), 10_000);
    bench.rest();
    let jobs: Vec<Value> = ids
        .iter()
        .enumerate()
        .map(|(place, id)| json!([id, 4_294_967_294_u32 - u32::try_from(place).unwrap()]))
        .collect();
    let mut out = bench.request("job-manager.prioritize", &json!({ "jobs": jobs }));
    out.extend(bench.advance());
    let answer = out
        .iter()
        .find(|message| message.kind == penstock_wire::MessageType::Response);
    assert_eq!(
        body(answer.unwrap()),
        json!({"count": 10_000, "errors": {}})
    );
    let count: usize = out
        .iter()
        .filter(|message| message.topic() == "sched.prioritize")
        .map(|message| body(message)["jobs"].as_array().unwrap().len())
        .sum();
    assert_eq!(count, 10_000);
    let last = *ids.last().unwrap();
    assert_eq!(bench.row(last)["priority"], 4_294_967_294_u32 - 9_999);
}

#[test]
fn an_assigned_priority_holds_until_the_urgency_changes() {
    let directory = Directory::new("priority");
    let mut bench = directory.open(settings(), 1000.0);
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.request("job-manager.prioritize", &json!({"jobs": [[id, 5000]]}));
    drop(bench);
    let mut bench = directory.open(settings(), 2000.0);
    let out = bench.scheduler(None);
    assert_eq!(body(out.last().unwrap())["priority"], 5000);
    bench.request("job-manager.urgency", &json!({"id": id, "urgency": 20}));
    assert_eq!(bench.row(id)["priority"], 20);
}

#[test]
fn priorities_are_the_owners_and_urgencies_0_and_31_keep_theirs() {
    let mut bench = Bench::with(Settings {
        guests: true,
        ..settings()
    });
    bench.scheduler(None);
    let (held, _) = bench.submit(&json!({}));
    bench.request("job-manager.urgency", &json!({"id": held, "urgency": 0}));
    assert_eq!(bench.row(held)["priority"], 0);
    let (waits, _) = bench.submit(&json!({
        "dependencies": [{"scheme": "after", "value": held.to_string()}]}));
    let wanted = json!({"jobs": [[held, 7], [waits, 7], [waits, 4_294_967_296_u64], [5, 1]]});
    let out = bench.request("job-manager.prioritize", &wanted);
    let answer = body(&out[0]);
    assert_eq!(answer["count"], 0);
    let errors = answer["errors"].as_object().unwrap();
    let held_error = errors[&held.to_string()].as_str().unwrap();
    assert!(held_error.ends_with("the job is held"), "{held_error}");
    assert_eq!(errors.len(), 3);
    let out = bench.request_as("guest", 7, "job-manager.prioritize", &wanted, 0);
    assert_eq!(rejection(&out).0, 1);
}
