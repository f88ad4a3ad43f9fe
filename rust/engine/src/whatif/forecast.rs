//! Forecasts: the starts and ranks of pending jobs, if all jobs end as planned.

use std::collections::{BTreeMap, BTreeSet};

use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;

use crate::estimate::Forecast;
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

/// Forecasts the starts of these jobs, on an engine that is a copy. A job that is not pending gets
/// no entry.
pub(super) fn run(
    engine: Engine,
    now: f64,
    watched: impl IntoIterator<Item = JobId>,
) -> Result<BTreeMap<JobId, Start>, Error> {
    let watched = watched.into_iter();
    let pending: BTreeSet<JobId> = watched.filter(|id| engine.is_queued(*id)).collect();
    let mut ahead = Forecast::new(engine, now);
    let mut left = ahead.can_start(pending.iter().copied());
    let mut starts = BTreeMap::new();
    let mut record = |engine: &Engine, time: f64, decision: Decision| match decision {
        Decision::Alloc { id, .. } => {
            let start = engine.run_ranks(id).map(|ranks| Start::At { time, ranks });
            starts.insert(id, start);
        }
        Decision::Deny { id, note } => {
            starts.insert(id, Ok(Start::Denied { note }));
        }
    };
    ahead.run(&mut left, &mut || true, &mut record);
    for id in pending {
        if let Some(reason) = ahead.engine.explain(id, ahead.now) {
            starts.insert(id, Ok(Start::Never { reason }));
        }
    }
    starts
        .into_iter()
        .map(|(id, start)| Ok((id, start?)))
        .collect()
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
