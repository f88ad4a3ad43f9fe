use std::fmt;
use std::io;

/// The error of a reaper or a service that cannot start, of its directory, or of malformed bytes.
#[derive(Debug)]
pub struct Error {
    text: String,
    kind: ErrorKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorKind {
    NoInstance,
    Format,
    System,
}

impl Error {
    /// No instance listens at an address, or it rejects this user.
    pub(crate) fn no_instance(text: String) -> Self {
        let kind = ErrorKind::NoInstance;
        Self { text, kind }
    }

    /// An error of bytes that are not a frame of the protocol, or not a log.
    pub(crate) fn format(text: String) -> Self {
        let kind = ErrorKind::Format;
        Self { text, kind }
    }

    /// An error of a failed action, with the system's error.
    pub(crate) fn system(action: &str, source: &io::Error) -> Self {
        Self {
            text: format!("{action}: {source}"),
            kind: ErrorKind::System,
        }
    }

    /// An error of a directory that is unsuitable or in use, with the reason.
    pub(crate) fn directory(text: String) -> Self {
        let kind = ErrorKind::System;
        Self { text, kind }
    }

    /// Whether no instance listens at the address of a service, or rejects its user.
    pub fn is_no_instance(&self) -> bool {
        self.kind == ErrorKind::NoInstance
    }

    /// Whether bytes violate the format of the protocol or of the log.
    pub fn is_format(&self) -> bool {
        self.kind == ErrorKind::Format
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
