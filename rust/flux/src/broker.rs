//! Requests to the broker itself: services, subscriptions, attributes, configuration and groups.

use serde::{Deserialize, Serialize};

use crate::payload::{Json, Payload, Text, name, object_document};

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

/// `event.publish`: an event for its subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishRequest<'a> {
    /// The topic.
    #[serde(borrow)]
    pub topic: Text<'a>,
    /// The flags of the message.
    #[serde(default)]
    pub flags: u32,
    /// The payload in base64.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Text<'a>>,
}

/// `attr.set`: gives an attribute of the broker a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeSetRequest<'a> {
    /// The name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// The value.
    #[serde(borrow)]
    pub value: Text<'a>,
}

/// `attr.get`, `attr.rm` and `groups.get`: names an attribute or a group of the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRequest<'a> {
    /// The name.
    #[serde(borrow, deserialize_with = "name")]
    pub name: Text<'a>,
}

/// The response to `attr.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeResponse<'a> {
    /// The value.
    #[serde(borrow)]
    pub value: Text<'a>,
    /// [`IMMUTABLE`] for an attribute that does not change.
    #[serde(default)]
    pub flags: i64,
}

/// Flag of [`AttributeResponse`]: the attribute does not change.
pub const IMMUTABLE: i64 = 1;

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
    /// The whole configuration, an object.
    #[serde(borrow, deserialize_with = "object_document")]
    pub config: Json<'a>,
}

/// `broker.shutdown`: ends the instance. Running jobs are cancelled unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShutdownRequest {
    /// Running jobs continue, and the instance reattaches them when it is started again.
    pub keep_running: bool,
    /// The instance starts again with the same options. Running jobs continue.
    pub restart: bool,
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

impl Payload for ServiceRequest<'_> {}
impl Payload for SubscriptionRequest<'_> {}
impl Payload for NameRequest<'_> {}
impl Payload for PublishRequest<'_> {}
impl Payload for AttributeSetRequest<'_> {}
impl Payload for AttributeResponse<'_> {}
impl Payload for GroupResponse<'_> {}
impl Payload for ConfigReloadRequest<'_> {}
impl Payload for ShutdownRequest {}
impl Payload for StateResponse<'_> {}
