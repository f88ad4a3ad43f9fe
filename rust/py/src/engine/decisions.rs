//! `Decisions`: the decisions of a pass, as columns.
#![expect(
    clippy::doc_markdown,
    reason = "what documents a class documents it to Python"
)]

use penstock_engine::Decision;
use penstock_jobspec::job_id::JobId;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PySlice};

use super::core_state::{CoreState, EngineCore};
use super::jobs::time;
use crate::array::view;
use crate::resource::PyResourceSet;
use crate::shared::{Stride, position};

/// The decisions of a pass: the jobs that start, as columns in the order of the decisions, and the denied jobs.
///
/// Columns are read-only `memoryview`s: `numpy.asarray(decisions.ids)` copies nothing. `len` and iteration cover
/// the jobs that start; a slice is a list of them. The object is true if it has a start or a denial.
#[pyclass(module = "penstock.engine", frozen)]
pub(super) struct Decisions {
    engine: Py<EngineCore>,
    now: f64,
    started: Started,
    denied: Vec<(u64, String)>,
    views: [PyOnceLock<Py<PyAny>>; 7],
}

/// One entry for each job that starts.
#[derive(Default)]
struct Started {
    ids: Vec<u64>,
    expirations: Vec<f64>,
    nodes: Vec<u32>,
    cores: Vec<u64>,
    gpus: Vec<u64>,
    backfilled: Vec<bool>,
}

/// The decisions of a pass; those of denials as id and note.
struct Decided {
    started: Started,
    denied: Vec<(u64, String)>,
}

impl CoreState {
    fn decide(&mut self, now: f64, limit: usize) -> Decided {
        let decisions = self.engine.schedule(now, limit);
        let mut started = Started::default();
        let mut denied = Vec::new();
        started.ids.reserve(decisions.len());
        for decision in decisions {
            match decision {
                Decision::Alloc { id, backfilled } => {
                    let Some(held) = self.engine.allocation_summary(id) else {
                        continue;
                    };
                    started.ids.push(id.get());
                    started
                        .expirations
                        .push(held.expiration.unwrap_or(f64::NAN));
                    started.nodes.push(held.nodes);
                    started.cores.push(held.cores);
                    started.gpus.push(held.gpus);
                    started.backfilled.push(backfilled);
                }
                Decision::Deny { id, note } => denied.push((id.get(), note)),
            }
        }
        for id in &started.ids {
            self.accuracy.record_start(JobId::new(*id), now);
        }
        self.forget(started.ids.iter().copied().map(JobId::new));
        self.forget(denied.iter().map(|(id, _)| JobId::new(*id)));
        Decided { started, denied }
    }
}

#[pymethods]
impl EngineCore {
    fn schedule(slf: &Bound<'_, Self>, now: f64, limit: Option<usize>) -> PyResult<Decisions> {
        let now = time(now)?;
        let mut state = slf.get().lock()?;
        let state = &mut *state;
        let limit = limit.unwrap_or(usize::MAX);
        let Decided { started, denied } = slf.py().detach(|| state.decide(now, limit));
        Ok(Decisions {
            engine: slf.clone().unbind(),
            now,
            started,
            denied,
            views: [const { PyOnceLock::new() }; 7],
        })
    }
}

impl Decisions {
    fn column(
        &self,
        py: Python<'_>,
        place: usize,
        column: impl FnOnce(&Started) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let made = self.views[place].get_or_try_init(py, || column(&self.started))?;
        Ok(made.clone_ref(py))
    }

    fn tuple<'py>(&self, py: Python<'py>, at: usize) -> PyResult<Bound<'py, PyAny>> {
        static DECISION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let started = &self.started;
        let row = (
            started.ids[at],
            self.now,
            started.nodes[at],
            started.cores[at],
            started.gpus[at],
            started.backfilled[at],
        );
        class(py, &DECISION, "Decision")?.call1(row)
    }
}

fn class<'py>(
    py: Python<'py>,
    cache: &'static PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let class = cache.get_or_try_init(py, || {
        let module = py.import("penstock.engine")?;
        module.getattr(name).map(Bound::unbind)
    })?;
    Ok(class.bind(py).clone())
}

#[pymethods]
impl Decisions {
    /// uint64: the jobs that start.
    #[getter]
    fn ids(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, 0, |started| view(py, started.ids.iter().copied()))
    }

    /// float64: when they start: the `now` of the pass, in seconds.
    #[getter]
    fn starts(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, 1, |started| {
            view(py, started.ids.iter().map(|_| self.now))
        })
    }

    /// float64: when they end at the latest, in seconds; NaN for jobs without a limit.
    #[getter]
    fn expirations(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, 2, |started| {
            view(py, started.expirations.iter().copied())
        })
    }

    /// uint32: nodes that they hold a part of.
    #[getter]
    fn nodes(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, 3, |started| view(py, started.nodes.iter().copied()))
    }

    /// uint64: cores that they hold.
    #[getter]
    fn cores(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, 4, |started| view(py, started.cores.iter().copied()))
    }

    /// uint64: gpus that they hold.
    #[getter]
    fn gpus(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, 5, |started| view(py, started.gpus.iter().copied()))
    }

    /// bool: whether they start before a job that is earlier in the queue.
    #[getter]
    fn backfilled(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.column(py, 6, |started| {
            view(py, started.backfilled.iter().copied())
        })
    }

    /// The jobs that can never run here, as `Denial`s; they have left the queue.
    #[getter]
    fn denied<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        static DENIAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let class = class(py, &DENIAL, "Denial")?;
        let denied = self.denied.iter();
        let denied = denied.map(|(id, note)| class.call1((*id, note.as_str())));
        PyList::new(py, denied.collect::<PyResult<Vec<_>>>()?)
    }

    /// The resources of the job at a position, with its start, expiration and number of slots.
    ///
    /// Raises:
    ///     EngineError: The job has ended since the pass.
    ///     IndexError: The position is out of range.
    fn r(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<PyResourceSet> {
        let at = position(index, self.started.ids.len(), "decision")?;
        let state = self.engine.bind(py).get().lock()?;
        state.resources_of(JobId::new(self.started.ids[at]))
    }

    /// The resources of all jobs that start, in the order of the columns.
    ///
    /// Raises:
    ///     EngineError: One of them has ended since the pass.
    fn rs(&self, py: Python<'_>) -> PyResult<Vec<PyResourceSet>> {
        let state = self.engine.bind(py).get().lock()?;
        let ids = self.started.ids.iter();
        ids.map(|id| state.resources_of(JobId::new(*id))).collect()
    }

    fn __len__(&self) -> usize {
        self.started.ids.len()
    }

    fn __bool__(&self) -> bool {
        !self.started.ids.is_empty() || !self.denied.is_empty()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let len = self.started.ids.len();
        let Ok(slice) = index.cast::<PySlice>() else {
            return self.tuple(py, position(index, len, "decision")?);
        };
        let stride = Stride::new(slice, len)?;
        let (range, step) = stride.ascending();
        let mut rows: Vec<_> = range.step_by(step.max(1)).collect();
        if stride.is_descending() {
            rows.reverse();
        }
        let rows = rows.into_iter().map(|at| self.tuple(py, at));
        let rows = PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)?;
        Ok(rows.into_any())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rows = 0..self.started.ids.len();
        let rows = rows.map(|at| self.tuple(py, at));
        let rows = PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)?;
        Ok(rows.try_iter()?.into_any())
    }

    fn __repr__(&self) -> String {
        let (started, denied) = (self.started.ids.len(), self.denied.len());
        format!("<Decisions {started} started, {denied} denied>")
    }
}
