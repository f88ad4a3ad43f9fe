//! Durable job records: one `SQLite` database in WAL mode that any tool can read.
//!
//! Writes are collected in one transaction and become durable together at
//! [`Store::commit`] (group commit): nothing that depends on a write may be
//! sent before that call has returned. Reads see the writes of the open
//! transaction.
//!
//! Every method fails with an [`Error`] if the database does; the writes of the
//! open transaction are lost then.
//!
//! Tables: `meta(key, value)`, `jobspecs(id, text, userid)`, `jobs(id, userid, t_submit,
//! spec, r, bytes)`, `events(job, seq, lines)` (whole RFC 18 lines, one or more a
//! row), `common_events(seq, first, last, step, lines)` (events that the jobs in a range of ids share, but for the step of their
//! timestamps from job to job; `seq` places them between the rows of `events`), `inputs(job, seq, line)` (standard input,
//! RFC 24), `unsent_starts(job)`, `purged_jobs(job)`, `resource_events(seq, line)`,
//! `submissions(seq, userid, token, time, digest, result)`, `open_submissions(first, last)` (the ids of jobs that are not
//! complete: no reader returns them, and a start discards them), `ended_jobs(seq, first, last, queue, result, jobs)` (what
//! a start and sums of usage need of ended jobs, many in a row), `pending_facts(job, events, facts)` (what followed from the
//! first events of a pending job with many), `user_bytes(userid, bytes)` (the bytes that the rows of each
//! user take), `kvs(key, value)` and `store`, a row about the database itself.
//!
//! A file beside the database counts its commits, and tells when it went back in time. [`maintenance`]
//! has what an administrator does with a database.

mod bad_rows;
mod checkpoint;
mod common_events;
mod counted_bytes;
mod counted_rows;
mod database;
mod ended;
mod error;
mod file;
mod generation;
mod ids;
mod log_file;
mod log_space;
mod log_sync;
pub mod maintenance;
mod old_log;
mod open_submissions;
mod pending_facts;
mod purge;
mod records;
mod resource_events;
mod schema;
mod space;
mod submissions;
mod tables;
mod user_bytes;
mod values;

use std::io;
use std::path::Path;
use std::time::Duration;

use penstock_jobspec::job_id::JobId;
use rusqlite::params;

pub use checkpoint::{DueCopy, LogLimits};
use common_events::Run;
pub use counted_bytes::{JOB_BYTES, JOBSPEC_BYTES};
pub use database::Commit;
use database::{Database, key};
pub use ended::{EndedClass, EndedJob, EndedJobs, EndedRow, JobUsage};
pub use error::Error;
use log_space::FRAME_BYTES;
pub use pending_facts::PendingFacts;
use records::{Eventlog, Histories};
pub use records::{JobRecord, JobRow, Jobs};
pub use schema::Synchronous;
pub use space::Space;
pub use submissions::Submission;
pub use tables::BadRow;
use user_bytes::UserBytes;

/// The key of `meta` with the reason why the database has taken the place of another one.
pub const REPLACED_META: &str = "replaced";

/// The number of jobs that are read at a time.
const JOBS_PER_READ: usize = 1000;

/// The tables of one instance.
#[derive(Debug)]
pub struct Store {
    database: Database,
    /// Of a database that is only read: none.
    user_bytes: UserBytes,
}

impl Store {
    /// Opens or creates the database at `path`, or at an address such as `file:NAME?mode=memory&cache=shared`: a database
    /// in memory, whose commits are not counted in a file.
    ///
    /// # Errors
    ///
    /// The database cannot be opened or prepared, was written by a program that uses another format, or lacks changes
    /// that were durable.
    pub fn open(path: &Path, synchronous: Synchronous) -> Result<Self, Error> {
        Self::over(Database::open(path, synchronous)?)
    }

    /// Opens or creates the database at `path` without the counter beside it, for simulation: the path may be one of a file
    /// system that only `SQLite` has, and [`due_copy`](Self::due_copy) returns the checkpoints.
    ///
    /// # Errors
    ///
    /// The database cannot be opened or prepared, or was written by a program that uses another format.
    pub fn open_without_counter(path: &Path, synchronous: Synchronous) -> Result<Self, Error> {
        Self::over(Database::open_without_counter(path, synchronous)?)
    }

