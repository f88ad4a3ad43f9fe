//! Errors in what the scheduler receives.

use std::fmt;
use std::string::FromUtf8Error;

use penstock_flux::{RequestError, errno};
use penstock_wire::Message;

/// A message that cannot be used, and the part of it that is at fault.
#[derive(Debug)]
pub(crate) enum Error {
    /// A key of the payload is missing or invalid.
    Payload(penstock_flux::Error),
    /// An error response, or a malformed one, in words.
    Response(String),
    /// A response of this kind comes before the inventory.
    BeforeInventory(&'static str),
    Resources(penstock_rset::Error),
    Jobspec(penstock_jobspec::Error),
    Ranks(penstock_idset::Error),
    NotBase64(base64::DecodeError),
    NotText(FromUtf8Error),
    /// The engine rejects it.
    Engine(penstock_engine::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload(error) => error.fmt(f),
            Self::Response(text) => f.write_str(text),
            Self::BeforeInventory(response) => write!(f, "{response} before the inventory"),
            Self::Resources(error) => error.fmt(f),
            Self::Jobspec(error) => error.fmt(f),
            Self::Ranks(error) => error.fmt(f),
            Self::NotBase64(error) => write!(f, "R is not base64: {error}"),
            Self::NotText(error) => write!(f, "R is not text: {error}"),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<penstock_flux::Error> for Error {
    fn from(error: penstock_flux::Error) -> Self {
        Self::Payload(error)
    }
}

impl From<penstock_rset::Error> for Error {
    fn from(error: penstock_rset::Error) -> Self {
        Self::Resources(error)
    }
}

impl From<penstock_jobspec::Error> for Error {
    fn from(error: penstock_jobspec::Error) -> Self {
        Self::Jobspec(error)
    }
}

impl From<penstock_idset::Error> for Error {
    fn from(error: penstock_idset::Error) -> Self {
        Self::Ranks(error)
    }
}

impl From<base64::DecodeError> for Error {
    fn from(error: base64::DecodeError) -> Self {
        Self::NotBase64(error)
    }
}

impl From<FromUtf8Error> for Error {
    fn from(error: FromUtf8Error) -> Self {
        Self::NotText(error)
    }
}

impl From<penstock_engine::Error> for Error {
    fn from(error: penstock_engine::Error) -> Self {
        Self::Engine(error)
    }
}

/// EINVAL: the request is well-formed, and the engine or a document's reader rejects what it asks for.
impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self::invalid(error.to_string())
    }
}

/// An error response in words.
pub(crate) fn failure_text(response: &Message) -> String {
    errno::failure(
        response.topic(),
        response.errnum(),
        response.error_text().as_deref(),
    )
}
