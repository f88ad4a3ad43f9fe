//! Submissions: signed ones as Flux's tools send them, and dependencies.

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::{Bench, Directory, OWNER, body, jobspec, rejection, settings, topics};
use penstock_flux::RequestError;
use penstock_flux::limits::{MAX_FRAME_BYTES, MAX_JOBSPEC_BYTES};
use penstock_manager::{Quota, Settings};
use serde_json::{Value, json};

fn signed(userid: u32, spec: &Value) -> String {
    let header = format!("version\0i1\0userid\0i{userid}\0mechanism\0snone\0");
    let payload = BASE64.encode(spec.to_string());
    format!("{}.{payload}.none", BASE64.encode(header))
}

#[test]
fn a_submission_recorded_from_flux_is_taken() {
    let vectors = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/flux-wire/client.jsonl"
    );
    let text = std::fs::read_to_string(vectors).unwrap();
    let frames = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let submissions = frames.filter(|frame| {
        let message = &frame["message"];
        message["topic"] == "job-ingest.submit" && message["type"] == "request"
    });
    let mut bench = Bench::with(Settings {
        owner: 0,
        ..settings()
    });
    let mut taken = 0;
    for frame in submissions {
        let payload = &frame["message"]["payload"];
        let out = bench.request_as("flux", 0, "job-ingest.submit", payload, 0);
        assert!(body(&out[0])["id"].is_u64(), "{payload}");
        taken += 1;
    }
    assert!(taken > 3);
}

#[test]
fn the_size_of_a_jobspec_is_limited_by_user() {
    let limits = Quota {
        jobspec_bytes: 3000,
        guest_jobspec_bytes: 2000,
        ..settings().quota
    };
    let mut bench = Bench::with(Settings {
        guests: true,
        quota: limits,
        ..settings()
    });
    let sized = |bytes: usize| {
        let with = |padding: String| jobspec(&json!({ "padding": padding }));
        let bare = with(String::new()).to_string().len();
        with("x".repeat(bytes - bare))
    };
    for (userid, limit) in [(OWNER, 3000), (OWNER + 1, 2000)] {
        let mut submit = |spec: &Value| {
            let payload = json!({ "jobspec": spec });
            bench.request_as("user", userid, "job-ingest.submit", &payload, 0)
        };
        assert!(body(&submit(&sized(limit))[0])["id"].is_u64());
        let (errnum, text) = rejection(&submit(&sized(limit + 1)));
        let found = limit + 1;
        let expected = format!(
            "the jobspec is too large: expected at most {limit} bytes of JSON, found {found}"
        );
        assert_eq!((errnum, text), (22, expected));
    }
}

#[test]
fn the_notation_of_numbers_evades_no_limit() {
    let mut bench = Bench::new();
    let numbers = format!("[{}]", vec!["1e15"; 1_000_000].join(","));
    let text = jobspec(&json!({"x": "NUMBERS"}))
        .to_string()
        .replace("\"NUMBERS\"", &numbers);
    let payload = format!("{{\"jobspec\":{text}}}");
    let out = bench.request_text("client", OWNER, "job-ingest.submit", &payload, 0);
    let (errnum, text) = rejection(&out);
    assert_eq!(errnum, 22);
    assert!(text.starts_with("the jobspec is too large: "), "{text}");
}

fn jobs(bench: &mut Bench) -> usize {
    let out = bench.request("job-list.job-stats", &json!({}));
    usize::try_from(body(&out[0])["job_states"]["total"].as_u64().unwrap()).unwrap()
}

