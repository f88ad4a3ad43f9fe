//! `Engine`, and the functions on jobspecs, durations and job ids.

use penstock_engine::{Decision, Job, QueueId};
use penstock_jobspec::fluid::Fluid;
use penstock_jobspec::{Constraint, Count, Jobspec};
use penstock_rset::ResourceSet;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{EngineError, JobspecError};

fn jobspec_error(error: impl ToString) -> PyErr {
    JobspecError::new_err(error.to_string())
}

fn engine_error(error: impl ToString) -> PyErr {
    EngineError::new_err(error.to_string())
}

/// What the engine decided about one job: `r` (the text of R) where it is allocated, `note` where
/// it is denied.
#[pyclass(module = "penstock._core", frozen, get_all)]
struct Decided {
    id: u64,
    r: Option<String>,
    note: Option<String>,
}

#[pymethods]
impl Decided {
    fn __repr__(&self) -> String {
        match (&self.r, &self.note) {
            (Some(r), _) => format!("Decided(id={}, r={r:?})", self.id),
            (None, note) => format!("Decided(id={}, note={note:?})", self.id),
        }
    }
}

/// Inventory, queue and matching (see the Rust crate `penstock-engine`). Idsets, resource sets
/// and jobspecs go in and out as text.
#[pyclass(module = "penstock._core")]
struct Engine(penstock_engine::Engine);

fn idset(text: &str) -> PyResult<penstock_idset::IdSet> {
    text.parse()
        .map_err(|error: penstock_idset::Error| engine_error(error))
}

fn resources(text: &str) -> PyResult<ResourceSet> {
    ResourceSet::from_json(text).map_err(engine_error)
}

fn jobspec(text: &str) -> PyResult<Jobspec> {
    Jobspec::from_json(text).map_err(jobspec_error)
}

#[pymethods]
impl Engine {
    #[new]
    fn new(inventory: &str) -> PyResult<Self> {
        let engine = penstock_engine::Engine::new(&resources(inventory)?);
        engine.map(Self).map_err(engine_error)
    }

    fn mark_up(&mut self, ranks: &str) -> PyResult<()> {
        self.0.mark_up(&idset(ranks)?);
        Ok(())
    }

    fn mark_down(&mut self, ranks: &str) -> PyResult<()> {
        self.0.mark_down(&idset(ranks)?);
        Ok(())
    }

    fn grow(&mut self, more: &str) -> PyResult<()> {
        self.0.grow(&resources(more)?).map_err(engine_error)
    }

    fn shrink(&mut self, ranks: &str) -> PyResult<()> {
        self.0.shrink(&idset(ranks)?);
        Ok(())
    }

    fn add_property(&mut self, name: &str, ranks: &str) -> PyResult<()> {
        self.0
            .add_property(name, &idset(ranks)?)
            .map_err(engine_error)
    }

    fn remove_property(&mut self, name: &str, ranks: &str) -> PyResult<()> {
        self.0.remove_property(name, &idset(ranks)?);
        Ok(())
    }

    #[pyo3(name = "submit")]
    fn queue(&mut self, job: u64, priority: u32, jobspec_text: &str) -> PyResult<()> {
        let request = jobspec(jobspec_text)?.request().clone();
        let job = Job {
            id: job,
            priority,
            request,
            queue: QueueId::default(),
        };
        self.0.submit(job).map_err(engine_error)
    }

    fn cancel(&mut self, job: u64) -> bool {
        self.0.cancel(job)
    }

    fn prioritize(&mut self, job: u64, priority: u32) -> bool {
        self.0.prioritize(&[(job, priority)]) == 1
    }

    #[pyo3(signature = (now, *, limit = usize::MAX))]
    fn schedule(&mut self, py: Python<'_>, now: f64, limit: usize) -> PyResult<Vec<Decided>> {
        let decisions = py.detach(|| self.0.schedule(now, limit));
        let decided = |decision| match decision {
            Decision::Alloc { id, .. } => {
                let mut r = String::new();
                self.0.write_r(id, &mut r).map_err(engine_error)?;
                Ok(Decided {
                    id,
                    r: Some(r),
                    note: None,
                })
            }
            Decision::Deny { id, note } => Ok(Decided {
                id,
                r: None,
                note: Some(note),
            }),
        };
        decisions.into_iter().map(decided).collect()
    }

    #[pyo3(signature = (job, ranks = None))]
    fn free(&mut self, job: u64, ranks: Option<&str>) -> PyResult<()> {
        let ranks = ranks.map(idset).transpose()?;
        self.0.free(job, ranks.as_ref()).map_err(engine_error)
    }

