use std::borrow::Cow;

use penstock_flux::flags::{
    MATCHTAG_NONE, NODEID_ANY, NORESPONSE, PAYLOAD, ROUTE, STREAMING, TOPIC, USERID_UNKNOWN,
};
use penstock_flux::limits::MAX_PING_BYTES;
use penstock_flux::{Credentials, Payload, RequestError, TypedPayload, errno};
use serde::Deserialize;

use crate::body::Body;
use crate::{Error, transcode};

/// The flags that say which parts a frame has.
pub(crate) const PART_FLAGS: u8 = TOPIC | PAYLOAD | ROUTE;

/// The four types of messages (RFC 3); the value is the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageType {
    /// A request to a service.
    Request = 1,
    /// A response to a request.
    Response = 2,
    /// Published to every subscriber of a prefix of its topic.
    Event = 4,
    /// A message between neighbouring brokers, without routes, topic and payload.
    Control = 8,
}

impl MessageType {
    /// The name in lower case: `request`, `response`, `event` or `control`.
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

/// One message: RFC 3's header, and the parts before it.
///
/// Its fields are public because a broker rewrites them. Encoding sets the bits of [`Message::flags`] that announce
/// parts ([`TOPIC`], [`PAYLOAD`], [`ROUTE`]) from the parts themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The type.
    pub kind: MessageType,
    /// The flags, e.g. [`STREAMING`].
    pub flags: u8,
    /// The sender, or [`USERID_UNKNOWN`].
    pub userid: u32,
    /// The sender's [roles](penstock_flux::role) (RFC 12).
    pub rolemask: u32,
    /// The header's word that is nodeid, errnum, sequence or control type, by the type of the message.
    pub nodeid_errnum_seq: u32,
    /// Relates a response to its request; a control message's status.
    pub matchtag: u32,
    /// The route stack, the most recent hop **first**; `None` without [`ROUTE`].
    pub routes: Option<Vec<Vec<u8>>>,
    /// The topic; every message but a control message has one.
    pub topic: Option<Topic>,
    /// The payload as received; JSON includes its NUL.
    pub payload: Option<Body>,
}

