//! `Simulation`: a workload on its way through a machine.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use penstock_rset::ResourceSet;
use penstock_sim::{Failure, Machine, RandomFailures, Setup};
use pyo3::prelude::*;

use super::worker_thread::{self, Watch};
use super::workload::{Workload, parse};
use crate::errors::{WorkloadError, named, raised};

/// A workload on its way through a machine, in virtual time: `inventory` is the text of an R, or `None` for one pool of
/// `pool_cores` cores, by default the `max_cores` of the workload. `failures` are times in seconds of the trace, idsets
/// of ranks, and whether those come back; with `mtbf`, nodes fail by chance as well (all in seconds).
#[pyclass(module = "penstock._core")]
pub(crate) struct Simulation {
    /// Written to by the thread in which it advances.
    inner: Arc<RwLock<penstock_sim::Simulation>>,
}

impl Simulation {
    /// The simulation, unless it was stopped within a step that has not ended.
    pub fn inner(&self) -> PyResult<RwLockReadGuard<'_, penstock_sim::Simulation>> {
        let fail = |text| WorkloadError::new_err(text);
        self.inner.try_read().map_err(|error| match error {
            TryLockError::WouldBlock => fail(
                "the simulation was stopped within a pass of the scheduler, which is still running\n\
                 hint: advance it again, which waits for the end of that pass",
            ),
            TryLockError::Poisoned(_) => fail("the simulation has failed: begin a new one"),
        })
    }
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
                let resources = ResourceSet::from_json(text).map_err(raised)?;
                Machine::Nodes(Box::new(resources))
            }
            (None, cores) => Machine::Pool(cores.unwrap_or_else(|| workload.0.max_cores().max(1))),
        };
        let failures = failures.into_iter().map(|(time, ranks, up)| {
            let place = format_args!("failures: at {time}");
            let ranks = parse(&ranks).map_err(|error| named(py, place, error))?;
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
            random_failures: mtbf.map(|mtbf| RandomFailures {
                mtbf,
                mttr,
                seed: failure_seed,
            }),
        };
        let workload = Arc::clone(&workload.0);
        py.detach(|| penstock_sim::Simulation::new(workload, &machine, setup))
            .map(|inner| Self {
                inner: Arc::new(RwLock::new(inner)),
            })
            .map_err(raised)
    }

    #[pyo3(signature = (events, report = None))]
    fn advance(
        &mut self,
        py: Python<'_>,
        events: u64,
        report: Option<Py<PyAny>>,
    ) -> PyResult<bool> {
        if self.inner.is_poisoned() {
            drop(self.inner()?);
        }
        let watch = match self.inner() {
            Ok(inner) => Watch::new(inner.done(), inner.now()),
            Err(_) => Watch::new(0, 0.0),
        };
        let inner = Arc::clone(&self.inner);
        let advanced = worker_thread::run(py, report.as_ref(), watch, move |watch| {
            let mut step = |done, now| watch.step(done, now);
            let mut inner = inner.write().unwrap_or_else(PoisonError::into_inner);
            inner.advance_while(events, &mut step)
        });
        advanced?.map_err(raised)
    }

    #[getter]
    fn done(&self) -> PyResult<u64> {
        Ok(self.inner()?.done())
    }

    #[getter]
    fn total(&self) -> PyResult<usize> {
        Ok(self.inner()?.workload().len())
    }

    #[getter]
    fn now(&self) -> PyResult<f64> {
        Ok(self.inner()?.now())
    }

    #[getter]
    fn cores(&self) -> PyResult<u64> {
        Ok(self.inner()?.cores())
    }

    #[getter]
    fn nodes(&self) -> PyResult<u64> {
        Ok(self.inner()?.nodes())
    }
}
