//! A reload of another constraint of a queue: its jobs are requested, and allocated, with the new one alone.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::queues::{ids_of, queues, responses, start_of, status, stop_of, two};
use common::{Bench, Directory, OWNER, R, Random, body, jobspec, topics};
use penstock_manager::{Queue, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

#[test]
fn new_settings_renew_the_requests_of_queues_with_other_resources() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let (batch, _) = bench.submit(&json!({"queue": "batch"}));
    bench.submit(&json!({"queue": "debug"}));
    let ssd = Queue {
        requires: vec!["ssd".to_owned()],
        ..Queue::default()
    };
    let set = queues(&[("batch", ssd), ("debug", Queue::default())]);
    bench.manager.set_settings(set, bench.now);
    let out = bench.manager.flush().unwrap();
    assert_eq!(topics(&out), ["sched.cancel"]);
    let out = bench.answer("sched.alloc", &json!({"id": batch, "type": 3}));
    assert_eq!(topics(&out), ["sched.alloc"]);
    let system = &body(&out[0])["jobspec"]["attributes"]["system"];
    assert_eq!(system["constraints"], json!({"properties": ["ssd"]}));
}

/// The jobs were read at the start with the constraint of their queue then: none.
#[test]
fn jobs_of_a_queue_that_comes_back_are_requested_with_its_constraint() {
    let directory = Directory::new("queue-comes-back");
    let mut bench = directory.open(requiring("ssd"), 1000.0);
    let (id, _) = bench.submit(&json!({"queue": "batch"}));
    bench.manager.close();
    let mut bench = directory.open(queues(&[("debug", Queue::default())]), 2000.0);
    let out = bench.scheduler(None);
    let mut allocs = out.iter().filter(|sent| sent.topic() == "sched.alloc");
    assert_eq!(allocs.next().map(required), Some(Value::Null));
    bench.manager.set_settings(requiring("ssd"), bench.now);
    let out = bench.manager.flush().unwrap();
    assert_eq!(topics(&out), ["sched.cancel"]);
    let out = bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    assert_eq!(out.iter().map(required).collect::<Vec<_>>(), ["ssd"]);
}

#[test]
fn jobspecs_with_much_text_are_renewed_in_smaller_slices() {
    let slices = |length: usize| {
        let mut bench = Bench::with(two());
        bench.scheduler(None);
        for number in 0..40 {
            let variable = "x".repeat(length);
            let environment = json!({"A": variable, "N": number.to_string()});
            bench.submit(&json!({"queue": "batch", "environment": environment}));
        }
        bench.manager.set_settings(requiring("ssd"), bench.now);
        bench.manager.flush().unwrap();
        let mut slices = 1;
        while bench.is_due() {
            bench.pass(0.0);
            slices += 1;
        }
        slices
    };
    // A slice has 200 jobs, or three of 100 KB.
    assert_eq!((slices(10), slices(100_000)), (1, 14));
}

#[test]
fn a_client_that_has_gone_gets_no_response_about_a_reload() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    bench.submit_copies(&json!({"queue": "batch"}), 1000);
    bench.manager.set_settings(requiring("ssd"), bench.now);
    bench.manager.flush().unwrap();
    let wait = |bench: &mut Bench, origin| {
        let out = bench.request_as(origin, OWNER, "job-manager.config-wait", &json!({}), 0);
        assert_eq!(responses(&out), Vec::<&str>::new());
    };
    wait(&mut bench, "gone");
    wait(&mut bench, "stays");
    bench.request_as("gone", OWNER, "job-manager.disconnect", &json!({}), 4);
    let mut found = Vec::new();
    while bench.is_due() {
        found.extend(bench.advance());
    }
    assert_eq!(responses(&found), ["job-manager.config-wait"]);
}

/// The two queues, of which `batch` requires a property.
fn requiring(property: &str) -> Settings {
    let batch = Queue {
        requires: vec![property.to_owned()],
        ..Queue::default()
    };
    queues(&[("batch", batch), ("debug", Queue::default())])
}

