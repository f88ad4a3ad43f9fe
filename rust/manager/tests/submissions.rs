//! Large submissions: done in slices, with the requests of others between them, and complete or not there at all.

mod common;

use std::collections::BTreeSet;

use common::submissions::{
    JOBS, assert_discarded, copies, ids, list, listed, long_part, named, part, part_results,
    responses, rows, send_part, submit_as, total,
};
use common::{Bench, Directory, OWNER, body, jobspec, rejection, settings};
use penstock_flux::RequestError;
use penstock_flux::flags::STREAMING;
use penstock_jobspec::job_id::JobId;
use penstock_manager::{Quota, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

#[test]
fn others_are_served_between_slices_and_see_no_job_before_all() {
    for payload in [copies(JOBS), list()] {
        let mut bench = Bench::new();
        let (small, _) = bench.submit(&json!({}));
        let mut out = submit_as(&mut bench, "client", &payload);
        let mut slices = 0;
        loop {
            assert!(bench.is_due());
            let ping = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
            assert_eq!(responses(&ping, "job-manager.ping").len(), 1);
            out.extend(bench.pass(0.0));
            slices += 1;
            if !responses(&out, "job-ingest.submit").is_empty() {
                break;
            }
            assert_eq!(listed(&mut bench), [small]);
            assert_eq!(total(&mut bench), 1);
        }
        assert!(slices > 4, "{slices}");
        let ids = ids(&out);
        assert_eq!(ids.len(), JOBS);
        assert!(ids.is_sorted());
        // All are there now, though most have had no step.
        assert_eq!(total(&mut bench), JOBS + 1);
        assert_eq!(listed(&mut bench).len(), JOBS + 1);
        // They are without an alloc request as well.
        let manager = body(&bench.request("job-manager.stats-get", &json!({}))[0]);
        assert_eq!(manager["sched"]["queued"], JOBS + 1);
        let mut steps = 0;
        while bench.is_due() {
            bench.pass(0.0);
            steps += 1;
        }
        assert!(steps > 4, "{steps}");
        let states = body(&bench.request("job-list.job-stats", &json!({}))[0]);
        assert_eq!(states["job_states"]["sched"], JOBS + 1);
        assert_eq!(bench.row(ids[JOBS - 1])["state"], 8);
    }
}

#[test]
fn a_peer_with_many_submissions_does_not_delay_those_of_others() {
    // Of few slices each.
    const SUBMISSIONS: usize = 100;
    const FLOOD_JOBS: usize = JOBS / 6;
    let mut bench = Bench::new();
    for _ in 0..SUBMISSIONS {
        let out = submit_as(&mut bench, "flood", &copies(FLOOD_JOBS));
        assert!(responses(&out, "job-ingest.submit").is_empty());
    }
    // No more is read of it, unlike of others.
    assert!(bench.manager.is_ahead(b"flood"));
    assert!(!bench.manager.is_ahead(b"other"));
    let mut out = submit_as(&mut bench, "other", &copies(JOBS));
    let mut slices = 0;
    let is_others = |message: &&Message| message.origin() == Some(b"other".as_slice());
    let done = |out: &[Message]| responses(out, "job-ingest.submit").iter().any(is_others);
    while !done(&out) {
        assert!(bench.is_due());
        out.extend(bench.pass(0.0));
        slices += 1;
    }
    // The two peers take turns: the flood has not had many times as many slices, and its first submissions are done.
    assert!(slices < 4 * JOBS / 100, "{slices}");
    assert!(bench.manager.is_ahead(b"flood"));
    let ended = responses(&out, "job-ingest.submit");
    assert!(ended.len() <= 10, "{}", ended.len());
    while bench.is_due() {
        out.extend(bench.pass(0.0));
    }
    assert_eq!(responses(&out, "job-ingest.submit").len(), SUBMISSIONS + 1);
    assert!(!bench.manager.is_ahead(b"flood"));
    assert_eq!(total(&mut bench), SUBMISSIONS * FLOOD_JOBS + JOBS);
}

#[test]
fn slices_delay_the_users_who_have_no_open_request() {
    const GUEST: u32 = 2000;
    let mut bench = Bench::with(Settings {
        guests: true,
        inactive_num_limit: 0,
        ..settings()
    });
    assert!(!bench.manager.delays(&[OWNER, GUEST]));
    bench.request_as("guest", GUEST, "job-ingest.submit", &copies(JOBS), 0);
    assert!(bench.manager.delays(&[OWNER]) && bench.manager.delays(&[GUEST, OWNER]));
    assert!(!bench.manager.delays(&[]) && !bench.manager.delays(&[GUEST]));
    // Users with open requests share the slices.
    bench.request("job-ingest.submit", &copies(JOBS));
    assert!(!bench.manager.delays(&[GUEST, OWNER]) && bench.manager.delays(&[OWNER + 1]));
    // The same while the jobs get their first steps, and for other requests about many jobs.
    bench.pass(0.0);
    while bench.manager.has_open_request() {
        assert!(bench.manager.delays(&[OWNER + 1]));
        bench.pass(0.0);
    }
    assert!(!bench.is_due() && !bench.manager.delays(&[OWNER + 1]));
    let cancel = json!({"all": true, "type": "cancel", "severity": 0, "note": ""});
    bench.request_as("guest", GUEST, "job-manager.raise", &cancel, 0);
    assert!(bench.manager.delays(&[OWNER]) && !bench.manager.delays(&[GUEST]));
    while bench.manager.has_open_request() {
        bench.pass(0.0);
    }
    // Removals by the limits delay every user.
    bench.pass(2.0);
    assert!(bench.is_due() && bench.manager.delays(&[GUEST]) && bench.manager.delays(&[OWNER]));
    assert!(!bench.manager.delays(&[]));
}

#[test]
fn the_scheduler_gets_the_jobs_when_all_are_stored() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let requested = |out: &[Message]| {
        let allocs = out
            .iter()
            .filter(|message| message.topic() == "sched.alloc");
        allocs.count()
    };
    let mut out = submit_as(&mut bench, "client", &copies(JOBS));
    while responses(&out, "job-ingest.submit").is_empty() {
        assert_eq!(requested(&out), 0);
        out = bench.pass(0.0);
    }
    let mut sent = requested(&out);
    // A job that is submitted now does not wait for those.
    let (_, later) = bench.submit(&json!({}));
    assert_eq!(requested(&later), 1);
    assert!(sent < JOBS);
    sent += requested(&bench.advance()) + requested(&bench.rest());
    assert_eq!(sent, JOBS);
}

