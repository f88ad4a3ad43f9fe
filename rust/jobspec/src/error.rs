use std::fmt;

/// The error of an invalid input: the kind of input, the path within it, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    what: &'static str,
    path: String,
    detail: String,
}

impl Error {
    pub(crate) fn new(what: &'static str, path: &str, detail: impl Into<String>) -> Self {
        Self {
            what,
            path: path.to_owned(),
            detail: detail.into(),
        }
    }

    /// The path in the document, e.g. `resources[0].count`; empty for the document as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The expectation, without the path.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {}: ", self.what)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Error {}
