//! Queues (RFC 33): accepted submissions, requests for resources, and status after a restart.

mod common;

use common::queues::{ids_of, queues, responses, start_of, status, stop_of, two};
use common::{Bench, Directory, OWNER, body, jobspec, rejection, topics};
use penstock_manager::{Limits, Queue, Settings};
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

#[test]
fn the_anonymous_queue_is_stopped_and_started() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let list = bench.request("job-manager.queue-list", &json!({}));
    assert_eq!(body(&list[0]), json!({"queues": []}));
    let whole = json!({"enable": true, "start": true});
    assert_eq!(status(&mut bench, ""), whole);
    let (requested, _) = bench.submit(&json!({}));
    let stop = json!({"start": false, "all": false, "nocheckpoint": false, "reason": "repair"});
    let out = bench.request("job-manager.queue-start", &stop);
    assert_eq!(topics(&out), ["sched.cancel"]);
    assert_eq!(body(&out[0]), Value::Null);
    let stopped = json!({"enable": true, "start": false, "stop_reason": "repair"});
    assert_eq!(status(&mut bench, ""), stopped);
    let out = bench.answer("sched.alloc", &json!({"id": requested, "type": 3}));
    assert!(topics(&out).is_empty());
    let (later, out) = bench.submit(&json!({}));
    assert!(topics(&out).is_empty());
    assert_eq!(bench.row(later)["state"], 8);
    let out = bench.request("job-manager.queue-start", &json!({"start": true}));
    assert_eq!(topics(&out), ["sched.alloc", "sched.alloc"]);
    assert_eq!(status(&mut bench, ""), whole);
}

#[test]
fn a_long_queue_is_stopped_in_slices() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 500);
    bench.submit_copies(&json!({"queue": "debug"}), 500);
    let stop = json!({"start": false, "name": "batch"});
    let first = bench.request("job-manager.queue-start", &stop);
    let is_answer = |message: &&Message| message.kind == MessageType::Response;
    assert_eq!(first.iter().filter(is_answer).count(), 0);
    // The setting holds from the beginning, and others are served in between.
    assert_eq!(status(&mut bench, "batch")["start"], false);
    let rest = bench.advance();
    let answers: Vec<_> = rest.iter().filter(is_answer).collect();
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].errnum(), body(answers[0])), (0, Value::Null));
    for id in ids {
        bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
        assert_eq!(bench.row(id)["state"], 8);
    }
}

/// Stops a queue, and has the scheduler cancel the requests.
fn stop_and_cancel(bench: &mut Bench, queue: &str) {
    let mut out = bench.request("job-manager.queue-start", &stop_of(queue));
    out.extend(bench.advance());
    for id in ids_of(&out, "sched.cancel") {
        bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    }
}

#[test]
fn a_long_queue_is_started_in_slices_and_requested_by_priority() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 1000);
    let (others, _) = bench.submit_copies(&json!({"queue": "debug"}), 10);
    stop_and_cancel(&mut bench, "batch");
    let (urgent, next) = (ids[990], ids[700]);
    for (id, urgency) in [(urgent, 20), (next, 18)] {
        bench.request(
            "job-manager.urgency",
            &json!({"id": id, "urgency": urgency}),
        );
    }
    let mut out = bench.request("job-manager.queue-start", &start_of("batch"));
    assert_eq!(status(&mut bench, "batch")["start"], true);
    // A request of another queue is sent meanwhile. None of this one is before all jobs have been looked at.
    let (other, sent) = bench.submit(&json!({"queue": "debug"}));
    assert_eq!(ids_of(&sent, "sched.alloc"), [other]);
    let mut slices = 1;
    while bench.is_due() {
        assert!(responses(&out).is_empty());
        assert!(topics(&out).is_empty());
        let pong = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
        assert_eq!(responses(&pong), ["job-manager.ping"]);
        out = bench.pass(0.0);
        slices += 1;
    }
    assert!(slices > 4, "{slices}");
    assert_eq!(responses(&out), ["job-manager.queue-start"]);
    out.extend(bench.rest());
    let allocs = ids_of(&out, "sched.alloc");
    assert_eq!(allocs.len(), ids.len());
    assert_eq!(allocs[..3], [urgent, next, ids[0]]);
    assert!(allocs[2..].is_sorted());
    assert!(others.iter().all(|id| !allocs.contains(id)));
}