#[test]
fn the_log_and_the_order_of_jobs_are_the_same_for_small_and_large_submissions() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let (small, _) = bench.submit(&json!({}));
    let mut out = submit_as(&mut bench, "client", &copies(JOBS));
    out.extend(bench.advance());
    let ids = ids(&out);
    let expected = ["submit", "validate", "depend", "priority"];
    for id in [small, ids[0], ids[JOBS - 1]] {
        assert_eq!(bench.events(id), expected, "{id}");
    }
    let context = bench.log(ids[7])[0]["context"].clone();
    assert_eq!(context, bench.log(small)[0]["context"]);
    bench.rest();
    bench.allocate(ids[1]);
    bench.exec(ids[1], "start", &json!({}));
    bench.end(ids[1], 0);
    assert_eq!(bench.row(ids[1])["state"], 64);
    let dependent = json!([{"scheme": "afterok", "value": ids[1].to_string()}]);
    let mut payload = copies(JOBS);
    payload["jobspec"] = jobspec(&json!({ "dependencies": dependent }));
    let mut out = submit_as(&mut bench, "client", &payload);
    out.extend(bench.advance());
    let dependent = self::ids(&out)[JOBS - 1];
    let expected = [
        "submit",
        "validate",
        "dependency-add",
        "dependency-remove",
        "depend",
        "priority",
    ];
    assert_eq!(bench.events(dependent), expected);
}

