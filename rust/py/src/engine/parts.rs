//! Snapshots of pending and running jobs, as columns.

use std::cmp::Reverse;

use penstock_engine::PendingJob;
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::core_state::{CoreState, EngineCore};
use crate::array::view;

/// The minimum size of a shape's request.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: u32,
    cores: u64,
    gpus: u64,
}

fn size(request: &Request) -> Size {
    Size {
        nodes: request.least_nodes().unwrap_or(0),
        cores: request.total_cores(),
        gpus: request.total_gpus(),
    }
}

impl CoreState {
    /// The pending jobs with their own priorities, in the order of these.
    fn pending_jobs(&self) -> Vec<PendingJob> {
        let mut jobs = self.engine.pending_jobs();
        if !self.arranged.is_empty() {
            for job in &mut jobs {
                if let Some(own) = self.arranged.get(&job.id) {
                    job.priority = *own;
                }
            }
            jobs.sort_unstable_by_key(|job| (Reverse(job.priority), job.id));
        }
        jobs
    }
}

#[pymethods]
impl EngineCore {
    /// The columns of `Pending`.
    #[pyo3(signature = (now, *, held))]
    fn pending<'py>(&self, py: Python<'py>, now: f64, held: bool) -> PyResult<Bound<'py, PyDict>> {
        let state = self.lock()?;
        let state = &*state;
        let (jobs, requests) = py.detach(|| {
            let mut jobs = state.pending_jobs();
            if !held {
                jobs.retain(|job| job.priority > 0);
            }
            // Every shape of a job in the queue has a number: it went in by one.
            let shapes = jobs
                .iter()
                .map(|job| state.shapes.number(job.shape).unwrap_or(0));
            let sizes = shapes.map(|shape| {
                (
                    shape,
                    state.shapes.at(shape).map(|named| size(&named.request)),
                )
            });
            let sizes: Vec<_> = sizes
                .map(|(shape, size)| (shape, size.unwrap_or_default()))
                .collect();
            (jobs, sizes)
        });
        let submitted = |id: JobId| state.submitted.get(&id).copied().unwrap_or(f64::NAN);
        let columns = PyDict::new(py);
        columns.set_item("ids", view(py, jobs.iter().map(|job| job.id.get()))?)?;
        columns.set_item("priorities", view(py, jobs.iter().map(|job| job.priority))?)?;
        columns.set_item(
            "shapes",
            view(py, requests.iter().map(|(shape, _)| *shape))?,
        )?;
        columns.set_item("durations", view(py, jobs.iter().map(|job| job.duration))?)?;
        let times = jobs.iter().map(|job| submitted(job.id));
        columns.set_item("submitted", view(py, times)?)?;
        let waits = jobs.iter().map(|job| now - submitted(job.id));
        columns.set_item("waits", view(py, waits)?)?;
        columns.set_item(
            "nodes",
            view(py, requests.iter().map(|(_, size)| size.nodes))?,
        )?;
        columns.set_item(
            "cores",
            view(py, requests.iter().map(|(_, size)| size.cores))?,
        )?;
        columns.set_item(
            "gpus",
            view(py, requests.iter().map(|(_, size)| size.gpus))?,
        )?;
        Ok(columns)
    }

    /// The queues of the jobs, in the order of `pending`.
    fn queues(&self) -> PyResult<Vec<Option<String>>> {
        let state = self.lock()?;
        let names = state.pending_jobs().into_iter().map(|job| {
            let name = state.engine.queue_name(job.queue);
            Some(name.to_owned()).filter(|name| !name.is_empty())
        });
        Ok(names.collect())
    }

    /// The columns of `Running`.
    fn running<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.lock()?;
        let held = state.engine.allocation_summaries();
        let columns = PyDict::new(py);
        columns.set_item("ids", view(py, held.iter().map(|job| job.id.get()))?)?;
        let starts = held.iter().map(|job| job.start.unwrap_or(f64::NAN));
        columns.set_item("starts", view(py, starts)?)?;
        let ends = held.iter().map(|job| job.expiration.unwrap_or(f64::NAN));
        columns.set_item("expirations", view(py, ends)?)?;
        columns.set_item("nodes", view(py, held.iter().map(|job| job.nodes))?)?;
        columns.set_item("cores", view(py, held.iter().map(|job| job.cores))?)?;
        columns.set_item("gpus", view(py, held.iter().map(|job| job.gpus))?)?;
        Ok(columns)
    }

    #[getter]
    fn npending(&self) -> PyResult<usize> {
        Ok(self.lock()?.engine.queue_len())
    }

    #[getter]
    fn nrunning(&self) -> PyResult<usize> {
        Ok(self.lock()?.engine.running())
    }
}
