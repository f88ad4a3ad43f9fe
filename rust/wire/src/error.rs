use std::fmt;
use std::str::Utf8Error;

/// The input that was read or checked when an [`Error`] occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Frame,
    Message,
    Cbor,
    Json,
}

/// The error of a malformed frame, or of a payload that is not JSON or CBOR: the offset, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    subject: Subject,
    offset: usize,
    detail: String,
}

impl Error {
    /// An error at byte `offset` of the subject; `detail` is the whole sentence.
    pub(crate) fn new(subject: Subject, offset: usize, detail: String) -> Self {
        Self {
            subject,
            offset,
            detail,
        }
    }

    /// The byte at which reading failed, counted from the start of the frame (its magic is bytes 0 to 3) or of
    /// the payload. 0 for a message that cannot be written.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether framing was lost: nothing after this frame can be read.
    pub fn is_frame(&self) -> bool {
        self.subject == Subject::Frame
    }

    /// Whether a payload is malformed, not its frame: other messages of the stream can still be read.
    pub fn is_payload(&self) -> bool {
        matches!(self.subject, Subject::Cbor | Subject::Json)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = match self.subject {
            Subject::Frame => "frame",
            Subject::Message => "message",
            Subject::Cbor => "CBOR",
            Subject::Json => "JSON",
        };
        write!(formatter, "invalid {subject}: {}", self.detail)
    }
}

impl std::error::Error for Error {}

/// A payload of JSON that is not UTF-8.
impl From<Utf8Error> for Error {
    fn from(error: Utf8Error) -> Self {
        let offset = error.valid_up_to();
        Self::new(
            Subject::Json,
            offset,
            format!("expected UTF-8 at byte {offset}"),
        )
    }
}
