//! The facts of pending jobs with many events, so that a start reads these and the events since, and not all events.
//!
//! A row has what followed from the first `events` events of its job. It stays when later events follow, until a later row takes
//! its place or the job is removed. Without a row, or if its text cannot be read, the facts follow from the whole eventlog.

use penstock_jobspec::job_id::JobId;
use rusqlite::{Connection, params};

use crate::database::key;
use crate::{Error, Store};

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
    fn read(connection: &Connection, id: i64) -> rusqlite::Result<Option<Self>> {
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
    /// Those of the jobs after one.
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

impl Store {
    /// Stores the facts of a job after all events that it has in the store, in the place of earlier ones.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn set_pending_facts(&mut self, id: JobId, events: u32, text: &str) -> Result<(), Error> {
        self.database
            .write(
                "cannot write the facts of a pending job",
                "INSERT OR REPLACE INTO pending_facts VALUES (?, ?, ?)",
                params![key(id), events, text],
            )
            .map(drop)
    }

    /// Removes the facts of a job.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_pending_facts(&mut self, id: JobId) -> Result<(), Error> {
        self.database
            .write(
                "cannot remove the facts of a pending job",
                DELETE,
                [key(id); 2],
            )
            .map(drop)
    }

    /// The facts of a job that were stored last, if any were and they can be read.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn pending_facts(&self, id: JobId) -> Result<Option<PendingFacts>, Error> {
        PendingFacts::read(self.database.connection(), key(id))
            .map_err(|source| Error::new("cannot read the facts of a pending job", &source))
    }
}
