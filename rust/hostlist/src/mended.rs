//! What lenient reading puts right.
use std::fmt;

/// Something in a text that is not RFC 29 and that [`crate::Hostlist::parse_lenient`] put right.
///
/// Its text says what and where: `left out blanks at byte 4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    /// Byte of the text at which it is.
    pub offset: usize,
    /// What was done.
    pub what: &'static str,
}

impl fmt::Display for Mended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.offset)
    }
}
