//! One `SQLite` database: how it is opened, and the transaction that collects its writes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use penstock_jobspec::job_id::JobId;
use rusqlite::config::DbConfig;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Params, params};

use crate::checkpoint::{self, Checkpoints, DueCopy, LogLimits};
use crate::error::Error;
use crate::file::require_file;
use crate::generation::{self, Files, Progress};
use crate::log_file::{self, Log};
use crate::log_space::LogSpace;
use crate::log_sync::{LogSync, Notify};
use crate::schema::{self, OldLog, Synchronous};
use crate::{common_events, log_sync, old_log, space};

/// With `synchronous=normal`: the number of commits after which the log is copied into the database, which makes them
/// survive a power failure.
const CHECKPOINT_COMMITS: u64 = 1000;

/// The longest wait of a reader for a lock that another process holds.
const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// The database of one instance, whatever its tables.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    /// Whether a transaction is open.
    open: bool,
    synchronous: Synchronous,
    old_log: OldLog,
    /// That of the last commit.
    progress: Progress,
    /// The greatest id of a job so far, those of the open transaction included.
    greatest_id: JobId,
    /// The log at the beginning of the open transaction; `None` for a database in memory.
    log: Option<Log>,
    /// The files of the database; `None` for one in memory.
    files: Option<DatabaseFiles>,
    /// `None` for a database in memory, and for one that is read.
    checkpoints: Option<Checkpoints>,
    /// Syncs that are not part of a commit; `None` if there are none.
    syncs: Option<LogSync>,
    /// Whether the sync of the open transaction's commit is to be one of these.
    is_sync_apart: bool,
    doubt: Doubt,
    warnings: Vec<String>,
}

/// The durability of the changes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// There were no changes to commit.
    Unchanged,
    /// They are durable.
    Durable,
    /// They are written, and the log is being synced: [`Store::finish_sync`](crate::Store::finish_sync).
    Syncing,
}

/// A commit whose sync has failed: the next process may find it in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    None,
    /// The connections do not know of it.
    InFile,
    /// They do.
    Shared,
}

/// The files of a database.
#[derive(Debug)]
struct DatabaseFiles {
    files: Files,
    log: LogSpace,
    /// The length of the database in bytes, below which no checkpoint cuts it.
    min_bytes: u64,
}

impl Database {
    /// Opens or creates the database at a path, which must have the changes that its counter says were durable; or one
    /// in memory.
    pub(crate) fn open(path: &Path, synchronous: Synchronous) -> Result<Self, Error> {
        if is_in_memory(path) {
            return Self::open_without_counter(path, synchronous);
        }
        let counter = generation::counter_path(path);
        let metadata = path.metadata().ok();
        if let Some(other) = generation::interrupted_restoration(path) {
            return Err(Error::invalid(&format!(
                "`{}` is `{}` as well: `penstock store restore` was interrupted\nhint: repeat that",
                path.display(),
                other.display()
            )));
        }
        let is_empty = metadata.is_none_or(|found| found.len() == 0);
        if is_empty && counter.exists() {
            return Err(Error::lost(&format!(
                "`{}` is missing or empty, although `{}` counts its commits\n\
                 hint: `penstock store restore BACKUP` puts a back-up in its place; to begin without jobs, \
                 remove the second file",
                path.display(),
                counter.display()
            )));
        }
        let mut database = Self::prepare(connect(path)?, synchronous)?;
        let known = generation::read_counter(path)?;
        if let Some(known) = known {
            let warning = known.check(&database.progress, path)?;
            database.warnings.extend(warning);
            let warning = database.progress.correct_greatest_id(&known);
            database.warnings.extend(warning);
            database.greatest_id = database.progress.greatest_id;
            database.progress.durable = known.durable;
        } else {
            if database.progress.generation > 0 {
                database.warnings.push(format!(
                    "`{}` is missing or invalid: whether the database went back in time is unknown",
                    counter.display()
                ));
            }
            generation::write_counter(path, &database.progress)?;
        }
        let warning = space::make_shrinkable(&database.connection)?;
        database.warnings.extend(warning);
        let log = generation::log_path(path);
        let (files, min_bytes) = Files::of(path)?;
        database.files = Some(DatabaseFiles {
            files,
            log: LogSpace::open(&log).map_err(|error| Error::file("cannot open", &log, &error))?,
            min_bytes,
        });
        let connection = connect_checkpoints(path)?;
        let checkpoints = Checkpoints::in_thread(path, &mut database.connection, connection)?;
        database.checkpoints = Some(checkpoints);
        Ok(database)
    }

