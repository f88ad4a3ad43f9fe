use std::fmt;

/// The reason why the inventory or the state of a target cannot be changed as requested.
///
/// The text names everything that is wrong, not the first thing alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Syntax,
    Unknown,
    Conflict,
    Resources,
    Event,
    Store,
}

impl Error {
    fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }

    pub(crate) fn syntax(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Syntax, text)
    }

    pub(crate) fn unknown(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unknown, text)
    }

    pub(crate) fn conflict(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, text)
    }

    pub(crate) fn event(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Event, text)
    }

    /// Makes the error of a store that cannot be read or written.
    pub fn store(reason: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Store, reason.to_string())
    }

    /// Whether a text is neither an idset nor a hostlist, or names no target at all.
    pub fn is_syntax(&self) -> bool {
        self.kind == ErrorKind::Syntax
    }

    /// Whether ranks or hosts are named that the inventory does not have.
    pub fn is_unknown_target(&self) -> bool {
        self.kind == ErrorKind::Unknown
    }

    /// Whether targets cannot be added: they exist already, were removed for good, or jobs cannot be run there.
    pub fn is_conflict(&self) -> bool {
        self.kind == ErrorKind::Conflict
    }

    /// Whether a resource set cannot be changed as requested: an invalid property name, two hosts of one rank.
    pub fn is_resource_set(&self) -> bool {
        self.kind == ErrorKind::Resources
    }

    /// Whether a stored event cannot be read.
    pub fn is_event(&self) -> bool {
        self.kind == ErrorKind::Event
    }

    /// Whether the store cannot be read or written.
    pub fn is_store(&self) -> bool {
        self.kind == ErrorKind::Store
    }
}

impl From<penstock_rset::Error> for Error {
    fn from(error: penstock_rset::Error) -> Self {
        Self::new(ErrorKind::Resources, error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
