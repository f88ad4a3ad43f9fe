//! Submissions by their tokens, so that one that is repeated adds no jobs.

use rusqlite::{OptionalExtension, params};

use crate::{Error, Store};

const REMOVE: &str = "cannot remove a submission";

/// A submission with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Digest of the request.
    pub digest: u64,
    /// The jobs that were added, in the caller's notation.
    pub result: String,
}

impl Store {
    /// The submission of a user with this token, if it was stored at `since` or later.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn submission(
        &self,
        userid: u32,
        token: &str,
        since: f64,
    ) -> Result<Option<Submission>, Error> {
        self.database.connection()
            .prepare_cached(
                "SELECT digest, result FROM submissions WHERE userid = ? AND token = ? AND time >= ?",
            )
            .and_then(|mut statement| {
                let submission = |row: &rusqlite::Row<'_>| {
                    Ok(Submission {
                        digest: row.get::<_, i64>(0)?.cast_unsigned(),
                        result: row.get(1)?,
                    })
                };
                let values = params![userid, token, since];
                statement.query_row(values, submission).optional()
            })
            .map_err(|source| Error::new("cannot read a submission", &source))
    }

    /// The time of the first submission with a token that is not later than `now`, or else of the first one: the clock may
    /// have been ahead.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn oldest_submission(&self, now: f64) -> Result<Option<f64>, Error> {
        let what = "cannot read a submission";
        let of_now = "SELECT time FROM submissions WHERE time <= ? ORDER BY seq LIMIT 1";
        if let Some(time) = self.database.read(what, of_now, [now])? {
            return Ok(Some(time));
        }
        let first = "SELECT time FROM submissions ORDER BY seq LIMIT 1";
        self.database.read(what, first, [])
    }

    /// Removes those of the first submissions that were stored before `expired`: of `max` submissions that are not later than
    /// `now`.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_expired_submissions(
        &mut self,
        expired: f64,
        now: f64,
        max: u32,
    ) -> Result<(), Error> {
        let is_expired = "time < ? AND seq IN (SELECT seq FROM submissions WHERE time <= ? ORDER BY seq LIMIT ?)";
        self.remove_submissions(REMOVE, is_expired, params![expired, now, max])
    }

    /// Stores a submission, in the place of an older one with its token.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn add_submission(
        &mut self,
        userid: u32,
        token: &str,
        time: f64,
        submission: &Submission,
    ) -> Result<(), Error> {
        let result = &submission.result;
        let is_replaced = "userid = ? AND token = ?";
        self.remove_submissions(REMOVE, is_replaced, params![userid, token])?;
        self.database.write(
            "cannot write a submission",
            "INSERT INTO submissions(userid, token, time, digest, result) VALUES (?, ?, ?, ?, ?)",
            params![userid, token, time, submission.digest.cast_signed(), result],
        )?;
        let bytes = Self::submission_bytes(token, result);
        self.user_bytes.add(userid, bytes);
        Ok(())
    }
}