/// The property that an alloc request requires; null for none.
fn required(alloc: &Message) -> Value {
    let system = &body(alloc)["jobspec"]["attributes"]["system"];
    system["constraints"]["properties"][0].clone()
}

#[test]
fn new_settings_renew_many_requests_in_slices_and_by_priority() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 1000);
    let held = json!({"id": ids[500], "urgency": 0});
    bench.request("job-manager.urgency", &held);
    bench.answer("sched.alloc", &json!({"id": ids[500], "type": 3}));
    bench.manager.set_settings(requiring("ssd"), bench.now);
    let mut out = bench.manager.flush().unwrap();
    // Requests of this queue are not sent meanwhile, but those of others are, and of urgent jobs that come later.
    let (late, sent) = bench.submit(&json!({"queue": "batch"}));
    assert!(topics(&sent).is_empty());
    let urgent = json!({"jobspec": jobspec(&json!({"queue": "batch"})), "urgency": 31});
    let sent = bench.request("job-ingest.submit", &urgent);
    let alloc = sent.iter().find(|message| message.topic() == "sched.alloc");
    assert_eq!(required(alloc.unwrap()), "ssd");
    let (other, sent) = bench.submit(&json!({"queue": "debug"}));
    assert_eq!(ids_of(&sent, "sched.alloc"), [other]);
    let release = json!({"id": ids[500], "urgency": 20});
    out.extend(bench.request("job-manager.urgency", &release));
    let cancel = json!({"id": ids[600], "type": "cancel"});
    out.extend(bench.request("job-manager.raise", &cancel));
    let mut slices = 1;
    while bench.is_due() {
        assert!(ids_of(&out, "sched.alloc").is_empty());
        for id in ids_of(&out, "sched.cancel") {
            out.extend(bench.answer("sched.alloc", &json!({"id": id, "type": 3})));
        }
        let pong = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
        assert_eq!(responses(&pong), ["job-manager.ping"]);
        out = bench.pass(0.0);
        slices += 1;
    }
    assert!(slices > 4, "{slices}");
    let last = ids_of(&out, "sched.cancel");
    for id in last {
        out.extend(bench.answer("sched.alloc", &json!({"id": id, "type": 3})));
    }
    out.extend(bench.rest());
    let allocs: Vec<_> = out
        .iter()
        .filter(|message| message.topic() == "sched.alloc")
        .collect();
    assert!(allocs.iter().all(|alloc| required(alloc) == "ssd"));
    let mut expected = ids.clone();
    expected.remove(600);
    let released = expected.remove(500);
    expected.insert(0, released);
    // The late job comes before those whose cancellation is answered last.
    let (lates, sent): (Vec<u64>, Vec<u64>) = ids_of(&out, "sched.alloc")
        .into_iter()
        .partition(|id| *id == late);
    assert!(lates == [late] && sent == expected);
}

#[test]
fn a_jobspec_that_takes_the_key_of_another_during_a_reload_is_sent_as_it_is() {
    let mut bench = Bench::with(two());
    bench.manager.set_slice(2);
    bench.scheduler(None);
    let submit = |bench: &mut Bench, duration: u32| {
        let system = json!({"queue": "batch", "duration": duration});
        bench.submit(&system).0
    };
    let update = |bench: &mut Bench, id: u64, duration: u32| {
        let updates = json!({"attributes.system.duration": duration});
        bench.request("job-manager.update", &json!({"id": id, "updates": updates}))
    };
    let first = submit(&mut bench, 61);
    let second = submit(&mut bench, 62);
    let last = submit(&mut bench, 61);
    update(&mut bench, first, 64);
    // Its jobspec has the greatest key now.
    update(&mut bench, second, 65);
    bench.manager.set_settings(requiring("ssd"), bench.now);
    let mut out = bench.manager.flush().unwrap();
    out.extend(update(&mut bench, second, 64));
    out.extend(update(&mut bench, last, 63));
    out.extend(bench.advance());
    for id in ids_of(&out, "sched.cancel") {
        out.extend(bench.answer("sched.alloc", &json!({"id": id, "type": 3})));
    }
    out.extend(bench.rest());
    let alloc = out
        .iter()
        .rev()
        .find(|message| message.topic() == "sched.alloc" && body(message)["id"] == last);
    let system = body(alloc.unwrap())["jobspec"]["attributes"]["system"].clone();
    assert_eq!(system["duration"].as_f64(), Some(63.0));
}

