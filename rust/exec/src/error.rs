use std::fmt;
use std::io;
use std::path::Path;

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
    OtherOwner,
    OtherVersion,
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

    /// An error of a file, or of a running program, of another version of Penstock.
    pub(crate) fn other_version(text: String) -> Self {
        let kind = ErrorKind::OtherVersion;
        Self { text, kind }
    }

    /// A directory of output has that of another service.
    pub(crate) fn other_owner(text: String) -> Self {
        let kind = ErrorKind::OtherOwner;
        Self { text, kind }
    }

    /// The same error, with the name of the file in which it was found.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        let text = format!("`{}`: {}", path.display(), self.text);
        Self { text, ..self }
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

    /// Whether a directory of output has that of another service.
    pub fn is_other_owner(&self) -> bool {
        self.kind == ErrorKind::OtherOwner
    }

    /// Whether a file, or a running program, is of another version of Penstock.
    pub fn is_other_version(&self) -> bool {
        self.kind == ErrorKind::OtherVersion
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

/// The human-readable text of a fatal exception: why a job cannot start, or cannot continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note(String);

impl From<String> for Note {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Note {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<Note> for String {
    fn from(note: Note) -> Self {
        note.0
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An invalid command line, or a directory that a default needs and that does not exist: a text for people.
#[derive(Debug)]
pub struct UsageError(String);

impl From<String> for UsageError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for UsageError {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
