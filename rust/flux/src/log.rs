//! The instance's log: requests of the owner, and log lines (Penstock's own).

use serde::{Deserialize, Serialize};

use crate::payload::{Payload, Text};

/// `log.dmesg`, streaming: the retained lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DmesgRequest {
    /// Whether later lines are sent too.
    pub follow: bool,
    /// Whether the retained lines are left out.
    pub nobacklog: bool,
    /// Whether a response has lines as objects (Penstock's own); a line of RFC 5424 if not, as Flux has them.
    pub rows: bool,
}

/// `log.append`: appends a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendRequest<'a> {
    /// The severity: `debug`, `info`, `warning`, `error` or `critical`.
    #[serde(borrow)]
    pub level: Text<'a>,
    /// The text.
    #[serde(borrow)]
    pub text: Text<'a>,
}

/// `log.clear`: removes retained lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearRequest {
    /// The number of the last line to remove; all are removed if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upto: Option<i64>,
}

impl Payload for DmesgRequest {}
impl Payload for AppendRequest<'_> {}
impl Payload for ClearRequest {}