impl Message {
    fn build(kind: MessageType, topic: &str, word: u32) -> Self {
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
        }
    }

    /// Returns a client's request to any rank, with an empty route stack and no matchtag.
    ///
    /// `payload_json` is the text of a JSON object, to which a NUL is added; empty text makes a request
    /// without payload.
    pub fn request(topic: &str, payload_json: &str) -> Self {
        Self::build(MessageType::Request, topic, NODEID_ANY).with_json(payload_json)
    }

    /// Returns an event with an empty route stack; `payload_json` as in [`Message::request`].
    pub fn event(topic: &str, payload_json: &str, sequence: u32) -> Self {
        Self::build(MessageType::Event, topic, sequence).with_json(payload_json)
    }

    /// Returns a response to `request`, with its routes, topic, matchtag and [`STREAMING`] flag.
    ///
    /// `errnum` 0 is success. `payload` is sent unchanged: [`Message::json_payload`] adds the NUL of JSON.
    pub fn response_to(request: &Self, errnum: u32, payload: Option<Vec<u8>>) -> Self {
        let mut response = Self {
            kind: MessageType::Response,
            flags: request.flags & STREAMING,
            userid: USERID_UNKNOWN,
            rolemask: 0,
            nodeid_errnum_seq: errnum,
            matchtag: request.matchtag,
            routes: request.routes.clone(),
            topic: request.topic.clone(),
            payload: payload.map(Body::from),
        };
        response.flags = response.wire_flags();
        response
    }

    /// The successful response to `request`, with a payload.
    pub fn success_to(request: &Self, payload: &impl Payload) -> Self {
        Self::response_to(request, 0, Some(payload.to_payload()))
    }

    /// The successful response to `request`, with a value as its payload.
    pub fn typed_success_to(request: &Self, value: TypedPayload) -> Self {
        Self::response_to(request, 0, None).with_typed(value)
    }

    /// The error response to `request`: `errnum`, and `text` with a NUL unless it is empty.
    pub fn error_to(request: &Self, errnum: u32, text: &str) -> Self {
        let payload = (!text.is_empty()).then(|| Self::json_payload(text));
        Self::response_to(request, errnum, payload)
    }

    /// Returns `text` in the wire's form, with a NUL at the end.
    pub fn json_payload(text: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        bytes
    }

    /// Sets the payload to the JSON text and a NUL, or removes it if the text is empty.
    #[must_use]
    pub fn with_json(mut self, text: &str) -> Self {
        self.set_payload((!text.is_empty()).then(|| Self::json_payload(text)));
        self
    }

    /// Sets the payload to this value's JSON.
    #[must_use]
    pub fn with_payload(mut self, payload: &impl Payload) -> Self {
        self.set_payload(Some(payload.to_payload()));
        self
    }

    /// Sets the matchtag.
    #[must_use]
    pub fn with_matchtag(mut self, matchtag: u32) -> Self {
        self.matchtag = matchtag;
        self
    }

    /// Sets the flags other than those that announce parts.
    #[must_use]
    pub fn with_flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self.flags = self.wire_flags();
        self
    }

    /// Sets [`STREAMING`].
    #[must_use]
    pub fn streaming(mut self) -> Self {
        self.flags |= STREAMING;
        self
    }

    /// Sets the payload to a value, which is written as JSON when its bytes are first read.
    #[must_use]
    pub fn with_typed(mut self, value: TypedPayload) -> Self {
        self.payload = Some(Body::from(value));
        self.flags = self.wire_flags();
        self
    }

    /// The value of the payload; `None` if the sender had none, or the message came over a socket.
    pub fn typed(&self) -> Option<&TypedPayload> {
        self.payload.as_ref().and_then(Body::typed)
    }

    /// Replaces the payload, and [`PAYLOAD`] with it.
    pub fn set_payload(&mut self, payload: Option<Vec<u8>>) {
        self.payload = payload.map(Body::from);
        self.flags = self.wire_flags();
    }

    /// The topic without its NUL; empty for a control message.
    pub fn topic(&self) -> &str {
        self.topic.as_ref().map_or("", |topic| &topic.text)
    }

    /// The service that the topic names: the part before the first period.
    pub fn service(&self) -> &str {
        self.split_topic().0
    }

    /// The method that the topic names: the part after the first period, empty without a period.
    pub fn method(&self) -> &str {
        self.split_topic().1.get(1..).unwrap_or_default()
    }

    /// The topic before its first period, and from that on.
    fn split_topic(&self) -> (&str, &str) {
        let topic = self.topic();
        // Topics are short: the general search for a character takes longer than a look at each.
        let period = topic.bytes().position(|byte| byte == b'.');
        let split = period.and_then(|at| topic.split_at_checked(at));
        split.unwrap_or((topic, ""))
    }

    /// The payload without the NUL at its end: the JSON text.
    pub fn payload_json(&self) -> Option<&[u8]> {
        self.payload
            .as_deref()
            .map(|bytes| bytes.strip_suffix(&[0]).unwrap_or(bytes))
    }

    /// Reads the JSON payload as one of [`penstock_flux`]'s structures; an absent payload reads as `{}`.
    ///
    /// # Errors
    ///
    /// Fails as [`penstock_flux::read`] does. The error names the key; callers add the topic.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, penstock_flux::Error> {
        penstock_flux::read(self.payload_json())
    }

    /// Reads the payload of a request, as [`Message::read`] does.
    ///
    /// # Errors
    ///
    /// The request is malformed: EPROTO, with a text that names topic and key.
    pub fn read_request<'a, T: Deserialize<'a>>(&'a self) -> Result<T, RequestError> {
        self.read()
            .map_err(|error| RequestError::malformed(self.topic(), &error))
    }

    /// The payload of the response to `ping`: that of the request, with `route`, the sender's `userid` and `rolemask`,
    /// and `rank`, that of the broker.
    ///
    /// # Errors
    ///
    /// Fails as [`Message::read_request`] does if the payload is not an object, and with EMSGSIZE if it is longer than
    /// [`MAX_PING_BYTES`].
    pub fn echo(&self) -> Result<Vec<u8>, RequestError> {
        if self
            .payload
            .as_ref()
            .is_some_and(|payload| payload.len() > MAX_PING_BYTES)
        {
            let text = format!("{}: expected at most {MAX_PING_BYTES} bytes", self.topic());
            return Err(RequestError::new(errno::EMSGSIZE, text));
        }
        let mut payload: serde_json::Map<String, serde_json::Value> = self.read_request()?;
        payload.insert("route".to_owned(), self.route_text().into());
        payload.insert("userid".to_owned(), self.userid.into());
        payload.insert("rolemask".to_owned(), self.rolemask.into());
        payload.insert("rank".to_owned(), 0.into());
        Ok(Self::json_payload(
            &serde_json::Value::from(payload).to_string(),
        ))
    }

    /// The beginning of each route, from the sender's on, with `!` between.
    fn route_text(&self) -> String {
        const SHOWN_BYTES: usize = 8;
        let routes = self.routes.iter().flatten().rev();
        let shown = routes.map(|route| {
            let shown = route.get(..SHOWN_BYTES).unwrap_or(route);
            String::from_utf8_lossy(shown).into_owned()
        });
        shown.collect::<Vec<_>>().join("!")
    }

    /// The peer that sent the message: the bottom of the route stack; `None` if that is empty or absent.
    pub fn origin(&self) -> Option<&[u8]> {
        self.routes.as_ref()?.last().map(Vec::as_slice)
    }

    /// Returns a copy without the payload, enough to respond to a request later.
    #[must_use]
    pub fn header(&self) -> Self {
        let mut header = Self {
            payload: None,
            topic: self.topic.clone(),
            routes: self.routes.clone(),
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

    /// Checks that the sender has the owner role, which the topic requires.
    ///
    /// # Errors
    ///
    /// The sender is a guest.
    pub fn require_owner(&self) -> Result<(), RequestError> {
        self.credentials().require_owner(self.topic())
    }

    /// Whether the payload is CBOR (a JSON object starts with `7B`, a CBOR map with `A0` to `BF`).
    pub fn has_cbor(&self) -> bool {
        self.payload.as_ref().is_some_and(Body::is_cbor)
    }

    /// Converts a CBOR payload to JSON with its NUL; any other payload is unchanged.
    ///
    /// # Errors
    ///
    /// Fails if the CBOR is malformed or has no JSON form. The error has the offset; the message is unchanged.
    pub fn normalise(&mut self) -> Result<(), Error> {
        if let Some(payload) = self.payload.as_ref().filter(|payload| payload.is_cbor()) {
            let mut json = transcode::cbor_to_json(payload)?.into_bytes();
            json.push(0);
            self.payload = Some(json.into());
        }
        Ok(())
    }

    /// Converts the payloads of messages that were read, as [`normalise`](Self::normalise) does.
    ///
    /// A payload that has no JSON form is the business of its sender and of who waits for it, not of others on the
    /// connection: a response is replaced by an error response (EPROTO, or its own error), and other messages are removed.
    ///
    /// Returns the error responses to the requests among these, for their sender.
    ///
    /// ```
    /// use penstock_wire::Message;
    ///
    /// let mut bad = Message::request("a.b", "").with_matchtag(7);
    /// bad.set_payload(Some(b"\xa1".to_vec()));
    /// let good = Message::request("a.c", "{}");
    /// let mut messages = vec![bad, good.clone()];
    /// let answers = Message::normalise_all(&mut messages);
    /// assert_eq!(messages, [good]);
    /// assert_eq!((answers[0].topic(), answers[0].matchtag, answers[0].errnum()), ("a.b", 7, 71));
    /// ```
    pub fn normalise_all(messages: &mut Vec<Self>) -> Vec<Self> {
        let mut answers = Vec::new();
        messages.retain_mut(|message| {
            let Err(error) = message.normalise() else {
                return true;
            };
            let text = format!("{}: {error}", message.topic());
            let errnum = match message.errnum() {
                0 => errno::EPROTO,
                errnum => errnum,
            };
            let answer = Self::error_to(message, errnum, &text);
            match message.kind {
                MessageType::Response => {
                    *message = answer;
                    return true;
                }
                MessageType::Request if !message.is_noresponse() => answers.push(answer),
                _ => {}
            }
            false
        });
        answers
    }

    /// Converts the payload to CBOR if it is a JSON object; any other payload, malformed JSON included, is unchanged.
    ///
    /// Returns whether the payload changed.
    pub fn encode_payload_as_cbor(&mut self) -> bool {
        let cbor = self.payload_as_cbor();
        let changed = cbor.is_some();
        if changed {
            self.payload = cbor.map(Body::from);
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

    /// The rank to which a request is addressed; [`NODEID_ANY`] in other types.
    pub fn nodeid(&self) -> u32 {
        if self.kind == MessageType::Request {
            self.nodeid_errnum_seq
        } else {
            NODEID_ANY
        }
    }

    /// A response's error number, 0 for success and in other types.
    pub fn errnum(&self) -> u32 {
        if self.kind == MessageType::Response {
            self.nodeid_errnum_seq
        } else {
            0
        }
    }

    /// An event's sequence number; 0 in other types.
    pub fn sequence(&self) -> u32 {
        if self.kind == MessageType::Event {
            self.nodeid_errnum_seq
        } else {
            0
        }
    }

    /// The text of an error response, without NULs at its end; `None` in other messages, or if it has no text.
    pub fn error_text(&self) -> Option<Cow<'_, str>> {
        let payload = self.payload.as_deref().filter(|_| self.errnum() != 0)?;
        let end = payload
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        Some(String::from_utf8_lossy(&payload[..end]))
    }

    /// Whether the message is a streaming request, whose responses end with an error, or a response to one.
    pub fn is_streaming(&self) -> bool {
        self.flags & STREAMING != 0
    }

    /// Checks that a request to a streaming method says that it expects a stream of responses.
    ///
    /// ```
    /// use penstock_flux::flags::{NORESPONSE, STREAMING};
    /// use penstock_wire::Message;
    ///
    /// let mut request = Message::request("job-info.eventlog-watch", "{}");
    /// let error = request.require_streaming().unwrap_err();
    /// assert_eq!(error.text, "job-info.eventlog-watch is a streaming request");
    ///
    /// request.flags |= STREAMING;
    /// assert!(request.require_streaming().is_ok());
    ///
    /// request.flags |= NORESPONSE;
    /// assert!(request.require_streaming().is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// It has no streaming flag, or expects no response: EPROTO, with a text that names the topic.
    pub fn require_streaming(&self) -> Result<(), RequestError> {
        if self.is_streaming() && !self.is_noresponse() {
            return Ok(());
        }
        Err(RequestError::not_streaming(self.topic()))
    }

    /// Whether the request must get no response.
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

    /// The flags, with the bits for topic, payload and routes set from the parts.
    pub(crate) fn wire_flags(&self) -> u8 {
        let mut flags = self.flags & !PART_FLAGS;
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
