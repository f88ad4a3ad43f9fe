use std::ops::Range;
use std::sync::Arc;

use penstock_flux::errno::EPERM;
use penstock_flux::{JobspecDocument, StartingJob};
use serde_json::{Value, json};

use penstock_flux::errno::{EINVAL, ENOENT, ENOSYS, EPROTO};

use super::*;

fn start(id: u64, system: &Value) -> Message {
    start_on(&json!({}), id, system)
}

/// A start request of a job whose R has this start and expiration.
fn start_within(times: Range<f64>, id: u64, system: &Value) -> Message {
    let times = json!({"starttime": times.start, "expiration": times.end});
    start_on(&times, id, system)
}

/// An R with these times.
fn r(times: &Value) -> Value {
    let mut r = json!({"version": 1, "execution": {
        "R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["node0"]}});
    for (key, time) in times.as_object().unwrap() {
        r["execution"][key] = time.clone();
    }
    r
}

fn start_on(times: &Value, id: u64, system: &Value) -> Message {
    let payload = json!({
        "id": id,
        "userid": 0,
        "reattach": false,
        "jobspec": {"attributes": {"system": system}},
        "R": r(times),
    });
    owners(&payload.to_string())
}

/// A start request of a job that an earlier service has started.
fn reattach(id: u64, system: &Value, starttime: f64) -> Message {
    let payload = json!({
        "id": id,
        "userid": 0,
        "reattach": true,
        "jobspec": {"attributes": {"system": system}},
        "R": r(&json!({"starttime": starttime})),
    });
    owners(&payload.to_string())
}

fn owners(payload: &str) -> Message {
    let mut request = Message::request("sim.start", payload);
    request.rolemask = 5;
    request
}

#[test]
fn a_guest_may_not_start_jobs() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let mut request = start(1, &json!({"duration": 0}));
    request.rolemask = 6;
    exec.handle(&request, 0.0, &mut out);
    assert_eq!((out.len(), out[0].errnum()), (1, EPERM));
}

fn shown(out: &mut Vec<Message>) -> Vec<String> {
    let show = |message: Message| {
        assert!(message.is_streaming());
        let payload = message.payload_json().unwrap();
        let value: Value = serde_json::from_slice(payload).unwrap();
        let detail = match value["type"].as_str().unwrap() {
            "finish" => format!(" {}", value["data"]["status"]),
            "exception" => format!(" {}", value["data"]["type"].as_str().unwrap()),
            _ => String::new(),
        };
        format!(
            "{} {}{detail}",
            value["id"],
            value["type"].as_str().unwrap()
        )
    };
    out.drain(..).map(show).collect()
}

#[test]
fn a_job_takes_its_run_duration_else_its_duration_else_no_time() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let test = json!({"duration": 60.0, "exec": {"test": {"run_duration": "2s"}}});
    exec.handle(&start(1, &test), 100.0, &mut out);
    exec.handle(&start(2, &json!({"duration": 1.0})), 100.0, &mut out);
    exec.handle(&start(3, &json!({"duration": 0})), 100.0, &mut out);
    assert_eq!(
        shown(&mut out),
        ["1 start", "2 start", "3 start", "3 finish 0", "3 release"]
    );
    assert_eq!(exec.deadline(), Some(101.0));
    exec.advance(101.0, &mut out);
    assert_eq!(shown(&mut out), ["2 finish 0", "2 release"]);
    exec.advance(101.9, &mut out);
    assert_eq!(shown(&mut out), Vec::<String>::new());
    exec.advance(200.0, &mut out);
    assert_eq!(shown(&mut out), ["1 finish 0", "1 release"]);
    assert_eq!((exec.deadline(), exec.running()), (None, 0));
}

#[test]
fn a_job_ends_when_its_resources_or_its_duration_expire() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let test = json!({"duration": 100.0, "exec": {"test": {"run_duration": 100.0}}});
    exec.handle(&start_within(10.0..12.0, 1, &test), 10.0, &mut out);
    // Allocated a second before its start: its time limit counts from the start.
    exec.handle(&start_within(10.0..110.0, 2, &test), 11.0, &mut out);
    let unlimited = json!({"duration": 0, "exec": {"test": {"run_duration": 100.0}}});
    exec.handle(&start_within(10.0..12.5, 3, &unlimited), 10.0, &mut out);
    out.clear();
    exec.advance(12.0, &mut out);
    assert_eq!(
        shown(&mut out),
        ["1 exception timeout", "1 finish 15", "1 release"]
    );
    exec.advance(12.5, &mut out);
    assert_eq!(
        shown(&mut out),
        ["3 exception timeout", "3 finish 15", "3 release"]
    );
    assert_eq!(exec.deadline(), Some(111.0));
    exec.advance(111.0, &mut out);
    assert_eq!(shown(&mut out), ["2 finish 0", "2 release"]);
}

