//! Requests of running jobs, and their answers.

use penstock_manager::Settings;
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

use super::{Bench, body};

/// R of whole nodes with four cores.
pub fn r_of(ranks: &str) -> String {
    format!(
        r#"{{"version":1,"execution":{{"R_lite":[{{"rank":"{ranks}","children":{{"core":"0-3"}}}}],"nodelist":["n[{ranks}]"],"starttime":1000.0,"expiration":9000.0}}}}"#
    )
}

pub fn start(settings: Settings) -> (Bench, u64) {
    let mut bench = Bench::with(settings);
    let inventory = penstock_rset::ResourceSet::from_json(
        r#"{"version":1,"execution":{"R_lite":[{"rank":"0-9","children":{"core":"0-3"}}],"nodelist":["n[0-9]"],"starttime":0.0,"expiration":20000.0}}"#,
    );
    bench.manager.set_inventory(inventory.unwrap());
    let job = ready(&mut bench);
    (bench, job)
}

/// A scheduler, an execution service, and a job that runs on ranks 0 to 3.
pub fn ready(bench: &mut Bench) -> u64 {
    bench.scheduler(None);
    bench.executor();
    let (job, _) = bench.submit(&json!({"duration": 8000}));
    give(bench, job, "0-3");
    bench.exec(job, "start", &json!({}));
    job
}

pub fn give(bench: &mut Bench, job: u64, ranks: &str) -> Vec<Message> {
    let committed = bench.commit_r(job, &r_of(ranks));
    assert_eq!(committed[0].errnum(), 0, "{:?}", committed[0].error_text());
    bench.answer("sched.alloc", &json!({"id": job, "type": 0}))
}

/// Allocates these cores of ranks.
pub fn give_cores(bench: &mut Bench, job: u64, ranks: &str, cores: &str) {
    let r = r_of(ranks).replace("\"0-3\"", &format!("\"{cores}\""));
    let committed = bench.commit_r(job, &r);
    assert_eq!(committed[0].errnum(), 0, "{:?}", committed[0].error_text());
    bench.answer("sched.alloc", &json!({"id": job, "type": 0}));
}

pub fn call(job: u64, directive: &str, attributes: &Value) -> Value {
    json!({"job": job, "rank": 0, "directive": directive, "attributes": attributes})
}

pub fn alloc(bench: &mut Bench, job: u64, directive: &str, attributes: &Value) -> Vec<Message> {
    bench.request("pmix.alloc", &call(job, directive, attributes))
}

pub fn nodes(number: u32) -> Value {
    json!({"key": "pmix.alloc.nnodes", "type": "uint64", "value": number})
}

pub fn required(number: u32) -> Value {
    json!({"key": "pmix.alloc.nnodes", "required": true, "value": number})
}

pub fn named(id: &str) -> Value {
    json!({"key": "pmix.alloc.id", "value": id})
}

pub fn reqid(id: &str) -> Value {
    json!({"key": "pmix.alloc.reqid", "value": id})
}

/// The required attribute that names an existing allocation.
pub fn existing(id: &str) -> Value {
    json!({"key": "pmix.alloc.id", "required": true, "value": id})
}

pub fn limit(seconds: u32) -> Value {
    json!({"key": "pmix.timeout", "value": seconds})
}

/// The job of the alloc request among the sent messages.
pub fn request_job(out: &[Message]) -> u64 {
    let request = out.iter().find(|message| message.topic() == "sched.alloc");
    body(request.expect("a request for resources"))["id"]
        .as_u64()
        .unwrap()
}

pub fn jobspec(out: &[Message]) -> Value {
    let request = out
        .iter()
        .find(|message| message.topic() == "sched.alloc")
        .unwrap();
    body(request)["jobspec"].clone()
}

/// The last answer to a `pmix` call, and its status.
pub fn answer(out: &[Message]) -> (i64, Value) {
    let is_answer = |message: &&Message| {
        message.kind == MessageType::Response && message.topic().starts_with("pmix.")
    };
    let mut answers = out
        .iter()
        .filter(is_answer)
        .filter(|message| message.errnum() == 0);
    let answer = body(answers.next_back().expect("an answer"));
    (answer["status"].as_i64().unwrap(), answer)
}

pub fn unanswered(out: &[Message]) -> bool {
    !out.iter().any(|message| {
        message.kind == MessageType::Response && message.topic().starts_with("pmix.")
    })
}

pub fn result(answer: &Value, key: &str) -> Value {
    let mut results = answer["results"].as_array().unwrap().iter();
    let found = results.rfind(|result| result["key"] == key);
    found.map_or(Value::Null, |result| result["value"].clone())
}

/// Responds to a probe: the scheduler has no free resources.
pub fn answer_probe(bench: &mut Bench, out: &[Message]) -> Vec<Message> {
    bench.reply(out, "sched.explain", &json!({"jobs": [], "errors": {}}))
}

pub fn cancelled(bench: &mut Bench, job: u64) -> Vec<Message> {
    bench.answer("sched.alloc", &json!({"id": job, "type": 3}))
}

pub fn query(bench: &mut Bench, job: u64) -> Vec<Value> {
    let out = bench.request("pmix.query", &json!({ "job": job }));
    answer(&out).1["requests"].as_array().unwrap().clone()
}

pub fn freed(out: &[Message]) -> Vec<(u64, String, bool)> {
    let frees = out.iter().filter(|message| message.topic() == "sched.free");
    frees
        .map(|message| {
            let free = body(message);
            let ranks = free["R"]["execution"]["R_lite"][0]["rank"]
                .as_str()
                .unwrap();
            let last = free["final"].as_bool().unwrap();
            (free["id"].as_u64().unwrap(), ranks.to_owned(), last)
        })
        .collect()
}
