//! `Workload`, `Simulation` and `SimResult`: workloads replayed in virtual time.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_sim::{
    Chance, Estimates, Failure, Fate, Kinds, Lublin, Machine, Mix, Setup, Spread, jsonl, swf,
};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView};

use crate::errors::{ResourceSetError, WorkloadError, with_attribute};
use crate::ticker::Ticker;

fn workload_error(error: &penstock_sim::Error) -> PyErr {
    let raised = WorkloadError::new_err(error.to_string());
    match error.line() {
        Some(line) => Python::attach(|py| with_attribute(py, raised, "line", line)),
        None => raised,
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> PyResult<T> {
    let parsed = text.parse();
    parsed.map_err(|error: T::Err| WorkloadError::new_err(error.to_string()))
}

/// Jobs in the order of their submit times, equal ones in file order (see the Rust crate `penstock-sim`).
#[pyclass(module = "penstock._core", frozen)]
struct Workload(Arc<penstock_sim::Workload>);

type Made = Result<penstock_sim::Workload, penstock_sim::Error>;

impl Workload {
    fn made(py: Python<'_>, make: impl FnOnce() -> Made + Send) -> PyResult<Self> {
        let workload = py.detach(make).map_err(|error| workload_error(&error))?;
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
    #[pyo3(signature = (jobs, *, cores, seed, load = None, estimates = "modal", kinds = "both"))]
    fn lublin(
        py: Python<'_>,
        jobs: u32,
        cores: u32,
        seed: u64,
        load: Option<f64>,
        estimates: &str,
        kinds: &str,
    ) -> PyResult<Self> {
        let model = Lublin {
            jobs,
            cores,
            seed,
            load,
            estimates: parse::<Estimates>(estimates)?,
            kinds: parse::<Kinds>(kinds)?,
        };
        Self::made(py, || model.draw())
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
        Self::made(py, || mix.draw())
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
        self.0.span().map(|(first, _)| first)
    }

    #[getter]
    fn last_submit(&self) -> Option<f64> {
        self.0.span().map(|(_, last)| last)
    }

    #[getter]
    fn unix_start(&self) -> Option<f64> {
        self.0.unix_start()
    }

    fn to_swf<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let text = py.detach(|| swf::write(&self.0));
        let text = text.map_err(|error| workload_error(&error))?;
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

/// A workload on its way through a machine, in virtual time: `inventory` is the text of an R, or `None` for one pool of
/// `pool_cores` cores, by default the `max_cores` of the workload. `failures` are times in seconds of the trace, idsets
/// of ranks, and whether those come back; with `mtbf`, nodes fail by chance as well (all in seconds).
#[pyclass(module = "penstock._core")]
struct Simulation {
    inner: penstock_sim::Simulation,
    /// Real time that it took so far.
    seconds: f64,
}

/// A failure as Python gives it: when, which ranks, and whether they come back.
type FailureTuple = (f64, String, bool);

#[pymethods]
impl Simulation {
    #[new]
    #[pyo3(signature = (
        inventory, workload, *, policy, selection = "first", whole_nodes = false,
        kill_at_limit = false, requeue = true, estimates = false, estimate_every = 1,
        allocations = true, failures = Vec::new(), mtbf = None, mttr = 14400.0, failure_seed = 1,
        pool_cores = None
    ))]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "they have names in Python"
    )]
    fn new(
        py: Python<'_>,
        inventory: Option<&str>,
        workload: &Workload,
        policy: &str,
        selection: &str,
        whole_nodes: bool,
        kill_at_limit: bool,
        requeue: bool,
        estimates: bool,
        estimate_every: u32,
        allocations: bool,
        failures: Vec<FailureTuple>,
        mtbf: Option<f64>,
        mttr: f64,
        failure_seed: u64,
        pool_cores: Option<u64>,
    ) -> PyResult<Self> {
        let machine = match (inventory, pool_cores) {
            (Some(_), Some(_)) => {
                let text = "pool_cores: expected no inventory beside it";
                return Err(WorkloadError::new_err(text));
            }
            (Some(text), None) => {
                let resources = ResourceSet::from_json(text)
                    .map_err(|error| ResourceSetError::new_err(error.to_string()))?;
                Machine::Nodes(Box::new(resources))
            }
            (None, cores) => Machine::Pool(cores.unwrap_or_else(|| workload.0.max_cores().max(1))),
        };
        let failures = failures.into_iter().map(|(time, ranks, up)| {
            let ranks = ranks
                .parse::<IdSet>()
                .map_err(|error| WorkloadError::new_err(format!("failures: at {time}: {error}")))?;
            Ok(Failure { time, ranks, up })
        });
        let setup = Setup {
            policy: parse(policy)?,
            selection: parse(selection)?,
            whole_nodes,
            kill_at_limit,
            requeue,
            estimate_every: if estimates { estimate_every } else { 0 },
            allocations,
            failures: failures.collect::<PyResult<Vec<Failure>>>()?,
            chance: mtbf.map(|mtbf| Chance {
                mtbf,
                mttr,
                seed: failure_seed,
            }),
        };
        let workload = Arc::clone(&workload.0);
        py.detach(|| penstock_sim::Simulation::new(workload, &machine, setup))
            .map(|inner| Self {
                inner,
                seconds: 0.0,
            })
            .map_err(|error| workload_error(&error))
    }

    #[pyo3(signature = (events, told = None))]
    fn advance(&mut self, py: Python<'_>, events: u64, told: Option<Py<PyAny>>) -> PyResult<bool> {
        let begun = Instant::now();
        let mut ticker = Ticker::new(told.as_ref());
        let left = py.detach(|| {
            let mut step = |done, now| ticker.step(done, now);
            self.inner.advance_while(events, &mut step)
        });
        self.seconds += begun.elapsed().as_secs_f64();
        ticker.finish()?;
        left.map_err(|error| workload_error(&error))
    }

    #[getter]
    fn done(&self) -> u64 {
        self.inner.done()
    }

    #[getter]
    fn total(&self) -> usize {
        self.inner.workload().len()
    }

    #[getter]
    fn now(&self) -> f64 {
        self.inner.now()
    }

    #[getter]
    fn cores(&self) -> u64 {
        self.inner.cores()
    }

    #[getter]
    fn nodes(&self) -> u64 {
        self.inner.nodes()
    }

    fn result(slf: PyRef<'_, Self>) -> SimResult {
        SimResult {
            simulation: slf.into(),
            pool_cores: OnceLock::new(),
        }
    }
}

