//! The tables by their columns, and the rows that no reader accepts.
//!
//! A start leaves such rows out, the check of a database names them, and its repair removes them.

use std::fmt;

use rusqlite::Connection;
use rusqlite::types::{Value, ValueRef};

use crate::ended::JOB_BYTES;

/// The values of a column that readers accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnKind {
    /// An integer from the first to the second one.
    Integer(i64, i64),
    /// A finite number.
    Real,
    Text,
    OptionalText,
    /// A text or bytes.
    Value,
    /// The bytes of ended jobs.
    Jobs,
}

/// A number with 64 bits, such as the id of a job.
const WORD: ColumnKind = ColumnKind::Integer(i64::MIN, i64::MAX);
/// A number with 32 bits, such as that of a user.
const HALF_WORD: ColumnKind = ColumnKind::Integer(0, u32::MAX as i64);

/// A number of bytes in the database.
const BYTES: ColumnKind = ColumnKind::Integer(0, 1 << 53);

impl ColumnKind {
    /// Whether a value is one of these.
    fn has(self, value: ValueRef<'_>) -> bool {
        match (self, value) {
            (Self::Integer(least, greatest), ValueRef::Integer(number)) => {
                (least..=greatest).contains(&number)
            }
            (Self::Real, ValueRef::Real(number)) => number.is_finite(),
            (Self::Text | Self::OptionalText | Self::Value, ValueRef::Text(bytes)) => {
                str::from_utf8(bytes).is_ok()
            }
            (Self::Jobs, ValueRef::Blob(bytes)) => bytes.len() % JOB_BYTES == 0,
            (Self::OptionalText, ValueRef::Null) | (Self::Value, ValueRef::Blob(_)) => true,
            _ => false,
        }
    }
}

impl fmt::Display for ColumnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(i64::MIN, i64::MAX) => f.write_str("an integer"),
            Self::Integer(least, greatest) => write!(f, "an integer from {least} to {greatest}"),
            Self::Real => f.write_str("a finite number"),
            Self::Text => f.write_str("a text"),
            Self::OptionalText => f.write_str("a text or null"),
            Self::Value => f.write_str("a text or bytes"),
            Self::Jobs => write!(f, "bytes, {JOB_BYTES} for each job"),
        }
    }
}

/// A table with its columns; those of its key order the rows.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [&'static str],
    kinds: &'static [ColumnKind],
    pub(crate) key: &'static [&'static str],
}

impl Table {
    /// The value of a column in the rows of earlier formats, which lack it.
    pub(crate) fn earlier_value(&self, column: &str) -> Option<Value> {
        match (self.name, column) {
            ("common_events", "seq" | "step") | ("jobs", "bytes") => Some(Value::Integer(0)),
            // Until the jobspecs are given to users of their jobs.
            ("jobspecs", "userid") => Some(Value::Null),
            _ => None,
        }
    }

    /// The rows that no reader accepts, perhaps some twice.
    pub(crate) fn bad_rows(&self, connection: &Connection) -> rusqlite::Result<Vec<BadRow>> {
        let mut bad = self.select(connection, None)?;
        for condition in CONDITIONS.iter().filter(|each| each.table == self.name) {
            bad.append(&mut self.select(connection, Some(condition))?);
        }
        Ok(bad)
    }

    /// The rows that fulfil a condition, or with a value of another kind than that of its column.
    fn select(
        &self,
        connection: &Connection,
        condition: Option<&Condition>,
    ) -> rusqlite::Result<Vec<BadRow>> {
        let columns = [self.key, self.columns].concat().join(", ");
        let mut query = format!("SELECT {columns} FROM {}", self.name);
        if let Some(condition) = condition {
            query = format!("{query} WHERE {}", condition.is_bad);
        }
        let mut bad = Vec::new();
        let mut statement = connection.prepare(&query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let reason = match condition {
                Some(condition) => Some(condition.reason.to_owned()),
                None => self.fault(row)?,
            };
            if let Some(reason) = reason {
                let key = (0..self.key.len()).map(|column| row.get_ref(column).map(to_value));
                bad.push(BadRow {
                    table: self.name,
                    key: key.collect::<rusqlite::Result<_>>()?,
                    reason,
                });
            }
        }
        Ok(bad)
    }

