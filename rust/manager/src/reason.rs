//! The length of error texts that repeat a part of the request.

use penstock_flux::RequestError;

/// The greatest length of the reason why a submission or a constraint is rejected.
const MAX_REASON_BYTES: usize = 1000;

const ELLIPSIS: char = '…';

/// A text of at most `max` bytes: a longer one ends with `…`.
pub(crate) fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut ends = (0..=max.saturating_sub(ELLIPSIS.len_utf8())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    let mut short = text.get(..end.unwrap_or(0)).unwrap_or_default().to_owned();
    short.push(ELLIPSIS);
    short
}

/// An error whose text has at most [`MAX_REASON_BYTES`].
pub(crate) fn cut_error(mut error: RequestError) -> RequestError {
    error.text = cut(&error.text, MAX_REASON_BYTES);
    error
}
