//! Listings of many jobs: sent in parts, newest first, while the client reads them.

mod common;

use std::collections::BTreeSet;

use common::{Bench, Directory, OWNER, Random, body, jobspec, r_of_node, rejection, settings};
use penstock_flux::flags::STREAMING;
use penstock_manager::{JobVisibility, Queue, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

/// More jobs than one part has.
const JOBS: usize = 3000;

fn many(bench: &mut Bench, count: usize) -> Vec<u64> {
    let (mut ids, _) = bench.submit_copies(&json!({}), count);
    ids.reverse();
    ids
}

fn ids(out: &[Message]) -> Vec<u64> {
    let rows = out
        .iter()
        .filter(|message| message.errnum() == 0)
        .flat_map(|message| {
            let rows = body(message)["jobs"].clone();
            assert!(!rows.as_array().unwrap().is_empty());
            serde_json::from_value::<Vec<Value>>(rows).unwrap()
        });
    rows.map(|row| row["id"].as_u64().unwrap()).collect()
}

fn ended(out: &[Message]) -> bool {
    out.last().is_some_and(|message| message.errnum() == 61)
}

/// The ids in the remaining parts of a listing, and the number of parts.
fn rest(bench: &mut Bench, mut out: Vec<Message>) -> (Vec<u64>, usize) {
    let mut parts = 1;
    while bench.manager.has_more() {
        assert!(!ended(&out));
        out.extend(bench.manager.flush().unwrap());
        parts += 1;
    }
    assert!(ended(&out));
    (ids(&out), parts)
}

/// The response to a list request: with the newest job first, unless the request has ids or another order.
fn list(bench: &mut Bench, peer: &str, payload: &Value) -> Vec<Message> {
    let mut payload = payload.clone();
    if payload.get("ids").is_none() && payload.get("order").is_none() {
        payload["order"] = "newest".into();
    }
    bench.request_as(peer, OWNER, "job-list.list", &payload, STREAMING)
}

#[test]
fn rows_come_in_parts_newest_first() {
    let mut bench = Bench::new();
    let all = many(&mut bench, JOBS);
    let out = list(&mut bench, "a", &json!({"attrs": ["id"]}));
    assert!(!ended(&out));
    // Jobs that are submitted meanwhile are not listed.
    let (late, _) = bench.submit(&json!({}));
    let (found, parts) = rest(&mut bench, out);
    assert!(parts > 2);
    assert!(!found.contains(&late));
    assert!(found.is_sorted_by(|one, next| one > next));
    assert_eq!((found[0], found.last()), (all[0], all.last()));
    let most = JOBS - 5;
    let out = list(
        &mut bench,
        "a",
        &json!({"attrs": ["id"], "max_entries": most}),
    );
    let (found, _) = rest(&mut bench, out);
    assert_eq!(found[0], late);
    assert_eq!(found[1..], all[..most - 1]);
    for skip in [1, JOBS - 10, JOBS + 1] {
        let page = page_of(&mut bench, &json!({ "skip": skip }));
        assert_eq!(page, all[skip - 1..(skip + 49).min(JOBS)]);
    }
}

/// They are read from the store.
#[test]
fn many_requested_jobs_that_have_ended_are_checked_in_slices_before_any_row() {
    let mut bench = Bench::new();
    let all = many(&mut bench, JOBS);
    let cancel = json!({"all": true, "type": "cancel", "severity": 0, "note": ""});
    bench.request("job-manager.raise", &cancel);
    bench.advance();
    let unknown: Vec<u64> = all.iter().copied().chain([1]).collect();
    let mut out = list(&mut bench, "a", &json!({ "ids": unknown }));
    let mut slices = 0;
    while bench.manager.has_more() {
        assert!(out.is_empty());
        out.extend(bench.manager.flush().unwrap());
        slices += 1;
    }
    assert!(slices > 4, "{slices}");
    assert_eq!(out.len(), 1);
    assert_eq!(rejection(&out).0, 2);
    let out = list(&mut bench, "a", &json!({"attrs": ["id"], "ids": all}));
    let (found, _) = rest(&mut bench, out);
    assert_eq!(found, all);
}

#[test]
fn requested_ids_come_in_their_order_and_an_unknown_one_before_any_row() {
    let mut bench = Bench::new();
    let mut wanted = many(&mut bench, JOBS);
    wanted.rotate_left(7);
    let payload = json!({"attrs": ["id"], "ids": wanted});
    let out = list(&mut bench, "a", &payload);
    let (found, parts) = rest(&mut bench, out);
    assert!(parts > 1);
    assert_eq!(found, wanted);
    wanted.push(1);
    let out = list(&mut bench, "a", &json!({ "ids": wanted }));
    assert_eq!((out.len(), rejection(&out).0), (1, 2));
    assert!(!bench.manager.has_more());
}

#[test]
fn a_short_listing_does_not_wait_for_a_long_one() {
    let mut bench = Bench::new();
    let all = many(&mut bench, JOBS);
    let long = list(&mut bench, "a", &json!({"attrs": ["id"]}));
    // The long listing has sent a part and sends the next one; then comes the short one.
    let mut out = list(&mut bench, "b", &json!({"attrs": ["id"], "ids": [all[3]]}));
    out.extend(bench.manager.flush().unwrap());
    let to_b = |message: &Message| message.routes.as_ref().unwrap().last().unwrap() == b"b";
    let (short, more): (Vec<_>, Vec<_>) = out.into_iter().partition(to_b);
    assert!(ended(&short));
    assert_eq!(ids(&short), [all[3]]);
    let long = [long, more].concat();
    assert!(!ended(&long));
    assert_eq!(rest(&mut bench, long).0, all);
}

#[test]
fn jobs_that_are_not_shown_are_passed_in_turns_too() {
    let mut bench = Bench::new();
    many(&mut bench, 2_501);
    let running = json!({"constraint": {"states": ["running"]}});
    assert!(list(&mut bench, "a", &running).is_empty());
    assert!(bench.manager.has_more());
    let out = bench.manager.flush().unwrap();
    assert_eq!((out.len(), ended(&out)), (1, true));
    assert!(!bench.manager.has_more());
}

#[test]
fn a_listing_waits_for_a_reader_that_is_behind() {
    let mut bench = Bench::new();
    let all = many(&mut bench, JOBS);
    let first = list(&mut bench, "a", &json!({"attrs": ["id"]}));
    assert_eq!(bench.manager.readers(), [b"a".to_vec()].into());
    bench.manager.set_backlogged([b"a".to_vec()].into());
    assert!(!bench.manager.has_more());
    assert!(bench.manager.flush().unwrap().is_empty());
    // Listings of other clients continue.
    let other = list(&mut bench, "b", &json!({"attrs": ["id"]}));
    assert_eq!(rest(&mut bench, other).0, all);
    bench.manager.set_backlogged([].into());
    assert!(bench.manager.has_more());
    assert_eq!(rest(&mut bench, first).0, all);
    assert!(bench.manager.readers().is_empty());
}

#[test]
fn a_listing_ends_when_it_is_cancelled_and_with_its_peer() {
    let mut bench = Bench::new();
    many(&mut bench, JOBS);
    let part = list(&mut bench, "client", &json!({}));
    let tag = part[0].matchtag;
    let cancel = json!({ "matchtag": tag });
    let topic = "job-list.list-cancel";
    // Other clients cannot cancel it.
    bench.manager.set_backlogged([b"client".to_vec()].into());
    let out = bench.request_as("other", OWNER, topic, &cancel, 0);
    assert_eq!((out.len(), out[0].topic()), (1, topic));
    let out = bench.request(topic, &cancel);
    let responses: Vec<_> = out
        .iter()
        .map(|message| (message.topic(), message.errnum()))
        .collect();
    assert_eq!(responses, [("job-list.list", 61), (topic, 0)]);
    assert_eq!(out[0].matchtag, tag);
    assert!(bench.manager.readers().is_empty());
    assert_eq!(rejection(&bench.request(topic, &json!({}))).0, 71);

    bench.manager.set_backlogged([].into());
    list(&mut bench, "client", &json!({}));
    let gone = "job-list.disconnect";
    let out = bench.request_as("client", OWNER, gone, &Value::Null, 4);
    assert!(out.is_empty());
    assert!(!bench.manager.has_more());
    assert!(bench.manager.readers().is_empty());
}

#[test]
fn nothing_is_made_for_a_listing_without_a_response() {
    let mut bench = Bench::new();
    bench.submit(&json!({}));
    let flags = STREAMING | penstock_flux::flags::NORESPONSE;
    let out = bench.request_as("a", OWNER, "job-list.list", &json!({}), flags);
    assert!(out.is_empty());
    assert!(bench.manager.readers().is_empty());
}

#[test]
fn a_job_that_is_purged_meanwhile_is_left_out() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let last = bench.running(&json!({}));
    bench.executor();
    let all = many(&mut bench, JOBS);
    let wanted: Vec<u64> = all.iter().chain([&last]).copied().collect();
    let out = list(&mut bench, "a", &json!({"attrs": ["id"], "ids": wanted}));
    bench.manager.set_backlogged([b"a".to_vec()].into());
    bench.end(last, 0);
    let purge = json!({"ids": [last], "force": true});
    let done = bench.request("job-manager.purge", &purge);
    assert_eq!(body(&done[0])["count"], 1);
    bench.manager.set_backlogged([].into());
    assert_eq!(rest(&mut bench, out).0, all);
}