#[test]
fn a_start_holds_up_the_jobs_of_stopped_queues_alone_and_from_its_first_slice() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    bench.submit_copies(&json!({"queue": "batch"}), 1000);
    // A queue that is started already.
    let out = bench.request("job-manager.queue-start", &start_of("batch"));
    assert_eq!(responses(&out), ["job-manager.queue-start"]);
    assert!(!bench.is_due());
    // A start behind another long request of its client.
    stop_and_cancel(&mut bench, "batch");
    let cancel = json!({"all": true, "type": "cancel"});
    let out = bench.request("job-manager.raise", &cancel);
    assert!(responses(&out).is_empty());
    bench.request("job-manager.queue-start", &start_of("batch"));
    let (job, sent) = bench.submit(&json!({"queue": "batch"}));
    assert_eq!(ids_of(&sent, "sched.alloc"), [job]);
}

#[test]
fn jobs_that_change_while_their_queue_is_started_are_requested_as_they_are() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 1000);
    stop_and_cancel(&mut bench, "batch");
    let mut out = bench.request("job-manager.queue-start", &start_of("batch"));
    // Of the first jobs, which are queued again, and of the last ones, which are not yet.
    for at in [0, 900] {
        let cancel = json!({"id": ids[at], "type": "cancel"});
        out.extend(bench.request("job-manager.raise", &cancel));
        for (id, urgency) in [(ids[at + 1], 0), (ids[at + 2], 20)] {
            let change = json!({"id": id, "urgency": urgency});
            out.extend(bench.request("job-manager.urgency", &change));
        }
    }
    let (late, more) = bench.submit(&json!({"queue": "batch"}));
    out.extend(more);
    assert!(topics(&out).iter().all(|topic| *topic != "sched.alloc"));
    out.extend(bench.advance());
    out.extend(bench.rest());
    assert!(!topics(&out).contains(&"sched.cancel"));
    let changed = [0, 1, 2, 900, 901, 902].map(|at| ids[at]);
    let mut expected = vec![ids[2], ids[902]];
    expected.extend(ids.iter().filter(|id| !changed.contains(id)));
    expected.push(late);
    assert_eq!(ids_of(&out, "sched.alloc"), expected);
}

#[test]
fn a_queue_that_is_stopped_while_it_is_started_stays_stopped() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 1000);
    stop_and_cancel(&mut bench, "batch");
    let mut out = bench.request("job-manager.queue-start", &start_of("batch"));
    let stop = stop_of("batch");
    out.extend(bench.request_as("other", OWNER, "job-manager.queue-start", &stop, 0));
    out.extend(bench.advance());
    assert_eq!(responses(&out), ["job-manager.queue-start"; 2]);
    assert!(topics(&out).is_empty());
    for id in [ids[0], ids[999]] {
        let reason = "queue `batch` is stopped";
        assert_eq!(bench.row(id)["pending_reason"], reason);
    }
    let mut out = bench.request("job-manager.queue-start", &start_of("batch"));
    out.extend(bench.advance());
    out.extend(bench.rest());
    assert_eq!(ids_of(&out, "sched.alloc"), ids);
}

#[test]
fn a_queue_that_is_started_while_it_is_stopped_keeps_the_requests_that_are_left() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 1000);
    let mut out = bench.request("job-manager.queue-start", &stop_of("batch"));
    let start = start_of("batch");
    out.extend(bench.request_as("other", OWNER, "job-manager.queue-start", &start, 0));
    out.extend(bench.advance());
    let cancelled = ids_of(&out, "sched.cancel");
    assert!(cancelled.len() < ids.len());
    assert!(ids_of(&out, "sched.alloc").is_empty());
    for id in cancelled {
        let again = bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
        assert_eq!(ids_of(&again, "sched.alloc"), [id]);
    }
}

