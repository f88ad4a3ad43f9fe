//! Annotations of pending jobs, queries of reasons and estimates, and their authorization.

mod bench;

use bench::{Bench, body, inventory, jobspec};
use penstock_flux::errno::{EAGAIN, EINVAL, EOVERFLOW, EPERM, EPROTO};
use penstock_wire::Message;
use serde_json::{Value, json};

const OWNER: u32 = 5;
const GUEST: u32 = 6;

/// Sends a request with these credentials; returns the only response.
fn request_as(
    bench: &mut Bench,
    topic: &str,
    payload: &Value,
    userid: u32,
    rolemask: u32,
) -> Message {
    let mut request = Message::request(topic, &payload.to_string()).with_matchtag(9);
    request.userid = userid;
    request.rolemask = rolemask;
    bench.scheduler.handle(&request);
    let mut answers = bench.responses();
    answers.retain(|answer| answer.topic() == topic);
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

fn owner(bench: &mut Bench, topic: &str, payload: &Value) -> Value {
    body(&request_as(bench, topic, payload, 0, OWNER))
}

/// A job of a user.
fn alloc(bench: &mut Bench, id: u64, cores: u32, userid: u32) -> Vec<Message> {
    let payload = json!({"id": id, "priority": 16, "userid": userid, "jobspec": jobspec(cores)});
    bench.request("sched.alloc", &payload)
}

/// Two nodes of two cores: jobs 1 and 2 hold them until 1060, jobs 3 and up wait.
fn busy(waiting: u64) -> Bench {
    let mut bench = Bench::ready(None, &[]);
    for id in [1, 2] {
        alloc(&mut bench, id, 2, 0);
        bench.commit();
    }
    for id in 3..3 + waiting {
        alloc(&mut bench, id, 2, 100 + u32::try_from(id).unwrap());
    }
    bench
}

fn annotations(messages: &[Message]) -> Vec<(u64, Value)> {
    let annotations = messages
        .iter()
        .map(body)
        .filter(|annotation| annotation["type"] == 1);
    annotations
        .map(|annotation| {
            (
                annotation["id"].as_u64().unwrap(),
                annotation["annotations"]["sched"].clone(),
            )
        })
        .collect()
}

fn annotate(bench: &mut Bench, now: f64) -> Vec<(u64, Value)> {
    bench.scheduler.annotate(now);
    annotations(&bench.scheduler.take_out())
}

#[test]
fn the_first_jobs_are_annotated_with_changes_only() {
    let idle = Bench::ready(None, &[]);
    assert_eq!(idle.scheduler.deadline(), None, "no pending jobs");
    let mut bench = busy(3);
    let settings = json!({"job-visibility": "all"});
    owner(&mut bench, "sched.config-reload", &settings);
    assert_eq!(bench.scheduler.deadline(), Some(0.0), "at once");
    let annotations = annotate(&mut bench, 1000.0);
    let ids: Vec<u64> = annotations.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [3, 4, 5]);
    let starts: Vec<&Value> = annotations
        .iter()
        .map(|(_, annotations)| &annotations["t_estimate"])
        .collect();
    assert_eq!(starts, [1060.0, 1060.0, 1120.0]);
    // The first job's reason was in an earlier annotation.
    assert_eq!(annotations[0].1.get("reason_pending"), None);
    assert!(
        annotations[1].1["reason_pending"]
            .as_str()
            .unwrap()
            .contains("2 cores")
    );
    assert_eq!(annotate(&mut bench, 1001.0), []);
    bench.scheduler.defer_annotations(1004.0, 0.01);
    assert_eq!(
        bench.scheduler.deadline(),
        Some(1061.0),
        "nothing has changed"
    );
    // The early end of a job moves all estimates.
    bench.request("sched.free", &json!({"id": 1}));
    assert_eq!(bench.scheduler.deadline(), Some(1005.0));
    bench.scheduler.defer_annotations(1004.0, 0.25);
    assert_eq!(bench.scheduler.deadline(), Some(1009.0), "20 times as long");
    bench.scheduler.defer_annotations(1004.0, 0.01);
    let success = body(&bench.commit()[0]);
    assert_eq!(success["id"], 3);
    let annotations = &success["annotations"]["sched"];
    assert_eq!(
        (&annotations["reason_pending"], &annotations["t_estimate"]),
        (&Value::Null, &Value::Null)
    );
    assert!(annotations.as_object().unwrap().contains_key("t_estimate"));
    // Another one is before each of them now.
    let annotations = annotate(&mut bench, 1005.0);
    assert_eq!(
        annotations.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        [4, 5]
    );
    assert!(
        annotations
            .iter()
            .all(|(_, annotations)| annotations["reason_pending"].is_string())
    );
}

