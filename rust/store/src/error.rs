use std::path::Path;
use std::{fmt, io};

/// The advice for a database that `SQLite` cannot read.
const REPAIR_ADVICE: &str = "while the instance is stopped, `penstock store repair` saves what can be read, \
                             `penstock store restore BACKUP` puts a back-up in its place";

/// Why an operation on the store failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    text: String,
    kind: ErrorKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorKind {
    Database,
    DiskFull,
    InputOutput,
    Busy,
    Damaged,
    Malformed,
    Lost,
    Format,
}

impl Error {
    /// A failed operation: what failed, and `SQLite`'s error.
    pub(crate) fn new(action: &str, source: &rusqlite::Error) -> Self {
        let is_damaged = matches!(
            source,
            rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::Utf8Error(..)
        );
        let kind = match source.sqlite_error_code() {
            _ if is_damaged => ErrorKind::Damaged,
            Some(rusqlite::ErrorCode::DiskFull) => ErrorKind::DiskFull,
            Some(rusqlite::ErrorCode::SystemIoFailure) => ErrorKind::InputOutput,
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                ErrorKind::Busy
            }
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
                ErrorKind::Malformed
            }
            _ => ErrorKind::Database,
        };
        let hint = match kind {
            ErrorKind::Malformed => &format!("\nhint: {REPAIR_ADVICE}"),
            _ => "",
        };
        Self {
            text: format!("store: {action}: {source}{hint}"),
            kind,
        }
    }

    /// A file beside the database that cannot be read or written.
    pub(crate) fn file(action: &str, path: &Path, source: &io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull => ErrorKind::DiskFull,
            _ => ErrorKind::InputOutput,
        };
        Self {
            text: format!("store: {action} `{}`: {source}", path.display()),
            kind,
        }
    }

    /// A database whose log may have a commit that is not durable.
    pub(crate) fn doubtful(path: &Path) -> Self {
        Self {
            text: format!(
                "store: the log of `{}` may have a commit that is not durable",
                path.display()
            ),
            kind: ErrorKind::InputOutput,
        }
    }

    /// A database that lacks durable changes, or whose files were removed, replaced or truncated.
    pub(crate) fn lost(text: &str) -> Self {
        Self {
            text: format!("store: {text}"),
            kind: ErrorKind::Lost,
        }
    }

    /// An invalid document or argument.
    pub(crate) fn invalid(text: &str) -> Self {
        Self {
            text: format!("store: {text}"),
            kind: ErrorKind::Database,
        }
    }

    /// A database with damaged pages, which is not copied.
    pub(crate) fn damaged(problem: &str) -> Self {
        Self {
            text: format!(
                "store: the database is damaged and is not copied: {problem}\n\
                 hint: `penstock store check` lists all problems; {REPAIR_ADVICE}"
            ),
            kind: ErrorKind::Malformed,
        }
    }

    /// A database whose row about itself is not found, or is damaged: whether it went back in time is unknown.
    pub(crate) fn damaged_head(source: &rusqlite::Error) -> Self {
        let error = Self::new("cannot read row 1 of `store`", source);
        if error.is_damaged() || *source == rusqlite::Error::QueryReturnedNoRows {
            let text = format!("{}\nhint: {REPAIR_ADVICE}", error.text);
            return Self { text, ..error };
        }
        error
    }

    /// A database of which nothing can be saved.
    pub(crate) fn beyond_repair(path: &Path, source: &rusqlite::Error) -> Self {
        Self {
            text: format!(
                "store: nothing can be read of `{}`: {source}\n\
                 hint: `penstock store restore BACKUP` puts a back-up in its place; to begin without jobs, name \
                 another state directory with `--state DIR`",
                path.display()
            ),
            kind: ErrorKind::Malformed,
        }
    }

    /// A database of another format.
    pub(crate) fn format(found: i64, expected: i64) -> Self {
        Self {
            text: format!(
                "store: the database has format {found}, this program reads formats 1 to {expected}"
            ),
            kind: ErrorKind::Format,
        }
    }

    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        self.kind == ErrorKind::DiskFull
    }

    /// Whether reading or writing a file failed.
    pub fn is_input_output(&self) -> bool {
        self.kind == ErrorKind::InputOutput
    }

    /// Whether another process holds a lock of the database.
    pub fn is_busy(&self) -> bool {
        self.kind == ErrorKind::Busy
    }

    /// Whether a value in the database is not of its type; other rows can be read.
    pub fn is_damaged(&self) -> bool {
        self.kind == ErrorKind::Damaged
    }

    /// Whether the database lacks durable changes, or its files were removed, replaced or truncated.
    pub fn is_lost(&self) -> bool {
        self.kind == ErrorKind::Lost
    }

    /// Whether the database was written by a program that uses another format.
    pub fn is_format(&self) -> bool {
        self.kind == ErrorKind::Format
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
