//! `MockExec`: simulated execution.

use pyo3::prelude::*;

use crate::wire::Batch;

/// Simulated execution (RFC 32): each job lasts as long as its jobspec says.
#[pyclass(module = "penstock._core")]
pub(crate) struct MockExec(pub(crate) penstock_mockexec::MockExec);

#[pymethods]
impl MockExec {
    #[new]
    fn new(name: &str) -> Self {
        Self(penstock_mockexec::MockExec::new(name))
    }

    fn start(&self) -> Batch {
        Batch {
            messages: self.0.start(),
        }
    }

    fn handle(&mut self, py: Python<'_>, batch: &Bound<'_, Batch>, now: f64) -> Batch {
        let mut messages = Vec::new();
        Batch::lend(py, batch, |inbound| {
            for message in inbound {
                self.0.handle(message, now, &mut messages);
            }
        });
        Batch { messages }
    }

    fn advance(&mut self, py: Python<'_>, now: f64) -> Batch {
        let mut messages = Vec::new();
        py.detach(|| self.0.advance(now, &mut messages));
        Batch { messages }
    }

    #[getter]
    fn deadline(&self) -> Option<f64> {
        self.0.deadline()
    }

    #[getter]
    fn running(&self) -> usize {
        self.0.running()
    }

    #[getter]
    fn failure(&self) -> Option<&str> {
        self.0.failure()
    }

    #[getter]
    fn failure_errnum(&self) -> Option<u32> {
        self.0.failure_errnum()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<MockExec>()
}
