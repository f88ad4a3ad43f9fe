//! The first events of the jobs of a submission, which are the same for all of them.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

/// Sets the lines of the jobs with ids from the first to the second parameter.
pub(crate) const INSERT: &str = "INSERT OR REPLACE INTO common_events VALUES (?, ?, ?)";

/// The lines of a job, if it shares them with others.
pub(crate) const SELECT: &str = "SELECT iif(last >= ?1 AND EXISTS (SELECT 1 FROM jobs WHERE id = ?1), lines, NULL) \
     FROM common_events WHERE first <= ?1 ORDER BY first DESC LIMIT 1";

/// Removes the lines that removed jobs with ids from the first to the second parameter have shared, if there is no other job
/// that they belong to.
pub(crate) const DELETE_UNUSED: &str = "DELETE FROM common_events \
     WHERE first BETWEEN ifnull((SELECT max(first) FROM common_events WHERE first <= ?1), ?1) AND ?2 \
     AND NOT EXISTS (SELECT 1 FROM jobs WHERE id BETWEEN first AND last)";

/// The lines of the jobs of a listing, which is in the order of their ids: jobs that follow each other share a text.
pub(crate) struct CommonEvents<'a> {
    connection: &'a Connection,
    last_found: Option<CommonRow>,
}

struct CommonRow {
    first: i64,
    last: i64,
    lines: Arc<str>,
}

impl<'a> CommonEvents<'a> {
    pub(crate) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            last_found: None,
        }
    }

    /// The first event lines of a job, if it shares them with others.
    pub(crate) fn of(&mut self, id: i64) -> rusqlite::Result<Option<Arc<str>>> {
        let is_of = |row: &CommonRow| (row.first..=row.last).contains(&id);
        if !self.last_found.as_ref().is_some_and(is_of) {
            let query = "SELECT first, last, lines FROM common_events WHERE first <= ? \
                         ORDER BY first DESC LIMIT 1";
            let columns = |row: &rusqlite::Row<'_>| {
                Ok(CommonRow {
                    first: row.get(0)?,
                    last: row.get(1)?,
                    lines: row.get::<_, String>(2)?.into(),
                })
            };
            let mut statement = self.connection.prepare_cached(query)?;
            self.last_found = statement.query_row([id], columns).optional()?;
        }
        let found = self.last_found.as_ref().filter(|row| is_of(row));
        Ok(found.map(|row| Arc::clone(&row.lines)))
    }
}
