use std::fmt;

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
            _ => ErrorKind::Database,
        };
        Self {
            text: format!("store: {action}: {source}"),
            kind,
        }
    }

    /// A database of another format.
    pub(crate) fn format(found: i64, expected: i64) -> Self {
        Self {
            text: format!(
                "store: the database has format {found}, this program reads format {expected}"
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
