//! `Message`: one message of the wire (RFC 3).
#![expect(
    clippy::doc_markdown,
    reason = "what documents a class documents it to Python"
)]

use std::hash::{DefaultHasher, Hash, Hasher};

use penstock_flux::flags;
use penstock_wire as wire;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMapping};

use crate::errors::{JsonDocument, raised};
use crate::json;

/// The Python object of a JSON text; malformed text is a `WireError` that names the byte.
fn json_object<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    json::decode(py, text).map_err(|error| JsonDocument::ReceivedPayload.raised(error))
}

/// The bytes of a payload: bytes as they are, a mapping as JSON with a NUL.
fn payload_bytes(payload: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<u8>>> {
    let Some(payload) = payload else {
        return Ok(None);
    };
    if let Ok(bytes) = payload.extract::<PyBackedBytes>() {
        return Ok(Some(bytes.to_vec()));
    }
    if payload.cast::<PyMapping>().is_err() {
        let found = payload.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "expected a dict, bytes or None as payload, found {found}"
        )));
    }
    let text = json::encode(payload).map_err(|error| JsonDocument::NewPayload.raised(error))?;
    Ok(Some(wire::Message::json_payload(&text)))
}

/// One message of the wire (RFC 3); it cannot be changed.
///
/// Two messages are equal if every field is, down to whether the topic's NUL was sent.
#[pyclass(module = "penstock._core", frozen, eq)]
#[derive(Clone, PartialEq)]
pub(crate) struct Message(pub(crate) wire::Message);

impl Message {
    fn checked(message: wire::Message) -> PyResult<Self> {
        message.check().map_err(raised)?;
        Ok(Self(message))
    }
}

