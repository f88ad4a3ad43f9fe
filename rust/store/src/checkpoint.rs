//! Checkpoints: the log is copied into the database on a connection of its own, while the writer continues.
//!
//! The log restarts, in the blocks that it has, when all of it has been copied and synced. A writer that never pauses
//! appends during every copy, so the rest is copied by the writer itself, between two transactions, once it is short.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use crate::{Error, log_file};

/// Copies in a row: each is shorter than the one before, unless the disk is slower than the writer.
const MAX_COPIES: u32 = 8;

/// Of a log that has just the length to restart, the writer copies one of as many pages itself, of one twice as long two: while the
/// thread makes a copy, a fast writer appends more than the usual rest.
const LOG_PAGES_PER_REST_PAGE: u64 = 16;

/// Lengths of the log, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Pages that are copied at once: a checkpoint begins after as many new ones.
    pub piece: u64,
    /// The length from which on the log is to restart.
    pub restart: u64,
    /// Uncopied pages that the writer copies itself, so that the log can restart; more of a long log.
    pub rest: u64,
    /// The length from which on the writer copies all pages itself, once in each piece, and waits for the thread, which cannot keep
    /// up.
    pub max: u64,
}

impl LogLimits {
    /// 4 MiB, 8 MiB, 256 KiB and 32 MiB. Beyond 16 MiB the file is cut when the log restarts.
    const DEFAULT: Self = Self {
        piece: 1000,
        restart: 2000,
        rest: 64,
        max: 8000,
    };

    /// The most uncopied pages of a log of this length that the writer copies itself.
    fn max_rest(self, length: u64) -> u64 {
        let times = length / self.restart.max(1);
        self.rest.max(times * length / LOG_PAGES_PER_REST_PAGE)
    }
}

/// The log, as the connections know it.
#[derive(Debug, Default)]
struct Log {
    /// Its length after the last commit, in pages.
    length: AtomicU64,
    /// The pages of it that were copied by the last checkpoint.
    copied: AtomicU64,
    /// Held during a copy by the thread and its sync.
    copying: Mutex<()>,
    /// Whether the writer waits for the end of that copy.
    is_awaited: AtomicBool,
    has_failed: AtomicBool,
    /// The failure of a checkpoint, for the next commit.
    failure: Mutex<Option<Error>>,
    /// The durations of checkpoints that were not taken for the statistics yet.
    durations: Mutex<Vec<Duration>>,
}

impl Log {
    fn uncopied(&self) -> u64 {
        let length = self.length.load(Ordering::Acquire);
        length.saturating_sub(self.copied.load(Ordering::Acquire))
    }

    /// Copies the log by a connection, as far as readers permit. After a failure nothing is copied: the log would restart
    /// when all of it counts as copied, and the database may lack pages.
    fn copy(&self, connection: &Connection) -> Result<(), Error> {
        if self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        match copy(connection) {
            Ok(Some(pages)) => {
                self.copied.store(pages.copied, Ordering::Release);
                Ok(())
            }
            // Another connection copies it.
            Ok(None) => Ok(()),
            // The log has what the database has not.
            Err(error) if error.is_disk_full() || error.is_busy() => Ok(()),
            Err(error) => {
                self.has_failed.store(true, Ordering::Release);
                Err(error)
            }
        }
    }

    /// Makes a copy, and records how long it takes.
    fn timed<T>(&self, copy: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let copied = copy();
        let durations = self.durations.lock();
        let mut durations = durations.unwrap_or_else(PoisonError::into_inner);
        durations.push(began.elapsed());
        copied
    }

    fn fail(&self, error: Error) {
        self.has_failed.store(true, Ordering::Release);
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
    }
}

/// The log after a checkpoint, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPages {
    pub(crate) length: u64,
    pub(crate) copied: u64,
}

