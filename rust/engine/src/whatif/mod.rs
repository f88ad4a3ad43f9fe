//! What would be, if something were otherwise: asked of a snapshot, never of the live state.

mod forecast;

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use penstock_jobspec::{Count, Request};

pub use forecast::Start;

use crate::explain::span;
use crate::{Engine, Error, Job};

/// Something that could be otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// This job comes now. Its id settles its place among others of its priority: the largest
    /// there is, for a job that has none yet, puts it last.
    Submit(Job),
    /// This job is cancelled, whether it waits or runs.
    Cancel(u64),
    /// A job that waits asks for something else: other numbers, another time limit.
    Request {
        /// The job.
        id: u64,
        /// What it asks for instead.
        request: Request,
    },
    /// A job that waits gets another priority.
    Priority {
        /// The job.
        id: u64,
        /// Its priority; 0 holds it.
        priority: u32,
    },
    /// These nodes are up.
    Up(IdSet),
    /// These nodes are down. Jobs on them go on.
    Down(IdSet),
}

impl Change {
    /// The job that the change is about, where it still waits afterwards.
    fn job(&self) -> Option<u64> {
        match self {
            Self::Submit(job) => Some(job.id),
            Self::Request { id, .. } | Self::Priority { id, .. } => Some(*id),
            Self::Cancel(_) | Self::Up(_) | Self::Down(_) => None,
        }
    }
}

/// A job whose start the change moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// The job.
    pub id: u64,
    /// Its start as things are.
    pub before: Start,
    /// Its start with the change.
    pub after: Start,
}

impl Moved {
    /// By how many seconds it starts earlier; negative where it starts later, infinite where it
    /// would never start, or starts never again.
    pub fn earlier(&self) -> f64 {
        match (self.before.time(), self.after.time()) {
            (Some(before), Some(after)) => before - after,
            (None, Some(_)) => f64::INFINITY,
            (Some(_), None) => f64::NEG_INFINITY,
            (None, None) => 0.0,
        }
    }
}

/// What a change would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The job that the change is about, where it waits: its start as things are (none for a job
    /// that is not there yet).
    pub before: Option<Start>,
    /// Its start with the change.
    pub after: Option<Start>,
    /// Other jobs that would start at another time, in the order of the queue.
    pub moved: Vec<Moved>,
}

impl Outcome {
    /// What becomes of the job that the change is about, and how many others it moves, as a
    /// sentence without its full stop. `now` is what times are told from.
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
            moved.filter(|it| (it.earlier() > 0.0) == sooner).count()
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

/// How many units a job that waits could have, to start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Nodes, or slots, that it asks for; the least of a range.
    pub asked: u32,
    /// The most with which it would start now; `None` where it would not with any.
    pub largest: Option<u32>,
}

impl Engine {
    /// What a change would do, if all jobs end as planned and no others come.
    ///
    /// Looks at the job that the change is about, and at the first `look` others in the queue,
    /// those that are held left out. Costs a snapshot, and as many passes as there are planned
    /// ends until all of these have started; twice that, as things are and with the change.
    ///
    /// Fails where there is no such job, or where a job that comes is known already.
    pub fn what_if(&self, change: &Change, now: f64, look: usize) -> Result<Outcome, Error> {
        let mut changed = self.clone();
        changed.apply(change)?;
        let job = change.job();
        let mut before = BTreeMap::new();
        let mut others = Vec::new();
        if look > 0 || job.is_some_and(|id| self.is_queued(id)) {
            let mut snapshot = self.clone();
            if look > 0 {
                let queued = snapshot.queued().into_iter();
                others.extend(queued.filter(|id| Some(*id) != job).take(look));
            }
            before = forecast::run(snapshot, now, others.iter().copied().chain(job))?;
        }
        let mut after = forecast::run(changed, now, others.iter().copied().chain(job))?;
        let moved = others.iter().filter_map(|id| {
            let moved = Moved {
                id: *id,
                before: before.remove(id)?,
                after: after.remove(id)?,
            };
            (moved.before.time() != moved.after.time()).then_some(moved)
        });
        let moved = moved.collect();
        Ok(Outcome {
            before: job.and_then(|id| before.remove(&id)),
            after: job.and_then(|id| after.remove(&id)),
            moved,
        })
    }

