use std::fmt;

/// The reason why an attribute, a list or a time cannot be read: what was expected, and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Attribute,
    List,
    Time,
}

impl Error {
    pub(crate) fn attribute(text: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Attribute,
            text: text.into(),
        }
    }

    pub(crate) fn list(text: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::List,
            text: text.into(),
        }
    }

    pub(crate) fn time(text: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Time,
            text: text.into(),
        }
    }

    /// Whether the JSON form of an attribute is malformed.
    pub fn is_attribute(&self) -> bool {
        self.kind == ErrorKind::Attribute
    }

    /// Whether a list of nodes, cpus or numbers is malformed.
    pub fn is_list(&self) -> bool {
        self.kind == ErrorKind::List
    }

    /// Whether a time is malformed or too long.
    pub fn is_time(&self) -> bool {
        self.kind == ErrorKind::Time
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
