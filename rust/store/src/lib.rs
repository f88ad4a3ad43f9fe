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
//! Tables: `meta(key, value)`, `jobspecs(id, text)`, `jobs(id, userid, t_submit,
//! spec, r)`, `events(job, seq, lines)` (whole RFC 18 lines, one or more a
//! row), `common_events(first, last, lines)` (the first events of the jobs in a range of ids, those of one submission: the
//! rows of `events` follow them), `unsent_starts(job)`, `purged_jobs(job)`, `resource_events(seq, line)`,
//! `submissions(seq, userid, token, time, digest, result)`, `open_submissions(first, last)` (the ids of jobs that are not
//! complete: no reader returns them, and a start discards them), `ended_jobs(seq, first, last, queue, result, jobs)` (what
//! a start needs of ended jobs, many in a row), `kvs(key, value)` and `store`, a row about the database itself.
//!
//! A file beside the database counts its commits, and tells when it went back in time. [`maintenance`]
//! has what an administrator does with a database.

mod common_events;
mod ended;
mod error;
mod generation;
pub mod maintenance;
mod schema;
mod space;
mod submissions;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_jobspec::job_id::JobId;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use common_events::CommonEvents;
pub use ended::{EndedClass, EndedJob, EndedJobs};
pub use error::Error;
use generation::{Counter, Files, Progress};
pub use schema::Synchronous;
pub use space::Space;
pub use submissions::Submission;

/// A stored job: its record and its eventlog.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// Job id (FLUID, RFC 19).
    pub id: JobId,
    /// The submitting user.
    pub userid: u32,
    /// Key of the jobspec, shared by equal jobs.
    pub spec: i64,
    /// R as committed, if it was.
    pub r: Option<String>,
    /// The first event lines (RFC 18), if it shares them with the other jobs of its submission. Each line has its newline.
    pub common_events: Option<Arc<str>>,
    /// The other event lines.
    pub own_events: String,
}

impl JobRecord {
    /// All event lines.
    pub fn eventlog(&self) -> String {
        let common = self.common_events.as_deref().unwrap_or_default();
        [common, &self.own_events].concat()
    }
}

/// Jobs of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobs {
    /// The jobs, the oldest first.
    pub records: Vec<JobRecord>,
    /// The [ended jobs](Store::ended_jobs) between them, whose eventlogs were not read.
    pub ended: Vec<(EndedJob, EndedClass)>,
    /// The last job that was read, if there may be later ones.
    pub last: Option<JobId>,
    /// For the log: the rows that cannot be read, and why.
    pub damaged: Vec<String>,
}

/// The database of one instance.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    open: bool,
    synchronous: Synchronous,
    progress: Progress,
    /// The files of the database; `None` for one in memory.
    files: Option<StoreFiles>,
    warnings: Vec<String>,
}

/// The files of a store, and its open counter.
#[derive(Debug)]
struct StoreFiles {
    counter: Counter,
    files: Files,
}

/// With `synchronous=normal`: the number of commits after which the log is copied into the database, which makes them
/// survive a power failure.
const CHECKPOINT_COMMITS: u64 = 1000;

/// The longest wait of a reader for a lock that another process holds.
const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// The key of `meta` with the reason why the database has taken the place of another one.
const REPLACED_META: &str = "replaced";

