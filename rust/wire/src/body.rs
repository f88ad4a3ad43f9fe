//! The payload of a message: bytes, or a value that is encoded when its bytes are first read.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use penstock_flux::TypedPayload;

use crate::transcode;

/// The payload of a message.
///
/// A payload is bytes from a socket, or a [`TypedPayload`], which a sender passes to a receiver in the same
/// process. A value is encoded once, when its bytes are first read; copies share the bytes. Two payloads are
/// equal if their bytes are.
#[derive(Clone)]
pub struct Body(Form);

#[derive(Clone)]
enum Form {
    Bytes(Vec<u8>),
    Typed(Arc<Typed>),
}

struct Typed {
    value: TypedPayload,
    bytes: OnceLock<Vec<u8>>,
}

impl Body {
    /// The value; `None` if the payload is bytes.
    pub fn typed(&self) -> Option<&TypedPayload> {
        match &self.0 {
            Form::Bytes(_) => None,
            Form::Typed(typed) => Some(&typed.value),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Bytes(bytes) => bytes,
            Form::Typed(typed) => typed.bytes.get_or_init(|| typed.value.to_payload()),
        }
    }

    /// Returns the bytes, copied only if the payload is a value.
    pub fn into_bytes(self) -> Vec<u8> {
        match self.0 {
            Form::Bytes(bytes) => bytes,
            Form::Typed(_) => self.as_bytes().to_vec(),
        }
    }

    /// Whether the payload is CBOR. A value is JSON.
    pub(crate) fn is_cbor(&self) -> bool {
        match &self.0 {
            Form::Bytes(bytes) => transcode::is_cbor(bytes),
            Form::Typed(_) => false,
        }
    }

    /// The number of bytes that the payload has: none if it is a value that has not been encoded.
    pub fn written_len(&self) -> usize {
        match &self.0 {
            Form::Bytes(bytes) => bytes.len(),
            Form::Typed(typed) => typed.bytes.get().map_or(0, Vec::len),
        }
    }

    /// Whether the payload has its bytes: a value that has been encoded, or no value.
    pub fn has_bytes(&self) -> bool {
        match &self.0 {
            Form::Bytes(_) => true,
            Form::Typed(typed) => typed.bytes.get().is_some(),
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Form::Bytes(bytes))
    }
}

impl From<TypedPayload> for Body {
    fn from(value: TypedPayload) -> Self {
        let bytes = OnceLock::new();
        Self(Form::Typed(Arc::new(Typed { value, bytes })))
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Bytes(bytes) => bytes.fmt(f),
            Form::Typed(typed) => typed.value.fmt(f),
        }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Body {}

impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::Body;
    use crate::Message;
    use penstock_flux::exec::ExecEvent;
    use penstock_flux::{JobId, StartReport, TypedPayload};

    const JSON: &[u8] = b"{\"id\":7,\"type\":\"start\",\"data\":{}}\0";

    fn value() -> TypedPayload {
        TypedPayload::StartResponse(StartReport {
            id: JobId::new(7),
            event: ExecEvent::Start,
        })
    }

    #[test]
    fn bytes_of_a_value_are_made_when_they_are_read_and_shared_by_copies() {
        let body = Body::from(value());
        let copy = body.clone();
        assert!(copy.typed().is_some() && !copy.is_cbor());
        assert!(!body.has_bytes() && !copy.has_bytes());
        assert_eq!(*body, *JSON);
        assert!(copy.has_bytes());
        assert_eq!(body.as_bytes().as_ptr(), copy.as_bytes().as_ptr());
        assert_eq!(copy.into_bytes(), JSON);
    }

    #[test]
    fn a_value_is_routed_without_making_its_bytes() {
        let mut message = Message::request("job-exec.start", "").with_typed(value());
        message.push_route(b"broker");
        let mut response = Message::typed_success_to(&message, value());
        assert_eq!(response.service(), "job-exec");
        assert_eq!(response.pop_route().as_deref(), Some(&b"broker"[..]));
        for message in [&message, &response] {
            assert!(!message.has_cbor() && !message.payload.as_ref().unwrap().has_bytes());
        }
        assert!(message.header().payload.is_none());
    }

    #[test]
    fn the_frame_of_a_value_is_that_of_its_bytes() {
        let typed = Message::request("a.b", "").with_typed(value());
        let plain = Message::request("a.b", std::str::from_utf8(&JSON[..JSON.len() - 1]).unwrap());
        assert_eq!(typed, plain);
        let mut frames = [Vec::new(), Vec::new()];
        typed.encode(&mut frames[0]);
        plain.encode(&mut frames[1]);
        assert_eq!(frames[0], frames[1]);
        let decoded = Message::decode(&frames[0]).unwrap();
        assert!(decoded.typed().is_none());
        assert_eq!(decoded, typed);
        let mut changed = typed.clone();
        changed.set_payload(None);
        assert!(changed.typed().is_none());
    }
}
