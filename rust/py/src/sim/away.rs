//! Work in a thread of its own: whoever waits for it looks at signals and tells how far it is,
//! however long a step of the work takes.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// So often signals are looked at and somebody is told.
const EVERY: Duration = Duration::from_millis(50);
/// So long work that is to stop is waited for: mostly it is in the middle of a short step.
const GRACE: Duration = Duration::from_millis(100);

/// How far the work is, and whether it is to stop.
pub(super) struct Watch {
    /// Jobs that are over.
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

    /// A step of the work is done. Returns whether to go on.
    pub fn step(&self, done: u64, now: f64) -> bool {
        self.done.store(done, Relaxed);
        self.now.store(now.to_bits(), Relaxed);
        !self.stop.load(Relaxed)
    }

    /// Looks at signals, and tells how far it is. Fails with what a signal's handler or who was
    /// told has raised.
    fn heed(&self, py: Python<'_>, told: Option<&Py<PyAny>>) -> PyResult<()> {
        py.check_signals()?;
        if let Some(told) = told {
            let now = f64::from_bits(self.now.load(Relaxed));
            told.call1(py, (self.done.load(Relaxed), now))?;
        }
        Ok(())
    }
}

/// Does some work, without the GIL. `told` is called with the number of jobs that are over and the
/// time of the trace, once before.
///
/// When a signal's handler or who was told has raised something, the work is to stop, and its
/// outcome is lost. It may go on until the end of its step, beyond the end of this call and of the
/// interpreter: it must know nothing of Python.
pub(super) fn run<T: Send + 'static>(
    py: Python<'_>,
    told: Option<&Py<PyAny>>,
    watch: Watch,
    work: impl FnOnce(&Watch) -> T + Send + 'static,
) -> PyResult<T> {
    watch.heed(py, told)?;
    let watch = Arc::new(watch);
    let watched = Arc::clone(&watch);
    let (sender, mut outcome) = sync_channel(1);
    let thread = thread::Builder::new().name("simulation".to_owned());
    let thread = thread.spawn(move || {
        // Nobody may be there any more to take it.
        let _ = sender.send(work(&watched));
    })?;
    let mut wait = |within| {
        let outcome = &mut outcome;
        py.detach(move || outcome.recv_timeout(within))
    };
    loop {
        match wait(EVERY) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(fallen(thread)),
        }
        if let Err(raised) = watch.heed(py, told) {
            watch.stop.store(true, Relaxed);
            let _ = wait(GRACE);
            return Err(raised);
        }
    }
}

/// A thread has ended without an outcome: goes on with its panic.
fn fallen(thread: JoinHandle<()>) -> PyErr {
    if let Err(panicked) = thread.join() {
        panic::resume_unwind(panicked);
    }
    PyRuntimeError::new_err("the thread of a simulation has ended without an outcome")
}