impl Store {
    /// Opens or creates the database at `path`, or at an address such as `file:NAME?mode=memory&cache=shared`: a database
    /// in memory, whose commits are not counted in a file.
    ///
    /// # Errors
    ///
    /// The database cannot be opened or prepared, was written by a program that uses another format, or lacks changes
    /// that were durable.
    pub fn open(path: &Path, synchronous: Synchronous) -> Result<Self, Error> {
        if is_in_memory(path) {
            return Self::open_without_counter(path, synchronous);
        }
        let counter = generation::counter_path(path);
        let is_empty = path.metadata().map_or(true, |metadata| metadata.len() == 0);
        if is_empty && counter.exists() {
            return Err(Error::lost(&format!(
                "`{}` is missing or empty, although `{}` counts its commits\n\
                 hint: `penstock store restore BACKUP` puts a back-up in its place; to begin without jobs, \
                 remove the second file",
                path.display(),
                counter.display()
            )));
        }
        let mut store = Self::prepare(connect(path)?, synchronous)?;
        let known = generation::read_counter(path)?;
        if let Some(known) = known {
            let warning = known.check(&store.progress, path)?;
            store.warnings.extend(warning);
            store.progress.greatest_id = store.progress.greatest_id.max(known.greatest_id);
            store.progress.durable = known.durable;
        } else {
            if store.progress.generation > 0 {
                store.warnings.push(format!(
                    "`{}` is missing or invalid: whether the database went back in time is unknown",
                    counter.display()
                ));
            }
            generation::write_counter(path, &store.progress)?;
        }
        let warning = space::make_shrinkable(&store.connection)?;
        store.warnings.extend(warning);
        store.files = Some(StoreFiles {
            counter: Counter::open(path)?,
            files: Files::of(path)?,
        });
        Ok(store)
    }

    /// Opens or creates the database at `path` without the counter beside it, for simulation: the path may be one of a file
    /// system that only `SQLite` has.
    ///
    /// # Errors
    ///
    /// The database cannot be opened or prepared, or was written by a program that uses another format.
    pub fn open_without_counter(path: &Path, synchronous: Synchronous) -> Result<Self, Error> {
        Self::prepare(connect(path)?, synchronous)
    }

    /// Opens the existing database at `path` for reading, also while an instance writes to it.
    ///
    /// # Errors
    ///
    /// The database cannot be opened, or has another format.
    pub fn open_reader(path: &Path) -> Result<Self, Error> {
        let connection = connect_reader(path)?;
        let found = schema::format_version(&connection)?;
        if found != schema::FORMAT_VERSION {
            return Err(Error::format(found, schema::FORMAT_VERSION));
        }
        Self::with(connection, Synchronous::Full)
    }