#[test]
fn a_crash_leaves_all_jobs_or_none_and_no_id_is_used_again() {
    let mut slices = 0;
    let mut is_complete = false;
    while !is_complete {
        let directory = Directory::new("submission-crash");
        let mut bench = directory.open(settings(), 1000.0);
        let (small, _) = bench.submit(&json!({"cwd": "/"}));
        let mut payload = list();
        payload["token"] = "a".into();
        let mut out = submit_as(&mut bench, "client", &payload);
        for _ in 0..slices {
            out.extend(bench.pass(0.0));
        }
        is_complete = !responses(&out, "job-ingest.submit").is_empty();
        slices += 1;
        let stored = directory.reader().jobs().unwrap().records.len();
        assert_eq!(stored, if is_complete { JOBS + 1 } else { 1 });
        let now = bench.now;
        drop(bench);
        let mut bench = directory.open(settings(), now);
        assert_eq!(total(&mut bench), stored);
        assert!(bench.row(small).is_object());
        let mut again = submit_as(&mut bench, "client", &payload);
        again.extend(bench.advance());
        let again = ids(&again);
        if is_complete {
            assert_eq!(again, ids(&out));
        } else {
            let (next, _) = bench.submit(&json!({}));
            assert!(next > again[JOBS - 1] && again[0] > small);
            // The jobspecs of the first attempt are gone.
            let store = bench.manager.store();
            let specs: BTreeSet<i64> = store
                .jobs()
                .unwrap()
                .records
                .iter()
                .map(|job| job.row.spec)
                .collect();
            assert_eq!(specs.len(), 4);
            let greatest = specs.last().unwrap() + 1;
            let left = (0..=greatest).filter(|key| store.jobspec(*key).unwrap().is_some());
            assert_eq!(left.count(), 4);
        }
    }
    assert!(slices > 4, "{slices}");
}

#[test]
fn ids_of_a_discarded_submission_are_not_used_again() {
    let directory = Directory::new("submission-ids");
    let mut bench = directory.open(settings(), 1000.0);
    submit_as(&mut bench, "client", &copies(JOBS));
    bench.pass(0.0);
    let greatest = bench.manager.store().greatest_id().get();
    drop(bench);
    // The clock went back.
    let mut bench = directory.open(settings(), 900.0);
    let (id, _) = bench.submit(&json!({}));
    assert!(id > greatest);
}

#[test]
fn a_repeated_request_gets_the_jobs_of_the_one_that_is_under_way() {
    let mut bench = Bench::new();
    let mut payload = copies(JOBS);
    payload["token"] = "a".into();
    let mut out = submit_as(&mut bench, "first", &payload);
    out.extend(bench.pass(0.0));
    out.extend(submit_as(&mut bench, "second", &payload));
    assert!(out.is_empty());
    let mut other = payload.clone();
    other["urgency"] = 3.into();
    let rejected = rejection(&submit_as(&mut bench, "third", &other));
    assert_eq!(
        rejected,
        (17, "token `a` names another submission".to_owned())
    );
    // The first client leaves.
    bench.request_as("first", OWNER, "job-ingest.disconnect", &json!({}), 0);
    out.extend(bench.advance());
    let answers = responses(&out, "job-ingest.submit");
    assert_eq!(answers.len(), 2);
    assert_eq!(body(answers[0]), body(answers[1]));
    assert_ne!(answers[0].routes, answers[1].routes);
    assert_eq!(total(&mut bench), JOBS);
    assert_eq!(
        body(&submit_as(&mut bench, "fourth", &payload)[0]),
        body(answers[0])
    );
}

#[test]
fn a_submission_is_rejected_as_a_whole_when_submissions_are_rejected_meanwhile() {
    let directory = Directory::new("submission-rejected");
    let guests = Settings {
        guests: true,
        ..settings()
    };
    let mut bench = directory.open(guests.clone(), 1000.0);
    let submit = |bench: &mut Bench| bench.request_as("guest", 7, "job-ingest.submit", &list(), 0);
    assert!(submit(&mut bench).is_empty());
    bench.pass(0.0);
    let full = RequestError::new(28, "the disk is full");
    bench.manager.set_rejection(Some(full));
    let out = bench.advance();
    assert_eq!(rejection(&out), (28, "the disk is full".to_owned()));
    assert_eq!(responses(&out, "job-ingest.submit").len(), 1);
    assert!(listed(&mut bench).is_empty());
    assert!(bench.manager.take_purged().is_empty());
    let store = bench.manager.store();
    assert!(store.jobs().unwrap().records.is_empty());
    assert_eq!(store.jobspec(1).unwrap(), None);
    bench.manager.set_rejection(None);
    let mut out = submit(&mut bench);
    out.extend(bench.advance());
    let ids = ids(&out);
    let now = bench.now;
    drop(bench);
    let mut bench = directory.open(guests, now);
    assert_eq!(listed(&mut bench).len(), ids.len());
}