/// Copies the log into the database, as far as readers permit. The database is synced, unless the log became longer
/// meanwhile. `None`: another connection copies it now.
pub(crate) fn copy(connection: &Connection) -> Result<Option<LogPages>, Error> {
    log_file::check_length(connection)?;
    let pages = |number: i64| u64::try_from(number).unwrap_or_default();
    let read = |row: &rusqlite::Row<'_>| {
        let is_busy: bool = row.get(0)?;
        let pages = LogPages {
            length: pages(row.get(1)?),
            copied: pages(row.get(2)?),
        };
        Ok((!is_busy).then_some(pages))
    };
    connection
        .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")
        .and_then(|mut statement| statement.query_row([], read))
        .map_err(|error| Error::new("cannot copy the log into the database", &error))
}

/// The file of a database, for syncs of what was copied while the log became longer. Closing it releases all locks that this
/// process has on it: it outlives the connections.
struct DatabaseFile {
    path: PathBuf,
    sync: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
}

impl DatabaseFile {
    fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::file("cannot open", path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            sync: Box::new(move || file.sync_data()),
        })
    }

    fn sync(&self) -> Result<(), Error> {
        (self.sync)().map_err(|error| Error::file("cannot sync", &self.path, &error))
    }
}

impl fmt::Debug for DatabaseFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The maker of the checkpoints.
#[derive(Debug)]
enum Worker {
    /// By calls of [`Checkpoints::take_due`].
    Calls { connection: Arc<Mutex<Connection>> },
    /// By a thread that is started for the first one.
    Unstarted { connection: Connection },
    /// By a thread.
    Thread {
        requests: SyncSender<()>,
        thread: JoinHandle<()>,
    },
    /// By the writer, because a thread cannot be started.
    Writer,
}

/// The checkpoints of a database that is written.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    log: Arc<Log>,
    limits: LogLimits,
    worker: Worker,
    file: Option<Arc<DatabaseFile>>,
    /// Whether a checkpoint is due for [`take_due`](Self::take_due).
    is_due: AtomicBool,
    /// Waits for the end of a copy that was taken.
    wait: Option<fn()>,
    /// The length of the log when the last checkpoint was requested.
    requested: u64,
    /// The length of the log when the writer has copied a rest.
    rest_copied: u64,
    /// The length of the log when the writer has copied all pages because it was too long.
    forced: u64,
}

impl Checkpoints {
    /// Checkpoints by a thread, of the database at `path` that `writer` has open. The second connection is another one on
    /// the same database.
    pub(crate) fn in_thread(
        path: &Path,
        writer: &mut Connection,
        connection: Connection,
    ) -> Result<Self, Error> {
        let file = DatabaseFile::open(path)?;
        let worker = Worker::Unstarted { connection };
        Self::new(writer, worker, Some(Arc::new(file)))
    }

    /// Checkpoints by calls of [`take_due`](Self::take_due).
    pub(crate) fn by_calls(writer: &mut Connection, connection: Connection) -> Result<Self, Error> {
        let connection = Arc::new(Mutex::new(connection));
        Self::new(writer, Worker::Calls { connection }, None)
    }

    fn new(
        writer: &mut Connection,
        worker: Worker,
        file: Option<Arc<DatabaseFile>>,
    ) -> Result<Self, Error> {
        let log = Arc::new(Log::default());
        let followed = Arc::clone(&log);
        let follow = move |_: &mut Wal, pages: i32| {
            let pages = u64::try_from(pages).unwrap_or_default();
            followed.length.store(pages, Ordering::Release);
            Ok(())
        };
        // In place of SQLite's own checkpoints, which the writer would wait for.
        writer
            .wal_hook(Some(follow))
            .map_err(|error| Error::new("cannot prepare the database", &error))?;
        Ok(Self {
            log,
            limits: LogLimits::DEFAULT,
            worker,
            file,
            is_due: AtomicBool::new(false),
            wait: None,
            requested: 0,
            rest_copied: 0,
            forced: 0,
        })
    }