    /// When the first jobs of the queue start, in its order, if all jobs end as planned and no
    /// others come.
    pub fn forecast(&self, now: f64, look: usize) -> Result<Vec<(u64, Start)>, Error> {
        let mut snapshot = self.clone();
        let mut ids = snapshot.queued();
        ids.truncate(look);
        let mut starts = forecast::run(snapshot, now, ids.iter().copied())?;
        let found = |id: u64| starts.remove(&id).map(|start| (id, start));
        Ok(ids.into_iter().filter_map(found).collect())
    }

    /// What a job that waits asks for, with this number of nodes, or of slots where it asks for
    /// slots alone.
    pub fn with_units(&self, id: u64, units: u32) -> Result<Request, Error> {
        let mut request = self.pending(id)?.request;
        let count = Count::exactly(units);
        match &mut request.nnodes {
            Some(nnodes) => *nnodes = count,
            None => request.slots = count,
        }
        Ok(request)
    }

    /// What a job that waits asks for, with this time limit in seconds; 0 for none.
    pub fn with_limit(&self, id: u64, duration: f64) -> Result<Request, Error> {
        let mut request = self.pending(id)?.request;
        request.duration = duration;
        Ok(request)
    }

    /// When a job that waits would start with each of these numbers of nodes, or of slots where it
    /// asks for slots alone. Each costs as much as half of [`what_if`](Self::what_if).
    pub fn alternatives(&self, id: u64, units: &[u32], now: f64) -> Result<Vec<Start>, Error> {
        let alternative = |units: &u32| {
            let request = self.with_units(id, *units)?;
            let mut snapshot = self.clone();
            snapshot.apply(&Change::Request { id, request })?;
            let start = forecast::run(snapshot, now, [id])?.remove(&id);
            start.ok_or_else(|| unknown(id))
        };
        units.iter().map(alternative).collect()
    }

    /// The most nodes, or slots where it asks for slots alone, with which a job that waits would
    /// start now. Costs a snapshot and a pass for each halving of what is free.
    ///
    /// A job that starts with some number is taken to start with less, too.
    pub fn fit_now(&self, id: u64, now: f64) -> Result<Fit, Error> {
        let request = self.pending(id)?.request;
        let asked = request.nnodes.as_ref().unwrap_or(&request.slots).min();
        let mut snapshot = self.clone();
        let one = snapshot.shape(&self.with_units(id, 1)?);
        let free = snapshot.books.machine.units_now(one);
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        let starts = |units: u32| -> Result<bool, Error> {
            let request = self.with_units(id, units)?;
            let mut snapshot = self.clone();
            snapshot.apply(&Change::Request { id, request })?;
            snapshot.schedule(now, usize::MAX);
            Ok(snapshot.is_running(id))
        };
        // Below `least` it starts, from `most` on it does not.
        let (mut least, mut most) = (0, u64::from(free) + 1);
        while most - least > 1 {
            let middle = u64::midpoint(least, most);
            if starts(u32::try_from(middle).unwrap_or(u32::MAX))? {
                least = middle;
            } else {
                most = middle;
            }
        }
        let largest = u32::try_from(least).ok().filter(|units| *units > 0);
        Ok(Fit { asked, largest })
    }

    fn pending(&self, id: u64) -> Result<Job, Error> {
        let job = self.job(id).filter(|_| self.is_queued(id));
        job.ok_or_else(|| unknown(id))
    }

    fn apply(&mut self, change: &Change) -> Result<(), Error> {
        match change {
            Change::Submit(job) => self.submit(job.clone())?,
            Change::Cancel(id) => {
                if !self.cancel(*id) && self.free(*id, None).is_err() {
                    return Err(Error::new(format!("job {id} neither waits nor runs")));
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
            Change::Priority { id, priority } => {
                if self.prioritize(&[(*id, *priority)]) == 0 {
                    return Err(unknown(*id));
                }
            }
            Change::Up(ranks) => self.mark_up(ranks),
            Change::Down(ranks) => self.mark_down(ranks),
        }
        Ok(())
    }
}

fn unknown(id: u64) -> Error {
    Error::new(format!("job {id} does not wait"))
}
