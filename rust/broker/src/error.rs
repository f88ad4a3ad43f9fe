use std::fmt;

use penstock_flux::errno;

/// Why a service cannot be registered or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationError(ErrorKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Taken,
    InvalidName,
    Unknown,
}

impl RegistrationError {
    pub(crate) const TAKEN: Self = Self(ErrorKind::Taken);
    pub(crate) const INVALID_NAME: Self = Self(ErrorKind::InvalidName);
    pub(crate) const UNKNOWN: Self = Self(ErrorKind::Unknown);

    /// Whether the name is registered by a peer already.
    pub const fn is_taken(self) -> bool {
        matches!(self.0, ErrorKind::Taken)
    }

    /// Whether the name is empty, or has a character other than ASCII letters, digits, `-` and `_`.
    pub const fn is_invalid_name(self) -> bool {
        matches!(self.0, ErrorKind::InvalidName)
    }

    /// Whether the peer is unknown, or has not registered this service.
    pub const fn is_unknown(self) -> bool {
        matches!(self.0, ErrorKind::Unknown)
    }

    /// The error number of the response.
    pub const fn errnum(self) -> u32 {
        match self.0 {
            ErrorKind::Taken => errno::EEXIST,
            ErrorKind::InvalidName => errno::EINVAL,
            ErrorKind::Unknown => errno::ENOENT,
        }
    }
}

impl fmt::Display for RegistrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ErrorKind::Taken => "the service name is taken",
            ErrorKind::InvalidName => "invalid service name: expected letters, digits, - or _",
            ErrorKind::Unknown => "the peer has no service of this name",
        })
    }
}

impl std::error::Error for RegistrationError {}