#[test]
fn jobs_of_an_incomplete_submission_count_against_the_limit_of_a_guest() {
    let mut bench = Bench::with(Settings {
        guests: true,
        quota: Quota {
            active_jobs: 4000,
            ..settings().quota
        },
        ..settings()
    });
    let submit =
        |bench: &mut Bench| bench.request_as("guest", 7, "job-ingest.submit", &copies(JOBS), 0);
    assert!(submit(&mut bench).is_empty());
    let (errnum, text) = rejection(&submit(&mut bench));
    assert_eq!(errnum, 11, "{text}");
    bench.manager.set_rejection(Some(RequestError::new(11, "")));
    bench.advance();
    bench.manager.set_rejection(None);
    assert!(submit(&mut bench).is_empty());
    assert_eq!(ids(&bench.advance()).len(), JOBS);
    let (errnum, _) = rejection(&submit(&mut bench));
    assert_eq!(errnum, 11);
}

#[test]
fn a_listing_and_a_cancellation_of_all_leave_out_jobs_that_appear_meanwhile() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let mut before = submit_as(&mut bench, "client", &copies(JOBS));
    before.extend(bench.advance());
    let before = ids(&before);
    let mut out = submit_as(&mut bench, "client", &copies(JOBS));
    // Until the last slice of the second one.
    for _ in 0..4 {
        out.extend(bench.pass(0.0));
    }
    let (late, _) = bench.submit(&json!({}));
    let list = json!({"max_entries": 0, "attrs": [], "order": "newest"});
    out.extend(bench.request_as("lister", OWNER, "job-list.list", &list, STREAMING));
    let cancel = json!({"all": true, "type": "cancel", "severity": 0, "note": ""});
    out.extend(bench.request("job-manager.raise", &cancel));
    out.extend(bench.advance());
    out.extend(bench.rest());
    let cancelled = responses(&out, "job-manager.raise");
    assert_eq!(body(cancelled[0])["count"], JOBS + 1);
    assert_eq!(rows(&out).len(), JOBS + 1);
    let all = listed(&mut bench);
    assert_eq!(all.len(), 2 * JOBS + 1);
    assert!(all.contains(&late) && before.iter().all(|id| all.contains(id)));
}

#[test]
fn a_job_can_be_cancelled_before_its_first_step() {
    for payload in [copies(JOBS), list()] {
        let mut bench = Bench::new();
        let mut out = submit_as(&mut bench, "client", &payload);
        while responses(&out, "job-ingest.submit").is_empty() {
            out.extend(bench.pass(0.0));
        }
        let ids = ids(&out);
        let last = ids[JOBS - 1];
        let urgency = json!({"id": ids[JOBS - 2], "urgency": 20});
        bench.request("job-manager.urgency", &urgency);
        bench.request("job-manager.raise", &json!({"id": last, "type": "cancel"}));
        bench.advance();
        assert_eq!(bench.row(last)["state"], 64);
        let row = bench.row(ids[JOBS - 2]);
        assert_eq!((&row["priority"], &row["state"]), (&20.into(), &8.into()));
        let stats = body(&bench.request("job-list.job-stats", &json!({}))[0]);
        assert_eq!(stats["job_states"]["sched"], JOBS - 1);
    }
}

