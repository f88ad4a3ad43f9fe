//! The removal of jobs, and the purged jobs whose retained output is still to be removed.

use penstock_jobspec::job_id::JobId;

use crate::database::key;
use crate::{Error, Store, pending_facts};

impl Store {
    /// Removes jobs: their records, R, events and standard input. Their jobspecs stay, as other jobs may share them. The jobs are
    /// remembered as purged until [`Store::forget_purged`]. Returns the key of the jobspec of each.
    ///
    /// Jobs whose ids follow each other, as those of a submission do, are removed together.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_jobs(&mut self, ids: &[JobId]) -> Result<Vec<(JobId, i64)>, Error> {
        let what = "cannot remove jobs";
        let mut specs = Vec::with_capacity(ids.len());
        for run in runs(ids) {
            self.database.write(
                what,
                "INSERT OR IGNORE INTO purged_jobs SELECT id FROM jobs WHERE id BETWEEN ? AND ?",
                run,
            )?;
            for sql in [
                "DELETE FROM events WHERE job BETWEEN ? AND ?",
                "DELETE FROM inputs WHERE job BETWEEN ? AND ?",
                pending_facts::DELETE,
            ] {
                self.database.write(what, sql, run)?;
            }
            specs.append(&mut self.remove_job_rows(what, run)?);
        }
        self.remove_unused_common_events(runs(ids))?;
        Ok(specs)
    }

    /// The jobs that were removed, whose data outside of the store may still exist.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn purged_jobs(&self) -> Result<Vec<JobId>, Error> {
        self.job_ids(
            "cannot read the purged jobs",
            "SELECT job FROM purged_jobs WHERE job NOT IN (SELECT id FROM jobs) ORDER BY job",
        )
    }

    /// Forgets removed jobs: they have no data outside of the store any longer.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn forget_purged(&mut self, ids: &[JobId]) -> Result<(), Error> {
        let sql = "DELETE FROM purged_jobs WHERE job BETWEEN ? AND ?";
        for run in runs(ids) {
            self.database.write("cannot forget purged jobs", sql, run)?;
        }
        Ok(())
    }
}

/// Jobs as runs of ids that follow each other: the first and the last id of each.
fn runs(ids: &[JobId]) -> impl Iterator<Item = [i64; 2]> {
    let runs = ids.chunk_by(|one, next| one.get().checked_add(1) == Some(next.get()));
    runs.filter_map(|run| Some([key(*run.first()?), key(*run.last()?)]))
}