#[test]
fn a_job_of_a_range_of_slots_has_the_tasks_that_it_was_granted() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let mut ids = Vec::new();
    for tasks in [json!({"per_slot": 1}), json!({"total": 2})] {
        let mut spec = jobspec(&json!({}));
        spec["resources"][0]["count"] = "2-8".into();
        spec["tasks"][0]["count"] = tasks;
        let out = bench.request("job-ingest.submit", &json!({ "jobspec": spec }));
        ids.push(body(&out[0])["id"].as_u64().unwrap());
    }
    let shown = |bench: &mut Bench, id: u64| {
        let row = bench.row(id);
        (row["ntasks"].clone(), row["ncores"].clone())
    };
    for id in &ids {
        assert_eq!(shown(&mut bench, *id), (json!(2), json!(2)));
    }
    let r = common::R.replace("\"starttime\"", "\"nslots\":8,\"starttime\"");
    for (id, cores) in ids.iter().zip(["0-3", "4-7"]) {
        bench.commit_r(*id, &r.replace("0-3", cores));
        bench.answer("sched.alloc", &json!({"id": id, "type": 0}));
    }
    assert_eq!(shown(&mut bench, ids[0]), (json!(8), json!(8)));
    assert_eq!(shown(&mut bench, ids[1]), (json!(2), json!(8)));
}

/// A listing by state, to its end: the first jobs in one of these states, at most `limit`.
fn first_in(bench: &mut Bench, states: &[&str], limit: usize) -> Vec<u64> {
    let constraint = json!({"states": states});
    let payload =
        json!({"attrs": ["id"], "order": "state", "max_entries": limit, "constraint": constraint});
    let out = list(bench, "a", &payload);
    rest(bench, out).0
}

