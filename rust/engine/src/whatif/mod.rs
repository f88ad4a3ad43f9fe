//! Effects of a change ("what if"), computed on a snapshot.

mod forecast;

use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Count, Request};

use self::forecast::ForecastStarts;
pub use self::forecast::Start;
use crate::explain::span;
use crate::queue::Key;
use crate::queue_scan::QueueScan;
use crate::{Engine, Error, Horizon, Job};

/// A change whose effect is queried.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// This job is submitted now. Its id decides its position among jobs of its priority: the
    /// largest id puts it last, for a job that has none yet.
    Submit(Job),
    /// This job, pending or running, is cancelled.
    Cancel(JobId),
    /// A pending job has another request.
    Request {
        /// The job.
        id: JobId,
        /// Its request instead.
        request: Request,
    },
    /// These nodes are up.
    Up(IdSet),
    /// These nodes are down. Jobs on them keep running.
    Down(IdSet),
}

impl Change {
    /// The job to which the change applies, if it is pending afterwards.
    fn job(&self) -> Option<JobId> {
        match self {
            Self::Submit(job) => Some(job.id),
            Self::Request { id, .. } => Some(*id),
            Self::Cancel(_) | Self::Up(_) | Self::Down(_) => None,
        }
    }
}

/// A job whose start the change moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// The job.
    pub id: JobId,
    /// Its start without the change.
    pub before: Start,
    /// Its start with the change.
    pub after: Start,
}

impl Moved {
    /// The seconds by which it starts earlier: negative if later, infinite if only one of both starts is
    /// known.
    pub fn earlier(&self) -> f64 {
        match (self.before.time(), self.after.time()) {
            (Some(before), Some(after)) => before - after,
            (None, Some(_)) => f64::INFINITY,
            (Some(_), None) => f64::NEG_INFINITY,
            (None, None) => 0.0,
        }
    }
}

/// The effect of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeEffect {
    /// The start of the job to which the change applies, without the change; `None` if it is not
    /// pending.
    pub before: Option<Start>,
    /// Its start with the change; `None` if it is not pending then.
    pub after: Option<Start>,
    /// Other jobs that would start at another time, in the order of the queue.
    pub moved: Vec<Moved>,
}

impl ChangeEffect {
    /// The effect as a sentence without its full stop: the new start of the job to which the change
    /// applies, and the number of other jobs that move. Times are relative to `now`.
    pub fn sentence(&self, now: f64) -> String {
        let when = |start: &Start| match start {
            Start::At { time, .. } if *time <= now => "would start now".to_owned(),
            Start::At { time, .. } => format!("would start in {}", span(time - now)),
            Start::Never { .. } => "would not start as far as is known".to_owned(),
            Start::Denied { note } => format!("would be denied: {note}"),
        };
        let mut text = match (&self.before, &self.after) {
            (Some(before), Some(after)) if before.time() != after.time() => {
                let instead = match before {
                    Start::At { time, .. } if *time <= now => "now".to_owned(),
                    Start::At { time, .. } => format!("in {}", span(time - now)),
                    Start::Never { .. } => "not at all".to_owned(),
                    Start::Denied { .. } => "being denied".to_owned(),
                };
                format!("{}, instead of {instead}", when(after))
            }
            (_, Some(after)) => when(after),
            _ => String::new(),
        };
        let count = |sooner: bool| {
            let moved = self.moved.iter();
            moved.filter(|job| (job.earlier() > 0.0) == sooner).count()
        };
        for (count, how) in [(count(true), "earlier"), (count(false), "later")] {
            if count > 0 {
                let separator = if text.is_empty() { "" } else { "; " };
                let others = if count == 1 { "job" } else { "jobs" };
                text = format!("{text}{separator}{count} other {others} would start {how}");
            }
        }
        if text.is_empty() {
            "nothing would start at another time".clone_into(&mut text);
        }
        text
    }
}

/// The effect of a change that is computed in parts, so that others are served between them: two forecasts on copies of the
/// engine, which do not change when the engine does.
#[derive(Debug)]
pub struct SlicedWhatIf {
    /// The job to which the change applies, if it is pending afterwards.
    job: Option<JobId>,
    /// The other jobs that are compared, in the order of the queue.
    others: Vec<JobId>,
    /// `None` if no job is compared.
    before: Option<ForecastStarts>,
    after: ForecastStarts,
    /// The compared jobs that start at another time, once both forecasts are complete.
    moved: Option<Vec<JobId>>,
    /// The jobs in the effect whose reasons are still to be added.
    unexplained: Vec<JobId>,
    /// The greatest number of reasons that are looked up in one part.
    max_explained: usize,
}

