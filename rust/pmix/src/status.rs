//! Status codes of PMIx (`pmix_common.h`), and the mapping from error numbers.

use penstock_flux::errno;

/// Success.
pub const SUCCESS: i32 = 0;
/// An error without a code of its own.
pub const ERROR: i32 = -1;
/// The caller has no permission.
pub const NO_PERMISSIONS: i32 = -23;
/// The caller's timeout has expired.
pub const TIMEOUT: i32 = -24;
/// The instance is no longer connected.
pub const UNREACHABLE: i32 = -25;
/// The request is malformed.
pub const BAD_PARAM: i32 = -27;
/// The resources do not exist or are not free.
pub const OUT_OF_RESOURCE: i32 = -29;
/// Unknown request.
pub const NOT_FOUND: i32 = -46;
/// The instance does not support the request.
pub const NOT_SUPPORTED: i32 = -47;
/// Some of several queries were answered.
pub const QUERY_PARTIAL_SUCCESS: i32 = -104;
/// The code of the event that a request has ended.
pub const NOTIFY_ALLOC_COMPLETE: i32 = -105;

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
