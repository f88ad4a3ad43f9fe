//! Summaries for display: the pending jobs, and how much each running job is allocated.

use penstock_jobspec::job_id::JobId;

use crate::Engine;
use crate::ids::QueueId;
use crate::job::JobState;
use crate::node_table::ShapeId;
use crate::queue::Key;
use crate::running_jobs::RunningJob;

/// A pending job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PendingJob {
    /// The job.
    pub id: JobId,
    /// Its priority; 0 if it is held.
    pub priority: u32,
    /// The shape of its request.
    pub shape: ShapeId,
    /// Time limit in seconds; 0 for none.
    pub duration: f64,
    /// Its queue.
    pub queue: QueueId,
}

/// The size of a job's allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocationSummary {
    /// The job.
    pub id: JobId,
    /// When it started, in seconds since the epoch, if that is known.
    pub start: Option<f64>,
    /// Its expiration, in seconds since the epoch, if it has one.
    pub expiration: Option<f64>,
    /// Nodes of the inventory on which it has cores or gpus.
    pub nodes: u32,
    /// Cores on them.
    pub cores: u64,
    /// Gpus on them.
    pub gpus: u64,
}

/// The share of one node in a job's allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAllocation {
    /// The node's rank.
    pub rank: u32,
    /// The number of its cores.
    pub cores: u32,
    /// The number of its gpus.
    pub gpus: u32,
}

impl Engine {
    /// The priority of a pending job.
    pub fn priority(&self, id: JobId) -> Option<u32> {
        let handle = self.pending_handle(id)?;
        Some(self.state.jobs.at(handle).priority)
    }

    /// All pending jobs, in queue order; held jobs come last.
    pub fn pending_jobs(&self) -> Vec<PendingJob> {
        let mut keys: Vec<_> = self
            .state
            .jobs
            .iter()
            .filter(|(_, job)| matches!(job.state, JobState::Pending(_)))
            .map(|(handle, job)| Key::new(job.effective_priority, job.id, handle))
            .collect();
        keys.sort_unstable();
        let pending = |key: Key| {
            let job = self.state.jobs.at(key.handle());
            let JobState::Pending(lane) = job.state else {
                return None;
            };
            let queue = &self.state.queue;
            let (class, limit) = (queue.key_of(queue.class_of(lane)), queue.limit_of(lane));
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

    /// The size of a job's allocation; `None` if it is not running.
    pub fn allocation_summary(&self, id: JobId) -> Option<AllocationSummary> {
        self.state
            .running_job(id)
            .ok()
            .map(|running| summarize(id, running))
    }

    /// The sizes of the allocations of all running jobs, by ascending id.
    pub fn allocation_summaries(&self) -> Vec<AllocationSummary> {
        let mut summaries: Vec<_> = self
            .state
            .running_jobs
            .iter()
            .map(|(_, running)| summarize(self.state.jobs.at(running.handle).id, running))
            .collect();
        summaries.sort_unstable_by_key(|summary| summary.id);
        summaries
    }

    /// The shares of the inventory's nodes in a job's allocation, by rank; empty if it is not
    /// running. Cheaper than its R: no text or set is built.
    pub fn node_allocations(&self, id: JobId) -> impl Iterator<Item = NodeAllocation> {
        let shares = self
            .state
            .running_job(id)
            .map(|running| running.shares.iter());
        shares.into_iter().flatten().map(|share| NodeAllocation {
            rank: self.state.node_table.rank(share.node),
            cores: share.ncores(),
            gpus: share.ngpus(),
        })
    }
}

fn summarize(id: JobId, running: &RunningJob) -> AllocationSummary {
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
