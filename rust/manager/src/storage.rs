//! The store, with failures that the next commit reports.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::OnceLock;

use penstock_jobspec::job_id::JobId;
use penstock_store::{
    Commit, EndedRow, Error, JobRecord, JobRow, PendingFacts, Space, Store, Submission,
};

/// The size of the texts that a read from the store has returned: the time to read and parse these grows with it.
pub(crate) trait TextBytes {
    /// The size, in bytes.
    fn text_bytes(&self) -> usize;
}

impl TextBytes for String {
    fn text_bytes(&self) -> usize {
        self.len()
    }
}

impl TextBytes for Vec<u8> {
    fn text_bytes(&self) -> usize {
        self.len()
    }
}

impl TextBytes for JobRow {
    fn text_bytes(&self) -> usize {
        self.r.as_ref().map_or(0, String::len)
    }
}

impl TextBytes for JobRecord {
    fn text_bytes(&self) -> usize {
        let common = self.common_events.as_ref().map_or(0, |text| text.len());
        self.row.text_bytes() + self.facts.text_bytes() + common + self.own_events.len()
    }
}

impl TextBytes for PendingFacts {
    fn text_bytes(&self) -> usize {
        self.text.len()
    }
}

impl<T: TextBytes> TextBytes for Option<T> {
    fn text_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::text_bytes)
    }
}

/// Values of one size, or of a number that their reader limits.
macro_rules! without_text {
    ($($type:ty),*) => {
        $(impl TextBytes for $type {
            fn text_bytes(&self) -> usize {
                0
            }
        })*
    };
}

without_text!(
    f64,
    u64,
    JobId,
    Submission,
    Vec<JobId>,
    (Vec<JobId>, Option<JobId>),
    Vec<String>,
    Vec<EndedRow>,
    Space
);

/// The store of one manager.
///
/// A failed operation yields a default value and makes every later [`begin_commit`](Self::begin_commit) fail, so
/// that no message that depends on that value leaves the manager.
#[derive(Debug)]
pub(crate) struct Storage {
    store: Store,
    failure: OnceLock<Error>,
    /// For the log: rows that could not be read.
    damaged: RefCell<Vec<String>>,
    commits: u64,
    /// Bytes of text that were read so far.
    read_bytes: Cell<u64>,
}

impl Storage {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            failure: OnceLock::new(),
            damaged: RefCell::default(),
            commits: 0,
            read_bytes: Cell::new(0),
        }
    }

    /// Runs an operation in the open transaction. After a failed one, those until the next commit fail without an attempt:
    /// each would wait for the same lock.
    pub(crate) fn run<T: Default>(
        &mut self,
        operation: impl FnOnce(&mut Store) -> Result<T, Error>,
    ) -> T {
        self.try_run(operation).unwrap_or_default()
    }

    /// Reads in the open transaction. A row that cannot be read is absent: a commit could not change that.
    pub(crate) fn read<T: Default + TextBytes>(
        &self,
        operation: impl FnOnce(&Store) -> Result<T, Error>,
    ) -> T {
        let read = operation(&self.store).unwrap_or_else(|error| {
            if error.is_damaged() {
                self.damaged.borrow_mut().push(error.to_string());
            } else {
                self.fail(error);
            }
            T::default()
        });
        self.count_read(read.text_bytes());
        read
    }

    /// Adds to the number of bytes of text that were read.
    pub(crate) fn count_read(&self, bytes: usize) {
        let bytes = self.read_bytes.get().saturating_add(bytes as u64);
        self.read_bytes.set(bytes);
    }

    /// The number of bytes of text that were read so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.get()
    }

    /// Takes the rows that could not be read, for the log.
    pub(crate) fn take_damaged(&self) -> Vec<String> {
        self.damaged.take()
    }

    /// Keeps the first failure for the next commit.
    fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
    }

    /// The same for a caller that handles the error, too.
    pub(crate) fn try_run<T>(
        &mut self,
        operation: impl FnOnce(&mut Store) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        operation(&mut self.store).inspect_err(|error| {
            let _ = self.failure.set(error.clone());
        })
    }

    /// Closes the store, and discards every change since the last commit.
    pub(crate) fn close(&mut self) {
        self.store.close();
    }

    /// Closes the store, which is the database at `path`, and opens it for reading.
    pub(crate) fn reopen_for_reading(&mut self, path: &Path) -> Result<Store, Error> {
        self.store.reopen_for_reading(path)
    }

    /// Whether an operation has failed since the last commit: what is read since need not be what was
    /// written.
    #[cfg(debug_assertions)]
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// The store itself, for callers that handle the errors of reading.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Commits all changes, without waiting for a slow disk: see [`Store::begin_commit`].
    pub(crate) fn begin_commit(&mut self) -> Result<Commit, Error> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let commit = self.store.begin_commit()?;
        self.commits += u64::from(commit != Commit::Unchanged);
        Ok(commit)
    }

    /// Waits for the end of the sync that a commit has begun, if there is one.
    pub(crate) fn finish_sync(&mut self) -> Result<bool, Error> {
        self.store.finish_sync()
    }

    /// Has a thread sync the commits while the disk is slow.
    pub(crate) fn sync_in_thread(
        &mut self,
        notify: impl Fn() + Send + 'static,
    ) -> Result<(), Error> {
        self.store.sync_in_thread(notify)
    }

    /// Whether there is something to commit, or a failure to report.
    pub(crate) fn has_uncommitted(&self) -> bool {
        self.failure.get().is_some() || self.store.has_uncommitted()
    }

    /// The number of commits so far.
    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }
}