#[test]
fn settings_that_change_again_leave_requests_that_agree_with_them() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 1000);
    bench.manager.set_settings(requiring("ssd"), bench.now);
    let mut out = bench.manager.flush().unwrap();
    bench.manager.set_settings(two(), bench.now);
    out.extend(bench.manager.flush().unwrap());
    out.extend(bench.advance());
    let cancelled = ids_of(&out, "sched.cancel");
    assert!(!cancelled.is_empty() && cancelled.len() < ids.len());
    assert!(ids_of(&out, "sched.alloc").is_empty());
    for id in cancelled {
        let again = bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
        assert_eq!(ids_of(&again, "sched.alloc"), [id]);
        assert_eq!(required(&again[0]), Value::Null);
    }
}

/// A scheduler that answers cancellations late, and what must hold of the requests that it gets.
#[derive(Default)]
struct Requests {
    outstanding: BTreeSet<u64>,
    cancels: Vec<u64>,
    /// The property that `batch` requires.
    property: Value,
    /// By job: the duration, and the required property, in the last request.
    durations: BTreeMap<u64, Value>,
    properties: BTreeMap<u64, Value>,
    /// The number of allocations: each has a node of its own.
    allocations: u32,
}

impl Requests {
    fn check(&mut self, out: &[Message]) {
        for message in out {
            match message.topic() {
                "sched.alloc" => {
                    let id = body(message)["id"].as_u64().unwrap();
                    assert!(self.outstanding.insert(id), "{id} is requested twice");
                    let system = &body(message)["jobspec"]["attributes"]["system"];
                    self.durations.insert(id, system["duration"].clone());
                    self.properties.insert(id, required(message));
                    if system["queue"] == "batch" {
                        assert_eq!(required(message), self.property, "{id}");
                    }
                }
                "sched.cancel" => {
                    let id = body(message)["id"].as_u64().unwrap();
                    assert!(self.outstanding.contains(&id), "{id} is not requested");
                    self.cancels.push(id);
                }
                _ => {}
            }
        }
    }

    /// Checks that these jobs were requested with the duration of their rows.
    fn check_durations(&self, rows: &[Value], due: &BTreeSet<u64>, seed: u64) {
        for row in rows {
            let id = row["id"].as_u64().unwrap();
            if due.contains(&id) {
                let requested = self.durations[&id].as_f64();
                assert_eq!(requested, row["duration"].as_f64(), "{id}, seed {seed}");
            }
        }
    }

    /// Allocates resources to a job: a request with a former constraint gets none.
    fn allocate(&mut self, bench: &mut Bench, random: &mut Random) {
        let which = random.index(self.outstanding.len());
        let Some(id) = self.outstanding.iter().copied().nth(which) else {
            return;
        };
        self.allocations += 1;
        self.outstanding.remove(&id);
        self.cancels.retain(|cancel| *cancel != id);
        let r = format!(
            r#"{{"version":1,"execution":{{"R_lite":[{{"rank":"{}","children":{{"core":"0"}}}}],"nodelist":["n"],"starttime":0.0,"expiration":0.0}}}}"#,
            self.allocations,
        );
        let committed = bench.commit_r(id, &r);
        assert_eq!(committed[0].errnum(), 0, "{:?}", committed[0].error_text());
        let is_of_batch = bench.row(id)["queue"] == "batch";
        let is_former = is_of_batch && self.properties[&id] != self.property;
        let out = bench.answer("sched.alloc", &json!({"id": id, "type": 0}));
        self.check(&out);
        let is_running = bench.row(id)["state"] == 16;
        assert!(!(is_former && is_running), "{id}");
        assert_eq!(ids_of(&out, "sched.free").contains(&id), !is_running);
    }

