//! When jobs start, if everything goes as planned and no job comes.

use std::collections::{BTreeMap, BTreeSet};

use penstock_idset::IdSet;

use crate::engine::Decision;
use crate::estimate::Forward;
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
/// will start. Jobs end as planned; those that should have ended end one second
/// from now. A job in `watched` that does not wait gets no entry.
pub(super) fn run(
    engine: Engine,
    now: f64,
    watched: impl IntoIterator<Item = u64>,
) -> Result<BTreeMap<u64, Start>, Error> {
    let watched = watched.into_iter();
    let mut left: BTreeSet<u64> = watched.filter(|id| engine.is_queued(*id)).collect();
    let mut starts = BTreeMap::new();
    let mut ahead = Forward::of(engine, now);
    while !left.is_empty()
        && let Some(decisions) = ahead.step()
    {
        let time = ahead.now;
        for decision in decisions {
            let (id, start) = match decision {
                Decision::Alloc { id, .. } if left.contains(&id) => {
                    let ranks = ahead.engine.run_ranks(id)?;
                    (id, Start::At { time, ranks })
                }
                Decision::Deny { id, note } => (id, Start::Denied { note }),
                Decision::Alloc { .. } => continue,
            };
            if left.remove(&id) {
                starts.insert(id, start);
            }
        }
    }
    for id in left {
        if let Some(reason) = ahead.engine.explain(id, ahead.now) {
            starts.insert(id, Start::Never { reason });
        }
    }
    Ok(starts)
}

impl Engine {
    /// Ranks on which a job runs.
    fn run_ranks(&self, id: u64) -> Result<IdSet, Error> {
        let machine = &self.books.machine;
        let shares = &self.run(id)?.shares;
        Ok(shares.iter().map(|it| machine.rank(it.node)).collect())
    }
}