    /// The first value of another kind than that of its column, in a row that begins with the key.
    fn fault(&self, row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<String>> {
        for (index, (column, kind)) in self.columns.iter().zip(self.kinds).enumerate() {
            if !kind.has(row.get_ref(self.key.len() + index)?) {
                return Ok(Some(format!("`{column}` is not {kind}")));
            }
        }
        Ok(None)
    }
}

/// The tables that are copied row by row, each after those to which its rows refer, without the row of the database about
/// itself.
pub(crate) const TABLES: [Table; 12] = [
    Table {
        name: "meta",
        columns: &["key", "value"],
        kinds: &[ColumnKind::Text, ColumnKind::Text],
        key: &["key"],
    },
    Table {
        name: "jobspecs",
        columns: &["id", "text", "userid"],
        kinds: &[WORD, ColumnKind::Text, HALF_WORD],
        key: &["id"],
    },
    Table {
        name: "jobs",
        columns: &["id", "userid", "t_submit", "spec", "r", "bytes"],
        kinds: &[
            WORD,
            HALF_WORD,
            ColumnKind::Real,
            WORD,
            ColumnKind::OptionalText,
            BYTES,
        ],
        key: &["id"],
    },
    Table {
        name: "events",
        columns: &["job", "seq", "lines"],
        kinds: &[WORD, HALF_WORD, ColumnKind::Text],
        key: &["job", "seq"],
    },
    Table {
        name: "common_events",
        columns: &["seq", "first", "last", "step", "lines"],
        kinds: &[HALF_WORD, WORD, WORD, ColumnKind::Real, ColumnKind::Text],
        key: &["seq", "first"],
    },
    Table {
        name: "inputs",
        columns: &["job", "seq", "line"],
        kinds: &[WORD, ColumnKind::Integer(0, i64::MAX), ColumnKind::Text],
        key: &["job", "seq"],
    },
    Table {
        name: "unsent_starts",
        columns: &["job"],
        kinds: &[WORD],
        key: &["job"],
    },
    Table {
        name: "purged_jobs",
        columns: &["job"],
        kinds: &[WORD],
        key: &["job"],
    },
    Table {
        name: "resource_events",
        columns: &["seq", "line"],
        kinds: &[WORD, ColumnKind::Text],
        key: &["seq"],
    },
    Table {
        name: "submissions",
        columns: &["seq", "userid", "token", "time", "digest", "result"],
        kinds: &[
            WORD,
            HALF_WORD,
            ColumnKind::Text,
            ColumnKind::Real,
            WORD,
            ColumnKind::Text,
        ],
        key: &["seq"],
    },
    Table {
        name: "open_submissions",
        columns: &["first", "last"],
        kinds: &[WORD, WORD],
        key: &["first"],
    },
    Table {
        name: "kvs",
        columns: &["key", "value"],
        kinds: &[ColumnKind::Text, ColumnKind::Value],
        key: &["key"],
    },
];

/// All tables, without the row of the database about itself.
pub(crate) fn all() -> impl Iterator<Item = &'static Table> {
    TABLES
        .iter()
        .chain([&ENDED_JOBS, &PENDING_FACTS, &USER_BYTES])
}

/// Ended jobs, which a start reads from the eventlogs if there is no row of them.
const ENDED_JOBS: Table = Table {
    name: "ended_jobs",
    columns: &["seq", "first", "last", "queue", "result", "jobs"],
    kinds: &[
        WORD,
        WORD,
        WORD,
        ColumnKind::OptionalText,
        ColumnKind::Integer(0, u8::MAX as i64),
        ColumnKind::Jobs,
    ],
    key: &["seq"],
};

