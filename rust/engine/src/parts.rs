//! Pictures of the books, for those who show or keep them: who waits, and who holds how much.

use crate::Engine;
use crate::job::State;
use crate::machine::ShapeId;
use crate::queue::{Key, QueueId};
use crate::running::Running;

/// A job that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pending {
    /// The job.
    pub id: u64,
    /// 0 for a job that is held.
    pub priority: u32,
    /// What it asks for.
    pub shape: ShapeId,
    /// Time limit in seconds; 0 for none.
    pub duration: f64,
    /// Where it waits.
    pub queue: QueueId,
}

/// How much a job holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holding {
    /// The job.
    pub id: u64,
    /// When it started, where that is known.
    pub start: Option<f64>,
    /// When it ends at the latest, where it does.
    pub expiration: Option<f64>,
    /// Nodes of the inventory that it holds a part of.
    pub nodes: u32,
    /// Cores on them.
    pub cores: u64,
    /// Gpus on them.
    pub gpus: u64,
}

impl Engine {
    /// The priority of a job that waits.
    pub fn priority(&self, id: u64) -> Option<u32> {
        let (handle, _) = self.waiting(id)?;
        Some(self.books.jobs.at(handle).priority)
    }

    /// All jobs that wait, in order; those that are held come last.
    pub fn pending_jobs(&self) -> Vec<Pending> {
        let jobs = self.books.jobs.iter();
        let jobs = jobs.filter(|(_, it)| matches!(it.state, State::Waits(_)));
        let keys = jobs.map(|(handle, it)| Key::new(it.rank, it.id, handle));
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        let handles = keys.into_iter().map(Key::handle);
        let pending = handles.filter_map(|handle| {
            let known = self.books.jobs.at(handle);
            let State::Waits(lane) = known.state else {
                return None;
            };
            let (class, limit) = self.books.queue.lane(lane);
            Some(Pending {
                id: known.id,
                priority: known.priority,
                shape: class.shape,
                duration: if limit.is_finite() { limit } else { 0.0 },
                queue: class.queue,
            })
        });
        pending.collect()
    }

    /// How much a job holds, where it holds anything.
    pub fn holding(&self, id: u64) -> Option<Holding> {
        self.run(id).ok().map(|running| holding(id, running))
    }

    /// How much each job holds, by ascending id.
    pub fn holdings(&self) -> Vec<Holding> {
        let runs = self.books.runs.iter();
        let mut holdings: Vec<_> = runs
            .map(|(_, running)| holding(self.books.jobs.at(running.handle).id, running))
            .collect();
        holdings.sort_unstable_by_key(|it| it.id);
        holdings
    }
}

fn holding(id: u64, running: &Running) -> Holding {
    let shares = &running.shares;
    Holding {
        id,
        start: Some(running.start).filter(|start| *start >= 0.0),
        expiration: Some(running.end).filter(|end| end.is_finite()),
        nodes: u32::try_from(shares.len()).unwrap_or(u32::MAX),
        cores: shares.iter().map(|share| u64::from(share.ncores())).sum(),
        gpus: shares.iter().map(|share| u64::from(share.ngpus())).sum(),
    }
}
