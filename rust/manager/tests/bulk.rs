//! Requests about many jobs: done in slices, with the requests of others between them.

mod common;

use common::{Bench, Directory, OWNER, body, settings};
use penstock_flux::TypedPayload;
use penstock_flux::alloc::HelloRequest;
use penstock_jobspec::job_id::JobId;
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

/// More jobs than some slices have.
const JOBS: usize = 4000;

fn many(bench: &mut Bench, count: usize) -> Vec<u64> {
    bench.submit_copies(&json!({}), count).0
}

fn cancel_all() -> Value {
    json!({"all": true, "type": "cancel", "severity": 0, "note": ""})
}

/// The topics of the responses in `out`.
fn responses(out: &[Message]) -> Vec<&str> {
    let responses = out
        .iter()
        .filter(|message| message.kind == MessageType::Response);
    responses.map(Message::topic).collect()
}

/// The jobs of the exceptions in `out`, in order.
fn exceptions(out: &[Message]) -> Vec<u64> {
    let events = out
        .iter()
        .filter(|message| message.topic() == "job-exception");
    events
        .map(|event| body(event)["id"].as_u64().unwrap())
        .collect()
}

fn from<'a>(out: &'a [Message], topic: &str) -> &'a Message {
    let mut responses = out
        .iter()
        .filter(|message| message.kind == MessageType::Response);
    responses.find(|message| message.topic() == topic).unwrap()
}

#[test]
fn another_client_is_answered_between_slices() {
    let mut bench = Bench::new();
    let ids = many(&mut bench, JOBS);
    let mut out = bench.request("job-manager.raise", &cancel_all());
    let mut slices = 1;
    while bench.is_due() {
        assert!(responses(&out).is_empty(), "{:?}", responses(&out));
        let answered = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
        assert_eq!(responses(&answered), ["job-manager.ping"]);
        out.extend(bench.pass(0.0));
        slices += 1;
    }
    assert!(slices > 4, "{slices}");
    assert_eq!(exceptions(&out), ids);
    let response = body(from(&out, "job-manager.raise"));
    assert_eq!(response, json!({"count": JOBS, "errors": {}}));
    let stats = bench.request("job-list.job-stats", &json!({}));
    assert_eq!(body(&stats[0])["canceled"], JOBS);
}

#[test]
fn jobs_that_are_submitted_meanwhile_are_not_cancelled() {
    let mut bench = Bench::new();
    many(&mut bench, JOBS);
    let mut out = bench.request("job-manager.raise", &cancel_all());
    let (late, more) = bench.submit(&json!({}));
    out.extend(more);
    out.extend(bench.advance());
    assert_eq!(body(from(&out, "job-manager.raise"))["count"], JOBS);
    assert_eq!(bench.row(late)["state"], 8);
}

#[test]
fn jobs_with_resources_are_cancelled_last() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let running = bench.running(&json!({}));
    let ids = many(&mut bench, JOBS);
    let mut out = bench.request("job-manager.raise", &cancel_all());
    out.extend(bench.advance());
    let ended = exceptions(&out);
    assert_eq!(ended[..JOBS], ids);
    assert_eq!(ended[JOBS..], [running]);
    assert_eq!(body(from(&out, "job-manager.raise"))["count"], JOBS + 1);
}

#[test]
fn errors_come_in_the_order_of_the_request() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let ids = many(&mut bench, JOBS);
    let running = bench.running(&json!({}));
    let mut named = vec![7, running];
    named.extend(&ids);
    named.push(8);
    let raise = json!({"ids": named, "type": "cancel", "severity": 0, "note": ""});
    let mut out = bench.request("job-manager.raise", &raise);
    // Before its slice the running job ends by itself.
    out.extend(bench.end(running, 0));
    out.extend(bench.advance());
    let response = body(from(&out, "job-manager.raise"));
    assert_eq!(response["count"], JOBS);
    let failed: Vec<&String> = response["errors"].as_object().unwrap().keys().collect();
    assert_eq!(failed, ["7", &running.to_string(), "8"]);
}

#[test]
fn the_reasons_of_many_failures_are_listed_in_part() {
    let mut bench = Bench::new();
    let ids = many(&mut bench, 1);
    let unknown: Vec<u64> = (1..=10_007).chain(ids).collect();
    let urgency = json!({"ids": unknown, "urgency": 20});
    let mut out = bench.request("job-manager.urgency", &urgency);
    out.extend(bench.advance());
    let response = body(from(&out, "job-manager.urgency"));
    assert_eq!(
        (&response["count"], &response["unlisted"]),
        (&json!(1), &json!(7))
    );
    assert_eq!(response["errors"].as_object().unwrap().len(), 10_000);
}

