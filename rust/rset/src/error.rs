use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A document that was read is no R.
    Document,
    /// An operation was refused.
    Refused,
    /// A host that was asked for is not in the set.
    NotFound,
}

/// Why something is not an R, or why an operation on one is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    path: String,
    offset: Option<usize>,
    message: String,
}

impl Error {
    /// An error in a document, at the JSON path given.
    pub(crate) fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: Kind::Document,
            path: path.into(),
            offset: None,
            message: message.into(),
        }
    }

    /// An operation that is refused.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self {
            kind: Kind::Refused,
            path: String::new(),
            offset: None,
            message: message.into(),
        }
    }

    /// Something that was asked for is not there.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self {
            kind: Kind::NotFound,
            ..Self::refused(message)
        }
    }

    /// The same error, with the byte in the string at the path where it lies.
    pub(crate) fn with_offset(mut self, offset: usize) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The same error, in a document where it came up while one was read.
    pub(crate) fn into_reading(mut self, path: impl Into<String>) -> Self {
        self.kind = Kind::Document;
        self.path = path.into();
        self
    }

    /// Where in the document, e.g. `execution.R_lite[0].children.core`; empty for the document as a whole and for
    /// operations.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The byte within the string at [`Error::path`] where it is wrong, for idsets and hostlists.
    pub fn offset(&self) -> Option<usize> {
        self.offset
    }

    /// Whether hosts that were asked for are not in the set.
    pub fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    /// Whether a document was at fault, rather than an operation.
    pub fn is_document(&self) -> bool {
        self.kind == Kind::Document
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_document() {
            formatter.write_str("invalid R: ")?;
        }
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
