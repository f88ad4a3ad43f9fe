//! `Batch` and `Decoder`: many messages, and the stream that they come from.
#![expect(
    clippy::doc_markdown,
    reason = "what documents a class documents it to Python"
)]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use penstock_wire as wire;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PySlice};

use super::message::Message;
use crate::errors::{raised, with_attribute};
use crate::shared::position;

/// An ordered run of messages that stays in Rust.
///
/// It works as a list of `Message`s that only grows; a message is copied when it goes in or comes out.
#[pyclass(module = "penstock._core")]
#[derive(Clone, Default)]
pub(crate) struct Batch {
    pub(crate) messages: Vec<wire::Message>,
}

impl Batch {
    /// Works on a batch's messages without the GIL. They return to the batch afterwards, even if the work panics: the
    /// caller can then still answer the requests.
    pub(crate) fn lend<T: Send>(
        py: Python<'_>,
        batch: &Bound<'_, Batch>,
        work: impl FnOnce(&[wire::Message]) -> T + Send,
    ) -> T {
        let messages = std::mem::take(&mut batch.borrow_mut().messages);
        let result = py.detach(|| catch_unwind(AssertUnwindSafe(|| work(&messages))));
        batch.borrow_mut().messages = messages;
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

#[pymethods]
impl Batch {
    #[new]
    #[pyo3(signature = (messages = None))]
    fn new(messages: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let mut batch = Self::default();
        for message in messages
            .map(PyAnyMethods::try_iter)
            .transpose()?
            .into_iter()
            .flatten()
        {
            batch.append(message?.cast::<Message>()?);
        }
        Ok(batch)
    }

    /// Adds a message at the end.
    fn append(&mut self, message: &Bound<'_, Message>) {
        self.messages.push(message.get().0.clone());
    }

    /// Adds the messages of another batch at the end; the other one keeps them.
    fn extend(slf: &Bound<'_, Self>, batch: &Bound<'_, Self>) -> PyResult<()> {
        // A batch may extend itself, so it is copied before it is borrowed to be changed.
        let messages = batch.try_borrow()?.messages.clone();
        slf.try_borrow_mut()?.messages.extend(messages);
        Ok(())
    }

    /// Writes the frames of all messages, one after the other, with their payloads as they are.
    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        let messages = self.messages.iter();
        let valid = messages.filter(|message| message.check().is_ok());
        let len = valid.map(wire::Message::encoded_len).sum();
        // A response can have the ids of a million jobs: each message is copied once.
        PyByteArray::new_with(py, len, |mut out| {
            py.detach(|| {
                let mut messages = self.messages.iter();
                Ok(messages.try_for_each(|message| message.write_to(&mut out))?)
            })
        })
    }

    /// Writes the frames of all messages; payloads that are JSON objects go out as CBOR.
    ///
    /// Payloads without a CBOR form here, such as integers beyond 64 bits or malformed JSON, go out as they are: the first
    /// byte tells the reader what it is.
    fn encode_cbor<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        let mut bytes = Vec::new();
        py.detach(|| {
            for message in &self.messages {
                message.encode_as_cbor(&mut bytes);
            }
        });
        PyByteArray::new(py, &bytes)
    }

    /// Says whether any message has a payload in CBOR, which tells what its sender speaks.
    fn has_cbor(&self) -> bool {
        self.messages.iter().any(wire::Message::has_cbor)
    }

    /// Turns payloads in CBOR into JSON, in place, and returns error responses to the requests that have none.
    ///
    /// A payload that is malformed or has no JSON form concerns only its sender and who waits for it: a response is
    /// replaced by an error response (EPROTO, or its own error), and other messages are removed.
    fn normalise(&mut self, py: Python<'_>) -> Self {
        let messages = py.detach(|| wire::Message::normalise_all(&mut self.messages));
        Self { messages }
    }