/// At most 50 rows of a listing.
fn page_of(bench: &mut Bench, payload: &Value) -> Vec<u64> {
    let mut payload = payload.clone();
    payload["attrs"] = json!(["id"]);
    payload["max_entries"] = 50.into();
    let out = list(bench, "a", &payload);
    rest(bench, out).0
}

/// All of them.
fn ordered(bench: &mut Bench, states: &[&str]) -> Vec<u64> {
    first_in(bench, states, 0)
}

#[test]
fn pending_jobs_come_by_priority_then_oldest_first() {
    let directory = Directory::new("positions");
    let mut bench = directory.open(common::settings(), 1000.0);
    let mut normal = many(&mut bench, JOBS);
    normal.reverse();
    let (blocked, _) =
        bench.submit(&json!({"dependencies": [{"scheme": "begin-time", "value": "9999999999"}]}));
    let urgency = |id: u64, urgency: u8| json!({"id": id, "urgency": urgency});
    let (held, urgent) = (normal.remove(0), normal.remove(700));
    bench.request("job-manager.urgency", &urgency(held, 0));
    bench.request("job-manager.urgency", &urgency(urgent, 20));
    let mut expected = vec![urgent];
    expected.extend(&normal);
    expected.extend([held, blocked]);
    assert_eq!(ordered(&mut bench, &["pending"]), expected);
    for limit in [1, 2, 699, 700, 701, JOBS, JOBS + 1] {
        let first = first_in(&mut bench, &["active"], limit);
        assert_eq!(first, expected[..limit.min(expected.len())]);
    }
    for skip in [0, 1, 699, 700, JOBS - 10, JOBS, JOBS + 1] {
        let page = page_of(&mut bench, &json!({"order": "state", "skip": skip}));
        assert_eq!(
            page,
            expected
                .iter()
                .skip(skip)
                .take(50)
                .copied()
                .collect::<Vec<_>>()
        );
    }
    // A restart reads the order from the store.
    drop(bench);
    let mut bench = directory.open(common::settings(), 9000.0);
    assert_eq!(ordered(&mut bench, &["pending"]), expected);
}

#[test]
fn running_and_inactive_jobs_come_latest_first() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let mut jobs = Vec::new();
    for core in 0..4 {
        let (id, _) = bench.submit(&json!({}));
        jobs.push((id, core));
    }
    // The youngest job starts first.
    for (id, core) in jobs.iter().rev() {
        bench.commit_r(
            *id,
            &common::R
                .replace("0-1", "0")
                .replace("0-3", &core.to_string()),
        );
        bench.answer("sched.alloc", &json!({"id": id, "type": 0}));
    }
    let (pending, _) = bench.submit(&json!({}));
    let started: Vec<u64> = jobs.iter().map(|(id, _)| *id).collect();
    assert_eq!(ordered(&mut bench, &["running"]), started);
    assert_eq!(
        ordered(&mut bench, &["active"]),
        [&started[..], &[pending]].concat()
    );
    assert!(ordered(&mut bench, &["inactive"]).is_empty());
    for index in [2, 0, 3] {
        bench.end(started[index], 0);
    }
    let all = ["active", "inactive"];
    let expected = [started[1], pending, started[3], started[0], started[2]];
    assert_eq!(ordered(&mut bench, &all), expected);
    assert_eq!(first_in(&mut bench, &all, 4), expected[..4]);
    assert_eq!(ordered(&mut bench, &["inactive"]), expected[2..]);
    assert_eq!(ordered(&mut bench, &["active"]), expected[..2]);
}

/// As Flux's clients list jobs: without an order.
#[test]
fn without_an_order_pending_jobs_come_first_then_running_ones_then_the_last_to_end() {
    let directory = Directory::new("order");
    let mut bench = directory.open(settings(), 1_900_000_000.0);
    let ids_of = |bench: &mut Bench, limit: usize| {
        let payload = json!({"attrs": ["id"], "max_entries": limit});
        let out = bench.request_as("flux", OWNER, "job-list.list", &payload, STREAMING);
        rest(bench, out).0
    };
    let jobs: Vec<u64> = (0..6).map(|_| bench.submit(&json!({})).0).collect();
    // They end in one moment, in another order than that of their ids.
    let ended: Vec<u64> = [4, 1, 3, 0].map(|index| jobs[index]).to_vec();
    let cancel = |id: &u64| json!({"id": id, "type": "cancel", "severity": 0, "note": ""});
    let moment = bench.now;
    for id in &ended {
        bench.now = moment;
        bench.request("job-manager.raise", &cancel(id));
    }
    bench.scheduler(None);
    bench.executor();
    let running = bench.running(&json!({}));
    let mut expected = vec![jobs[2], jobs[5], running];
    expected.extend(ended.iter().rev());
    assert_eq!(ids_of(&mut bench, 0), expected);
    for limit in 1..expected.len() {
        assert_eq!(ids_of(&mut bench, limit), expected[..limit]);
    }
    // The rows after the end of one of them are those that ended later.
    let since = bench.row(ended[1])["t_inactive"].clone();
    let later = json!({"attrs": ["id"], "since": since, "constraint": {"states": ["inactive"]}});
    let out = bench.request_as("flux", OWNER, "job-list.list", &later, STREAMING);
    assert_eq!(rest(&mut bench, out).0, [ended[3], ended[2]]);
    drop(bench);
    let mut bench = directory.open(settings(), 1_900_000_100.0);
    assert_eq!(ids_of(&mut bench, 0)[3..], expected[3..]);
}

