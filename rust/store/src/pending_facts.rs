//! The facts of pending jobs with many events, so that a start reads these and the events since, and not all events.
//!
//! A row has what followed from the first `events` events of its job. It stays when later events follow, until a later row takes
//! its place or the job is removed. Without a row, or if its text cannot be read, the facts follow from the whole eventlog.

use rusqlite::Connection;

/// Stores the facts of a job.
pub(crate) const SET: &str = "INSERT OR REPLACE INTO pending_facts VALUES (?, ?, ?)";

/// Removes the rows of jobs with ids from the first to the second parameter.
pub(crate) const DELETE: &str = "DELETE FROM pending_facts WHERE job BETWEEN ? AND ?";

/// The facts of a job after its first events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingFacts {
    /// The number of these events.
    pub events: u32,
    /// The facts, as the caller writes them.
    pub text: String,
}

impl PendingFacts {
    /// The facts of a job; `None` if there are none, or if a start cannot read them.
    pub(crate) fn read(connection: &Connection, id: i64) -> rusqlite::Result<Option<Self>> {
        let query = "SELECT events, facts FROM pending_facts WHERE job = ?";
        let mut statement = connection.prepare_cached(query)?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let facts = row.get(0).and_then(|events| {
            let text = row.get(1)?;
            Ok(Self { events, text })
        });
        Ok(facts.ok())
    }
}

/// The facts of the jobs of a listing, which is in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct AllFacts {
    /// The next job that has some.
    next: Option<i64>,
}

impl AllFacts {
    /// The facts of the jobs after one.
    pub(crate) fn after(connection: &Connection, id: i64) -> rusqlite::Result<Self> {
        let query = "SELECT min(job) FROM pending_facts WHERE job > ?";
        let next = connection
            .prepare_cached(query)?
            .query_row([id], |row| row.get(0))?;
        Ok(Self { next })
    }

    /// The facts of a job, if any are stored. The ids of calls increase.
    pub(crate) fn of(
        &mut self,
        connection: &Connection,
        id: i64,
    ) -> rusqlite::Result<Option<PendingFacts>> {
        if self.next.is_none_or(|next| id < next) {
            return Ok(None);
        }
        *self = Self::after(connection, id)?;
        PendingFacts::read(connection, id)
    }
}
