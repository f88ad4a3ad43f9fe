use std::fmt;

/// The greatest number of characters of an input that an error repeats.
const MAX_SHOWN_CHARACTERS: usize = 100;

/// The beginning of an input, with escapes, for an error: it can be as long as a jobspec.
pub(crate) fn shown(text: &str) -> String {
    let characters = text.chars().take(MAX_SHOWN_CHARACTERS);
    characters.flat_map(char::escape_debug).collect()
}

/// The kind of input that was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Jobspec,
    Constraint,
    Count,
    Duration,
    JobId,
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jobspec => "jobspec",
            Self::Constraint => "constraint",
            Self::Count => "count",
            Self::Duration => "duration",
            Self::JobId => "job id",
        })
    }
}

/// The error of an invalid input: the kind of input, the path within it, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    input: Input,
    path: String,
    detail: String,
}

impl Error {
    pub(crate) fn new(input: Input, path: &str, detail: impl Into<String>) -> Self {
        Self {
            input,
            path: path.to_owned(),
            detail: detail.into(),
        }
    }

    /// The path in the document, e.g. `resources[0].count`; empty for the document as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether a jobspec is invalid.
    pub fn is_jobspec(&self) -> bool {
        self.input == Input::Jobspec
    }

    /// Whether a constraint of a jobspec or a command line is invalid.
    pub fn is_constraint(&self) -> bool {
        self.input == Input::Constraint
    }

    /// Whether the text of a count or a count range is invalid.
    pub fn is_count(&self) -> bool {
        self.input == Input::Count
    }

    /// Whether the text of a duration is invalid.
    pub fn is_duration(&self) -> bool {
        self.input == Input::Duration
    }

    /// Whether the text of a job id is invalid.
    pub fn is_job_id(&self) -> bool {
        self.input == Input::JobId
    }

    /// The expectation, without the path.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {}: ", self.input)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Error {}
