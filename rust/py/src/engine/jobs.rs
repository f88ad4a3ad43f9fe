//! Jobs come, change and go.

use std::collections::HashMap;

use penstock_engine::{OutsideResources, QueueId, QueueOptions, ShapeId};
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rustc_hash::FxHashSet;

use super::columns::{self, Column, DURATION_COLUMN, Names, PRIORITY_COLUMN, SHAPE_COLUMN};
use super::core_state::{CoreState, EngineCore, NamedShape};
use crate::errors::{EngineError, raised, raised_for};
use crate::idset::PyIdSet;
use crate::resource::PyResourceSet;
use crate::resource::convert;

/// A job of a batch, with everything checked but its id.
struct Row {
    shape: ShapeId,
    duration: f64,
    priority: u32,
    queue: QueueId,
}

impl CoreState {
    /// The queue with this name, or the one without a name.
    fn intern_queue(&mut self, name: Option<&str>) -> QueueId {
        self.engine.queue(name.unwrap_or_default())
    }

    /// Queues a batch, all or nothing: the error names the row.
    fn queue(
        &mut self,
        ids: &[JobId],
        now: Option<f64>,
        row: impl Fn(usize) -> Row,
    ) -> PyResult<()> {
        let mut failed = None;
        for (place, id) in ids.iter().enumerate() {
            let job = row(place);
            let done =
                self.engine
                    .submit_shape(*id, job.priority, job.shape, job.duration, job.queue);
            if let Err(error) = done {
                failed = Some((place, error));
                break;
            }
        }
        if let Some((place, error)) = failed {
            for id in &ids[..place] {
                self.engine.cancel(*id);
            }
            if ids[..place].contains(&ids[place]) {
                let job = ids[place].get();
                return Err(EngineError::new_err(format!(
                    "ids[{place}]: job {job} is in the batch twice"
                )));
            }
            return Err(raised_for(format_args!("ids[{place}]"))(error));
        }
        if let Some(now) = now {
            self.submitted.extend(ids.iter().map(|id| (*id, now)));
        }
        Ok(())
    }
}

/// A time that Python gives.
pub(super) fn time(now: f64) -> PyResult<f64> {
    if now >= 0.0 && now.is_finite() {
        return Ok(now);
    }
    Err(EngineError::new_err(format!(
        "now: expected seconds from 0 on, found {now}"
    )))
}

#[pymethods]
impl EngineCore {
    fn submit(
        &self,
        ids: &Bound<'_, PyAny>,
        shapes: &Bound<'_, PyAny>,
        durations: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
        queues: Option<&Bound<'_, PyAny>>,
        now: Option<f64>,
    ) -> PyResult<()> {
        let (py, now) = (ids.py(), now.map(time).transpose()?);
        let ids = columns::ids(ids)?;
        let rows = ids.len();
        let shapes = Column::read(shapes, SHAPE_COLUMN, rows)?;
        let durations = Column::read(durations, DURATION_COLUMN, rows)?;
        let priorities = Column::read(priorities, PRIORITY_COLUMN, rows)?;
        let queues = Names::read(queues, "queues", rows)?;
        let mut state = self.lock()?;
        let state = &mut *state;
        let shapes = match shapes {
            Column::All(number) => Column::All(state.shape_at("shapes", number)?.shape),
            Column::Each(numbers) => {
                let rows = numbers.into_iter().enumerate();
                let shapes = rows.map(|(row, number)| {
                    if let Some(NamedShape { shape, .. }) = state.shapes.at(number) {
                        return Ok(*shape);
                    }
                    let place = columns::place("shapes", Some(row));
                    state.shape_at(&place, number).map(|named| named.shape)
                });
                Column::Each(shapes.collect::<PyResult<Vec<_>>>()?)
            }
        };
        let queues = match queues {
            Names::All(name) => Column::All(state.intern_queue(name.as_deref())),
            Names::Each(names) => {
                let mut known = HashMap::new();
                let queues = names.iter().map(|name| {
                    let name = name.as_deref();
                    *known
                        .entry(name)
                        .or_insert_with(|| state.intern_queue(name))
                });
                Column::Each(queues.collect())
            }
        };
        let row = |row| Row {
            shape: shapes.at(row),
            duration: durations.at(row),
            priority: priorities.at(row),
            queue: queues.at(row),
        };
        py.detach(|| state.queue(&ids, now, row))
    }