impl SlicedWhatIf {
    /// Continues within the limits of `part`, for one pass or some reasons at least. Returns whether the effect is known.
    pub fn advance(&mut self, part: Horizon) -> bool {
        if let Some(before) = self.before.as_mut().filter(|before| !before.is_complete()) {
            before.advance(part);
            return false;
        }
        if !self.after.is_complete() {
            self.after.advance(part);
            return false;
        }
        if self.moved.is_none() {
            self.compare();
        }
        let rest = self.unexplained.len().saturating_sub(self.max_explained);
        let ids = self.unexplained.split_off(rest);
        for forecast in self.before.iter_mut().chain([&mut self.after]) {
            let ids = ids.iter().copied();
            let ids: Vec<JobId> = ids.filter(|id| forecast.is_unexplained(*id)).collect();
            forecast.explain(&ids);
        }
        self.unexplained.is_empty()
    }

    /// Compares the forecasts: a job without a start that is not moved needs no reason.
    fn compare(&mut self) {
        let (before, after) = (self.before.as_ref(), &self.after);
        let is_moved = |id: &JobId| {
            before.is_some_and(|before| {
                before.has(*id) && after.has(*id) && before.time(*id) != after.time(*id)
            })
        };
        let others = std::mem::take(&mut self.others).into_iter();
        let moved: Vec<JobId> = others.filter(is_moved).collect();
        self.unexplained = moved.iter().copied().chain(self.job).collect();
        self.moved = Some(moved);
    }

    /// The work of all parts so far, as that of a [`Horizon`].
    pub fn work(&self) -> u64 {
        self.before.as_ref().map_or(0, ForecastStarts::work) + self.after.work()
    }

    /// Takes the effect, completed if it is not.
    ///
    /// # Errors
    ///
    /// A job that starts in a forecast is not running after it, which is a bug.
    pub fn take_effect(&mut self) -> Result<ChangeEffect, Error> {
        while !self.advance(Horizon::UNLIMITED) {}
        let (before, after) = (&mut self.before, &mut self.after);
        let mut take_before = |id: JobId| match before {
            Some(before) => before.take_start(id),
            None => Ok(None),
        };
        let mut moved = Vec::new();
        for id in self.moved.take().unwrap_or_default() {
            if let (Some(before), Some(after)) = (take_before(id)?, after.take_start(id)?) {
                moved.push(Moved { id, before, after });
            }
        }
        let (mut job_before, mut job_after) = (None, None);
        if let Some(id) = self.job {
            (job_before, job_after) = (take_before(id)?, after.take_start(id)?);
        }
        Ok(ChangeEffect {
            before: job_before,
            after: job_after,
            moved,
        })
    }
}

/// The number of units with which a pending job would start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Nodes, or slots, that it requests; the minimum of a range.
    pub requested: u32,
    /// The largest number with which it would start now; `None` if it would start with no number.
    pub largest: Option<u32>,
}

/// The search for a [`Fit`], in steps, on a copy of the engine, which does not change when the engine does.
#[derive(Debug)]
pub struct FitSearch {
    snapshot: Engine,
    id: JobId,
    now: f64,
    requested: u32,
    /// The job starts with `least` units, and does not with `most`.
    least: u64,
    most: u64,
}

impl FitSearch {
    /// Whether the units are nodes: otherwise they are slots.
    pub fn requests_nodes(&self) -> bool {
        let job = self.snapshot.job(self.id);
        job.is_some_and(|job| job.request.nnodes.is_some())
    }

    /// Tries one number of units, by a snapshot and a pass, unless the result is known, which is returned.
    ///
    /// # Errors
    ///
    /// The job cannot be queued with other numbers, which is a bug.
    pub fn advance(&mut self) -> Result<Option<Fit>, Error> {
        if self.most - self.least <= 1 {
            let largest = u32::try_from(self.least).ok();
            return Ok(Some(Fit {
                requested: self.requested,
                largest: largest.filter(|units| *units > 0),
            }));
        }
        let middle = u64::midpoint(self.least, self.most);
        let units = u32::try_from(middle).unwrap_or(u32::MAX);
        let id = self.id;
        let request = self.snapshot.with_units(id, units)?;
        let mut changed = self.snapshot.clone();
        changed.apply(&Change::Request { id, request })?;
        changed.schedule(self.now, usize::MAX);
        if changed.is_running(id) {
            self.least = middle;
        } else {
            self.most = middle;
        }
        Ok(None)
    }
}

impl Engine {
    /// The effect of a change, if all jobs end as planned and no others are submitted.
    ///
    /// Compares the starts of the job to which the change applies, and of the first `max_compared`
    /// others in the queue, except held jobs. The cost, without the change and again with it, is a
    /// snapshot and a pass for each planned end until all of these have started.
    ///
    /// # Errors
    ///
    /// The job to which the change applies is not pending (or, if it is to be cancelled, neither
    /// pending nor running), or the job to be submitted is already known.
    pub fn what_if(
        &self,
        change: &Change,
        now: f64,
        max_compared: usize,
    ) -> Result<ChangeEffect, Error> {
        self.begin_what_if(change, now, max_compared)?.take_effect()
    }