    fn allocate(&mut self, job: u64, r: &str) -> PyResult<()> {
        self.0.allocate(job, &resources(r)?).map_err(engine_error)
    }

    /// Registers what a job holds, as far as it is in the inventory; returns the other ranks.
    fn adopt(&mut self, job: u64, r: &str) -> PyResult<String> {
        let strange = self.0.adopt(job, &resources(r)?);
        strange.map(|ranks| ranks.to_string()).map_err(engine_error)
    }

    /// Why a jobspec can never run here, or `None`.
    fn infeasible(&mut self, jobspec_text: &str) -> PyResult<Option<String>> {
        Ok(self.0.feasible(jobspec(jobspec_text)?.request()).err())
    }

    #[getter]
    fn allocated(&self) -> PyResult<String> {
        let allocated = self.0.allocated().map_err(engine_error)?;
        Ok(allocated.to_json())
    }

    #[getter]
    fn up(&self) -> String {
        self.0.up().to_string()
    }

    #[getter]
    fn queue_len(&self) -> usize {
        self.0.queue_len()
    }

    #[getter]
    fn running(&self) -> usize {
        self.0.running()
    }
}

/// Checks a jobspec's text (RFC 25) and says what it asks for.
#[pyfunction]
fn validate_jobspec<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyDict>> {
    let jobspec = jobspec(text)?;
    let request = jobspec.request();
    let summary = PyDict::new(py);
    summary.set_item("ntasks", jobspec.ntasks())?;
    summary.set_item("nnodes", request.least_nodes())?;
    summary.set_item("ncores", request.total_cores())?;
    summary.set_item("ngpus", request.total_gpus())?;
    summary.set_item("exclusive", request.exclusive)?;
    summary.set_item("duration", jobspec.duration())?;
    summary.set_item("queue", jobspec.queue())?;
    summary.set_item("name", jobspec.job_name())?;
    Ok(summary)
}

/// Checks the JSON text of a constraint (RFC 31) and gives its normal form.
#[pyfunction]
fn validate_constraint(text: &str) -> PyResult<String> {
    let value = serde_json::from_str(text).map_err(jobspec_error)?;
    let constraint = Constraint::from_value(&value).map_err(jobspec_error)?;
    Ok(constraint.to_string())
}

/// A count as text (RFC 45, RFC 22) in the form of a jobspec, as JSON.
#[pyfunction]
fn parse_count(text: &str) -> PyResult<String> {
    let count: Count = text.parse().map_err(jobspec_error)?;
    Ok(count.to_value().to_string())
}

/// The largest number that a jobspec's count (RFC 14, as JSON) admits and that is not above the
/// limit.
#[pyfunction]
fn largest_count(count: &str, limit: u32) -> PyResult<Option<u32>> {
    let value = serde_json::from_str(count).map_err(jobspec_error)?;
    let count = Count::from_value(&value).map_err(jobspec_error)?;
    Ok(count.largest_up_to(limit))
}

/// A Flux Standard Duration (RFC 23) in seconds.
#[pyfunction]
fn parse_duration(text: &str) -> PyResult<f64> {
    penstock_jobspec::duration::parse(text).map_err(jobspec_error)
}

/// The number of a job id (RFC 19) in any of its forms.
#[pyfunction]
fn fluid_parse(text: &str) -> PyResult<u64> {
    text.parse::<Fluid>().map(|id| id.0).map_err(jobspec_error)
}

/// A job id in base 58, as people see it.
#[pyfunction]
fn fluid_f58(job: u64) -> String {
    Fluid(job).f58()
}

/// A job id in dotted hexadecimal, as the store's keys have it.
#[pyfunction]
fn fluid_dothex(job: u64) -> String {
    Fluid(job).dothex()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Engine>()?;
    module.add_class::<Decided>()?;
    module.add_function(wrap_pyfunction!(validate_jobspec, module)?)?;
    module.add_function(wrap_pyfunction!(validate_constraint, module)?)?;
    module.add_function(wrap_pyfunction!(parse_count, module)?)?;
    module.add_function(wrap_pyfunction!(largest_count, module)?)?;
    module.add_function(wrap_pyfunction!(parse_duration, module)?)?;
    module.add_function(wrap_pyfunction!(fluid_parse, module)?)?;
    module.add_function(wrap_pyfunction!(fluid_f58, module)?)?;
    module.add_function(wrap_pyfunction!(fluid_dothex, module)?)
}
