//! Queries about pending jobs: reasons, estimates, what-if.

use penstock_engine::{Change, Effect, Estimate, Field, Job, Reason, Start};
use penstock_idset::IdSet;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::columns::{self, view};
use super::jobs::time;
use super::{Books, EngineCore};
use crate::errors::{EngineError, NotFoundError, raised};
use crate::idset::PyIdSet;
use crate::resource::convert;

/// The kind of a reason, its facts, and the sentence.
type Explained<'py> = (u64, &'static str, Bound<'py, PyDict>, String);
/// When and where a job starts, or why it never does.
type When = (Option<f64>, Option<PyIdSet>, Option<String>);
/// The start before and after a change, the other jobs that it moves, and the sentence.
type Changed = (Option<When>, Option<When>, Vec<(u64, When, When)>, String);

fn called(id: u64) -> String {
    format!("job {id}")
}

fn when(start: Start, now: f64) -> When {
    match start {
        Start::At { time, ranks } => (Some(time), Some(PyIdSet::new(ranks)), None),
        Start::Never { reason } => (None, None, Some(reason.sentence(now, &called))),
        Start::Denied { note } => (None, None, Some(note)),
    }
}

fn changed(effect: Effect, now: f64) -> Changed {
    let sentence = effect.sentence(now);
    let moved = effect.moved.into_iter();
    let moved = moved.map(|it| (it.id, when(it.before, now), when(it.after, now)));
    (
        effect.before.map(|start| when(start, now)),
        effect.after.map(|start| when(start, now)),
        moved.collect(),
        sentence,
    )
}

impl Books {
    fn explained<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        reason: &Reason,
        now: f64,
    ) -> PyResult<Explained<'py>> {
        if self.is_left_out(id) {
            return Ok(Self::left_out_of_order(py, id));
        }
        let facts = PyDict::new(py);
        for (name, field) in reason.fields() {
            match field {
                Field::Job(number) | Field::Count(number) => facts.set_item(name, number)?,
                Field::Time(seconds) => facts.set_item(name, seconds)?,
                Field::Text(text) => facts.set_item(name, text)?,
                Field::Queue(queue) => facts.set_item(name, self.engine.queue_name(queue))?,
            }
        }
        Ok((id, reason.kind(), facts, reason.sentence(now, &called)))
    }

    fn left_out_of_order(py: Python<'_>, id: u64) -> Explained<'_> {
        let sentence = "left out: the order of the last pass does not have it".to_owned();
        (id, "left-out", PyDict::new(py), sentence)
    }
}

impl EngineCore {
    fn effect(
        &self,
        py: Python<'_>,
        now: f64,
        look: usize,
        change: impl FnOnce(&mut Books) -> PyResult<Change>,
    ) -> PyResult<Changed> {
        let now = time(now)?;
        let mut books = self.books()?;
        let change = change(&mut books)?;
        let engine = &mut books.engine;
        let effect = py.detach(|| {
            engine.share();
            engine.what_if(&change, now, look)
        });
        Ok(changed(effect.map_err(raised)?, now))
    }
}

