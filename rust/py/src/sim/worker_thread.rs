//! A worker thread for simulations. Meanwhile the calling thread handles signals and reports
//! progress, however long a step of the work takes.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The interval of checks for signals, and of progress reports.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The wait for interrupted work to stop; usually it is within a short step.
const STOP_TIMEOUT: Duration = Duration::from_millis(100);

/// The progress of the work, and the request to stop it.
pub(super) struct Watch {
    /// The number of ended jobs.
    done: AtomicU64,
    /// The bits of the time of the trace.
    now: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    /// Before the first step.
    pub fn new(done: u64, now: f64) -> Self {
        Self {
            done: AtomicU64::new(done),
            now: AtomicU64::new(now.to_bits()),
            stop: AtomicBool::new(false),
        }
    }

    /// Records the end of a step. Returns whether to continue.
    pub fn step(&self, done: u64, now: f64) -> bool {
        self.done.store(done, Relaxed);
        self.now.store(now.to_bits(), Relaxed);
        !self.stop.load(Relaxed)
    }

    /// Handles signals and reports progress. Fails with the exception of a signal handler or of
    /// `report`.
    fn check(&self, py: Python<'_>, report: Option<&Py<PyAny>>) -> PyResult<()> {
        py.check_signals()?;
        if let Some(report) = report {
            let now = f64::from_bits(self.now.load(Relaxed));
            report.call1(py, (self.done.load(Relaxed), now))?;
        }
        Ok(())
    }
}

/// Runs work without the GIL. `report` is called with the number of ended jobs and the time of the
/// trace, at the start and then at intervals.
///
/// An exception of a signal handler or of `report` stops the work and discards its result. The work
/// may go on to the end of its step, beyond this call and the interpreter: it must not use Python.
pub(super) fn run<T: Send + 'static>(
    py: Python<'_>,
    report: Option<&Py<PyAny>>,
    watch: Watch,
    work: impl FnOnce(&Watch) -> T + Send + 'static,
) -> PyResult<T> {
    watch.check(py, report)?;
    let watch = Arc::new(watch);
    let watched = Arc::clone(&watch);
    let (sender, mut receiver) = sync_channel(1);
    let thread = thread::Builder::new().name("simulation".to_owned());
    let thread = thread.spawn(move || {
        // The receiver may be gone.
        let _ = sender.send(work(&watched));
    })?;
    let mut wait = |within| {
        let receiver = &mut receiver;
        py.detach(move || receiver.recv_timeout(within))
    };
    loop {
        match wait(SIGNAL_CHECK_INTERVAL) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(resume_panic(thread)),
        }
        if let Err(raised) = watch.check(py, report) {
            watch.stop.store(true, Relaxed);
            let _ = wait(STOP_TIMEOUT);
            return Err(raised);
        }
    }
}

/// Resumes the panic of a thread that has ended without a result; returns an error if it did not panic.
fn resume_panic(thread: JoinHandle<()>) -> PyErr {
    if let Err(panicked) = thread.join() {
        panic::resume_unwind(panicked);
    }
    PyRuntimeError::new_err("the thread of a simulation has ended without a result")
}
