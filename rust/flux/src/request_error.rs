use std::fmt;

use crate::{Error, errno};

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

    /// EINVAL: a well-formed request asks for something invalid.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(errno::EINVAL, text)
    }

    /// EPROTO: the request breaks its protocol.
    pub fn protocol(text: impl Into<String>) -> Self {
        Self::new(errno::EPROTO, text)
    }

    /// EPROTO: the payload of a request is malformed. The text names topic and key.
    pub fn malformed(topic: &str, error: &Error) -> Self {
        Self::protocol(format!("{topic}: {error}"))
    }

    /// EPROTO: a request that gets a stream of responses does not say so (RFC 6).
    pub fn not_streaming(topic: &str) -> Self {
        Self::protocol(format!("{topic} is a streaming request"))
    }

    /// EPERM: the sender may not do this.
    pub fn not_permitted(text: impl Into<String>) -> Self {
        Self::new(errno::EPERM, text)
    }

    /// ENOENT: an unknown job, key or queue.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(errno::ENOENT, text)
    }

    /// ENOSYS: an unknown method.
    pub fn unknown_method(topic: &str) -> Self {
        Self::new(errno::ENOSYS, format!("unknown method `{topic}`"))
    }

    /// ENODATA: the regular end of a stream (RFC 6).
    pub fn end_of_stream() -> Self {
        Self::new(errno::ENODATA, "")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_text_shows_that_of_its_number() {
        assert_eq!(RequestError::invalid("no").to_string(), "no");
        assert_eq!(
            RequestError::end_of_stream().to_string(),
            "No data available"
        );
        let unknown = RequestError::unknown_method("sched.x");
        assert_eq!(
            (unknown.errnum, unknown.text.as_str()),
            (errno::ENOSYS, "unknown method `sched.x`")
        );
    }
}
