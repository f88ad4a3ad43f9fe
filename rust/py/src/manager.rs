//! `JobManager`: jobs, their states and their store.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use penstock_flux::RequestError;
use penstock_jobspec::job_id::JobId;
use penstock_manager::{DiskSpace, Settings};
use penstock_rset::ResourceSet;
use penstock_store::{Commit, Store, Synchronous};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::raised;
use crate::wire::Batch;

/// The job manager over its store. Calls release the GIL while they work.
#[pyclass(module = "penstock._core", frozen)]
pub(crate) struct JobManager {
    manager: Mutex<penstock_manager::Manager>,
    /// The database; `None` for one in memory that nothing else can open.
    path: Option<PathBuf>,
    synchronous: Synchronous,
    /// By it a thread that syncs the store tells the end of each sync.
    sync_ends: OnceLock<SyncEnds>,
}

/// A byte can be read at the end of a sync.
struct SyncEnds {
    reader: UnixStream,
    writer: Arc<UnixStream>,
}

impl SyncEnds {
    fn new() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let writer = Arc::new(writer);
        Ok(Self { reader, writer })
    }

    fn notify(&self) -> impl Fn() + Send + 'static {
        let writer = Arc::clone(&self.writer);
        // It is full of bytes that tell the same.
        move || drop((&*writer).write(&[0]))
    }
}

/// The output of a manager: see [`JobManager::take_output`].
type ManagerOutput = (Batch, bool, Option<f64>, bool, Vec<String>, Vec<u64>);

/// A `penstock.instance.system.DiskSpace`.
#[derive(FromPyObject)]
struct GivenSpace {
    free: u64,
    total: u64,
}

fn settings(text: &str) -> PyResult<Settings> {
    Settings::from_json(text).map_err(raised)
}

impl JobManager {
    /// Runs `work` on the manager without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut penstock_manager::Manager) -> T + Send,
    ) -> PyResult<T> {
        py.detach(|| Ok(work(&mut *self.lock()?)))
    }

    /// The manager, for calls without the GIL.
    pub(crate) fn lock(&self) -> PyResult<MutexGuard<'_, penstock_manager::Manager>> {
        let locked = self.manager.lock();
        locked.map_err(|_| PyRuntimeError::new_err("the job manager has failed before"))
    }
}