#[pymethods]
impl EngineCore {
    fn explain<'py>(&self, py: Python<'py>, job: u64, now: f64) -> PyResult<Explained<'py>> {
        let now = time(now)?;
        let mut books = self.books()?;
        let engine = &mut books.engine;
        let Some(reason) = py.detach(|| engine.explain(job, now)) else {
            return Err(NotFoundError::new_err(format!("job {job} is not pending")));
        };
        books.explained(py, job, &reason, now)
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
        let mut books = self.books()?;
        let books = &mut *books;
        let engine = &books.engine;
        let strange = |id: &&u64| !engine.is_queued(**id) && !engine.is_running(**id);
        if let Some(id) = ids.iter().flatten().find(strange) {
            let problem = format!("job {id} is neither pending nor running");
            return Err(NotFoundError::new_err(problem));
        }
        let estimates = py.detach(|| {
            books.engine.share();
            let estimates = if let Some(ids) = &ids {
                books.engine.estimate_of(now, ids)
            } else {
                let mut estimates = books.engine.estimate(now);
                let left_out = books.left_out().into_iter();
                estimates.extend(left_out.map(|id| Estimate { id, start: None }));
                estimates
            };
            for it in &estimates {
                if let Some(start) = it.start {
                    books.accuracy.expect(it.id, now, start);
                }
            }
            estimates
        });
        let band = books.accuracy.band();
        let bounds = |start: f64| band.and_then(|it| it.around(now, start));
        let starts = || estimates.iter().map(|it| it.start.unwrap_or(f64::NAN));
        let columns = PyDict::new(py);
        columns.set_item("ids", view(py, estimates.iter().map(|it| it.id))?)?;
        columns.set_item("starts", view(py, starts())?)?;
        let earliest = starts().map(|it| bounds(it).map_or(it, |it| it.0));
        columns.set_item("earliest", view(py, earliest)?)?;
        let latest = starts().map(|it| bounds(it).map_or(it, |it| it.1));
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
        let mut books = self.books()?;
        let engine = &mut books.engine;
        let limit = limit.unwrap_or(usize::MAX);
        let reasons = py.detach(|| engine.explain_all(now, limit));
        let rest = limit - reasons.len();
        let reasons = reasons.iter();
        let explained = reasons.map(|(id, reason)| books.explained(py, *id, reason, now));
        let left_out = books.left_out().into_iter().take(rest);
        let left_out = left_out.map(|id| Ok(Books::left_out_of_order(py, id)));
        explained.chain(left_out).collect()
    }

    /// A job with this time limit and priority is submitted to this queue.
    fn what_if_submitted(
        &self,
        py: Python<'_>,
        now: f64,
        look: usize,
        shape: u32,
        job: (f64, u32, Option<String>),
    ) -> PyResult<Changed> {
        let (duration, priority, queue) = job;
        self.effect(py, now, look, |books| {
            let (_, request) = books.shape_at("shape", shape)?;
            let mut request = request.clone();
            request.duration = seconds(duration)?;
            Ok(Change::Submit(Job {
                id: u64::MAX,
                priority,
                request,
                queue: books.engine.queue(&queue.unwrap_or_default()),
            }))
        })
    }

    fn what_if_cancelled(
        &self,
        py: Python<'_>,
        now: f64,
        look: usize,
        job: u64,
    ) -> PyResult<Changed> {
        self.effect(py, now, look, |_| Ok(Change::Cancel(job)))
    }

    fn what_if_prioritized(
        &self,
        py: Python<'_>,
        now: f64,
        look: usize,
        job: u64,
        priority: u32,
    ) -> PyResult<Changed> {
        self.effect(py, now, look, |_| {
            Ok(Change::Priority { id: job, priority })
        })
    }

    /// A pending job requests another number of units, or of seconds.
    fn what_if_changed(
        &self,
        py: Python<'_>,
        now: f64,
        look: usize,
        job: u64,
        units: Option<u32>,
        duration: Option<f64>,
    ) -> PyResult<Changed> {
        self.effect(py, now, look, |books| {
            let known = books.engine.job(job).map(|it| it.request.duration);
            let kept = known.unwrap_or_default();
            let limit = duration.map_or(Ok(kept), seconds)?;
            let request = match units {
                Some(0) => {
                    let problem = "units: expected at least 1, found 0";
                    return Err(EngineError::new_err(problem));
                }
                Some(units) => books.engine.with_units(job, units),
                None => books.engine.with_limit(job, limit),
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
        look: usize,
        ranks: &Bound<'_, PyAny>,
        up: bool,
    ) -> PyResult<Changed> {
        let ranks = convert::ids(ranks)?;
        self.effect(py, now, look, |books| {
            books.know(&ranks, &IdSet::new())?;
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
        let mut books = self.books()?;
        let engine = &mut books.engine;
        let fit = py.detach(|| {
            engine.share();
            engine.fit_now(job, now)
        });
        let fit = fit.map_err(raised)?;
        Ok((fit.asked, fit.largest))
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
