//! Summaries for display: the pending jobs, and how much each running job is allocated.

use crate::Engine;
use crate::job::JobState;
use crate::machine::ShapeId;
use crate::queue::{Key, QueueId};
use crate::running::Running;

/// A pending job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PendingJob {
    /// The job.
    pub id: u64,
    /// Its priority; 0 if it is held.
    pub priority: u32,
    /// The shape of its request.
    pub shape: ShapeId,
    /// Time limit in seconds; 0 for none.
    pub duration: f64,
    /// Its queue.
    pub queue: QueueId,
}

/// How much a job is allocated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocationSummary {
    /// The job.
    pub id: u64,
    /// When it started, in seconds since the epoch, if that is known.
    pub start: Option<f64>,
    /// When it ends at the latest, in seconds since the epoch, if it has to.
    pub expiration: Option<f64>,
    /// Nodes of the inventory on which it has cores or gpus.
    pub nodes: u32,
    /// Cores on them.
    pub cores: u64,
    /// Gpus on them.
    pub gpus: u64,
}

/// How much of one node a job is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAllocation {
    /// The node's rank.
    pub rank: u32,
    /// How many of its cores.
    pub cores: u32,
    /// How many of its gpus.
    pub gpus: u32,
}

impl Engine {
    /// The priority of a pending job.
    pub fn priority(&self, id: u64) -> Option<u32> {
        let (handle, _) = self.waiting(id)?;
        Some(self.books.jobs.at(handle).priority)
    }

    /// All pending jobs, in queue order; those that are held come last.
    pub fn pending_jobs(&self) -> Vec<PendingJob> {
        let mut keys: Vec<_> = self
            .books
            .jobs
            .iter()
            .filter(|(_, job)| matches!(job.state, JobState::Pending(_)))
            .map(|(handle, job)| Key::new(job.effective_priority, job.id, handle))
            .collect();
        keys.sort_unstable();
        let pending = |key: Key| {
            let job = self.books.jobs.at(key.handle());
            let JobState::Pending(lane) = job.state else {
                return None;
            };
            let (class, limit) = self.books.queue.lane(lane);
            Some(PendingJob {
                id: job.id,
                priority: job.priority,
                shape: class.shape,
                duration: if limit.is_finite() { limit } else { 0.0 },
                queue: class.queue,
            })
        };
        keys.into_iter().filter_map(pending).collect()
    }

    /// How much a job is allocated; `None` if it does not run.
    pub fn allocation_summary(&self, id: u64) -> Option<AllocationSummary> {
        self.run(id).ok().map(|running| summarize(id, running))
    }

    /// How much each running job is allocated, by ascending id.
    pub fn allocation_summaries(&self) -> Vec<AllocationSummary> {
        let mut summaries: Vec<_> = self
            .books
            .runs
            .iter()
            .map(|(_, running)| summarize(self.books.jobs.at(running.handle).id, running))
            .collect();
        summaries.sort_unstable_by_key(|summary| summary.id);
        summaries
    }

    /// How much of each node in the inventory a job is allocated, by rank; nothing if it does not
    /// run. Cheaper than its R: no text or set is made.
    pub fn node_allocations(&self, id: u64) -> impl Iterator<Item = NodeAllocation> {
        let shares = self.run(id).map(|running| running.shares.iter());
        shares.into_iter().flatten().map(|share| NodeAllocation {
            rank: self.books.machine.rank(share.node),
            cores: share.ncores(),
            gpus: share.ngpus(),
        })
    }
}

fn summarize(id: u64, running: &Running) -> AllocationSummary {
    let shares = &running.shares;
    AllocationSummary {
        id,
        start: Some(running.start).filter(|start| *start >= 0.0),
        expiration: Some(running.end).filter(|end| end.is_finite()),
        nodes: u32::try_from(shares.len()).unwrap_or(u32::MAX),
        cores: shares.iter().map(|share| u64::from(share.ncores())).sum(),
        gpus: shares.iter().map(|share| u64::from(share.ngpus())).sum(),
    }
}
