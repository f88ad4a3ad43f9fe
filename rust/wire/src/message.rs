use std::borrow::Cow;

use penstock_flux::flags::{
    MATCHTAG_NONE, NODEID_ANY, NORESPONSE, PAYLOAD, ROUTE, STREAMING, TOPIC, USERID_UNKNOWN,
};
use penstock_flux::{Attached, Attachment, Credentials, Payload};
use serde::Deserialize;

use crate::Error;
use crate::transcode;

/// The flags that say which parts a frame has.
pub(crate) const PARTS: u8 = TOPIC | PAYLOAD | ROUTE;

/// The four kinds of messages; the value is the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A request to a service.
    Request = 1,
    /// A response to a request.
    Response = 2,
    /// Published to every subscriber of a prefix of its topic.
    Event = 4,
    /// A message between neighbouring brokers, without routes, topic and payload.
    Control = 8,
}

impl Kind {
    /// The kind's name in lower case: `request`, `response`, `event` or `control`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Event => "event",
            Self::Control => "control",
        }
    }

    pub(crate) fn from_wire(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Request),
            2 => Some(Self::Response),
            4 => Some(Self::Event),
            8 => Some(Self::Control),
            _ => None,
        }
    }
}

/// A topic, and whether its sender ended it in NUL (RFC 3 says so, real peers do not).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    /// The topic without its NUL, e.g. `job-manager.submit`.
    pub text: String,
    /// Whether a NUL follows on the wire.
    pub nul: bool,
}

impl From<&str> for Topic {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            nul: false,
        }
    }
}

/// One message: RFC 3's header, and the parts in front of it.
///
/// Its fields are public: a broker rewrites them. The bits of [`Message::flags`] that announce parts
/// ([`TOPIC`], [`PAYLOAD`], [`ROUTE`]) are set from the parts themselves when the message is encoded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The kind.
    pub kind: Kind,
    /// The flags, e.g. [`STREAMING`].
    pub flags: u8,
    /// The sender, or [`USERID_UNKNOWN`].
    pub userid: u32,
    /// The sender's [roles](penstock_flux::role) (RFC 12).
    pub rolemask: u32,
    /// The header's word that is nodeid, errnum, sequence or control type, by the kind.
    pub nodeid_errnum_seq: u32,
    /// Relates a response to its request; a control message's status.
    pub matchtag: u32,
    /// The route stack, the most recent hop **first**; `None` without [`ROUTE`].
    pub routes: Option<Vec<Vec<u8>>>,
    /// The topic; every message but a control message has one.
    pub topic: Option<Topic>,
    /// The payload as it came, a JSON payload with its NUL.
    pub payload: Option<Vec<u8>>,
    pub(crate) attached: Attached,
}

impl Message {
    fn build(kind: Kind, topic: &str, word: u32) -> Self {
        Self {
            kind,
            flags: TOPIC | ROUTE,
            userid: USERID_UNKNOWN,
            rolemask: 0,
            nodeid_errnum_seq: word,
            matchtag: MATCHTAG_NONE,
            routes: Some(Vec::new()),
            topic: Some(Topic::from(topic)),
            payload: None,
            attached: Attached::default(),
        }
    }

    /// A client's request to any rank, with an empty route stack and no matchtag.
    ///
    /// `payload_json` is the text of a JSON object, to which a NUL is added; empty text makes a request
    /// without payload.
    pub fn request(topic: &str, payload_json: &str) -> Self {
        Self::build(Kind::Request, topic, NODEID_ANY).with_json(payload_json)
    }

    /// An event with an empty route stack; `payload_json` as in [`Message::request`].
    pub fn event(topic: &str, payload_json: &str, sequence: u32) -> Self {
        Self::build(Kind::Event, topic, sequence).with_json(payload_json)
    }

