//! Queries about pending jobs: reasons, estimates, what-if.

use penstock_engine::{Change, ChangeEffect, Estimate, Field, Job, Reason, Start};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::columns;
use super::core_state::{CoreState, EngineCore};
use super::jobs::time;
use crate::array::view;
use crate::errors::{EngineError, NotFoundError, raised};
use crate::idset::PyIdSet;
use crate::resource::convert;

/// The kind of a reason, its facts, and the sentence.
type Explained<'py> = (u64, &'static str, Bound<'py, PyDict>, String);
/// The time and ranks of a start, or the reason why the job never starts.
type When = (Option<f64>, Option<PyIdSet>, Option<String>);
/// The start before and after a change, the other jobs that it moves, and the sentence.
type Changed = (Option<When>, Option<When>, Vec<(u64, When, When)>, String);

fn called(id: JobId) -> String {
    format!("job {}", id.get())
}

fn when(start: Start, now: f64) -> When {
    match start {
        Start::At { time, ranks } => (Some(time), Some(PyIdSet::new(ranks)), None),
        Start::Never { reason } => (None, None, Some(reason.sentence(now, &called))),
        Start::Denied { note } => (None, None, Some(note)),
    }
}

fn changed(effect: ChangeEffect, now: f64) -> Changed {
    let sentence = effect.sentence(now);
    let moved = effect.moved.into_iter();
    let moved = moved.map(|job| (job.id.get(), when(job.before, now), when(job.after, now)));
    (
        effect.before.map(|start| when(start, now)),
        effect.after.map(|start| when(start, now)),
        moved.collect(),
        sentence,
    )
}

impl CoreState {
    fn explained<'py>(
        &self,
        py: Python<'py>,
        id: JobId,
        reason: &Reason,
        now: f64,
    ) -> PyResult<Explained<'py>> {
        if self.is_left_out(id) {
            return Ok(Self::left_out_of_order(py, id));
        }
        let facts = PyDict::new(py);
        for (name, field) in reason.fields() {
            match field {
                Field::Job(id) => facts.set_item(name, id.get())?,
                Field::Count(count) => facts.set_item(name, count)?,
                Field::Time(seconds) => facts.set_item(name, seconds)?,
                Field::Text(text) => facts.set_item(name, text)?,
                Field::Queue(queue) => facts.set_item(name, self.engine.queue_name(queue))?,
            }
        }
        Ok((
            id.get(),
            reason.kind(),
            facts,
            reason.sentence(now, &called),
        ))
    }

    fn left_out_of_order(py: Python<'_>, id: JobId) -> Explained<'_> {
        let sentence = "left out: the order of the last pass does not have it".to_owned();
        (id.get(), "left-out", PyDict::new(py), sentence)
    }
}

impl EngineCore {
    fn effect(
        &self,
        py: Python<'_>,
        now: f64,
        max_compared: usize,
        change: impl FnOnce(&mut CoreState) -> PyResult<Change>,
    ) -> PyResult<Changed> {
        let now = time(now)?;
        let mut state = self.lock()?;
        let change = change(&mut state)?;
        let engine = &mut state.engine;
        let effect = py.detach(|| {
            engine.share();
            engine.what_if(&change, now, max_compared)
        });
        Ok(changed(effect.map_err(raised)?, now))
    }
}

