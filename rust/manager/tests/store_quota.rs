//! The limit of the bytes that a guest has in the store, and the disk space that is left for the owner.

mod common;

use common::{Bench, Directory, body, jobspec, rejection, settings};
use penstock_flux::RequestError;
use penstock_flux::errno::{EAGAIN, EDQUOT, ENOSPC};
use penstock_manager::{DiskSpace, Settings};
use penstock_store::JOB_BYTES;
use penstock_wire::Message;
use serde_json::{Value, json};

const GUEST: u32 = 7;
const LIMIT: u64 = 100_000;

fn bench() -> Bench {
    let mut settings = settings();
    settings.guests = true;
    settings.quota.store_bytes = LIMIT.cast_signed();
    bench_with(settings)
}

fn bench_with(settings: Settings) -> Bench {
    let mut bench = Bench::with(settings);
    bench.scheduler(None);
    bench.executor();
    bench
}

fn as_guest(bench: &mut Bench, topic: &str, payload: &Value) -> Vec<Message> {
    bench.request_as("guest", GUEST, topic, payload, 0)
}

/// A job of the guest that stays pending, if it is accepted.
fn submit(bench: &mut Bench, payload: Value) -> Result<u64, (u32, String)> {
    let mut payload = payload;
    payload["urgency"] = 0.into();
    let out = as_guest(bench, "job-ingest.submit", &payload);
    if out[0].errnum() == 0 {
        let response = body(&out[0]);
        let id = response.get("id").or(response["ids"].get(0));
        return Ok(id.unwrap().as_u64().unwrap());
    }
    Err(rejection(&out))
}

fn bytes(bench: &Bench) -> u64 {
    bench.manager.store().bytes_of(GUEST)
}

fn assert_counted(bench: &Bench) {
    let wrong = bench.manager.store().wrong_user_bytes().unwrap();
    assert_eq!(wrong, Vec::<String>::new());
}

fn end(bench: &mut Bench, id: u64, note: &str) -> Vec<Message> {
    let cancel = json!({"id": id, "type": "cancel", "severity": 0, "note": note});
    as_guest(bench, "job-manager.raise", &cancel)
}

fn purge(bench: &mut Bench) -> Value {
    let all = json!({"force": true});
    let out = as_guest(bench, "job-manager.purge", &all);
    body(&out[0])
}

fn rejected(bench: &mut Bench, limit: &str) -> u64 {
    let stats = body(&bench.request("job-manager.stats-get", &json!({}))[0]);
    stats["rejected"][limit].as_u64().unwrap()
}

#[test]
fn jobspecs_of_ended_jobs_count_until_they_are_purged() {
    let mut bench = bench();
    let with = |number: usize| {
        let environment = json!({"A": number.to_string().repeat(20_000)});
        json!({"jobspec": jobspec(&json!({"environment": environment}))})
    };
    let mut jobs = 0;
    let (errnum, text) = loop {
        match submit(&mut bench, with(jobs)) {
            Ok(id) => {
                jobs += 1;
                assert_eq!(end(&mut bench, id, "")[0].errnum(), 0);
            }
            Err(error) => break error,
        }
    };
    assert_eq!((jobs, errnum), (4, EDQUOT));
    let stored = bytes(&bench);
    let start =
        format!("user 7 has {stored} bytes in the store: expected at most 100000 with the ");
    assert!(text.starts_with(&start), "{text}");
    assert!(text.contains("penstock.quota.store-bytes"), "{text}");
    assert!(text.contains("hint: `penstock purge` removes"), "{text}");
    assert_eq!(rejected(&mut bench, "store_bytes"), 1);
    assert_counted(&bench);
    // Others are not affected.
    let out = bench.request("job-ingest.submit", &with(9));
    assert_eq!(out[0].errnum(), 0);
    let out = bench.request_as("other", 8, "job-ingest.submit", &with(8), 0);
    assert_eq!(out[0].errnum(), 0);
    assert_eq!(purge(&mut bench), json!({"count": 4, "inactives": 0}));
    assert_eq!(bytes(&bench), 0);
    assert!(submit(&mut bench, with(5)).is_ok());
    assert_counted(&bench);
}

