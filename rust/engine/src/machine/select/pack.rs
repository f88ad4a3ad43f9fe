//! Best-fit selection: the fullest nodes first.

use super::Walk;
use crate::machine::index::{Query, Tree};

/// Visits leaves by ascending number, equal ones in their order.
pub(in super::super) struct Pack {
    number: u32,
    query: Option<Query>,
    next: u32,
}

impl Pack {
    /// Visits the leaves with at least this number.
    pub fn new(tree: &Tree, min_number: u32) -> Self {
        let mut walk = Self {
            number: min_number,
            query: None,
            next: 0,
        };
        walk.seek(tree, min_number);
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
