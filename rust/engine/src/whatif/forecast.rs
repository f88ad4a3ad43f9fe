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

    /// Takes the starts of the jobs, completed if they are not. A job that was not pending gets no entry.
    pub fn take_starts(&mut self) -> Result<BTreeMap<JobId, Start>, Error> {
        while !self.advance(Horizon::UNLIMITED) {}
        let mut starts = std::mem::take(&mut self.starts);
        let pending = std::mem::take(&mut self.pending).into_iter();
        let never: Vec<JobId> = pending.filter(|id| !starts.contains_key(id)).collect();
        let reasons = self.ahead.engine.explain_each(&never, self.ahead.now);
        for (id, reason) in never.into_iter().zip(reasons) {
            if let Some(reason) = reason {
                starts.insert(id, Ok(Start::Never { reason }));
            }
        }
        let starts = starts.into_iter();
        starts.map(|(id, start)| Ok((id, start?))).collect()
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
