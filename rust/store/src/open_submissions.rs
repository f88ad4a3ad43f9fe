//! Submissions that are not complete, and their jobs, which are removed if they are not completed.

use penstock_jobspec::job_id::JobId;

use crate::database::key;
use crate::{Error, Store};

impl Store {
    /// Marks the jobs with ids from `first` to `last` as those of a submission that is not complete, until
    /// [`close_submission`](Self::close_submission). A greater `last` replaces the one before.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn open_submission(&mut self, first: JobId, last: JobId) -> Result<(), Error> {
        self.database
            .write(
                "cannot open a submission",
                "INSERT OR REPLACE INTO open_submissions VALUES (?, ?)",
                [key(first), key(last)],
            )
            .map(drop)
    }

    /// Completes the submission of the jobs from `first` on.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn close_submission(&mut self, first: JobId) -> Result<(), Error> {
        self.database
            .write(
                "cannot close a submission",
                "DELETE FROM open_submissions WHERE first = ?",
                [key(first)],
            )
            .map(drop)
    }

    /// Removes a job of a submission that is not complete: no other module has data of it. Its jobspec stays, as other
    /// jobs may share it. Returns its key.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn discard_job(&mut self, id: JobId) -> Result<Option<i64>, Error> {
        let what = "cannot remove a job";
        self.database
            .write(what, "DELETE FROM events WHERE job = ?", [key(id)])?;
        let removed = self.remove_job_rows(what, [key(id); 2])?;
        self.remove_unused_common_events([[key(id); 2]])?;
        Ok(removed.first().map(|(_, spec)| *spec))
    }
}
