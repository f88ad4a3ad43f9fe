//! First-fit selection: the lowest ranks first.

use super::Walk;
use crate::machine::index::{Query, Tree};

/// Visits leaves in their order.
pub(in super::super) struct First {
    query: Query,
    next: u32,
}

impl First {
    /// Visits the leaves with at least this number, from `start` on.
    #[inline]
    pub fn new(tree: &Tree, min_number: u32, start: u32) -> Self {
        Self {
            query: tree.query(min_number, u32::MAX),
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
