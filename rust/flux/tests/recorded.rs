//! The payloads of a real broker: each is read as the structure of its message, and written again.

use std::path::Path;

use penstock_flux::{
    Json, Payload, StreamCancelRequest, acquire, alloc, broker, exec, job_info, job_ingest,
    job_list, job_manager, kvs, read, resource,
};
use serde::Deserialize;
use serde_json::Value;

const FILES: [&str; 5] = ["client", "exec", "sched", "sched-reload", "services"];

/// Keys that a real broker sends and this tree does not: they are skipped.
const SKIPPED: [(&str, &str); 3] = [
    ("job-manager.stats-get", "journal"),
    ("job-manager.stats-get", "housekeeping"),
    ("kvs.commit", "rootref"),
];

/// Reads a payload as `T`; returns what `T` writes.
fn written<'a, T: Deserialize<'a> + Payload>(text: &'a str) -> Value {
    let value: T = read(Some(text.as_bytes())).unwrap_or_else(|error| panic!("{text}: {error}"));
    let payload = value.to_payload();
    let json = payload.strip_suffix(&[0]).unwrap();
    serde_json::from_slice(json).unwrap()
}

/// As [`written`], for a payload whose jobs are read as a structure of their own.
fn with_jobs<'a, T: Deserialize<'a> + Payload>(text: &'a str) -> Value {
    let mut both = written::<job_manager::JobsRequest>(text);
    let Value::Object(rest) = written::<T>(text) else {
        panic!("{text}: expected an object");
    };
    both.as_object_mut().unwrap().extend(rest);
    both
}

fn rewritten(kind: &str, topic: &str, text: &str) -> Option<Value> {
    let write = match (kind, topic) {
        ("request", "service.add" | "service.remove") => written::<broker::ServiceRequest>,
        ("request", "event.subscribe" | "event.unsubscribe") => {
            written::<broker::SubscriptionRequest>
        }
        ("request", "attr.get" | "groups.get") => written::<broker::NameRequest>,
        ("response", "attr.get") => written::<broker::AttributeResponse>,
        ("response", "groups.get") => written::<broker::GroupResponse>,
        ("response", "state-machine.get") => written::<broker::StateResponse>,
        ("response", "resource.status") => written::<resource::StatusResponse>,
        ("response", "resource.sched-status") => written::<resource::SchedStatusResponse>,
        ("request", "resource.drain" | "resource.undrain") => written::<resource::DrainRequest>,
        ("response", "resource.acquire") if text.contains("resources") => {
            written::<acquire::InventoryResponse>
        }
        ("response", "resource.acquire") => written::<acquire::ChangeResponse<Json>>,
        ("request", "job-ingest.submit") => written::<job_ingest::SubmitRequest>,
        ("response", "job-ingest.submit") => written::<job_ingest::SubmitResponse>,
        ("request", "job-info.lookup") => written::<job_info::LookupRequest>,
        ("response", "job-info.lookup") => written::<job_info::LookupResponse>,
        ("request", "job-info.eventlog-watch") => written::<job_info::EventlogWatchRequest>,
        ("response", "job-info.eventlog-watch") => written::<job_info::EventlogWatchResponse>,
        ("request", "job-info.eventlog-watch-cancel") => written::<StreamCancelRequest>,
        ("request", "job-list.list") => written::<job_list::ListRequest>,
        ("response", "job-list.list") => written::<job_list::ListResponse>,
        ("request", "job-list.list-id") => written::<job_list::ListIdRequest>,
        ("response", "job-list.list-id") => written::<job_list::ListIdResponse>,
        ("response", "job-manager.queue-list") => written::<job_manager::QueueListResponse>,
        ("request", "job-manager.queue-status") => written::<job_manager::QueueRequest>,
        ("response", "job-manager.queue-status") => written::<job_manager::QueueStatusResponse>,
        ("request", "job-manager.queue-start") => written::<job_manager::QueueStartRequest>,
        ("request", "job-manager.history.get") => written::<job_manager::HistoryRequest>,
        ("response", "job-manager.history.get") => written::<job_manager::HistoryResponse>,
        ("request", "job-manager.urgency") => with_jobs::<job_manager::UrgencyRequest>,
        ("request", "job-manager.raise") => with_jobs::<job_manager::RaiseRequest>,
        ("request", "job-manager.exec-hello") => written::<exec::HelloRequest>,
        ("request", "job-manager.sched-hello") => written::<alloc::HelloRequest>,
        ("response", "job-manager.sched-hello") => written::<alloc::HelloResponse>,
        ("request", "job-manager.sched-ready") => written::<alloc::ReadyRequest>,
        ("response", "job-manager.sched-ready") => written::<alloc::ReadyResponse>,
        ("request", "sched.alloc") => written::<alloc::AllocRequest>,
        ("response", "sched.alloc") => written::<alloc::AllocResponse>,
        ("request", "sched.cancel") => written::<alloc::CancelRequest>,
        ("request", "sched.prioritize") => written::<alloc::PrioritizeRequest>,
        ("request", "sched.free") => written::<alloc::FreeRequest>,
        ("request", "sched.expiration") => written::<alloc::ExpirationRequest>,
        ("request", "penstock-exec.start") => written::<exec::StartRequest>,
        ("response", "penstock-exec.start") => written::<exec::StartResponse<Json>>,
        ("request", "kvs.commit") => written::<kvs::CommitRequest>,
        ("response", "kvs.commit") => written::<kvs::CommitResponse>,
        ("request", "kvs.lookup") => written::<kvs::LookupRequest>,
        ("response", "kvs.lookup") => written::<kvs::LookupResponse>,
        ("event", "job-exception") => written::<exec::JobExceptionEvent>,
        // The configuration as a whole, a service of Flux's shell, Flux's own statistics, a test's topic.
        ("response", "config.get" | "job-manager.stats-get")
        | ("request", "0-shell-f21sJV19.stdin" | "nosuch.thing") => return None,
        _ => panic!("no structure for the {kind} {topic}: {text}"),
    };
    Some(write(text))
}

#[test]
fn every_recorded_payload_is_read_and_written_with_the_same_keys() {
    let mut count = 0;
    for file in FILES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/flux-wire");
        let lines = std::fs::read_to_string(folder.join(format!("{file}.jsonl"))).unwrap();
        for (index, line) in lines.lines().enumerate() {
            let frame: Value = serde_json::from_str(line).unwrap();
            let message = &frame["message"];
            let topic = message["topic"].as_str().unwrap();
            let Value::Object(mut payload) = message["payload"].clone() else {
                continue;
            };
            let text = Value::Object(payload.clone()).to_string();
            let kind = message["type"].as_str().unwrap();
            let Some(Value::Object(mut again)) = rewritten(kind, topic, &text) else {
                continue;
            };
            payload.retain(|key, _| !SKIPPED.contains(&(topic, key)));
            // An absent key may be written with its default value.
            again.retain(|key, value| payload.contains_key(key) || !is_default(value));
            let place = format!("{file}.jsonl:{}: {kind} {topic}", index + 1);
            assert_eq!(again, payload, "{place}");
            count += 1;
        }
    }
    assert!(count > 150, "only {count} payloads");
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Null => true,
        Value::Object(_) => false,
    }
}