#[test]
fn a_job_that_exceeds_its_limit_times_out() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let test = json!({"duration": 3.0, "exec": {"test": {"run_duration": "1h"}}});
    exec.handle(&start(1, &test), 0.0, &mut out);
    out.clear();
    exec.advance(3.0, &mut out);
    assert_eq!(
        shown(&mut out),
        ["1 exception timeout", "1 finish 15", "1 release"]
    );
}

#[test]
fn only_a_fatal_exception_ends_a_job() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    exec.handle(&start(1, &json!({"duration": 9.0})), 0.0, &mut out);
    out.clear();
    let event = |severity: i64| {
        let payload = json!({"id": 1, "type": "x", "severity": severity});
        Message::event("job-exception", &payload.to_string(), 0)
    };
    exec.handle(&event(3), 1.0, &mut out);
    assert!(out.is_empty());
    exec.handle(&event(0), 1.0, &mut out);
    assert_eq!(shown(&mut out), ["1 finish 15", "1 release"]);
    exec.advance(100.0, &mut out);
    assert!(out.is_empty());
}

#[test]
fn a_reattached_job_continues_from_its_start() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    exec.handle(
        &reattach(1, &json!({"duration": 10.0}), 95.0),
        100.0,
        &mut out,
    );
    assert_eq!(shown(&mut out), ["1 reattached"]);
    assert_eq!(exec.deadline(), Some(105.0));
    exec.handle(
        &reattach(2, &json!({"duration": 1.0}), 95.0),
        100.0,
        &mut out,
    );
    assert_eq!(shown(&mut out), ["2 reattached", "2 finish 0", "2 release"]);
}