    /// Opens or creates the database at a path, without the counter beside it, and with checkpoints by calls of
    /// [`due_copy`](Self::due_copy); or one in memory.
    pub(crate) fn open_without_counter(
        path: &Path,
        synchronous: Synchronous,
    ) -> Result<Self, Error> {
        let mut database = Self::prepare(connect(path)?, synchronous)?;
        if !is_in_memory(path) {
            let connection = connect_checkpoints(path)?;
            let checkpoints = Checkpoints::by_calls(&mut database.connection, connection)?;
            database.checkpoints = Some(checkpoints);
        }
        Ok(database)
    }

    /// Opens the existing database at a path for reading.
    pub(crate) fn open_reader(path: &Path) -> Result<Self, Error> {
        let connection = connect_reader(path)?;
        let found = schema::format_version(&connection)?;
        if found != schema::FORMAT_VERSION {
            return Err(Error::format(found, schema::FORMAT_VERSION));
        }
        Self::with(connection, Synchronous::Full)
    }

    /// Closes the database at `path`, and opens it for reading: a commit that is not durable is not read.
    pub(crate) fn reopen_for_reading(&mut self, path: &Path) -> Result<Self, Error> {
        // A failure of the sync under way is one more.
        let _ = self.finish_sync();
        match self.doubt {
            Doubt::None => {
                self.close();
                return self.open_follower(path);
            }
            Doubt::Shared => {
                self.close();
                return Err(Error::doubtful(path));
            }
            Doubt::InFile => {}
        }
        // The connections share what they know of the log, which ends before that commit. After the last of them SQLite would
        // read the log from its file, and find it.
        let is_open = self.checkpoints.is_some();
        let files = self.files.as_ref().map(|files| &files.files);
        let reader = match files.map(Files::check).transpose() {
            Ok(_) if is_open => self.open_follower(path),
            Ok(_) => Err(Error::doubtful(path)),
            Err(error) => Err(error),
        };
        self.close();
        reader
    }

    /// Opens the database at `path`, which has to have the commits of this one, for reading.
    fn open_follower(&self, path: &Path) -> Result<Self, Error> {
        let reader = Self::open_reader(path)?;
        self.progress.check(&reader.progress, path)?;
        Ok(reader)
    }

    /// Opens a database in memory.
    pub(crate) fn in_memory() -> Result<Self, Error> {
        let connection = Connection::open_in_memory()
            .map_err(|source| Error::new("cannot open a store in memory", &source))?;
        Self::prepare(connection, Synchronous::Normal)
    }

    fn prepare(connection: Connection, synchronous: Synchronous) -> Result<Self, Error> {
        let old_log = schema::prepare(&connection, synchronous)?;
        let mut database = Self::with(connection, synchronous)?;
        database.old_log = old_log;
        if old_log == OldLog::Adopted {
            database.warnings = common_events::cut_ranges(&database.connection)?;
        }
        Ok(database)
    }

    fn with(connection: Connection, synchronous: Synchronous) -> Result<Self, Error> {
        connection.set_prepared_statement_cache_capacity(48);
        // Otherwise SQLite prepares a statement with a range again for each value that is bound to its ends.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
            .map_err(|source| Error::new("cannot configure SQLite", &source))?;
        let progress = read_progress(&connection)?;
        Ok(Self {
            connection,
            open: false,
            synchronous,
            old_log: OldLog::Adopted,
            greatest_id: progress.greatest_id,
            progress,
            log: None,
            files: None,
            checkpoints: None,
            syncs: None,
            is_sync_apart: false,
            doubt: Doubt::None,
            warnings: Vec::new(),
        })
    }

