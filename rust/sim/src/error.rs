//! What is wrong with a workload or with what is asked of a simulation.

use std::fmt;

/// What is wrong with an input: which one, where in it, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
    line: Option<usize>,
}

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            line: None,
        }
    }

    /// An error in a line of a file; lines are counted from 1.
    pub(crate) fn at(name: &str, line: usize, detail: impl fmt::Display) -> Self {
        Self {
            text: format!("{name}: line {line}: {detail}"),
            line: Some(line),
        }
    }

    /// The line of the file at fault, counted from 1, where there is one.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// A text of the input, short and without control characters, as an error shows it.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

/// A number with commas between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A text without the byte order mark that some editors write before it.
pub(crate) fn without_mark(data: &[u8]) -> &[u8] {
    data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data)
}

/// A number of jobs, as a sentence begins with it.
pub(crate) fn jobs(count: u64) -> String {
    format!(
        "{} job{}",
        grouped(count),
        if count == 1 { "" } else { "s" }
    )
}

/// How many of all jobs do something: `verb` is what one does and what several do.
pub(crate) fn some(count: u64, all: u64, verb: (&str, &str)) -> String {
    let verb = if count == 1 { verb.0 } else { verb.1 };
    if all == 1 {
        return format!("the one job {verb}");
    }
    format!("{} of {} jobs {verb}", grouped(count), grouped(all))
}

/// A number without the hundreds of digits that the largest and the least ones have.
pub(crate) fn brief(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e15).contains(&size) || !size.is_finite() {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}
