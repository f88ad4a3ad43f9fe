//! Settings with queues, and messages about them.

use penstock_manager::{Queue, Settings};
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

use super::{Bench, body, settings};

/// Settings with these queues.
pub fn queues(list: &[(&str, Queue)]) -> Settings {
    let named = list
        .iter()
        .map(|(name, queue)| ((*name).to_owned(), queue.clone()));
    Settings {
        queues: named.collect(),
        ..settings()
    }
}

/// Settings with the queues `batch` and `debug`.
pub fn two() -> Settings {
    queues(&[("batch", Queue::default()), ("debug", Queue::default())])
}

/// The status of a queue; of the anonymous one without a name.
pub fn status(bench: &mut Bench, name: &str) -> Value {
    let payload = if name.is_empty() {
        json!({})
    } else {
        json!({ "name": name })
    };
    body(&bench.request("job-manager.queue-status", &payload)[0])
}

/// The ids in the messages of a topic, in order.
pub fn ids_of(out: &[Message], topic: &str) -> Vec<u64> {
    let found = out.iter().filter(|message| message.topic() == topic);
    found
        .map(|message| body(message)["id"].as_u64().unwrap())
        .collect()
}

/// The payload that starts a queue.
pub fn start_of(queue: &str) -> Value {
    json!({"start": true, "name": queue})
}

/// The payload that stops a queue.
pub fn stop_of(queue: &str) -> Value {
    json!({"start": false, "name": queue})
}

/// The topics of the responses, in order.
pub fn responses(out: &[Message]) -> Vec<&str> {
    let responses = out
        .iter()
        .filter(|message| message.kind == MessageType::Response);
    responses.map(Message::topic).collect()
}