#[test]
fn a_malformed_request_fails_its_job_and_releases_it() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let test = json!({"duration": 1.0, "exec": {"test": {"run_duration": "soon"}}});
    exec.handle(&start(1, &test), 0.0, &mut out);
    assert_eq!(shown(&mut out), ["1 exception exec", "1 release"]);
    exec.handle(&owners(r#"{"id":2}"#), 0.0, &mut out);
    assert_eq!(shown(&mut out), ["2 exception exec", "2 release"]);
    exec.handle(&owners(r#"{"x":2}"#), 0.0, &mut out);
    assert_eq!(out.pop().map(|message| message.errnum()), Some(EPROTO));
}

#[test]
fn a_malformed_request_is_a_protocol_error_with_topic_and_key() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    for (method, payload, text) in [
        ("start", "{}", "missing key `id`"),
        ("start", "[]", "expected an object, found an array"),
        ("expiration", r#"{"id":1}"#, "missing key `expiration`"),
        ("kill", r#"{"id":1}"#, "missing key `signum`"),
        ("replaced", "{}", "missing key `service`"),
        ("ping", "[]", "expected an object, found an array"),
    ] {
        let topic = format!("sim.{method}");
        let mut request = Message::request(&topic, payload);
        request.rolemask = 5;
        exec.handle(&request, 0.0, &mut out);
        let response = out.pop().unwrap();
        let error = response.error_text().unwrap_or_default();
        assert_eq!(
            (out.len(), response.errnum(), error.as_ref()),
            (0, EPROTO, format!("{topic}: {text}").as_str())
        );
    }
    exec.handle(&Message::request("sim.nosuch", ""), 0.0, &mut out);
    assert_eq!(out[0].errnum(), ENOSYS);
    assert_eq!(
        out[0].error_text().as_deref(),
        Some("unknown method `sim.nosuch`")
    );
}

#[test]
fn a_rejected_registration_is_a_failure() {
    let mut exec = MockExec::new("sim");
    let hello = exec.start().pop().unwrap();
    assert_eq!(hello.topic(), "job-manager.exec-hello");
    // Nothing of this service waits for such a response.
    let other = Message::error_to(&hello.clone().with_matchtag(9), 71, "unreadable");
    exec.handle(&other, 0.0, &mut Vec::new());
    assert_eq!(exec.failure(), None);
    let rejection = Message::error_to(&hello, 22, "another is busy");
    exec.handle(&rejection, 0.0, &mut Vec::new());
    assert_eq!(
        exec.failure(),
        Some("job-manager.exec-hello failed: Invalid argument: another is busy")
    );
    assert_eq!(exec.failure_errnum(), Some(22));
}

#[test]
fn an_expiration_moves_the_end_of_a_running_job() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let test = |run: &str| json!({"duration": 10.0, "exec": {"test": {"run_duration": run}}});
    exec.handle(&start(1, &test("60s")), 0.0, &mut out);
    exec.handle(&start(2, &test("8s")), 0.0, &mut out);
    exec.handle(&start(3, &test("60s")), 0.0, &mut out);
    exec.handle(&start(4, &json!({"duration": 10.0})), 0.0, &mut out);
    out.clear();
    let expire = |exec: &mut MockExec, id: u64, expiration: f64, now: f64| {
        let payload = json!({"id": id, "expiration": expiration}).to_string();
        let mut request = Message::request("sim.expiration", &payload);
        request.rolemask = 5;
        let mut out = Vec::new();
        exec.handle(&request, now, &mut out);
        assert_eq!(out[0].topic(), "sim.expiration");
        (out.remove(0).errnum(), shown(&mut out))
    };
    let nothing: Vec<String> = Vec::new();
    assert_eq!(expire(&mut exec, 1, 20.0, 1.0), (0, nothing.clone()));
    assert_eq!(expire(&mut exec, 2, 5.0, 1.0), (0, nothing.clone()));
    assert_eq!(expire(&mut exec, 4, 0.0, 1.0), (0, nothing.clone()));
    exec.advance(5.0, &mut out);
    assert_eq!(
        shown(&mut out),
        ["2 exception timeout", "2 finish 15", "2 release"]
    );
    // An expiration in the past ends the job at once.
    let ended = ["3 exception timeout", "3 finish 15", "3 release"];
    assert_eq!(
        expire(&mut exec, 3, 4.0, 6.0),
        (0, ended.map(str::to_owned).to_vec())
    );
    exec.advance(19.0, &mut out);
    assert_eq!(shown(&mut out), ["4 finish 0", "4 release"]);
    exec.advance(20.0, &mut out);
    assert_eq!(
        shown(&mut out),
        ["1 exception timeout", "1 finish 15", "1 release"]
    );
    assert_eq!(expire(&mut exec, 1, 4.0, 21.0), (ENOENT, nothing.clone()));
    exec.handle(&start(5, &test("60s")), 21.0, &mut out);
    assert_eq!(expire(&mut exec, 5, -1.0, 22.0), (EINVAL, nothing));
    let request = Message::request("sim.expiration", r#"{"id":5,"expiration":1}"#);
    out.clear();
    exec.handle(&request, 22.0, &mut out);
    assert_eq!((out[0].errnum(), exec.running()), (EPERM, 1));
}

#[test]
fn a_reattached_job_ends_when_its_resources_expire() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let payload = json!({
        "id": 1, "userid": 0, "reattach": true,
        "jobspec": {"attributes": {"system": {"duration": 5.0, "exec": {"test": {"run_duration": 100}}}}},
        "R": r(&json!({"starttime": 10.0, "expiration": 40.0})),
    });
    exec.handle(&owners(&payload.to_string()), 20.0, &mut out);
    assert_eq!(exec.deadline(), Some(40.0));
}

#[test]
fn a_start_request_may_come_without_r() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let payload = r#"{"id":1,"userid":0,"reattach":false,
        "jobspec":{"attributes":{"system":{"duration":0}}}}"#;
    exec.handle(&owners(payload), 0.0, &mut out);
    assert_eq!(shown(&mut out), ["1 start", "1 finish 0", "1 release"]);
}

#[test]
fn the_wait_status_of_an_exception_becomes_that_of_the_job() {
    for (wait_status, status) in [(14, (128 + 14) << 8), (3 << 8, 3 << 8), (0, 0)] {
        let mut exec = MockExec::new("sim");
        let mut out = Vec::new();
        exec.handle(&start(1, &json!({"duration": 9.0})), 0.0, &mut out);
        out.clear();
        let payload = json!({"id": 1, "type": "x", "severity": 0, "wait_status": wait_status});
        let event = Message::event("job-exception", &payload.to_string(), 0);
        exec.handle(&event, 1.0, &mut out);
        assert_eq!(
            shown(&mut out),
            [format!("1 finish {status}"), "1 release".to_owned()]
        );
    }
}

#[test]
fn a_replaced_service_reports_nothing() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    exec.handle(&start(1, &json!({"duration": 9.0})), 0.0, &mut out);
    out.clear();
    let mut replaced = Message::request("sim.replaced", r#"{"service":"other"}"#);
    exec.handle(&replaced, 1.0, &mut out);
    assert_eq!(exec.running(), 1);
    out.clear();
    replaced.rolemask = 5;
    exec.handle(&replaced.with_flags(4), 1.0, &mut out);
    exec.advance(100.0, &mut out);
    let event = Message::event("job-exception", r#"{"id":1,"type":"x","severity":0}"#, 0);
    exec.handle(&event, 1.0, &mut out);
    assert_eq!((out.len(), exec.running(), exec.deadline()), (0, 0, None));
}

#[test]
fn ping_and_stats_are_answered() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    exec.handle(&start(1, &json!({"duration": 9.0})), 0.0, &mut out);
    out.clear();
    for (topic, expected) in [
        (
            "sim.ping",
            json!({"a": 1, "route": "", "userid": u32::MAX, "rolemask": 0, "rank": 0}),
        ),
        ("sim.stats-get", json!({"running": 1})),
    ] {
        let request = Message::request(topic, r#"{"a":1}"#);
        exec.handle(&request.clone().with_flags(4), 0.0, &mut out);
        assert!(out.is_empty(), "{topic}: no response is expected");
        exec.handle(&request, 0.0, &mut out);
        let answer = out.pop().unwrap();
        let value: Value = serde_json::from_slice(answer.payload_json().unwrap()).unwrap();
        assert_eq!(value, expected);
    }
}

#[test]
fn a_job_without_a_time_limit_takes_no_time_although_the_resources_expire() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let payload = json!({
        "id": 1, "userid": 0, "reattach": false,
        "jobspec": {"attributes": {"system": {"duration": 0.0}}},
        "R": r(&json!({"starttime": 10.0, "expiration": 1000.0})),
    });
    exec.handle(&owners(&payload.to_string()), 10.0, &mut out);
    assert_eq!(shown(&mut out), ["1 start", "1 finish 0", "1 release"]);
}

#[test]
fn a_typed_start_is_answered_as_its_json_is() {
    let jobspec = |system: &Value| {
        json!({
            "version": 1,
            "resources": [{"type": "slot", "count": 1, "label": "t",
                           "with": [{"type": "core", "count": 1}]}],
            "tasks": [{"command": ["x"], "slot": "t", "count": {"per_slot": 1}}],
            "attributes": {"system": system},
        })
    };
    let r = r#"{"version":1,"execution":{"R_lite":[{"rank":"0","children":{"core":"0"}}],"nodelist":["n0"],"starttime":10.0,"expiration":70.0}}"#;
    for (system, reattach) in [
        (json!({"duration": 60.0}), false),
        (json!({"duration": 60.0}), true),
        (
            json!({"duration": 90.0, "exec": {"test": {"run_duration": "80s"}}}),
            false,
        ),
        (
            json!({"duration": 0, "exec": {"test": {"run_duration": 2.5}}}),
            true,
        ),
        (
            json!({"duration": 0, "exec": {"test": {"run_duration": "soon"}}}),
            false,
        ),
        (json!({"duration": 0, "exec": {"test": 5}}), false),
    ] {
        let typed = TypedPayload::Start(StartingJob {
            id: JobId::new(1),
            userid: 0,
            jobspec: Arc::new(JobspecDocument::new(jobspec(&system).to_string().into())),
            reattach,
            r: Arc::new(penstock_rset::ResourceSet::from_json(r).unwrap()),
            r_text: r.into(),
            journal: None,
        });
        let mut typed = Message::request("sim.start", "").with_typed(typed);
        typed.rolemask = 5;
        let json = owners(std::str::from_utf8(typed.payload_json().unwrap()).unwrap());
        let run = |request: &Message| {
            let (mut exec, mut out) = (MockExec::new("sim"), Vec::new());
            exec.handle(request, 11.0, &mut out);
            let mut ends = Vec::new();
            while let Some(end) = exec.deadline() {
                ends.push(end);
                exec.advance(end, &mut out);
            }
            (out, ends)
        };
        let (answers, ends) = run(&typed);
        assert!(!answers.is_empty());
        assert_eq!((answers, ends), run(&json), "{system} {reattach}");
    }
}
