//! The rows that count for their users: see [`crate::user_bytes`].

use std::collections::BTreeMap;

use penstock_jobspec::job_id::JobId;
use rusqlite::{Row, params};

use crate::counted_bytes::{
    ATTRIBUTE, JOB_BYTES, JOBSPEC_BYTES, RECOUNT, SELECT_WRONG, SUBMISSION_BYTES,
};
use crate::database::key;
use crate::user_bytes::UserBytes;
use crate::{Error, Store};

impl Store {
    /// The bytes that a user has in the database, the open transaction included: approximate for rows of jobs.
    pub fn bytes_of(&self, userid: u32) -> u64 {
        self.user_bytes.of(userid)
    }

    /// The same of each user, as last committed.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn bytes_by_user(&self) -> Result<BTreeMap<u32, u64>, Error> {
        UserBytes::read(self.database.connection()).map(UserBytes::into_all)
    }

    /// Counts bytes that a job has beyond those of a usual one.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn count_job_bytes(&mut self, id: JobId, bytes: u64) -> Result<(), Error> {
        let what = "cannot count the bytes of a job";
        self.database.begin()?;
        let sql = "UPDATE jobs SET bytes = bytes + ? WHERE id = ? RETURNING userid";
        let values = params![bytes.cast_signed(), key(id)];
        let userid = self.database.read(what, sql, values)?;
        if let Some(userid) = userid {
            self.user_bytes.add(userid, bytes);
        }
        Ok(())
    }

    /// Appends a line to the log of a job's standard input.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn append_input(&mut self, id: JobId, line: &str) -> Result<(), Error> {
        self.database.write(
            "cannot write standard input",
            "INSERT INTO inputs SELECT ?1, coalesce(max(seq) + 1, 0), ?2 FROM inputs WHERE job = ?1",
            params![key(id), line],
        )?;
        self.count_job_bytes(id, line.len() as u64)
    }

    /// Removes the rows of jobs with ids from the first to the second one. Returns the ids, and the keys of their jobspecs.
    pub(crate) fn remove_job_rows(
        &mut self,
        what: &str,
        range: [i64; 2],
    ) -> Result<Vec<(JobId, i64)>, Error> {
        let sql = "DELETE FROM jobs WHERE id BETWEEN ? AND ? RETURNING id, spec, userid, bytes";
        self.database.begin()?;
        let connection = self.database.connection();
        let removed = connection.prepare_cached(sql).and_then(|mut statement| {
            let removed = statement.query_map(range, |row| {
                let id: i64 = row.get(0)?;
                let job = (JobId::new(id.cast_unsigned()), row.get(1)?);
                Ok((job, row.get(2).ok(), count(row, 3)))
            })?;
            removed.collect::<rusqlite::Result<Vec<_>>>()
        });
        let removed = removed.map_err(|source| Error::new(what, &source))?;
        let mut specs = Vec::with_capacity(removed.len());
        for (job, userid, bytes) in removed {
            specs.push(job);
            if let Some(userid) = userid {
                self.user_bytes
                    .subtract(userid, bytes.saturating_add(JOB_BYTES));
            }
        }
        Ok(specs)
    }

    /// Removes rows by a statement that returns the user and the bytes of each, which count others besides.
    fn remove_counted(
        &mut self,
        what: &str,
        sql: &str,
        values: impl rusqlite::Params,
        others: u64,
    ) -> Result<(), Error> {
        self.database.begin()?;
        let connection = self.database.connection();
        let removed = connection.prepare_cached(sql).and_then(|mut statement| {
            let removed =
                statement.query_map(values, |row| Ok((row.get(0).ok(), count(row, 1))))?;
            removed.collect::<rusqlite::Result<Vec<(Option<u32>, u64)>>>()
        });
        for (userid, bytes) in removed.map_err(|source| Error::new(what, &source))? {
            if let Some(userid) = userid {
                self.user_bytes
                    .subtract(userid, bytes.saturating_add(others));
            }
        }
        Ok(())
    }

    /// Removes a jobspec to which no job refers any longer.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_jobspec(&mut self, spec: i64) -> Result<(), Error> {
        let sql = "DELETE FROM jobspecs WHERE id = ? RETURNING userid, octet_length(text)";
        self.remove_counted("cannot remove a jobspec", sql, [spec], JOBSPEC_BYTES)
    }

    /// Removes submissions by a condition.
    pub(crate) fn remove_submissions(
        &mut self,
        what: &str,
        condition: &str,
        values: impl rusqlite::Params,
    ) -> Result<(), Error> {
        let sql = format!(
            "DELETE FROM submissions WHERE {condition} \
             RETURNING userid, octet_length(token) + octet_length(result)"
        );
        self.remove_counted(what, &sql, values, SUBMISSION_BYTES)
    }

    /// The bytes that a submission counts.
    pub(crate) fn submission_bytes(token: &str, result: &str) -> u64 {
        SUBMISSION_BYTES + (token.len() + result.len()) as u64
    }

    /// Gives jobspecs that name no user to a user of their jobs.
    pub(crate) fn attribute_jobspecs(&mut self) -> Result<(), Error> {
        self.database.begin()?;
        let connection = self.database.connection();
        let done = connection.execute_batch(ATTRIBUTE);
        done.map_err(|error| Error::new("cannot write the jobspecs", &error))
    }

    /// Recomputes the sums of all users in the open transaction, also for rows that were written by other statements.
    pub(crate) fn recount_user_bytes(&mut self) -> Result<(), Error> {
        let wrap = |error: rusqlite::Error| Error::new("cannot count the bytes of users", &error);
        self.database.begin()?;
        let connection = self.database.connection();
        connection.execute_batch(RECOUNT).map_err(wrap)?;
        self.user_bytes = UserBytes::read(connection)?;
        Ok(())
    }

    /// Finds the users whose sums are not those of their rows.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn wrong_user_bytes(&self) -> Result<Vec<String>, Error> {
        let wrap = |error: rusqlite::Error| Error::new("cannot check the bytes of users", &error);
        let connection = self.database.connection();
        // One statement, which reads all tables at one moment.
        let mut statement = connection.prepare(SELECT_WRONG).map_err(wrap)?;
        let wrong = statement.query_map([], |row| {
            let (rows, sum): (f64, f64) = (row.get(1)?, row.get(2)?);
            let userid: Option<u32> = row.get(0).ok();
            Ok(userid.map(|userid| {
                format!(
                    "row {userid} of `user_bytes` has {sum} bytes, the rows of the user have {rows}"
                )
            }))
        });
        let wrong: rusqlite::Result<Vec<Option<String>>> = wrong.and_then(Iterator::collect);
        // A user that is not one is a bad row.
        Ok(wrong.map_err(wrap)?.into_iter().flatten().collect())
    }
}

/// A number of bytes; 0 for garbage.
fn count(row: &Row<'_>, column: usize) -> u64 {
    let bytes = row.get::<_, i64>(column).unwrap_or_default();
    u64::try_from(bytes).unwrap_or_default()
}
