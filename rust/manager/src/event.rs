//! Job events as RFC 18 writes them: one JSON object a line.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One event of a job's eventlog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the epoch.
    pub timestamp: f64,
    /// What happened, in RFC 21's words.
    pub name: String,
    /// What goes with it; absent where RFC 21 defines none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Map<String, Value>>,
}

impl Event {
    /// An event without context.
    pub fn new(timestamp: f64, name: &str) -> Self {
        Self {
            timestamp,
            name: name.to_owned(),
            context: None,
        }
    }

    /// An event with a context object; anything but an object is left out.
    pub fn with(timestamp: f64, name: &str, context: Value) -> Self {
        let context = match context {
            Value::Object(map) => Some(map),
            _ => None,
        };
        Self {
            timestamp,
            name: name.to_owned(),
            context,
        }
    }

    /// Reads one line, with or without its newline.
    pub fn parse(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }

    /// Appends the event as a line, newline included.
    pub fn write(&self, out: &mut String) {
        // A map with string keys and a finite number always serialises.
        if let Ok(text) = serde_json::to_string(self) {
            out.push_str(&text);
            out.push('\n');
        }
    }

    /// A string of the context.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.context.as_ref()?.get(key)?.as_str()
    }

    /// An integer of the context.
    pub fn integer(&self, key: &str) -> Option<i64> {
        self.context.as_ref()?.get(key)?.as_i64()
    }
}

#[cfg(test)]
mod tests {
    use super::Event;
    use serde_json::json;

    #[test]
    fn a_line_is_compact_json_and_reads_back() {
        let event = Event::with(1.5, "submit", json!({"urgency": 16, "userid": 0}));
        let mut line = String::new();
        event.write(&mut line);
        assert_eq!(
            line,
            "{\"timestamp\":1.5,\"name\":\"submit\",\"context\":{\"urgency\":16,\"userid\":0}}\n"
        );
        assert_eq!(Event::parse(&line).unwrap(), event);
        let mut bare = String::new();
        Event::new(2.25, "validate").write(&mut bare);
        assert_eq!(bare, "{\"timestamp\":2.25,\"name\":\"validate\"}\n");
        assert!(Event::parse("{\"timestamp\":1}").is_err());
    }
}
