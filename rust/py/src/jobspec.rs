//! The functions on jobspecs, constraints, durations and job ids.

use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Count, Jobspec};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raised;

/// Reads a jobspec's text.
pub(crate) fn jobspec(text: &str) -> PyResult<Jobspec> {
    Jobspec::from_json(text).map_err(raised)
}

/// Checks a jobspec's text (RFC 25) and returns its request.
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

/// Checks the JSON text of a constraint (RFC 31) and returns its normal form.
#[pyfunction]
fn validate_constraint(text: &str) -> PyResult<String> {
    let constraint = Constraint::from_json(text).map_err(raised)?;
    Ok(constraint.to_value().to_string())
}

/// A count as text (RFC 45, RFC 22) in the form of a jobspec, as JSON.
#[pyfunction]
fn parse_count(text: &str) -> PyResult<String> {
    let count: Count = text.parse().map_err(raised)?;
    Ok(count.to_value().to_string())
}

/// The largest number that a jobspec's count (RFC 14, as JSON) admits and that is not above the
/// limit.
#[pyfunction]
fn largest_count(count: &str, limit: u32) -> PyResult<Option<u32>> {
    let count = Count::from_json(count).map_err(raised)?;
    Ok(count.largest_up_to(limit))
}

/// A Flux Standard Duration (RFC 23) in seconds.
#[pyfunction]
fn parse_duration(text: &str) -> PyResult<f64> {
    penstock_jobspec::duration::parse(text).map_err(raised)
}

/// The number of a job id (RFC 19) in any of its forms.
#[pyfunction]
fn fluid_parse(text: &str) -> PyResult<u64> {
    text.parse::<JobId>().map(JobId::get).map_err(raised)
}

/// A job id in base 58, as people see it.
#[pyfunction]
fn fluid_f58(job: u64) -> String {
    JobId::new(job).f58()
}

/// A job id in dotted hexadecimal, as the store's keys have it.
#[pyfunction]
fn fluid_dothex(job: u64) -> String {
    JobId::new(job).dothex()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(validate_jobspec, module)?)?;
    module.add_function(wrap_pyfunction!(validate_constraint, module)?)?;
    module.add_function(wrap_pyfunction!(parse_count, module)?)?;
    module.add_function(wrap_pyfunction!(largest_count, module)?)?;
    module.add_function(wrap_pyfunction!(parse_duration, module)?)?;
    module.add_function(wrap_pyfunction!(fluid_parse, module)?)?;
    module.add_function(wrap_pyfunction!(fluid_f58, module)?)?;
    module.add_function(wrap_pyfunction!(fluid_dothex, module)?)
}
