//! Error numbers of responses (RFC 6): those of Linux, which Flux puts on the wire.
//!
//! ```
//! use penstock_flux::errno;
//!
//! assert_eq!(errno::name(errno::ENOSYS), Some("ENOSYS"));
//! assert_eq!(errno::strerror(errno::ENOSYS), "Function not implemented");
//! assert_eq!(errno::strerror(4096), "Unknown error");
//! assert_eq!(
//!     errno::failure("service.add", errno::EEXIST, Some("it is taken")),
//!     "service.add failed: File exists: it is taken",
//! );
//! assert_eq!(errno::failure("service.add", 4096, None), "service.add failed: Unknown error 4096");
//! ```

/// Declares the numbers, and the table that [`name`] and [`strerror`] search.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        $($(#[$doc])* pub const $name: u32 = $number;)*

        /// Every number of this module: name, number, text.
        pub const ALL: &[(&str, u32, &str)] = &[$((stringify!($name), $number, $text)),*];
    };
}

numbers! {
    /// The sender lacks the role or the ownership that the request needs.
    EPERM = 1, "Operation not permitted";
    /// Unknown job, key, queue, attribute or subscription.
    ENOENT = 2, "No such file or directory";
    /// The service has failed, e.g. its store.
    EIO = 5, "Input/output error";
    /// No job is left to wait for.
    ECHILD = 10, "No child processes";
    /// The service cannot answer yet.
    EAGAIN = 11, "Resource temporarily unavailable";
    /// Memory is exhausted.
    ENOMEM = 12, "Cannot allocate memory";
    /// The sender has no permission for the object.
    EACCES = 13, "Permission denied";
    /// Another peer has this role already.
    EBUSY = 16, "Device or resource busy";
    /// The service name is taken.
    EEXIST = 17, "File exists";
    /// The key names a value where a directory is expected.
    ENOTDIR = 20, "Not a directory";
    /// The key names a directory where a value is expected.
    EISDIR = 21, "Is a directory";
    /// The request is well-formed but its content is invalid.
    EINVAL = 22, "Invalid argument";
    /// The response would be too long.
    EFBIG = 27, "File too large";
    /// A limit on outstanding requests is reached.
    ENOSPC = 28, "No space left on device";
    /// The written data has no reader.
    EPIPE = 32, "Broken pipe";
    /// Unknown service or method.
    ENOSYS = 38, "Function not implemented";
    /// The regular end of a stream.
    ENODATA = 61, "No data available";
    /// The request breaks its protocol: malformed payload, missing flag, wrong order.
    EPROTO = 71, "Protocol error";
    /// The payload is too large, or a value exceeds its range.
    EOVERFLOW = 75, "Value too large for defined data type";
    /// The message is longer than the receiver reads.
    EMSGSIZE = 90, "Message too long";
    /// The service does not support the operation.
    EOPNOTSUPP = 95, "Operation not supported";
    /// The network of the peer is down.
    ENETUNREACH = 101, "Network is unreachable";
    /// The connection broke before the response came.
    ECONNRESET = 104, "Connection reset by peer";
    /// The peer no longer sends.
    ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    /// The response did not arrive within the requester's timeout.
    ETIMEDOUT = 110, "Connection timed out";
    /// The peer accepts no connection.
    ECONNREFUSED = 111, "Connection refused";
    /// The peer has disconnected.
    EHOSTUNREACH = 113, "No route to host";
    /// The request was made before.
    EALREADY = 114, "Operation already in progress";
    /// The files of the store were removed, replaced or truncated.
    ESTALE = 116, "Stale file handle";
    /// The user has as much in the store as the configuration permits.
    EDQUOT = 122, "Disk quota exceeded";
    /// The request was cancelled by its sender.
    ECANCELED = 125, "Operation canceled";
}

fn find(number: u32) -> Option<&'static (&'static str, u32, &'static str)> {
    ALL.iter().find(|(_, known, _)| *known == number)
}

/// The symbolic name of a number, e.g. `ENOENT`; `None` for a number that this module does not list.
pub fn name(number: u32) -> Option<&'static str> {
    find(number).map(|(name, _, _)| *name)
}

/// An error response in the words of a log or message: the topic, the text of the number, and that of the response.
pub fn failure(topic: &str, number: u32, text: Option<&str>) -> String {
    let failure = match find(number) {
        Some((_, _, known)) => format!("{topic} failed: {known}"),
        None => format!("{topic} failed: Unknown error {number}"),
    };
    match text.filter(|text| !text.is_empty()) {
        Some(text) => format!("{failure}: {text}"),
        None => failure,
    }
}

/// The text that the C library has for a number; `Unknown error` for one that this module does not list.
pub fn strerror(number: u32) -> &'static str {
    find(number).map_or("Unknown error", |(_, _, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_ascending() {
        assert!(ALL.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }

    #[test]
    fn names_and_texts_are_found_by_number() {
        assert_eq!(
            (name(1), strerror(1)),
            (Some("EPERM"), "Operation not permitted")
        );
        assert_eq!(
            (name(125), strerror(125)),
            (Some("ECANCELED"), "Operation canceled")
        );
        assert_eq!((name(0), strerror(0)), (None, "Unknown error"));
    }
}