    /// Checks that the existing database at `path` can be written now: a lock that another process holds is not waited for.
    ///
    /// # Errors
    ///
    /// It cannot be opened or written.
    pub fn check_writable(path: &Path) -> Result<(), Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(path, flags)
            .and_then(|connection| {
                connection.busy_timeout(Duration::ZERO)?;
                connection.execute_batch(
                    "BEGIN IMMEDIATE; UPDATE store SET generation = generation; COMMIT",
                )
            })
            .map_err(|error| Error::new("cannot write", &error))
    }

    /// Opens a database in memory, for tests and simulation.
    ///
    /// # Errors
    ///
    /// The database cannot be opened or prepared.
    pub fn in_memory() -> Result<Self, Error> {
        let connection = Connection::open_in_memory()
            .map_err(|source| Error::new("cannot open a store in memory", &source))?;
        Self::prepare(connection, Synchronous::Normal)
    }

    fn prepare(connection: Connection, synchronous: Synchronous) -> Result<Self, Error> {
        schema::prepare(&connection, synchronous)?;
        Self::with(connection, synchronous)
    }

    fn with(connection: Connection, synchronous: Synchronous) -> Result<Self, Error> {
        connection.set_prepared_statement_cache_capacity(32);
        let progress = read_progress(&connection)?;
        Ok(Self {
            connection,
            open: false,
            synchronous,
            progress,
            files: None,
            warnings: Vec::new(),
        })
    }

    /// Closes the database, unless it is in memory, and discards every write since the last commit: each later call fails.
    /// The last connection that is closed copies the log into the database, also if the log was removed meanwhile.
    pub fn close(&mut self) {
        if self.files.take().is_none() {
            // A database in memory would not survive.
            let _ = self.roll_back();
            return;
        }
        self.open = false;
        // A database without tables.
        if let Ok(empty) = Connection::open_in_memory() {
            self.connection = empty;
        }
    }

    /// For the log: what was noticed when the database was opened.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The greatest id of a job so far, those of removed jobs included.
    pub fn greatest_id(&self) -> JobId {
        self.progress.greatest_id
    }

    /// Why the database has taken the place of another one, until [`forget_replaced`](Self::forget_replaced).
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn replaced(&self) -> Result<Option<String>, Error> {
        let reason = self.meta(REPLACED_META)?;
        Ok(reason.filter(|reason| !reason.is_empty()))
    }

    /// Forgets that the database has taken the place of another one.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn forget_replaced(&mut self) -> Result<(), Error> {
        self.set_meta(REPLACED_META, "")
    }

    /// Makes every write since the last commit durable. Returns whether there were any.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full, or its files were removed.
    pub fn commit(&mut self) -> Result<bool, Error> {
        if !self.open {
            return Ok(false);
        }
        let generation = self.progress.generation + 1;
        let greatest_id = key(self.progress.greatest_id);
        self.write(
            "cannot count the commit",
            "UPDATE store SET generation = ?, greatest_id = ?",
            params![generation.cast_signed(), greatest_id],
        )?;
        self.execute("COMMIT")
            .map_err(|source| Error::new("cannot commit", &source))?;
        self.open = false;
        self.progress.generation = generation;
        self.record_commit()?;
        Ok(true)
    }

    /// Records a commit outside of the database.
    fn record_commit(&mut self) -> Result<(), Error> {
        let Some(files) = &self.files else {
            return Ok(());
        };
        files.files.check()?;
        match self.synchronous {
            Synchronous::Full => self.progress.durable = self.progress.generation,
            Synchronous::Normal => {
                let unsynced = self.progress.generation - self.progress.durable;
                if unsynced >= CHECKPOINT_COMMITS && is_checkpointed(&self.connection)? {
                    self.progress.durable = self.progress.generation;
                }
            }
        }
        files.counter.write(&self.progress);
        Ok(())
    }

    /// Discards every write since the last commit.
    ///
    /// # Errors
    ///
    /// The database fails.
    pub fn roll_back(&mut self) -> Result<(), Error> {
        self.open = false;
        // After some errors SQLite has rolled the transaction back by itself.
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.connection
            .execute_batch("ROLLBACK")
            .map_err(|source| Error::new("cannot roll back", &source))
    }

    /// Whether there are writes since the last commit.
    pub fn has_uncommitted(&self) -> bool {
        self.open
    }

    fn begin(&mut self) -> Result<(), Error> {
        if !self.open {
            self.execute("BEGIN IMMEDIATE")
                .map_err(|source| Error::new("cannot begin a transaction", &source))?;
            self.open = true;
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute([])
    }

    fn write(
        &mut self,
        what: &str,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<usize, Error> {
        self.begin()?;
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .map_err(|source| Error::new(what, &source))
    }

    fn read<T: rusqlite::types::FromSql>(
        &self,
        what: &str,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<Option<T>, Error> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(values, |row| row.get(0)).optional())
            .map_err(|source| Error::new(what, &source))
    }

    /// The pages of the database, without its log.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn space(&self) -> Result<Space, Error> {
        space::read(&self.connection)
    }

    /// Releases free pages beyond those that are kept for later writes, `max` at most: the file is shorter after the next
    /// commit, once the log has been copied into it. Returns the number of pages.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn release_pages(&mut self, max: u64) -> Result<u64, Error> {
        let pages = self.space()?.excess_pages().min(max);
        if pages == 0 || !space::is_incremental(&self.connection)? {
            return Ok(0);
        }
        self.begin()?;
        space::release(&self.connection, pages)
    }

    /// A value of the instance itself, such as its epoch.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn meta(&self, key: &str) -> Result<Option<String>, Error> {
        self.read(
            "cannot read meta",
            "SELECT value FROM meta WHERE key = ?",
            [key],
        )
    }

    /// Sets a value of the instance itself.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn set_meta(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.write(
            "cannot write meta",
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
            [key, value],
        )
        .map(drop)
    }

    /// Stores a jobspec's text and returns the key by which jobs refer to it.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn add_jobspec(&mut self, text: &str) -> Result<i64, Error> {
        self.write(
            "cannot write a jobspec",
            "INSERT INTO jobspecs(text) VALUES (?)",
            [text],
        )?;
        Ok(self.connection.last_insert_rowid())
    }

    /// The text of a jobspec.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn jobspec(&self, spec: i64) -> Result<Option<String>, Error> {
        self.read(
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
        self.progress.greatest_id = self.progress.greatest_id.max(id);
        self.write(
            "cannot write a job",
            "INSERT INTO jobs(id, userid, t_submit, spec) VALUES (?, ?, ?, ?)",
            params![key(id), userid, t_submit, spec],
        )
        .map(drop)
    }

    /// Appends whole event lines to a job's eventlog; `seq` grows with every call for the job.
    ///
    /// # Errors
    ///
    /// The job has lines of this `seq`, or the database fails.
    pub fn append_events(&mut self, id: JobId, seq: u32, lines: &str) -> Result<(), Error> {
        self.write(
            "cannot write events",
            "INSERT INTO events VALUES (?, ?, ?)",
            params![key(id), seq, lines],
        )
        .map(drop)
    }

    /// Stores the first event lines of the jobs with ids from `first` to `last`, which belong to one submission. Further lines
    /// follow by [`Store::append_events`], with a `seq` that is the number of these at least.
    ///
    /// # Errors
    ///
    /// There is such a row from `first` on, or the database fails.
    pub fn add_common_events(
        &mut self,
        first: JobId,
        last: JobId,
        lines: &str,
    ) -> Result<(), Error> {
        self.write(
            "cannot write events",
            common_events::INSERT,
            params![key(first), key(last), lines],
        )
        .map(drop)
    }

    fn common_events(&self, id: JobId) -> Result<Option<String>, Error> {
        let what = "cannot read an eventlog";
        let lines = self.read::<Option<String>>(what, common_events::SELECT, [key(id)])?;
        Ok(lines.flatten())
    }

    fn remove_unused_common_events(&mut self, id: JobId) -> Result<(), Error> {
        let what = "cannot remove a job";
        self.write(what, common_events::DELETE_UNUSED, [key(id), key(id)])
            .map(drop)
    }

    /// The whole eventlog of a job; empty if it has none.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn eventlog(&self, id: JobId) -> Result<String, Error> {
        let own = self.own_events(id)?;
        Ok(match self.common_events(id)? {
            Some(common) => common + &own,
            None => own,
        })
    }

    fn own_events(&self, id: JobId) -> Result<String, Error> {
        let log = self.read::<String>(
            "cannot read an eventlog",
            "SELECT group_concat(lines, '') FROM \
             (SELECT lines FROM events WHERE job = ? ORDER BY seq) HAVING count(*) > 0",
            [key(id)],
        )?;
        Ok(log.unwrap_or_default())
    }

    /// Sets a job's R. Returns false if the job is unknown.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn set_r(&mut self, id: JobId, text: &str) -> Result<bool, Error> {
        let rows = self.write(
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
        self.write(
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
        let r = self.read::<Option<String>>(
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
        self.write(
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
        self.write(
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
        self.write(
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
        let found = self.read::<i64>(
            "cannot read a job",
            "SELECT id FROM jobs WHERE id = ?",
            [key(id)],
        )?;
        Ok(found.is_some())
    }

    /// Removes jobs: their records, R and events. Their jobspecs stay, as other jobs may share them. The jobs are
    /// remembered as purged until [`Store::forget_purged`]. Returns the key of the jobspec of each.
    ///
    /// Jobs whose ids follow each other, as those of a submission do, are removed together.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_jobs(&mut self, ids: &[JobId]) -> Result<Vec<(JobId, i64)>, Error> {
        let what = "cannot remove jobs";
        let wrap = |source: rusqlite::Error| Error::new(what, &source);
        let mut specs = Vec::with_capacity(ids.len());
        for run in runs(ids) {
            self.write(
                what,
                "INSERT OR IGNORE INTO purged_jobs SELECT id FROM jobs WHERE id BETWEEN ? AND ?",
                run,
            )?;
            let sql = "DELETE FROM events WHERE job BETWEEN ? AND ?";
            self.write(what, sql, run)?;
            let sql = "DELETE FROM jobs WHERE id BETWEEN ? AND ? RETURNING id, spec";
            let mut statement = self.connection.prepare_cached(sql).map_err(wrap)?;
            let removed = statement.query_map(run, |row| {
                let id: i64 = row.get(0)?;
                Ok((JobId::new(id.cast_unsigned()), row.get(1)?))
            });
            let removed: rusqlite::Result<Vec<_>> = removed.and_then(Iterator::collect);
            specs.extend(removed.map_err(wrap)?);
            drop(statement);
            self.write(what, common_events::DELETE_UNUSED, run)?;
        }
        Ok(specs)
    }

    /// Marks the jobs with ids from `first` to `last` as those of a submission that is not complete, until
    /// [`close_submission`](Self::close_submission). A greater `last` replaces the one before.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn open_submission(&mut self, first: JobId, last: JobId) -> Result<(), Error> {
        self.write(
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
        self.write(
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
        self.write(what, "DELETE FROM events WHERE job = ?", [key(id)])?;
        let sql = "DELETE FROM jobs WHERE id = ? RETURNING spec";
        let spec = self.read(what, sql, [key(id)])?;
        self.remove_unused_common_events(id)?;
        Ok(spec)
    }

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
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(values, read)?.collect())
            .map_err(|source| Error::new("cannot read the ids of jobs", &source))
    }

    /// Removes a jobspec to which no job refers any longer.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_jobspec(&mut self, spec: i64) -> Result<(), Error> {
        self.write(
            "cannot remove a jobspec",
            "DELETE FROM jobspecs WHERE id = ?",
            [spec],
        )
        .map(drop)
    }

    /// One job; `None` if there is none with this id.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn job(&self, id: JobId) -> Result<Option<JobRecord>, Error> {
        let row = self
            .connection
            .prepare_cached("SELECT userid, spec, r FROM jobs WHERE id = ?")
            .and_then(|mut statement| {
                let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                statement.query_row([key(id)], columns).optional()
            })
            .map_err(|source| Error::new("cannot read a job", &source))?;
        let Some((userid, spec, r)) = row else {
            return Ok(None);
        };
        Ok(Some(JobRecord {
            id,
            userid,
            spec,
            r,
            common_events: self.common_events(id)?.map(Arc::from),
            own_events: self.own_events(id)?,
        }))
    }

    /// Every job, the oldest first, without those of submissions that are not complete.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn jobs(&self) -> Result<Jobs, Error> {
        self.jobs_after(None, usize::MAX, &EndedJobs::default())
    }

    /// The jobs after one, or the first ones, `max` at most and the oldest first, without those of submissions that are not
    /// complete. Of those in `ended` the eventlogs are not read.
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
        let what = "cannot read the jobs";
        let wrap = |source: rusqlite::Error| Error::new(what, &source);
        let after = after.map_or(i64::MIN, key);
        let mut jobs = Jobs::default();
        let mut common = CommonEvents::new(&self.connection);
        let mut select_logs = self
            .connection
            .prepare_cached("SELECT job, lines, seq FROM events WHERE job > ? ORDER BY job, seq")
            .map_err(wrap)?;
        let mut logs = select_logs.query([after]).map_err(wrap)?;
        let mut next = next_lines(&mut logs, &mut jobs.damaged)?;
        let mut are_logs_behind = false;
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT id, userid, spec, r FROM jobs WHERE id > ? AND NOT EXISTS \
                 (SELECT 1 FROM open_submissions WHERE jobs.id BETWEEN first AND last) ORDER BY id",
            )
            .map_err(wrap)?;
        let mut rows = statement.query([after]).map_err(wrap)?;
        while let Some(row) = rows.next().map_err(wrap)? {
            let id: i64 = row.get(0).map_err(wrap)?;
            if let Some(found) = ended.find(JobId::new(id.cast_unsigned())) {
                are_logs_behind = true;
                jobs.ended.push(found);
                if jobs.records.len() + jobs.ended.len() >= max {
                    jobs.last = Some(JobId::new(id.cast_unsigned()));
                    break;
                }
                continue;
            }
            if std::mem::take(&mut are_logs_behind) {
                drop(logs);
                logs = select_logs.query([id.saturating_sub(1)]).map_err(wrap)?;
                next = next_lines(&mut logs, &mut jobs.damaged)?;
            }
            let common_events = common.of(id);
            let mut own_events: rusqlite::Result<_> = Ok(String::new());
            let mut first_seq = None;
            while let Some(found) = next.take_if(|found| found.job <= id) {
                if found.job == id {
                    first_seq.get_or_insert(found.seq);
                    own_events = own_events.and_then(|events| Ok(events + &found.lines?));
                }
                next = next_lines(&mut logs, &mut jobs.damaged)?;
            }
            let read = common_events.and_then(|common| record(id, row, common, own_events?));
            let fault = match read {
                Ok(record) if record.common_events.is_none() && first_seq > Some(0) => {
                    "its first events are missing".to_owned()
                }
                Ok(record) => {
                    jobs.records.push(record);
                    if jobs.records.len() + jobs.ended.len() >= max {
                        jobs.last = Some(JobId::new(id.cast_unsigned()));
                        break;
                    }
                    continue;
                }
                Err(error) => Error::new("it cannot be read", &error).to_string(),
            };
            let id = JobId::new(id.cast_unsigned());
            jobs.damaged.push(format!("job {id} is left out: {fault}"));
        }
        Ok(jobs)
    }

    /// Adds what a start needs of ended jobs with the same queue and result. Their events are in the store.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn add_ended_jobs(&mut self, class: &EndedClass, jobs: &[EndedJob]) -> Result<(), Error> {
        let ids = || jobs.iter().map(|job| key(job.id));
        let (Some(first), Some(last)) = (ids().min(), ids().max()) else {
            return Ok(());
        };
        self.write(
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
        EndedJobs::read(&self.connection)
            .map_err(|error| Error::new("cannot read the ended jobs", &error))
    }

    /// Removes what was stored of ended jobs that were removed.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_unused_ended_jobs(&mut self) -> Result<(), Error> {
        self.write("cannot remove ended jobs", ended::DELETE_UNUSED, [])
            .map(drop)
    }

    /// The jobs that were removed, whose data outside of the store may still exist.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn purged_jobs(&self) -> Result<Vec<JobId>, Error> {
        self.job_ids(
            "cannot read the purged jobs",
            "SELECT job FROM purged_jobs ORDER BY job",
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
            self.write("cannot forget purged jobs", sql, run)?;
        }
        Ok(())
    }

    fn job_ids(&self, what: &str, sql: &str) -> Result<Vec<JobId>, Error> {
        let wrap = |source: rusqlite::Error| Error::new(what, &source);
        let mut statement = self.connection.prepare(sql).map_err(wrap)?;
        let ids = statement
            .query_map([], |row| row.get(0))
            .map_err(wrap)?
            .map(|id| id.map(|id: i64| JobId::new(id.cast_unsigned())));
        ids.collect::<Result<_, _>>().map_err(wrap)
    }

    /// Appends an event of the resource service, such as drain and undrain.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn append_resource_event(&mut self, line: &str) -> Result<(), Error> {
        self.write(
            "cannot write a resource event",
            "INSERT INTO resource_events(line) VALUES (?)",
            [line],
        )
        .map(drop)
    }

    /// The events of the resource service, the oldest first.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn resource_events(&self) -> Result<Vec<String>, Error> {
        let wrap = |source: rusqlite::Error| Error::new("cannot read resource events", &source);
        let mut statement = self
            .connection
            .prepare("SELECT line FROM resource_events ORDER BY seq")
            .map_err(wrap)?;
        let lines = statement
            .query_map([], |row| row.get(0))
            .and_then(Iterator::collect);
        lines.map_err(wrap)
    }

    /// A value of the general key space, which excludes the keys of jobs.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn value(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.read(
            "cannot read a key",
            "SELECT value FROM kvs WHERE key = ?",
            [key],
        )
    }

    /// The keys of the general key space that begin with a prefix, in order.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn keys(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let sql = "SELECT key FROM kvs WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key";
        let keys = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| {
                let keys = statement.query_map([prefix], |row| row.get(0))?;
                keys.collect()
            });
        keys.map_err(|source| Error::new("cannot list keys", &source))
    }

    /// Sets a value of the general key space.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn set_value(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.write(
            "cannot write a key",
            "INSERT INTO kvs VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
            params![key, value],
        )
        .map(drop)
    }

    /// Removes a key and everything below it (`key.*`).
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_value(&mut self, key: &str) -> Result<(), Error> {
        // '/' is the character after '.': the range holds exactly the keys that start with `key.`.
        self.write(
            "cannot remove a key",
            "DELETE FROM kvs WHERE key = ?1 OR (key >= ?1 || '.' AND key < ?1 || '/')",
            [key],
        )
        .map(drop)
    }
}

