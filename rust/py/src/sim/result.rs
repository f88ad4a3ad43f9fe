//! `SimResult`: the results of the jobs of a simulation.

use std::sync::OnceLock;

use penstock_idset::IdSet;
use penstock_sim::{JobResult, Spread};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::simulation::Simulation;
use crate::array::view;

/// The jobs of a simulation and how they ended: a view of the simulation, in the order of the file.
#[pyclass(module = "penstock._core", frozen)]
pub(crate) struct SimResult {
    simulation: Py<Simulation>,
    /// The cores of a pool allocated to each job, computed on first use.
    pool_cores: OnceLock<Vec<IdSet>>,
}

#[pymethods]
impl Simulation {
    fn result(slf: PyRef<'_, Self>) -> SimResult {
        SimResult {
            simulation: slf.into(),
            pool_cores: OnceLock::new(),
        }
    }
}

/// A number, or `None` for NaN.
fn known(value: f64) -> Option<f64> {
    Some(value).filter(|number| !number.is_nan())
}

fn spread(summary: &Bound<'_, PyDict>, name: &str, spread: Spread) -> PyResult<()> {
    let Spread {
        mean,
        median,
        p95,
        max,
    } = spread;
    for (part, value) in [
        ("mean", mean),
        ("median", median),
        ("p95", p95),
        ("max", max),
    ] {
        summary.set_item(format!("{name}_{part}"), known(value))?;
    }
    Ok(())
}

#[pymethods]
impl SimResult {
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let simulation = self.simulation.borrow(py);
        let simulation = simulation.inner()?;
        let (workload, results) = (simulation.workload(), simulation.results());
        let indices = || (0..workload.len()).map(|number| workload.index_from_file(number));
        let floats = |column: &[f64]| view(py, indices().map(|index| column[index]));
        let words = |column: &[u32]| view(py, indices().map(|index| column[index]));
        let over = |fate: JobResult| matches!(fate, JobResult::Killed | JobResult::Lost);
        let columns = PyDict::new(py);
        let ids = workload.ids();
        columns.set_item("id", view(py, indices().map(|index| ids[index].get()))?)?;
        let (submit, start) = (workload.submits(), results.start());
        columns.set_item("submit", floats(submit)?)?;
        columns.set_item("start", floats(start)?)?;
        columns.set_item("end", floats(results.end())?)?;
        columns.set_item("cores", words(results.cores())?)?;
        columns.set_item("nodes", words(results.nodes())?)?;
        columns.set_item("first_rank", words(results.first_rank())?)?;
        let waits = indices().map(|index| start[index] - submit[index]);
        columns.set_item("wait", view(py, waits)?)?;
        let backfilled = indices().map(|index| u8::from(results.backfilled()[index]));
        columns.set_item("backfilled", view(py, backfilled)?)?;
        let killed = indices().map(|index| u8::from(over(results.job_results()[index])));
        columns.set_item("killed", view(py, killed)?)?;
        let state = indices().map(|index| results.job_results()[index] as u8);
        columns.set_item("state", view(py, state)?)?;
        let none = f64::NAN;
        let estimate = results.estimate();
        let estimates = indices().map(|index| *estimate.get(index).unwrap_or(&none));
        columns.set_item("estimate_start", view(py, estimates)?)?;
        Ok(columns)
    }

    fn allocation(&self, py: Python<'_>, job: usize) -> PyResult<String> {
        let simulation = self.simulation.borrow(py);
        let simulation = simulation.inner()?;
        let jobs = simulation.workload().len();
        if job >= jobs {
            let text = format!("job {job}: expected a number below {jobs}");
            return Err(PyIndexError::new_err(text));
        }
        let index = simulation.workload().index_from_file(job);
        if simulation.is_pool() {
            let cores = self.pool_cores.get_or_init(|| simulation.pool_cores());
            return Ok(cores[index].to_string());
        }
        Ok(simulation.results().ranks(index).to_string())
    }

    fn series<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let simulation = self.simulation.borrow(py);
        let simulation = simulation.inner()?;
        let series = simulation.series();
        let columns = PyDict::new(py);
        columns.set_item("time", view(py, series.time().iter().copied())?)?;
        columns.set_item("used_cores", view(py, series.used().iter().copied())?)?;
        columns.set_item("queued", view(py, series.queued().iter().copied())?)?;
        Ok(columns)
    }

    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let simulation = self.simulation.borrow(py);
        let simulation = &*simulation.inner()?;
        let figures = py.detach(|| simulation.summary());
        let tally = simulation.tally();
        let summary = PyDict::new(py);
        for (key, value) in [
            ("jobs", figures.jobs),
            ("ended", figures.ended),
            ("killed", figures.killed),
            ("lost", figures.lost),
            ("denied", figures.denied),
            ("pending", figures.pending),
            ("backfilled", figures.backfilled),
            ("nodes", simulation.nodes()),
            ("cores", simulation.cores()),
            ("passes", tally.passes),
            ("events", tally.events),
            ("node_failures", tally.failed),
            ("max_queued", tally.deepest.into()),
        ] {
            summary.set_item(key, value)?;
        }
        summary.set_item("backfilled_share", known(figures.backfilled_share()))?;
        summary.set_item("utilisation", known(figures.utilisation))?;
        let early = known(figures.utilisation_to_last_submit);
        summary.set_item("utilisation_to_last_submit", early)?;
        summary.set_item("makespan", known(figures.makespan))?;
        summary.set_item("core_seconds", tally.core_seconds)?;
        summary.set_item("lost_core_seconds", tally.lost_core_seconds)?;
        spread(&summary, "wait", figures.wait)?;
        spread(&summary, "slowdown", figures.slowdown)?;
        if let Some(error) = figures.estimates {
            summary.set_item("estimate_jobs", error.jobs)?;
            spread(&summary, "estimate_error", error.absolute)?;
            summary.set_item("estimate_bias", known(error.bias))?;
        } else {
            summary.set_item("estimate_jobs", 0)?;
            for part in [
                "error_mean",
                "error_median",
                "error_p95",
                "error_max",
                "bias",
            ] {
                summary.set_item(format!("estimate_{part}"), py.None())?;
            }
        }
        Ok(summary)
    }

    fn size_classes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let simulation = self.simulation.borrow(py);
        let classes = simulation.inner()?.size_classes();
        let class = |class: &penstock_sim::SizeClass| {
            let row = PyDict::new(py);
            row.set_item("from", class.from)?;
            row.set_item("to", class.to)?;
            row.set_item("jobs", class.jobs)?;
            spread(&row, "wait", class.wait)?;
            spread(&row, "slowdown", class.slowdown)?;
            Ok(row)
        };
        classes.iter().map(class).collect()
    }

    fn denials(&self, py: Python<'_>) -> PyResult<Vec<(String, u64, u64)>> {
        let simulation = self.simulation.borrow(py);
        let simulation = simulation.inner()?;
        let denials = simulation.denials().iter();
        let denials =
            denials.map(|denial| (denial.reason.clone(), denial.jobs, denial.first.get()));
        Ok(denials.collect())
    }
}