#[pymethods]
impl EngineCore {
    fn explain<'py>(&self, py: Python<'py>, job: u64, now: f64) -> PyResult<Explained<'py>> {
        let now = time(now)?;
        let mut state = self.lock()?;
        let engine = &mut state.engine;
        let Some(reason) = py.detach(|| engine.explain(JobId::new(job), now)) else {
            return Err(NotFoundError::new_err(format!("job {job} is not pending")));
        };
        state.explained(py, JobId::new(job), &reason, now)
    }

    /// The columns of `Estimates`.
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        now: f64,
        ids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let now = time(now)?;
        let ids = ids.map(columns::ids).transpose()?;
        let mut state = self.lock()?;
        let state = &mut *state;
        let engine = &state.engine;
        let strange = |id: &&JobId| !engine.is_queued(**id) && !engine.is_running(**id);
        if let Some(id) = ids.iter().flatten().find(strange) {
            let problem = format!("job {} is neither pending nor running", id.get());
            return Err(NotFoundError::new_err(problem));
        }
        let estimates = py.detach(|| {
            state.engine.share();
            let estimates = if let Some(ids) = &ids {
                state.engine.estimate_of(now, ids)
            } else {
                let mut estimates = state.engine.estimate(now);
                let left_out = state.left_out().into_iter();
                estimates.extend(left_out.map(|id| Estimate { id, start: None }));
                estimates
            };
            for estimate in &estimates {
                if let Some(start) = estimate.start {
                    state.accuracy.expect(estimate.id, now, start);
                }
            }
            estimates
        });
        let band = state.accuracy.band();
        let range = |start: f64| band.and_then(|band| band.around(now, start));
        let starts = || {
            estimates
                .iter()
                .map(|estimate| estimate.start.unwrap_or(f64::NAN))
        };
        let columns = PyDict::new(py);
        columns.set_item(
            "ids",
            view(py, estimates.iter().map(|estimate| estimate.id.get()))?,
        )?;
        columns.set_item("starts", view(py, starts())?)?;
        let earliest = starts().map(|start| range(start).map_or(start, |range| range.earliest));
        columns.set_item("earliest", view(py, earliest)?)?;
        let latest = starts().map(|start| range(start).map_or(start, |range| range.latest));
        columns.set_item("latest", view(py, latest)?)?;
        Ok(columns)
    }

    fn explain_all<'py>(
        &self,
        py: Python<'py>,
        now: f64,
        limit: Option<usize>,
    ) -> PyResult<Vec<Explained<'py>>> {
        let now = time(now)?;
        let mut state = self.lock()?;
        let engine = &mut state.engine;
        let limit = limit.unwrap_or(usize::MAX);
        let reasons = py.detach(|| engine.explain_all(now, limit));
        let rest = limit - reasons.len();
        let reasons = reasons.iter();
        let explained = reasons.map(|(id, reason)| state.explained(py, *id, reason, now));
        let left_out = state.left_out().into_iter().take(rest);
        let left_out = left_out.map(|id| Ok(CoreState::left_out_of_order(py, id)));
        explained.chain(left_out).collect()
    }

    /// A job with this time limit and priority is submitted to this queue.
    fn what_if_submitted(
        &self,
        py: Python<'_>,
        now: f64,
        max_compared: usize,
        shape: u32,
        job: (f64, u32, Option<String>),
    ) -> PyResult<Changed> {
        let (duration, priority, queue) = job;
        self.effect(py, now, max_compared, |state| {
            let request = &state.shape_at("shape", shape)?.request;
            let mut request = request.clone();
            request.duration = seconds(duration)?;
            Ok(Change::Submit(Job {
                id: JobId::new(u64::MAX),
                priority,
                request,
                queue: state.engine.queue(&queue.unwrap_or_default()),
            }))
        })
    }

    fn what_if_cancelled(
        &self,
        py: Python<'_>,
        now: f64,
        max_compared: usize,
        job: u64,
    ) -> PyResult<Changed> {
        self.effect(py, now, max_compared, |_| {
            Ok(Change::Cancel(JobId::new(job)))
        })
    }

    /// A pending job requests another number of units, or of seconds.
    fn what_if_changed(
        &self,
        py: Python<'_>,
        now: f64,
        max_compared: usize,
        job: u64,
        units: Option<u32>,
        duration: Option<f64>,
    ) -> PyResult<Changed> {
        let job = JobId::new(job);
        self.effect(py, now, max_compared, |state| {
            let known = state.engine.job(job).map(|job| job.request.duration);
            let kept = known.unwrap_or_default();
            let limit = duration.map_or(Ok(kept), seconds)?;
            let request = match units {
                Some(0) => {
                    let problem = "units: expected at least 1, found 0";
                    return Err(EngineError::new_err(problem));
                }
                Some(units) => state.engine.with_units(job, units),
                None => state.engine.with_limit(job, limit),
            };
            let mut request = request.map_err(raised)?;
            request.duration = limit;
            Ok(Change::Request { id: job, request })
        })
    }

    fn what_if_marked(
        &self,
        py: Python<'_>,
        now: f64,
        max_compared: usize,
        ranks: &Bound<'_, PyAny>,
        up: bool,
    ) -> PyResult<Changed> {
        let ranks = convert::ids(ranks)?;
        self.effect(py, now, max_compared, |state| {
            state.know(&ranks, &IdSet::new())?;
            Ok(if up {
                Change::Up(ranks)
            } else {
                Change::Down(ranks)
            })
        })
    }

    /// The units that a job requests, and the most with which it would start now.
    fn fit_now(&self, py: Python<'_>, job: u64, now: f64) -> PyResult<(u32, Option<u32>)> {
        let now = time(now)?;
        let mut state = self.lock()?;
        let engine = &mut state.engine;
        let fit = py.detach(|| {
            engine.share();
            engine.fit_now(JobId::new(job), now)
        });
        let fit = fit.map_err(raised)?;
        Ok((fit.requested, fit.largest))
    }
}

/// Checks a time limit from Python.
fn seconds(duration: f64) -> PyResult<f64> {
    if duration >= 0.0 && duration.is_finite() {
        return Ok(duration);
    }
    Err(EngineError::new_err(format!(
        "duration: expected seconds from 0 (no limit) on, found {duration}"
    )))
}
