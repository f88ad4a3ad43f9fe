//! The error type of this crate: the input, the byte at which reading failed, and what was expected there.
use std::fmt;

/// Bytes of the input shown on either side of a fault when the whole is too long to show.
const CONTEXT_BYTES: usize = 24;
/// Inputs up to this many bytes are shown whole.
const MAX_WHOLE_BYTES: usize = 64;

/// The greatest number of hosts in a list.
pub(crate) const MAX_LEN: usize = u32::MAX as usize;

/// The greatest number of hosts in ranges whose suffix has digits: these are compared one by one.
pub(crate) const MAX_SUFFIXED_HOSTS: usize = 1 << 20;

/// The greatest number of ranges into which the names with several brackets in one text may expand.
pub(crate) const MAX_PRODUCT_RANGES: u64 = 1 << 20;

/// The rejection of a string or a list.
///
/// Its text names the input, the fault and the byte: `invalid hostlist "foo[1-]": expected a number at byte 6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
    offset: Option<usize>,
}

impl Error {
    /// Returns an error in the text of a list.
    pub(crate) fn list(input: &str, offset: usize, reason: impl fmt::Display) -> Self {
        Self::at("hostlist", input, offset, reason)
    }

    /// Returns an error in a single name.
    pub(crate) fn name(input: &str, offset: usize, reason: impl fmt::Display) -> Self {
        Self::at("host name", input, offset, reason)
    }

    fn at(what: &str, input: &str, offset: usize, reason: impl fmt::Display) -> Self {
        Self {
            text: format!(
                "invalid {what} {}: {reason} at byte {offset}",
                quote(input, offset)
            ),
            offset: Some(offset),
        }
    }

    /// Returns the error of a list that would be too long.
    pub(crate) fn limit(limit: Limit) -> Self {
        Self {
            text: format!("hostlist too long: {limit}"),
            offset: None,
        }
    }

    /// The byte of the input at which the error is; 0 if there is no text.
    pub fn offset(&self) -> usize {
        self.offset.unwrap_or(0)
    }

    /// Whether a text was rejected, rather than an id or a length.
    pub fn is_in_text(&self) -> bool {
        self.offset.is_some()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// A limit on the length of a list; see [`crate::Hostlist`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Hosts,
    Suffixed,
    Product,
    Sorted,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosts => write!(f, "expected at most {MAX_LEN} hosts"),
            Self::Suffixed => write!(
                f,
                "expected at most {MAX_SUFFIXED_HOSTS} hosts in brackets before a suffix with digits"
            ),
            Self::Product => write!(
                f,
                "expected names with several brackets for at most {MAX_PRODUCT_RANGES} ranges of up to 128 bytes a name"
            ),
            Self::Sorted => f.write_str("sorted, its ranges fall apart into too many hosts"),
        }
    }
}

/// The input in double quotes, control characters escaped, cut down to the fault's surroundings when long.
fn quote(input: &str, offset: usize) -> String {
    let (start, end) = if input.len() <= MAX_WHOLE_BYTES {
        (0, input.len())
    } else {
        (
            floor(input, offset.saturating_sub(CONTEXT_BYTES)),
            floor(input, offset.saturating_add(CONTEXT_BYTES)),
        )
    };
    let mut shown = String::from("\"");
    if start > 0 {
        shown.push('…');
    }
    for character in input[start..end].chars() {
        match character {
            '\'' => shown.push('\''),
            other => shown.extend(other.escape_debug()),
        }
    }
    if end < input.len() {
        shown.push('…');
    }
    shown.push('"');
    shown
}

/// The greatest character boundary not above `index`.
fn floor(input: &str, index: usize) -> usize {
    let mut index = index.min(input.len());
    while !input.is_char_boundary(index) {
        index -= 1;
    }
    index
}