/// Whether a path is the address of a database in memory, which several connections can share.
fn is_in_memory(path: &Path) -> bool {
    let address = path.to_string_lossy();
    address.starts_with("file:") && address.contains("mode=memory")
}

fn connect(path: &Path) -> Result<Connection, Error> {
    Connection::open(path)
        .map_err(|source| Error::new(&format!("cannot open `{}`", path.display()), &source))
}

fn connect_reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let wrap = |source| Error::new(&format!("cannot open `{}`", path.display()), &source);
    let connection = Connection::open_with_flags(path, flags).map_err(wrap)?;
    connection.busy_timeout(READER_TIMEOUT).map_err(wrap)?;
    Ok(connection)
}

/// The row of the database about itself.
fn read_progress(connection: &Connection) -> Result<Progress, Error> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Progress {
            identity: row.get(0)?,
            generation: row.get::<_, i64>(1)?.cast_unsigned(),
            durable: 0,
            greatest_id: JobId::new(row.get::<_, i64>(2)?.cast_unsigned()),
        })
    };
    connection
        .query_row(
            "SELECT identity, generation, greatest_id FROM store",
            [],
            read,
        )
        .map_err(|error| Error::new("cannot read the generation", &error))
}

/// Copies the log into the database, as far as readers permit. Returns whether all of it was copied and synced.
fn is_checkpointed(connection: &Connection) -> Result<bool, Error> {
    let read = |row: &rusqlite::Row<'_>| Ok(row.get::<_, i64>(1)? == row.get::<_, i64>(2)?);
    connection
        .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], read)
        .map_err(|error| Error::new("cannot copy the log into the database", &error))
}

