//! The status codes of PMIx that are used here (`pmix_common.h`), and those that stand for an error number.

/// Done.
pub const SUCCESS: i32 = 0;
/// Nothing that has a code of its own.
pub const ERROR: i32 = -1;
/// The caller must not do that.
pub const NO_PERMISSIONS: i32 = -23;
/// The time to wait is over.
pub const TIMEOUT: i32 = -24;
/// The instance is gone.
pub const UNREACHABLE: i32 = -25;
/// The request is malformed.
pub const BAD_PARAM: i32 = -27;
/// The resources are not there.
pub const OUT_OF_RESOURCE: i32 = -29;
/// There is no such request.
pub const NOT_FOUND: i32 = -46;
/// The instance does not do that.
pub const NOT_SUPPORTED: i32 = -47;
/// Some of several queries were answered.
pub const QUERY_PARTIAL_SUCCESS: i32 = -104;
/// The code of the event that tells of a request's end.
pub const NOTIFY_ALLOC_COMPLETE: i32 = -105;

/// The code for the error number of a response (errno of Linux), 0 for 0.
pub fn of_errnum(errnum: u32) -> i32 {
    match errnum {
        0 => SUCCESS,
        // EPERM, EACCES
        1 | 13 => NO_PERMISSIONS,
        // ENOENT
        2 => NOT_FOUND,
        // ENOMEM, ENOSPC
        12 | 28 => OUT_OF_RESOURCE,
        // EINVAL, EPROTO, EOVERFLOW
        22 | 71 | 75 => BAD_PARAM,
        // ENOSYS, EOPNOTSUPP
        38 | 95 => NOT_SUPPORTED,
        // ENETUNREACH, ECONNRESET, ESHUTDOWN, ECONNREFUSED, EHOSTUNREACH
        101 | 104 | 108 | 111 | 113 => UNREACHABLE,
        // ETIMEDOUT
        110 => TIMEOUT,
        _ => ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_without_the_service_does_not_support_requests() {
        assert_eq!(of_errnum(38), NOT_SUPPORTED);
        assert_eq!(of_errnum(0), SUCCESS);
        assert_eq!(of_errnum(u32::MAX), ERROR);
    }
}
