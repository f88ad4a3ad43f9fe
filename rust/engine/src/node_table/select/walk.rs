//! Walks over the nodes that fit: first fit, best fit, worst fit.

use crate::node_table::index::{Query, Tree};

/// Visits the leaves that fit, each once.
pub(in super::super) trait Walk {
    /// The next leaf.
    fn next(&mut self, tree: &Tree) -> Option<u32>;
}

/// First fit: visits leaves in their order, lowest ranks first.
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

/// Best fit: visits leaves by ascending number, the fullest nodes first; equal ones in their order.
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

/// Worst fit: visits leaves by descending number, the emptiest nodes first; equal ones in their
/// order.
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