    /// The response to `request`: its routes, its topic, its matchtag, and [`STREAMING`] as it has it.
    ///
    /// `errnum` 0 is success. `payload` goes out as it is: [`Message::json_payload`] adds the NUL of JSON.
    pub fn response_to(request: &Self, errnum: u32, payload: Option<Vec<u8>>) -> Self {
        let mut response = Self {
            kind: Kind::Response,
            flags: request.flags & STREAMING,
            userid: USERID_UNKNOWN,
            rolemask: 0,
            nodeid_errnum_seq: errnum,
            matchtag: request.matchtag,
            routes: request.routes.clone(),
            topic: request.topic.clone(),
            payload,
            attached: Attached::default(),
        };
        response.flags = response.wire_flags();
        response
    }

    /// The successful response to `request`, with a payload.
    pub fn success_to(request: &Self, payload: &impl Payload) -> Self {
        Self::response_to(request, 0, Some(payload.to_payload()))
    }

    /// The error response to `request`: `errnum`, and `text` with a NUL unless it is empty.
    pub fn error_to(request: &Self, errnum: u32, text: &str) -> Self {
        let payload = (!text.is_empty()).then(|| Self::json_payload(text));
        Self::response_to(request, errnum, payload)
    }

    /// `text` as the wire has it: with a NUL at the end.
    pub fn json_payload(text: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        bytes
    }

    /// The message with the JSON text as its payload (a NUL is added), or without payload if the text is empty.
    #[must_use]
    pub fn with_json(mut self, text: &str) -> Self {
        self.set_payload((!text.is_empty()).then(|| Self::json_payload(text)));
        self
    }

    /// The message with this payload, as JSON.
    #[must_use]
    pub fn with_payload(mut self, payload: &impl Payload) -> Self {
        self.set_payload(Some(payload.to_payload()));
        self
    }

    /// The message with this matchtag.
    #[must_use]
    pub fn with_matchtag(mut self, matchtag: u32) -> Self {
        self.matchtag = matchtag;
        self
    }