/// The facts of pending jobs, which follow from the eventlogs if there is no row of them.
const PENDING_FACTS: Table = Table {
    name: "pending_facts",
    columns: &["job", "events", "facts"],
    kinds: &[WORD, HALF_WORD, ColumnKind::Text],
    key: &["job"],
};

/// The bytes of users, which are recomputed if a row cannot be read.
const USER_BYTES: Table = Table {
    name: "user_bytes",
    columns: &["userid", "bytes"],
    kinds: &[HALF_WORD, BYTES],
    key: &["userid"],
};

/// The greatest id of a job, as SQL.
macro_rules! greatest_id {
    () => {
        "max((SELECT greatest_id FROM store), ifnull((SELECT max(id) FROM jobs), 0))"
    };
}
pub(crate) use greatest_id;

/// A condition of the rows that do not fit the other tables.
struct Condition {
    table: &'static str,
    is_bad: &'static str,
    reason: &'static str,
}

/// The rows of open submissions of which no job is removed.
///
/// The ids of its jobs follow each other: those of 2^24 jobs are allotted in 2^14 milliseconds, which are the bits of an id
/// from the 25th on. A garbled range could name the jobs of all later submissions.
pub(crate) const IS_BAD_OPEN_SUBMISSION: &str =
    "typeof(last) <> 'integer' OR last < first OR last - first > 1 << 38";

const CONDITIONS: [Condition; 8] = [
    Condition {
        table: "events",
        is_bad: "job NOT IN (SELECT id FROM jobs)",
        reason: "unknown job",
    },
    Condition {
        table: "inputs",
        is_bad: "job NOT IN (SELECT id FROM jobs)",
        reason: "unknown job",
    },
    Condition {
        table: "pending_facts",
        is_bad: "job NOT IN (SELECT id FROM jobs)",
        reason: "unknown job",
    },
    Condition {
        table: "unsent_starts",
        is_bad: "job NOT IN (SELECT id FROM jobs)",
        reason: "unknown job",
    },
    Condition {
        table: "purged_jobs",
        is_bad: "job IN (SELECT id FROM jobs)",
        reason: "the job is not purged",
    },
    Condition {
        table: "common_events",
        is_bad: "NOT EXISTS (SELECT 1 FROM jobs WHERE id BETWEEN first AND last)",
        reason: "unknown jobs",
    },
    Condition {
        table: "common_events",
        is_bad: concat!("last > ", greatest_id!()),
        reason: "`last` is greater than all ids of jobs",
    },
    Condition {
        table: "open_submissions",
        is_bad: IS_BAD_OPEN_SUBMISSION,
        reason: "no submission has jobs from `first` to `last`",
    },
];

/// A row that no reader accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct BadRow {
    pub(crate) table: &'static str,
    pub(crate) key: Vec<Value>,
    reason: String,
}

impl BadRow {
    /// The row of a [value of the instance](crate::Store::meta).
    pub fn of_meta(key: &str, reason: impl fmt::Display) -> Self {
        Self {
            table: "meta",
            key: vec![Value::Text(key.to_owned())],
            reason: reason.to_string(),
        }
    }

    /// The row of an event of the resource service.
    pub fn of_resource_event(seq: i64, reason: impl fmt::Display) -> Self {
        Self {
            table: "resource_events",
            key: vec![Value::Integer(seq)],
            reason: reason.to_string(),
        }
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("row ")?;
        for (index, value) in self.key.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            match value {
                Value::Integer(number) => write!(f, "{number}")?,
                Value::Text(text) => write!(f, "`{}`", text.escape_debug())?,
                Value::Blob(bytes) => write!(f, "`{}`", bytes.escape_ascii())?,
                Value::Real(number) => write!(f, "{number}")?,
                Value::Null => f.write_str("null")?,
            }
        }
        write!(f, " of `{}` is left out: {}", self.table, self.reason)
    }
}

/// A column to be written again; a text that is not Unicode becomes a blob.
pub(crate) fn to_value(column: ValueRef<'_>) -> Value {
    match column {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
        ValueRef::Text(bytes) => match str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Blob(bytes.to_vec()),
        },
    }
}