#[test]
fn no_more_is_read_of_peers_whose_open_lists_take_much_memory_together() {
    let mut bench = Bench::new();
    let padding = "x".repeat(1 << 20);
    let job = json!({"jobspec": jobspec(&json!({ "padding": padding }))});
    let list = json!({ "jobs": vec![job; 12] });
    let peers = ["a", "b", "c", "d", "e", "f", "g"];
    let ahead = |bench: &Bench| peers.map(|peer| bench.manager.is_ahead(peer.as_bytes()));
    for peer in &peers[..5] {
        submit_as(&mut bench, peer, &list);
    }
    // 16 MiB each, 64 MiB in all.
    assert_eq!(ahead(&bench), [false; 7]);
    submit_as(&mut bench, "f", &list);
    assert_eq!(ahead(&bench), [true, true, true, true, true, true, false]);
    submit_as(&mut bench, "g", &list);
    bench.advance();
    assert_eq!(ahead(&bench), [false; 7]);
    assert_eq!(total(&mut bench), 7 * 12);
}

#[test]
fn a_list_in_parts_is_one_submission() {
    let directory = Directory::new("submission-parts");
    let mut bench = directory.open(settings(), 1000.0);
    let mut first = part(0, &["x", "y"], true);
    let copies = jobspec(&json!({"job": {"name": "copy{cc}"}}));
    let copies = json!({"jobspec": copies, "cc": "3-4"});
    first["jobs"].as_array_mut().unwrap().push(copies);
    let results = part_results(&send_part(&mut bench, "client", &first));
    assert!(results[0].is_u64() && results[1].is_u64());
    assert_eq!(results[2].as_array().unwrap().len(), 2);
    // Neither visible, nor there after a crash.
    assert_eq!(total(&mut bench), 0);
    assert!(directory.reader().jobs().unwrap().records.is_empty());
    let (between, _) = bench.submit(&json!({}));
    assert_eq!(listed(&mut bench), [between]);
    let second = part_results(&send_part(&mut bench, "client", &long_part(1, "z", true)));
    assert_eq!(second.len(), JOBS);
    assert_eq!(listed(&mut bench), [between]);
    let last = part_results(&send_part(&mut bench, "client", &part(2, &["last"], false)));
    let all = [
        vec![results[0].clone(), results[1].clone()],
        results[2].as_array().unwrap().clone(),
        second.clone(),
        last.clone(),
    ];
    let all: Vec<u64> = all.concat().iter().map(|id| id.as_u64().unwrap()).collect();
    assert!(all.is_sorted());
    let mut expected = all.clone();
    expected.push(between);
    expected.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(listed(&mut bench), expected);
    assert_eq!(total(&mut bench), JOBS + 6);
    assert_eq!(bench.row(all[2])["name"], "copy3");
    assert_eq!(bench.row(all[0])["name"], "x");
    let now = bench.now;
    drop(bench);
    let mut bench = directory.open(settings(), now);
    assert_eq!(listed(&mut bench), expected);
    // Under its token the jobs are the same ones, also if the parts are others.
    let mut again = vec![
        first["jobs"].clone(),
        long_part(1, "z", true)["jobs"].clone(),
    ];
    again.push(part(2, &["last"], false)["jobs"].clone());
    let again = again
        .iter()
        .flat_map(|jobs| jobs.as_array().unwrap().clone());
    let again = json!({"token": "a", "part": 0, "jobs": again.collect::<Vec<_>>()});
    let again = part_results(&send_part(&mut bench, "other", &again));
    assert_eq!(again, [results, second, last].concat());
    assert_eq!(total(&mut bench), JOBS + 6);
    let other = send_part(&mut bench, "other", &part(0, &["x"], false));
    let taken = "token `a` names another submission".to_owned();
    assert_eq!(rejection(&other), (17, taken.clone()));
    let whole = json!({"token": "a", "jobs": [named("x")]});
    assert_eq!(
        rejection(&submit_as(&mut bench, "other", &whole)),
        (17, taken)
    );
    assert_eq!(total(&mut bench), JOBS + 6);
}

