//! Flux Standard Duration (RFC 23): a number with one of the suffixes `ms s m h d`, or `inf`.

use crate::Error;
use crate::error::Input;

/// Reads a duration in seconds. A number without suffix is in seconds; `inf` and `infinity`
/// (in any case) mean no limit.
///
/// ```
/// # use penstock_jobspec::duration::parse;
/// assert_eq!(parse("1.5h")?, 5400.0);
/// assert!(parse("inf")?.is_infinite());
/// assert!(parse("-1s").is_err());
/// # Ok::<(), penstock_jobspec::Error>(())
/// ```
///
/// # Errors
///
/// Fails if the text is neither a number of at least 0, with or without one of the suffixes ms, s, m, h and d,
/// nor `inf`.
pub fn parse(text: &str) -> Result<f64, Error> {
    let fail = || {
        let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
        let detail = format!(
            "`{shown}`: expected a number and one of the suffixes ms, s, m, h, d, or `inf`"
        );
        Error::new(Input::Duration, "", detail)
    };
    if text.eq_ignore_ascii_case("inf") || text.eq_ignore_ascii_case("infinity") {
        return Ok(f64::INFINITY);
    }
    let end = text
        .find(|letter: char| letter.is_ascii_alphabetic() && !matches!(letter, 'e' | 'E'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor = match suffix {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(fail()),
    };
    if !number.starts_with(|it: char| it.is_ascii_digit() || it == '.') {
        return Err(fail());
    }
    let seconds = number.parse::<f64>().map_err(|_| fail())? * factor;
    if seconds.is_finite() {
        Ok(seconds)
    } else {
        Err(fail())
    }
}
