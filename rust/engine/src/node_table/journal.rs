//! The journal of changed nodes, from which views are updated later.

use crate::ids::NodeIndex;

/// Minimum number of changes that the journal holds.
const MIN_JOURNAL_CHANGES: usize = 4096;

/// Changed nodes, oldest first. A full journal is emptied: rebuilding a view costs no more than
/// reading that many changes.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    changed: Vec<NodeIndex>,
    /// Changes before the first one still held.
    forgotten: u64,
    capacity: usize,
}

impl Journal {
    /// An empty journal for a node table with `node_count` nodes.
    pub fn new(node_count: u32) -> Self {
        Self {
            changed: Vec::new(),
            forgotten: 0,
            capacity: (node_count as usize).max(MIN_JOURNAL_CHANGES),
        }
    }

    /// Records that a node has changed.
    #[inline]
    pub fn push(&mut self, node: NodeIndex) {
        if self.changed.len() >= self.capacity {
            self.forgotten += self.changed.len() as u64;
            self.changed.clear();
        }
        self.changed.push(node);
    }

    /// The number of changes so far.
    #[inline]
    pub fn end(&self) -> u64 {
        self.forgotten + self.changed.len() as u64
    }

    /// The nodes changed after the first `seen` changes; `None` if they are no longer held.
    #[inline]
    pub fn since(&self, seen: u64) -> Option<&[NodeIndex]> {
        let known = seen.checked_sub(self.forgotten)?;
        self.changed.get(usize::try_from(known).ok()?..)
    }
}