    /// Closes the database, unless it is in memory, and discards every write since the last commit.
    pub(crate) fn close(&mut self) {
        if self.files.is_none() && self.checkpoints.is_none() {
            // A database in memory would not survive.
            let _ = self.roll_back();
            return;
        }
        self.close_connections();
    }

    fn close_connections(&mut self) {
        self.open = false;
        let _ = self.finish_sync();
        if let Some(syncs) = self.syncs.take() {
            syncs.stop();
        }
        if self.checkpoints.is_some() && log_file::check_length(&self.connection).is_err() {
            self.count_as_lost(self.progress.generation);
        }
        if let Some(mut files) = self.files.take() {
            files.files.leave(&self.progress);
        }
        let stopped = self.checkpoints.take().map(Checkpoints::stop);
        if stopped.as_ref().is_some_and(|stopped| stopped.has_failed) {
            // The log stays, and the next connection copies all of it.
            let no_checkpoint = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = self.connection.set_db_config(no_checkpoint, true);
        }
        // A database without tables.
        if let Ok(empty) = Connection::open_in_memory() {
            self.connection = empty;
        }
        drop(stopped);
    }

    /// Sets the lengths of the log at which it is copied, for simulation: it has few jobs.
    pub(crate) fn set_log_limits(&mut self, limits: LogLimits) {
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.set_limits(limits);
        }
    }

    /// Has checkpoints that are made by calls sync the database by a function, for simulation.
    pub(crate) fn sync_copies_by(
        &mut self,
        path: &Path,
        sync: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    ) {
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.sync_by(path, sync);
        }
    }

    /// The pages of the log after the last commit; 0 for a database without checkpoints.
    pub(crate) fn log_pages(&self) -> u64 {
        let checkpoints = self.checkpoints.as_ref();
        checkpoints.map_or(0, Checkpoints::log_pages)
    }

    /// Takes the durations of checkpoints since the last call.
    pub(crate) fn take_checkpoint_durations(&self) -> Vec<Duration> {
        let checkpoints = self.checkpoints.as_ref();
        checkpoints.map_or_else(Vec::new, Checkpoints::take_durations)
    }

    /// Takes the copy of the log that is due, if no thread makes it.
    pub(crate) fn due_copy(&self) -> Option<DueCopy> {
        self.checkpoints.as_ref().and_then(Checkpoints::take_due)
    }

    /// Has commits synced by a thread while the disk is slow. The function is called by the thread at the end of each sync.
    pub(crate) fn sync_in_thread(&mut self, notify: Notify) -> Result<(), Error> {
        if self.files.is_some() && self.synchronous == Synchronous::Full {
            let path = PathBuf::from(self.connection.path().unwrap_or_default());
            let log = generation::log_path(&path);
            self.syncs = Some(LogSync::in_thread(&log, notify)?);
        }
        Ok(())
    }

    /// Has the thread sync each commit, for tests.
    pub(crate) fn expect_slow_syncs(&mut self) {
        if let Some(syncs) = &mut self.syncs {
            syncs.expect_slow();
        }
    }

    /// Has [`finish_sync`](Self::finish_sync) sync each commit by a function, for simulation.
    pub(crate) fn sync_log_by(
        &mut self,
        path: &Path,
        sync: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    ) {
        self.syncs = Some(LogSync::by_calls(path, sync));
    }

    /// Has a function wait for the end of a copy that was taken, for simulation.
    pub(crate) fn wait_for_copies_by(&mut self, wait: fn()) {
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.wait_by(wait);
        }
    }

    /// The connection, for statements that read.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Warnings that came up when the database was opened.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Adds a warning.
    pub(crate) fn warn(&mut self, warning: &str) {
        self.warnings.push(warning.to_owned());
    }

    /// The last commit, with the greatest id of a job until then.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The greatest id of a job so far.
    pub(crate) fn greatest_id(&self) -> JobId {
        self.greatest_id
    }

    /// Counts the id of a new job.
    pub(crate) fn count_id(&mut self, id: JobId) {
        self.greatest_id = self.greatest_id.max(id);
    }

    /// Commits every write since the last commit. If the disk is slow the log is synced later: until
    /// [`finish_sync`](Self::finish_sync) has succeeded they are not durable. Waits for the end of the sync before.
    pub(crate) fn begin_commit(&mut self) -> Result<Commit, Error> {
        self.finish_sync()?;
        if self.doubt == Doubt::Shared {
            return Err(Error::doubtful(Path::new(
                self.connection.path().unwrap_or_default(),
            )));
        }
        if !self.open {
            return Ok(Commit::Unchanged);
        }
        let checkpoints = self.checkpoints.as_ref();
        if let Some(failure) = checkpoints.and_then(Checkpoints::take_failure) {
            return Err(failure);
        }
        let generation = self.progress.generation + 1;
        let greatest_id = key(self.greatest_id);
        self.write(
            "cannot count the commit",
            "UPDATE store SET generation = ?, greatest_id = ?",
            params![generation.cast_signed(), greatest_id],
        )?;
        let (committed, time) = log_sync::timed(|| self.execute("COMMIT"));
        if let Err(source) = committed {
            let error = Error::new("cannot commit", &source);
            if error.is_input_output() {
                self.overwrite_failed_commit();
            }
            return Err(error);
        }
        self.open = false;
        if self.checkpoints.is_some() {
            self.check_commit(generation)?;
        }
        self.progress.generation = generation;
        self.progress.greatest_id = self.greatest_id;
        let commit = self.sync_commit(time)?;
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.follow_commit();
        }
        Ok(commit)
    }

    /// Begins the sync of a commit that took some time, unless it was part of it.
    fn sync_commit(&mut self, time: Duration) -> Result<Commit, Error> {
        match &mut self.syncs {
            Some(syncs) if self.is_sync_apart => {
                syncs.begin();
                if syncs.is_under_way() {
                    return Ok(Commit::Syncing);
                }
                self.finish_sync()?;
                return Ok(Commit::Durable);
            }
            Some(syncs) => syncs.observe(time),
            None => {}
        }
        self.record_commit()?;
        Ok(Commit::Durable)
    }

    /// Waits for the end of the sync of the last commit, if that was begun and not finished. Returns whether it was.
    pub(crate) fn finish_sync(&mut self) -> Result<bool, Error> {
        let Some(syncs) = self.syncs.as_mut().filter(|syncs| syncs.is_pending()) else {
            return Ok(false);
        };
        if let Err(error) = syncs.wait() {
            // Later writes may be in the page cache alone, too.
            self.doubt = Doubt::Shared;
            if let Some(checkpoints) = &self.checkpoints {
                checkpoints.end_copies();
            }
            return Err(error);
        }
        self.record_commit()?;
        Ok(true)
    }

    /// Whether the sync of the last commit is under way.
    pub(crate) fn is_syncing(&self) -> bool {
        self.syncs.as_ref().is_some_and(LogSync::is_under_way)
    }

    /// Overwrites the pages of a commit whose sync has failed, which the next process would find in the log and take for a
    /// commit, by a commit that changes the generation alone: `SQLite` does not write a page that stays the same. It is
    /// synced: later commits follow it in the log.
    fn overwrite_failed_commit(&mut self) {
        let overwrite = || {
            if !self.connection.is_autocommit() {
                self.connection.execute_batch("ROLLBACK")?;
            }
            schema::set_synchronous(&self.connection, self.synchronous)?;
            self.connection.execute_batch(
                "BEGIN IMMEDIATE; UPDATE store SET generation = generation + 1; COMMIT",
            )
        };
        self.doubt = if overwrite().is_err() {
            Doubt::InFile
        } else {
            Doubt::None
        };
    }

    /// Whether a commit has failed that the next process may find in the log.
    pub(crate) fn has_doubtful_commit(&self) -> bool {
        self.doubt != Doubt::None
    }

    /// Checks that the files have what was written to them before the commit with this number, and the commit.
    fn check_commit(&mut self, generation: u64) -> Result<(), Error> {
        let log = match log_file::check_commit(&self.connection, self.log) {
            Ok(log) => log,
            Err(error) => {
                self.count_as_lost(self.progress.generation);
                return Err(error);
            }
        };
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        let found = files.files.check()?;
        // Until the next commit a checkpoint cuts the database at its present end, or does not change its length.
        let end = log.map_or(0, Log::database_bytes);
        let is_complete = found >= files.min_bytes.min(end);
        files.min_bytes = found.min(end);
        if is_complete {
            return Ok(());
        }
        // Its log may have all commits.
        self.count_as_lost(generation + 1);
        let path = self.connection.path().unwrap_or_default();
        Err(Error::lost(&format!(
            "`{path}` was truncated while the instance ran"
        )))
    }

    /// Has each later start report the files as lost unless they have the commit with this number, and copies nothing more
    /// between them.
    fn count_as_lost(&mut self, generation: u64) {
        self.progress.generation = generation;
        self.progress.durable = generation;
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.end_copies();
        }
    }

    /// Records a commit outside of the database.
    fn record_commit(&mut self) -> Result<(), Error> {
        if self.files.is_none() {
            return Ok(());
        }
        match self.synchronous {
            Synchronous::Full => self.progress.durable = self.progress.generation,
            Synchronous::Normal => {
                let unsynced = self.progress.generation - self.progress.durable;
                if unsynced >= CHECKPOINT_COMMITS && self.is_checkpointed()? {
                    self.progress.durable = self.progress.generation;
                }
            }
        }
        match &mut self.files {
            Some(files) => files.files.record(&self.progress),
            None => Ok(()),
        }
    }

    /// Copies the log into the database, as far as readers permit, by the connection that writes. Returns whether all of it
    /// was copied and synced.
    fn is_checkpointed(&self) -> Result<bool, Error> {
        let copy = || checkpoint::copy(&self.connection);
        let pages = match &self.checkpoints {
            Some(checkpoints) => checkpoints.after_copy_of_thread(copy)?,
            None => copy()?,
        };
        Ok(pages.is_some_and(|pages| pages.copied == pages.length))
    }

    /// Discards every write since the last commit.
    pub(crate) fn roll_back(&mut self) -> Result<(), Error> {
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
    pub(crate) fn has_uncommitted(&self) -> bool {
        self.open
    }

    /// Begins a transaction, unless one is open.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        if !self.open {
            if let Some(checkpoints) = &mut self.checkpoints {
                checkpoints.copy_rest(&self.connection)?;
            }
            self.choose_sync()?;
            self.execute("BEGIN IMMEDIATE")
                .map_err(|source| Error::new("cannot begin a transaction", &source))?;
            self.open = true;
            if self.checkpoints.is_some() {
                self.log = log_file::check_length(&self.connection)?;
            }
            if self.old_log == OldLog::Found {
                old_log::adopt(&self.connection)?;
                self.old_log = OldLog::Adopted;
            }
            let pages = self.log_pages();
            if let Some(files) = &mut self.files {
                files.log.extend(pages);
            }
        }
        Ok(())
    }

    /// Decides whether the sync of the next transaction's commit is to be part of it.
    fn choose_sync(&mut self) -> Result<(), Error> {
        let is_apart = self.syncs.as_ref().is_some_and(LogSync::is_slow);
        if is_apart == self.is_sync_apart {
            return Ok(());
        }
        let synchronous = if is_apart {
            Synchronous::Normal
        } else {
            self.synchronous
        };
        schema::set_synchronous(&self.connection, synchronous)
            .map_err(|source| Error::new("cannot set how commits are synced", &source))?;
        self.is_sync_apart = is_apart;
        Ok(())
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute([])
    }

    /// Executes a statement that writes, in the open transaction. Returns the number of rows.
    pub(crate) fn write(
        &mut self,
        what: &str,
        sql: &str,
        values: impl Params,
    ) -> Result<usize, Error> {
        self.begin()?;
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .map_err(|source| Error::new(what, &source))
    }

    /// The first column of the first row of a query.
    pub(crate) fn read<T: FromSql>(
        &self,
        what: &str,
        sql: &str,
        values: impl Params,
    ) -> Result<Option<T>, Error> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(values, |row| row.get(0)).optional())
            .map_err(|source| Error::new(what, &source))
    }

    /// Releases free pages, `max` at most. Returns their number.
    pub(crate) fn release_pages(&mut self, max: u64) -> Result<u64, Error> {
        let pages = space::read(&self.connection)?.excess_pages().min(max);
        if pages == 0 || !space::is_incremental(&self.connection)? {
            return Ok(0);
        }
        self.begin()?;
        space::release(&self.connection, pages)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.close_connections();
    }
}