#[test]
fn a_client_that_leaves_between_the_parts_has_submitted_nothing() {
    let mut bench = Bench::new();
    send_part(&mut bench, "client", &part(0, &["x"], true));
    send_part(
        &mut bench,
        "other",
        &json!({"token": "b", "part": 0, "jobs": [named("z")]}),
    );
    assert_eq!(total(&mut bench), 1);
    bench.request_as("other", OWNER, "job-ingest.disconnect", &json!({}), 0);
    bench.advance();
    let results = part_results(&send_part(&mut bench, "client", &part(1, &["y"], true)));
    assert_eq!(results.len(), 1);
    bench.request_as("client", OWNER, "job-ingest.disconnect", &json!({}), 0);
    bench.advance();
    assert_eq!(total(&mut bench), 1);
    let late = send_part(&mut bench, "client", &part(2, &["z"], false));
    let (errnum, text) = rejection(&late);
    assert_eq!(errnum, 2, "{text}");
    assert!(text.contains("part 2 of token `a`"), "{text}");
    // Whose last part has come is complete.
    bench.request_as(
        "client",
        OWNER,
        "job-ingest.submit-part",
        &long_part(0, "z", false),
        0,
    );
    bench.request_as("client", OWNER, "job-ingest.disconnect", &json!({}), 0);
    bench.advance();
    assert_eq!(total(&mut bench), JOBS + 1);
}

#[test]
fn a_submission_whose_next_part_does_not_come_is_discarded() {
    let mut bench = Bench::new();
    send_part(&mut bench, "client", &part(0, &["x"], true));
    bench.pass(50.0);
    send_part(&mut bench, "client", &part(1, &["y"], true));
    bench.pass(50.0);
    assert_eq!(
        part_results(&send_part(&mut bench, "client", &part(2, &["z"], true))).len(),
        1
    );
    assert!(bench.manager.deadline().unwrap() <= bench.now + 60.0);
    bench.pass(60.0);
    let late = send_part(&mut bench, "client", &part(3, &["z"], false));
    assert_eq!(rejection(&late).0, 2);
    assert_discarded(&mut bench);
}

#[test]
fn a_crash_between_the_parts_leaves_no_job() {
    let directory = Directory::new("submission-part-crash");
    let mut bench = directory.open(settings(), 1000.0);
    let first = long_part(0, "x", true);
    bench.request_as("client", OWNER, "job-ingest.submit-part", &first, 0);
    bench.pass(0.0);
    let now = bench.now;
    drop(bench);
    let mut bench = directory.open(settings(), now);
    let late = send_part(&mut bench, "client", &part(1, &["z"], false));
    assert_eq!(rejection(&late).0, 2);
    assert_discarded(&mut bench);
}

#[test]
fn a_part_that_is_rejected_rejects_the_submission() {
    let out_of_order = part(2, &["y"], false);
    let empty = part(1, &[], true);
    for (wrong, expected) in [
        (out_of_order, "expected part 1 of the submission, found 2"),
        (empty, "part 1 of token `a` has no jobs"),
    ] {
        let mut bench = Bench::new();
        send_part(&mut bench, "client", &part(0, &["x"], true));
        let (errnum, text) = rejection(&send_part(&mut bench, "client", &wrong));
        assert_eq!(errnum, 71);
        assert!(text.contains(expected), "{text}");
        assert_discarded(&mut bench);
    }
    // The parts that have had no response get the error, too.
    let mut bench = Bench::new();
    let first = long_part(0, "x", true);
    bench.request_as("client", OWNER, "job-ingest.submit-part", &first, 0);
    bench
        .manager
        .set_rejection(Some(RequestError::new(28, "the disk is full")));
    let second = part(1, &["y"], false);
    let out = bench.request_as("client", OWNER, "job-ingest.submit-part", &second, 0);
    let errors = responses(&out, "job-ingest.submit-part");
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|error| error.errnum() == 28));
    bench.manager.set_rejection(None);
    assert_discarded(&mut bench);
}

