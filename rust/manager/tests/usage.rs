//! `job-list.usage`: sums over random jobs, compared with those over their rows.

mod common;

use std::collections::BTreeMap;

use common::{Bench, Directory, OWNER, R, Random, body, jobspec, queues, rejection};
use penstock_flux::flags::STREAMING;
use penstock_manager::Settings;
use penstock_wire::Message;
use serde_json::{Value, json};

const GUEST: u32 = 2000;
const KEYS: [&str; 4] = ["userid", "queue", "project", "bank"];
const AMOUNTS: [&str; 4] = ["jobs", "node_seconds", "core_seconds", "gpu_seconds"];

/// The values of the keys, as text, and the span.
type Key = (Vec<String>, u64);
type Sums = BTreeMap<Key, [f64; 4]>;

/// Random jobs: pending, running, and ended, some of which were never started.
fn add_jobs(bench: &mut Bench, random: &mut Random, running: &mut Vec<u64>, ranks: &mut u64) {
    for _ in 0..40 {
        bench.now += [0.5, 100.0, 1000.0][random.index(3)];
        let queue = ["batch", "debug"][random.index(2)];
        let mut system = json!({ "queue": queue });
        for key in ["project", "bank"] {
            if random.below(3) > 0 {
                system[key] = ["x", "y"][random.index(2)].into();
            }
        }
        let user = [OWNER, GUEST][random.index(2)];
        let payload = json!({"jobspec": jobspec(&system)});
        let out = bench.request_as("client", user, "job-ingest.submit", &payload, 0);
        let id = body(&out[0])["id"].as_u64().unwrap();
        match random.below(5) {
            0 => {}
            1 => drop(bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}))),
            _ => {
                let (first, last) = (*ranks, *ranks + 1 + random.below(3));
                *ranks = last + 1;
                let r = R.replace("\"0-1\"", &format!("\"{first}-{last}\""));
                let r = r.replace("n[0-1]", &format!("n[{first}-{last}]"));
                let gpus = format!("\"core\":\"0-{}\",\"gpu\":\"0\"", 1 + random.below(4));
                bench.allocate_as(id, &r.replace("\"core\":\"0-3\"", &gpus));
                bench.exec(id, "start", &json!({}));
                running.push(id);
            }
        }
        if running.len() > 4 {
            bench.now += [1.0, 5000.0][random.index(2)];
            let id = running.swap_remove(random.index(running.len()));
            bench.end(id, 0);
        }
        bench.advance();
    }
}

/// The sums over rows, as the specification of the method has them.
fn sums_of_rows(
    rows: &[Value],
    by: &[&str],
    times: &[f64],
    now: f64,
    is_counted: impl Fn(&Value) -> bool,
) -> Sums {
    let mut sums = Sums::new();
    for row in rows.iter().filter(|row| is_counted(row)) {
        let Some(begin) = row["t_run"].as_f64() else {
            continue;
        };
        let end = row["t_inactive"].as_f64().unwrap_or(now);
        for (span, bounds) in (0..).zip(times.windows(2)) {
            let seconds = end.min(bounds[1]) - begin.max(bounds[0]);
            if seconds <= 0.0 {
                continue;
            }
            let values = KEYS.map(|key| row[key].to_string());
            let values = KEYS.iter().zip(values).filter(|(key, _)| by.contains(key));
            let key = (values.map(|(_, value)| value).collect(), span);
            let amounts =
                ["nnodes", "ncores", "ngpus"].map(|name| row[name].as_f64().unwrap_or(0.0));
            let sum = sums.entry(key).or_default();
            sum[0] += 1.0;
            for (total, amount) in sum[1..].iter_mut().zip(amounts) {
                *total += amount * seconds;
            }
        }
    }
    sums
}

fn sums_of_response(response: &Value, by: &[&str]) -> Sums {
    let sums = response["sums"].as_array().unwrap().iter().map(|sum| {
        let keys = KEYS.iter().filter(|key| by.contains(key));
        let values = keys.map(|key| sum[key].to_string()).collect();
        let amounts = AMOUNTS.map(|name| sum[name].as_f64().unwrap());
        ((values, sum["span"].as_u64().unwrap()), amounts)
    });
    sums.collect()
}

fn assert_alike(found: &Sums, expected: &Sums) {
    assert!(found.keys().eq(expected.keys()), "{found:?} {expected:?}");
    for (key, sum) in found {
        for (found, expected) in sum.iter().zip(expected[key]) {
            assert!(
                (found - expected).abs() < 1e-6 * expected.max(1.0),
                "{key:?}: {found} in place of {expected}"
            );
        }
    }
}

fn all(bench: &mut Bench, from: u32, topic: &str, payload: &Value, flags: u8) -> Vec<Message> {
    let mut out = bench.request_as("reader", from, topic, payload, flags);
    out.extend(bench.rest());
    out
}

fn rows(bench: &mut Bench) -> Vec<Value> {
    let out = all(
        bench,
        OWNER,
        "job-list.list",
        &json!({"max_entries": 0}),
        STREAMING,
    );
    let parts = out.iter().filter(|part| part.errnum() == 0);
    parts
        .flat_map(|part| body(part)["jobs"].as_array().unwrap().clone())
        .collect()
}

fn usage(bench: &mut Bench, from: u32, payload: &Value) -> Value {
    let out = all(bench, from, "job-list.usage", payload, 0);
    assert_eq!(
        (out.len(), out[0].errnum()),
        (1, 0),
        "{:?}",
        out[0].error_text()
    );
    body(&out[0])
}

