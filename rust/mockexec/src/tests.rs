use super::*;

fn start(id: u64, system: &Value, reattach: bool, starttime: f64) -> Message {
    let payload = json!({
        "id": id,
        "userid": 0,
        "reattach": reattach,
        "jobspec": {"attributes": {"system": system}},
        "R": {"execution": {"starttime": starttime}},
    });
    owners(&payload.to_string())
}

fn owners(payload: &str) -> Message {
    let mut request = Message::request("sim.start", payload);
    request.rolemask = 5;
    request
}

#[test]
fn a_guest_starts_nothing() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let mut request = start(1, &json!({"duration": 0}), false, 0.0);
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
    exec.handle(&start(1, &test, false, 0.0), 100.0, &mut out);
    exec.handle(
        &start(2, &json!({"duration": 1.0}), false, 0.0),
        100.0,
        &mut out,
    );
    exec.handle(
        &start(3, &json!({"duration": 0}), false, 0.0),
        100.0,
        &mut out,
    );
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
fn a_job_that_outlasts_its_limit_ends_there_as_a_timeout() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let test = json!({"duration": 3.0, "exec": {"test": {"run_duration": "1h"}}});
    exec.handle(&start(1, &test, false, 0.0), 0.0, &mut out);
    out.clear();
    exec.advance(3.0, &mut out);
    assert_eq!(
        shown(&mut out),
        ["1 exception timeout", "1 finish 15", "1 release"]
    );
}

#[test]
fn a_fatal_exception_ends_a_job_and_a_mild_one_does_not() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    exec.handle(
        &start(1, &json!({"duration": 9.0}), false, 0.0),
        0.0,
        &mut out,
    );
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
fn a_job_taken_over_goes_on_from_its_beginning() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    exec.handle(
        &start(1, &json!({"duration": 10.0}), true, 95.0),
        100.0,
        &mut out,
    );
    assert_eq!(shown(&mut out), ["1 reattached"]);
    assert_eq!(exec.deadline(), Some(105.0));
    exec.handle(
        &start(2, &json!({"duration": 1.0}), true, 95.0),
        100.0,
        &mut out,
    );
    assert_eq!(shown(&mut out), ["2 reattached", "2 finish 0", "2 release"]);
}

#[test]
fn a_bad_request_fails_its_job_and_releases_it() {
    let mut exec = MockExec::new("sim");
    let mut out = Vec::new();
    let test = json!({"duration": 1.0, "exec": {"test": {"run_duration": "soon"}}});
    exec.handle(&start(1, &test, false, 0.0), 0.0, &mut out);
    assert_eq!(shown(&mut out), ["1 exception exec", "1 release"]);
    exec.handle(&owners(r#"{"id":2}"#), 0.0, &mut out);
    assert_eq!(shown(&mut out), ["2 exception exec", "2 release"]);
    exec.handle(&owners(r#"{"x":2}"#), 0.0, &mut out);
    assert_eq!(out.pop().map(|message| message.errnum()), Some(EPROTO));
}

#[test]
fn a_refused_registration_is_a_failure() {
    let mut exec = MockExec::new("sim");
    let hello = exec.start().pop().unwrap();
    assert_eq!(hello.topic(), "job-manager.exec-hello");
    exec.handle(&Message::error_to(&hello, 22, ""), 0.0, &mut Vec::new());
    assert_eq!(
        exec.failure(),
        Some("job-manager.exec-hello failed with errnum 22")
    );
}