#[test]
fn a_list_that_is_begun_again_takes_the_place_of_the_incomplete_one() {
    let mut bench = Bench::new();
    let first = long_part(0, "x", true);
    let mut out = bench.request_as("client", OWNER, "job-ingest.submit-part", &first, 0);
    out.extend(bench.request_as("again", OWNER, "job-ingest.submit-part", &first, 0));
    assert_eq!(responses(&out, "job-ingest.submit-part")[0].errnum(), 125);
    out = bench.advance();
    assert_eq!(part_results(&out).len(), JOBS);
    // The connection of the first one has no part in it.
    let foreign = send_part(&mut bench, "client", &part(1, &["y"], false));
    assert_eq!(rejection(&foreign).0, 2);
    let last = part_results(&send_part(&mut bench, "again", &part(1, &["y"], false)));
    assert_eq!(last.len(), 1);
    assert_eq!(total(&mut bench), JOBS + 1);
    // A whole list under the token of an incomplete one, and the reverse.
    let mut parts = part(0, &["x"], true);
    parts["token"] = "b".into();
    send_part(&mut bench, "client", &parts);
    let whole = json!({"token": "b", "jobs": [named("x")]});
    assert_eq!(rejection(&submit_as(&mut bench, "other", &whole)).0, 17);
    let whole = json!({"token": "c", "jobs": vec![named("x"); JOBS]});
    submit_as(&mut bench, "other", &whole);
    parts["token"] = "c".into();
    let out = bench.request_as("client", OWNER, "job-ingest.submit-part", &parts, 0);
    assert_eq!(rejection(&out).0, 17);
    bench.advance();
    assert_eq!(total(&mut bench), 2 * JOBS + 1);
}

#[test]
fn the_limits_of_a_guest_hold_for_all_parts() {
    let mut bench = Bench::with(Settings {
        guests: true,
        quota: Quota {
            active_jobs: 3,
            submission_jobs: 4,
            ..settings().quota
        },
        ..settings()
    });
    let send = |bench: &mut Bench, payload: &Value| {
        let mut out = bench.request_as("guest", 7, "job-ingest.submit-part", payload, 0);
        out.extend(bench.advance());
        out
    };
    let of = |token: usize, number: usize, names: &[&str], more: bool| {
        let mut payload = part(number, names, more);
        payload["token"] = token.to_string().into();
        payload
    };
    send(&mut bench, &of(0, 0, &["a", "b"], true));
    let results = part_results(&send(&mut bench, &of(0, 1, &["c", "d"], true)));
    assert!(results[0].is_u64());
    let text = results[1].as_str().unwrap();
    assert!(text.contains("penstock.quota.active-jobs"), "{text}");
    let (errnum, text) = rejection(&send(&mut bench, &of(0, 2, &["e"], false)));
    assert_eq!(errnum, 22);
    assert!(text.contains("penstock.quota.submission-jobs"), "{text}");
    // Its jobs do not count any longer.
    for token in 0..16 {
        assert_eq!(
            part_results(&send(&mut bench, &of(token, 0, &["a"], true))).len(),
            1
        );
    }
    let (errnum, text) = rejection(&send(&mut bench, &of(16, 0, &["a"], true)));
    assert_eq!(errnum, 11);
    assert!(
        text.contains("16 submissions of which parts are missing"),
        "{text}"
    );
    bench.request_as("guest", 7, "job-ingest.disconnect", &json!({}), 0);
    bench.advance();
    assert_eq!(
        part_results(&send(&mut bench, &of(16, 0, &["a", "b", "c"], false))).len(),
        3
    );
    assert_eq!(total(&mut bench), 3);
    // Tokens are those of their user.
    let out = bench.request_as(
        "owner",
        OWNER,
        "job-ingest.submit-part",
        &of(16, 0, &["z"], true),
        0,
    );
    assert!(out.is_empty());
}

#[test]
fn no_more_is_read_of_a_peer_with_long_parts_that_are_not_accepted_yet() {
    let mut bench = Bench::new();
    let padding = "x".repeat(1 << 20);
    let job = json!({"jobspec": jobspec(&json!({ "padding": padding }))});
    for number in 0..2 {
        assert!(!bench.manager.is_ahead(b"client"));
        let payload =
            json!({"token": "a", "part": number, "more": true, "jobs": vec![job.clone(); 8]});
        bench.request_as("client", OWNER, "job-ingest.submit-part", &payload, 0);
    }
    assert!(bench.manager.is_ahead(b"client"));
    bench.advance();
    assert!(!bench.is_due() && !bench.manager.is_ahead(b"client"));
}

