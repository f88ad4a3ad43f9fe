//! The one error of this crate: what was read, where it stopped making sense, what was expected there.
use std::fmt;

/// Bytes of the input shown on either side of a fault when the whole is too long to show.
const CONTEXT: usize = 24;
/// Inputs up to this many bytes are shown whole.
const WHOLE: usize = 64;

/// Most hosts in ranges whose suffix has digits: these are compared one by one.
pub(crate) const MAX_SUFFIXED: usize = 1 << 20;

/// Most ranges that the names with several brackets in one text may stand for.
pub(crate) const MAX_PRODUCT: u64 = 1 << 20;

/// The rejection of a string or a list.
///
/// Its text names the input, the fault and the byte: `invalid hostlist "foo[1-]": expected a number at byte 6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
    offset: Option<usize>,
}

impl Error {
    /// A fault in the text of a list.
    pub(crate) fn list(input: &str, offset: usize, reason: impl fmt::Display) -> Self {
        Self::at("hostlist", input, offset, reason)
    }

    /// A fault in a single name.
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

    /// A list that would become too long.
    pub(crate) fn limit(limit: Limit) -> Self {
        Self {
            text: format!("hostlist too long: {limit}"),
            offset: None,
        }
    }

    /// Byte of the input at which the fault was found; 0 where there was no text to blame.
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

/// What a list cannot grow beyond; see [`crate::Hostlist`].
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
            Self::Hosts => write!(f, "expected at most {} hosts", crate::Hostlist::MAX_LEN),
            Self::Suffixed => write!(
                f,
                "expected at most {MAX_SUFFIXED} hosts in brackets before a suffix with digits"
            ),
            Self::Product => write!(
                f,
                "expected names with several brackets for at most {MAX_PRODUCT} ranges of up to 128 bytes a name"
            ),
            Self::Sorted => f.write_str("sorted, its ranges fall apart into too many hosts"),
        }
    }
}

/// The input in double quotes, control characters escaped, cut down to the fault's surroundings when long.
fn quote(input: &str, offset: usize) -> String {
    let (start, end) = if input.len() <= WHOLE {
        (0, input.len())
    } else {
        (
            floor(input, offset.saturating_sub(CONTEXT)),
            floor(input, offset.saturating_add(CONTEXT)),
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