    /// Error responses in place of the responses, one for each request; other messages are left out.
    fn errors_in_place(&self, errnum: u32, reason: &str) -> Self {
        let mut answered = BTreeSet::new();
        let responses = self.messages.iter();
        let responses = responses.filter(|message| message.kind == wire::MessageType::Response);
        let messages = responses
            .filter(|response| answered.insert((response.routes.clone(), response.matchtag)))
            .map(|response| {
                let text = format!("{}: {reason}", response.topic());
                wire::Message::error_to(response, errnum, &text)
            })
            .collect();
        Self { messages }
    }

    /// The size of the payloads. One that is written when it is sent does not count.
    #[getter]
    fn payload_bytes(&self) -> usize {
        let payloads = self
            .messages
            .iter()
            .filter_map(|message| message.payload.as_ref());
        payloads.map(wire::Body::written_len).sum()
    }

    fn __len__(&self) -> usize {
        self.messages.len()
    }

    fn __bool__(&self) -> bool {
        !self.messages.is_empty()
    }

    fn __iter__(slf: &Bound<'_, Self>) -> BatchIterator {
        BatchIterator {
            batch: slf.clone().unbind(),
            next: 0,
        }
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let len = self.messages.len();
        if let Ok(slice) = index.cast::<PySlice>() {
            let indices = slice.indices(isize::try_from(len)?)?;
            let (mut at, mut messages) = (indices.start, Vec::with_capacity(indices.slicelength));
            for _ in 0..indices.slicelength {
                messages.push(self.messages[at.unsigned_abs()].clone());
                at += indices.step;
            }
            return Ok(Bound::new(py, Self { messages })?.into_any());
        }
        let message = self.messages[position(index, len, "batch")?].clone();
        Ok(Bound::new(py, Message(message))?.into_any())
    }

    fn __repr__(&self) -> String {
        format!("<Batch of {} messages>", self.messages.len())
    }
}

/// Goes through a batch.
#[pyclass(module = "penstock._core")]
struct BatchIterator {
    batch: Py<Batch>,
    next: usize,
}

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Message>> {
        let batch = self.batch.bind(py).try_borrow()?;
        let message = batch.messages.get(self.next).cloned().map(Message);
        self.next += usize::from(message.is_some());
        Ok(message)
    }
}

/// Turns a stream of bytes, split anywhere, into messages (RFC 3, "Message Framing").
///
/// Args:
///     max_frame: the greatest length of a frame, in bytes, its first 8 not counted.
#[pyclass(module = "penstock._core")]
pub(crate) struct Decoder(wire::Decoder);

// The signature of `Decoder`, which Python shows, needs a literal.
const _: () = assert!(wire::DEFAULT_MAX_FRAME_BYTES == 67_108_864);

#[pymethods]
impl Decoder {
    #[new]
    #[pyo3(signature = (max_frame = 67_108_864))]
    fn new(max_frame: usize) -> Self {
        Self(wire::Decoder::new(max_frame))
    }

    /// Takes the next bytes of the stream. The cost is that of these bytes, however small the pieces.
    ///
    /// Returns:
    ///     The messages that they complete.
    ///
    /// Raises:
    ///     WireError: framing is lost. The text and the attribute `offset` name the byte of the frame, the attribute
    ///         `messages` is a Batch of the messages before that frame. The stream cannot be read any further: each
    ///         following call raises the same error.
    fn feed(&mut self, py: Python<'_>, data: PyBackedBytes) -> PyResult<Batch> {
        let mut messages = Vec::new();
        let fed = py.detach(|| self.0.feed(&data, &mut messages));
        let batch = Batch { messages };
        match fed {
            Ok(()) => Ok(batch),
            Err(error) => Err(with_attribute(py, raised(&error), "messages", batch)),
        }
    }

    /// Sets the length, in bytes, from which on the payloads of later frames are skipped as they arrive.
    fn set_message_limit(&mut self, size: usize) {
        self.0.set_message_limit(size);
    }

    /// Takes the messages whose payloads were skipped, without these, so that requests can be answered.
    fn take_oversized(&mut self) -> Batch {
        let messages = self.0.take_oversized();
        Batch { messages }
    }

    /// The number of bytes held of a frame whose end has not come.
    #[getter]
    fn pending(&self) -> usize {
        self.0.pending()
    }
}
