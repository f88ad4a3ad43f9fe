//! Jobs that hold resources.

use std::collections::BTreeMap;

use penstock_idset::IdSet;

use crate::chunks::Chunks;
use crate::machine::{Allocation, ShapeId};
use crate::queue::QueueId;

/// What a job asked for, so that it can be queued again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asked {
    pub shape: ShapeId,
    /// Time limit, infinite for none.
    pub limit: f64,
}

/// Cores and gpus by rank.
pub(crate) type Outside = BTreeMap<u32, (IdSet, IdSet)>;

/// What a job holds. Aligned, so that it lies in two lines of a cache and not in three.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Running {
    pub handle: u32,
    pub queue: QueueId,
    /// Nothing for jobs that came with their resources.
    pub asked: Option<Asked>,
    pub shares: Allocation,
    /// Cores and gpus on ranks that are not in the inventory (any more).
    pub outside: Option<Box<Outside>>,
    /// When it started; negative where that is not known.
    pub start: f64,
    /// Planned end, infinite for none: also the expiration of its R.
    pub end: f64,
    /// What its start was counted with in the limits of its queue.
    pub counted: (u32, u64),
}

impl Running {
    /// The expiration of its R, which has to be after its start: a second later at the least, as it
    /// is planned.
    pub fn expiration(&self) -> Option<f64> {
        let end = Some(self.end).filter(|end| end.is_finite());
        end.map(|end| {
            if end <= self.start {
                self.start + 1.0
            } else {
                end
            }
        })
    }
}

/// Running jobs under small numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    runs: Chunks<Option<Running>>,
    unused: Vec<u32>,
}

impl Runs {
    pub fn len(&self) -> usize {
        self.runs.len() - self.unused.len()
    }

    #[inline]
    pub fn insert(&mut self, running: Running) -> u32 {
        let Some(run) = self.unused.pop() else {
            self.runs.push(Some(running));
            return u32::try_from(self.runs.len() - 1).unwrap_or(u32::MAX);
        };
        if let Some(unused) = self.runs.get_mut(run as usize) {
            *unused = Some(running);
        }
        run
    }

    pub fn remove(&mut self, run: u32) -> Option<Running> {
        let running = self.runs.get_mut(run as usize)?.take();
        if running.is_some() {
            self.unused.push(run);
        }
        running
    }

    /// From now on, clones share what there is now.
    #[inline]
    pub fn share(&mut self) {
        self.runs.share();
    }

    pub fn at(&self, run: u32) -> Option<&Running> {
        self.runs.get(run as usize)?.as_ref()
    }

    pub fn at_mut(&mut self, run: u32) -> Option<&mut Running> {
        self.runs.get_mut(run as usize)?.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Running)> {
        let all = (0_u32..).zip(self.runs.iter());
        all.filter_map(|(run, it)| Some((run, it.as_ref()?)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Running> {
        self.runs.iter_mut().flatten()
    }

    /// Bytes on the heap; what jobs hold outside the inventory is left out.
    pub fn heap_bytes(&self) -> usize {
        let shares = self.iter().map(|(_, it)| it.shares.heap_bytes());
        self.runs.bytes() + self.unused.capacity() * size_of::<u32>() + shares.sum::<usize>()
    }
}
