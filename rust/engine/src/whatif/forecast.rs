//! When jobs start, if everything goes as planned and no job comes.

use std::collections::{BTreeMap, BTreeSet};

use penstock_idset::IdSet;

use crate::engine::Decision;
use crate::estimate::Forecast;
use crate::explain::Reason;
use crate::{Engine, Error};

/// When a job that waits starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// It starts.
    At {
        /// When, in seconds since the epoch.
        time: f64,
        /// On which ranks.
        ranks: IdSet,
    },
    /// No planned end lets it start.
    Never {
        /// What is in its way when everything that will end has ended.
        reason: Reason,
    },
    /// It is denied.
    Denied {
        /// What is impossible, and the most there is.
        note: String,
    },
}

impl Start {
    /// When it starts, where it does.
    pub fn time(&self) -> Option<f64> {
        match self {
            Self::At { time, .. } => Some(*time),
            _ => None,
        }
    }
}

/// Runs an engine forward from `now` until every job in `watched` has started, is denied, or never
/// will start. Jobs end as planned; those that are overdue end one second from now. A job in
/// `watched` that is not pending gets no entry.
pub(super) fn run(
    engine: Engine,
    now: f64,
    watched: impl IntoIterator<Item = u64>,
) -> Result<BTreeMap<u64, Start>, Error> {
    let watched = watched.into_iter();
    let pending: BTreeSet<u64> = watched.filter(|id| engine.is_queued(*id)).collect();
    let mut ahead = Forecast::new(engine, now);
    let mut left = ahead.can_start(pending.iter().copied());
    let mut starts = BTreeMap::new();
    let mut note = |engine: &Engine, time: f64, decision: Decision| match decision {
        Decision::Alloc { id, .. } => {
            let start = engine.run_ranks(id).map(|ranks| Start::At { time, ranks });
            starts.insert(id, start);
        }
        Decision::Deny { id, note } => {
            starts.insert(id, Ok(Start::Denied { note }));
        }
    };
    ahead.run(&mut left, &mut || true, &mut note);
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
    /// Ranks on which a job runs.
    fn run_ranks(&self, id: u64) -> Result<IdSet, Error> {
        let machine = &self.books.machine;
        let shares = &self.run(id)?.shares;
        Ok(shares.iter().map(|it| machine.rank(it.node)).collect())
    }
}