#[test]
fn requests_that_are_left_when_a_queue_is_stopped_are_not_sent() {
    let mut bench = Bench::with(two());
    bench.scheduler(Some(1));
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 1000);
    let mut out = bench.request("job-manager.queue-start", &stop_of("batch"));
    assert_eq!(ids_of(&out, "sched.cancel"), [ids[0]]);
    out = bench.answer("sched.alloc", &json!({"id": ids[0], "type": 3}));
    assert!(topics(&out).is_empty());
    assert_eq!(
        bench.row(ids[999])["pending_reason"],
        "queue `batch` is stopped"
    );
    bench.advance();
    let mut out = bench.request("job-manager.queue-start", &start_of("batch"));
    out.extend(bench.advance());
    assert_eq!(ids_of(&out, "sched.alloc"), [ids[0]]);
}

#[test]
fn a_start_outlives_its_client_and_a_restart() {
    let directory = Directory::new("long-start");
    let mut bench = directory.open(two(), 1000.0);
    bench.scheduler(None);
    let (ids, _) = bench.submit_copies(&json!({"queue": "batch"}), 1000);
    stop_and_cancel(&mut bench, "batch");
    bench.request("job-manager.queue-start", &start_of("batch"));
    bench.request("job-manager.disconnect", &json!({}));
    let mut out = bench.advance();
    out.extend(bench.rest());
    assert_eq!(ids_of(&out, "sched.alloc"), ids);
    for id in &ids {
        bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    }
    stop_and_cancel(&mut bench, "batch");
    bench.request("job-manager.queue-start", &start_of("batch"));
    assert!(bench.is_due());
    drop(bench);
    let mut bench = directory.open(two(), 2000.0);
    let mut out = bench.scheduler(None);
    out.extend(bench.advance());
    out.extend(bench.rest());
    assert_eq!(ids_of(&out, "sched.alloc"), ids);
}

#[test]
fn stopping_one_queue_leaves_the_other_going() {
    let mut bench = Bench::with(two());
    bench.scheduler(None);
    bench.request(
        "job-manager.queue-start",
        &json!({"name": "debug", "start": false}),
    );
    let (_, out) = bench.submit(&json!({"queue": "debug"}));
    assert!(topics(&out).is_empty());
    let (_, out) = bench.submit(&json!({"queue": "batch"}));
    assert_eq!(topics(&out), ["sched.alloc"]);
    let out = bench.request(
        "job-manager.queue-start",
        &json!({"all": true, "start": true}),
    );
    assert_eq!(topics(&out), ["sched.alloc"]);
}

#[test]
fn a_job_in_a_stopped_queue_says_why_it_waits() {
    let directory = Directory::new("why");
    let mut bench = directory.open(two(), 1000.0);
    bench.scheduler(None);
    let (requested, _) = bench.submit(&json!({"queue": "batch"}));
    let why = |bench: &mut Bench, id: u64| bench.row(id)["pending_reason"].clone();
    assert_eq!(why(&mut bench, requested), Value::Null);
    let stop = json!({"name": "batch", "start": false});
    bench.request("job-manager.queue-start", &stop);
    assert_eq!(why(&mut bench, requested), "queue `batch` is stopped");
    let stop = json!({"name": "batch", "start": false, "reason": "the fan"});
    bench.request("job-manager.queue-start", &stop);
    let reason = json!("queue `batch` is stopped: the fan");
    assert_eq!(why(&mut bench, requested), reason);
    let (later, _) = bench.submit(&json!({"queue": "batch"}));
    assert_eq!(why(&mut bench, later), reason);
    let (other, _) = bench.submit(&json!({"queue": "debug"}));
    assert_eq!(why(&mut bench, other), Value::Null);
    bench.request("job-manager.raise", &json!({"id": later, "type": "cancel"}));
    assert_eq!(why(&mut bench, later), Value::Null);
    drop(bench);
    let mut bench = directory.open(two(), 2000.0);
    assert_eq!(why(&mut bench, requested), reason);
    let all = json!({"all": true, "start": true});
    bench.request("job-manager.queue-start", &all);
    assert_eq!(why(&mut bench, requested), Value::Null);

    let mut bench = Bench::new();
    let (id, _) = bench.submit(&json!({}));
    bench.request("job-manager.queue-start", &json!({"start": false}));
    assert_eq!(why(&mut bench, id), "the queue is stopped");
}