#[test]
fn annotations_of_a_displaced_job_are_removed() {
    let mut bench = busy(1);
    let settings = json!({"annotate": 1});
    owner(&mut bench, "sched.config-reload", &settings);
    assert_eq!(annotate(&mut bench, 1000.0)[0].0, 3);
    alloc(&mut bench, 4, 2, 0);
    bench.request("sched.prioritize", &json!({"jobs": [[4, 99]]}));
    let annotations = annotate(&mut bench, 1001.0);
    assert_eq!(annotations[0].0, 4);
    let nothing = json!({"reason_pending": null, "t_estimate": null});
    assert_eq!(annotations[1], (3, nothing));
    owner(&mut bench, "sched.config-reload", &json!({"annotate": 0}));
    assert_eq!(bench.scheduler.deadline(), None);
}

#[test]
fn queries_are_answered_job_by_job() {
    let mut bench = busy(2);
    let answer = owner(&mut bench, "sched.explain", &json!({"ids": [4, 1, 77]}));
    let job = &answer["jobs"][0];
    assert_eq!(
        (&job["id"], &job["kind"]),
        (&json!(4), &json!("insufficient"))
    );
    assert!(job["reason"].as_str().unwrap().contains("2 cores"), "{job}");
    assert_eq!(job["details"]["free"], 0);
    assert_eq!(job["start"], 1060.0);
    let errors = answer["errors"].as_object().unwrap();
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["1", "77"]);
    let answer = owner(&mut bench, "sched.estimate", &json!({"max_entries": 1}));
    assert_eq!(answer["jobs"], json!([{"id": 3, "start": 1060.0}]));
    assert_eq!(answer["accuracy"]["count"], 0);
    let answer = owner(&mut bench, "sched.estimate", &json!({"id": 4}));
    assert_eq!(answer["jobs"], json!([{"id": 4, "start": 1060.0}]));
    let all = owner(&mut bench, "sched.estimate", &json!({}));
    assert_eq!(all["jobs"].as_array().unwrap().len(), 2);
}

#[test]
fn explain_looks_a_limited_number_of_ends_ahead_and_estimate_all() {
    let mut bench = busy(600);
    // Two start each minute.
    let answer = owner(&mut bench, "sched.explain", &json!({"ids": [202, 602]}));
    let jobs = &answer["jobs"];
    assert_eq!(jobs[0]["start"], 1060.0 + 99.0 * 60.0);
    assert_eq!(jobs[1]["start"], Value::Null);
    assert_eq!(jobs[1]["kind"], "insufficient");
    let answer = owner(&mut bench, "sched.estimate", &json!({"id": 602}));
    assert_eq!(answer["jobs"][0]["start"], 1060.0 + 299.0 * 60.0);
}

/// Sends a request of the owner to be answered later.
fn send(bench: &mut Bench, matchtag: u32, origin: &[u8], topic: &str, payload: &Value) {
    let mut request = Message::request(topic, &payload.to_string()).with_matchtag(matchtag);
    request.rolemask = OWNER;
    request.push_route(origin);
    bench.scheduler.handle(&request);
}