    /// Has checkpoints sync the database by a function, if they are made by calls.
    pub(crate) fn sync_by(
        &mut self,
        path: &Path,
        sync: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    ) {
        let path = path.to_owned();
        self.file = Some(Arc::new(DatabaseFile { path, sync }));
    }

    pub(crate) fn set_limits(&mut self, limits: LogLimits) {
        self.limits = limits;
    }

    /// The length of the log after the last commit, in pages.
    pub(crate) fn log_pages(&self) -> u64 {
        self.log.length.load(Ordering::Acquire)
    }

    /// Has no checkpoint copy anything from now on: the log, or the database, lacks pages.
    pub(crate) fn end_copies(&self) {
        self.log.has_failed.store(true, Ordering::Release);
    }

    /// Takes the failure of a checkpoint.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        if !self.log.has_failed.load(Ordering::Acquire) {
            return None;
        }
        let mut failure = self
            .log
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }

    /// Takes the durations of checkpoints since the last call.
    pub(crate) fn take_durations(&self) -> Vec<Duration> {
        let durations = self.log.durations.lock();
        std::mem::take(&mut *durations.unwrap_or_else(PoisonError::into_inner))
    }

    /// Requests a checkpoint if the log has become longer by a piece.
    pub(crate) fn follow_commit(&mut self) {
        let length = self.log_pages();
        if length < self.requested {
            // The log has restarted.
            (self.requested, self.rest_copied, self.forced) = (0, 0, 0);
        }
        if length - self.requested >= self.limits.piece {
            self.requested = length;
            self.request();
        }
    }

    fn request(&mut self) {
        if matches!(self.worker, Worker::Unstarted { .. }) {
            self.start();
        }
        match &self.worker {
            // Full: a request is pending. Closed: the thread has ended by a panic, and the writer copies a log that is too
            // long.
            Worker::Thread { requests, .. } => drop(requests.try_send(())),
            Worker::Calls { .. } => self.is_due.store(true, Ordering::Release),
            Worker::Unstarted { .. } | Worker::Writer => {}
        }
    }

    fn start(&mut self) {
        let Worker::Unstarted { connection } = std::mem::replace(&mut self.worker, Worker::Writer)
        else {
            return;
        };
        let (requests, received) = sync_channel(1);
        let task = Task {
            log: Arc::clone(&self.log),
            limits: self.limits,
            file: self.file.clone(),
        };
        let builder = thread::Builder::new().name("checkpoints".to_owned());
        if let Ok(thread) = builder.spawn(move || task.serve(&connection, &received)) {
            self.worker = Worker::Thread { requests, thread };
        }
    }

    /// Takes the copy that is due, if these are made by calls.
    pub(crate) fn take_due(&self) -> Option<DueCopy> {
        let Worker::Calls { connection } = &self.worker else {
            return None;
        };
        self.is_due.swap(false, Ordering::AcqRel).then(|| DueCopy {
            task: Task {
                log: Arc::clone(&self.log),
                limits: self.limits,
                file: self.file.clone(),
            },
            connection: Arc::clone(connection),
        })
    }

    /// Has a function wait for the end of a copy that was taken.
    pub(crate) fn wait_by(&mut self, wait: fn()) {
        self.wait = Some(wait);
    }

    fn wait_for_copy(&self) {
        if let Some(wait) = self.wait {
            wait();
        }
    }

    /// Has the writer, between two transactions, copy a short rest of a long log: the log restarts then.
    pub(crate) fn copy_rest(&mut self, writer: &Connection) -> Result<(), Error> {
        let length = self.log_pages();
        if length < self.limits.restart {
            return Ok(());
        }
        // While there is always a reader the log does not restart: no copy in each transaction.
        let is_short = length >= self.rest_copied + self.limits.rest
            && (1..=self.limits.max_rest(length)).contains(&self.log.uncopied());
        let is_writers = matches!(self.worker, Worker::Writer);
        let is_too_long =
            (is_writers || length >= self.limits.max) && length >= self.forced + self.limits.piece;
        if is_too_long {
            self.forced = length;
            self.after_copy_of_thread(|| self.log.timed(|| self.log.copy(writer)))
        } else if is_short {
            // The thread may not have synced its copy: the log must not restart before.
            let _copying = match self.log.copying.try_lock() {
                Ok(copying) => copying,
                Err(TryLockError::Poisoned(error)) => error.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(()),
            };
            self.rest_copied = length;
            self.log.timed(|| self.log.copy(writer))
        } else {
            Ok(())
        }
    }

    /// Has the writer copy the log when the thread does not: it waits for the end of the thread's copy.
    pub(crate) fn after_copy_of_thread<T>(&self, copy: impl FnOnce() -> T) -> T {
        self.log.is_awaited.store(true, Ordering::Release);
        self.wait_for_copy();
        let copying = self.log.copying.lock();
        let _copying = copying.unwrap_or_else(PoisonError::into_inner);
        self.log.is_awaited.store(false, Ordering::Release);
        copy()
    }

    /// Ends the thread, and closes its connection. The writer's is to be closed before the returned file.
    pub(crate) fn stop(self) -> Stopped {
        self.wait_for_copy();
        if let Worker::Thread { requests, thread } = self.worker {
            drop(requests);
            // A panic was reported by its hook.
            let _ = thread.join();
        }
        Stopped {
            has_failed: self.log.has_failed.load(Ordering::Acquire),
            _file: self.file,
        }
    }
}

