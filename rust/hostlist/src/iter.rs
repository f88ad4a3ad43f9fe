//! Iterator over the hosts of a list.
use std::iter::FusedIterator;
use std::ops::Range;

use crate::entry::{Entry, Runs};
use crate::stem::Stem;

/// Iterator over the hosts of a list in order, from both ends; see [`crate::Hostlist::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    runs: Runs<'a>,
    /// The positions not yet given.
    left: Range<usize>,
    /// Index of the entry that holds the next position.
    front: usize,
    /// That entry and its stem.
    run: Option<(&'a Entry, &'a Stem)>,
}

impl<'a> Iter<'a> {
    pub(crate) fn new(runs: Runs<'a>, left: Range<usize>) -> Self {
        let entries = runs.entries;
        let front = entries.partition_point(|entry| entry.end() <= left.start);
        Self {
            run: runs.get(front),
            runs,
            left,
            front,
        }
    }

    /// Appends the next host to a text. Returns false at the end.
    #[inline]
    pub fn write_next(&mut self, text: &mut String) -> bool {
        let Some((entry, stem, index)) = self.step() else {
            return false;
        };
        entry.write(stem, text, index);
        true
    }

    /// Replaces a text by the next host, faster if it holds the previous one. Returns false at the end.
    ///
    /// This is the fastest way to visit every name.
    #[inline]
    pub fn read_next(&mut self, text: &mut String) -> bool {
        text.clear();
        self.write_next(text)
    }

    #[inline]
    fn step(&mut self) -> Option<(&'a Entry, &'a Stem, usize)> {
        let position = self.left.next()?;
        let (entry, stem) = self.run?;
        if entry.end() == position + 1 {
            self.front += 1;
            self.run = self.runs.get(self.front);
        }
        Some((entry, stem, position - entry.start()))
    }
}

impl Iterator for Iter<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let (entry, stem, index) = self.step()?;
        Some(entry.name(stem, index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<String> {
        let position = self.left.next_back()?;
        let entries = self.runs.entries;
        let index = entries.partition_point(|entry| entry.end() <= position);
        let entry = entries.get(index)?;
        Some(entry.name(self.runs.stem(entry), position - entry.start()))
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}
