use std::fmt;

/// The reason why an attribute, a list or a time cannot be read: what was expected, and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Attribute,
    List,
    Time,
}

impl Error {
    pub(crate) fn attribute(text: impl Into<String>) -> Self {
        Self {
            kind: Kind::Attribute,
            text: text.into(),
        }
    }

    pub(crate) fn list(text: impl Into<String>) -> Self {
        Self {
            kind: Kind::List,
            text: text.into(),
        }
    }

    pub(crate) fn time(text: impl Into<String>) -> Self {
        Self {
            kind: Kind::Time,
            text: text.into(),
        }
    }

    /// Whether the JSON form of an attribute is malformed.
    pub fn is_attribute(&self) -> bool {
        self.kind == Kind::Attribute
    }

    /// Whether a list of nodes, cpus or numbers is malformed.
    pub fn is_list(&self) -> bool {
        self.kind == Kind::List
    }

    /// Whether a time is malformed or too long.
    pub fn is_time(&self) -> bool {
        self.kind == Kind::Time
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