#[test]
fn a_job_that_is_named_twice_is_changed_once() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    bench.executor();
    let ids = many(&mut bench, 3);
    let named = [ids[1], ids[0], ids[1], 7, 7, ids[2], ids[0]];
    let raise = json!({"ids": named, "type": "warning", "severity": 1, "note": ""});
    let response = body(from(
        &bench.request("job-manager.raise", &raise),
        "job-manager.raise",
    ));
    assert_eq!(response["count"], 3);
    for id in ids {
        let raised = bench
            .events(id)
            .into_iter()
            .filter(|name| name == "exception");
        assert_eq!(raised.count(), 1);
    }
}

#[test]
fn requests_of_a_peer_keep_their_order_and_peers_take_turns() {
    let mut bench = Bench::new();
    let ids = many(&mut bench, JOBS);
    let urgency = |urgency: u8| json!({"ids": ids, "urgency": urgency});
    let mut out = bench.request("job-manager.urgency", &urgency(20));
    // A request for one of the jobs, which waits for the earlier one, and one of another peer, which does not.
    let priority = json!({"jobs": [[ids[JOBS - 1], 7]]});
    out.extend(bench.request("job-manager.prioritize", &priority));
    assert!(responses(&out).is_empty());
    let few = json!({"ids": ids[..2], "signum": 15});
    let killed = bench.request_as("other", OWNER, "job-manager.kill", &few, 0);
    assert_eq!(responses(&killed), ["job-manager.kill"]);
    let other = bench.request_as("third", OWNER, "job-manager.urgency", &urgency(9), 0);
    out.extend(other);
    out.extend(bench.advance());
    let done = responses(&out);
    let urgency = "job-manager.urgency";
    assert_eq!(done, [urgency, urgency, "job-manager.prioritize"]);
    assert_eq!(body(from(&out, "job-manager.prioritize"))["count"], 1);
    let row = bench.row(ids[0]);
    assert_eq!(row["urgency"], 9);
}

#[test]
fn a_request_that_a_crash_interrupts_can_be_repeated() {
    let directory = Directory::new("bulk-crash");
    let mut bench = directory.open(settings(), 1000.0);
    let ids = many(&mut bench, JOBS);
    let out = bench.request("job-manager.raise", &cancel_all());
    let done = exceptions(&out).len();
    assert!(bench.is_due() && done > 0);
    drop(bench);
    let mut bench = directory.open(settings(), 2000.0);
    // The pending jobs are resumed, and the request is not.
    assert!(exceptions(&bench.advance()).is_empty());
    assert_eq!(bench.row(ids[0])["state"], 64);
    assert_eq!(bench.row(ids[JOBS - 1])["state"], 8);
    let mut out = bench.request("job-manager.raise", &cancel_all());
    out.extend(bench.advance());
    assert_eq!(body(from(&out, "job-manager.raise"))["count"], JOBS - done);
}

#[test]
fn a_request_of_a_peer_that_disconnects_is_completed() {
    let mut bench = Bench::new();
    let ids = many(&mut bench, JOBS);
    bench.request("job-manager.raise", &cancel_all());
    bench.request("job-manager.disconnect", &json!({}));
    bench.advance();
    assert_eq!(bench.row(ids[JOBS - 1])["state"], 64);
}

fn cancelled(bench: &mut Bench, count: usize) -> Vec<u64> {
    let ids = many(bench, count);
    bench.request("job-manager.raise", &cancel_all());
    bench.advance();
    ids
}

fn inactive(bench: &mut Bench) -> Value {
    body(&bench.request("job-manager.purge", &json!({}))[0])["count"].clone()
}

#[test]
fn no_more_is_read_of_a_peer_whose_requests_name_many_jobs() {
    let mut bench = Bench::new();
    let unknown: Vec<u64> = (1..60_000).collect();
    let urgency = json!({"ids": unknown, "urgency": 20});
    bench.request_as("flood", OWNER, "job-manager.urgency", &urgency, 0);
    assert!(!bench.manager.is_ahead(b"flood"));
    let out = bench.request_as("flood", OWNER, "job-manager.urgency", &urgency, 0);
    // Nothing is done at once for that.
    assert!(responses(&out).is_empty());
    assert!(bench.manager.is_ahead(b"flood") && !bench.manager.is_ahead(b"other"));
    assert_eq!(responses(&bench.advance()).len(), 2);
    assert!(!bench.manager.is_ahead(b"flood"));
}

#[test]
fn a_purge_yields_to_others_and_leaves_jobs_that_end_meanwhile() {
    for purge in [
        json!({"force": true}),
        json!({"force": true, "age_limit": 0.0}),
    ] {
        let mut bench = Bench::new();
        cancelled(&mut bench, JOBS);
        let mut out = bench.request("job-manager.purge", &purge);
        let (late, _) = bench.submit(&json!({}));
        let cancel = json!({"id": late, "type": "cancel"});
        let answered = bench.request_as("other", OWNER, "job-manager.raise", &cancel, 0);
        assert_eq!(responses(&answered), ["job-manager.raise"]);
        assert!(responses(&out).is_empty() && bench.is_due());
        out.extend(bench.advance());
        let response = body(from(&out, "job-manager.purge"));
        assert_eq!(response, json!({"count": JOBS, "inactives": 1}));
        assert_eq!(bench.manager.take_purged().len(), JOBS);
        assert_eq!(bench.row(late)["state"], 64);
    }
}