#[test]
fn an_estimate_of_a_long_queue_is_made_in_parts_with_other_queries_between() {
    const JOBS: u64 = 3000;
    let mut bench = busy(JOBS);
    send(&mut bench, 1, b"a", "sched.estimate", &json!({}));
    send(
        &mut bench,
        2,
        b"b",
        "sched.estimate",
        &json!({"id": 2 + JOBS}),
    );
    let mut parts = 0;
    let mut answers = Vec::new();
    loop {
        // Other jobs end and start meanwhile, which does not change the estimates.
        if parts == 3 {
            send(
                &mut bench,
                0,
                b"manager",
                "sched.free",
                &json!({"id": 1, "R": inventory(), "final": true}),
            );
            bench.scheduler.schedule(1000.0);
            let out = bench.scheduler.take_out();
            bench.outstanding.extend(out);
            break;
        }
        bench.scheduler.schedule(1000.0);
        assert!(bench.scheduler.advance_forecasts(1000.0));
        assert_eq!(bench.scheduler.take_out(), []);
        send(&mut bench, 3, b"c", "sched.explain", &json!({"id": 4}));
        bench.scheduler.schedule(1000.0);
        let explained = bench.scheduler.take_out();
        assert_eq!(body(&explained[0])["jobs"][0]["id"], 4);
        parts += 1;
    }
    bench.commit();
    while bench.scheduler.advance_forecasts(1000.0) {
        answers.extend(bench.scheduler.take_out());
    }
    answers.extend(bench.scheduler.take_out());
    answers.extend(bench.take_responses());
    answers.retain(|answer| answer.topic() == "sched.estimate");
    assert_eq!(answers.len(), 2);
    let jobs = body(&answers[0])["jobs"].clone();
    let start = |position: u64| 1060.0 + f64::from(u32::try_from(position / 2).unwrap()) * 60.0;
    let expected = (0..JOBS).map(|position| json!({"id": 3 + position, "start": start(position)}));
    assert_eq!(jobs, expected.collect::<Value>());
    assert_eq!(body(&answers[1])["jobs"][0]["id"], 2 + JOBS);
}

#[test]
fn the_effect_of_a_change_on_a_long_queue_is_found_in_parts_with_other_queries_between() {
    const JOBS: u64 = 3000;
    let mut bench = busy(JOBS);
    let last = 2 + JOBS;
    let change = json!({"job": last, "duration": 5});
    send(&mut bench, 1, b"a", "sched.what-if", &change);
    send(&mut bench, 2, b"b", "sched.what-if", &json!({"fit": last}));
    let mut parts = 0;
    let mut answers = Vec::new();
    loop {
        bench.scheduler.schedule(1000.0);
        let more = bench.scheduler.advance_forecasts(1000.0);
        answers.extend(bench.scheduler.take_out());
        if !more {
            break;
        }
        parts += 1;
        if answers.is_empty() {
            // Neither others nor changes of the state wait.
            send(
                &mut bench,
                3,
                b"c",
                "sched.explain",
                &json!({"id": last - 1}),
            );
            bench.scheduler.schedule(1000.0);
            let explained = bench.scheduler.take_out();
            assert_eq!(body(&explained[0])["jobs"][0]["id"], last - 1);
        }
    }
    assert!(parts > 4, "{parts}");
    let tags: Vec<_> = answers.iter().map(|answer| answer.matchtag).collect();
    assert_eq!(tags, [1, 2]);
    // Two start each minute.
    let start = 1060.0 + 60.0 * f64::from(u32::try_from((JOBS - 1) / 2).unwrap());
    assert_eq!(body(&answers[0])["start"], start);
    assert_eq!(body(&answers[1])["largest"], Value::Null);
}

#[test]
fn too_many_estimates_for_a_response_are_rejected_before_they_are_made() {
    let mut bench = busy(3000);
    bench.scheduler.set_estimate_limit(50_000);
    send(&mut bench, 1, b"a", "sched.estimate", &json!({}));
    bench.scheduler.schedule(1000.0);
    assert!(
        !bench.scheduler.advance_forecasts(1000.0),
        "in the first part"
    );
    let answers = bench.scheduler.take_out();
    assert_eq!(answers[0].errnum(), EOVERFLOW);
    let text = answers[0].error_text().unwrap();
    assert!(
        text.contains("3000 jobs are longer than 50000 bytes"),
        "{text}"
    );
}

