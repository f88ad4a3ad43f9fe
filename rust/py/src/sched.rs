//! `Scheduler`: the scheduler's side of RFC 27 and RFC 28.

use std::time::Instant;

use penstock_sched::{Options, Phase, Settings};
use pyo3::prelude::*;

use crate::errors::raised;
use crate::wire::Batch;

/// A Flux scheduler, sans-IO: messages in, messages out.
#[pyclass(module = "penstock._core")]
pub(crate) struct Scheduler(pub(crate) penstock_sched::Scheduler);

/// Runs a pass if one is due, and records how long it took, with the answers to queries.
pub(crate) fn schedule(scheduler: &mut penstock_sched::Scheduler, now: f64) -> bool {
    if !scheduler.is_pass_due() {
        return scheduler.schedule(now);
    }
    let began = Instant::now();
    let more = scheduler.schedule(now);
    scheduler.record_pass(began.elapsed().as_secs_f64());
    more
}

#[pymethods]
impl Scheduler {
    #[new]
    #[pyo3(signature = (*, limit = None, grow = true, settings = "{}"))]
    fn new(limit: Option<u32>, grow: bool, settings: &str) -> PyResult<Self> {
        let settings = Settings::from_json(settings).map_err(raised)?;
        let options = Options {
            limit,
            grow,
            settings,
        };
        Ok(Self(penstock_sched::Scheduler::new(options)))
    }

    fn start(&mut self) {
        self.0.start();
    }

    fn stop(&mut self) {
        self.0.stop();
    }

    fn handle(&mut self, py: Python<'_>, batch: &Bound<'_, Batch>) {
        Batch::lend(py, batch, |messages| {
            for message in messages {
                self.0.handle(message);
            }
        });
    }

    fn schedule(&mut self, py: Python<'_>, now: f64) -> bool {
        py.detach(|| {
            let more = schedule(&mut self.0, now);
            self.0.advance_forecasts(now) || more
        })
    }

    fn annotate(&mut self, py: Python<'_>, now: f64) {
        py.detach(|| self.0.annotate(now));
    }

    fn defer_annotations(&mut self, now: f64, took: f64) {
        self.0.defer_annotations(now, took);
    }

    #[getter]
    fn deadline(&self) -> Option<f64> {
        self.0.deadline()
    }

    #[getter]
    fn out_bytes(&self) -> usize {
        self.0.out_bytes()
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
            Phase::Stopping => "stopping",
            Phase::Stopped => "stopped",
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