    fn answer_cancel(&mut self, bench: &mut Bench, random: &mut Random) {
        let which = random.index(self.cancels.len());
        let id = self.cancels.swap_remove(which);
        self.outstanding.remove(&id);
        let out = bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
        self.check(&out);
    }
}

const QUEUES: [&str; 2] = ["batch", "debug"];

/// The jobs whose requests are to be outstanding, by their rows.
fn due_jobs(bench: &mut Bench, rows: &[Value], limit: Option<u32>) -> BTreeSet<u64> {
    let started: Vec<&str> = QUEUES
        .into_iter()
        .filter(|queue| status(bench, queue)["start"] == true)
        .collect();
    let mut due: Vec<(i64, u64)> = rows
        .iter()
        .filter(|row| row["state"] == 8 && row["priority"] != 0)
        .filter(|row| started.contains(&row["queue"].as_str().unwrap()))
        .map(|row| {
            let (priority, id) = (row["priority"].as_i64(), row["id"].as_u64());
            (-priority.unwrap(), id.unwrap())
        })
        .collect();
    due.sort_unstable();
    due.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
    due.into_iter().map(|(_, id)| id).collect()
}

#[test]
fn every_job_is_requested_once_and_as_it_is_whatever_happens_meanwhile() {
    const CLIENTS: [&str; 3] = ["one", "two", "three"];
    for seed in 1..=48 {
        let limit = (seed % 4 == 0).then_some(4);
        let mut random = Random(seed);
        let mut bench = Bench::with(two());
        bench.manager.set_slice(3);
        let mut requests = Requests::default();
        bench.scheduler(limit);
        let mut ids = Vec::new();
        for _ in 0..200 {
            let client = CLIENTS[random.index(3)];
            let queue = QUEUES[usize::from(random.below(4) == 0)];
            let any = random.index(ids.len().max(1));
            let any = ids.get(any).copied();
            let out = match (random.below(13), any) {
                (0, _) => {
                    let payload = start_of(queue);
                    bench.request_as(client, OWNER, "job-manager.queue-start", &payload, 0)
                }
                (1, _) => {
                    let payload = stop_of(queue);
                    bench.request_as(client, OWNER, "job-manager.queue-start", &payload, 0)
                }
                (2, _) => {
                    let property = ["", "ssd", "hdd"][random.index(3)];
                    requests.property = property.into();
                    let settings = if property.is_empty() {
                        requests.property = Value::Null;
                        two()
                    } else {
                        requiring(property)
                    };
                    bench.manager.set_settings(settings, bench.now);
                    bench.manager.flush().unwrap()
                }
                (3, Some(id)) => {
                    let cancel = json!({"id": id, "type": "cancel"});
                    bench.request("job-manager.raise", &cancel)
                }
                (4, Some(id)) => {
                    let urgency = [0, 10, 16, 20][random.index(4)];
                    let change = json!({"id": id, "urgency": urgency});
                    bench.request("job-manager.urgency", &change)
                }
                (5, Some(id)) => {
                    let updates = json!({"attributes.system.duration": 60 + random.below(4)});
                    let change = json!({"id": id, "updates": updates});
                    bench.request("job-manager.update", &change)
                }
                (6, _) if random.below(20) == 0 => {
                    requests.outstanding.clear();
                    requests.cancels.clear();
                    bench.request_as("sched", OWNER, "job-manager.disconnect", &json!({}), 0);
                    bench.scheduler(limit)
                }
                (7, _) if !requests.cancels.is_empty() => {
                    requests.answer_cancel(&mut bench, &mut random);
                    Vec::new()
                }
                (8 | 9, _) => bench.pass(0.0),
                (10, _) if !requests.outstanding.is_empty() => {
                    requests.allocate(&mut bench, &mut random);
                    Vec::new()
                }
                _ => {
                    // With few different jobspecs, new ones get the keys of removed ones in the store.
                    let duration = 60 + random.below(4);
                    let (id, out) = bench.submit(&json!({"queue": queue, "duration": duration}));
                    ids.push(id);
                    out
                }
            };
            requests.check(&out);
        }
        loop {
            let out = bench.advance();
            requests.check(&out);
            let out = bench.rest();
            requests.check(&out);
            if requests.cancels.is_empty() {
                break;
            }
            requests.answer_cancel(&mut bench, &mut random);
        }
        let rows: Vec<Value> = ids.iter().map(|id| bench.row(*id)).collect();
        let due = due_jobs(&mut bench, &rows, limit);
        assert_eq!(requests.outstanding, due);
        requests.check_durations(&rows, &due, seed);
    }
}

