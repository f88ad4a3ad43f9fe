//! Submissions of many jobs, and the responses.

use penstock_flux::flags::STREAMING;
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

use super::{Bench, OWNER, body, jobspec};

/// More jobs than some slices have.
pub const JOBS: usize = 3000;

pub fn copies(count: usize) -> Value {
    json!({"jobspec": jobspec(&json!({})), "count": count})
}

/// As many jobs, by independent submissions of two jobspecs, one of them with ids of copies, and an invalid one.
pub fn list() -> Value {
    let other = jobspec(
        &json!({"cwd": "/tmp", "dependencies": [{"scheme": "begin-time", "value": "1.0"}]}),
    );
    json!({"independent": true, "jobs": [
        {"jobspec": jobspec(&json!({"job": {"name": "{cc}"}})), "cc": format!("5-{}", JOBS / 2 + 4)},
        {"jobspec": {}},
        {"jobspec": other, "count": JOBS - JOBS / 2, "urgency": 0},
    ]})
}

pub fn submit_as(bench: &mut Bench, from: &str, payload: &Value) -> Vec<Message> {
    bench.request_as(from, OWNER, "job-ingest.submit", payload, 0)
}

pub fn responses<'a>(out: &'a [Message], topic: &str) -> Vec<&'a Message> {
    let responses = out
        .iter()
        .filter(|message| message.kind == MessageType::Response && message.topic() == topic);
    responses.collect()
}

/// The ids in the only response to a submission.
pub fn ids(out: &[Message]) -> Vec<u64> {
    let found = responses(out, "job-ingest.submit");
    assert_eq!(found.len(), 1);
    let body = body(found[0]);
    let Some(results) = body["results"].as_array() else {
        return serde_json::from_value(body["ids"].clone()).unwrap();
    };
    let lists = results.iter().filter_map(|result| result["ids"].as_array());
    lists.flatten().map(|id| id.as_u64().unwrap()).collect()
}

pub fn listed(bench: &mut Bench) -> Vec<u64> {
    let list = json!({"max_entries": 0, "attrs": [], "order": "newest"});
    let mut out = bench.request_as("lister", OWNER, "job-list.list", &list, STREAMING);
    out.extend(bench.rest());
    rows(&out)
}

pub fn rows(out: &[Message]) -> Vec<u64> {
    let parts = responses(out, "job-list.list");
    let parts = parts.iter().filter(|part| part.errnum() == 0);
    let rows = parts.flat_map(|part| body(part)["jobs"].as_array().unwrap().clone());
    rows.map(|row| row["id"].as_u64().unwrap()).collect()
}

pub fn total(bench: &mut Bench) -> Value {
    let stats = bench.request("job-list.job-stats", &json!({}));
    body(&stats[0])["job_states"]["total"].clone()
}

/// A part of a list under the token `a`: jobs with these names.
pub fn part(number: usize, names: &[&str], more: bool) -> Value {
    let jobs: Vec<_> = names.iter().map(|name| named(name)).collect();
    json!({"token": "a", "part": number, "more": more, "jobs": jobs})
}

/// A part with jobs of this name.
pub fn long_part(number: usize, name: &str, more: bool) -> Value {
    part(number, vec![name; JOBS].as_slice(), more)
}

pub fn named(name: &str) -> Value {
    json!({"jobspec": jobspec(&json!({"job": {"name": name}}))})
}

pub fn send_part(bench: &mut Bench, from: &str, payload: &Value) -> Vec<Message> {
    let mut out = bench.request_as(from, OWNER, "job-ingest.submit-part", payload, 0);
    out.extend(bench.advance());
    out
}

pub fn part_results(out: &[Message]) -> Vec<Value> {
    let found = responses(out, "job-ingest.submit-part");
    assert_eq!(found.len(), 1);
    body(found[0])["results"].as_array().unwrap().clone()
}

/// The store has no job, no jobspec, and no open submission; a list of one part is accepted.
pub fn assert_discarded(bench: &mut Bench) {
    bench.advance();
    assert_eq!(total(bench), 0);
    let store = bench.manager.store();
    assert!(store.jobs().unwrap().records.is_empty());
    let left = (0..10).filter(|key| store.jobspec(*key).unwrap().is_some());
    assert_eq!(left.count(), 0);
    let results = part_results(&send_part(bench, "client", &part(0, &["x", "y"], false)));
    assert_eq!(results.len(), 2);
    assert_eq!(total(bench), 2);
}
