//! Lists of job ids, without the jobs of submissions that are not complete.

use penstock_jobspec::job_id::JobId;

use crate::database::key;
use crate::{Error, Store};

impl Store {
    /// The ids of jobs before one, or of the last ones, `max` at most and the newest first, without those of submissions
    /// that are not complete.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn ids_before(&self, before: Option<JobId>, max: usize) -> Result<Vec<JobId>, Error> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let before = before.map_or(i64::MAX, key);
        self.select_ids(
            "SELECT id FROM jobs WHERE id < ?1 AND NOT EXISTS \
             (SELECT 1 FROM open_submissions WHERE jobs.id BETWEEN first AND last) \
             ORDER BY id DESC LIMIT ?2",
            [before, max],
        )
    }

    /// The ids of jobs of a user, `max` at most and the newest first, without those of submissions that are not complete.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn ids_of_user(&self, userid: u32, max: usize) -> Result<Vec<JobId>, Error> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.select_ids(
            "SELECT id FROM jobs WHERE userid = ?1 AND NOT EXISTS \
             (SELECT 1 FROM open_submissions WHERE jobs.id BETWEEN first AND last) \
             ORDER BY id DESC LIMIT ?2",
            [i64::from(userid), max],
        )
    }

    /// The smallest id of a job in a range, without those of submissions that are not complete.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn first_id(&self, first: JobId, last: JobId) -> Result<Option<JobId>, Error> {
        let bound = |id: JobId| i64::try_from(id.get()).unwrap_or(i64::MAX);
        let ids = self.select_ids(
            "SELECT id FROM jobs WHERE id BETWEEN ?1 AND ?2 AND NOT EXISTS \
             (SELECT 1 FROM open_submissions WHERE jobs.id BETWEEN first AND last) \
             ORDER BY id LIMIT 1",
            [bound(first), bound(last)],
        )?;
        Ok(ids.first().copied())
    }

    fn select_ids(&self, sql: &str, values: [i64; 2]) -> Result<Vec<JobId>, Error> {
        let read =
            |row: &rusqlite::Row<'_>| row.get(0).map(|id: i64| JobId::new(id.cast_unsigned()));
        self.database
            .connection()
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(values, read)?.collect())
            .map_err(|source| Error::new("cannot read the ids of jobs", &source))
    }
}
