//! The note of a job's exception.

use std::fmt;

/// The human-readable text of a fatal exception: why a job cannot start, or cannot continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note(String);

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
