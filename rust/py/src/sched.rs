//! `Scheduler`: RFC 27 and 28 from the scheduler's side.

use penstock_sched::{Options, Phase};
use pyo3::prelude::*;

use crate::wire::Batch;

/// A Flux scheduler, sans-IO: messages in, messages out.
#[pyclass(module = "penstock._core")]
struct Scheduler(penstock_sched::Scheduler);

#[pymethods]
impl Scheduler {
    #[new]
    #[pyo3(signature = (*, limit = None, grow = true))]
    fn new(limit: Option<u32>, grow: bool) -> Self {
        Self(penstock_sched::Scheduler::new(Options { limit, grow }))
    }

    fn start(&mut self) {
        self.0.start();
    }

    fn handle(&mut self, py: Python<'_>, batch: &Bound<'_, Batch>) {
        let messages = std::mem::take(&mut batch.borrow_mut().messages);
        py.detach(|| {
            for message in &messages {
                self.0.handle(message);
            }
        });
    }

    fn schedule(&mut self, py: Python<'_>, now: f64) -> bool {
        py.detach(|| self.0.schedule(now))
    }

    fn take_out(&mut self) -> Batch {
        Batch {
            messages: self.0.take_out(),
        }
    }

    fn take_log(&mut self) -> Vec<String> {
        self.0.take_log()
    }

    #[getter]
    fn phase(&self) -> &'static str {
        match self.0.phase() {
            Phase::Registering => "registering",
            Phase::Acquiring => "acquiring",
            Phase::Greeting => "greeting",
            Phase::Readying => "readying",
            Phase::Running => "running",
            Phase::Failed(_) => "failed",
        }
    }

    #[getter]
    fn failure(&self) -> Option<&str> {
        match self.0.phase() {
            Phase::Failed(reason) => Some(reason),
            _ => None,
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Scheduler>()
}