#[test]
fn a_repeated_submission_adds_no_jobs() {
    let files = Directory::new("repeated-submission");
    let limits = Settings {
        guests: true,
        ..settings()
    };
    let mut bench = files.open(limits.clone(), 1000.0);
    let spec = jobspec(&json!({}));
    let requests = [
        json!({"jobspec": spec, "token": "a"}),
        json!({"jobspec": spec, "token": "b", "count": 3000}),
        json!({"token": "c", "independent": true, "jobs": [{"jobspec": spec, "count": 2}, {"jobspec": {}}, {"jobspec": spec}]}),
        json!({"token": "d", "independent": true, "jobs": [{"jobspec": spec}, {"jobspec": spec, "count": 1}, {"jobspec": spec, "count": 2},
            {"jobspec": spec}, {"jobspec": {}}, {"jobspec": spec}, {"jobspec": spec}]}),
    ];
    let submit = |bench: &mut Bench, user: u32, request: &Value| {
        let mut out = bench.request_as("user", user, "job-ingest.submit", request, 0);
        out.extend(bench.advance());
        body(&out[0])
    };
    let first: Vec<Value> = requests
        .iter()
        .map(|request| submit(&mut bench, OWNER, request))
        .collect();
    assert_eq!(jobs(&mut bench), 1 + 3000 + 3 + 7);
    for (request, response) in requests.iter().zip(&first) {
        assert_eq!(submit(&mut bench, OWNER, request), *response);
    }
    assert_eq!(jobs(&mut bench), 3011);
    // Another user has other tokens.
    assert_ne!(submit(&mut bench, OWNER + 1, &requests[0]), first[0]);
    // After a restart, too, and for a day.
    let now = bench.now;
    drop(bench);
    let (mut bench, _) = files.reopen(limits, now);
    for (request, response) in requests.iter().zip(&first) {
        assert_eq!(submit(&mut bench, OWNER, request), *response);
    }
    let mut other = requests[0].clone();
    other["urgency"] = 3.into();
    let out = bench.request("job-ingest.submit", &other);
    assert_eq!(
        rejection(&out),
        (17, "token `a` names another submission".to_owned())
    );
    assert_eq!(jobs(&mut bench), 3012);
    bench.pass(86_400.0);
    assert_ne!(submit(&mut bench, OWNER, &requests[0]), first[0]);
    assert_eq!(jobs(&mut bench), 3013);
}

#[test]
fn a_rejected_submission_can_be_repeated() {
    let mut bench = Bench::new();
    let submit = |bench: &mut Bench, request: &Value| bench.request("job-ingest.submit", request);
    let request = json!({"jobspec": jobspec(&json!({})), "token": "a"});
    bench
        .manager
        .set_rejection(Some(RequestError::new(11, "not now")));
    let (errnum, text) = rejection(&submit(&mut bench, &request));
    assert_eq!((errnum, text.as_str()), (11, "not now"));
    bench.manager.set_rejection(None);
    let id = body(&submit(&mut bench, &request)[0]);
    bench
        .manager
        .set_rejection(Some(RequestError::new(11, "not now")));
    assert_eq!(body(&submit(&mut bench, &request)[0]), id);
}

#[test]
fn a_token_is_short_and_names_a_whole_request() {
    let mut bench = Bench::new();
    for token in [String::new(), "x".repeat(65)] {
        let request = json!({"jobspec": jobspec(&json!({})), "token": token});
        let (errnum, text) = rejection(&bench.request("job-ingest.submit", &request));
        assert_eq!(
            (errnum, text.as_str()),
            (22, "expected a `token` of 1 to 64 bytes")
        );
    }
    let request = json!({"jobs": [{"jobspec": jobspec(&json!({})), "token": "a"}]});
    let out = bench.request("job-ingest.submit", &request);
    let text = "no job is submitted: jobs[0]: a `token` names the whole request: expected it beside `jobs`";
    assert_eq!(rejection(&out), (71, text.to_owned()));
}

#[test]
fn names_are_short() {
    let mut bench = Bench::new();
    let long = "x".repeat(4097);
    for (key, system) in [
        ("job.name", json!({"job": {"name": long}})),
        ("cwd", json!({ "cwd": long })),
        ("project", json!({ "project": long })),
        ("bank", json!({ "bank": long })),
    ] {
        let payload = json!({"jobspec": jobspec(&system)});
        let (errnum, text) = rejection(&bench.request("job-ingest.submit", &payload));
        let expected =
            format!("attributes.system.{key} is too long: expected at most 4096 bytes, found 4097");
        assert_eq!((errnum, text), (22, expected));
    }
    let mut spec = jobspec(&json!({}));
    spec["tasks"][0]["command"] = json!(["/bin/".to_owned() + &"ƒ".repeat(3000)]);
    let out = bench.request("job-ingest.submit", &json!({ "jobspec": spec }));
    let id = body(&out[0])["id"].as_u64().unwrap();
    assert_eq!(bench.row(id)["name"], "ƒ".repeat(127));
}