/// What became of the jobs of a simulation: a view of it, in the order of the file.
#[pyclass(module = "penstock._core", frozen)]
struct SimResult {
    simulation: Py<Simulation>,
    /// Which cores of a pool the jobs had, worked out when it is asked for.
    pool_cores: OnceLock<Vec<IdSet>>,
}

/// Numbers as a `memoryview` of a format of the module `struct`.
fn view<'py, const N: usize>(
    py: Python<'py>,
    format: &str,
    numbers: impl Iterator<Item = [u8; N]>,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = numbers.flatten().collect();
    let bytes = PyBytes::new(py, &bytes);
    PyMemoryView::from(bytes.as_any())?.call_method1("cast", (format,))
}

/// A number, or `None` where it is none.
fn known(value: f64) -> Option<f64> {
    Some(value).filter(|it| !it.is_nan())
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
        let workload = simulation.inner.workload();
        let results = simulation.inner.results();
        let places = || (0..workload.len()).map(|number| workload.place_of_file(number));
        let floats = |column: &[f64]| view(py, "d", places().map(|it| column[it].to_ne_bytes()));
        let words = |column: &[u32]| view(py, "I", places().map(|it| column[it].to_ne_bytes()));
        let over = |fate: Fate| matches!(fate, Fate::Killed | Fate::Lost);
        let columns = PyDict::new(py);
        let ids = workload.ids();
        columns.set_item(
            "id",
            view(py, "Q", places().map(|it| ids[it].to_ne_bytes()))?,
        )?;
        let (submit, start) = (workload.submits(), results.start());
        columns.set_item("submit", floats(submit)?)?;
        columns.set_item("start", floats(start)?)?;
        columns.set_item("end", floats(results.end())?)?;
        columns.set_item("cores", words(results.cores())?)?;
        columns.set_item("nodes", words(results.nodes())?)?;
        columns.set_item("first_rank", words(results.first_rank())?)?;
        let waits = places().map(|it| (start[it] - submit[it]).to_ne_bytes());
        columns.set_item("wait", view(py, "d", waits)?)?;
        let backfilled = places().map(|it| [u8::from(results.backfilled()[it])]);
        columns.set_item("backfilled", view(py, "B", backfilled)?)?;
        let killed = places().map(|it| [u8::from(over(results.fate()[it]))]);
        columns.set_item("killed", view(py, "B", killed)?)?;
        let state = places().map(|it| [results.fate()[it] as u8]);
        columns.set_item("state", view(py, "B", state)?)?;
        let none = f64::NAN;
        let estimate = results.estimate();
        let estimates = places().map(|it| estimate.get(it).unwrap_or(&none).to_ne_bytes());
        columns.set_item("estimate_start", view(py, "d", estimates)?)?;
        Ok(columns)
    }

    fn allocation(&self, py: Python<'_>, job: usize) -> PyResult<String> {
        let simulation = self.simulation.borrow(py);
        let simulation = &simulation.inner;
        let jobs = simulation.workload().len();
        if job >= jobs {
            let text = format!("job {job}: expected a number below {jobs}");
            return Err(PyIndexError::new_err(text));
        }
        let place = simulation.workload().place_of_file(job);
        if simulation.is_pool() {
            let cores = self.pool_cores.get_or_init(|| simulation.pool_cores());
            return Ok(cores[place].to_string());
        }
        Ok(simulation.results().ranks(place).to_string())
    }

    fn series<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let simulation = self.simulation.borrow(py);
        let series = simulation.inner.series();
        let columns = PyDict::new(py);
        let time = series.time().iter().map(|it| it.to_ne_bytes());
        columns.set_item("time", view(py, "d", time)?)?;
        let used = series.used().iter().map(|it| it.to_ne_bytes());
        columns.set_item("used_cores", view(py, "Q", used)?)?;
        let queued = series.queued().iter().map(|it| it.to_ne_bytes());
        columns.set_item("queued", view(py, "I", queued)?)?;
        Ok(columns)
    }

    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let simulation = self.simulation.borrow(py);
        let seconds = simulation.seconds;
        let simulation = &simulation.inner;
        let figures = py.detach(|| simulation.summary());
        let tally = simulation.tally();
        let summary = PyDict::new(py);
        for (key, value) in [
            ("jobs", figures.jobs),
            ("ended", figures.ended),
            ("killed", figures.killed),
            ("lost", figures.lost),
            ("denied", figures.denied),
            ("waiting", figures.waiting),
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
        summary.set_item("seconds", seconds)?;
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
        let classes = simulation.inner.size_classes();
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

    fn denials(&self, py: Python<'_>) -> Vec<(String, u64, u64)> {
        let simulation = self.simulation.borrow(py);
        let denials = simulation.inner.denials().iter();
        let denials = denials.map(|it| (it.reason.clone(), it.jobs, it.first));
        denials.collect()
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Workload>()?;
    module.add_class::<Simulation>()?;
    module.add_class::<SimResult>()
}
