use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Category {
    /// A document that was read is no R.
    Document,
    /// An operation was rejected.
    Rejected,
    /// A requested host is not in the set.
    NotFound,
}

/// The rejection of a document that is not an R, or of an operation on one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    category: Category,
    path: String,
    offset: Option<usize>,
    message: String,
}

impl Error {
    /// An error in a document, at the JSON path given.
    pub(crate) fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            category: Category::Document,
            path: path.into(),
            offset: None,
            message: message.into(),
        }
    }

    /// The rejection of an operation.
    pub(crate) fn rejected(message: impl Into<String>) -> Self {
        Self {
            category: Category::Rejected,
            path: String::new(),
            offset: None,
            message: message.into(),
        }
    }

    /// The absence of a requested item.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self {
            category: Category::NotFound,
            ..Self::rejected(message)
        }
    }

    /// The same error, with the byte in the string at the path where it lies.
    pub(crate) fn with_offset(mut self, offset: usize) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The same error, in a document where it came up while one was read.
    pub(crate) fn into_reading(mut self, path: impl Into<String>) -> Self {
        self.category = Category::Document;
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

    /// Whether requested hosts are not in the set.
    pub fn is_not_found(&self) -> bool {
        self.category == Category::NotFound
    }

    /// Whether a document was at fault, rather than an operation.
    pub fn is_document(&self) -> bool {
        self.category == Category::Document
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