#[pymethods]
impl JobManager {
    #[new]
    #[pyo3(signature = (path, settings, now, *, synchronous = "full"))]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        settings: &str,
        now: f64,
        synchronous: &str,
    ) -> PyResult<Self> {
        let settings = self::settings(settings)?;
        let synchronous = match synchronous {
            "full" => Synchronous::Full,
            "normal" => Synchronous::Normal,
            other => {
                return Err(PyValueError::new_err(format!(
                    "invalid synchronous `{other}`: expected `full` or `normal`"
                )));
            }
        };
        let manager = py.detach(|| {
            let store = match &path {
                Some(path) => Store::open(path, synchronous)?,
                None => Store::in_memory()?,
            };
            penstock_manager::Manager::open(store, settings, now)
        });
        Ok(Self {
            manager: Mutex::new(manager.map_err(raised)?),
            path,
            synchronous,
            sync_ends: OnceLock::new(),
        })
    }

    /// Has a thread sync the commits while the disk is slow.
    fn sync_in_thread(&self, py: Python<'_>) -> PyResult<()> {
        let ends = SyncEnds::new()?;
        let notify = self.sync_ends.get_or_init(|| ends).notify();
        self.with(py, |manager| manager.sync_in_thread(notify))?
            .map_err(raised)
    }

    /// A descriptor that can be read when a sync has ended; `None` without that thread.
    #[getter]
    fn sync_descriptor(&self) -> Option<RawFd> {
        self.sync_ends.get().map(|ends| ends.reader.as_raw_fd())
    }

    /// Replaces the manager by one that is built from what the store has committed, as at a start of the instance.
    fn rebuild(&self, py: Python<'_>, settings: &str, now: f64) -> PyResult<()> {
        let settings = self::settings(settings)?;
        let path = self.path.as_ref().ok_or_else(|| {
            PyRuntimeError::new_err("a job manager in memory cannot be built again")
        })?;
        let rebuilt = py.detach(|| {
            // The state that a panic has left is replaced.
            let mut manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner);
            manager.rebuild(path, || {
                let mut store = Store::open(path, self.synchronous)?;
                if let Some(ends) = self.sync_ends.get() {
                    store.sync_in_thread(ends.notify())?;
                }
                penstock_manager::Manager::open(store, settings, now)
            })?;
            self.manager.clear_poison();
            Ok::<_, penstock_store::Error>(())
        });
        rebuilt.map_err(raised)
    }

    /// Replaces a manager that has failed by one that only answers questions, from what the store has committed. Requests
    /// for a change are rejected with an error number and a reason.
    fn open_for_reading(
        &self,
        py: Python<'_>,
        settings: &str,
        now: f64,
        errnum: u32,
        reason: &str,
    ) -> PyResult<()> {
        let settings = self::settings(settings)?;
        let path = self.path.as_ref().ok_or_else(|| {
            PyRuntimeError::new_err("a job manager in memory cannot be read again")
        })?;
        let outage = RequestError::new(errnum, reason);
        let opened = py.detach(|| {
            let mut manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner);
            let store = manager.reopen_store_for_reading(path)?;
            *manager = penstock_manager::Manager::open_for_reading(store, settings, now, outage)?;
            self.manager.clear_poison();
            Ok::<_, penstock_store::Error>(())
        });
        opened.map_err(raised)
    }

    /// Whether the manager only answers questions; one that a panic has left does not.
    #[getter]
    fn is_reading(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            self.manager
                .lock()
                .is_ok_and(|manager| manager.is_reading())
        })
    }

    fn handle(&self, py: Python<'_>, batch: &Bound<'_, Batch>, now: f64) -> PyResult<()> {
        Batch::lend(py, batch, |messages| {
            let mut manager = self.lock()?;
            for message in messages {
                manager.handle(message, now);
            }
            Ok(())
        })
    }

    fn advance(&self, py: Python<'_>, now: f64) -> PyResult<bool> {
        self.with(py, |manager| manager.advance(now))
    }

    #[pyo3(signature = (route, /))]
    fn is_ahead(&self, py: Python<'_>, route: &[u8]) -> PyResult<bool> {
        self.with(py, move |manager| manager.is_ahead(route))
    }

    #[pyo3(signature = (users, /))]
    fn delays(&self, py: Python<'_>, users: Vec<u32>) -> PyResult<bool> {
        self.with(py, move |manager| manager.delays(&users))
    }

    /// Takes the output of the manager: messages, whether there is more to do, the deadline, whether changes are
    /// uncommitted, lines of its log, and purged jobs. `is_writable` tells whether the reader of a long response keeps up.
    fn take_output(
        &self,
        py: Python<'_>,
        is_writable: &Bound<'_, PyAny>,
    ) -> PyResult<ManagerOutput> {
        let mut backlogged = BTreeSet::new();
        for reader in self.with(py, |manager| manager.readers())? {
            if !is_writable.call1((PyBytes::new(py, &reader),))?.extract()? {
                backlogged.insert(reader);
            }
        }
        self.with(py, move |manager| {
            manager.set_backlogged(backlogged);
            let messages = manager.take_messages();
            let purged = manager.take_purged().into_iter();
            (
                Batch { messages },
                manager.has_more(),
                manager.deadline(),
                manager.has_uncommitted(),
                manager.take_log(),
                purged.map(JobId::get).collect(),
            )
        })
    }

    fn commit(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, penstock_manager::Manager::commit)?
            .map_err(raised)
    }

    /// Commits all changes. Returns whether there were any, and whether they are not durable until
    /// [`finish_sync`](Self::finish_sync).
    fn begin_commit(&self, py: Python<'_>) -> PyResult<(bool, bool)> {
        let commit = self
            .with(py, penstock_manager::Manager::begin_commit)?
            .map_err(raised)?;
        Ok((commit != Commit::Unchanged, commit == Commit::Syncing))
    }

    /// Whether a sync is under way, for the end of which [`finish_sync`](Self::finish_sync) would wait.
    #[getter]
    fn is_syncing(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner);
            manager.store().is_syncing()
        })
    }

    /// Waits for the end of the sync that a commit has begun, also if a panic has left the manager since.
    fn finish_sync(&self, py: Python<'_>) -> PyResult<bool> {
        let finished = py.detach(|| {
            let mut manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner);
            manager.finish_sync()
        });
        finished.map_err(raised)
    }

    fn set_monotonic(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        self.with(py, |manager| manager.set_monotonic(seconds))
    }

    fn record_commit(&self, py: Python<'_>, monotonic: f64) -> PyResult<()> {
        self.with(py, |manager| manager.record_commit(monotonic))
    }

    #[getter]
    fn has_uncommitted(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |manager| manager.has_uncommitted())
    }

    #[getter]
    fn out_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |manager| manager.out_bytes())
    }

    fn readers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let readers = self.with(py, |manager| manager.readers())?;
        Ok(readers
            .iter()
            .map(|reader| PyBytes::new(py, reader))
            .collect())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<Batch> {
        let messages = self.with(py, penstock_manager::Manager::flush)?;
        let messages = messages.map_err(raised)?;
        Ok(Batch { messages })
    }

    fn set_settings(&self, py: Python<'_>, settings: &str, now: f64) -> PyResult<()> {
        let settings = self::settings(settings)?;
        self.with(py, |manager| manager.set_settings(settings, now))
    }

    /// Rejects submissions with an error number and a reason, or accepts them.
    #[pyo3(signature = (error, /))]
    fn set_rejection(&self, py: Python<'_>, error: Option<(u32, String)>) -> PyResult<()> {
        let error = error.map(|(errnum, reason)| RequestError::new(errnum, reason));
        self.with(py, |manager| manager.set_rejection(error))
    }

    /// Sets the space of the file system with the store, or that it is unknown.
    #[pyo3(signature = (space, /))]
    fn set_disk_space(&self, py: Python<'_>, space: Option<GivenSpace>) -> PyResult<()> {
        let space = space.map(|GivenSpace { free, total }| DiskSpace { free, total });
        self.with(py, |manager| manager.set_disk_space(space))
    }

    fn pause_starts(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, penstock_manager::Manager::pause_starts)
    }

    fn resume_starts(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, penstock_manager::Manager::resume_starts)
    }

    fn missing(&self, py: Python<'_>, jobs: Vec<u64>) -> PyResult<Vec<u64>> {
        let missing = self.with(py, move |manager| {
            let mut missing = Vec::new();
            for job in jobs {
                if !manager.store().has_job(JobId::new(job))? {
                    missing.push(job);
                }
            }
            Ok::<_, penstock_store::Error>(missing)
        })?;
        missing.map_err(raised)
    }

    fn purged_jobs(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let purged = self.with(py, |manager| manager.store().purged_jobs())?;
        let purged = purged.map_err(raised)?;
        Ok(purged.into_iter().map(JobId::get).collect())
    }

    fn forget_purged(&self, py: Python<'_>, jobs: Vec<u64>) -> PyResult<()> {
        let jobs: Vec<JobId> = jobs.into_iter().map(JobId::new).collect();
        self.with(py, |manager| manager.forget_purged(&jobs))
    }

    fn stop_scheduling(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, penstock_manager::Manager::stop_scheduling)
    }

    fn set_inventory(&self, py: Python<'_>, r_text: &str) -> PyResult<()> {
        let inventory = ResourceSet::from_json(r_text).map_err(raised)?;
        self.with(py, |manager| manager.set_inventory(inventory))
    }

    fn set_services(&self, py: Python<'_>, services: HashMap<String, Vec<u8>>) -> PyResult<()> {
        self.with(py, |manager| manager.set_services(services))
    }

    fn held(&self, py: Python<'_>) -> PyResult<String> {
        let held = self.with(py, |manager| manager.allocated())?;
        held.map(|held| held.to_json()).map_err(raised)
    }

    fn resource_events(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let events = self.with(py, |manager| manager.store().resource_events())?;
        let events = events.map_err(raised)?;
        Ok(events.into_iter().map(|(_, line)| line).collect())
    }
}

/// The topics of the services in Rust, each with the users who may call it.
#[pyfunction]
fn service_roles() -> Vec<(String, &'static str)> {
    let exec = penstock_flux::exec::METHODS.into_iter();
    let topics = penstock_manager::roles()
        .chain(penstock_resource::roles())
        .chain(penstock_sched::roles())
        .map(|(topic, role)| (topic.to_owned(), role));
    topics
        .chain(exec.map(|(method, caller)| (format!("job-exec.{method}"), caller.name())))
        .collect()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(service_roles, module)?)?;
    module.add_class::<JobManager>()
}
