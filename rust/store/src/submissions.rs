//! Submissions by their tokens, so that one that is repeated adds no jobs.

use rusqlite::{OptionalExtension, params};

use crate::{Error, Store};

const REMOVE: &str = "cannot remove a submission";

const OLDEST: &str = "SELECT time FROM submissions ORDER BY time LIMIT 1";

/// The condition of the oldest submissions before a time, as many as a number.
const IS_EXPIRED: &str =
    "seq IN (SELECT seq FROM submissions WHERE time < ? ORDER BY time LIMIT ?)";

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

    /// The earliest time of a submission with a token.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn oldest_submission(&self) -> Result<Option<f64>, Error> {
        self.database.read("cannot read a submission", OLDEST, [])
    }

    /// Removes the submissions that were stored before `expired`, the oldest first, `max` at most.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_expired_submissions(&mut self, expired: f64, max: u32) -> Result<(), Error> {
        self.remove_submissions(REMOVE, IS_EXPIRED, params![expired, max])
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

#[cfg(test)]
mod tests {
    use rusqlite::Params;

    use super::{IS_EXPIRED, OLDEST};
    use crate::Store;

    /// The steps of the plan of a statement.
    fn plan(store: &Store, sql: &str, values: impl Params) -> Vec<String> {
        let connection = store.database.connection();
        let mut statement = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let steps = statement.query_map(values, |row| row.get("detail"));
        steps.unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn tokens_of_a_clock_that_was_ahead_are_not_read_to_find_expired_ones() {
        let store = Store::in_memory().unwrap();
        let index = "submissions USING COVERING INDEX submissions_by_time";
        assert_eq!(plan(&store, OLDEST, []), [format!("SCAN {index}")]);
        let remove = format!("DELETE FROM submissions WHERE {IS_EXPIRED}");
        let steps = plan(&store, &remove, [1, 2]);
        assert_eq!(
            steps,
            [
                "SEARCH submissions USING INTEGER PRIMARY KEY (rowid=?)".to_owned(),
                "LIST SUBQUERY 1".to_owned(),
                format!("SEARCH {index} (time<?)"),
            ]
        );
    }
}