fn check(bench: &mut Bench) {
    let rows = rows(bench);
    let begins: Vec<_> = rows
        .iter()
        .filter_map(|row| row["t_run"].as_f64())
        .collect();
    let middle = begins[begins.len() / 2];
    let spans = [
        vec![0.0, bench.now],
        vec![0.0, middle - 700.0, middle, middle + 3000.0, bench.now],
        vec![middle, middle + 2000.0],
        // A running job has used nothing in the future.
        vec![middle, bench.now - 1.0, bench.now + 1e6],
    ];
    let keys: [&[&str]; 5] = [&[], &["userid"], &["queue"], &["project", "bank"], &KEYS];
    for (times, by) in spans.iter().flat_map(|times| keys.map(|by| (times, by))) {
        let names: Vec<_> = by
            .iter()
            .map(|key| if *key == "userid" { "user" } else { key })
            .collect();
        let all = json!({"by": names, "times": times});
        let found = sums_of_response(&usage(bench, OWNER, &all), by);
        let expected = sums_of_rows(&rows, by, times, bench.now, |_| true);
        assert_alike(&found, &expected);
        let some =
            json!({"by": names, "times": times, "userid": OWNER, "queues": ["debug", "none"]});
        let found = sums_of_response(&usage(bench, OWNER, &some), by);
        let expected = sums_of_rows(&rows, by, times, bench.now, |row| {
            row["userid"] == OWNER && row["queue"] == "debug"
        });
        assert_alike(&found, &expected);
        // Guests see their own jobs.
        let found = sums_of_response(&usage(bench, GUEST, &all), by);
        let expected = sums_of_rows(&rows, by, times, bench.now, |row| row["userid"] == GUEST);
        assert_alike(&found, &expected);
    }
}

fn with_guests() -> Settings {
    Settings {
        guests: true,
        ..queues::two()
    }
}

#[test]
fn the_sums_are_those_of_the_rows_of_random_jobs() {
    for seed in 1..=3 {
        let directory = Directory::new("usage");
        let mut bench = directory.open(with_guests(), 1000.0);
        bench.manager.set_max_ended(3);
        bench.scheduler(None);
        bench.executor();
        let (mut random, mut running, mut ranks) = (Random(seed), Vec::new(), 0);
        add_jobs(&mut bench, &mut random, &mut running, &mut ranks);
        check(&mut bench);
        let purge = json!({"num_limit": 10, "force": true});
        bench.request("job-manager.purge", &purge);
        bench.advance();
        check(&mut bench);
        let now = bench.now;
        drop(bench);
        let mut bench = directory.open(with_guests(), now);
        bench.manager.set_max_ended(3);
        check(&mut bench);
        bench.scheduler(None);
        bench.executor();
        for id in &running {
            bench.exec(*id, "reattached", &json!({}));
        }
        add_jobs(&mut bench, &mut random, &mut running, &mut ranks);
        check(&mut bench);
    }
}

#[test]
fn a_job_that_ends_between_slices_is_counted_once_and_others_are_served() {
    let mut bench = Bench::new();
    bench.manager.set_max_ended(0);
    let ids = bench.running_jobs(9);
    bench.now += 10.0;
    let (first, others) = (ids[0], &ids[1..]);
    let times = json!({"by": [], "times": [0.0, 1e9]});
    let mut out = bench.request("job-list.usage", &times);
    assert_eq!(out, []);
    // One was counted, and the others were not.
    for id in [&[first], others].concat() {
        out.extend(bench.exec(id, "finish", &json!({"status": 0})));
        out.extend(bench.exec(id, "release", &json!({"ranks": "all", "final": true})));
        out.extend(bench.request("job-manager.ping", &json!({})));
    }
    out.extend(bench.rest());
    out.retain(|message| message.topic() == "job-list.usage");
    let sums = body(&out[0])["sums"].clone();
    assert_eq!(
        (sums[0]["jobs"].as_u64(), sums.as_array().unwrap().len()),
        (Some(9), 1)
    );
    // A client that leaves gets no response.
    bench.request_as("gone", OWNER, "job-list.usage", &times, 0);
    bench.request_as("gone", OWNER, "job-list.disconnect", &json!({}), 4);
    assert!(bench.rest().is_empty() && !bench.manager.has_more());
}

#[test]
fn a_user_has_at_most_four_open_requests() {
    let mut bench = Bench::new();
    bench.running_jobs(60);
    bench.now += 10.0;
    let payload = json!({"by": [], "times": [0.0, 1e9]});
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.extend(bench.request("job-list.usage", &payload));
    }
    let (errnum, text) = rejection(&sent);
    assert_eq!(errnum, 11, "{text}");
    assert!(text.contains("4 requests of the user are open"), "{text}");
    assert_eq!(
        bench
            .rest()
            .iter()
            .filter(|message| message.errnum() == 0)
            .count(),
        4
    );
}

#[test]
fn times_that_do_not_ascend_are_rejected() {
    let mut bench = Bench::new();
    for times in [
        json!([]),
        json!([1.0]),
        json!([1.0, 1.0]),
        json!([2.0, 1.0]),
    ] {
        let payload = json!({"by": [], "times": times});
        let (errnum, text) = rejection(&bench.request("job-list.usage", &payload));
        assert_eq!(errnum, 22, "{text}");
        assert!(
            text.contains("at least two finite numbers that ascend"),
            "{text}"
        );
    }
    let unknown = json!({"by": ["day"], "times": [0.0, 1.0]});
    let (_, text) = rejection(&bench.request("job-list.usage", &unknown));
    assert!(text.ends_with("found `day`"), "{text}");
}
