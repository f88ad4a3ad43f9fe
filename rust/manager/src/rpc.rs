//! Requests and responses: senders, payloads, and errors with a number and a text.

use penstock_flux::{Credentials, Payload, RequestError, TypedPayload, flags};
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::Value;

/// The response of a handler.
#[derive(Debug)]
pub(crate) enum Reply {
    /// An empty response.
    Empty,
    /// A response with this payload.
    Payload(Vec<u8>),
    /// A response with this value.
    Typed(TypedPayload),
    /// None by the router: the handler has sent the responses, or will send them.
    Deferred,
}

/// The result of a handler.
pub(crate) type Handled = Result<Reply, RequestError>;

impl Reply {
    pub(crate) fn of(payload: &impl Payload) -> Self {
        Self::Payload(payload.to_payload())
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        Self::Payload(Message::json_payload(&value.to_string()))
    }
}

/// A request and its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The message.
    pub(crate) message: &'a Message,
    /// The credentials of its sender.
    pub(crate) sender: Credentials,
}

impl<'a> Request<'a> {
    /// The request of the message's sender.
    pub(crate) fn new(message: &'a Message) -> Self {
        let sender = message.credentials();
        Self { message, sender }
    }

    /// Reads the payload.
    pub(crate) fn payload<T: Deserialize<'a>>(&self) -> Result<T, RequestError> {
        self.message.read_request()
    }

    /// The peer that the request comes from.
    pub(crate) fn origin(&self) -> Option<&'a [u8]> {
        self.message.origin()
    }
}

/// Whether `message` is the request that a peer names by its matchtag.
pub(crate) fn is_request_of(message: &Message, peer: Option<&[u8]>, matchtag: u32) -> bool {
    peer.is_some() && message.matchtag == matchtag && message.origin() == peer
}

/// A request with a payload.
pub(crate) fn request(topic: &str, payload: &impl Payload) -> Message {
    let mut request = Message::request(topic, "");
    request.set_payload(Some(payload.to_payload()));
    request
}

/// A request with a value as its payload.
pub(crate) fn typed_request(topic: &str, value: TypedPayload) -> Message {
    Message::request(topic, "").with_typed(value)
}

/// A request with a payload that expects no response.
pub(crate) fn notification(topic: &str, payload: &impl Payload) -> Message {
    without_response(request(topic, payload))
}

/// The request, marked as one that expects no response.
pub(crate) fn without_response(request: Message) -> Message {
    let flags = request.flags | flags::NORESPONSE;
    request.with_flags(flags)
}

/// The error response to a request.
pub(crate) fn error_response(request: &Message, error: &RequestError) -> Message {
    Message::error_to(request, error.errnum, &error.text)
}
