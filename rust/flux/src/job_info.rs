//! The service `job-info`: a job's documents and events.

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::MAX_NAMES_PER_REQUEST;
use crate::payload::{Payload, Text, at_most};

/// A flag of `job-info.eventlog-watch`: the log may not exist yet.
pub const WAITCREATE: i64 = 1;

/// `job-info.lookup`: documents of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupRequest<'a> {
    /// The job.
    pub id: JobId,
    /// Names of documents: `eventlog`, `jobspec`, `J`, `R`, `guest.exec.eventlog`, `guest.input`, `guest.output` (RFC 16).
    #[serde(borrow, deserialize_with = "at_most::<MAX_NAMES_PER_REQUEST, _, _>")]
    pub keys: Vec<Text<'a>>,
    /// Flags of the lookup.
    #[serde(default)]
    pub flags: i64,
}

/// The response to a lookup: the text of each document beside the id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupResponse {
    /// The job.
    pub id: JobId,
    /// The documents by name, each a string.
    #[serde(flatten)]
    pub documents: Map<String, Value>,
}

/// `job-info.eventlog-watch`: a job's events, past and future.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventlogWatchRequest<'a> {
    /// The job.
    pub id: JobId,
    /// Which log: `eventlog` if absent, `guest.exec.eventlog`, `guest.input` or `guest.output`.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub path: Option<Text<'a>>,
    /// Flags of the watch.
    #[serde(default)]
    pub flags: i64,
}

/// A response to a watch: one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventlogWatchResponse<'a> {
    /// The event as its line in the log (RFC 18), with the newline.
    #[serde(borrow)]
    pub event: Text<'a>,
}

impl Payload for LookupRequest<'_> {}
impl Payload for LookupResponse {}
impl Payload for EventlogWatchRequest<'_> {}
impl Payload for EventlogWatchResponse<'_> {}