#[test]
fn copies_count_when_they_are_accepted() {
    let mut bench = bench();
    let spec = jobspec(&json!({}));
    let most = LIMIT / JOB_BYTES - 1;
    let copies = |count: u64| json!({"jobspec": spec, "count": count});
    assert_eq!(submit(&mut bench, copies(most + 2)).unwrap_err().0, EDQUOT);
    // Their rows are added in slices.
    bench.manager.set_slice(5);
    let mut payload = copies(most);
    payload["urgency"] = 0.into();
    assert!(as_guest(&mut bench, "job-ingest.submit", &payload).is_empty());
    assert!(bytes(&bench) < 10 * JOB_BYTES);
    assert_eq!(submit(&mut bench, copies(2)).unwrap_err().0, EDQUOT);
    bench.advance();
    assert!(bytes(&bench) >= most * JOB_BYTES);
    assert_eq!(submit(&mut bench, copies(2)).unwrap_err().0, EDQUOT);
    // The jobs of a submission that is discarded do not count.
    let cancel = json!({"all": true, "userid": GUEST, "type": "cancel", "severity": 0, "note": ""});
    as_guest(&mut bench, "job-manager.raise", &cancel);
    bench.advance();
    as_guest(&mut bench, "job-manager.purge", &json!({"force": true}));
    bench.advance();
    assert_eq!(bytes(&bench), 0);
    let invalid = json!({"jobs": [copies(most), {"jobspec": {"version": 1}}]});
    let mut out = as_guest(&mut bench, "job-ingest.submit", &invalid);
    out.extend(bench.advance());
    assert_ne!(out[0].errnum(), 0);
    assert_eq!(bytes(&bench), 0);
    as_guest(&mut bench, "job-ingest.submit", &payload);
    let out = bench.advance();
    assert_eq!(out[0].errnum(), 0);
    assert_counted(&bench);
}

#[test]
fn events_of_requests_count_but_a_job_can_always_be_ended() {
    let mut bench = bench();
    let one = submit(&mut bench, json!({"jobspec": jobspec(&json!({}))})).unwrap();
    let before = bytes(&bench);
    let memo = |number: u64| json!({"id": one, "memo": {"x": format!("{number:05000}")}});
    let mut memos = 0;
    let (errnum, text) = loop {
        let out = as_guest(&mut bench, "job-manager.memo", &memo(memos));
        if out[0].errnum() != 0 {
            break rejection(&out);
        }
        memos += 1;
    };
    assert_eq!(errnum, EDQUOT, "{text}");
    assert!(memos >= 18 && bytes(&bench) > before + 5000 * memos - 300 * memos);
    // Every event counts of a job that has many.
    let urgency = json!({"id": one, "urgency": 0});
    let update = json!({"id": one, "updates": {"attributes.system.duration": 5.0}});
    let fill = json!({"id": one, "type": "x", "severity": 3, "note": "n".repeat(400)});
    while as_guest(&mut bench, "job-manager.raise", &fill)[0].errnum() == 0 {}
    let stored = bytes(&bench);
    assert!(stored <= LIMIT && stored > LIMIT - 1000);
    let note = "n".repeat(4096);
    for _ in 0..4 {
        as_guest(&mut bench, "job-manager.urgency", &urgency);
    }
    for (topic, payload) in [
        ("job-manager.urgency", &urgency),
        ("job-manager.update", &update),
    ] {
        let denied = as_guest(&mut bench, topic, payload);
        assert_eq!(rejection(&denied).0, EDQUOT, "{topic}");
        // The owner has no limit.
        assert_eq!(bench.request(topic, payload)[0].errnum(), 0, "{topic}");
    }
    assert_eq!(rejection(&end(&mut bench, one, &note)).0, EDQUOT);
    assert_eq!(end(&mut bench, one, "short")[0].errnum(), 0);
    assert_counted(&bench);
    assert_eq!(purge(&mut bench)["count"], 1);
    assert_eq!(bytes(&bench), 0);
}

#[test]
fn standard_input_counts() {
    let mut bench = bench();
    let payload = json!({"jobspec": jobspec(&json!({}))});
    let out = as_guest(&mut bench, "job-ingest.submit", &payload);
    let id = body(&out[0])["id"].as_u64().unwrap();
    bench.allocate(id);
    bench.exec(id, "start", &json!({}));
    let topic = format!("job-shell.{id}.stdin");
    let data = json!({"stream": "stdin", "rank": "all", "data": "x".repeat(30_000)});
    let mut written = 0;
    let denied = loop {
        let out = as_guest(&mut bench, &topic, &data);
        let request = out.iter().find(|sent| sent.topic() == "job-exec.input");
        let Some(request) = request.cloned() else {
            break rejection(&out);
        };
        bench.send(Message::response_to(&request, 0, None));
        written += 1;
    };
    assert_eq!((written, denied.0), (3, EDQUOT));
    assert!(bytes(&bench) > 3 * 30_000);
    // The end of the input is always accepted.
    let end = json!({"stream": "stdin", "rank": "all", "eof": true});
    let out = as_guest(&mut bench, &topic, &end);
    assert!(out.iter().any(|sent| sent.topic() == "job-exec.input"));
    assert_counted(&bench);
}

