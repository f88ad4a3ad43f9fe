//! Iterator over the hosts of a list.
use std::iter::FusedIterator;
use std::ops::Range;

use crate::entry::Entry;

/// Iterator over the hosts of a list in order, from both ends; see [`crate::Hostlist::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    entries: &'a [Entry],
    /// The positions not yet given.
    left: Range<usize>,
    /// Index of the entry that holds the next position.
    front: usize,
}

impl<'a> Iter<'a> {
    pub(crate) fn new(entries: &'a [Entry], left: Range<usize>) -> Self {
        Self {
            entries,
            front: entries.partition_point(|entry| entry.end <= left.start),
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

    /// Replaces a text by the next host, faster if it holds the previous one. Returns false at the end.
    ///
    /// This is the fastest way to visit every name.
    pub fn read_next(&mut self, text: &mut String) -> bool {
        text.clear();
        self.write_next(text)
    }

    fn step(&mut self) -> Option<(&'a Entry, usize)> {
        let position = self.left.next()?;
        let entry = self.entries.get(self.front)?;
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
        let position = self.left.next_back()?;
        let index = self.entries.partition_point(|entry| entry.end <= position);
        let entry = self.entries.get(index)?;
        Some(entry.name(position - entry.start()))
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}