#[test]
fn a_request_that_crosses_the_stop_is_sent_again_after_the_start() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (id, _) = bench.submit(&json!({}));
    bench.request("job-manager.queue-start", &json!({"start": false}));
    bench.request("job-manager.queue-start", &json!({"start": true}));
    let out = bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    assert_eq!(topics(&out), ["sched.alloc"]);
}

#[test]
fn a_disabled_queue_rejects_with_the_reason() {
    let mut bench = Bench::with(two());
    let off = json!({"name": "batch", "enable": false, "reason": "full moon"});
    bench.request("job-manager.queue-enable", &off);
    let expected = json!({"enable": false, "start": true, "disable_reason": "full moon"});
    assert_eq!(status(&mut bench, "batch"), expected);
    let payload = json!({"jobspec": jobspec(&json!({"queue": "batch"}))});
    let (errnum, text) = rejection(&bench.request("job-ingest.submit", &payload));
    assert_eq!(errnum, 22);
    assert_eq!(
        text,
        "job submission to queue `batch` is disabled: full moon"
    );
    bench.submit(&json!({"queue": "debug"}));
    bench.request(
        "job-manager.queue-enable",
        &json!({"all": true, "enable": true}),
    );
    bench.submit(&json!({"queue": "batch"}));
}

#[test]
fn the_administration_is_the_owners_and_names_what_is_wrong() {
    let mut bench = Bench::with(two());
    for topic in ["job-manager.queue-start", "job-manager.queue-enable"] {
        let all = json!({"all": true, "start": false, "enable": false});
        let (errnum, _) = rejection(&bench.request_as("guest", 7, topic, &all, 0));
        assert_eq!(errnum, 1);
        let unknown = json!({"name": "nosuch", "start": false, "enable": false});
        let (errnum, text) = rejection(&bench.request(topic, &unknown));
        assert_eq!(
            (errnum, text.as_str()),
            (2, "unknown queue `nosuch`: expected batch, debug")
        );
        let nameless = json!({"start": false, "enable": false});
        assert_eq!(rejection(&bench.request(topic, &nameless)).0, 22);
    }
    let mut bench = Bench::new();
    let named = json!({"name": "batch", "start": false});
    let (errnum, text) = rejection(&bench.request("job-manager.queue-start", &named));
    assert_eq!(
        (errnum, text.as_str()),
        (2, "queue `batch`: no queues are configured")
    );
}

#[test]
fn stops_and_reasons_outlive_a_restart_unless_told_not_to() {
    let directory = Directory::new("queues");
    let mut bench = directory.open(two(), 1000.0);
    let off = json!({"name": "batch", "start": false, "reason": "fan"});
    bench.request("job-manager.queue-start", &off);
    let off = json!({"name": "debug", "start": false, "nocheckpoint": true});
    bench.request("job-manager.queue-start", &off);
    bench.request(
        "job-manager.queue-enable",
        &json!({"name": "debug", "enable": false}),
    );
    let (id, _) = bench.submit(&json!({"queue": "batch"}));
    drop(bench);
    let mut bench = directory.open(two(), 2000.0);
    assert!(topics(&bench.scheduler(None)).is_empty());
    let expected = json!({"enable": true, "start": false, "stop_reason": "fan"});
    assert_eq!(status(&mut bench, "batch"), expected);
    let expected = json!({"enable": false, "start": true});
    assert_eq!(status(&mut bench, "debug"), expected);
    let out = bench.request(
        "job-manager.queue-start",
        &json!({"all": true, "start": true}),
    );
    assert_eq!(topics(&out), ["sched.alloc"]);
    let request = out
        .iter()
        .find(|message| message.topic() == "sched.alloc")
        .unwrap();
    assert_eq!(body(request)["id"], id);
}

