use std::fmt;

/// Why the database could not do what was asked: the action and `SQLite`'s own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(what: &str, source: &rusqlite::Error) -> Self {
        Self(format!("store: {what}: {source}"))
    }

    pub(crate) fn text(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