    /// Opens the existing database at `path` for reading, also while an instance writes to it.
    ///
    /// # Errors
    ///
    /// The database cannot be opened, or has another format.
    pub fn open_reader(path: &Path) -> Result<Self, Error> {
        Database::open_reader(path).map(Self::reading)
    }

    /// [Closes](Self::close) the database, which is the one at `path`, and opens it for reading, without a
    /// [doubtful commit](Self::has_doubtful_commit).
    ///
    /// # Errors
    ///
    /// The database cannot be opened, or was closed before and may have a doubtful commit.
    pub fn reopen_for_reading(&mut self, path: &Path) -> Result<Self, Error> {
        self.database.reopen_for_reading(path).map(Self::reading)
    }

    /// Opens a database in memory, for tests and simulation.
    ///
    /// # Errors
    ///
    /// The database cannot be opened or prepared.
    pub fn in_memory() -> Result<Self, Error> {
        Self::over(Database::in_memory()?)
    }

    fn over(mut database: Database) -> Result<Self, Error> {
        let user_bytes = UserBytes::read(database.connection())?;
        if user_bytes.has_bad_row() {
            let warning =
                "a row of `user_bytes` cannot be read: the bytes of all users are counted again";
            database.warn(warning);
        }
        Ok(Self {
            database,
            user_bytes,
        })
    }

    fn reading(database: Database) -> Self {
        Self {
            database,
            user_bytes: UserBytes::default(),
        }
    }

    /// Sets the lengths of the log at which it is copied into the database, for simulation: it has few jobs.
    pub fn set_log_limits(&mut self, limits: LogLimits) {
        self.database.set_log_limits(limits);
    }

    /// Whether a commit has failed that may be found when the database is opened again: it could not be overwritten, or
    /// [was synced apart](Self::begin_commit).
    pub fn has_doubtful_commit(&self) -> bool {
        self.database.has_doubtful_commit()
    }

    /// Has checkpoints sync what they copy by a function, for simulation: a thread does it by a descriptor of its own.
    pub fn sync_copies_by(
        &mut self,
        path: &Path,
        sync: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) {
        self.database.sync_copies_by(path, Box::new(sync));
    }

    /// The pages of the log after the last commit.
    pub fn log_pages(&self) -> u64 {
        self.database.log_pages()
    }

    /// The same in bytes.
    pub fn log_bytes(&self) -> u64 {
        self.log_pages() * FRAME_BYTES
    }

    /// Takes the durations of checkpoints since the last call. A program that commits often takes them as often.
    pub fn take_checkpoint_durations(&self) -> Vec<Duration> {
        self.database.take_checkpoint_durations()
    }

    /// Takes the copy of the log into the database that is due, if no thread makes it.
    pub fn due_copy(&self) -> Option<DueCopy> {
        self.database.due_copy()
    }

    /// Makes the copy of the log that is due, if no thread makes it. The next commit reports a failure.
    pub fn run_due_checkpoint(&self) {
        if let Some(due) = self.due_copy() {
            due.run();
        }
    }

    /// Has a function wait for the end of a copy that was [taken](Self::due_copy), for simulation: otherwise a thread is waited
    /// for.
    pub fn wait_for_copies_by(&mut self, wait: fn()) {
        self.database.wait_for_copies_by(wait);
    }

    /// Checks that the existing database at `path` can be written now: a lock that another process holds is not waited for.
    ///
    /// # Errors
    ///
    /// It cannot be opened or written.
    pub fn check_writable(path: &Path) -> Result<(), Error> {
        database::check_writable(path)
    }

    /// Closes the database, unless it is in memory, and discards every write since the last commit: each later call fails.
    /// The last connection that is closed copies the log into the database, also if the log was removed meanwhile.
    pub fn close(&mut self) {
        self.database.close();
    }