#[test]
fn new_settings_hold_for_all_jobs_of_a_submission_that_is_under_way() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let payload = json!({"jobspec": jobspec(&json!({"queue": "batch"})), "count": 1500});
    bench.request("job-ingest.submit", &payload);
    assert!(bench.is_due());
    let ssd = Queue {
        requires: vec!["ssd".to_owned()],
        ..Queue::default()
    };
    let set = queues(&[("batch", ssd), ("debug", Queue::default())]);
    bench.manager.set_settings(set, bench.now);
    let mut out = bench.advance();
    out.extend(bench.rest());
    let allocs = out
        .iter()
        .filter(|message| message.topic() == "sched.alloc");
    let constraints = allocs.map(|alloc| {
        let system = &body(alloc)["jobspec"]["attributes"]["system"];
        system["constraints"].clone()
    });
    let constraints: Vec<Value> = constraints.collect();
    assert_eq!(constraints, vec![json!({"properties": ["ssd"]}); 1500]);
}

/// Reloads with another constraint of 20 jobs, one of which is renewed at once. R of the last one is committed. Returns
/// the jobs, and what is sent.
fn begin_renewal(bench: &mut Bench) -> (Vec<u64>, Vec<Message>) {
    bench.manager.set_slice(1);
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 20);
    bench.commit_r(ids[19], R);
    bench.manager.set_settings(requiring("ssd"), bench.now);
    (ids, bench.manager.flush().unwrap())
}

/// Checks that an allocation is returned, and that its job is requested with the property.
fn check_returned(bench: &mut Bench, out: &[Message], id: u64, property: &str) {
    assert_eq!(topics(out), ["sched.free", "sched.alloc"]);
    assert_eq!(body(&out[0])["id"], id);
    assert_eq!(body(&out[0])["final"], true);
    assert_eq!(ids_of(out, "sched.alloc"), [id]);
    assert_eq!(required(&out[1]), property);
    assert!(!bench.events(id).contains(&"alloc".to_owned()));
    let lookup = json!({"id": id, "keys": ["R"]});
    assert_ne!(bench.request("job-info.lookup", &lookup)[0].errnum(), 0);
}

#[test]
fn resources_that_are_allocated_for_a_former_constraint_are_freed_and_requested_again() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({"queue": "batch"}));
    let (other, _) = bench.submit(&json!({"queue": "debug"}));
    // R is committed, and the response is on its way.
    bench.commit_r(id, R);
    bench.manager.set_settings(requiring("ssd"), bench.now);
    assert_eq!(topics(&bench.manager.flush().unwrap()), ["sched.cancel"]);
    let success =
        json!({"id": id, "type": 0, "annotations": {"sched": {"resource_summary": "rank0"}}});
    let out = bench.answer("sched.alloc", &success);
    check_returned(&mut bench, &out, id, "ssd");
    assert_eq!(bench.row(id)["annotations"], Value::Null);
    // The resources are free, for the job of another queue, and for this job.
    bench.allocate(other);
    assert!(bench.events(other).contains(&"alloc".to_owned()));
    bench.request("job-manager.raise", &json!({"id": other, "type": "cancel"}));
    bench.allocate(id);
    assert!(bench.events(id).contains(&"alloc".to_owned()));
}

