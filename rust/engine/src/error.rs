use penstock_jobspec::job_id::JobId;
use std::fmt;

/// A request that the engine rejects; the engine is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Argument,
    UnknownJob,
    KnownJob,
    Impossible,
    Unavailable,
}

impl Error {
    fn of(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }

    /// An invalid argument.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::of(ErrorKind::Argument, text)
    }

    /// A job that is not in the state that the operation needs.
    pub(crate) fn unknown_job(text: impl Into<String>) -> Self {
        Self::of(ErrorKind::UnknownJob, text)
    }

    /// Resources of an execution target that are not, or not all, allocated to the job.
    pub(crate) fn not_held(rank: impl fmt::Display) -> Self {
        Self::new(format!(
            "rank {rank}: the job does not have all of these cores and gpus"
        ))
    }

    /// A job that is submitted or registered twice.
    pub(crate) fn known_job(id: JobId) -> Self {
        Self::of(
            ErrorKind::KnownJob,
            format!("job {} is known already", id.get()),
        )
    }

    /// A request that can never be allocated.
    pub(crate) fn impossible(text: impl Into<String>) -> Self {
        Self::of(ErrorKind::Impossible, text)
    }

    /// A request that cannot be allocated now.
    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self::of(ErrorKind::Unavailable, text)
    }

    /// The same error, with its subject before its text.
    pub(crate) fn about(self, subject: impl fmt::Display) -> Self {
        Self {
            text: format!("{subject}: {}", self.text),
            ..self
        }
    }

    /// Whether an argument is invalid: a name, a time, ranks or resources.
    pub fn is_invalid_argument(&self) -> bool {
        self.kind == ErrorKind::Argument
    }

    /// Whether no job with the id is pending, or running, as the operation needs it.
    pub fn is_unknown_job(&self) -> bool {
        self.kind == ErrorKind::UnknownJob
    }

    /// Whether a job with the id is pending or running already.
    pub fn is_known_job(&self) -> bool {
        self.kind == ErrorKind::KnownJob
    }

    /// Whether the request of a running job can never be allocated.
    pub fn is_impossible(&self) -> bool {
        self.kind == ErrorKind::Impossible
    }

    /// Whether resources are allocated or down, or a limit of a queue is reached: the request may
    /// succeed later.
    pub fn is_unavailable(&self) -> bool {
        self.kind == ErrorKind::Unavailable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
