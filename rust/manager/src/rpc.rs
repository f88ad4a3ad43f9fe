//! Requests and answers: reading payloads, refusing with an error number and a text.

use penstock_wire::Message;
use serde::Deserialize;
use serde_json::Value;

/// No such file or directory: an unknown job or key.
pub const ENOENT: u32 = 2;
/// Invalid argument.
pub const EINVAL: u32 = 22;
/// Operation not permitted.
pub const EPERM: u32 = 1;
/// Function not implemented: an unknown method.
pub const ENOSYS: u32 = 38;
/// Try again.
pub const EAGAIN: u32 = 11;
/// Device or resource busy.
pub const EBUSY: u32 = 16;
/// No data: the good end of a stream (RFC 6).
pub const ENODATA: u32 = 61;
/// Operation cancelled.
pub const ECANCELED: u32 = 125;
/// Protocol error.
pub const EPROTO: u32 = 71;

/// Why a request is not served: goes back to the asker as errnum and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// The error number.
    pub errnum: u32,
    /// For people; may be empty.
    pub text: String,
}

impl RequestError {
    /// A refusal with its text.
    pub fn new(errnum: u32, text: impl Into<String>) -> Self {
        Self {
            errnum,
            text: text.into(),
        }
    }
}

/// Reads a request's payload. A field that is missing or wrong is named in the refusal.
pub fn payload<'a, T: Deserialize<'a>>(message: &'a Message) -> Result<T, RequestError> {
    let bytes = message.payload_json().unwrap_or(b"{}");
    serde_json::from_slice(bytes).map_err(|error| {
        RequestError::new(
            EPROTO,
            format!("{}: malformed payload: {error}", message.topic()),
        )
    })
}

/// The peer that a message comes from: the bottom of its route stack.
pub fn origin(message: &Message) -> Option<&[u8]> {
    message.routes.as_ref()?.last().map(Vec::as_slice)
}

/// The request, marked as one that is never answered.
pub fn unanswered(request: Message) -> Message {
    let flags = request.flags | penstock_wire::NORESPONSE;
    request.with_flags(flags)
}

/// The good answer to a request; an absent payload is an empty response.
pub fn answer(request: &Message, payload: Option<&Value>) -> Message {
    let payload = payload.map(|value| Message::json_payload(&value.to_string()));
    Message::response_to(request, 0, payload)
}

/// The bad answer to a request.
pub fn refuse(request: &Message, refusal: &RequestError) -> Message {
    Message::error_to(request, refusal.errnum, &refusal.text)
}