/// A copy of the log that is due, for simulation: a thread makes it otherwise.
#[derive(Debug)]
pub struct DueCopy {
    task: Task,
    connection: Arc<Mutex<Connection>>,
}

impl DueCopy {
    /// Makes the copy. The next commit reports a failure.
    pub fn run(self) {
        let connection = self.connection.lock();
        self.task
            .run(&connection.unwrap_or_else(PoisonError::into_inner));
    }
}

/// The remains of the checkpoints of a database, until its connections are closed.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Whether one has failed: the database may lack pages that count as copied, and the log has them.
    pub(crate) has_failed: bool,
    _file: Option<Arc<DatabaseFile>>,
}

/// The work of the thread.
#[derive(Debug)]
struct Task {
    log: Arc<Log>,
    limits: LogLimits,
    file: Option<Arc<DatabaseFile>>,
}

impl Task {
    fn serve(&self, connection: &Connection, requests: &Receiver<()>) {
        while requests.recv().is_ok() {
            self.run(connection);
        }
    }

    /// Copies the log; one that is to restart until the rest is short.
    fn run(&self, connection: &Connection) {
        for _ in 0..MAX_COPIES {
            let copying = self.log.copying.lock();
            let copying = copying.unwrap_or_else(PoisonError::into_inner);
            let copy = || self.log.copy(connection).and_then(|()| self.sync());
            let copied = self.log.timed(copy);
            if let Err(error) = copied {
                self.log.fail(error);
                return;
            }
            drop(copying);
            let length = self.log.length.load(Ordering::Acquire);
            let rest = self.log.uncopied();
            let is_awaited = self.log.is_awaited.load(Ordering::Acquire);
            if is_awaited || length < self.limits.restart || rest <= self.limits.max_rest(length) {
                return;
            }
        }
    }

    /// Syncs what was copied, or the writer would have to.
    fn sync(&self) -> Result<(), Error> {
        match &self.file {
            Some(file) => file.sync(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Log;

    #[test]
    fn no_duration_of_a_checkpoint_is_lost_before_the_durations_are_taken() {
        let log = Log::default();
        for number in 0..5000 {
            assert_eq!(log.timed(|| number), number);
        }
        assert_eq!(log.durations.lock().unwrap().len(), 5000);
    }
}