/// Checks that an existing database can be written now, without waiting for a lock.
pub(crate) fn check_writable(path: &Path) -> Result<(), Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let wrap = |error| Error::new("cannot write", &error);
    let connection = Connection::open_with_flags(path, flags).map_err(wrap)?;
    let begin = || {
        // A start makes the log durable before it copies it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.execute_batch("BEGIN IMMEDIATE")
    };
    begin().map_err(wrap)?;
    log_file::check_length(&connection)?;
    connection
        .execute_batch("UPDATE store SET generation = generation; COMMIT")
        .map_err(wrap)
}

/// Whether a path is the address of a database in memory, which several connections can share.
fn is_in_memory(path: &Path) -> bool {
    let address = path.to_string_lossy();
    address.starts_with("file:") && address.contains("mode=memory")
}

/// Opens or creates a database.
pub(crate) fn connect(path: &Path) -> Result<Connection, Error> {
    require_file(path)?;
    Connection::open(path)
        .map_err(|source| Error::new(&format!("cannot open `{}`", path.display()), &source))
}

/// Opens an existing database for reading.
pub(crate) fn connect_reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    require_file(path)?;
    let wrap = |source| Error::new(&format!("cannot open `{}`", path.display()), &source);
    let connection = Connection::open_with_flags(path, flags).map_err(wrap)?;
    connection.busy_timeout(READER_TIMEOUT).map_err(wrap)?;
    Ok(connection)
}

/// The row of the database about itself.
pub(crate) fn read_progress(connection: &Connection) -> Result<Progress, Error> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Progress {
            identity: row.get(0)?,
            generation: read_generation(row)?,
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
        .map_err(|error| Error::damaged_head(&error))
}

/// The number of the last commit, which leaves room for many more.
fn read_generation(row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
    let generation: i64 = row.get(1)?;
    let valid = u64::try_from(generation).ok();
    valid
        .filter(|valid| *valid < u64::MAX >> 2)
        .ok_or(rusqlite::Error::IntegralValueOutOfRange(1, generation))
}

/// Opens a second connection to an open database, which copies the log.
fn connect_checkpoints(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let wrap = |source| Error::new(&format!("cannot open `{}`", path.display()), &source);
    let connection = Connection::open_with_flags(path, flags).map_err(wrap)?;
    // Opens the log: the files are those that the writer has open.
    read_progress(&connection)?;
    Ok(connection)
}

/// A job id as `SQLite`'s signed integer, with the same bits.
pub(crate) fn key(id: JobId) -> i64 {
    id.get().cast_signed()
}