#[test]
fn jobs_are_annotated_between_the_parts_of_an_estimate_but_not_before_a_pass() {
    let mut bench = busy(5000);
    bench.scheduler.defer_annotations(1000.0, 0.0);
    send(&mut bench, 1, b"a", "sched.estimate", &json!({}));
    bench.scheduler.schedule(1000.0);
    assert!(bench.scheduler.advance_forecasts(1000.0));
    assert!(bench.scheduler.deadline() <= Some(1002.0));
    bench.scheduler.annotate(1002.0);
    let annotated = bench.scheduler.take_out();
    assert!(annotated.len() >= 50, "{}", annotated.len());
    assert!(
        annotated
            .iter()
            .all(|answer| answer.topic() == "sched.alloc")
    );
    // A change of which the next pass is still to come.
    bench.scheduler.defer_annotations(1000.0, 0.0);
    send(
        &mut bench,
        2,
        b"manager",
        "sched.prioritize",
        &json!({"jobs": [[9, 20]]}),
    );
    assert_eq!(bench.scheduler.deadline(), None);
    bench.scheduler.annotate(1004.0);
    assert_eq!(bench.scheduler.take_out(), []);
    while bench.scheduler.advance_forecasts(1000.0) {}
    let answers = bench.scheduler.take_out();
    assert_eq!(body(&answers[0])["jobs"].as_array().unwrap().len(), 5000);
}

#[test]
fn estimates_are_limited_in_length_and_peers_take_turns() {
    let mut bench = busy(600);
    bench.scheduler.set_estimate_limit(10_000);
    let named = json!({"id": 3});
    send(&mut bench, 1, b"a", "sched.estimate", &json!({}));
    send(
        &mut bench,
        2,
        b"a",
        "sched.estimate",
        &json!({"max_entries": 100}),
    );
    send(&mut bench, 3, b"b", "sched.estimate", &named);
    bench.scheduler.schedule(1000.0);
    while bench.scheduler.advance_forecasts(1000.0) {}
    let answers = bench.scheduler.take_out();
    let found: Vec<_> = answers
        .iter()
        .map(|answer| (answer.matchtag, answer.errnum()))
        .collect();
    assert_eq!(found, [(1, EOVERFLOW), (3, 0), (2, 0)]);
    let text = answers[0].error_text().unwrap();
    assert!(
        text.contains("600 jobs are longer than 10000 bytes"),
        "{text}"
    );
    assert_eq!(body(&answers[2])["jobs"].as_array().unwrap().len(), 100);
}

