use std::fmt;

use crate::errno;

/// Why a request is rejected: error number and text of its error response (RFC 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// The error number.
    pub errnum: u32,
    /// For people; may be empty.
    pub text: String,
}

impl RequestError {
    /// An error with its text.
    pub fn new(errnum: u32, text: impl Into<String>) -> Self {
        Self {
            errnum,
            text: text.into(),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() {
            f.write_str(errno::strerror(self.errnum))
        } else {
            f.write_str(&self.text)
        }
    }
}

impl std::error::Error for RequestError {}
