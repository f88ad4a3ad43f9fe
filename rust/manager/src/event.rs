//! Job events in the format of RFC 18: one JSON object per line.

use std::borrow::Cow;
use std::sync::Arc;

use penstock_rset::ResourceSet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::spec::Spec;

/// A document that RFC 16 stores beside the eventlog, and that an event makes effective.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// The allocated resources: comes with `alloc`, or with the `free` of an allocation that
    /// arrived after its job had ended.
    R(Arc<ResourceSet>),
    /// The jobspec: comes with `jobspec-update` and `penstock.request-update`.
    Jobspec(Arc<Spec>),
}

/// One event of a job's eventlog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the epoch.
    pub timestamp: f64,
    /// Event name (RFC 21).
    pub name: Cow<'static, str>,
    /// Context object; absent if RFC 21 defines none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Map<String, Value>>,
    /// The document that the event makes effective. It is not part of the line: replay takes it
    /// from the store.
    #[serde(skip)]
    pub document: Option<Document>,
}

impl Event {
    /// An event without context.
    pub fn new(timestamp: f64, name: &'static str) -> Self {
        Self {
            timestamp,
            name: Cow::Borrowed(name),
            context: None,
            document: None,
        }
    }

    /// An event with a context object; anything but an object is left out.
    pub fn with(timestamp: f64, name: &'static str, context: Value) -> Self {
        let context = match context {
            Value::Object(map) => Some(map),
            _ => None,
        };
        Self {
            context,
            ..Self::new(timestamp, name)
        }
    }

    /// The event together with the document that it makes effective.
    #[must_use]
    pub fn with_document(self, document: Document) -> Self {
        Self {
            document: Some(document),
            ..self
        }
    }

    /// Reads one line, with or without its newline.
    ///
    /// # Errors
    ///
    /// The line is not a JSON object with `timestamp` and `name`.
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

    /// A number of the context.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.context.as_ref()?.get(key)?.as_f64()
    }

    /// Whether a key of the context is `true`.
    pub fn is_set(&self, key: &str) -> bool {
        let context = self.context.as_ref();
        context.and_then(|context| context.get(key)) == Some(&Value::Bool(true))
    }

    /// Whether this is an exception of severity 0 (RFC 21).
    pub fn is_fatal(&self) -> bool {
        self.name == "exception" && self.integer("severity") == Some(0)
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
