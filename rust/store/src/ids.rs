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

    /// Of the jobs before one, or of the last ones, looks at the newest, `rows` at most. Returns the ids of those of a user, `max` at
    /// most and the newest first, without those of submissions that are not complete; and the oldest job that it has looked at, if
    /// there may be others before it.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn ids_of_user(
        &self,
        userid: u32,
        before: Option<JobId>,
        rows: usize,
        max: usize,
    ) -> Result<(Vec<JobId>, Option<JobId>), Error> {
        let before = before.map_or(i64::MAX, key);
        let skipped = i64::try_from(rows.saturating_sub(1)).unwrap_or(i64::MAX);
        let oldest = self.select_ids(
            "SELECT id FROM jobs WHERE id < ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2",
            [before, skipped],
        )?;
        let oldest = oldest.first().copied();
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let ids = self.select_ids(
            "SELECT id FROM jobs WHERE userid = ?1 AND id < ?2 AND id >= ?3 AND NOT EXISTS \
             (SELECT 1 FROM open_submissions WHERE jobs.id BETWEEN first AND last) \
             ORDER BY id DESC LIMIT ?4",
            [i64::from(userid), before, oldest.map_or(i64::MIN, key), max],
        )?;
        Ok((ids, oldest))
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

    fn select_ids<const N: usize>(&self, sql: &str, values: [i64; N]) -> Result<Vec<JobId>, Error>
    where
        [i64; N]: rusqlite::Params,
    {
        let read =
            |row: &rusqlite::Row<'_>| row.get(0).map(|id: i64| JobId::new(id.cast_unsigned()));
        self.database
            .connection()
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(values, read)?.collect())
            .map_err(|source| Error::new("cannot read the ids of jobs", &source))
    }
}
