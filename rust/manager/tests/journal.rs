//! The events of all jobs as one stream, and the results of waitable jobs, as clients of Flux read them.

mod common;

use common::submissions::send_part;
use common::{Bench, Directory, OWNER, body, rejection};
use penstock_flux::errno::{ECHILD, ENODATA, EPERM};
use penstock_flux::flags::STREAMING;
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

const JOURNAL: &str = "job-manager.events-journal";
const WAIT: &str = "job-manager.wait";
const WAITABLE: u32 = 4;
const GUEST: u32 = 1001;

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    bench
}

fn responses<'a>(out: &'a [Message], topic: &str) -> Vec<&'a Message> {
    let is_one =
        |message: &&Message| message.kind == MessageType::Response && message.topic() == topic;
    out.iter().filter(is_one).collect()
}

/// Job and names of events of each response of a journal.
fn journal(out: &[Message]) -> Vec<(i64, Vec<String>)> {
    let rows = responses(out, JOURNAL).into_iter().map(|message| {
        let payload = body(message);
        let events = payload["events"].as_array().unwrap().iter();
        let names = events.map(|event| event["name"].as_str().unwrap().to_owned());
        (payload["id"].as_i64().unwrap(), names.collect())
    });
    rows.collect()
}

fn names(out: &[Message], id: u64) -> Vec<String> {
    let rows = journal(out).into_iter();
    let rows = rows.filter(|(job, _)| *job == id.cast_signed());
    rows.flat_map(|(_, names)| names).collect()
}

fn submit(bench: &mut Bench, flags: u32) -> (u64, Vec<Message>) {
    let jobspec = common::jobspec(&json!({"environment": {"SECRET": "1"}}));
    let payload = json!({"jobspec": jobspec, "flags": flags});
    let out = bench.request("job-ingest.submit", &payload);
    let id = body(responses(&out, "job-ingest.submit")[0])["id"]
        .as_u64()
        .unwrap();
    (id, out)
}

/// Runs a job to its end with a wait status.
fn run(bench: &mut Bench, id: u64, status: i32) -> Vec<Message> {
    let mut out = bench.allocate(id);
    out.extend(bench.exec(id, "start", &json!({})));
    out.extend(bench.exec(id, "finish", &json!({ "status": status })));
    out.extend(bench.exec(id, "release", &json!({"ranks": "all", "final": true})));
    out.extend(bench.answer("sched.free", &json!({"id": id})));
    out
}

fn times(bench: &mut Bench, id: u64) -> Vec<f64> {
    let log = bench.log(id);
    let times = log.iter().map(|event| event["timestamp"].as_f64().unwrap());
    times.collect()
}

#[test]
fn events_of_one_moment_have_different_times() {
    let mut bench = bench();
    let begin = bench.now;
    let ids = [submit(&mut bench, 0).0, submit(&mut bench, 0).0];
    for id in ids {
        run(&mut bench, id, 0);
    }
    let mut all: Vec<f64> = ids.iter().flat_map(|id| times(&mut bench, *id)).collect();
    for id in ids {
        assert!(times(&mut bench, id).is_sorted_by(|before, after| before < after));
    }
    all.sort_by(f64::total_cmp);
    assert!(all.is_sorted_by(|before, after| before < after));
    let moments = begin..bench.now + 0.001;
    assert!(all.iter().all(|time| moments.contains(time)));
    // A clock that is set back is followed.
    bench.now -= 3600.0;
    let (id, _) = submit(&mut bench, 0);
    let now = bench.now;
    assert_eq!(times(&mut bench, id).first(), Some(&now));
}

