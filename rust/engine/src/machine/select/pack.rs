//! The fullest first.

use super::Walk;
use crate::machine::index::{Query, Tree};

/// Leaves by ascending number, equal ones in their order.
pub(in super::super) struct Pack {
    number: u32,
    query: Option<Query>,
    next: u32,
}

impl Pack {
    /// Leaves with at least this number.
    pub fn new(tree: &Tree, least: u32) -> Self {
        let mut walk = Self {
            number: least,
            query: None,
            next: 0,
        };
        walk.seek(tree, least);
        walk
    }

    fn seek(&mut self, tree: &Tree, from: u32) {
        self.next = 0;
        self.query = tree.first_count(from).map(|number| {
            self.number = number;
            tree.query(number, number)
        });
    }
}

impl Walk for Pack {
    #[inline]
    fn next(&mut self, tree: &Tree) -> Option<u32> {
        loop {
            if let Some(leaf) = tree.find(self.next, self.query?) {
                self.next = leaf + 1;
                return Some(leaf);
            }
            self.seek(tree, self.number.checked_add(1)?);
        }
    }
}