    fn submit_jobspecs(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        jobspecs: Vec<Bound<'_, PyString>>,
        priorities: &Bound<'_, PyAny>,
        now: Option<f64>,
    ) -> PyResult<()> {
        let now = now.map(time).transpose()?;
        let ids = columns::ids(ids)?;
        let priorities = Column::read(priorities, PRIORITY_COLUMN, ids.len())?;
        if jobspecs.len() != ids.len() {
            let (expected, found) = (ids.len(), jobspecs.len());
            return Err(EngineError::new_err(format!(
                "jobspecs: expected {expected} as there are ids, found {found}"
            )));
        }
        // Jobs that differ in nothing share a text, mostly even one object.
        let mut known = HashMap::new();
        let mut parsed = Vec::new();
        let mut kinds = Vec::with_capacity(ids.len());
        for (row, text) in jobspecs.iter().enumerate() {
            let text = text.to_str()?;
            let kind = if let Some(kind) = known.get(text) {
                *kind
            } else {
                let jobspec = Jobspec::from_json(text)
                    .map_err(raised_for(format_args!("jobspecs[{row}]")))?;
                parsed.push(jobspec);
                known.insert(text, parsed.len() - 1);
                parsed.len() - 1
            };
            kinds.push(kind);
        }
        let mut state = self.lock()?;
        let state = &mut *state;
        let parsed: Vec<_> = parsed
            .iter()
            .map(|jobspec| {
                let shape = state.engine.shape(jobspec.request());
                state.shapes.name(shape, jobspec.request());
                let queue = state.intern_queue(jobspec.queue());
                (shape, jobspec.request().duration, queue)
            })
            .collect();
        let row = |row| {
            let (shape, duration, queue) = parsed[kinds[row]];
            Row {
                shape,
                duration,
                priority: priorities.at(row),
                queue,
            }
        };
        py.detach(|| state.queue(&ids, now, row))
    }

    /// Sets the options of a queue.
    fn set_queue(
        &self,
        name: &str,
        group: Option<String>,
        order: &str,
        max_jobs: Option<u64>,
        max_nodes: Option<u64>,
        max_cores: Option<u64>,
    ) -> PyResult<()> {
        let order = order.parse().map_err(raised)?;
        let mut state = self.lock()?;
        let queue = state.engine.queue(name);
        let options = QueueOptions {
            group,
            order,
            max_jobs,
            max_nodes,
            max_cores,
        };
        let effective = state.effective(&options);
        state.engine.set_queue(queue, effective);
        state.queues.insert(name.to_owned(), options);
        Ok(())
    }

    /// Sets the submission times of pending jobs, where known.
    fn set_submitted(&self, ids: Vec<u64>, times: Vec<Option<f64>>) -> PyResult<()> {
        let known = ids.into_iter().zip(times);
        let known = known.filter_map(|(id, time)| Some((JobId::new(id), time?)));
        self.lock()?.submitted.extend(known);
        Ok(())
    }

