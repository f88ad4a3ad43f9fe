//! Status codes of PMIx (`pmix_common.h`), and the mapping from error numbers.

use crate::errno;

/// Declares the codes, and the table of them.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        $($(#[$doc])* pub const $name: i32 = $code;)*

        /// Every code with its name.
        pub const ALL: &[(&str, i32)] = &[$((stringify!($name), $code)),*];
    };
}

codes! {
    /// Success.
    SUCCESS = 0;
    /// Not a code of PMIx: the request is pending. Only in a response that is not the last one.
    QUEUED = 1;
    /// An error without a code of its own.
    ERROR = -1;
    /// The caller has no permission.
    NO_PERMISSIONS = -23;
    /// The caller's timeout has expired.
    TIMEOUT = -24;
    /// The instance cannot be reached.
    UNREACHABLE = -25;
    /// The request is malformed.
    BAD_PARAM = -27;
    /// The resources do not exist or are not free.
    OUT_OF_RESOURCE = -29;
    /// Unknown request.
    NOT_FOUND = -46;
    /// The instance does not support the request.
    NOT_SUPPORTED = -47;
    /// The instance has gone before it has responded: the request may have been carried out.
    LOST_CONNECTION = -61;
    /// Some of several queries were answered.
    QUERY_PARTIAL_SUCCESS = -104;
    /// The code of the event that a request has ended.
    NOTIFY_ALLOC_COMPLETE = -105;
    /// The request was cancelled.
    CANCELED = -180;
}

/// The status code for the error number of a response; success for 0.
pub fn of_errnum(errnum: u32) -> i32 {
    match errnum {
        0 => SUCCESS,
        errno::EPERM | errno::EACCES => NO_PERMISSIONS,
        errno::ENOENT => NOT_FOUND,
        errno::ENOMEM | errno::ENOSPC => OUT_OF_RESOURCE,
        errno::EINVAL | errno::EPROTO | errno::EOVERFLOW => BAD_PARAM,
        errno::ENOSYS | errno::EOPNOTSUPP => NOT_SUPPORTED,
        errno::ENETUNREACH
        | errno::ECONNRESET
        | errno::ESHUTDOWN
        | errno::ECONNREFUSED
        | errno::EHOSTUNREACH => UNREACHABLE,
        errno::ETIMEDOUT => TIMEOUT,
        _ => ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_without_the_service_does_not_support_requests() {
        assert_eq!(of_errnum(errno::ENOSYS), NOT_SUPPORTED);
        assert_eq!(of_errnum(0), SUCCESS);
        assert_eq!(of_errnum(u32::MAX), ERROR);
    }
}