#[test]
fn urgency_and_flags_go_beside_a_signed_jobspec() {
    let mut bench = Bench::new();
    let payload = json!({"J": signed(OWNER, &jobspec(&json!({}))), "urgency": 0, "flags": 1});
    let out = bench.request("job-ingest.submit", &payload);
    let id = body(&out[0])["id"].as_u64().unwrap();
    let context = bench.log(id)[0]["context"].clone();
    let expected = json!({"userid": OWNER, "urgency": 0, "flags": 1, "version": 1});
    assert_eq!(context, expected);
    assert_eq!(bench.row(id)["priority"], 0);
    let out = bench.request("job-info.lookup", &json!({"id": id, "keys": ["jobspec"]}));
    let text = body(&out[0])["jobspec"].as_str().unwrap().to_owned();
    // With the defaults of Flux's shell.
    let options = json!({"input": {"stdin": {"type": "service"}}, "signal-exit-code": true});
    let shell = json!({ "options": options });
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap(),
        jobspec(&json!({ "shell": shell }))
    );
}

#[test]
fn no_user_submits_in_the_name_of_another() {
    let mut bench = Bench::with(Settings {
        guests: true,
        ..settings()
    });
    for signer in [OWNER, 0, 8] {
        let payload = json!({"J": signed(signer, &jobspec(&json!({})))});
        let out = bench.request_as("guest", 7, "job-ingest.submit", &payload, 0);
        assert_eq!(rejection(&out).0, 1, "{signer}");
    }
    let payload = json!({"J": signed(7, &jobspec(&json!({})))});
    let out = bench.request_as("guest", 7, "job-ingest.submit", &payload, 0);
    let id = body(&out[0])["id"].as_u64().unwrap();
    assert_eq!(bench.row(id)["userid"], 7);
    for (wrong, errnum) in [
        (json!({"J": "x"}), 22),
        (json!({"J": signed(OWNER, &json!({"version": 9}))}), 22),
        (
            json!({"J": signed(OWNER, &jobspec(&json!({}))), "jobspec": jobspec(&json!({}))}),
            71,
        ),
        (json!({}), 71),
    ] {
        assert_eq!(
            rejection(&bench.request("job-ingest.submit", &wrong)).0,
            errnum,
            "{wrong}"
        );
    }
}

#[test]
fn guests_stay_at_urgency_16_and_depend_on_their_own_jobs_only() {
    let mut bench = Bench::with(Settings {
        guests: true,
        ..settings()
    });
    let mut submit = |userid: u32, urgency: i64, after: Option<u64>| {
        let dependencies: Vec<_> = after
            .iter()
            .map(|id| json!({"scheme": "afterany", "value": id.to_string()}))
            .collect();
        let system = if dependencies.is_empty() {
            json!({})
        } else {
            json!({ "dependencies": dependencies })
        };
        let payload = json!({"jobspec": jobspec(&system), "urgency": urgency});
        let out = bench.request_as("x", userid, "job-ingest.submit", &payload, 0);
        match out[0].errnum() {
            0 => Ok(body(&out[0])["id"].as_u64().unwrap()),
            errnum => Err(errnum),
        }
    };
    let owners = submit(OWNER, 31, None).unwrap();
    let guests = submit(7, 16, None).unwrap();
    assert_eq!(submit(7, 17, None), Err(1));
    assert_eq!(submit(OWNER, 32, None), Err(22));
    assert_eq!(submit(7, 16, Some(owners)), Err(1));
    assert_eq!(submit(8, 16, Some(guests)), Err(1));
    submit(7, 16, Some(guests)).unwrap();
    submit(OWNER, 16, Some(guests)).unwrap();
}

fn depending(bench: &mut Bench, scheme: &str, on: u64) -> u64 {
    let dependencies = json!([{"scheme": scheme, "value": on.to_string()}]);
    let (id, _) = bench.submit(&json!({ "dependencies": dependencies }));
    bench.advance();
    id
}

