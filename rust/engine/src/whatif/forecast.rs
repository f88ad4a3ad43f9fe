//! Forecasts: the starts and ranks of pending jobs, if all jobs end as planned.

use std::collections::{BTreeMap, BTreeSet};

use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use rustc_hash::FxHashSet;

use crate::estimate::{Forecast, Horizon};
use crate::explain::Reason;
use crate::verdict::Decision;
use crate::{Engine, Error};

/// The start of a pending job in a forecast.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// It starts.
    At {
        /// When, seconds since the epoch.
        time: f64,
        /// On which ranks.
        ranks: IdSet,
    },
    /// It cannot start after any planned end.
    Never {
        /// Why it is pending once every job with a time limit has ended.
        reason: Reason,
    },
    /// It is denied.
    Denied {
        /// The note: which requirement is impossible, and the available maximum.
        note: String,
    },
}

impl Start {
    /// When it starts, if it does.
    pub fn time(&self) -> Option<f64> {
        match self {
            Self::At { time, .. } => Some(*time),
            _ => None,
        }
    }
}

/// The starts of some jobs in a forecast that is made in parts, on an engine that is a copy.
#[derive(Debug)]
pub(super) struct ForecastStarts {
    /// The jobs that are pending when it begins.
    pending: BTreeSet<JobId>,
    /// The jobs that may still start.
    watched: FxHashSet<JobId>,
    ahead: Forecast,
    starts: BTreeMap<JobId, Result<Start, Error>>,
    /// Whether all jobs that start, or are denied, are in `starts`.
    is_complete: bool,
}

impl ForecastStarts {
    pub fn new(engine: Engine, now: f64, jobs: impl IntoIterator<Item = JobId>) -> Self {
        let jobs = jobs.into_iter();
        let pending: BTreeSet<JobId> = jobs.filter(|id| engine.is_queued(*id)).collect();
        let ahead = Forecast::new(engine, now);
        Self {
            watched: ahead.can_start(pending.iter().copied()),
            pending,
            ahead,
            starts: BTreeMap::new(),
            is_complete: false,
        }
    }

    /// Whether all starts are known.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The work of all parts so far.
    pub fn work(&self) -> u64 {
        self.ahead.engine.state.work
    }

    /// Continues within the limits of `part`, for one pass at least, unless all starts are known, which is
    /// returned.
    pub fn advance(&mut self, part: Horizon) -> bool {
        let starts = &mut self.starts;
        let mut record = |engine: &Engine, time: f64, decision: Decision| match decision {
            Decision::Alloc { id, .. } => {
                let start = engine.run_ranks(id).map(|ranks| Start::At { time, ranks });
                starts.insert(id, start);
            }
            Decision::Deny { id, note } => {
                starts.insert(id, Ok(Start::Denied { note }));
            }
        };
        if !self.is_complete {
            self.is_complete = self.ahead.advance(part, &mut self.watched, &mut record);
        }
        self.is_complete
    }

    /// Whether a job was pending.
    pub fn has(&self, id: JobId) -> bool {
        self.pending.contains(&id)
    }

    /// When a job starts, if it does.
    pub fn time(&self, id: JobId) -> Option<f64> {
        self.starts.get(&id)?.as_ref().ok()?.time()
    }

    /// Whether a job was pending, and neither starts nor is denied.
    pub fn is_unexplained(&self, id: JobId) -> bool {
        self.has(id) && !self.starts.contains_key(&id)
    }

    /// Adds the reasons of jobs that are [unexplained](Self::is_unexplained) to the starts, once these are complete.
    pub fn explain(&mut self, ids: &[JobId]) {
        let reasons = self.ahead.engine.explain_each(ids, self.ahead.now);
        for (id, reason) in ids.iter().zip(reasons) {
            if let Some(reason) = reason {
                self.starts.insert(*id, Ok(Start::Never { reason }));
            }
        }
    }

    /// Takes the start of a job; `None` if it has none, and no reason was added.
    pub fn take_start(&mut self, id: JobId) -> Result<Option<Start>, Error> {
        self.starts.remove(&id).transpose()
    }
}

impl Engine {
    /// The ranks on which a job is running.
    fn run_ranks(&self, id: JobId) -> Result<IdSet, Error> {
        let node_table = &self.state.node_table;
        let shares = &self.state.running_job(id)?.shares;
        Ok(shares
            .iter()
            .map(|share| node_table.rank(share.node))
            .collect())
    }
}
