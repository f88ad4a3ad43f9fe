//! Encoding of messages as frames, and decoding (RFC 3).

use std::io;

use crate::Error;
use crate::error::Subject;
use crate::frame;
use crate::message::{Message, MessageType, PART_FLAGS};

impl Message {
    /// The size of the message's frame in bytes, magic and length included.
    pub fn encoded_len(&self) -> usize {
        frame::encoded_len(self, self.payload.as_deref())
    }

    /// The length of the message's frame in bytes as its limit counts it: without magic and length.
    pub fn frame_len(&self) -> usize {
        self.encoded_len() - frame::PREFIX_BYTES
    }

    /// Checks that the message can be encoded. A decoded message passes, and so does every response to one below
    /// 4 GiB.
    ///
    /// # Errors
    ///
    /// Fails if the frame would exceed 4 GiB, the topic is empty or has a NUL, a route is empty, there are more than
    /// [`MAX_ROUTES`](crate::MAX_ROUTES) routes, a control message has a topic, routes or a payload, or another message
    /// lacks a topic.
    pub fn check(&self) -> Result<(), Error> {
        let invalid = |detail: &str| Err(Error::new(Subject::Message, 0, detail.to_owned()));
        if self.kind == MessageType::Control && self.wire_flags() & PART_FLAGS != 0 {
            return invalid("a control message has neither routes, topic nor payload");
        }
        if self.kind != MessageType::Control && self.topic().is_empty() {
            return invalid("expected a topic, found none or an empty one");
        }
        if self.topic().as_bytes().contains(&0) {
            return invalid("expected a topic without NUL");
        }
        if self.routes.iter().flatten().any(Vec::is_empty) {
            return invalid("expected a route, found an empty one");
        }
        if self
            .routes
            .as_ref()
            .is_some_and(|routes| routes.len() > frame::MAX_ROUTES)
        {
            return invalid(&format!("expected at most {} routes", frame::MAX_ROUTES));
        }
        if !frame::fits(self, self.payload.as_deref()) {
            return invalid("expected less than 4 GiB");
        }
        Ok(())
    }

    /// Appends the message's frame to `out`.
    ///
    /// Appends nothing if the message does not pass [`Message::check`]. Callers whose topics or payloads come from
    /// users check first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.check().is_ok() {
            frame::append(self, self.payload.as_deref(), out);
        }
    }

    /// Writes the message's frame; nothing if the message does not pass [`Message::check`].
    ///
    /// # Errors
    ///
    /// Fails if `out` does.
    pub fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        match self.check() {
            Ok(()) => frame::write(self, self.payload.as_deref(), out),
            Err(_) => Ok(()),
        }
    }

    /// Appends the message's frame, with a JSON object as payload converted to CBOR as in
    /// [`Message::encode_payload_as_cbor`].
    pub fn encode_as_cbor(&self, out: &mut Vec<u8>) {
        match self.payload_as_cbor() {
            // CBOR may be longer than its JSON, which fits: a short fraction has eight bytes.
            Some(cbor) if self.check().is_ok() && frame::is_within_limit(self, &cbor) => {
                frame::append(self, Some(&cbor), out);
            }
            _ => self.encode(out),
        }
    }

    /// Decodes exactly one frame. [`Decoder`](crate::Decoder) decodes a stream of frames.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not exactly one well-formed frame; the error has the offset.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let length = frame::check_prefix(bytes, usize::MAX)?;
        let Some(end) = length.filter(|&end| bytes.len() >= end) else {
            let end = length.map_or_else(
                || "the 8 bytes before it".to_owned(),
                |end| format!("{end} bytes"),
            );
            let detail = format!("expected {end}, found the end at byte {}", bytes.len());
            return Err(Error::new(Subject::Frame, bytes.len(), detail));
        };
        if bytes.len() > end {
            let detail = format!(
                "expected the end at byte {end}, found {} more bytes",
                bytes.len() - end
            );
            return Err(Error::new(Subject::Frame, end, detail));
        }
        frame::parse(bytes)
    }
}