#[test]
fn jobs_of_a_list_share_their_first_events() {
    let directory = Directory::new("submission-events");
    let mut bench = directory.open(settings(), 1000.0);
    let mut jobs: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(named).to_vec();
    jobs[2]["urgency"] = 3.into();
    jobs[4]["jobspec"]["attributes"]["system"]["dependencies"] =
        json!([{"scheme": "begin-time", "value": "1e10"}]);
    let list = json!({ "jobs": jobs });
    let ids = ids(&submit_as(&mut bench, "client", &list));
    let logs = |bench: &mut Bench| ids.iter().map(|id| bench.log(*id)).collect::<Vec<_>>();
    let before = logs(&mut bench);
    let first = ["submit", "validate", "depend", "priority"];
    for (place, id) in ids.iter().enumerate() {
        if place == 4 {
            let expected = ["submit", "validate", "dependency-add"];
            assert_eq!(bench.events(*id), expected);
        } else {
            assert_eq!(bench.events(*id), first, "{place}");
            let urgency = if place == 2 { 3 } else { 16 };
            assert_eq!(before[place][0]["context"]["urgency"], urgency);
            assert_eq!(before[place][3]["context"]["priority"], urgency);
            assert_eq!(bench.row(*id)["priority"], urgency);
        }
    }
    assert_eq!(before[0], before[1]);
    // A job has further events of its own.
    let urgency = json!({"id": ids[1], "urgency": 5});
    bench.request("job-manager.urgency", &urgency);
    assert_eq!(bench.events(ids[1]).len(), 6);
    let now = bench.now;
    drop(bench);
    let mut bench = directory.open(settings(), now);
    for place in [0, 2, 3, 5] {
        assert_eq!(bench.log(ids[place])[..4], before[place][..4], "{place}");
    }
    assert_eq!(bench.log(ids[1])[..4], before[0][..4]);
    assert_eq!(bench.row(ids[0])["name"], "a");
    assert_eq!(bench.row(ids[1])["priority"], 5);
    // The events stay as long as one of the jobs does.
    let cancel = json!({"ids": ids[..2], "type": "cancel", "severity": 0});
    bench.request("job-manager.raise", &cancel);
    bench.advance();
    bench.request(
        "job-manager.purge",
        &json!({"ids": ids[..1], "force": true}),
    );
    bench.advance();
    assert_eq!(bench.log(ids[1])[..4], before[0][..4]);
    bench.request(
        "job-manager.purge",
        &json!({"ids": ids[1..2], "force": true}),
    );
    bench.advance();
    let store = bench.manager.store();
    assert_eq!(store.jobs().unwrap().records.len(), 4);
    assert_eq!(store.eventlog(JobId::new(ids[1])).unwrap(), "");
}

/// The jobspec of a submission that has nothing else is not looked for by a parser of its own.
#[test]
fn a_submission_of_a_list_is_that_which_its_text_says() {
    let mut bench = Bench::new();
    let mut other = named("b");
    other["urgency"] = 3.into();
    let mut with_token = named("c");
    with_token["token"] = "t".into();
    let mut later = named("d");
    later["more"] = json!({});
    let without_version = json!({"jobspec": {"resources": []}});
    let jobs = [named("a"), other, with_token, without_version, later];
    let list = json!({ "jobs": jobs, "independent": true });
    let out = submit_as(&mut bench, "client", &list);
    let results = body(responses(&out, "job-ingest.submit")[0])["results"].clone();
    for (place, name, urgency) in [(0, "a", 16), (1, "b", 3), (4, "d", 16)] {
        let id = results[place]["ids"][0].as_u64().unwrap();
        let row = bench.row(id);
        assert_eq!(
            (&row["name"], &row["urgency"]),
            (&name.into(), &urgency.into())
        );
    }
    let errors = [
        (2, "a `token` names the whole request"),
        (3, "expected the key `version`"),
    ];
    for (place, expected) in errors {
        let error = results[place]["error"].as_str().unwrap();
        assert!(error.contains(expected), "{error}");
    }
}
