//! Worst-fit selection: the emptiest nodes first.

use super::Walk;
use crate::machine::index::{Query, Tree};

/// Visits leaves by descending number, equal ones in their order.
pub(in super::super) struct Spread {
    min_number: u32,
    number: u32,
    query: Option<Query>,
    next: u32,
}

impl Spread {
    /// Visits the leaves with at least this number.
    pub fn new(tree: &Tree, min_number: u32) -> Self {
        let mut walk = Self {
            min_number,
            number: 0,
            query: None,
            next: 0,
        };
        walk.seek(tree, u32::MAX);
        walk
    }

    fn seek(&mut self, tree: &Tree, from: u32) {
        self.next = 0;
        self.query = tree.last_count(from, self.min_number).map(|number| {
            self.number = number;
            tree.query(number, number)
        });
    }
}

impl Walk for Spread {
    #[inline]
    fn next(&mut self, tree: &Tree) -> Option<u32> {
        loop {
            if let Some(leaf) = tree.find(self.next, self.query?) {
                self.next = leaf + 1;
                return Some(leaf);
            }
            self.seek(tree, self.number.checked_sub(1)?);
        }
    }
}
