use std::fmt;
use std::str::Utf8Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Category {
    /// A document that is not an R.
    Document,
    /// A rejected operation.
    Rejected,
    /// A requested host that is not in the set.
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
    /// Returns an error in a document at a JSON path.
    pub(crate) fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            category: Category::Document,
            path: path.into(),
            offset: None,
            message: message.into(),
        }
    }

    /// Returns the rejection of an operation.
    pub(crate) fn rejected(message: impl Into<String>) -> Self {
        Self {
            category: Category::Rejected,
            path: String::new(),
            offset: None,
            message: message.into(),
        }
    }

    /// Returns the error of a requested item that is not in the set.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self {
            category: Category::NotFound,
            ..Self::rejected(message)
        }
    }

    /// Adds the offset of the error, in bytes, within the string at the path.
    pub(crate) fn with_offset(mut self, offset: usize) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Turns the error of an operation into one of the document that is being read.
    pub(crate) fn into_reading(mut self, path: impl Into<String>) -> Self {
        self.category = Category::Document;
        self.path = path.into();
        self
    }

    /// The path of the error in the document, e.g. `execution.R_lite[0].children.core`; empty for the document as a
    /// whole and for operations.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The offset of the error within the string at [`Error::path`], in bytes; for idsets and hostlists.
    pub fn offset(&self) -> Option<usize> {
        self.offset
    }

    /// Whether requested hosts are not in the set.
    pub fn is_not_found(&self) -> bool {
        self.category == Category::NotFound
    }

    /// Whether the error is in a document, not of an operation.
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

/// A document that is not UTF-8.
impl From<Utf8Error> for Error {
    fn from(error: Utf8Error) -> Self {
        let offset = error.valid_up_to();
        Self::at("", format!("expected UTF-8 at byte {offset}")).with_offset(offset)
    }
}
