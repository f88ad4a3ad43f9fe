//! The events in the log of a job.

use serde_json::Value;

/// One event of a log.
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) context: Value,
}

/// The events of a log.
pub(crate) fn events(log: &str) -> Vec<Event> {
    let read = |line: &str| {
        let mut event: Value = serde_json::from_str(line).ok()?;
        Some(Event {
            name: event.get("name")?.as_str()?.to_owned(),
            context: event
                .get_mut("context")
                .map(Value::take)
                .unwrap_or_default(),
        })
    };
    log.lines().filter_map(read).collect()
}

/// Whether the job of a log is inactive.
pub(crate) fn has_ended(log: &str) -> bool {
    events(log).iter().any(|event| event.name == "clean")
}
