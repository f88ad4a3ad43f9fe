//! Iterator over the hosts of a list.
use std::iter::FusedIterator;
use std::ops::Range;

use crate::Hostlist;
use crate::entry::Entry;

/// Iterator over the hosts of a list in order, from both ends; see [`Hostlist::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    list: &'a Hostlist,
    /// The positions not yet given.
    left: Range<usize>,
    /// Index of the entry that holds the next position.
    front: usize,
}

impl<'a> Iter<'a> {
    pub(crate) fn new(list: &'a Hostlist, left: Range<usize>) -> Self {
        Self {
            list,
            front: list
                .entries
                .partition_point(|entry| entry.end <= left.start),
            left,
        }
    }

    /// Appends the next host to a text. Returns false at the end.
    pub fn write_next(&mut self, text: &mut String) -> bool {
        let Some((entry, index)) = self.step() else {
            return false;
        };
        entry.write(text, index);
        true
    }

    /// Puts the next host in place of a text that holds the one before, or anything. Returns false at the end.
    ///
    /// The fastest way to see every name.
    pub fn read_next(&mut self, text: &mut String) -> bool {
        text.clear();
        self.write_next(text)
    }

    fn step(&mut self) -> Option<(&'a Entry, usize)> {
        let position = self.left.next()?;
        let entry = self.list.entries.get(self.front)?;
        if entry.end == position + 1 {
            self.front += 1;
        }
        Some((entry, position - entry.start()))
    }
}

impl Iterator for Iter<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let (entry, index) = self.step()?;
        Some(entry.name(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<String> {
        self.list.get(self.left.next_back()?)
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a Hostlist {
    type Item = String;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}
