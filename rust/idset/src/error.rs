//! The error type of this crate: the input, the byte at which reading failed, and what was expected there.
use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::set::MAX_ID;

/// Bytes of the input shown on either side of a fault when the whole is too long to show.
const CONTEXT_BYTES: usize = 24;
/// Inputs up to this many bytes are shown whole.
const MAX_WHOLE_BYTES: usize = 64;

/// The rejection of a string or an id.
///
/// Its text names the input, the fault and the byte: `invalid idset "1-x": expected a number at byte 2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
    offset: Option<usize>,
}

impl Error {
    pub(crate) fn at(input: &str, offset: usize, reason: impl fmt::Display) -> Self {
        Self {
            text: format!(
                "invalid idset {}: {reason} at byte {offset}",
                quote(input, offset)
            ),
            offset: Some(offset),
        }
    }

    pub(crate) fn id(id: u64) -> Self {
        Self {
            text: format!("invalid id {id}: expected a number from 0 to {MAX_ID}"),
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

impl core::error::Error for Error {}

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
