//! Status codes of PMIx, and the mapping from error numbers.

use penstock_flux::errno;

pub use penstock_flux::pmix_status::*;

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