/// A row of an eventlog.
struct EventRow {
    job: i64,
    seq: i64,
    lines: rusqlite::Result<String>,
}

/// The next row of an eventlog; rows without a job are `damaged`.
fn next_lines(
    logs: &mut rusqlite::Rows<'_>,
    damaged: &mut Vec<String>,
) -> Result<Option<EventRow>, Error> {
    let what = "cannot read the eventlogs";
    while let Some(row) = logs.next().map_err(|error| Error::new(what, &error))? {
        match row.get(0) {
            Ok(job) => {
                let seq = row.get(2).unwrap_or_default();
                let lines = row.get(1);
                return Ok(Some(EventRow { job, seq, lines }));
            }
            Err(error) => damaged.push(Error::new("events are left out", &error).to_string()),
        }
    }
    Ok(None)
}

/// A job's record, from the columns `userid`, `spec` and `r`.
fn record(
    id: i64,
    row: &rusqlite::Row<'_>,
    common_events: Option<Arc<str>>,
    own_events: String,
) -> rusqlite::Result<JobRecord> {
    Ok(JobRecord {
        id: JobId::new(id.cast_unsigned()),
        userid: row.get(1)?,
        spec: row.get(2)?,
        r: row.get(3)?,
        common_events,
        own_events,
    })
}

/// Jobs as runs of ids that follow each other: the first and the last id of each.
fn runs(ids: &[JobId]) -> impl Iterator<Item = [i64; 2]> {
    let runs = ids.chunk_by(|one, next| one.get().checked_add(1) == Some(next.get()));
    runs.filter_map(|run| Some([key(*run.first()?), key(*run.last()?)]))
}

/// A job id as `SQLite`'s signed integer, with the same bits.
fn key(id: JobId) -> i64 {
    id.get().cast_signed()
}

#[cfg(test)]
mod tests;
