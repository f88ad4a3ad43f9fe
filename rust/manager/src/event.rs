//! Job events in the format of RFC 18: one JSON object per line.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use penstock_rset::ResourceSet;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use penstock_flux::eventlog::{self, Alloc, Exception, ResourceAdd, ResourceRemove};

use crate::spec::Spec;

/// The time of an event, in an order: exact, for events of one moment follow each other by less than a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventTime(u64);

impl EventTime {
    /// This time in seconds since the epoch; an earlier one, or none at all, is the epoch.
    pub(crate) fn new(seconds: f64) -> Self {
        // The bits of positive floats are in their order.
        Self(if seconds > 0.0 { seconds.to_bits() } else { 0 })
    }

    /// The time in seconds since the epoch.
    pub(crate) fn seconds(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// The value that an event makes effective.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// The allocated resources: comes with `alloc`, or with the `free` of an allocation that
    /// arrived after its job had ended.
    R(Arc<ResourceSet>),
    /// The same with the annotations in the context of `alloc`.
    Allocation(Arc<ResourceSet>, Arc<Map<String, Value>>),
    /// The jobspec: comes with `jobspec-update` and `penstock.request-update`.
    Jobspec(Arc<Spec>),
    /// The context of `penstock.resource-add`.
    ResourceAdd(Arc<ResourceAdd>),
    /// The context of `penstock.resource-remove`.
    ResourceRemove(Arc<ResourceRemove>),
    /// The context of `exception`.
    Exception(Arc<Exception<'static>>),
}

/// The context of an event: the JSON text of an object.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct EventContext(Box<RawValue>);

impl EventContext {
    fn new(text: Box<RawValue>) -> Option<Self> {
        text.get().starts_with('{').then_some(Self(text))
    }

    /// The JSON text.
    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for EventContext {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl<'de> Deserialize<'de> for EventContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Self::new(text).ok_or_else(|| serde::de::Error::custom("the context is not an object"))
    }
}

/// Room for a line without its context: few are longer.
const LINE_BYTES: usize = 80;

/// The number of events that a usual job has at most, and their greatest length: a job counts those in the store.
const USUAL_EVENTS: u32 = 16;
pub(crate) const USUAL_EVENT_BYTES: usize = 256;

/// Appends what is written, which is UTF-8.
struct Appender<'a>(&'a mut String);

impl io::Write for Appender<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0
            .push_str(str::from_utf8(text).map_err(io::Error::other)?);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends the JSON of a number or a string, of which each part that `serde_json` writes is a string.
fn write_json(value: &(impl Serialize + ?Sized), out: &mut String) {
    let written = serde_json::to_writer(Appender(out), value);
    debug_assert!(written.is_ok(), "{written:?}");
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
    pub context: Option<EventContext>,
    /// The value that the event makes effective. It is not part of the line: replay takes R and the
    /// jobspec, which RFC 16 stores beside the eventlog, from the store, and the others from the
    /// context.
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
    pub fn with(timestamp: f64, name: &'static str, context: &impl Serialize) -> Self {
        Self {
            context: to_raw_value(context).ok().and_then(EventContext::new),
            ..Self::new(timestamp, name)
        }
    }

    /// `alloc`.
    pub(crate) fn alloc(
        timestamp: f64,
        r: Arc<ResourceSet>,
        annotations: Map<String, Value>,
    ) -> Self {
        let alloc = Alloc { annotations };
        Self::with(timestamp, eventlog::ALLOC, &alloc)
            .with_document(Document::Allocation(r, Arc::new(alloc.annotations)))
    }

    /// `exception`.
    pub(crate) fn exception(timestamp: f64, exception: Exception<'static>) -> Self {
        Self::with(timestamp, eventlog::EXCEPTION, &exception)
            .with_document(Document::Exception(Arc::new(exception)))
    }

    /// `penstock.resource-add`.
    pub(crate) fn resource_add(timestamp: f64, added: ResourceAdd) -> Self {
        Self::with(timestamp, eventlog::RESOURCE_ADD, &added)
            .with_document(Document::ResourceAdd(Arc::new(added)))
    }

    /// `penstock.resource-remove`.
    pub(crate) fn resource_remove(timestamp: f64, removed: ResourceRemove) -> Self {
        Self::with(timestamp, eventlog::RESOURCE_REMOVE, &removed)
            .with_document(Document::ResourceRemove(Arc::new(removed)))
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
        let context = self.context.as_ref().map_or("", EventContext::text);
        out.reserve(self.line_length());
        out.push_str("{\"timestamp\":");
        write_json(&self.timestamp, out);
        out.push_str(",\"name\":");
        write_json(&*self.name, out);
        if !context.is_empty() {
            out.push_str(",\"context\":");
            out.push_str(context);
        }
        out.push_str("}\n");
    }

    /// About the length of its line.
    pub(crate) fn line_length(&self) -> usize {
        let context = self.context.as_ref().map_or("", EventContext::text);
        LINE_BYTES + context.len()
    }

    /// Reads the context; `None` if it is absent or malformed.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.context.as_ref()?.text()).ok()
    }

    /// The exception that the event tells; `None` for another event, or if its context is malformed.
    pub fn raised(&self) -> Option<Arc<Exception<'static>>> {
        if self.name != eventlog::EXCEPTION {
            return None;
        }
        if let Some(Document::Exception(exception)) = &self.document {
            return Some(Arc::clone(exception));
        }
        let exception: Exception<'_> = self.read()?;
        Some(Arc::new(exception.into_owned()))
    }

    /// Whether this is an exception of severity 0 (RFC 21).
    pub fn is_fatal(&self) -> bool {
        let severity = match &self.document {
            _ if self.name != eventlog::EXCEPTION => None,
            Some(Document::Exception(exception)) => Some(exception.severity),
            _ => self
                .read()
                .map(|exception: Exception<'_>| exception.severity),
        };
        severity == Some(0)
    }
}

/// The bytes that an event counts in the store beside its job, by its position in the eventlog and its length.
pub(crate) fn counted_event_bytes(position: u32, length: usize) -> u64 {
    let usual = if position < USUAL_EVENTS {
        USUAL_EVENT_BYTES
    } else {
        0
    };
    length.saturating_sub(usual) as u64
}

#[cfg(test)]
mod tests {
    use super::Event;
    use serde_json::json;

    #[test]
    fn a_line_is_compact_json_and_reads_back() {
        let event = Event::with(1.5, "submit", &json!({"urgency": 16, "userid": 0}));
        let mut line = String::new();
        event.write(&mut line);
        assert_eq!(
            line,
            "{\"timestamp\":1.5,\"name\":\"submit\",\"context\":{\"urgency\":16,\"userid\":0}}\n"
        );
        assert_eq!(Event::parse(&line).unwrap(), event);
        let mut named = String::new();
        let name = "ä\"\\\n".to_owned().into();
        let named_event = Event {
            name,
            ..Event::new(1e-7, "")
        };
        named_event.write(&mut named);
        assert_eq!(
            named,
            format!("{}\n", serde_json::to_string(&named_event).unwrap())
        );
        let mut bare = String::new();
        Event::new(2.25, "validate").write(&mut bare);
        assert_eq!(bare, "{\"timestamp\":2.25,\"name\":\"validate\"}\n");
        assert!(Event::parse("{\"timestamp\":1}").is_err());
        let list = "{\"timestamp\":1,\"name\":\"memo\",\"context\":[]}";
        assert!(Event::parse(list).is_err());
    }
}