#[test]
fn an_allocation_is_rejected_before_its_job_is_renewed_too() {
    let directory = Directory::new("renewal");
    let mut bench = directory.open(two(), 1000.0);
    let (ids, mut out) = begin_renewal(&mut bench);
    let last = ids[19];
    let rejected = bench.answer("sched.alloc", &json!({"id": last, "type": 0}));
    assert_eq!(topics(&rejected), ["sched.free"]);
    assert!(!bench.events(last).contains(&"alloc".to_owned()));
    out.extend(bench.advance());
    out.extend(bench.rest());
    assert_eq!(ids_of(&out, "sched.cancel"), ids[..19]);
    assert_eq!(ids_of(&out, "sched.alloc"), [last]);
    // A restart knows of no allocation.
    drop(bench);
    let mut bench = directory.open(requiring("ssd"), 2000.0);
    let out = bench.scheduler(None);
    assert_eq!(ids_of(&out, "sched.alloc"), ids);
    assert_eq!(bench.row(last)["state"], 8);
}

#[test]
fn a_denial_by_a_former_constraint_or_time_limit_ends_no_job() {
    let mut bench = Bench::with(requiring("none"));
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({"queue": "batch"}));
    let denial = json!({"id": id, "type": 2, "note": "unsatisfiable"});
    bench.manager.set_settings(requiring("ssd"), bench.now);
    bench.manager.flush().unwrap();
    let out = bench.answer("sched.alloc", &denial);
    assert_eq!(ids_of(&out, "sched.alloc"), [id]);
    assert_eq!(required(&out[0]), "ssd");
    let updates = json!({"attributes.system.duration": 60});
    bench.request("job-manager.update", &json!({"id": id, "updates": updates}));
    let out = bench.answer("sched.alloc", &denial);
    assert_eq!(ids_of(&out, "sched.alloc"), [id]);
    bench.answer("sched.alloc", &denial);
    assert_eq!(bench.row(id)["state"], 64);
}

#[test]
fn an_update_during_a_reload_does_not_hide_the_former_constraint() {
    let mut bench = Bench::with(two());
    let (ids, _) = begin_renewal(&mut bench);
    let last = ids[19];
    let updates = json!({"attributes.system.duration": 60});
    bench.request(
        "job-manager.update",
        &json!({"id": last, "updates": updates}),
    );
    bench.advance();
    bench.rest();
    let out = bench.answer("sched.alloc", &json!({"id": last, "type": 0}));
    check_returned(&mut bench, &out, last, "ssd");
}

#[test]
fn the_end_of_a_reload_is_reported_when_every_job_is_renewed() {
    let mut bench = Bench::with(two());
    bench.manager.set_slice(1);
    bench.scheduler(None);
    let wait = |bench: &mut Bench| {
        bench.request_as("broker", OWNER, "job-manager.config-wait", &Value::Null, 0)
    };
    assert_eq!(responses(&wait(&mut bench)), ["job-manager.config-wait"]);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 20);
    bench.manager.set_settings(requiring("ssd"), bench.now);
    let mut out = bench.manager.flush().unwrap();
    out.extend(wait(&mut bench));
    while bench.is_due() {
        assert!(responses(&out).is_empty());
        // Others are served meanwhile.
        let pong = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
        assert_eq!(responses(&pong), ["job-manager.ping"]);
        // Another reload begins again.
        if ids_of(&out, "sched.cancel") == ids[9..10] {
            bench.manager.set_settings(requiring("hdd"), bench.now);
        }
        out = bench.pass(0.0);
    }
    assert_eq!(responses(&out), ["job-manager.config-wait"]);
    assert_eq!(out.last().map(Message::errnum), Some(0));
}
