//! Lists with invalid submissions: rejected as a whole, or one by one if they are independent; responses and the store are bounded.

mod common;

use common::submissions::{
    JOBS, assert_discarded, copies, long_part, named, part, part_results, responses, send_part,
    submit_as, total,
};
use common::{Bench, Directory, OWNER, body, jobspec, rejection, settings};
use penstock_manager::{Quota, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

#[test]
fn an_invalid_submission_rejects_its_list() {
    for length in [8, JOBS] {
        let directory = Directory::new(&format!("invalid-list-{length}"));
        let mut bench = directory.open(settings(), 1000.0);
        let mut jobs = vec![named("a"); length];
        jobs[1]["count"] = 5.into();
        jobs[2] = json!({"jobspec": {}});
        jobs[5]["urgency"] = 32.into();
        jobs[length - 1] = json!({"jobspec": {}});
        let list = json!({"token": "a", "jobs": jobs});
        for _ in 0..2 {
            let mut out = submit_as(&mut bench, "client", &list);
            out.extend(bench.advance());
            let (errnum, text) = rejection(&out);
            assert_eq!(errnum, 22);
            let named = format!("no job is submitted: jobs[2,{}]: ", length - 1);
            assert!(text.starts_with(&named), "{text}");
            let urgency = "; jobs[5]: urgency 32 is out of range: expected 0 to 31";
            assert!(text.ends_with(urgency), "{text}");
            assert_eq!(total(&mut bench), 0);
        }
        // The token names nothing yet.
        assert_discarded(&mut bench);
        let now = bench.now;
        drop(bench);
        let mut bench = directory.open(settings(), now);
        assert_eq!(total(&mut bench), 2);
    }
}

#[test]
fn files_that_a_job_cannot_have_are_rejected_at_submission() {
    let mut bench = Bench::new();
    for (files, expected) in [
        (json!([]), "attributes.system.files: expected an object"),
        (
            json!({"a/../x": {"data": "x"}}),
            "file `a/../x`: expected a relative path without `..`",
        ),
        (
            json!({"x": {"mode": 0o010_600}}),
            "file `x`: mode 0o10600: expected a regular file, a directory or a link",
        ),
    ] {
        let spec = jobspec(&json!({ "files": files }));
        for submission in [
            json!({"jobspec": spec}),
            json!({"jobspec": spec, "cc": "1-2"}),
        ] {
            let out = bench.request("job-ingest.submit", &submission);
            assert_eq!(rejection(&out), (22, expected.to_owned()));
        }
    }
    let (id, _) = bench.submit(&json!({"files": {"x": {"mode": 0o100_600, "data": "x"}}}));
    assert_eq!(bench.row(id)["state"], 8);
}

#[test]
fn a_list_of_invalid_submissions_is_not_checked_to_its_end() {
    let mut bench = Bench::new();
    let list = json!({"jobs": vec![json!({"jobspec": {}}); 150]});
    let (_, text) = rejection(&submit_as(&mut bench, "client", &list));
    assert!(
        text.starts_with("no job is submitted: jobs[0-99]: "),
        "{text}"
    );
    assert!(
        text.ends_with("; jobs from 100 on were not checked"),
        "{text}"
    );
}

#[test]
fn an_invalid_submission_in_a_part_rejects_the_list_with_the_last_part() {
    let mut bench = Bench::new();
    let mut first = part(0, &["x", "y"], true);
    first["jobs"][1] = json!({"jobspec": {}});
    let results = part_results(&send_part(&mut bench, "client", &first));
    assert!(results[0].is_u64() && results[1].is_string());
    let mut last = part(1, &["z"], false);
    last["jobs"][0]["urgency"] = 99.into();
    let (errnum, text) = rejection(&send_part(&mut bench, "client", &last));
    assert_eq!(errnum, 22);
    assert!(
        text.contains("jobs[1]: ") && text.contains("; jobs[2]: "),
        "{text}"
    );
    assert_discarded(&mut bench);
}

#[test]
fn a_client_cancels_a_list() {
    let mut bench = Bench::new();
    send_part(&mut bench, "client", &long_part(0, "x", true));
    let abort = json!({"token": "a", "part": 1, "abort": true, "jobs": []});
    assert_eq!(
        rejection(&send_part(&mut bench, "client", &abort)),
        (125, "the client has cancelled the list".to_owned())
    );
    assert_eq!(
        rejection(&send_part(&mut bench, "client", &part(1, &["x"], false))).0,
        2
    );
    assert_discarded(&mut bench);
}

#[test]
fn a_malformed_abort_rejects_the_list() {
    let wrong_number = json!({"token": "a", "part": 7, "abort": true, "jobs": []});
    let with_more = json!({"token": "a", "part": 1, "abort": true, "more": true, "jobs": []});
    let with_jobs = json!({"token": "a", "part": 1, "abort": true, "jobs": [named("x")]});
    let reason = "part 1 of token `a` has `abort`: expected neither jobs nor `more`";
    for (wrong, expected) in [
        (wrong_number, "expected part 1 of the submission, found 7"),
        (with_more, reason),
        (with_jobs, reason),
    ] {
        let mut bench = Bench::new();
        send_part(&mut bench, "client", &part(0, &["x"], true));
        let (errnum, text) = rejection(&send_part(&mut bench, "client", &wrong));
        assert_eq!(errnum, 71, "{text}");
        assert!(text.contains(expected), "{text}");
        assert_discarded(&mut bench);
    }
}

#[test]
fn a_complete_list_cannot_be_cancelled() {
    let mut bench = Bench::new();
    send_part(&mut bench, "client", &part(0, &["x"], false));
    send_part(&mut bench, "client", &part(0, &["x"], true));
    let abort = json!({"token": "a", "part": 1, "abort": true, "jobs": []});
    let (errnum, text) = rejection(&send_part(&mut bench, "client", &abort));
    assert_eq!(
        (errnum, text.as_str()),
        (17, "token `a` names another submission")
    );
    assert_eq!(total(&mut bench), 1);
}

/// Submissions with queues of these long names, which differ at their beginning.
fn with_long_queues(count: usize, bytes: usize) -> Vec<Value> {
    let queues = (0..count).map(|number| format!("{number}-{}", "ƒ".repeat(bytes / 2)));
    queues
        .map(|queue| json!({"jobspec": jobspec(&json!({ "queue": queue }))}))
        .collect()
}

#[test]
fn error_texts_of_a_list_are_cut() {
    let mut bench = Bench::new();
    let jobs = with_long_queues(40, 100_000);
    let (_, text) = rejection(&submit_as(&mut bench, "client", &jobs[0]));
    assert!(text.len() <= 1000 && text.ends_with('…'), "{}", text.len());
    let (_, text) = rejection(&submit_all(&mut bench, &json!({ "jobs": jobs })));
    assert!(text.len() < 17_000, "{}", text.len());
    assert!(text.starts_with("no job is submitted: jobs[0]: "), "{text}");
    let named = text.matches("jobs[").count();
    assert!(named > 10, "{named}");
    let rest = format!("; and {} more", 40 - named);
    assert!(text.ends_with(&rest), "{text}");
    // Over several parts.
    for (number, jobs) in jobs.chunks(10).enumerate() {
        let payload = json!({"token": "a", "part": number, "more": number < 3, "jobs": jobs});
        let out = send_part(&mut bench, "client", &payload);
        if number < 3 {
            for result in part_results(&out) {
                let text = result.as_str().unwrap();
                assert!(text.len() <= 1000 && text.ends_with('…'), "{}", text.len());
            }
        } else {
            assert_eq!(rejection(&out).1, text);
        }
    }
    // A value of the wrong type.
    let wrong = json!({ "urgency": "x".repeat(100_000), "jobspec": {} });
    let (_, text) = rejection(&submit_as(&mut bench, "client", &wrong));
    assert!(text.len() <= 1000, "{}", text.len());
}

/// Submits a list, and advances to its response.
fn submit_all(bench: &mut Bench, payload: &Value) -> Vec<Message> {
    let mut out = submit_as(bench, "client", payload);
    out.extend(bench.advance());
    out
}

/// The length of what the store has under the token `a`.
fn stored_bytes(bench: &Bench) -> Option<usize> {
    let store = bench.manager.store();
    let stored = store.submission(OWNER, "a", 0.0).unwrap();
    stored.map(|stored| stored.result.len())
}

#[test]
fn errors_of_independent_submissions_are_cut_and_hardly_stored() {
    let mut bench = Bench::new();
    let mut jobs = with_long_queues(40, 100_000);
    let errors = |out: &[Message]| -> Vec<String> {
        let results = body(responses(out, "job-ingest.submit")[0])["results"].clone();
        let results = results.as_array().unwrap().iter();
        let errors = results.filter_map(|result| result["error"].as_str());
        errors.map(ToOwned::to_owned).collect()
    };
    let list = |jobs: &[Value]| json!({"token": "a", "independent": true, "jobs": jobs});
    let only_errors = errors(&submit_all(&mut bench, &list(&jobs)));
    assert_eq!(only_errors.len(), 40);
    assert!(only_errors.iter().all(|text| text.len() <= 1000));
    assert_eq!(stored_bytes(&bench), None);
    assert_eq!(errors(&submit_all(&mut bench, &list(&jobs))), only_errors);
    assert!(errors(&submit_all(&mut bench, &list(&[]))).is_empty());
    assert_eq!(stored_bytes(&bench), None);
    jobs.push(named("x"));
    assert_eq!(errors(&submit_all(&mut bench, &list(&jobs))), only_errors);
    let stored = stored_bytes(&bench).unwrap();
    assert!(stored < 40 * 250, "{stored}");
    let again = errors(&submit_all(&mut bench, &list(&jobs)));
    assert_eq!(again.len(), 40);
    for (short, long) in again.iter().zip(&only_errors) {
        assert!(short.len() <= 200 && long.starts_with(short.trim_end_matches('…')));
    }
    assert_eq!(total(&mut bench), 1);
}

#[test]
fn reasons_of_independent_submissions_have_a_total_length() {
    let mut bench = Bench::new();
    // Two of three are invalid, with reasons of a thousand bytes each.
    let invalid = with_long_queues(1, 2000).remove(0);
    let jobs: Vec<_> = (0..JOBS)
        .map(|number| match number % 3 {
            0 => named("x"),
            _ => invalid.clone(),
        })
        .collect();
    let list = json!({"token": "a", "independent": true, "jobs": jobs});
    let out = submit_all(&mut bench, &list);
    let response = responses(&out, "job-ingest.submit")[0];
    let length = response.payload.as_deref().map_or(0, <[u8]>::len);
    assert!(length < (1 << 20) + JOBS * 110, "{length}");
    let stored = stored_bytes(&bench).unwrap();
    assert!(stored < 300_000, "{stored}");
    // A repetition tells which ones are invalid, too.
    let results = |out: &[Message]| body(responses(out, "job-ingest.submit")[0])["results"].clone();
    let (first, second) = (results(&out), results(&submit_all(&mut bench, &list)));
    let left_out =
        "invalid; the reason is left out, since those of the list are too long: submit it alone";
    for number in 0..JOBS {
        let is_valid = number % 3 == 0;
        assert_eq!(first[number]["ids"].is_array(), is_valid, "{number}");
        assert_eq!(first[number]["ids"], second[number]["ids"]);
        assert_eq!(second[number]["error"].is_string(), !is_valid, "{number}");
    }
    assert!(
        first[1]["error"].as_str().unwrap().starts_with("queue"),
        "{}",
        first[1]
    );
    assert_eq!(
        [&first[JOBS - 1]["error"], &second[JOBS - 1]["error"]],
        [left_out; 2]
    );
}

#[test]
fn a_request_has_as_many_jobs_as_a_response_can_name() {
    let mut bench = Bench::new();
    let (errnum, text) = rejection(&submit_as(&mut bench, "client", &copies(3_000_001)));
    let expected = "count 3000001 is out of range: expected 1 to 3000000";
    assert_eq!((errnum, text.as_str()), (22, expected));
    let jobs = [copies(1), copies(3_000_000)];
    let (_, text) = rejection(&submit_all(&mut bench, &json!({ "jobs": jobs })));
    let expected = "no job is submitted: jobs[1]: expected at most 3000000 jobs in a request";
    assert_eq!(text, expected);
    assert_eq!(total(&mut bench), 0);
}

#[test]
fn no_job_of_a_list_is_added_after_an_invalid_one() {
    let mut bench = Bench::new();
    let mut jobs = vec![named("a"); 3 * JOBS];
    jobs[0] = json!({"jobspec": {}});
    jobs[1]["cc"] = "1-3".into();
    jobs[2]["count"] = JOBS.into();
    jobs[JOBS]["urgency"] = 32.into();
    let before = bench.manager.store().greatest_id();
    let mut out = submit_as(&mut bench, "client", &json!({"token": "a", "jobs": jobs}));
    let mut slices = 0;
    while responses(&out, "job-ingest.submit").is_empty() {
        out.extend(bench.pass(0.0));
        slices += 1;
    }
    assert!(slices > 10, "{slices}");
    let (_, text) = rejection(&out);
    let urgency = format!("; jobs[{JOBS}]: urgency 32 is out of range: expected 0 to 31");
    assert!(text.ends_with(&urgency), "{text}");
    // Nothing is to be removed, and no id was allotted.
    assert!(!bench.is_due());
    assert_eq!(bench.manager.store().greatest_id(), before);
    assert_discarded(&mut bench);
    // The jobs of a guest count against its limit all the same, until the list is rejected.
    let mut bench = Bench::with(Settings {
        guests: true,
        quota: Quota {
            active_jobs: 3,
            ..settings().quota
        },
        ..settings()
    });
    let mut jobs = vec![named("a"); 5];
    jobs[0]["urgency"] = 32.into();
    let list = json!({ "jobs": jobs });
    for _ in 0..2 {
        let (_, text) = rejection(&bench.request_as("guest", 7, "job-ingest.submit", &list, 0));
        assert!(
            text.contains("; jobs[4]: user 7 has 3 active jobs"),
            "{text}"
        );
    }
}

#[test]
fn a_valid_submission_in_a_part_after_an_invalid_one_is_not_submitted() {
    let mut bench = Bench::new();
    let mut first = part(0, &["x", "y", "z"], true);
    first["jobs"][1] = json!({"jobspec": {}});
    let results = part_results(&send_part(&mut bench, "client", &first));
    assert!(results[0].is_u64());
    let text = "not submitted: an earlier job of the list is invalid";
    assert_eq!(results[2], text);
    let (_, error) = rejection(&send_part(&mut bench, "client", &part(1, &["z"], false)));
    assert!(!error.contains("jobs[2]"), "{error}");
    assert_discarded(&mut bench);
}

/// An open list of 100 invalid submissions is rejected before its last part.
#[test]
fn the_hundredth_invalid_submission_rejects_the_list_at_once() {
    let mut bench = Bench::new();
    let mut first = part(0, &[], true);
    first["jobs"] = vec![json!({"jobspec": {}}); 100].into();
    let (errnum, text) = rejection(&send_part(&mut bench, "client", &first));
    assert_eq!(errnum, 22);
    assert!(
        text.ends_with("jobs from 100 on were not checked"),
        "{text}"
    );
    let late = send_part(&mut bench, "client", &part(1, &["x"], false));
    assert_eq!(rejection(&late).0, 2);
    assert_discarded(&mut bench);
}

#[test]
fn slices_of_a_list_of_invalid_submissions_are_bounded() {
    let mut bench = Bench::new();
    let list = json!({"independent": true, "jobs": vec![json!({}); JOBS]});
    let mut out = submit_as(&mut bench, "client", &list);
    let mut slices = 0;
    while responses(&out, "job-ingest.submit").is_empty() {
        out.extend(bench.pass(0.0));
        slices += 1;
    }
    assert!(slices > 4, "{slices}");
}

#[test]
fn only_a_list_is_independent() {
    let mut bench = Bench::new();
    let mut single = named("x");
    single["independent"] = true.into();
    let text = "`independent` is about a list: expected it beside `jobs`";
    let out = submit_as(&mut bench, "client", &single);
    assert_eq!(rejection(&out), (71, text.to_owned()));
    let out = submit_as(&mut bench, "client", &json!({ "jobs": [single] }));
    let text = format!("no job is submitted: jobs[0]: {text}");
    assert_eq!(rejection(&out), (71, text));
}