#[test]
fn jobs_get_the_queues_constraint_beside_their_own() {
    let first_four = json!({"hostlist": ["n[0-3]"]});
    let queue = Queue {
        requires: vec!["ssd".to_owned()],
        constraint: Some(first_four.clone()),
        ..Queue::default()
    };
    let alone = Queue {
        constraint: Some(first_four.clone()),
        ..Queue::default()
    };
    let mut bench = Bench::with(queues(&[("both", queue), ("alone", alone)]));
    bench.scheduler(None);
    let sent = |out: &[penstock_wire::Message]| {
        body(&out[1])["jobspec"]["attributes"]["system"]["constraints"].clone()
    };
    let ssd = json!({"properties": ["ssd"]});
    let (_, out) = bench.submit(&json!({"queue": "both"}));
    assert_eq!(sent(&out), json!({"and": [ssd, first_four]}));
    let own = json!({"ranks": ["1"]});
    let (_, out) = bench.submit(&json!({"queue": "both", "constraints": own}));
    assert_eq!(sent(&out), json!({"and": [own, ssd, first_four]}));
    let (_, out) = bench.submit(&json!({"queue": "alone"}));
    assert_eq!(sent(&out), first_four);
    let (_, out) = bench.submit(&json!({"queue": "alone", "constraints": {}}));
    assert_eq!(sent(&out), first_four);
}

fn limited(limits: Limits) -> Queue {
    Queue {
        limits,
        ..Queue::default()
    }
}

fn sized(nodes: u32, cores: u32, gpus: u32) -> Value {
    let mut spec = jobspec(&json!({}));
    let mut with = vec![json!({"type": "core", "count": cores})];
    if gpus > 0 {
        with.push(json!({"type": "gpu", "count": gpus}));
    }
    let slot = json!({"type": "slot", "count": 1, "label": "task", "with": with});
    spec["resources"] = if nodes > 0 {
        json!([{"type": "node", "count": nodes, "with": [slot]}])
    } else {
        json!([slot])
    };
    spec
}

/// A queue `plain`, under the general limits, and `wide`, with limits of its own.
fn with_limits() -> Settings {
    let general = Limits {
        duration: Some(60.0),
        max_nnodes: Some(2),
        max_ncores: Some(8),
        max_ngpus: Some(1),
        min_nnodes: Some(1),
        min_ncores: Some(2),
        min_ngpus: Some(0),
    };
    let wide = Limits {
        duration: Some(0.0),
        max_nnodes: Some(-1),
        max_ncores: Some(-1),
        max_ngpus: Some(4),
        min_nnodes: Some(2),
        min_ncores: Some(-1),
        min_ngpus: Some(1),
    };
    let mut set = queues(&[("wide", limited(wide)), ("plain", Queue::default())]);
    set.limits = general;
    set
}