#[pymethods]
impl Message {
    #[staticmethod]
    #[pyo3(signature = (topic, payload = None, *, matchtag = 0, flags = 0, nodeid = 0xFFFF_FFFF,
                        userid = 0xFFFF_FFFF, rolemask = 0))]
    /// Makes a client's request, with an empty route stack.
    ///
    /// Args:
    ///     topic: service and method, as in `job-manager.submit`.
    ///     payload: a dict, which goes out as JSON with a NUL, or bytes, which go out as they are.
    ///     matchtag: relates the response to the request; 0 if none is expected.
    ///     flags: flags beside those that announce the parts, such as `penstock.protocol.flux.STREAMING`.
    ///     nodeid: the rank that the request is for; 0xFFFFFFFF is any.
    ///     userid: the sender; the server overwrites it.
    ///     rolemask: the sender's roles (RFC 12); the server overwrites it.
    ///
    /// Raises:
    ///     WireError: the topic is empty or has a NUL, or the payload has no JSON form.
    ///     TypeError: the payload, or something within it, is nothing that JSON has.
    fn request(
        topic: &str,
        payload: Option<&Bound<'_, PyAny>>,
        matchtag: u32,
        flags: u8,
        nodeid: u32,
        userid: u32,
        rolemask: u32,
    ) -> PyResult<Self> {
        let mut message = wire::Message::request(topic, "")
            .with_matchtag(matchtag)
            .with_flags(flags);
        message.nodeid_errnum_seq = nodeid;
        message.userid = userid;
        message.rolemask = rolemask;
        message.set_payload(payload_bytes(payload)?);
        Self::checked(message)
    }

    /// Makes an event.
    ///
    /// Args:
    ///     topic: the topic, of which subscribers name prefixes.
    ///     payload: as for `request`.
    ///     sequence: the event's number.
    ///
    /// Raises:
    ///     WireError: as for `request`.
    ///     TypeError: as for `request`.
    #[staticmethod]
    #[pyo3(signature = (topic, payload = None, *, sequence = 0, private = false))]
    fn event(
        topic: &str,
        payload: Option<&Bound<'_, PyAny>>,
        sequence: u32,
        private: bool,
    ) -> PyResult<Self> {
        let mut message = wire::Message::event(topic, "", sequence);
        if private {
            let flags = message.flags | flags::PRIVATE;
            message = message.with_flags(flags);
        }
        message.set_payload(payload_bytes(payload)?);
        Self::checked(message)
    }

    /// Makes the response to this request: with its routes, its topic and its matchtag.
    ///
    /// Args:
    ///     payload: as for `request`.
    ///     errnum: the error number, as in the module `errno`; 0 for success.
    ///     errtext: what went wrong, in place of a payload; it needs an errnum.
    ///     streaming: whether it has the streaming flag; None is as the request has it.
    ///
    /// Raises:
    ///     ValueError: this is not a request, or `errtext` is given without `errnum` or with a payload.
    ///     WireError: as for `request`.
    ///     TypeError: as for `request`.
    #[pyo3(signature = (payload = None, *, errnum = 0, errtext = None, streaming = None))]
    fn respond(
        &self,
        payload: Option<&Bound<'_, PyAny>>,
        errnum: u32,
        errtext: Option<&str>,
        streaming: Option<bool>,
    ) -> PyResult<Self> {
        if self.0.kind != wire::MessageType::Request {
            let kind = self.0.kind.name();
            return Err(PyValueError::new_err(format!(
                "expected a request to respond to, found a message of kind {kind}"
            )));
        }
        if errtext.is_some() && (errnum == 0 || payload.is_some()) {
            return Err(PyValueError::new_err(
                "errtext needs an errnum and takes the place of a payload",
            ));
        }
        let mut message = match errtext {
            Some(text) => wire::Message::error_to(&self.0, errnum, text),
            None => wire::Message::response_to(&self.0, errnum, payload_bytes(payload)?),
        };
        if let Some(streaming) = streaming {
            let others = message.flags & !flags::STREAMING;
            message.flags = if streaming {
                others | flags::STREAMING
            } else {
                others
            };
        }
        Self::checked(message)
    }

    /// Reads exactly one frame; `Decoder` reads a stream of them.
    ///
    /// Raises:
    ///     WireError: these bytes are not one frame. The text and the attribute `offset` name the byte.
    #[staticmethod]
    fn decode(frame: PyBackedBytes) -> PyResult<Self> {
        wire::Message::decode(&frame).map(Self).map_err(raised)
    }

    /// Writes the frame. A message that was decoded gives the same bytes again.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = Vec::new();
        py.detach(|| self.0.encode(&mut bytes));
        PyBytes::new(py, &bytes)
    }

    /// Reads the payload, JSON or CBOR.
    ///
    /// Returns:
    ///     The Python object; None if there is no payload.
    ///
    /// Raises:
    ///     WireError: the payload is malformed, which the text of an error response always is (`error_text`). The
    ///         text names the byte.
    fn object<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(payload) = self.0.payload_json() else {
            return Ok(None);
        };
        if self.0.has_cbor() {
            let cbor = self.0.payload.as_deref().unwrap_or_default();
            let json = py.detach(|| wire::cbor_to_json(cbor)).map_err(raised)?;
            return json_object(py, &json).map(Some);
        }
        match std::str::from_utf8(payload) {
            Ok(text) => json_object(py, text).map(Some),
            Err(error) => Err(raised(wire::Error::from(error))),
        }
    }

    /// The JSON text of one value of the payload, which is neither parsed nor copied but for it.
    ///
    /// Args:
    ///     key: the value's key in the payload, which is an object.
    ///
    /// Returns:
    ///     The text as it was sent, such as a jobspec or R; None if the key is absent or its value is null.
    ///
    /// Raises:
    ///     WireError: the payload is malformed or not an object.
    fn document(&self, key: &str) -> PyResult<Option<String>> {
        let normalised = self.0.has_cbor().then(|| {
            let mut message = self.0.clone();
            message.normalise().map(|()| message)
        });
        let message = normalised.transpose().map_err(raised)?;
        let message = message.as_ref().unwrap_or(&self.0);
        let document = penstock_flux::document(message.payload_json(), key).map_err(raised)?;
        Ok(document.map(|document| document.as_str().to_owned()))
    }

    /// The kind: `request`, `response`, `event` or `control`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// The topic without NUL; None in a control message.
    #[getter]
    fn topic(&self) -> Option<&str> {
        self.0.topic.as_ref().map(|topic| topic.text.as_str())
    }

    /// The header's flags, as `penstock.protocol.message` names them.
    #[getter]
    fn flags(&self) -> u8 {
        self.0.flags
    }

    /// The sender; 0xFFFFFFFF if it is not known.
    #[getter]
    fn userid(&self) -> u32 {
        self.0.userid
    }

    /// The sender's roles (RFC 12).
    #[getter]
    fn rolemask(&self) -> u32 {
        self.0.rolemask
    }

    /// Whether the sender has the owner role.
    #[getter]
    fn has_owner_role(&self) -> bool {
        self.0.credentials().is_owner()
    }

    /// The rank that a request is for; 0xFFFFFFFF for any, and in other messages.
    #[getter]
    fn nodeid(&self) -> u32 {
        self.0.nodeid()
    }

    /// The error number of a response; 0 for success, and in other messages.
    #[getter]
    fn errnum(&self) -> u32 {
        self.0.errnum()
    }

    /// The number of an event; 0 in other messages.
    #[getter]
    fn sequence(&self) -> u32 {
        self.0.sequence()
    }

    /// Relates a response to its request.
    #[getter]
    fn matchtag(&self) -> u32 {
        self.0.matchtag
    }

    /// The route stack, the most recent hop first; None if the message has none, not even an empty one.
    #[getter]
    fn routes<'py>(&self, py: Python<'py>) -> Option<Vec<Bound<'py, PyBytes>>> {
        let routes = self.0.routes.as_ref()?;
        Some(routes.iter().map(|route| PyBytes::new(py, route)).collect())
    }

    /// The payload as it is on the wire, JSON with its NUL.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0
            .payload
            .as_deref()
            .map(|payload| PyBytes::new(py, payload))
    }

    /// The text of an error response, without NUL, or None.
    #[getter]
    fn error_text(&self) -> Option<String> {
        self.0.error_text().map(Into::into)
    }

    /// Whether the request wants many responses, or the response is one of many.
    #[getter]
    fn streaming(&self) -> bool {
        self.0.is_streaming()
    }

    /// Whether the request must never be answered, not even with an error.
    #[getter]
    fn noresponse(&self) -> bool {
        self.0.is_noresponse()
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr("decode")?, (self.encode(py),)))
    }

    fn __repr__(&self) -> String {
        let message = &self.0;
        let word = match message.kind {
            wire::MessageType::Response if message.errnum() != 0 => {
                format!(" errnum={}", message.errnum())
            }
            wire::MessageType::Event => format!(" sequence={}", message.sequence()),
            _ => String::new(),
        };
        let payload = message.payload.as_ref().map_or(0, |payload| payload.len());
        let (kind, topic, matchtag) = (message.kind.name(), message.topic(), message.matchtag);
        format!("<Message {kind} {topic:?} matchtag={matchtag}{word} payload={payload} bytes>")
    }
}