/// Each scheme on a job that ended well, badly, or without having run: 8 is SCHED, 64 INACTIVE.
#[test]
fn dependencies_on_jobs_that_are_over_are_satisfied_in_the_next_slice() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let well = bench.running(&json!({}));
    bench.end(well, 0);
    let badly = bench.running(&json!({}));
    bench.end(badly, 256);
    let (never, _) = bench.submit(&json!({}));
    bench.request("job-manager.raise", &json!({"id": never, "type": "cancel"}));
    bench.answer("sched.alloc", &json!({"id": never, "type": 3}));
    let cases = [
        ("after", [8, 8, 64]),
        ("afterany", [8, 8, 8]),
        ("afterok", [8, 64, 64]),
        ("afternotok", [64, 8, 8]),
    ];
    for (scheme, states) in cases {
        for (on, state) in [well, badly, never].into_iter().zip(states) {
            let id = depending(&mut bench, scheme, on);
            let row = bench.row(id);
            assert_eq!(row["state"], state, "{scheme} {on}");
            if state == 64 {
                assert_eq!(row["exception_type"], "dependency", "{scheme}");
            }
            let add = &bench.log(id)[2];
            assert_eq!(add["name"], "dependency-add");
            let description = add["context"]["description"].as_str().unwrap();
            assert!(
                description.starts_with(&format!("{scheme}=")),
                "{description}"
            );
        }
    }
}

#[test]
fn an_added_dependency_is_removed_under_the_same_description() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let first = bench.running(&json!({}));
    let second = depending(&mut bench, "afterok", first);
    assert_eq!(
        bench.row(second)["dependencies"].as_array().unwrap().len(),
        1
    );
    bench.end(first, 0);
    bench.advance();
    let log = bench.log(second);
    let described = |name: &str| {
        let event = log.iter().find(|event| event["name"] == name).unwrap();
        event["context"]["description"].clone()
    };
    assert_eq!(described("dependency-add"), described("dependency-remove"));
    assert_eq!(bench.row(second).get("dependencies"), None);
}

/// The keys of the jobspecs in the store, job by job.
fn jobspec_keys(bench: &mut Bench) -> Vec<i64> {
    let jobs = bench.manager.store().jobs().unwrap().records;
    jobs.iter().map(|job| job.row.spec).collect()
}

#[test]
fn submissions_of_equal_texts_share_one_jobspec_until_the_last_job_is_purged() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let mut ended = || {
        let id = bench.running(&json!({}));
        bench.end(id, 0);
        id
    };
    let ids = [ended(), ended()];
    let (other, _) = bench.submit(&json!({"cwd": "/tmp"}));
    let keys = jobspec_keys(&mut bench);
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
    // An update gives a job a jobspec of its own.
    let update = json!({"id": other, "updates": {"attributes.system.duration": 60.0}});
    bench.request("job-manager.update", &update);
    let (again, _) = bench.submit(&json!({"cwd": "/tmp"}));
    assert_eq!(bench.row(other)["duration"], 60.0);
    assert_eq!(bench.row(again)["duration"], 0.0);
    for (index, id) in ids.iter().enumerate() {
        let purge = json!({"ids": [id], "force": true});
        assert_eq!(
            body(&bench.request("job-manager.purge", &purge)[0])["count"],
            1
        );
        let text = bench.manager.store().jobspec(keys[0]).unwrap();
        assert_eq!(text.is_some(), index == 0, "after the purge of job {index}");
    }
    let (id, _) = bench.submit(&json!({}));
    let lookup = json!({"id": id, "keys": ["jobspec", "J"]});
    let found = body(&bench.request("job-info.lookup", &lookup)[0]);
    let document: Value = serde_json::from_str(found["jobspec"].as_str().unwrap()).unwrap();
    assert_eq!(document, jobspec(&json!({})));
    assert_eq!(found["J"], signed(OWNER, &document));
}