#[test]
fn a_listing_by_state_ends_at_jobs_that_ended_too_early() {
    let mut bench = Bench::new();
    let mut ended = Vec::new();
    for _ in 0..3 {
        let (id, _) = bench.submit(&json!({}));
        bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
        // Events of one moment follow each other by microseconds.
        ended.push((id, bench.now + 0.001));
    }
    for (since, expected) in [
        (ended[1].1 - 0.5, vec![ended[2].0, ended[1].0]),
        (ended[1].1, vec![ended[2].0]),
        (ended[2].1, vec![]),
    ] {
        let payload = json!({"attrs": ["id"], "order": "state", "since": since});
        let out = list(&mut bench, "a", &payload);
        assert_eq!(rest(&mut bench, out).0, expected);
    }
}

#[test]
fn jobs_of_an_incomplete_submission_have_no_position() {
    let mut bench = Bench::new();
    let (first, _) = bench.submit(&json!({}));
    let payload = json!({"jobspec": jobspec(&json!({})), "count": 20_000});
    bench.request("job-ingest.submit", &payload);
    assert!(bench.is_due());
    assert_eq!(ordered(&mut bench, &["pending"]), [first]);
    bench.advance();
    assert_eq!(ordered(&mut bench, &["pending"]).len(), 20_001);
}

#[test]
fn an_order_has_a_name_and_excludes_ids() {
    let mut bench = Bench::new();
    let out = list(&mut bench, "a", &json!({"order": "state", "ids": []}));
    let text = "`ids` and `order` exclude each other";
    assert_eq!(rejection(&out), (22, text.to_owned()));
    let out = list(&mut bench, "a", &json!({"order": "oldest"}));
    assert_eq!(rejection(&out).0, 71);
    assert!(rejection(&out).1.contains("`pending`, `newest`, `state`"));
}

#[test]
fn a_guest_lists_and_awaits_its_own_jobs_unless_all_are_visible() {
    for visibility in [JobVisibility::Own, JobVisibility::All] {
        let mut bench = Bench::with(Settings {
            guests: true,
            job_visibility: visibility,
            ..settings()
        });
        let (owners, _) = bench.submit(&json!({}));
        let submission = json!({"jobspec": jobspec(&json!({}))});
        let out = bench.request_as("guest", 7, "job-ingest.submit", &submission, 0);
        let guests = body(&out[0])["id"].as_u64().unwrap();
        let mut ask = |userid, topic: &str, payload: Value, flags| {
            bench.request_as("x", userid, topic, &payload, flags)
        };
        let all = json!({"attrs": ["id"], "order": "newest"});
        let listed = ids(&ask(7, "job-list.list", all.clone(), STREAMING));
        let by_state = json!({"attrs": ["id"], "order": "state"});
        let ordered = ids(&ask(7, "job-list.list", by_state, STREAMING)).len();
        assert_eq!(
            ids(&ask(OWNER, "job-list.list", all, STREAMING)),
            [guests, owners]
        );
        let named = json!({"attrs": ["id"], "ids": [guests, owners]});
        let ended = json!({"ids": [owners]});
        let row = json!({"id": owners, "attrs": ["id"]});
        let answers = [
            ask(7, "job-list.list", named, STREAMING),
            ask(7, "job-list.list-id", row, 0),
            ask(7, "job-list.wait", ended, STREAMING),
        ];
        let own = json!({"id": guests, "attrs": ["id"]});
        assert_eq!(ask(7, "job-list.list-id", own, 0)[0].errnum(), 0);
        let mut greatest = |userid| {
            let stats = ask(userid, "job-manager.stats-get", json!({}), 0);
            body(&stats[0])["max_jobid"].as_u64().unwrap()
        };
        assert_eq!(greatest(OWNER), guests);
        let is_shown = visibility == JobVisibility::All;
        assert_eq!(greatest(7), if is_shown { guests } else { 0 });
        if visibility == JobVisibility::All {
            assert_eq!((listed, ordered), (vec![guests, owners], 2));
            assert!(answers.iter().flatten().all(|out| out.errnum() != 1));
        } else {
            assert_eq!((listed, ordered), (vec![guests], 1));
            for out in answers {
                let (errnum, text) = rejection(&out);
                assert_eq!(errnum, 1);
                assert!(text.ends_with("belongs to another user"), "{text}");
            }
        }
    }
}

const GUESTS: [u32; 2] = [7, 8];

fn pick<T: Copy>(random: &mut Random, values: &[T]) -> T {
    let index = random.below(values.len() as u64);
    values[usize::try_from(index).unwrap()]
}

/// Whether a row satisfies a constraint (RFC 43).
fn holds(constraint: &Value, row: &Value) -> bool {
    let Some((operator, values)) = constraint.as_object().unwrap().iter().next() else {
        return true;
    };
    let values = values.as_array().unwrap();
    let bits = |key: &str| row[key].as_u64().unwrap_or(0);
    match operator.as_str() {
        "and" => values.iter().all(|inner| holds(inner, row)),
        "or" => values.is_empty() || values.iter().any(|inner| holds(inner, row)),
        "not" => !values.iter().all(|inner| holds(inner, row)),
        "states" => values
            .iter()
            .any(|mask| mask.as_u64().unwrap() & bits("state") != 0),
        "results" => values
            .iter()
            .any(|mask| mask.as_u64().unwrap() & bits("result") != 0),
        "t_inactive" | "t_submit" => {
            let limit: f64 = values[0].as_str().unwrap()[1..].parse().unwrap();
            row[operator].as_f64().is_some_and(|time| time > limit)
        }
        // All that have run have run on the same nodes.
        "hostlist" => row["nodelist"] == "n[0-1]" && values.contains(&json!("n1")),
        "ranks" => row["ranks"] == "0-1" && values.contains(&json!("1")),
        key => values.contains(&row[key]),
    }
}