#[test]
fn a_journal_has_the_past_events_and_then_each_further_one_once() {
    let mut bench = bench();
    let (ended, _) = submit(&mut bench, 0);
    run(&mut bench, ended, 0);
    let (pending, _) = submit(&mut bench, 0);
    let out = bench.stream(JOURNAL, &json!({"full": true}));
    let first = ["submit", "validate", "depend", "priority"];
    let rows = journal(&out);
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert_eq!(rows[0].1.first().map(String::as_str), Some("submit"));
    assert_eq!(rows[0].1.last().map(String::as_str), Some("clean"));
    assert_eq!(
        rows[1],
        (pending.cast_signed(), first.map(str::to_owned).to_vec())
    );
    assert_eq!(rows[2], (-1, Vec::new()));
    // Documents come with their events, the jobspec without the environment.
    let (whole, short) = (body(&out[0]), body(&out[1]));
    assert!(whole["R"]["execution"].is_object());
    assert_eq!(short.get("R"), None);
    let system = &short["jobspec"]["attributes"]["system"];
    assert!(system.is_object() && system.get("environment").is_none());
    // Later events come one by one.
    let (new, mut out) = submit(&mut bench, 0);
    out.extend(run(&mut bench, new, 0));
    let logged = bench.events(new);
    assert_eq!(names(&out, new), logged);
    // A stream that is cancelled gets nothing more.
    let tag = bench.tag();
    let out = bench.stream(JOURNAL, &json!({}));
    let own = bench.tag();
    let active = journal(&out);
    assert_eq!(
        active[0].0,
        pending.cast_signed(),
        "inactive jobs are left out"
    );
    let out = bench.request(
        "job-manager.events-journal-cancel",
        &json!({"matchtag": own}),
    );
    let ends: Vec<u32> = responses(&out, JOURNAL)
        .iter()
        .map(|end| end.errnum())
        .collect();
    assert_eq!(ends, [ENODATA]);
    assert!(tag < own);
}

#[test]
fn a_journal_has_the_events_with_the_names_that_it_wants() {
    let mut bench = bench();
    let (id, _) = submit(&mut bench, 0);
    bench.stream(
        JOURNAL,
        &json!({"allow": {"start": 1, "finish": 1}, "deny": {"finish": 1}}),
    );
    let out = run(&mut bench, id, 0);
    assert_eq!(names(&out, id), ["start"]);
    let out = bench.request_as("guest", GUEST, JOURNAL, &json!({}), STREAMING);
    assert_eq!(rejection(&out).0, EPERM);
}

#[test]
fn a_large_submission_is_in_a_journal_once() {
    let mut bench = bench();
    bench.manager.set_slice(3);
    bench.stream(JOURNAL, &json!({"allow": {"submit": 1}}));
    let (ids, mut out) = bench.submit_copies(&json!({}), 10);
    while bench.manager.has_more() || bench.is_due() {
        out.extend(bench.advance());
    }
    let submitted: Vec<i64> = journal(&out).into_iter().map(|(id, _)| id).collect();
    let expected: Vec<i64> = ids.iter().map(|id| id.cast_signed()).collect();
    let submitted: Vec<i64> = submitted.into_iter().filter(|id| *id >= 0).collect();
    assert_eq!(submitted, expected);
}

/// The responses to requests for results.
fn results(out: &[Message]) -> Vec<Value> {
    let found = responses(out, WAIT).into_iter();
    found
        .filter(|message| message.errnum() == 0)
        .map(body)
        .collect()
}

#[test]
fn the_result_of_a_waitable_job_is_taken_once() {
    let mut bench = bench();
    let (good, _) = submit(&mut bench, WAITABLE);
    assert!(results(&bench.request(WAIT, &json!({"id": good}))).is_empty());
    let out = bench.request(WAIT, &json!({"id": good}));
    assert_eq!(rejection(&out).0, ECHILD, "one request for each job");
    let out = run(&mut bench, good, 0);
    assert_eq!(
        results(&out),
        [json!({"id": good, "success": true, "errstr": ""})]
    );
    let (errnum, text) = rejection(&bench.request(WAIT, &json!({"id": good})));
    assert_eq!(
        (errnum, text.ends_with("its result has been taken")),
        (ECHILD, true)
    );
    // One that has ended before.
    let (bad, _) = submit(&mut bench, WAITABLE);
    run(&mut bench, bad, 3 << 8);
    let out = bench.request(WAIT, &json!({"id": bad}));
    let expected = json!({"id": bad, "success": false, "errstr": "a task has exit code 3"});
    assert_eq!(results(&out), [expected]);
    // Others cannot be waited for.
    let (other, _) = submit(&mut bench, 0);
    for id in [other, 12345] {
        assert_eq!(
            rejection(&bench.request(WAIT, &json!({"id": id}))).0,
            ECHILD
        );
    }
}