    /// For the log: what was noticed when the database was opened.
    pub fn warnings(&self) -> &[String] {
        self.database.warnings()
    }

    /// The greatest id of a job so far, those of removed jobs included.
    pub fn greatest_id(&self) -> JobId {
        self.database.greatest_id()
    }

    /// Why the database has taken the place of another one, until [`forget_replaced`](Self::forget_replaced).
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn replaced(&self) -> Result<Option<String>, Error> {
        match self.meta(REPLACED_META) {
            // A job may run twice if it has and that is not known.
            Err(error) if error.is_damaged() => Ok(Some(error.to_string())),
            reason => Ok(reason?.filter(|reason| !reason.is_empty())),
        }
    }

    /// Forgets that the database has taken the place of another one.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn forget_replaced(&mut self) -> Result<(), Error> {
        self.set_meta(REPLACED_META, "")
    }

    /// Makes every write so far durable. Returns whether there were any since the last commit.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full, or its files were removed or truncated.
    pub fn commit(&mut self) -> Result<bool, Error> {
        let commit = self.begin_commit()?;
        self.finish_sync()?;
        Ok(commit != Commit::Unchanged)
    }

    /// Commits every write since the last commit, without waiting for a slow disk: [`Commit::Syncing`]. Reads see them, and
    /// later writes can be collected, but nothing that depends on any of them may be sent until
    /// [`finish_sync`](Self::finish_sync) has succeeded. Waits for the end of the sync before.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    pub fn begin_commit(&mut self) -> Result<Commit, Error> {
        if self.database.has_uncommitted() {
            self.user_bytes.write(&mut self.database)?;
        }
        self.database.begin_commit()
    }

    /// Waits for the end of the sync that [`begin_commit`](Self::begin_commit) has begun, if there is one. Returns whether
    /// there was.
    ///
    /// # Errors
    ///
    /// The log could not be synced: a start may find the commit, or not.
    pub fn finish_sync(&mut self) -> Result<bool, Error> {
        self.database.finish_sync()
    }

    /// Whether a sync is under way: [`finish_sync`](Self::finish_sync) would wait.
    pub fn is_syncing(&self) -> bool {
        self.database.is_syncing()
    }

    /// Has a thread sync the commits while the disk is slow. It calls `notify` at the end of each sync.
    ///
    /// # Errors
    ///
    /// The log cannot be opened.
    pub fn sync_in_thread(&mut self, notify: impl Fn() + Send + 'static) -> Result<(), Error> {
        self.database.sync_in_thread(Box::new(notify))
    }

    /// Has the thread sync each commit, for tests: otherwise it depends on the disk.
    pub fn expect_slow_syncs(&mut self) {
        self.database.expect_slow_syncs();
    }

    /// Has [`finish_sync`](Self::finish_sync) sync each commit by a function, for simulation.
    pub fn sync_log_by(
        &mut self,
        path: &Path,
        sync: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) {
        self.database.sync_log_by(path, Box::new(sync));
    }

    /// Discards every write since the last commit.
    ///
    /// # Errors
    ///
    /// The database fails.
    pub fn roll_back(&mut self) -> Result<(), Error> {
        self.database.roll_back()?;
        self.user_bytes = UserBytes::read(self.database.connection())?;
        Ok(())
    }

    /// Whether there are writes since the last commit.
    pub fn has_uncommitted(&self) -> bool {
        self.database.has_uncommitted()
    }

    /// The pages of the database, without its log.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn space(&self) -> Result<Space, Error> {
        space::read(self.database.connection())
    }

    /// Releases free pages beyond those that are kept for later writes, `max` at most: the file is shorter after the next
    /// commit, once the log has been copied into it. Returns the number of pages.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn release_pages(&mut self, max: u64) -> Result<u64, Error> {
        self.database.release_pages(max)
    }

    /// A value of the instance itself, such as its epoch.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn meta(&self, key: &str) -> Result<Option<String>, Error> {
        self.database.read(
            "cannot read meta",
            "SELECT value FROM meta WHERE key = ?",
            [key],
        )
    }

    /// The keys of the values of the instance itself that are texts.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn meta_keys(&self) -> Result<Vec<String>, Error> {
        let connection = self.database.connection();
        let keys = connection
            .prepare_cached("SELECT key FROM meta ORDER BY key")
            .and_then(|mut statement| {
                let keys = statement.query_map([], |row| Ok(row.get(0).ok()))?;
                keys.filter_map(Result::transpose).collect()
            });
        keys.map_err(|source| Error::new("cannot read meta", &source))
    }

    /// Sets a value of the instance itself.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn set_meta(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.database.write(
            "cannot write meta",
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
            [key, value],
        )
        .map(drop)
    }

    /// Stores a jobspec's text, which a user has brought, and returns the key by which jobs refer to it.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn add_jobspec(&mut self, userid: u32, text: &str) -> Result<i64, Error> {
        self.database.write(
            "cannot write a jobspec",
            "INSERT INTO jobspecs(text, userid) VALUES (?, ?)",
            params![text, userid],
        )?;
        self.user_bytes
            .add(userid, JOBSPEC_BYTES + text.len() as u64);
        Ok(self.database.connection().last_insert_rowid())
    }

    /// The text of a jobspec.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn jobspec(&self, spec: i64) -> Result<Option<String>, Error> {
        self.database.read(
            "cannot read a jobspec",
            "SELECT text FROM jobspecs WHERE id = ?",
            [spec],
        )
    }

    /// Adds a job. Its events follow by [`Store::append_events`].
    ///
    /// # Errors
    ///
    /// A job with this id is stored, or the database fails.
    pub fn add_job(
        &mut self,
        id: JobId,
        userid: u32,
        t_submit: f64,
        spec: i64,
    ) -> Result<(), Error> {
        self.database.count_id(id);
        self.database.write(
            "cannot write a job",
            "INSERT INTO jobs(id, userid, t_submit, spec) VALUES (?, ?, ?, ?)",
            params![key(id), userid, t_submit, spec],
        )?;
        self.user_bytes.add(userid, JOB_BYTES);
        Ok(())
    }

    /// Appends whole event lines to a job's eventlog; `seq` grows with every call for the job.
    ///
    /// # Errors
    ///
    /// The job has lines of this `seq`, or the database fails.
    pub fn append_events(&mut self, id: JobId, seq: u32, lines: &str) -> Result<(), Error> {
        self.database
            .write(
                "cannot write events",
                "INSERT INTO events VALUES (?, ?, ?)",
                params![key(id), seq, lines],
            )
            .map(drop)
    }

    /// Appends event lines of several jobs in the order of their ids, as [`append_events`](Self::append_events) does. Jobs with
    /// successive ids share a row if their lines differ by a constant step of their timestamps alone.
    ///
    /// # Errors
    ///
    /// A job has lines of its `seq`, or the database fails.
    pub fn append_events_of(
        &mut self,
        jobs: impl IntoIterator<Item = (JobId, u32, String)>,
    ) -> Result<(), Error> {
        let mut run: Option<Run> = None;
        for (id, seq, lines) in jobs {
            if run.as_mut().is_some_and(|run| run.add(id, seq, &lines)) {
                continue;
            }
            if let Some(run) = run.replace(Run::new(id, seq, lines)) {
                self.append_run(&run)?;
            }
        }
        run.map_or(Ok(()), |run| self.append_run(&run))
    }

    fn append_run(&mut self, run: &Run) -> Result<(), Error> {
        if run.first == run.last {
            return self.append_events(run.first, run.seq, &run.lines);
        }
        if !run.is_long() {
            for (id, lines) in run.jobs() {
                self.append_events(id, run.seq, &lines)?;
            }
            return Ok(());
        }
        let row = params![run.seq, key(run.first), key(run.last), run.step, run.lines];
        self.database
            .write("cannot write events", common_events::INSERT, row)
            .map(drop)
    }

    /// Stores the first event lines of the jobs with ids from `first` to `last`, which belong to one submission. Further lines
    /// follow by [`Store::append_events`], with a `seq` that is the number of these at least. A second call with the same
    /// `first` and a greater `last` has further jobs share them.
    ///
    /// # Errors
    ///
    /// The database fails.
    pub fn add_common_events(
        &mut self,
        first: JobId,
        last: JobId,
        lines: &str,
    ) -> Result<(), Error> {
        self.database
            .write(
                "cannot write events",
                common_events::SET_FIRST,
                params![key(first), key(last), lines],
            )
            .map(drop)
    }

    /// Removes shared events of which the jobs in ranges of ids, each from the first to the second one, were the last ones.
    fn remove_unused_common_events(
        &mut self,
        ranges: impl IntoIterator<Item = [i64; 2]>,
    ) -> Result<(), Error> {
        let what = "cannot remove shared events";
        let seqs = common_events::seqs(self.database.connection())
            .map_err(|source| Error::new(what, &source))?;
        for [first, last] in ranges {
            for seq in &seqs {
                let sql = common_events::DELETE_UNUSED;
                self.database.write(what, sql, [first, last, *seq])?;
            }
        }
        Ok(())
    }

    /// The whole eventlog of a job; empty if it has none.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn eventlog(&self, id: JobId) -> Result<String, Error> {
        let events = self.events(id, 0);
        let events = events.map_err(|source| Error::new("cannot read an eventlog", &source))?;
        Ok(events.into_text())
    }

    /// The length of a job's own events, in bytes, without those that it shares with other jobs.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn eventlog_bytes(&self, id: JobId) -> Result<u64, Error> {
        let query = "SELECT coalesce(sum(octet_length(lines)), 0) FROM events WHERE job = ?";
        let connection = self.database.connection();
        let bytes = connection
            .prepare_cached(query)
            .and_then(|mut statement| statement.query_row([key(id)], |row| row.get(0)));
        let bytes = bytes.map(i64::cast_unsigned);
        bytes.map_err(|source| Error::new("cannot read the length of an eventlog", &source))
    }

    /// The events of a job after the first ones, whose number is that of known facts.
    fn events(&self, id: JobId, known: u32) -> rusqlite::Result<Eventlog> {
        let connection = self.database.connection();
        let query = "SELECT seq, lines FROM events WHERE job = ? AND seq >= ? ORDER BY seq";
        let mut statement = connection.prepare_cached(query)?;
        // A number below 0 is an error to be noticed.
        let first = if known == 0 {
            i64::MIN
        } else {
            i64::from(known)
        };
        let own = statement
            .query_map([key(id), first], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        // A row of shared events stays until the last of its jobs is removed.
        let mut is_stored = connection.prepare_cached("SELECT 1 FROM jobs WHERE id = ?")?;
        let shared = if is_stored.exists([key(id)])? {
            common_events::of_job(connection, key(id))?
        } else {
            Vec::new()
        };
        Ok(Eventlog::new(known, shared.into_iter(), own))
    }

    /// Sets a job's R. Returns false if the job is unknown.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn set_r(&mut self, id: JobId, text: &str) -> Result<bool, Error> {
        let rows = self.database.write(
            "cannot write R",
            "UPDATE jobs SET r = ? WHERE id = ?",
            params![text, key(id)],
        )?;
        Ok(rows > 0)
    }

    /// Removes a job's R: the commit did not become an allocation.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn clear_r(&mut self, id: JobId) -> Result<(), Error> {
        self.database
            .write(
                "cannot remove R",
                "UPDATE jobs SET r = NULL WHERE id = ?",
                [key(id)],
            )
            .map(drop)
    }

    /// A job's R as last set.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn r(&self, id: JobId) -> Result<Option<String>, Error> {
        let r = self.database.read::<Option<String>>(
            "cannot read R",
            "SELECT r FROM jobs WHERE id = ?",
            [key(id)],
        )?;
        Ok(r.flatten())
    }

    /// Makes a job refer to another jobspec.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn set_spec(&mut self, id: JobId, spec: i64) -> Result<(), Error> {
        self.database
            .write(
                "cannot write a job's jobspec",
                "UPDATE jobs SET spec = ? WHERE id = ?",
                params![spec, key(id)],
            )
            .map(drop)
    }

    /// Marks a job: it is due to start, and its start was sent to no execution service.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn add_unsent_start(&mut self, id: JobId) -> Result<(), Error> {
        self.database
            .write(
                "cannot mark an unsent start",
                "INSERT OR IGNORE INTO unsent_starts VALUES (?)",
                [key(id)],
            )
            .map(drop)
    }

    /// Removes the mark of a job whose start is sent or given up.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_unsent_start(&mut self, id: JobId) -> Result<(), Error> {
        self.database
            .write(
                "cannot remove the mark of an unsent start",
                "DELETE FROM unsent_starts WHERE job = ?",
                [key(id)],
            )
            .map(drop)
    }

    /// The jobs that are marked as due to start and not sent to an execution service, the oldest first.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn unsent_starts(&self) -> Result<Vec<JobId>, Error> {
        self.job_ids(
            "cannot read unsent starts",
            "SELECT job FROM unsent_starts ORDER BY job",
        )
    }

    /// Whether a job of this id is stored.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn has_job(&self, id: JobId) -> Result<bool, Error> {
        let found = self.database.read::<i64>(
            "cannot read a job",
            "SELECT id FROM jobs WHERE id = ?",
            [key(id)],
        )?;
        Ok(found.is_some())
    }

    /// One job; `None` if there is none with this id.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn job(&self, id: JobId) -> Result<Option<JobRecord>, Error> {
        self.read_job(id, None)
    }

    /// One job with its events after known facts, or all of them.
    fn read_job(&self, id: JobId, facts: Option<PendingFacts>) -> Result<Option<JobRecord>, Error> {
        let known = facts.as_ref().map_or(0, |facts| facts.events);
        let read = || {
            let connection = self.database.connection();
            let query = "SELECT userid, t_submit, spec, r FROM jobs WHERE id = ?";
            let mut statement = connection.prepare_cached(query)?;
            let mut rows = statement.query([key(id)])?;
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            records::record(key(id), row, facts, self.events(id, known)?).map(Some)
        };
        read().map_err(|source: rusqlite::Error| Error::new("cannot read a job", &source))
    }

    /// Reads one job as [`jobs_to_restore`](Self::jobs_to_restore) does; `None` if the store has no job with this id.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn job_to_restore(&self, id: JobId) -> Result<Option<JobRecord>, Error> {
        let facts = self.pending_facts(id)?;
        self.read_job(id, facts)
    }

    /// The row of one job, without its events; `None` if there is no job with this id.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn job_row(&self, id: JobId) -> Result<Option<JobRow>, Error> {
        records::read_row(self.database.connection(), id)
            .map_err(|source| Error::new("cannot read a job", &source))
    }

    /// Every job, the oldest first, without those of submissions that are not complete. All are in memory:
    /// see [`visit_jobs`](Self::visit_jobs).
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn jobs(&self) -> Result<Jobs, Error> {
        let mut all = Jobs::default();
        self.visit_jobs(|read| {
            all.records.extend(read.records);
            all.damaged.extend(read.damaged);
            Ok(())
        })?;
        Ok(all)
    }

    /// Calls a function with every job, as [`jobs_after`](Self::jobs_after) reads some at a time.
    ///
    /// # Errors
    ///
    /// The database cannot be read, or the function fails.
    pub fn visit_jobs(
        &self,
        mut visit: impl FnMut(Jobs) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut last = None;
        loop {
            let read = self.jobs_after(last, JOBS_PER_READ, &EndedJobs::default())?;
            last = read.last;
            visit(read)?;
            if last.is_none() {
                return Ok(());
            }
        }
    }

    /// The jobs after one, or the first ones, `max` at most and the oldest first, without those of submissions that are not
    /// complete. Of those in `ended` the eventlogs are not read. There are fewer if their events are long.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn jobs_after(
        &self,
        after: Option<JobId>,
        max: usize,
        ended: &EndedJobs,
    ) -> Result<Jobs, Error> {
        let histories = Histories::Whole;
        records::read(self.database.connection(), after, max, ended, histories)
    }

    /// The same, but that of jobs with [`PendingFacts`] only later events are read.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn jobs_to_restore(
        &self,
        after: Option<JobId>,
        max: usize,
        ended: &EndedJobs,
    ) -> Result<Jobs, Error> {
        let histories = Histories::SinceFacts;
        records::read(self.database.connection(), after, max, ended, histories)
    }

    /// Stores the facts of a job after all events that it has in the store, in the place of earlier ones.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn set_pending_facts(&mut self, id: JobId, events: u32, text: &str) -> Result<(), Error> {
        self.database
            .write(
                "cannot write the facts of a pending job",
                pending_facts::SET,
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
                pending_facts::DELETE,
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

    /// Adds what a start and sums of usage need of ended jobs with the same queue and result. Their events are in the store.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn add_ended_jobs(
        &mut self,
        class: &EndedClass,
        jobs: &[(EndedJob, JobUsage)],
    ) -> Result<(), Error> {
        let ids = || jobs.iter().map(|(job, _)| key(job.id));
        let (Some(first), Some(last)) = (ids().min(), ids().max()) else {
            return Ok(());
        };
        self.database
            .write(
                "cannot write ended jobs",
                ended::INSERT,
                params![first, last, class.queue, class.result, ended::encode(jobs)],
            )
            .map(drop)
    }

    /// The ended jobs that were [added](Self::add_ended_jobs). Some may have been removed since.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn ended_jobs(&self) -> Result<EndedJobs, Error> {
        EndedJobs::read(self.database.connection())
            .map_err(|error| Error::new("cannot read the ended jobs", &error))
    }

    /// The next rows of ended jobs after one, at most `max`. Some of the jobs may have been removed since.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn ended_rows(&self, after: i64, max: u32) -> Result<Vec<EndedRow>, Error> {
        EndedRow::read(self.database.connection(), after, max)
            .map_err(|error| Error::new("cannot read the ended jobs", &error))
    }

    /// Removes the rows of ended jobs that may have a job.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_ended_rows_of(&mut self, id: JobId) -> Result<(), Error> {
        let what = "cannot remove ended jobs";
        self.database
            .write(what, ended::DELETE_ROWS_OF, [key(id)])
            .map(drop)
    }

    /// Removes what was stored of ended jobs that were removed, from the rows after one: all of them, or the next `max`.
    /// Returns the last of these if there may be later ones.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_unused_ended_jobs(
        &mut self,
        after: i64,
        max: Option<u32>,
    ) -> Result<Option<i64>, Error> {
        let what = "cannot remove ended jobs";
        let last = match max {
            Some(max) => {
                let values = params![after, max.saturating_sub(1)];
                self.database.read(what, ended::SELECT_LAST_OF, values)?
            }
            None => None,
        };
        let rows = [after, last.unwrap_or(i64::MAX)];
        self.database.write(what, ended::DELETE_UNUSED, rows)?;
        Ok(last)
    }

    fn job_ids(&self, what: &str, sql: &str) -> Result<Vec<JobId>, Error> {
        let wrap = |source: rusqlite::Error| Error::new(what, &source);
        let mut statement = self.database.connection().prepare(sql).map_err(wrap)?;
        let ids = statement
            .query_map([], |row| row.get(0))
            .map_err(wrap)?
            .map(|id| id.map(|id: i64| JobId::new(id.cast_unsigned())));
        ids.collect::<Result<_, _>>().map_err(wrap)
    }

    /// The log of a job's standard input, empty if there is none.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn input(&self, id: JobId) -> Result<String, Error> {
        let read = || {
            let sql = "SELECT line FROM inputs WHERE job = ? ORDER BY seq";
            let mut statement = self.database.connection().prepare_cached(sql)?;
            let lines = statement.query_map([key(id)], |row| row.get::<_, String>(0))?;
            lines.collect::<rusqlite::Result<String>>()
        };
        read().map_err(|source| Error::new("cannot read standard input", &source))
    }
}

#[cfg(test)]
mod tests;