#[test]
fn every_limit_holds_and_a_queues_limit_before_the_general_one() {
    let mut bench = Bench::with(with_limits());
    let mut outcome = |queue: &str, duration: f64, (nodes, cores, gpus): (u32, u32, u32)| {
        let mut spec = sized(nodes, cores, gpus);
        spec["attributes"]["system"]["queue"] = queue.into();
        spec["attributes"]["system"]["duration"] = duration.into();
        let out = bench.request("job-ingest.submit", &json!({ "jobspec": spec }));
        if out[0].errnum() == 0 {
            String::new()
        } else {
            rejection(&out).1
        }
    };
    let cases = [
        ("plain", 60.0, (2, 4, 0), ""),
        (
            "plain",
            61.0,
            (1, 4, 0),
            "a time limit of 61 s exceeds the policy's 60 s",
        ),
        (
            "plain",
            0.0,
            (1, 4, 0),
            "a time limit is required: the policy's maximum is 60 s",
        ),
        (
            "plain",
            1.0,
            (3, 1, 0),
            "3 nodes requested, the policy allows 2",
        ),
        (
            "plain",
            1.0,
            (1, 9, 0),
            "9 cores requested, the policy allows 8",
        ),
        (
            "plain",
            1.0,
            (1, 2, 2),
            "2 gpus requested, the policy allows 1",
        ),
        (
            "plain",
            1.0,
            (1, 1, 0),
            "1 cores requested, the policy requires at least 2",
        ),
        // The number of nodes for slots alone is unknown: no limit of nodes can be exceeded.
        ("plain", 1.0, (0, 4, 0), ""),
        ("wide", 0.0, (100, 1, 3), "100 gpus"),
        ("wide", 1e9, (4, 1, 1), ""),
        ("wide", 0.0, (2, 1000, 2), ""),
        (
            "wide",
            0.0,
            (1, 1, 1),
            "1 nodes requested, the policy requires at least 2",
        ),
        (
            "wide",
            0.0,
            (2, 1, 0),
            "0 gpus requested, the policy requires at least 1",
        ),
        ("", 1.0, (1, 4, 0), "unknown queue ``"),
    ];
    for (queue, duration, size, expected) in cases {
        let shown = format!("{queue} {duration} {size:?}");
        let text = outcome(queue, duration, size);
        let expected = match (queue, expected) {
            ("wide", "100 gpus") => "300 gpus requested, the policy allows 4",
            (_, expected) => expected,
        };
        if expected.is_empty() {
            assert_eq!(text, "", "{shown}");
        } else {
            assert!(text.starts_with(expected), "{shown}: {text}");
        }
    }
}

#[test]
fn where_queues_are_configured_a_job_must_have_one() {
    let mut bench = Bench::with(two());
    let payload = json!({"jobspec": jobspec(&json!({}))});
    let (errnum, text) = rejection(&bench.request("job-ingest.submit", &payload));
    assert_eq!(
        (errnum, text.as_str()),
        (22, "no queue is named: expected batch, debug")
    );
    let mut bench = Bench::with(Settings {
        default_queue: Some("debug".to_owned()),
        ..two()
    });
    let (id, _) = bench.submit(&json!({}));
    assert_eq!(bench.row(id)["queue"], "debug");
}

#[test]
fn all_of_a_range_has_to_be_within_the_limits() {
    let mut bench = Bench::with(with_limits());
    let mut outcome = |nodes: &str, slots: &str, cores: &str| {
        let mut spec = sized(1, 4, 0);
        spec["attributes"]["system"]["queue"] = "plain".into();
        spec["attributes"]["system"]["duration"] = 60.into();
        let node = &mut spec["resources"][0];
        node["count"] = nodes.into();
        node["with"][0]["count"] = slots.into();
        node["with"][0]["with"][0]["count"] = cores.into();
        let out = bench.request("job-ingest.submit", &json!({ "jobspec": spec }));
        if out[0].errnum() == 0 {
            String::new()
        } else {
            rejection(&out).1
        }
    };
    for (nodes, slots, cores, expected) in [
        ("1-2", "1", "2-4", ""),
        ("1-2:5", "8", "1", ""),
        (
            "1-3",
            "1",
            "2",
            "1 to 3 nodes requested, the policy allows 2",
        ),
        (
            "1+",
            "1",
            "2",
            "1 nodes and more, without end, requested, the policy allows 2",
        ),
        (
            "1-2",
            "1-5",
            "2",
            "2 to 20 cores requested, the policy allows 8",
        ),
        (
            "1",
            "2",
            "2+",
            "4 cores and more, without end, requested, the policy allows 8",
        ),
        (
            "1-2",
            "1",
            "1-4",
            "1 cores requested, the policy requires at least 2",
        ),
    ] {
        assert_eq!(outcome(nodes, slots, cores), expected, "{nodes} {slots}");
    }
}