#[test]
fn tokens_count_until_they_expire() {
    let mut bench = bench();
    let submission = |token: usize| {
        let token = format!("{token:0>64}");
        json!({"jobspec": jobspec(&json!({})), "token": token})
    };
    let mut tokens = 0;
    while let Ok(id) = submit(&mut bench, submission(tokens)) {
        tokens += 1;
        end(&mut bench, id, "");
        purge(&mut bench);
    }
    // No job is left.
    assert!(tokens as u64 > 200 && bytes(&bench) > LIMIT - 2 * JOB_BYTES);
    assert_counted(&bench);
    // Not while the clock may be wrong.
    bench.now += 2.0 * 86400.0;
    let wrong = RequestError::new(EAGAIN, "the clock was set forward");
    bench.manager.set_rejection(Some(wrong));
    bench.advance();
    assert!(bytes(&bench) > LIMIT - 2 * JOB_BYTES);
    bench.manager.set_rejection(None);
    bench.now += 100.0;
    bench.advance();
    // The rest in further slices.
    for _ in 0..tokens {
        bench.now += 1.0;
        bench.advance();
    }
    assert_eq!(bytes(&bench), 0);
    assert_counted(&bench);
    assert!(submit(&mut bench, submission(0)).is_ok());
}

#[test]
fn tokens_of_an_earlier_job_manager_expire() {
    let directory = Directory::new("tokens");
    let (mut settings, now) = (settings(), 1000.0);
    settings.guests = true;
    let mut bench = directory.reopen(settings.clone(), now).0;
    bench.scheduler(None);
    let submission = json!({"jobspec": jobspec(&json!({})), "token": "a"});
    let first = submit(&mut bench, submission.clone()).unwrap();
    end(&mut bench, first, "");
    purge(&mut bench);
    assert!(bytes(&bench) > 0);
    let later = bench.now + 86400.0 - 100.0;
    drop(bench);
    let mut bench = directory.reopen(settings, later).0;
    bench.scheduler(None);
    bench.advance();
    assert_eq!(submit(&mut bench, submission.clone()), Ok(first));
    bench.now += 200.0;
    bench.advance();
    assert_eq!(bytes(&bench), 0);
    assert_counted(&bench);
    assert!(submit(&mut bench, submission).unwrap() > first);
}

#[test]
fn a_reserve_of_disk_space_is_left_for_the_owner() {
    let mut settings = settings();
    settings.guests = true;
    settings.quota.reserved_bytes = 1000;
    let mut bench = bench_with(settings);
    let payload = || json!({"jobspec": jobspec(&json!({}))});
    let one = submit(&mut bench, payload()).unwrap();
    for (free, total, is_short) in [
        (1000, 1 << 30, false),
        (999, 1 << 30, true),
        // A tenth of the file system, if that is less.
        (500, 5000, false),
        (499, 5000, true),
    ] {
        bench
            .manager
            .set_disk_space(Some(DiskSpace { free, total }));
        let submitted = submit(&mut bench, payload());
        let memo = json!({"id": one, "memo": {"x": free}});
        let urgency = json!({"id": one, "urgency": 0});
        let exception = json!({"id": one, "type": "x", "severity": 3, "note": ""});
        assert_eq!(submitted.is_err(), is_short);
        for (topic, payload) in [
            ("job-manager.memo", memo),
            ("job-manager.urgency", urgency),
            ("job-manager.raise", exception),
        ] {
            let out = as_guest(&mut bench, topic, &payload);
            let expected = if is_short { ENOSPC } else { 0 };
            assert_eq!(out[0].errnum(), expected, "{topic}");
            assert_eq!(bench.request(topic, &payload)[0].errnum(), 0, "{topic}");
        }
        let Err((errnum, text)) = submitted else {
            continue;
        };
        assert_eq!(errnum, ENOSPC);
        let start = format!(
            "the file system of the state directory has {free} free bytes: expected at least {}",
            free + 1
        );
        assert!(text.starts_with(&start), "{text}");
        assert!(text.contains("penstock.quota.reserved-bytes"), "{text}");
        let out = bench.request("job-ingest.submit", &payload());
        assert_eq!(out[0].errnum(), 0);
    }
    assert_eq!(rejected(&mut bench, "reserved_bytes"), 2 * 4);
    assert_eq!(end(&mut bench, one, "")[0].errnum(), 0);
    assert_eq!(purge(&mut bench)["count"], 1);
    bench.manager.set_disk_space(None);
    assert!(submit(&mut bench, payload()).is_ok());
}
