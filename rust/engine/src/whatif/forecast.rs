//! When jobs start, if everything goes as planned and no job comes.

use std::collections::{BTreeMap, BTreeSet};

use penstock_idset::IdSet;

use crate::engine::Decision;
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
    mut engine: Engine,
    now: f64,
    watched: impl IntoIterator<Item = u64>,
) -> Result<BTreeMap<u64, Start>, Error> {
    let watched = watched.into_iter();
    let mut left: BTreeSet<u64> = watched.filter(|id| engine.is_queued(*id)).collect();
    let mut starts = BTreeMap::new();
    let mut time = now;
    loop {
        for decision in engine.schedule(time, usize::MAX) {
            let (id, start) = match decision {
                Decision::Alloc { id, .. } if left.contains(&id) => {
                    let ranks = engine.run_ranks(id)?;
                    (id, Start::At { time, ranks })
                }
                Decision::Deny { id, note } => (id, Start::Denied { note }),
                Decision::Alloc { .. } => continue,
            };
            if left.remove(&id) {
                starts.insert(id, start);
            }
        }
        if left.is_empty() {
            return Ok(starts);
        }
        match engine.next_end(now) {
            Some(next) => time = next,
            None => break,
        }
        engine.end_until(now, time);
    }
    for id in left {
        if let Some(reason) = engine.explain(id, time) {
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
        Ok(shares.iter().map(|it| machine.rank(it.place)).collect())
    }

    /// When the next running job ends as planned; what should have ended by `now` ends one second
    /// later.
    fn next_end(&mut self, now: f64) -> Option<f64> {
        let timeline = self.books.timeline();
        let first = timeline.iter().next()?.end;
        let later = timeline
            .after(now)
            .next()
            .map_or(f64::INFINITY, |it| it.end);
        let next = if first <= now {
            later.min(now + 1.0)
        } else {
            later
        };
        Some(next).filter(|next| next.is_finite())
    }

    /// Ends what is planned to end up to a time.
    fn end_until(&mut self, now: f64, time: f64) {
        let timeline = self.books.timeline();
        let over = |end: f64| end <= time && (end > now || time >= now + 1.0);
        let ending = timeline.iter().take_while(|it| it.end <= time);
        let ending: Vec<u32> = ending.filter(|it| over(it.end)).map(|it| it.run).collect();
        let books = &self.books;
        let ids = ending.iter().filter_map(|run| {
            let handle = books.runs.at(*run)?.handle;
            Some(books.jobs.at(handle).id)
        });
        let ids: Vec<u64> = ids.collect();
        self.finish(&ids);
    }
}