#[test]
fn two_purges_of_the_same_jobs_count_each_job_once() {
    let mut bench = Bench::new();
    let ids = cancelled(&mut bench, JOBS);
    let mut out = bench.request("job-manager.purge", &json!({"force": true, "ids": ids}));
    out.extend(bench.request(
        "job-manager.purge",
        &json!({"force": true, "num_limit": 10}),
    ));
    out.extend(bench.advance());
    let answers = out
        .iter()
        .filter(|message| message.topic() == "job-manager.purge");
    let counts = answers.map(|answer| body(answer)["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), JOBS as u64);
    assert_eq!(inactive(&mut bench), 0);
}

#[test]
fn the_limits_are_kept_in_slices() {
    let mut bench = Bench::with(penstock_manager::Settings {
        inactive_num_limit: 10,
        ..settings()
    });
    many(&mut bench, JOBS);
    bench.request("job-manager.raise", &cancel_all());
    let mut least = JOBS;
    while bench.is_due() {
        bench.pass(0.0);
        let purged = bench.manager.take_purged().len();
        least = least.min(JOBS - purged);
    }
    assert!(least > JOBS / 2, "{least}");
    bench.pass(1.0);
    bench.advance();
    assert_eq!(inactive(&mut bench), 10);
}

/// Has the manager greet a scheduler in the same process, which says hello by a value.
fn scheduler_in_process(bench: &mut Bench) -> Vec<Message> {
    let hello = TypedPayload::SchedHello(HelloRequest { partial_ok: true });
    let mut hello = Message::request("job-manager.sched-hello", "")
        .with_typed(hello)
        .streaming();
    hello.push_route(b"sched");
    hello.push_route(b"broker");
    bench.send(hello);
    let ready = json!({"mode": "unlimited"});
    let mut out = bench.request_as("sched", OWNER, "job-manager.sched-ready", &ready, 0);
    out.extend(bench.rest());
    out
}

#[test]
fn a_scheduler_in_the_process_gets_the_cancellations_of_a_slice_in_one_message() {
    for is_in_process in [false, true] {
        let mut bench = Bench::new();
        let ids = many(&mut bench, 5);
        let mut out = if is_in_process {
            scheduler_in_process(&mut bench)
        } else {
            bench.scheduler(None)
        };
        let alloc = out.iter().find(|message| message.topic() == "sched.alloc");
        let alloc = alloc.unwrap().clone();
        out = bench.request("job-manager.raise", &cancel_all());
        let cancels = out
            .iter()
            .filter(|message| message.topic() == "sched.cancel");
        let cancels: Vec<&Message> = cancels.collect();
        assert!(cancels.iter().all(|cancel| cancel.is_noresponse()));
        if is_in_process {
            let [cancel] = cancels.as_slice() else {
                panic!("expected one message: {cancels:?}");
            };
            let Some(TypedPayload::CancelAllocs(jobs)) = cancel.typed() else {
                panic!("expected a value: {cancel:?}");
            };
            let jobs: Vec<u64> = jobs.iter().map(|id| id.get()).collect();
            assert_eq!(jobs, ids);
        } else {
            let jobs = cancels.iter().map(|cancel| body(cancel)["id"].clone());
            assert_eq!(jobs.collect::<Vec<_>>(), ids);
        }
        assert_eq!(bench.row(ids[0])["state"], 32);
        // The last job has not had its response yet; another one's is not due.
        let (last, ended) = ids.split_last().unwrap();
        let ended: Vec<JobId> = ended.iter().map(|id| JobId::new(*id)).collect();
        let unknown = [JobId::new(1)];
        let ended = [&ended[..], &unknown].concat();
        let response = TypedPayload::CancelledAllocs(ended.into());
        bench.send(Message::typed_success_to(&alloc, response));
        let states = ids.iter().map(|id| bench.row(*id)["state"].clone());
        assert_eq!(states.collect::<Vec<_>>(), [64, 64, 64, 64, 32]);
        let log = bench.manager.take_log().join("\n");
        assert!(log.contains("ignored: none is due"), "{log}");
        let response = json!({"id": last, "type": 3});
        bench.answer("sched.alloc", &response);
        assert_eq!(bench.row(*last)["state"], 64);
        let names = bench.events(ids[0]);
        assert_eq!(names[names.len() - 2..], ["exception", "clean"]);
    }
}
