//! Errors of workloads and simulations.

use std::fmt;

/// A rejected input: its name, the position in it, and the expectation that it does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
    line: Option<usize>,
    kind: ErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Input,
    Bug,
}

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            line: None,
            kind: ErrorKind::Input,
        }
    }

    /// The scheduler contradicts itself.
    pub(crate) fn bug(detail: impl fmt::Display) -> Self {
        Self {
            kind: ErrorKind::Bug,
            ..Self::new(format!("the scheduler contradicts itself: {detail}"))
        }
    }

    /// Whether it is a bug of the simulator or the engine.
    pub fn is_bug(&self) -> bool {
        self.kind == ErrorKind::Bug
    }

    /// An error in a line of a file, counted from 1.
    pub(crate) fn at(name: &str, line: usize, detail: impl fmt::Display) -> Self {
        Self {
            text: format!("{name}: line {line}: {detail}"),
            line: Some(line),
            kind: ErrorKind::Input,
        }
    }

    /// The number of the invalid line, counted from 1, if the error is in a line of a file.
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

/// An invalid policy or selection.
impl From<penstock_engine::Error> for Error {
    fn from(error: penstock_engine::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// An invalid idset of ranks.
impl From<penstock_idset::Error> for Error {
    fn from(error: penstock_idset::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// An excerpt of the input for an error message: short and without control characters.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

/// A number with commas between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A text without the byte order mark that some editors write before it.
pub(crate) fn strip_byte_order_mark(data: &[u8]) -> &[u8] {
    data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data)
}

/// A number of jobs as the subject of a sentence.
pub(crate) fn jobs(count: u64) -> String {
    format!(
        "{} job{}",
        grouped(count),
        if count == 1 { "" } else { "s" }
    )
}

/// The verb of a sentence about jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Have,
    Name,
}

impl Verb {
    fn of(self, subjects: u64) -> &'static str {
        match (self, subjects) {
            (Self::Have, 1) => "has",
            (Self::Have, _) => "have",
            (Self::Name, 1) => "names",
            (Self::Name, _) => "name",
        }
    }
}

/// A sentence about `count` of all jobs.
pub(crate) fn some(count: u64, all: u64, verb: Verb) -> String {
    let verb = verb.of(count);
    if all == 1 {
        return format!("the one job {verb}");
    }
    format!("{} of {} jobs {verb}", grouped(count), grouped(all))
}

/// A number, in scientific notation if it would have too many digits.
pub(crate) fn brief(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e15).contains(&size) || !size.is_finite() {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}
