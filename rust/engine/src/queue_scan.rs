//! The pending jobs of all queues in their order, some at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::ClassId;
use crate::queue::Key;
use crate::state::EngineState;

/// A scan of the pending jobs that are not held. The state must not change between two steps.
#[derive(Debug)]
pub(crate) struct QueueScan {
    /// The next job of each class.
    heads: BinaryHeap<Reverse<(Key, ClassId)>>,
}

impl QueueScan {
    pub fn new(state: &EngineState) -> Self {
        let mut heads = BinaryHeap::new();
        for group in &state.queue.groups {
            let classes = group.heads.all().iter().zip(&group.classes);
            let pending = classes.filter(|(key, _)| !key.is_absent());
            heads.extend(pending.map(|(key, class)| Reverse((*key, *class))));
        }
        Self { heads }
    }

    /// The next job.
    pub fn next(&mut self, state: &EngineState) -> Option<Key> {
        let Reverse((key, class)) = self.heads.pop()?;
        let next = state.queue.after(class, key, |_| true);
        if !next.is_absent() {
            self.heads.push(Reverse((next, class)));
        }
        Some(key)
    }
}