    /// As [`what_if`](Self::what_if), in parts, by [`SlicedWhatIf::advance`].
    ///
    /// # Errors
    ///
    /// As for `what_if`.
    pub fn begin_what_if(
        &self,
        change: &Change,
        now: f64,
        max_compared: usize,
    ) -> Result<SlicedWhatIf, Error> {
        let mut changed = self.clone();
        changed.apply(change)?;
        let job = change.job();
        let mut others = Vec::new();
        if max_compared > 0 {
            let mut queue = QueueScan::new(&self.state);
            let queued = std::iter::from_fn(|| queue.next(&self.state)).map(Key::id);
            others.extend(queued.filter(|id| Some(*id) != job).take(max_compared));
        }
        let jobs = || others.iter().copied().chain(job);
        let is_compared = max_compared > 0 || job.is_some_and(|id| self.is_queued(id));
        Ok(SlicedWhatIf {
            before: is_compared.then(|| ForecastStarts::new(self.clone(), now, jobs())),
            after: ForecastStarts::new(changed, now, jobs()),
            job,
            others,
            moved: None,
            unexplained: Vec::new(),
            max_explained: self.max_explained(),
        })
    }

    /// The starts of the first `max_jobs` jobs of the queue, in its order, if all jobs end as planned
    /// and no others are submitted.
    ///
    /// # Errors
    ///
    /// A job that starts in the forecast is not running after it, which is a bug.
    pub fn forecast(&self, now: f64, max_jobs: usize) -> Result<Vec<(JobId, Start)>, Error> {
        let mut ids = self.queue_order();
        ids.truncate(max_jobs);
        let mut starts = ForecastStarts::new(self.clone(), now, ids.iter().copied());
        while !starts.advance(Horizon::UNLIMITED) {}
        let unexplained = ids.iter().copied();
        let unexplained: Vec<JobId> = unexplained
            .filter(|id| starts.is_unexplained(*id))
            .collect();
        starts.explain(&unexplained);
        let mut found = |id: JobId| Ok(starts.take_start(id)?.map(|start| (id, start)));
        ids.into_iter()
            .filter_map(|id| found(id).transpose())
            .collect()
    }

    /// The request of a pending job, with this number of nodes, or of slots if it requests no nodes.
    ///
    /// # Errors
    ///
    /// The job is not pending.
    pub fn with_units(&self, id: JobId, units: u32) -> Result<Request, Error> {
        let mut request = self.pending(id)?.request;
        let count = Count::exactly(units);
        match &mut request.nnodes {
            Some(nnodes) => *nnodes = count,
            None => request.slots = count,
        }
        Ok(request)
    }

    /// The request of a pending job, with this time limit in seconds; 0 for none.
    ///
    /// # Errors
    ///
    /// The job is not pending.
    pub fn with_limit(&self, id: JobId, duration: f64) -> Result<Request, Error> {
        let mut request = self.pending(id)?.request;
        request.duration = duration;
        Ok(request)
    }

    /// The most nodes, or slots if it requests no nodes, with which a pending job would start now.
    /// This is a binary search over the free units: each step costs a snapshot and a pass.
    ///
    /// It assumes that a job that starts with some number also starts with a smaller one.
    ///
    /// # Errors
    ///
    /// The job is not pending.
    pub fn fit_now(&self, id: JobId, now: f64) -> Result<Fit, Error> {
        let mut search = self.begin_fit(id, now)?;
        loop {
            if let Some(fit) = search.advance()? {
                return Ok(fit);
            }
        }
    }

    /// As [`fit_now`](Self::fit_now), in steps, by [`FitSearch::advance`].
    ///
    /// # Errors
    ///
    /// The job is not pending.
    pub fn begin_fit(&self, id: JobId, now: f64) -> Result<FitSearch, Error> {
        let request = self.pending(id)?.request;
        let requested = request.nnodes.as_ref().unwrap_or(&request.slots).min();
        let mut snapshot = self.clone();
        let one = snapshot.shape(&self.with_units(id, 1)?);
        let free = snapshot.state.node_table.units_now(one);
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        Ok(FitSearch {
            snapshot,
            id,
            now,
            requested,
            least: 0,
            most: u64::from(free) + 1,
        })
    }

    fn pending(&self, id: JobId) -> Result<Job, Error> {
        let job = self.job(id).filter(|_| self.is_queued(id));
        job.ok_or_else(|| unknown(id))
    }

    fn apply(&mut self, change: &Change) -> Result<(), Error> {
        match change {
            Change::Submit(job) => self.submit(job.clone())?,
            Change::Cancel(id) => {
                if !self.cancel(*id) && self.free(*id, None).is_err() {
                    return Err(Error::unknown_job(format!(
                        "job {} is neither pending nor running",
                        id.get()
                    )));
                }
            }
            Change::Request { id, request } => {
                let job = Job {
                    request: request.clone(),
                    ..self.pending(*id)?
                };
                self.cancel(*id);
                self.submit(job)?;
            }
            Change::Up(ranks) => self.mark_up(ranks),
            Change::Down(ranks) => self.mark_down(ranks),
        }
        Ok(())
    }
}

fn unknown(id: JobId) -> Error {
    Error::unknown_job(format!("job {} is not pending", id.get()))
}
