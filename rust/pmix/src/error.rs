use std::fmt;

/// The reason why a payload or one of its attributes is rejected: the key, what was expected, what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Syntax,
    Value,
    Library,
}

impl Error {
    pub(crate) fn value(text: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Value,
            text: text.into(),
        }
    }

    /// Makes the error of a call of libpmix.
    pub fn library(text: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Library,
            text: text.into(),
        }
    }

    /// Makes the error of an attribute that has no form in libpmix.
    pub fn attribute(key: &str, text: &str) -> Self {
        Self::value(text).at(key)
    }

    /// The same error of a value at this key.
    pub(crate) fn at(&self, key: &str) -> Self {
        Self {
            text: format!("`{key}`: {}", self.text),
            ..self.clone()
        }
    }

    /// Whether the payload is not JSON.
    pub fn is_syntax(&self) -> bool {
        self.kind == ErrorKind::Syntax
    }

    /// Whether a value is missing, of the wrong type, or contradicts another one.
    pub fn is_value(&self) -> bool {
        self.kind == ErrorKind::Value
    }
}

impl From<penstock_flux::Error> for Error {
    fn from(error: penstock_flux::Error) -> Self {
        Self {
            kind: if error.is_syntax() {
                ErrorKind::Syntax
            } else {
                ErrorKind::Value
            },
            text: error.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
