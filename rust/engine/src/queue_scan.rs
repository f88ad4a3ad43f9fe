//! The pending jobs of all queues in their order, some at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::{ClassId, LaneId};
use crate::queue::Key;
use crate::state::EngineState;

/// A sorted run of pending jobs that the scan merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// The jobs of a class that the scan has not reached.
    Class(ClassId),
    /// A lane of a class that the scan has reached. Lanes are merged directly: `Queue::after` would look at every lane of the
    /// class for each job.
    Lane(LaneId),
}

/// A scan of the pending jobs that are not held. The state must not change between two steps.
#[derive(Debug)]
pub(crate) struct QueueScan {
    /// The next job of each source.
    heads: BinaryHeap<Reverse<(Key, Source)>>,
}

impl QueueScan {
    pub fn new(state: &EngineState) -> Self {
        let mut heads = BinaryHeap::new();
        for group in &state.queue.groups {
            let classes = group.heads.all().iter().zip(&group.classes);
            let pending = classes.filter(|(key, _)| !key.is_absent());
            heads.extend(pending.map(|(key, class)| Reverse((*key, Source::Class(*class)))));
        }
        Self { heads }
    }

    /// The next job.
    pub fn next(&mut self, state: &EngineState) -> Option<Key> {
        loop {
            let Reverse((key, source)) = self.heads.pop()?;
            match source {
                Source::Class(class) => {
                    let lanes = state.queue.lane_heads(class);
                    let heads = lanes.map(|(key, lane)| Reverse((key, Source::Lane(lane))));
                    self.heads.extend(heads);
                }
                Source::Lane(lane) => {
                    let next = state.queue.after_in_lane(lane, key);
                    if !next.is_absent() {
                        self.heads.push(Reverse((next, source)));
                    }
                    return Some(key);
                }
            }
        }
    }
}
