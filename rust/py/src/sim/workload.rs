//! `Workload`: the jobs of a trace or a model.

use std::str::FromStr;
use std::sync::Arc;

use penstock_sim::{Estimates, JobKinds, Lublin, Mix, jsonl, swf};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::worker_thread::{self, Watch};
use crate::errors::raised;

/// Parses a setting of a workload or a simulation.
pub(super) fn parse<T: FromStr<Err: Into<penstock_sim::Error>>>(text: &str) -> PyResult<T> {
    text.parse().map_err(|error: T::Err| raised(error.into()))
}

/// Jobs in the order of their submit times, equal ones in file order (see the Rust crate `penstock-sim`).
#[pyclass(module = "penstock._core", frozen)]
pub(crate) struct Workload(pub(super) Arc<penstock_sim::Workload>);

type WorkloadResult = Result<penstock_sim::Workload, penstock_sim::Error>;

impl Workload {
    fn made(py: Python<'_>, make: impl FnOnce() -> WorkloadResult + Send) -> PyResult<Self> {
        let workload = py.detach(make).map_err(raised)?;
        Ok(Self(Arc::new(workload)))
    }

    /// Generates a workload in another thread, so that signals interrupt it.
    fn generated(
        py: Python<'_>,
        make: impl FnOnce(&mut dyn FnMut() -> bool) -> WorkloadResult + Send + 'static,
    ) -> PyResult<Self> {
        let drawn = worker_thread::run(py, None, Watch::new(0, 0.0), |watch| {
            make(&mut || watch.step(0, 0.0))
        });
        let workload = drawn?.map_err(raised)?;
        Ok(Self(Arc::new(workload)))
    }
}

#[pymethods]
impl Workload {
    #[staticmethod]
    #[pyo3(signature = (data, *, name, limit = None))]
    fn from_swf(py: Python<'_>, data: &[u8], name: &str, limit: Option<usize>) -> PyResult<Self> {
        Self::made(py, || swf::read(data, name, limit))
    }

    #[staticmethod]
    #[pyo3(signature = (data, *, name, limit = None))]
    fn from_jsonl(py: Python<'_>, data: &[u8], name: &str, limit: Option<usize>) -> PyResult<Self> {
        Self::made(py, || jsonl::read(data, name, limit))
    }

    #[staticmethod]
    #[pyo3(signature = (jobs, *, cores, seed, load = None, estimates = "modal"))]
    fn lublin(
        py: Python<'_>,
        jobs: u32,
        cores: u32,
        seed: u64,
        load: Option<f64>,
        estimates: &str,
    ) -> PyResult<Self> {
        let model = Lublin {
            jobs,
            cores,
            seed,
            load,
            estimates: parse::<Estimates>(estimates)?,
            kinds: JobKinds::Both,
        };
        Self::generated(py, move |may_continue| model.draw_while(may_continue))
    }

    #[staticmethod]
    #[pyo3(signature = (
        spec, jobs, *, seed, cores, cores_per_node = 1, load = Some(0.9), estimates = "exact"
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn mix(
        py: Python<'_>,
        spec: String,
        jobs: u32,
        seed: u64,
        cores: u64,
        cores_per_node: u32,
        load: Option<f64>,
        estimates: &str,
    ) -> PyResult<Self> {
        let mix = Mix {
            shapes: spec,
            jobs,
            cores,
            cores_per_node,
            seed,
            load,
            estimates: parse::<Estimates>(estimates)?,
        };
        Self::generated(py, move |may_continue| mix.draw_while(may_continue))
    }

    #[pyo3(signature = (*, pace = 1.0, estimates = None, seed = 0))]
    fn vary(
        &self,
        py: Python<'_>,
        pace: f64,
        estimates: Option<&str>,
        seed: u64,
    ) -> PyResult<Self> {
        let estimates = estimates.map(parse::<Estimates>).transpose()?;
        Self::made(py, || self.0.vary(pace, estimates, seed))
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn jobs(&self) -> usize {
        self.0.len()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn max_cores(&self) -> u64 {
        self.0.max_cores()
    }

    #[getter]
    fn pool_origin(&self) -> &str {
        self.0.pool_origin()
    }

    #[getter]
    fn assumptions(&self) -> Vec<String> {
        self.0.assumptions().to_vec()
    }

    #[getter]
    fn header(&self) -> Vec<(String, String)> {
        self.0.header().to_vec()
    }

    #[getter]
    fn first_submit(&self) -> Option<f64> {
        self.0.span().map(|span| span.first)
    }

    #[getter]
    fn last_submit(&self) -> Option<f64> {
        self.0.span().map(|span| span.last)
    }

    #[getter]
    fn unix_start(&self) -> Option<f64> {
        self.0.unix_start()
    }

    fn to_swf<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let text = py.detach(|| swf::write(&self.0));
        let text = text.map_err(raised)?;
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    fn to_jsonl<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let text = py.detach(|| jsonl::write(&self.0));
        PyBytes::new(py, text.as_bytes())
    }

    fn __repr__(&self) -> String {
        let jobs = self.0.len();
        let plural = if jobs == 1 { "" } else { "s" };
        format!("<Workload {:?}: {jobs} job{plural}>", self.0.name())
    }
}