fn draw_constraint(random: &mut Random, depth: u64) -> Value {
    let time = format!(">{}", 1000 + random.below(600));
    match random.below(if depth > 0 { 13 } else { 10 }) {
        0 => json!({"userid": [pick(random, &[OWNER, 7, 8, 9]), 8]}),
        1 => json!({"name": ["a"]}),
        2 => json!({"name": ["none", pick(random, &["b", "c"])]}),
        3 => json!({"queue": [pick(random, &["batch", "debug", "none"])]}),
        4 => json!({"results": [1 << random.below(4)]}),
        5 => json!({"states": [1 << (3 + random.below(4))]}),
        6 => json!({"t_inactive": [time]}),
        7 => json!({"t_submit": [time]}),
        8 => json!({"hostlist": [pick(random, &["n1", "other"])]}),
        9 => json!({"ranks": [pick(random, &["1", "7"])]}),
        kind => {
            let operator = match kind {
                10 => "and",
                11 => "or",
                _ => "not",
            };
            let count = random.below(4);
            let inner = (0..count).map(|_| draw_constraint(random, depth - 1));
            let inner: Vec<Value> = inner.collect();
            json!({ operator: inner })
        }
    }
}

/// Pending jobs, and ones that have ended in each way, of several users, queues and names.
fn draw_jobs(bench: &mut Bench, random: &mut Random, count: usize) -> Vec<u64> {
    bench.scheduler(None);
    bench.executor();
    let mut draw = |random: &mut Random| {
        let user = pick(random, &[OWNER, GUESTS[0], GUESTS[1]]);
        let queue = pick(random, &["batch", "debug"]);
        let name = pick(random, &["a", "b", "c"]);
        let spec = jobspec(&json!({"queue": queue, "job": {"name": name}}));
        let out = bench.request_as("x", user, "job-ingest.submit", &json!({"jobspec": spec}), 0);
        let id = body(&out[0])["id"].as_u64().unwrap();
        match random.below(5) {
            0 => {}
            1 | 2 => {
                let cancel = json!({"id": id, "type": "cancel", "severity": 0, "note": ""});
                bench.request("job-manager.raise", &cancel);
            }
            way => {
                bench.allocate(id);
                bench.exec(id, "start", &json!({}));
                bench.end(id, if way == 3 { 0 } else { 256 });
            }
        }
        id
    };
    std::iter::repeat_with(|| draw(random))
        .take(count)
        .collect()
}

#[test]
fn pages_of_every_filter_are_those_of_a_list_of_all_jobs() {
    for seed in 1..=4 {
        eprintln!("seed {seed}");
        let mut random = Random(seed);
        let directory = Directory::new(&format!("filters-{seed}"));
        let settings = || Settings {
            guests: true,
            job_visibility: JobVisibility::Own,
            queues: ["batch", "debug"]
                .map(|name| (name.to_owned(), Queue::default()))
                .into(),
            ..settings()
        };
        let mut bench = directory.open(settings(), 1000.0);
        let mut all = draw_jobs(&mut bench, &mut random, 60);
        if seed % 2 == 0 {
            let now = bench.now;
            drop(bench);
            bench = directory.open(settings(), now);
        }
        all.extend(draw_jobs(&mut bench, &mut random, 20));
        let rows: Vec<Value> = all.iter().rev().map(|id| bench.row(*id)).collect();
        for _ in 0..120 {
            let constraint = draw_constraint(&mut random, 2);
            let late = 1000 + u32::try_from(random.below(600)).unwrap();
            let since = pick(&mut random, &[0, late]);
            let reader = pick(&mut random, &[OWNER, GUESTS[0]]);
            let order = pick(&mut random, &["newest", "pending", "state"]);
            let mut list = |skip: usize, max_entries: usize| {
                let payload = json!({
                    "attrs": ["id"], "constraint": constraint, "since": since, "order": order,
                    "skip": skip, "max_entries": max_entries,
                });
                let out = bench.request_as("x", reader, "job-list.list", &payload, STREAMING);
                rest(&mut bench, out).0
            };
            let mut found = list(0, 0);
            let shown = rows.iter().filter(|row| {
                (reader == OWNER || row["userid"] == reader)
                    && row["t_inactive"]
                        .as_f64()
                        .is_none_or(|end| end > f64::from(since))
                    && holds(&constraint, row)
            });
            let expected: Vec<u64> = shown.map(|row| row["id"].as_u64().unwrap()).collect();
            let (skip, max) = (random.below(30), 1 + random.below(20));
            let [skip, max] = [skip, max].map(|number| usize::try_from(number).unwrap());
            let page: Vec<u64> = found.iter().skip(skip).take(max).copied().collect();
            assert_eq!(list(skip, max), page, "{order} {constraint} since {since}");
            if order != "newest" {
                found.sort_unstable_by(|one, other| other.cmp(one));
            }
            assert_eq!(found, expected, "{order} {constraint} since {since}");
        }
    }
}

