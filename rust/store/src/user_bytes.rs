//! The bytes that each user has in the database.
//!
//! Counted are the rows that requests of users add: jobs, with what they have beyond a usual job; the texts of jobspecs, for
//! the user who has brought the text, until its last job is removed; and the tokens of submissions. The sums are in memory,
//! and those that have changed are written with each commit, so that neither a start nor a request reads the rows.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, Row, params};

use crate::counted_bytes::SELECT_SUMS;
use crate::database::Database;
use crate::error::Error;

/// The greatest sum: one above is garbage.
const MAX_BYTES: u64 = 1 << 53;

/// The bytes of each user, and the users whose sums are not in the open transaction yet.
#[derive(Debug, Default)]
pub(crate) struct UserBytes {
    bytes: BTreeMap<u32, u64>,
    changed: BTreeSet<u32>,
    /// Whether the table has a row that cannot be read: all rows are replaced.
    has_bad_row: bool,
}

impl UserBytes {
    /// The sums as the table has them; recomputed if a row cannot be read.
    pub(crate) fn read(connection: &Connection) -> Result<Self, Error> {
        let wrap = |error: rusqlite::Error| Error::new("cannot read the bytes of users", &error);
        let found = select(connection, "SELECT userid, bytes FROM user_bytes").map_err(wrap)?;
        if let Some(bytes) = found {
            return Ok(Self {
                bytes,
                ..Self::default()
            });
        }
        let bytes = select(connection, SELECT_SUMS).map_err(wrap)?;
        let bytes = bytes.unwrap_or_default();
        Ok(Self {
            changed: bytes.keys().copied().collect(),
            bytes,
            has_bad_row: true,
        })
    }

    /// The bytes of a user.
    pub(crate) fn of(&self, userid: u32) -> u64 {
        self.bytes.get(&userid).copied().unwrap_or_default()
    }

    /// The bytes of all users.
    pub(crate) fn into_all(self) -> BTreeMap<u32, u64> {
        self.bytes
    }

    /// Whether a row could not be read.
    pub(crate) fn has_bad_row(&self) -> bool {
        self.has_bad_row
    }

    pub(crate) fn add(&mut self, userid: u32, bytes: u64) {
        let sum = self.bytes.entry(userid).or_default();
        *sum = sum.saturating_add(bytes).min(MAX_BYTES);
        self.changed.insert(userid);
    }

    pub(crate) fn subtract(&mut self, userid: u32, bytes: u64) {
        if let Some(sum) = self.bytes.get_mut(&userid) {
            *sum = sum.saturating_sub(bytes);
            self.changed.insert(userid);
        }
    }

    /// Writes the sums that have changed.
    pub(crate) fn write(&mut self, database: &mut Database) -> Result<(), Error> {
        let what = "cannot write the bytes of users";
        if self.has_bad_row {
            database.write(what, "DELETE FROM user_bytes", [])?;
        }
        for userid in &self.changed {
            let bytes = self.bytes.get(userid).copied().unwrap_or_default();
            if bytes == 0 {
                self.bytes.remove(userid);
                let sql = "DELETE FROM user_bytes WHERE userid = ?";
                database.write(what, sql, [userid])?;
            } else {
                let sql = "INSERT OR REPLACE INTO user_bytes VALUES (?, ?)";
                database.write(what, sql, params![userid, bytes.cast_signed()])?;
            }
        }
        self.changed.clear();
        self.has_bad_row = false;
        Ok(())
    }
}

/// Sums by user; `None` if a row is not one.
fn select(connection: &Connection, query: &str) -> rusqlite::Result<Option<BTreeMap<u32, u64>>> {
    let mut statement = connection.prepare(query)?;
    let sum = |row: &Row<'_>| {
        let bytes = row.get::<_, i64>(1).ok().map(u64::try_from);
        let bytes = bytes.and_then(Result::ok);
        let bytes = bytes.filter(|bytes| *bytes <= MAX_BYTES);
        Ok(row.get(0).ok().zip(bytes))
    };
    statement.query_map([], sum)?.collect()
}
