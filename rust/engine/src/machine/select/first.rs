//! The lowest first.

use super::Walk;
use crate::machine::index::{Query, Tree};

/// Leaves in their order.
pub(in super::super) struct First {
    query: Query,
    next: u32,
}

impl First {
    /// Leaves with at least this number, from `start` on.
    #[inline]
    pub fn new(tree: &Tree, least: u32, start: u32) -> Self {
        Self {
            query: tree.query(least, u32::MAX),
            next: start,
        }
    }
}

impl Walk for First {
    #[inline]
    fn next(&mut self, tree: &Tree) -> Option<u32> {
        let leaf = tree.find(self.next, self.query)?;
        self.next = leaf + 1;
        Some(leaf)
    }
}