/// The index has both: of jobs that it cannot tell from others, 30 are read from the store in a slice.
#[test]
fn jobs_with_and_without_a_name_or_a_time_of_submission_are_passed_unread() {
    let directory = Directory::new("names");
    let mut bench = directory.open(settings(), 1000.0);
    let named = json!({"job": {"name": "common"}});
    for _ in 0..2 {
        bench.submit_copies(&named, JOBS / 2);
        bench.request("job-manager.raise", &json!({"all": true, "type": "cancel"}));
        bench.advance();
    }
    for _ in 0..2 {
        let filters = [
            (json!({"name": ["common"]}), 50),
            (json!({"not": [{"name": ["other"]}]}), 50),
            (json!({"not": [{"name": ["common"]}]}), 0),
            (
                json!({"or": [{"name": ["other"]}, {"t_submit": ["<5"]}]}),
                0,
            ),
            (json!({"t_submit": [">=1000"]}), 50),
        ];
        for (constraint, rows) in filters {
            for order in ["state", "newest"] {
                let payload = json!({
                    "attrs": ["id"], "constraint": constraint, "order": order,
                    "skip": JOBS - 60, "max_entries": 50,
                });
                let out = list(&mut bench, "a", &payload);
                let (found, parts) = rest(&mut bench, out);
                assert_eq!(found.len(), rows, "{order} {constraint}");
                assert!(parts <= 12, "{parts}: {order} {constraint}");
            }
        }
        drop(bench);
        bench = directory.open(settings(), 9000.0);
    }
}

/// With their events, 30 jobs are read from the store in a slice.
#[test]
fn jobs_on_other_nodes_are_passed_by_their_rows() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let ran = bench.running(&json!({}));
    bench.end(ran, 0);
    bench.submit_copies(&json!({}), JOBS);
    bench.request("job-manager.raise", &json!({"all": true, "type": "cancel"}));
    bench.advance();
    for (host, rank, expected) in [("n1", "0", vec![ran]), ("other", "7", vec![])] {
        for constraint in [
            json!({"hostlist": [host]}),
            json!({"or": [{"name": ["other"]}, {"ranks": [rank]}]}),
        ] {
            for (order, max) in [("state", 0), ("newest", 0), ("newest", 20)] {
                let payload = json!({
                    "attrs": ["id"], "constraint": constraint, "order": order, "max_entries": max,
                });
                let out = list(&mut bench, "a", &payload);
                let (found, parts) = rest(&mut bench, out);
                assert_eq!(found, expected, "{order} {constraint}");
                assert!(parts <= JOBS / 100, "{parts}: {order} {constraint}");
            }
        }
    }
}

/// Jobs that the index cannot tell from those with the name.
fn named(name: &str) -> Value {
    json!({"and": [{"not": [{"name": [name]}]}, {"userid": [OWNER]}]})
}

fn cancel_all(bench: &mut Bench) {
    bench.request("job-manager.raise", &json!({"all": true, "type": "cancel"}));
    bench.advance();
}

/// Jobs that end while those in memory are examined can be evicted before their turn.
#[test]
fn jobs_that_end_during_a_listing_are_listed_once() {
    // The jobs end after the others, or before one of them: the clock was set back.
    for end in [3000.0, 1500.0] {
        let mut bench = Bench::new();
        bench.now = 2000.0;
        let first = many(&mut bench, 1);
        cancel_all(&mut bench);
        let all = [many(&mut bench, JOBS), first].concat();
        let payload = json!({"attrs": ["id"], "order": "newest", "constraint": named("other")});
        let out = list(&mut bench, "a", &payload);
        assert!(bench.manager.has_more() && out.is_empty());
        bench.manager.set_backlogged([b"a".to_vec()].into());
        bench.now = end;
        cancel_all(&mut bench);
        bench.manager.set_backlogged([].into());
        assert_eq!(rest(&mut bench, out).0, all, "at {end}");
    }
}

/// They are listed as active or as inactive jobs, whichever they are when they are examined.
#[test]
fn jobs_that_end_during_a_listing_by_state_are_listed_once() {
    for order in ["state", "pending"] {
        for slices in 0..5 {
            let mut bench = Bench::new();
            bench.now = 2000.0;
            let first = many(&mut bench, 1);
            cancel_all(&mut bench);
            let all = [many(&mut bench, JOBS), first].concat();
            let payload = json!({"attrs": ["id"], "order": order, "constraint": named("other")});
            let mut out = list(&mut bench, "a", &payload);
            for _ in 0..slices {
                out.extend(bench.manager.flush().unwrap());
            }
            assert!(bench.manager.has_more(), "after {slices} slices");
            bench.manager.set_backlogged([b"a".to_vec()].into());
            bench.now = 3000.0;
            cancel_all(&mut bench);
            bench.manager.set_backlogged([].into());
            let mut found = rest(&mut bench, out).0;
            found.sort_unstable_by(|one, next| next.cmp(one));
            assert_eq!(found, all, "{order}, after {slices} slices");
        }
    }
}

#[test]
fn jobs_that_are_submitted_during_a_listing_do_not_shift_its_page() {
    let mut bench = Bench::new();
    let all = many(&mut bench, JOBS);
    let payload = json!({
        "attrs": ["id"], "order": "newest", "constraint": named("other"), "skip": 10, "max_entries": 50,
    });
    let out = list(&mut bench, "a", &payload);
    assert!(bench.manager.has_more() && out.is_empty());
    bench.manager.set_backlogged([b"a".to_vec()].into());
    // Of the same millisecond as the others.
    bench.now = 1000.0;
    let late = many(&mut bench, 30);
    assert!(late.iter().all(|late| late - all[0] <= 30));
    bench.manager.set_backlogged([].into());
    assert_eq!(rest(&mut bench, out).0, all[10..60]);
}

