//! `Workload`: the jobs of a trace or a model.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use std::str::FromStr;
use std::sync::Arc;

use penstock_sim::swf::Preceding;
use penstock_sim::{Column, Estimates, JobKinds, Lublin, Mix, jsonl, swf};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::worker_thread::{self, Watch};
use crate::array::view;
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
    /// from_swf(data: bytes, *, name: str, limit: int | None = None, preceding: bool = False) -> Workload
    ///
    /// Reads a trace in the Standard Workload Format.
    ///
    /// Args:
    ///     data: The text of the file.
    ///     name: The name of the workload in tables.
    ///     limit: The most jobs; None for all.
    ///     preceding: Whether a job is submitted only once its think time after the end of its preceding job has ended.
    ///
    /// Raises:
    ///     WorkloadError: A line is invalid; the text names it.
    #[staticmethod]
    #[pyo3(signature = (data, *, name, limit = None, preceding = false))]
    fn from_swf(
        py: Python<'_>,
        data: &[u8],
        name: &str,
        limit: Option<usize>,
        preceding: bool,
    ) -> PyResult<Self> {
        let preceding = if preceding {
            Preceding::Awaited
        } else {
            Preceding::Ignored
        };
        Self::made(py, || swf::read_with(data, name, limit, preceding))
    }

    /// from_jsonl(data: bytes, *, name: str, limit: int | None = None) -> Workload
    ///
    /// Reads a trace of JSON lines, an object for each job.
    ///
    /// Args:
    ///     data: The text of the file.
    ///     name: The name of the workload in tables.
    ///     limit: The most jobs; None for all.
    ///
    /// Raises:
    ///     WorkloadError: A line is invalid; the text names it.
    #[staticmethod]
    #[pyo3(signature = (data, *, name, limit = None))]
    fn from_jsonl(py: Python<'_>, data: &[u8], name: &str, limit: Option<usize>) -> PyResult<Self> {
        Self::made(py, || jsonl::read(data, name, limit))
    }

    /// lublin(jobs: int, *, cores: int, seed: int, load: float | None = None, estimates: str = 'modal') -> Workload
    ///
    /// Generates jobs by the model of Lublin and Feitelson (2003).
    ///
    /// Args:
    ///     jobs: The number of jobs.
    ///     cores: The cores of the machine that it is sized for.
    ///     seed: Equal seeds give equal workloads.
    ///     load: Offered load, as a share of the machine; None for that of the model.
    ///     estimates: How users estimate run times: `modal`, `exact` or `factor:F`.
    ///
    /// Raises:
    ///     WorkloadError: A setting is invalid.
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

    /// mix(spec: str, jobs: int, *, seed: int, cores: int, cores_per_node: int = 1, load: float | None = ..., estimates: str = 'exact') -> Workload
    ///
    /// Generates jobs of some kinds.
    ///
    /// Args:
    ///     spec: The kinds, such as `80%:1c:10m,20%:64c:2h`.
    ///     jobs: The number of jobs.
    ///     seed: Equal seeds give equal workloads.
    ///     cores: The cores of the machine that it is sized for.
    ///     cores_per_node: The cores of each of its nodes.
    ///     load: Offered load, as a share of the machine; None submits all jobs at once.
    ///     estimates: How users estimate run times: `modal`, `exact` or `factor:F`.
    ///
    /// Raises:
    ///     WorkloadError: A setting is invalid.
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

    /// vary(*, pace: float = 1.0, estimates: str | None = None, seed: int = 0) -> Workload
    ///
    /// The same jobs with other times of submission, or other estimates.
    ///
    /// Args:
    ///     pace: Divides the times between submissions.
    ///     estimates: How users estimate run times; None leaves the estimates.
    ///     seed: The seed of the estimates.
    ///
    /// Raises:
    ///     WorkloadError: A setting is invalid.
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

    /// The name of the workload in tables.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The number of jobs.
    #[getter]
    fn jobs(&self) -> usize {
        self.0.len()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The cores of the pool that the jobs ran on: from the header, else those of the largest job.
    #[getter]
    fn max_cores(&self) -> u64 {
        self.0.max_cores()
    }

    /// The source of `max_cores`, as a sentence.
    #[getter]
    fn pool_origin(&self) -> &str {
        self.0.pool_origin()
    }

    /// The assumptions about the jobs, as sentences.
    #[getter]
    fn assumptions(&self) -> Vec<String> {
        self.0.assumptions().to_vec()
    }

    /// The keys and values of the header of a trace.
    #[getter]
    fn header(&self) -> Vec<(String, String)> {
        self.0.header().to_vec()
    }

    /// The places of the jobs of the file in the order of submission, in which `to_jsonl` has them; None if it is the same.
    #[getter]
    fn file_order(&self) -> Option<Vec<u32>> {
        self.0.file_order().map(<[u32]>::to_vec)
    }

    /// columns() -> dict[str, list[str] | memoryview]
    ///
    /// The further columns of the trace by name, such as `user`, `group` and `queue`: numbers, NaN for unknown ones,
    /// texts, empty for unknown ones, or, if a value is neither, texts in JSON. They are in the order of the file, as
    /// the columns of results are.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for (name, column) in self.0.columns() {
            match column {
                Column::Numbers(numbers) => {
                    columns.set_item(&**name, view(py, numbers.iter().copied())?)?;
                }
                Column::Texts(texts) | Column::Json(texts) => {
                    let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
                    columns.set_item(&**name, texts)?;
                }
            }
        }
        if let Some(queues) = self.0.queue_names() {
            columns.set_item("queue", queues)?;
        }
        Ok(columns)
    }

    /// The first time of submission, in seconds of the trace; None without jobs.
    #[getter]
    fn first_submit(&self) -> Option<f64> {
        self.0.span().map(|span| span.first)
    }

    /// The last time of submission, in seconds of the trace; None without jobs.
    #[getter]
    fn last_submit(&self) -> Option<f64> {
        self.0.span().map(|span| span.last)
    }

    /// Time 0 of the trace, in seconds since the epoch; None if it is unknown.
    #[getter]
    fn unix_start(&self) -> Option<f64> {
        self.0.unix_start()
    }

    /// to_swf() -> bytes
    ///
    /// The workload in the Standard Workload Format.
    ///
    /// Raises:
    ///     WorkloadError: A job requests anything other than cores on any nodes.
    fn to_swf<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let text = py.detach(|| swf::write(&self.0));
        let text = text.map_err(raised)?;
        Ok(PyBytes::new(py, text.as_bytes()))
    }

    /// to_jsonl() -> bytes
    ///
    /// The workload as JSON lines, an object for each job.
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
