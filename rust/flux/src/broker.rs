//! Requests to the broker itself: services, subscriptions, attributes, configuration, groups and the log.

use serde::{Deserialize, Serialize};

use crate::payload::{Json, Payload, Text, objects};

/// `service.add` and `service.remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRequest<'a> {
    /// The service's name: the first word of its topics.
    #[serde(borrow)]
    pub service: Text<'a>,
}

/// `event.subscribe` and `event.unsubscribe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionRequest<'a> {
    /// A prefix of topics.
    #[serde(borrow)]
    pub topic: Text<'a>,
}

/// `attr.get` and `groups.get`: something of the broker by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRequest<'a> {
    /// The name.
    #[serde(borrow)]
    pub name: Text<'a>,
}

/// The response to `attr.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeResponse<'a> {
    /// The value.
    #[serde(borrow)]
    pub value: Text<'a>,
    /// 1 for an attribute that does not change.
    #[serde(default)]
    pub flags: i64,
}

/// The response to `groups.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupResponse<'a> {
    /// An idset of broker ranks.
    #[serde(borrow)]
    pub members: Text<'a>,
}

/// `config.reload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigReloadRequest<'a> {
    /// The whole configuration.
    #[serde(borrow)]
    pub config: Json<'a>,
}

/// The response to `config.reload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigReloadResponse {
    /// The keys that have other values now.
    pub changed: Vec<String>,
}

/// The response to `state-machine.get`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateResponse<'a> {
    /// The state's name, `run` while requests are served.
    #[serde(borrow)]
    pub state: Text<'a>,
    /// Seconds since the state was entered.
    pub duration: f64,
}

/// A line of the instance's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogEntry<'a> {
    /// Seconds since the epoch.
    pub timestamp: f64,
    /// The severity, 0 (emergency) to 7 (debug).
    pub level: i64,
    /// What has logged it.
    #[serde(borrow)]
    pub component: Text<'a>,
    /// The text.
    #[serde(borrow)]
    pub text: Text<'a>,
    /// Its number, ascending.
    pub sequence: u64,
}

/// A response to `log.dmesg`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogResponse<'a> {
    /// Lines, the oldest first.
    #[serde(borrow, deserialize_with = "objects")]
    pub entries: Vec<LogEntry<'a>>,
}

impl Payload for ServiceRequest<'_> {}
impl Payload for SubscriptionRequest<'_> {}
impl Payload for NameRequest<'_> {}
impl Payload for AttributeResponse<'_> {}
impl Payload for GroupResponse<'_> {}
impl Payload for ConfigReloadRequest<'_> {}
impl Payload for ConfigReloadResponse {}
impl Payload for StateResponse<'_> {}
impl Payload for LogEntry<'_> {}
impl Payload for LogResponse<'_> {}