#[test]
fn ids_of_64_bits_have_pages() {
    let mut bench = Bench::new();
    bench.now += f64::from(1_u32 << 30);
    let all = many(&mut bench, 60);
    assert!(all.iter().all(|id| id.leading_zeros() == 0));
    cancel_all(&mut bench);
    let constraint = named("other");
    let page = page_of(&mut bench, &json!({"constraint": constraint, "skip": 20}));
    assert_eq!(page, all[20..]);
}

/// The index rules these jobs in.
#[test]
fn a_row_is_read_only_if_the_index_leaves_the_filter_open() {
    let mut bench = Bench::new();
    many(&mut bench, JOBS);
    cancel_all(&mut bench);
    let [by_index, by_row] =
        [json!({"queue": ["none"]}), json!({"hostlist": ["n1"]})].map(|other| {
            let constraint = json!({"or": [{"name": ["true"]}, other]});
            let payload = json!({"attrs": ["id"], "constraint": constraint, "order": "state"});
            let out = list(&mut bench, "a", &payload);
            let (found, parts) = rest(&mut bench, out);
            assert_eq!(found.len(), JOBS);
            parts
        });
    assert!(by_row <= by_index + by_index / 20, "{by_row}, {by_index}");
}

/// With their events, 30 jobs are read from the store in a slice. The bounds of submissions are those of 512 jobs together.
#[test]
fn jobs_that_end_after_one_that_was_long_pending_are_distinguished_by_their_rows() {
    let mut bench = Bench::new();
    let oldest = many(&mut bench, 1);
    bench.now = 5000.0;
    let all = many(&mut bench, JOBS);
    cancel_all(&mut bench);
    for order in ["state", "newest"] {
        for (limit, expected) in [("<2000", &oldest), ("<1", &vec![])] {
            let constraint = json!({"and": [{"t_submit": [limit]}, {"states": ["inactive"]}]});
            let payload = json!({"attrs": ["id"], "constraint": constraint, "order": order});
            let out = list(&mut bench, "a", &payload);
            let (found, parts) = rest(&mut bench, out);
            assert_eq!(found, *expected, "{order} {limit}");
            assert!(parts <= 10, "{parts}: {order} {limit}");
        }
        let t_submit = bench.row(all[0])["t_submit"].as_f64().unwrap();
        let since = json!({"t_submit": [format!(">={t_submit}")]});
        let page = page_of(&mut bench, &json!({"constraint": since, "order": order}));
        assert_eq!(page.len(), 50, "{order}");
    }
}

/// A slice has some hundred steps for each job, and a step for some bytes of a jobspec.
#[test]
fn a_large_jobspec_is_read_only_if_it_may_decide_and_is_charged_for() {
    let mut bench = Bench::new();
    for job in 0..10 {
        let name = format!("{job}");
        let mut spec = jobspec(&json!({"job": {"name": name}}));
        spec["attributes"]["user"] = "x".repeat(250_000).into();
        let out = bench.request("job-ingest.submit", &json!({ "jobspec": spec }));
        body(&out[0]);
    }
    cancel_all(&mut bench);
    let on_node = json!({"hostlist": ["n1"]});
    let named = json!({"not": [{"name": ["0"]}, on_node]});
    for (constraint, are_read) in [
        (json!({"and": [{"name": ["1", "2"]}, on_node]}), false),
        (json!({"not": [{"not": [on_node]}]}), false),
        (json!({"t_run": [">1"]}), true),
        (json!({"and": [{"t_run": [">1"]}, named]}), true),
    ] {
        for order in ["state", "newest"] {
            let payload = json!({"attrs": ["id"], "constraint": constraint, "order": order});
            let out = list(&mut bench, "a", &payload);
            let (found, parts) = rest(&mut bench, out);
            assert!(found.is_empty());
            let is_charged = if are_read { parts >= 9 } else { parts <= 2 };
            assert!(is_charged, "{parts}: {order} {constraint}");
        }
    }
}

#[test]
fn a_filter_that_takes_long_is_applied_to_few_jobs_in_one_slice() {
    let mut bench = Bench::new();
    let mut random = Random(1);
    bench.scheduler(None);
    bench.executor();
    for _ in 0..100 {
        let id = bench.running(&json!({}));
        bench.end(id, 0);
    }
    let hosts = (0..10_000).map(|_| format!("x{}y", random.below(1 << 40)));
    let operators = vec![json!({"queue": ["none"]}); 999];
    let long = [
        json!({"hostlist": [hosts.collect::<Vec<_>>().join(",")]}),
        json!({ "or": operators }),
    ];
    for constraint in long {
        for order in ["newest", "state"] {
            let payload = json!({"attrs": ["id"], "constraint": constraint, "order": order});
            let out = list(&mut bench, "a", &payload);
            let (found, parts) = rest(&mut bench, out);
            assert!(found.is_empty());
            assert!(parts >= 2, "{parts}");
        }
    }
    let out = list(
        &mut bench,
        "a",
        &json!({"attrs": ["id"], "constraint": {"hostlist": ["x"]}}),
    );
    assert_eq!(rest(&mut bench, out).1, 1);
}