#[test]
fn a_request_for_any_result_gets_the_next_one() {
    let mut bench = bench();
    let any = json!({"id": -1});
    assert_eq!(rejection(&bench.request(WAIT, &any)).0, ECHILD);
    let (one, _) = submit(&mut bench, WAITABLE);
    let (two, _) = submit(&mut bench, WAITABLE);
    assert!(bench.request(WAIT, &any).is_empty());
    assert!(bench.request(WAIT, &any).is_empty());
    assert_eq!(
        rejection(&bench.request(WAIT, &any)).0,
        ECHILD,
        "no third job"
    );
    let out = run(&mut bench, two, 9);
    let text = "a task was ended by signal 9";
    assert_eq!(
        results(&out),
        [json!({"id": two, "success": false, "errstr": text})]
    );
    bench.request(
        "job-manager.raise",
        &json!({"id": one, "type": "cancel", "note": "no"}),
    );
    let out = bench.answer("sched.alloc", &json!({"id": one, "type": 3}));
    let text = "exception cancel: no";
    assert_eq!(
        results(&out),
        [json!({"id": one, "success": false, "errstr": text})]
    );
    // The requests of a client that is gone take no result.
    let (three, _) = submit(&mut bench, WAITABLE);
    bench.request_as("gone", OWNER, WAIT, &json!({"id": three}), 0);
    bench.request_as("gone", OWNER, "job-manager.disconnect", &json!({}), 8);
    run(&mut bench, three, 0);
    let out = bench.request(WAIT, &any);
    assert_eq!(results(&out)[0]["id"], three);
}

/// Asserts that as many more requests for the result of any job are accepted, and not one more.
fn assert_left(bench: &mut Bench, count: usize) {
    let any = json!({"id": -1});
    for _ in 0..count {
        assert!(bench.request_as("any", OWNER, WAIT, &any, 0).is_empty());
    }
    let out = bench.request_as("any", OWNER, WAIT, &any, 0);
    let expected = (ECHILD, "no waitable job is left".to_owned());
    assert_eq!(rejection(&out), expected);
    bench.request_as("any", OWNER, "job-manager.disconnect", &json!({}), 8);
}

#[test]
fn requests_for_any_result_are_accepted_for_waitable_jobs_that_no_other_request_names() {
    let directory = Directory::new("waitable-jobs");
    let mut bench = directory.open(common::settings(), 1000.0);
    bench.scheduler(None);
    bench.executor();
    let spec = common::jobspec(&json!({}));
    let copies = json!({"jobspec": spec, "flags": WAITABLE, "count": 3});
    let out = bench.request("job-ingest.submit", &copies);
    let ids = body(responses(&out, "job-ingest.submit")[0])["ids"].clone();
    submit(&mut bench, 0);
    assert_left(&mut bench, 3);
    bench.request_as("other", OWNER, WAIT, &json!({"id": ids[0]}), 0);
    assert_left(&mut bench, 2);
    // The jobs of a submission whose parts are missing do not count yet.
    let part = |number: u32, more: bool| {
        let job = json!({"jobspec": spec, "flags": WAITABLE});
        json!({"token": "a", "part": number, "more": more, "jobs": [job]})
    };
    send_part(&mut bench, "client", &part(0, true));
    assert_left(&mut bench, 2);
    send_part(&mut bench, "client", &part(1, false));
    assert_left(&mut bench, 4);
    let begun = json!({"token": "b", "part": 0, "more": true, "jobs": part(0, true)["jobs"]});
    send_part(&mut bench, "client", &begun);
    bench.request_as("client", OWNER, "job-manager.disconnect", &json!({}), 8);
    bench.advance();
    assert_left(&mut bench, 4);
    // A restart forgets results, and the requests of its clients.
    run(&mut bench, ids[1].as_u64().unwrap(), 0);
    drop(bench);
    let (mut bench, _) = directory.reopen(common::settings(), 2000.0);
    assert_left(&mut bench, 4);
}

#[test]
fn guests_have_no_waitable_jobs() {
    let mut settings = common::settings();
    settings.guests = true;
    let mut bench = Bench::with(settings);
    let jobspec = common::jobspec(&json!({}));
    let payload = json!({"jobspec": jobspec, "flags": WAITABLE});
    let out = bench.request_as("guest", GUEST, "job-ingest.submit", &payload, 0);
    assert_eq!(rejection(&out).0, EPERM);
    let out = bench.request_as("guest", GUEST, WAIT, &json!({"id": 1}), 0);
    assert_eq!(rejection(&out).0, EPERM);
}