#[test]
fn an_equal_submission_gets_the_defaults_and_limits_of_its_time() {
    let with = |duration: f64, limit: f64| -> Settings {
        let settings = json!({
            "owner": OWNER, "queues": {"batch": {}}, "default_queue": "batch",
            "default_duration": duration, "limits": {"duration": limit},
        });
        Settings::from_json(&settings.to_string()).unwrap()
    };
    let mut bench = Bench::with(with(60.0, 100.0));
    let (first, _) = bench.submit(&json!({}));
    let now = bench.now;
    bench.manager.set_settings(with(90.0, 100.0), now);
    let (second, _) = bench.submit(&json!({}));
    assert_eq!(bench.row(first)["duration"], 60.0);
    assert_eq!(bench.row(second)["duration"], 90.0);
    bench.manager.set_settings(with(90.0, 80.0), now);
    let payload = json!({"jobspec": jobspec(&json!({}))});
    let (errnum, text) = rejection(&bench.request("job-ingest.submit", &payload));
    assert_eq!(errnum, 22, "{text}");
    bench.manager.set_settings(with(90.0, 100.0), now);
    bench.submit(&json!({}));
    let off = json!({"name": "batch", "enable": false, "reason": "full moon"});
    bench.request("job-manager.queue-enable", &off);
    let (_, text) = rejection(&bench.request("job-ingest.submit", &payload));
    assert_eq!(
        text,
        "job submission to queue `batch` is disabled: full moon"
    );
}

#[test]
fn dependencies_of_an_equal_submission_are_checked_again() {
    let mut bench = Bench::with(Settings {
        guests: true,
        ..settings()
    });
    let (first, _) = bench.submit(&json!({}));
    depending(&mut bench, "afterok", first);
    let dependency = json!([{"scheme": "afterok", "value": first.to_string()}]);
    let payload = json!({"jobspec": jobspec(&json!({"dependencies": dependency}))});
    let out = bench.request_as("guest", 7, "job-ingest.submit", &payload, 0);
    let (errnum, text) = rejection(&out);
    assert_ne!(errnum, 0, "{text}");
}

#[test]
fn a_clock_beyond_the_range_of_ids_rejects_submissions_until_it_is_correct() {
    const YEAR: f64 = 365.25 * 86_400.0;
    let mut bench = Bench::new();
    let submission = json!({"jobspec": jobspec(&json!({})), "count": 2});
    let mut ids = Vec::new();
    for ahead in [0.0, 20.0, 35.0, 1e9, 0.0, 34.8] {
        bench.now = 1000.0 + ahead * YEAR;
        let out = bench.request("job-ingest.submit", &submission);
        if ahead > 34.9 {
            let (errnum, text) = rejection(&out);
            assert_eq!(errnum, 75);
            assert!(
                text.starts_with("job ids are exhausted: the clock is "),
                "{text}"
            );
        } else {
            ids.extend(body(&out[0])["ids"].as_array().unwrap().clone());
        }
    }
    let ids: Vec<u64> = ids.iter().filter_map(Value::as_u64).collect();
    assert_eq!(ids.len(), 8);
    assert!(
        ids.is_sorted_by(|earlier, later| earlier < later),
        "{ids:?}"
    );
}

#[test]
fn every_message_about_the_largest_jobspec_fits_a_frame() {
    // As a string in JSON, each character of this text takes two.
    let with = |length: usize| jobspec(&json!({"environment": {"X": "\"".repeat(length)}}));
    let bare = with(0).to_string().len();
    let largest = with((MAX_JOBSPEC_BYTES - bare) / 2);
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let mut out = bench.request("job-ingest.submit", &json!({ "jobspec": largest }));
    let id = body(&out[0])["id"].as_u64().unwrap();
    out.extend(bench.allocate(id));
    let lookup = json!({"id": id, "keys": ["jobspec", "R", "eventlog"], "flags": 0});
    out.extend(bench.request("job-info.lookup", &lookup));
    let sent = topics(&out);
    for topic in ["sched.alloc", "job-exec.start"] {
        assert!(sent.contains(&topic), "{topic}: {sent:?}");
    }
    for message in &out {
        let length = message.encoded_len() - 8;
        assert!(length <= MAX_FRAME_BYTES, "{}: {length}", message.topic());
    }
    let longest = out.iter().map(penstock_wire::Message::encoded_len).max();
    assert!(longest.is_some_and(|length| length > MAX_JOBSPEC_BYTES));
}

