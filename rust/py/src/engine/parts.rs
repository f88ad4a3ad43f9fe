//! Snapshots of pending and running jobs, as columns.

use std::cmp::Reverse;

use penstock_engine::PendingJob;
use penstock_jobspec::Request;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::columns::view;
use super::{Books, EngineCore};

/// What a shape asks for at least.
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

impl Books {
    /// The jobs that wait, with their own priorities, in the order of those.
    fn waiting(&self) -> Vec<PendingJob> {
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
        let books = self.books()?;
        let books = &*books;
        let (jobs, requests) = py.detach(|| {
            let mut jobs = books.waiting();
            if !held {
                jobs.retain(|job| job.priority > 0);
            }
            // Every shape of a job in the queue has a number: it went in by one.
            let shapes = jobs
                .iter()
                .map(|job| books.shapes.number(job.shape).unwrap_or(0));
            let sizes = shapes.map(|shape| (shape, books.shapes.at(shape).map(|it| size(&it.1))));
            let sizes: Vec<_> = sizes
                .map(|(shape, it)| (shape, it.unwrap_or_default()))
                .collect();
            (jobs, sizes)
        });
        let submitted = |id: u64| books.submitted.get(&id).copied().unwrap_or(f64::NAN);
        let columns = PyDict::new(py);
        columns.set_item("ids", view(py, jobs.iter().map(|job| job.id))?)?;
        columns.set_item("priorities", view(py, jobs.iter().map(|job| job.priority))?)?;
        columns.set_item("shapes", view(py, requests.iter().map(|it| it.0))?)?;
        columns.set_item("durations", view(py, jobs.iter().map(|job| job.duration))?)?;
        let times = jobs.iter().map(|job| submitted(job.id));
        columns.set_item("submitted", view(py, times)?)?;
        let waits = jobs.iter().map(|job| now - submitted(job.id));
        columns.set_item("waits", view(py, waits)?)?;
        columns.set_item("nodes", view(py, requests.iter().map(|it| it.1.nodes))?)?;
        columns.set_item("cores", view(py, requests.iter().map(|it| it.1.cores))?)?;
        columns.set_item("gpus", view(py, requests.iter().map(|it| it.1.gpus))?)?;
        Ok(columns)
    }

    /// The queues of the jobs, in the order of `pending`.
    fn queues(&self) -> PyResult<Vec<Option<String>>> {
        let books = self.books()?;
        let names = books.waiting().into_iter().map(|job| {
            let name = books.engine.queue_name(job.queue);
            Some(name.to_owned()).filter(|name| !name.is_empty())
        });
        Ok(names.collect())
    }

    /// The columns of `Running`.
    fn running<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let books = self.books()?;
        let held = books.engine.allocation_summaries();
        let columns = PyDict::new(py);
        columns.set_item("ids", view(py, held.iter().map(|it| it.id))?)?;
        let starts = held.iter().map(|it| it.start.unwrap_or(f64::NAN));
        columns.set_item("starts", view(py, starts)?)?;
        let ends = held.iter().map(|it| it.expiration.unwrap_or(f64::NAN));
        columns.set_item("expirations", view(py, ends)?)?;
        columns.set_item("nodes", view(py, held.iter().map(|it| it.nodes))?)?;
        columns.set_item("cores", view(py, held.iter().map(|it| it.cores))?)?;
        columns.set_item("gpus", view(py, held.iter().map(|it| it.gpus))?)?;
        Ok(columns)
    }

    #[getter]
    fn npending(&self) -> PyResult<usize> {
        Ok(self.books()?.engine.queue_len())
    }

    #[getter]
    fn nrunning(&self) -> PyResult<usize> {
        Ok(self.books()?.engine.running())
    }
}