#[test]
fn jobs_without_an_estimate_have_reasons_and_a_disconnect_drops_requests() {
    let mut bench = busy(600);
    bench.answer("resource.acquire", &json!({"down": "0-1"}));
    let all = owner(&mut bench, "sched.estimate", &json!({}));
    let jobs = all["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 600);
    for job in jobs {
        assert_eq!(job["start"], Value::Null);
        assert!(!job["reason"].as_str().unwrap().is_empty());
    }
    send(&mut bench, 1, b"a", "sched.estimate", &json!({}));
    send(&mut bench, 1, b"b", "sched.what-if", &json!({"fit": 3}));
    bench.scheduler.schedule(1000.0);
    assert!(bench.scheduler.advance_forecasts(1000.0));
    for origin in [b"a", b"b"] {
        send(&mut bench, 0, origin, "sched.disconnect", &json!({}));
    }
    assert!(!bench.scheduler.advance_forecasts(1000.0));
    assert_eq!(bench.scheduler.take_out(), []);
}

/// A request of a user, of which a clone shares the payload.
fn estimate_as(userid: u32, rolemask: u32, payload: &str) -> Message {
    let mut request = Message::request("sched.estimate", payload).with_matchtag(1);
    (request.userid, request.rolemask) = (userid, rolemask);
    request.push_route(b"a");
    request
}

/// The error for one more request, if it is rejected at once.
fn rejection(bench: &mut Bench, request: &Message) -> Option<String> {
    bench.scheduler.handle(request);
    let answer = bench.scheduler.take_out().pop()?;
    assert_eq!(answer.errnum(), EAGAIN);
    Some(answer.error_text().unwrap().into_owned())
}

fn limit_text(limit: &str) -> String {
    let rest = "are outstanding: send the request again after a response";
    format!("sched.estimate: at most {limit} {rest}")
}

#[test]
fn requests_for_forecasts_are_limited_in_number() {
    let mut bench = busy(2);
    let users = [(1, GUEST), (2, GUEST), (3, GUEST), (4, GUEST), (7, OWNER)];
    for (user, role) in users {
        let request = estimate_as(user, role, "{\"id\":3}");
        for _ in 0..256 {
            assert_eq!(rejection(&mut bench, &request), None);
        }
        let limit = format!("256 requests for forecasts of user {user}");
        assert_eq!(rejection(&mut bench, &request), Some(limit_text(&limit)));
    }
    let another = estimate_as(5, GUEST, "{}");
    let limit = "1024 requests for forecasts of guests";
    assert_eq!(rejection(&mut bench, &another), Some(limit_text(limit)));
    bench.scheduler.schedule(1000.0);
    while bench.scheduler.advance_forecasts(1000.0) {}
    assert_eq!(bench.scheduler.take_out().len(), 5 * 256);
}

#[test]
fn requests_for_forecasts_are_limited_in_bytes() {
    let mut bench = busy(2);
    // Two are longer than a user's limit, and eight than that of guests.
    let payload = format!("{{}}{}", " ".repeat((32 << 20) + 1));
    let mut request = estimate_as(0, GUEST, &payload);
    for user in 0..7 {
        request.userid = user;
        assert_eq!(rejection(&mut bench, &request), None);
        let limit = format!("67108864 bytes of requests for forecasts of user {user}");
        assert_eq!(rejection(&mut bench, &request), Some(limit_text(&limit)));
    }
    request.userid = 7;
    let limit = "268435456 bytes of requests for forecasts of guests";
    assert_eq!(rejection(&mut bench, &request), Some(limit_text(limit)));
    request.rolemask = OWNER;
    assert_eq!(rejection(&mut bench, &request), None);
}

#[test]
fn a_what_if_query_changes_nothing() {
    let mut bench = busy(2);
    let before = format!("{:?}", bench.scheduler.engine());
    let mut what_if = |change: Value| owner(&mut bench, "sched.what-if", &change);
    let answer = what_if(json!({"submit": jobspec(1)}));
    assert_eq!(answer["start"], 1060.0 + 60.0);
    let answer = what_if(json!({"submit": jobspec(1), "urgency": 31}));
    assert_eq!(
        (&answer["start"], &answer["ranks"]),
        (&json!(1060.0), &json!("0"))
    );
    assert_eq!(
        answer["moved"],
        json!([{"id": 4, "before": 1060.0, "after": 1120.0}])
    );
    let answer = what_if(json!({"submit": jobspec(1), "urgency": 0}));
    assert_eq!(
        answer,
        json!({"text": "would be held until it is released", "start": null, "moved": []})
    );
    let answer = what_if(json!({"cancel": 1}));
    assert_eq!(
        answer["moved"][0],
        json!({"id": 3, "before": 1060.0, "after": 1000.0})
    );
    let answer = what_if(json!({"down": "0-1"}));
    assert_eq!(
        answer["moved"][1],
        json!({"id": 4, "before": 1060.0, "after": null})
    );
    let answer = what_if(json!({"job": 3, "duration": 5}));
    assert_eq!(answer["start"], 1060.0);
    let answer = what_if(json!({"fit": 3}));
    assert_eq!(
        answer["text"],
        "would not start now with any number of slots"
    );
    assert_eq!(format!("{:?}", bench.scheduler.engine()), before);
    for (change, text) in [
        (
            json!({"submit": jobspec(3)}),
            "3 cores per slot requested, no node has more than 2",
        ),
        (json!({"submit": {}}), "`submit`: invalid jobspec"),
        (
            json!({"submit": jobspec(1), "urgency": 32}),
            "`urgency`: expected 0 to 31, found 32",
        ),
        (json!({"cancel": 77}), "`cancel`: ƒ"),
        (
            json!({"down": "0-2"}),
            "`down`: ranks 2 are not in the inventory",
        ),
        (json!({"up": "x"}), "`up`: "),
        (json!({"job": 1, "nodes": 1}), "`job`: ƒ"),
        (json!({"job": 3, "nodes": 0}), "`nodes`: expected 1 to"),
        (
            json!({"job": 3, "duration": -1}),
            "`duration`: expected a number of seconds",
        ),
        (json!({"fit": 1}), "`fit`: ƒ"),
    ] {
        let answer = request_as(&mut bench, "sched.what-if", &change, 0, OWNER);
        let error = answer.error_text().unwrap_or_default().into_owned();
        assert_eq!(answer.errnum(), EINVAL);
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn a_guest_may_query_its_own_jobs_only() {
    let mut bench = busy(2);
    for topic in ["sched.explain", "sched.estimate"] {
        let answer = body(&request_as(
            &mut bench,
            topic,
            &json!({"ids": [3, 4]}),
            103,
            GUEST,
        ));
        assert_eq!(answer["jobs"].as_array().unwrap().len(), 1);
        assert_eq!(answer["jobs"][0]["id"], 3);
        assert!(
            answer["errors"]["4"]
                .as_str()
                .unwrap()
                .contains("another user's")
        );
    }
    for (topic, payload) in [
        ("sched.estimate", json!({})),
        ("sched.what-if", json!({"cancel": 3})),
        ("sched.config-reload", json!({"policy": "fcfs"})),
    ] {
        assert_eq!(
            request_as(&mut bench, topic, &payload, 103, GUEST).errnum(),
            EPERM,
            "{topic}"
        );
    }
}

#[test]
fn answers_to_a_guest_name_no_job_that_it_cannot_list() {
    let mut bench = busy(2);
    alloc(&mut bench, 5, 2, 103);
    let before = |text: &Value| {
        let text = text.as_str().unwrap();
        let (_, before) = text.rsplit_once("; ").unwrap();
        before.to_owned()
    };
    let reasons = |annotations: Vec<(u64, Value)>| -> Vec<String> {
        let later = annotations.iter().filter(|(id, _)| *id > 3);
        later
            .map(|(_, annotations)| before(&annotations["reason_pending"]))
            .collect()
    };
    let (hidden, named) = ("another user's job is before it", "ƒ4 is before it");
    // Job 3 is before job 4 of another user, and before job 5 of the same one.
    assert_eq!(reasons(annotate(&mut bench, 1000.0)), [hidden, named]);
    let explain = |bench: &mut Bench, id: u64, userid: u32, rolemask: u32| {
        let request = request_as(bench, "sched.explain", &json!({"id": id}), userid, rolemask);
        let job = body(&request)["jobs"][0].clone();
        (before(&job["reason"]), job["details"]["behind"].clone())
    };
    let hidden_job = (hidden.to_owned(), Value::Null);
    let named_job = (named.to_owned(), json!(3));
    assert_eq!(explain(&mut bench, 4, 104, GUEST), hidden_job);
    assert_eq!(explain(&mut bench, 5, 103, GUEST), named_job);
    assert_eq!(explain(&mut bench, 4, 0, OWNER), named_job);
    let settings = json!({"job-visibility": "all"});
    owner(&mut bench, "sched.config-reload", &settings);
    assert_eq!(explain(&mut bench, 4, 104, GUEST), named_job);
    assert_eq!(reasons(annotate(&mut bench, 1001.0)), [named]);
}

#[test]
fn an_invalid_query_is_rejected_with_the_key() {
    let mut bench = busy(1);
    for (topic, payload, errnum, text) in [
        (
            "sched.explain",
            json!({}),
            EPROTO,
            "sched.explain: expected `ids` or `id`",
        ),
        (
            "sched.explain",
            json!({"ids": 3}),
            EPROTO,
            "sched.explain: `ids`: expected an array, found integer `3`",
        ),
        (
            "sched.explain",
            json!([]),
            EPROTO,
            "sched.explain: expected an object, found an array",
        ),
        (
            "sched.estimate",
            json!({"max_entries": "x"}),
            EPROTO,
            "sched.estimate: `max_entries`: expected a non-negative integer",
        ),
        (
            "sched.what-if",
            json!({"duration": 5}),
            EPROTO,
            "sched.what-if: expected one of `submit`",
        ),
        (
            "sched.what-if",
            json!({"job": 3}),
            EPROTO,
            "sched.what-if: `job`: expected `nodes` or `duration` with it",
        ),
        (
            "sched.config-reload",
            json!({"policy": "x"}),
            EINVAL,
            "policy: ",
        ),
    ] {
        let answer = request_as(&mut bench, topic, &payload, 0, OWNER);
        let error = answer.error_text().unwrap_or_default().into_owned();
        assert_eq!(answer.errnum(), errnum, "{topic}");
        assert!(error.starts_with(text), "{error}");
    }
    let mut early = Bench::running(None, &[]);
    let answer = request_as(&mut early, "sched.estimate", &json!({}), 0, OWNER);
    assert_eq!(answer.errnum(), EAGAIN);
}

#[test]
fn starts_are_compared_with_their_estimates() {
    let mut bench = busy(1);
    annotate(&mut bench, 1000.0);
    // Expected at 1060, it starts at 1000: everybody in these tests does.
    bench.request(
        "sched.free",
        &json!({"id": 1, "R": inventory(), "final": true}),
    );
    let stats = owner(&mut bench, "sched.stats-get", &json!({}));
    assert_eq!(stats["estimates"]["count"], 1);
    assert_eq!(stats["estimates"]["mean"], -60.0);
}

/// A job for both nodes.
fn wide() -> Value {
    let mut spec = jobspec(2);
    spec["resources"][0]["count"] = 2.into();
    spec
}

fn submit(bench: &mut Bench, id: u64, mut spec: Value, queue: &str) {
    spec["attributes"]["system"]["queue"] = queue.into();
    let payload = json!({"id": id, "priority": 16, "userid": 0, "jobspec": spec});
    bench.request("sched.alloc", &payload);
}

#[test]
fn a_changed_policy_applies_from_the_next_pass() {
    let mut bench = Bench::ready(None, &[]);
    owner(
        &mut bench,
        "sched.config-reload",
        &json!({"policy": "fcfs"}),
    );
    submit(&mut bench, 1, jobspec(2), "");
    bench.commit();
    submit(&mut bench, 2, wide(), "");
    submit(&mut bench, 3, jobspec(1), "");
    assert!(
        bench
            .outstanding
            .iter()
            .all(|message| message.topic() != "kvs.commit")
    );
    owner(
        &mut bench,
        "sched.config-reload",
        &json!({"policy": "easy"}),
    );
    assert_eq!(body(&bench.commit()[0])["id"], 3);
}

#[test]
fn a_queue_with_a_group_of_its_own_is_not_blocked_by_others() {
    let mut bench = Bench::ready(None, &[]);
    let settings = json!({"policy": "fcfs", "queues": {"b": {"group": "b"}}});
    owner(&mut bench, "sched.config-reload", &settings);
    submit(&mut bench, 1, jobspec(2), "a");
    bench.commit();
    submit(&mut bench, 2, wide(), "a");
    submit(&mut bench, 3, jobspec(1), "c");
    submit(&mut bench, 4, jobspec(1), "b");
    let ids: Vec<Value> = bench
        .commit()
        .iter()
        .map(|message| body(message)["id"].clone())
        .collect();
    assert_eq!(ids, [4]);
}

#[test]
fn the_state_of_resources_is_three_sets() {
    let mut bench = Bench::ready(None, &[]);
    let ranks = |set: &Value| -> Vec<String> {
        let entries = set["execution"]["R_lite"].as_array().unwrap().iter();
        let ranks = entries.map(|entry| entry["rank"].as_str().unwrap().to_owned());
        ranks.collect()
    };
    alloc(&mut bench, 1, 2, 0);
    bench.commit();
    let status = body(&request_as(
        &mut bench,
        "sched.resource-status",
        &json!({}),
        GUEST,
        2,
    ));
    assert_eq!(
        status["all"]["execution"]["nodelist"],
        inventory()["execution"]["nodelist"]
    );
    assert_eq!(ranks(&status["all"]), ["0-1"]);
    assert_eq!(ranks(&status["allocated"]).len(), 1);
    assert!(ranks(&status["down"]).is_empty());
}