    /// The message with these flags beside those that announce its parts.
    #[must_use]
    pub fn with_flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self.flags = self.wire_flags();
        self
    }

    /// The message with the typed value of its payload, for a receiver in the same process.
    #[must_use]
    pub fn with_attachment(mut self, attachment: Attachment) -> Self {
        self.attached = Attached(Some(attachment));
        self
    }

    /// The typed value of the payload; `None` if the sender has attached none, or the message came over a socket.
    pub fn attachment(&self) -> Option<&Attachment> {
        self.attached.0.as_ref()
    }

    /// Replaces the payload, and [`PAYLOAD`] with it; an attachment is removed.
    pub fn set_payload(&mut self, payload: Option<Vec<u8>>) {
        self.attached = Attached::default();
        self.payload = payload;
        self.flags = self.wire_flags();
    }

    /// The topic without its NUL; empty for a control message.
    pub fn topic(&self) -> &str {
        self.topic.as_ref().map_or("", |topic| &topic.text)
    }

    /// The service a topic names: what stands before its first period.
    pub fn service(&self) -> &str {
        let topic = self.topic();
        topic.split_once('.').map_or(topic, |(service, _)| service)
    }

    /// The method a topic names: what stands after its first period, empty if there is none.
    pub fn method(&self) -> &str {
        self.topic()
            .split_once('.')
            .map_or("", |(_, method)| method)
    }

    /// The payload without one NUL at its end: the text of JSON.
    pub fn payload_json(&self) -> Option<&[u8]> {
        self.payload
            .as_deref()
            .map(|bytes| bytes.strip_suffix(&[0]).unwrap_or(bytes))
    }

    /// Reads the payload, which must be JSON, as one of [`penstock_flux`]'s structures; no payload reads as `{}`.
    ///
    /// # Errors
    ///
    /// Fails as [`penstock_flux::read`] does. The error names the key; callers add the topic.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, penstock_flux::Error> {
        penstock_flux::read(self.payload_json())
    }

    /// A copy without the payload: what is needed of a request to respond to it later.
    #[must_use]
    pub fn header(&self) -> Self {
        let mut header = Self {
            payload: None,
            topic: self.topic.clone(),
            routes: self.routes.clone(),
            attached: Attached::default(),
            ..*self
        };
        header.flags = header.wire_flags();
        header
    }

    /// The sender's user id and roles.
    pub fn credentials(&self) -> Credentials {
        Credentials {
            userid: self.userid,
            rolemask: self.rolemask,
        }
    }

    /// Whether the payload is CBOR (a JSON object starts with `7B`, a CBOR map with `A0` to `BF`).
    pub fn has_cbor(&self) -> bool {
        self.payload.as_deref().is_some_and(transcode::is_cbor)
    }

    /// Turns a CBOR payload into JSON with its NUL; any other payload is unchanged.
    ///
    /// # Errors
    ///
    /// Fails if the CBOR is malformed or has no JSON form, and says where; the message is unchanged then.
    pub fn normalise(&mut self) -> Result<(), Error> {
        if let Some(payload) = self
            .payload
            .as_deref()
            .filter(|payload| transcode::is_cbor(payload))
        {
            let mut json = transcode::cbor_to_json(payload)?.into_bytes();
            json.push(0);
            self.payload = Some(json);
        }
        Ok(())
    }

    /// Turns the payload into CBOR if it is a JSON object; any other payload, malformed JSON included, stays as it is.
    ///
    /// Returns whether the payload changed.
    pub fn encode_payload_as_cbor(&mut self) -> bool {
        let cbor = self.payload_as_cbor();
        let changed = cbor.is_some();
        if changed {
            self.payload = cbor;
        }
        changed
    }

    /// The CBOR of a payload that is a JSON object.
    pub(crate) fn payload_as_cbor(&self) -> Option<Vec<u8>> {
        let json = self.payload_json()?;
        if json.first() != Some(&b'{') {
            return None;
        }
        transcode::json_to_cbor(std::str::from_utf8(json).ok()?).ok()
    }

    /// The rank a request is for; [`NODEID_ANY`] in other kinds.
    pub fn nodeid(&self) -> u32 {
        if self.kind == Kind::Request {
            self.nodeid_errnum_seq
        } else {
            NODEID_ANY
        }
    }

    /// A response's error number, 0 for success and in other kinds.
    pub fn errnum(&self) -> u32 {
        if self.kind == Kind::Response {
            self.nodeid_errnum_seq
        } else {
            0
        }
    }

    /// An event's sequence number; 0 in other kinds.
    pub fn sequence(&self) -> u32 {
        if self.kind == Kind::Event {
            self.nodeid_errnum_seq
        } else {
            0
        }
    }

    /// The text of an error response, without NULs at its end; `None` for anything else and where no text came.
    pub fn error_text(&self) -> Option<Cow<'_, str>> {
        let payload = self.payload.as_deref().filter(|_| self.errnum() != 0)?;
        let end = payload
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        Some(String::from_utf8_lossy(&payload[..end]))
    }

    /// Whether this request wants responses until an error ends the stream, or this response is one of them.
    pub fn is_streaming(&self) -> bool {
        self.flags & STREAMING != 0
    }

    /// Whether this request must never be answered.
    pub fn is_noresponse(&self) -> bool {
        self.flags & NORESPONSE != 0
    }

    /// Pushes a hop onto the route stack, as a broker does with the sender of a request that it forwards.
    ///
    /// The top is the **front**: RFC 3 sends the most recent hop as the first part. `route` must not be empty
    /// (an empty part ends the stack).
    pub fn push_route(&mut self, route: &[u8]) {
        debug_assert!(!route.is_empty(), "an empty route would end the stack");
        self.routes
            .get_or_insert_default()
            .insert(0, route.to_vec());
        self.flags = self.wire_flags();
    }

    /// Pops the most recent hop off the route stack: the peer that a broker forwards a response to.
    pub fn pop_route(&mut self) -> Option<Vec<u8>> {
        let routes = self.routes.as_mut()?;
        if routes.is_empty() {
            None
        } else {
            Some(routes.remove(0))
        }
    }

    /// The flags with the bits for topic, payload and routes as the parts are.
    pub(crate) fn wire_flags(&self) -> u8 {
        let mut flags = self.flags & !PARTS;
        if self.topic.is_some() {
            flags |= TOPIC;
        }
        if self.payload.is_some() {
            flags |= PAYLOAD;
        }
        if self.routes.is_some() {
            flags |= ROUTE;
        }
        flags
    }
}
