//! Why a manager cannot be opened.

use std::fmt;

/// An error of [`Manager::open`](crate::Manager::open).
#[derive(Debug)]
pub struct Error(ErrorKind);

#[derive(Debug)]
enum ErrorKind {
    Store(penstock_store::Error),
    Corrupt {
        key: &'static str,
        text: String,
        expected: String,
    },
}

impl Error {
    pub(crate) fn corrupt(key: &'static str, text: &str, expected: impl fmt::Display) -> Self {
        Self(ErrorKind::Corrupt {
            key,
            text: text.to_owned(),
            expected: expected.to_string(),
        })
    }

    /// The error of the store, if that failed.
    pub fn store(&self) -> Option<&penstock_store::Error> {
        match &self.0 {
            ErrorKind::Store(error) => Some(error),
            ErrorKind::Corrupt { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ErrorKind::Store(error) => error.fmt(out),
            ErrorKind::Corrupt {
                key,
                text,
                expected,
            } => write!(out, "store: invalid {key} `{text}`: expected {expected}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            ErrorKind::Store(error) => Some(error),
            ErrorKind::Corrupt { .. } => None,
        }
    }
}

impl From<penstock_store::Error> for Error {
    fn from(error: penstock_store::Error) -> Self {
        Self(ErrorKind::Store(error))
    }
}
