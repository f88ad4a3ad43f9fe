//! Running jobs, with their allocations.

use std::collections::BTreeMap;

use penstock_idset::IdSet;

use crate::chunked_vec::ChunkedVec;
use crate::ids::{JobHandle, QueueId, RunId};
use crate::node_table::{Allocation, ShapeId, Size};

/// The request of a running job, used if it is queued again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RunningRequest {
    pub shape: ShapeId,
    /// Time limit in seconds, infinite for none.
    pub limit: f64,
}

/// The resources of a job on a rank outside the inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideResources {
    /// Its cores.
    pub cores: IdSet,
    /// Its gpus.
    pub gpus: IdSet,
}

/// Resources by rank.
pub(crate) type Outside = BTreeMap<u32, OutsideResources>;

/// A running job. Aligned so that it spans two cache lines, not three.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct RunningJob {
    pub handle: JobHandle,
    pub queue: QueueId,
    /// `None` for jobs that were already running when they were registered.
    pub request: Option<RunningRequest>,
    pub shares: Allocation,
    /// Cores and gpus on ranks that are not, or no longer, in the inventory.
    pub outside: Option<Box<Outside>>,
    /// When it started; negative if unknown.
    pub start: f64,
    /// Planned end, infinite for none; also the expiration of its R.
    pub end: f64,
    /// The size with which it is counted in the limits of its queue.
    pub counted: Size,
}

impl RunningJob {
    /// The expiration of its R. It has to be after the start, so a job that ends as it starts gets
    /// a second.
    pub fn expiration(&self) -> Option<f64> {
        if self.end.is_infinite() {
            return None;
        }
        let is_instant = self.end <= self.start;
        Some(if is_instant {
            self.start + 1.0
        } else {
            self.end
        })
    }
}

/// The running jobs, each at an index of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningJobs {
    running: ChunkedVec<Option<RunningJob>>,
    unused: Vec<RunId>,
    changes: u64,
}

impl RunningJobs {
    pub fn len(&self) -> usize {
        self.running.len() - self.unused.len()
    }

    /// The number of starts and ends of jobs so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Adds a running job. Returns its index.
    #[inline]
    pub fn insert(&mut self, running: RunningJob) -> RunId {
        self.changes += 1;
        let Some(run) = self.unused.pop() else {
            self.running.push(Some(running));
            return RunId::from_usize(self.running.len() - 1);
        };
        if let Some(unused) = self.running.get_mut(run.index()) {
            *unused = Some(running);
        }
        run
    }

    pub fn remove(&mut self, run: RunId) -> Option<RunningJob> {
        let running = self.running.get_mut(run.index())?.take();
        if running.is_some() {
            self.changes += 1;
            self.unused.push(run);
        }
        running
    }

    /// Makes clones share the current jobs from now on.
    #[inline]
    pub fn share(&mut self) {
        self.running.share();
    }

    pub fn at(&self, run: RunId) -> Option<&RunningJob> {
        self.running.get(run.index())?.as_ref()
    }

    pub fn at_mut(&mut self, run: RunId) -> Option<&mut RunningJob> {
        self.running.get_mut(run.index())?.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (RunId, &RunningJob)> {
        (0_u32..)
            .zip(self.running.iter())
            .filter_map(|(run, running)| Some((RunId::new(run), running.as_ref()?)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut RunningJob> {
        self.running.iter_mut().flatten()
    }

    /// Bytes on the heap; resources of jobs outside the inventory are not counted.
    pub fn heap_bytes(&self) -> usize {
        let shares = self.iter().map(|(_, running)| running.shares.heap_bytes());
        self.running.bytes() + self.unused.capacity() * size_of::<RunId>() + shares.sum::<usize>()
    }
}