/// Open listings hold the ids of their jobs: a client that does not read may not have many.
#[test]
fn one_listing_of_each_peer_is_sent_at_a_time_and_few_of_a_guest() {
    const GUEST: u32 = 4000;
    let mut bench = Bench::with(Settings {
        job_visibility: JobVisibility::All,
        ..settings()
    });
    let all = many(&mut bench, JOBS);
    let payload = json!({"attrs": ["id"], "order": "state"});
    let names = ["a", "b", "c", "d", "e", "f"];
    let backlogged = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let mut out = Vec::new();
    for name in names {
        out.extend(bench.request_as(name, GUEST, "job-list.list", &payload, STREAMING));
    }
    let receivers = |out: &[Message]| -> Vec<String> {
        let origins = out.iter().filter_map(Message::origin);
        let names = origins.map(|origin| String::from_utf8(origin.to_vec()).unwrap());
        let names: BTreeSet<_> = names.collect();
        names.into_iter().collect()
    };
    while receivers(&out).len() < 4 {
        out.extend(bench.manager.flush().unwrap());
    }
    assert_eq!(receivers(&out), names[..4]);
    // The four do not read: the others have to wait, and no listing is accepted that could not begin.
    bench.manager.set_backlogged(backlogged(&names[..4]));
    assert!(!bench.manager.has_more());
    let (errnum, text) =
        rejection(&bench.request_as("g", GUEST, "job-list.list", &payload, STREAMING));
    assert_eq!((errnum, text.contains("left unread")), (11, true), "{text}");
    let owners = bench.request_as("g", OWNER, "job-list.list", &payload, STREAMING);
    assert_eq!(receivers(&owners), ["g"]);
    bench.request_as("g", OWNER, "job-manager.disconnect", &json!({}), 0);
    out.extend(bench.request_as("b", GUEST, "job-manager.disconnect", &json!({}), 0));
    assert_eq!(receivers(&out), ["a", "b", "c", "d", "e"]);
    // All rows come once they are read.
    bench.manager.set_backlogged([].into());
    out.extend(bench.rest());
    for name in names.into_iter().filter(|name| *name != "b") {
        let of_peer = out
            .iter()
            .filter(|message| message.origin() == Some(name.as_bytes()));
        let of_peer: Vec<_> = of_peer.cloned().collect();
        assert_eq!(ids(&of_peer).len(), all.len(), "{name}");
    }
}

#[test]
fn listings_of_no_job_are_ended_in_slices() {
    let mut bench = Bench::new();
    bench.manager.set_backlogged([b"a".to_vec()].into());
    for _ in 0..1000 {
        list(&mut bench, "a", &json!({"attrs": ["id"], "ids": []}));
    }
    bench.manager.set_backlogged([].into());
    let mut slices = 0;
    while bench.manager.has_more() {
        bench.manager.flush().unwrap();
        slices += 1;
    }
    assert!(slices > 3, "{slices}");
}

/// It is pending when the order is found, running when its row would be made, and inactive at the end.
#[test]
fn a_job_that_matches_before_and_after_its_run_is_listed() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let all = many(&mut bench, 20);
    // A slice examines few jobs.
    let mut operators = vec![json!({"name": ["none"]}); 900];
    operators.push(json!({"states": ["depend", "priority", "sched", "inactive"]}));
    let payload = json!({"attrs": ["id"], "order": "state", "constraint": {"or": operators}});
    let mut out = list(&mut bench, "a", &payload);
    while ids(&out).is_empty() {
        out.extend(bench.manager.flush().unwrap());
    }
    let run = |bench: &mut Bench, work: &dyn Fn(&mut Bench)| {
        bench.manager.set_backlogged([b"a".to_vec()].into());
        work(bench);
        bench.manager.set_backlogged([].into());
    };
    let running: Vec<_> = all.iter().rev().copied().skip(ids(&out).len()).collect();
    assert!(running.len() > 10);
    run(&mut bench, &|bench| {
        for (rank, id) in running.iter().enumerate() {
            bench.allocate_as(*id, &r_of_node(rank));
        }
    });
    // The first of them is examined now, and the last one is not.
    out.extend(bench.manager.flush().unwrap());
    assert!(!ended(&out));
    run(&mut bench, &|bench| {
        bench.end(running[0], 0);
        bench.end(*running.last().unwrap(), 0);
    });
    let (mut found, _) = rest(&mut bench, out);
    found.sort_unstable();
    let mut expected = all.clone();
    expected.retain(|id| !running[1..running.len() - 1].contains(id));
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// The first jobs of the queue, which are examined first, start before the page of the queue's first jobs is sent.
#[test]
fn a_page_is_full_although_its_first_jobs_match_no_longer() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let mut others = many(&mut bench, 60);
    others.reverse();
    // A slice examines few jobs.
    let mut operators = vec![json!({"name": ["none"]}); 900];
    operators.push(json!({"states": ["pending"]}));
    for (order, skip) in [("state", 0), ("pending", 0), ("state", 3)] {
        let first = many(&mut bench, 8);
        bench.request("job-manager.urgency", &json!({"ids": first, "urgency": 20}));
        let payload = json!({
            "attrs": ["id"], "order": order, "constraint": {"or": operators}, "max_entries": 5, "skip": skip,
        });
        let out = list(&mut bench, "a", &payload);
        assert!(out.is_empty() && bench.manager.has_more());
        bench.manager.set_backlogged([b"a".to_vec()].into());
        for (rank, id) in first.iter().enumerate() {
            bench.allocate_as(*id, &r_of_node(rank));
        }
        bench.manager.set_backlogged([].into());
        let (found, _) = rest(&mut bench, out);
        assert_eq!(found, others[skip..skip + 5], "{order} {skip}");
        for id in first {
            bench.end(id, 0);
        }
    }
}