    fn cancel(&self, py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<usize> {
        let ids = columns::ids(ids)?;
        let mut state = self.lock()?;
        let state = &mut *state;
        Ok(py.detach(|| {
            let cancelled = ids.iter().filter(|id| state.engine.cancel(**id)).count();
            state.forget(ids.iter().copied());
            cancelled
        }))
    }

    fn prioritize(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        priorities: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let ids = columns::ids(ids)?;
        let priorities = Column::read(priorities, PRIORITY_COLUMN, ids.len())?;
        let mut state = self.lock()?;
        let state = &mut *state;
        Ok(py.detach(|| {
            let rows = ids.iter().enumerate();
            let changes: Vec<_> = rows.map(|(row, id)| (*id, priorities.at(row))).collect();
            for (id, priority) in &changes {
                if let Some(given) = state.arranged.get_mut(id) {
                    *given = *priority;
                }
            }
            state.engine.prioritize(&changes)
        }))
    }

    #[pyo3(signature = (ids, ranks))]
    fn free(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        ranks: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let ids = columns::ids(ids)?;
        let ranks = ranks.map(convert::ids).transpose()?;
        let mut state = self.lock()?;
        let state = &mut *state;
        if let Some(ranks) = &ranks {
            let gone = ids.iter().flat_map(|id| state.engine.outside(*id));
            state.know(ranks, &gone.map(|(rank, ..)| rank).collect())?;
        }
        let free = || {
            let mut seen = FxHashSet::default();
            if ids.len() > 1 {
                seen.reserve(ids.len());
            }
            for (row, id) in ids.iter().enumerate() {
                if !state.engine.is_running(*id) {
                    let text = format!("ids[{row}]: job {} holds no resources", id.get());
                    return Err(EngineError::new_err(text));
                }
                if ids.len() > 1 && !seen.insert(*id) {
                    let text = format!("ids[{row}]: job {} is in the batch twice", id.get());
                    return Err(EngineError::new_err(text));
                }
            }
            for id in &ids {
                state.engine.free(*id, ranks.as_ref()).map_err(raised)?;
            }
            Ok(())
        };
        py.detach(free)
    }

    fn r(&self, job: u64) -> PyResult<PyResourceSet> {
        self.lock()?.resources_of(JobId::new(job))
    }

    fn allocate(&self, job: u64, r: &Bound<'_, PyAny>) -> PyResult<()> {
        let r = convert::extract(r)?;
        self.lock()?
            .engine
            .allocate(JobId::new(job), &r)
            .map_err(raised)
    }

    fn adopt(&self, job: u64, r: &Bound<'_, PyAny>) -> PyResult<PyIdSet> {
        let r = convert::extract(r)?;
        let strange = self.lock()?.engine.adopt(JobId::new(job), &r);
        strange.map(PyIdSet::new).map_err(raised)
    }

    /// The resources of a job on ranks outside the inventory: rank, cores, gpus.
    fn outside(&self, job: u64) -> PyResult<Vec<(u32, String, String)>> {
        let state = self.lock()?;
        let outside = state.engine.outside(JobId::new(job));
        let outside =
            outside.map(|(rank, held)| (rank, held.cores.to_string(), held.gpus.to_string()));
        Ok(outside.collect())
    }

    /// Sets the resources of a running job on ranks outside the inventory.
    fn set_outside(&self, job: u64, outside: Vec<(u32, String, String)>) -> PyResult<()> {
        let ids = |text: &String| -> PyResult<IdSet> { text.parse().map_err(raised) };
        let outside = outside.iter();
        let outside = outside.map(|(rank, cores, gpus)| {
            let (cores, gpus) = (ids(cores)?, ids(gpus)?);
            Ok((*rank, OutsideResources { cores, gpus }))
        });
        let outside = outside.collect::<PyResult<_>>()?;
        let mut state = self.lock()?;
        state
            .engine
            .set_outside(JobId::new(job), outside)
            .map_err(raised)
    }

    /// Adds resources to a running job: as a shape requests them, or the given set.
    fn grow_job(
        &self,
        py: Python<'_>,
        job: u64,
        shape: Option<u32>,
        r: Option<&Bound<'_, PyAny>>,
        now: f64,
    ) -> PyResult<PyResourceSet> {
        let (now, r) = (time(now)?, r.map(convert::extract).transpose()?);
        let mut state = self.lock()?;
        let state = &mut *state;
        let added = match (shape, r) {
            (Some(shape), None) => {
                let request = &state.shape_at("shape", shape)?.request;
                let request = request.clone();
                py.detach(|| state.engine.extend(JobId::new(job), &request, now))
            }
            (None, Some(r)) => state.engine.extend_with(JobId::new(job), &r, now),
            _ => {
                return Err(EngineError::new_err(
                    "shape, r: expected one of them, found both or none",
                ));
            }
        };
        added.map(PyResourceSet::new).map_err(raised)
    }

    /// Removes a part of the resources of a running job.
    fn shrink_job(&self, job: u64, r: &Bound<'_, PyAny>) -> PyResult<()> {
        let r = convert::extract(r)?;
        let mut state = self.lock()?;
        let done = state.engine.shrink_allocation(JobId::new(job), &r);
        done.map_err(raised)
    }

    fn set_expiration(&self, job: u64, expiration: Option<f64>) -> PyResult<()> {
        let known = |time: f64| time > 0.0 && time.is_finite();
        if let Some(found) = expiration.filter(|time| !known(*time)) {
            return Err(EngineError::new_err(format!(
                "expiration: expected a time after 0, or None for no limit, found {found}"
            )));
        }
        let mut state = self.lock()?;
        let expiration = expiration.unwrap_or(0.0);
        let done = state.engine.set_expiration(JobId::new(job), expiration);
        done.map_err(raised)
    }
}

impl CoreState {
    /// The resources of a job.
    pub(super) fn resources_of(&self, id: JobId) -> PyResult<PyResourceSet> {
        let r = self.engine.r(id);
        r.map(PyResourceSet::new).map_err(raised)
    }
}