/// A list of this many invalid submissions.
fn zeros(count: usize) -> Vec<Value> {
    vec![json!(0); count]
}

#[test]
fn the_submissions_of_a_request_are_limited() {
    let valid = json!({"jobspec": jobspec(&json!({}))});
    let mut bench = Bench::new();
    let independent = |count: usize| {
        let mut jobs = zeros(count - 1);
        jobs.push(valid.clone());
        json!({"token": "a", "independent": true, "jobs": jobs})
    };
    let too_many = "`jobs` has 50001 independent submissions: expected at most 50000 in a request";
    let out = bench.request("job-ingest.submit", &independent(50_001));
    assert_eq!(rejection(&out), (22, too_many.to_owned()));
    let part = json!({"token": "b", "part": 0, "jobs": zeros(500_001)});
    let list = json!({"token": "b", "jobs": zeros(500_001)});
    for (topic, payload) in [("submit", list), ("submit-part", part)] {
        let out = bench.request(&format!("job-ingest.{topic}"), &payload);
        let (errnum, text) = rejection(&out);
        assert_eq!(errnum, 71);
        let expected = "`jobs`: expected at most 500000 entries";
        assert!(text.ends_with(expected), "{text}");
    }
    let stats = body(&bench.request("job-list.job-stats", &json!({}))[0]);
    assert_eq!(stats["job_states"]["total"], 0);
    // The token is unused, and a list in the limits is read to its end.
    let mut out = bench.request("job-ingest.submit", &independent(50_000));
    while out.is_empty() {
        out.extend(bench.pass(0.0));
    }
    let results = body(&out[0])["results"].clone();
    assert_eq!(results.as_array().map(Vec::len), Some(50_000));
    assert!(results[49_999]["ids"].is_array() && results[0]["error"].is_string());
}

#[test]
fn the_reasons_in_a_response_are_bounded_as_json() {
    let mut bench = Bench::new();
    // In JSON each character takes six.
    let queue = json!({"queue": "\u{1}".repeat(900)});
    let invalid = json!({"jobspec": jobspec(&queue)});
    let jobs = vec![invalid; 2000];
    let mut out = bench.request(
        "job-ingest.submit",
        &json!({"independent": true, "jobs": jobs}),
    );
    while out.is_empty() {
        out.extend(bench.pass(0.0));
    }
    let response = &out[0];
    let first = body(response)["results"][0]["error"].as_str().map(str::len);
    assert!(first.is_some_and(|length| length > 900), "{first:?}");
    let length = response.payload.as_deref().map_or(0, <[u8]>::len);
    assert!(length < (1 << 20) + 2000 * 110, "{length}");
}

#[test]
fn no_more_is_read_of_a_peer_with_much_memory_of_short_submissions() {
    let mut bench = Bench::new();
    let valid = json!({"jobspec": jobspec(&json!({}))});
    let mut jobs = vec![valid; 200];
    jobs.extend(zeros(499_000));
    bench.request("job-ingest.submit", &json!({ "jobs": jobs }));
    assert!(bench.manager.is_ahead(b"client") && !bench.manager.is_ahead(b"other"));
    bench.advance();
    assert!(!bench.manager.is_ahead(b"client"));
}

#[test]
fn the_names_in_a_request_are_limited() {
    let mut bench = Bench::new();
    let (id, _) = bench.submit(&json!({}));
    for (topic, key, name) in [
        ("job-list.list-id", "attrs", "state"),
        ("job-info.lookup", "keys", "jobspec"),
    ] {
        let mut request = |count: usize| {
            let payload = json!({"id": id, key: vec![name; count]});
            bench.request(topic, &payload)
        };
        assert_eq!(request(1000)[0].errnum(), 0);
        let text = format!("`{key}`: expected at most 1000 entries");
        let (errnum, found) = rejection(&request(1001));
        assert!(errnum == 71 && found.ends_with(&text), "{found}");
    }
}
