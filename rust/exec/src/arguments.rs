//! Errors in the command lines of the programs.

use std::fmt;

/// An invalid command line, or a directory that a default needs and that does not exist: a text for people.
#[derive(Debug)]
pub(crate) struct UsageError(String);

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
