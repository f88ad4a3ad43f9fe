//! Syncs of the log by a thread, while the writer works on its next transaction.
//!
//! A thread costs as much time as the sync of a fast disk, so the writer syncs itself (in `SQLite`'s `COMMIT`) while that
//! takes less than [`SLOW`].

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Error;

/// Syncs are made by the thread while one is expected to take longer.
const SLOW: Duration = Duration::from_millis(1);
/// The longest sync counts for less with each later one: by an eighth of what is left.
const EXPECTED_PARTS: u32 = 8;

/// Syncs a file.
type SyncFile = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// Wakes the writer at the end of a sync.
pub(crate) type Notify = Box<dyn Fn() + Send>;

/// The maker of the syncs.
enum Worker {
    /// The writer, when it [waits](LogSync::wait): for simulation.
    Calls { sync: SyncFile },
    /// A thread that is started for the first one.
    Unstarted { sync: SyncFile, notify: Notify },
    /// A thread.
    Thread {
        requests: SyncSender<()>,
        thread: JoinHandle<()>,
    },
    /// The writer, because a thread cannot be started.
    Writer { sync: SyncFile },
}

/// The end of a sync.
type Ended = io::Result<Duration>;

/// The state that the thread and the writer share.
#[derive(Default)]
struct Shared {
    ended: Mutex<Option<Ended>>,
    end: Condvar,
}

impl Shared {
    fn set(&self, ended: Ended) {
        let mut place = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(ended);
        self.end.notify_one();
    }

    fn wait(&self) -> Ended {
        let mut place = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(ended) = place.take() {
                return ended;
            }
            place = self.end.wait(place).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn has_ended(&self) -> bool {
        let place = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        place.is_some()
    }
}

/// The syncs of a log that are not part of a commit.
pub(crate) struct LogSync {
    path: PathBuf,
    worker: Worker,
    shared: Arc<Shared>,
    /// Whether a sync was begun whose end was not taken.
    is_pending: bool,
    /// The time that the next sync is expected to take.
    expected: Duration,
    /// Whether each sync is expected to be slow.
    is_always_slow: bool,
}

impl fmt::Debug for LogSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogSync")
            .field("path", &self.path)
            .field("is_pending", &self.is_pending)
            .field("expected", &self.expected)
            .finish_non_exhaustive()
    }
}

impl LogSync {
    /// Syncs of the log at a path by a thread, which calls a function at the end of each.
    pub(crate) fn in_thread(path: &Path, notify: Notify) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::file("cannot open", path, &error))?;
        let sync: SyncFile = Box::new(move || file.sync_data());
        Ok(Self::new(path, Worker::Unstarted { sync, notify }))
    }

    /// Syncs of each commit by a function, when the writer waits for them.
    pub(crate) fn by_calls(path: &Path, sync: SyncFile) -> Self {
        let mut syncs = Self::new(path, Worker::Calls { sync });
        syncs.is_always_slow = true;
        syncs
    }

    fn new(path: &Path, worker: Worker) -> Self {
        Self {
            path: path.to_owned(),
            worker,
            shared: Arc::default(),
            is_pending: false,
            expected: Duration::ZERO,
            is_always_slow: false,
        }
    }

    /// Whether the sync of the next commit is to be left to [`begin`](Self::begin).
    pub(crate) fn is_slow(&self) -> bool {
        self.is_always_slow || self.expected > SLOW
    }

    /// Has each sync made by the thread, for tests.
    pub(crate) fn expect_slow(&mut self) {
        self.is_always_slow = true;
    }

    /// Takes note of the time of a sync.
    pub(crate) fn observe(&mut self, time: Duration) {
        let decayed = self.expected.saturating_sub(self.expected / EXPECTED_PARTS);
        self.expected = decayed.max(time);
    }

    /// Begins a sync. The one before has ended, and its end was taken.
    pub(crate) fn begin(&mut self) {
        self.is_pending = true;
        self.start();
        match &self.worker {
            Worker::Thread { requests, .. } if requests.send(()).is_err() => {
                // A panic was reported by its hook.
                let error = io::Error::other("the thread that syncs has failed");
                self.shared.set(Err(error));
            }
            Worker::Writer { sync } => self.shared.set(sync_timed(sync)),
            Worker::Thread { .. } | Worker::Calls { .. } | Worker::Unstarted { .. } => {}
        }
    }

    fn start(&mut self) {
        if !matches!(self.worker, Worker::Unstarted { .. }) {
            return;
        }
        let nothing: SyncFile = Box::new(|| Ok(()));
        let unstarted = std::mem::replace(&mut self.worker, Worker::Writer { sync: nothing });
        let Worker::Unstarted { sync, notify } = unstarted else {
            return;
        };
        let sync = Arc::new(sync);
        let (requests, received) = sync_channel(1);
        let (shared, of_thread) = (Arc::clone(&self.shared), Arc::clone(&sync));
        let builder = thread::Builder::new().name("log syncs".to_owned());
        let started = builder.spawn(move || serve(&of_thread, &shared, &notify, &received));
        self.worker = match started {
            Ok(thread) => Worker::Thread { requests, thread },
            Err(_) => Worker::Writer {
                sync: Box::new(move || sync()),
            },
        };
    }

    /// Whether a sync was begun, and [`wait`](Self::wait) would not return at once.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_pending && !self.shared.has_ended()
    }

    /// Whether a sync was begun whose end was not taken.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Waits for the end of the sync that was begun, if there is one.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_pending) {
            return Ok(());
        }
        let ended = match &self.worker {
            Worker::Calls { sync } => sync_timed(sync),
            _ => self.shared.wait(),
        };
        let time = ended.map_err(|error| Error::file("cannot sync", &self.path, &error))?;
        self.observe(time);
        Ok(())
    }

    /// Ends the thread.
    pub(crate) fn stop(self) {
        if let Worker::Thread { requests, thread } = self.worker {
            drop(requests);
            // A panic was reported by its hook.
            let _ = thread.join();
        }
    }
}

/// The result of some work, and the time that it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = work();
    (result, began.elapsed())
}

fn sync_timed(sync: &SyncFile) -> Ended {
    let (synced, time) = timed(sync);
    synced.map(|()| time)
}

fn serve(sync: &SyncFile, shared: &Shared, notify: &Notify, requests: &Receiver<()>) {
    while requests.recv().is_ok() {
        shared.set(sync_timed(sync));
        notify();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::time::Duration;

    use super::{LogSync, SyncFile, Worker};

    fn syncs(sync: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> LogSync {
        let sync: SyncFile = Box::new(sync);
        let notify = Box::new(|| ());
        LogSync::new(Path::new("log"), Worker::Unstarted { sync, notify })
    }

    #[test]
    fn a_disk_is_slow_for_some_syncs_after_a_long_one() {
        let mut syncs = syncs(|| Ok(()));
        assert!(!syncs.is_slow());
        syncs.observe(Duration::from_millis(100));
        let mut count = 0;
        while syncs.is_slow() {
            syncs.observe(Duration::from_micros(200));
            count += 1;
        }
        assert_eq!(count, 35);
    }

    #[test]
    fn the_failure_of_a_sync_is_returned_once() {
        let mut syncs = syncs(|| Err(io::Error::other("the disk is broken")));
        syncs.begin();
        let error = syncs.wait().unwrap_err();
        assert_eq!(
            error.to_string(),
            "store: cannot sync `log`: the disk is broken"
        );
        assert!(error.is_input_output());
        assert!(syncs.wait().is_ok());
        syncs.stop();
    }
}
