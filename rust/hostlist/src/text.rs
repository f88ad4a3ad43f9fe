//! The writer of the text form of RFC 29.
use std::fmt;
use std::ops::Range;

use crate::Hostlist;
use crate::entry::{Entry, Runs};
use crate::stem::{digits, push_number};

/// The form of entries in one pair of brackets, determined by the leading zeroes of the first.
#[derive(Clone, Copy)]
struct Width(Option<u8>);

impl Width {
    fn of(entry: &Entry) -> Self {
        Self((entry.width > 1).then_some(entry.width))
    }

    /// Whether an entry reads the same after that first one.
    fn suits(self, entry: &Entry) -> bool {
        match (self.0, entry.width > 1) {
            (Some(width), true) => entry.width == width,
            (Some(width), false) => digits(entry.lo) >= width,
            (None, zeroes) => !zeroes,
        }
    }
}

impl Hostlist {
    /// The number of entries, from the first, that can share its brackets.
    fn group(Runs { entries, stems }: Runs<'_>) -> usize {
        let Some((first, rest)) = entries.split_first() else {
            return 0;
        };
        if !stems[first.stem as usize].is_numbered() {
            return 1;
        }
        let width = Width::of(first);
        let more = rest
            .iter()
            .take_while(|entry| first.same_stem(entry, stems) && width.suits(entry));
        1 + more.count()
    }

    fn write(&self, text: &mut String) {
        let mut runs = self.as_runs();
        while let Some(first) = runs.entries.first() {
            let (group, rest) = runs.entries.split_at(Self::group(runs));
            runs.entries = rest;
            let stem = runs.stem(first);
            if !text.is_empty() {
                text.push(',');
            }
            if group.len() == 1 && first.is_single() {
                first.write(stem, text, 0);
                continue;
            }
            text.push_str(stem.prefix());
            for (index, entry) in group.iter().enumerate() {
                text.push(if index == 0 { '[' } else { ',' });
                push_number(text, entry.lo, entry.width);
                if !entry.is_single() {
                    text.push('-');
                    push_number(text, entry.hi(), entry.width);
                }
            }
            text.push(']');
            text.push_str(stem.suffix());
        }
    }
}

impl Hostlist {
    /// Appends the text of the hosts at these positions, selected as by [`slices`](Self::slices). It builds no
    /// intermediate list if all are in one run, such as `node[0-9999]`.
    ///
    /// ```
    /// use penstock_hostlist::Hostlist;
    ///
    /// let hosts: Hostlist = "node[08-12]".parse()?;
    /// let mut text = String::from("on ");
    /// hosts.write_slices([0..2, 3..4], &mut text);
    /// assert_eq!(text, "on node[08-09,11]");
    /// # Ok::<(), penstock_hostlist::Error>(())
    /// ```
    pub fn write_slices<I>(&self, ranges: I, text: &mut String)
    where
        I: IntoIterator<Item = Range<usize>, IntoIter: Clone>,
    {
        let ranges = ranges.into_iter();
        let end = text.len();
        if !self.write_of_one(ranges.clone(), text) {
            text.truncate(end);
            let mut hosts = String::new();
            self.slices(ranges).write(&mut hosts);
            text.push_str(&hosts);
        }
    }

    /// The same where the positions are several runs of one entry. Returns false if they are not, with some of the text
    /// written.
    fn write_of_one(&self, ranges: impl Iterator<Item = Range<usize>>, text: &mut String) -> bool {
        let mut ranges = ranges.peekable();
        let Some(Range { start, end }) = ranges.peek().cloned() else {
            return false;
        };
        let at = self.entries.partition_point(|entry| entry.end() <= start);
        let Some(entry) = self.entries.get(at) else {
            return false;
        };
        let stem = self.stems.get(entry.stem);
        if !stem.is_numbered() {
            return false;
        }
        let number = |position: usize| entry.lo + (position - entry.start()) as u64;
        let single = start + 1 == end;
        let mut next = start;
        let mut count = 0;
        text.push_str(stem.prefix());
        for Range { start, end } in ranges {
            // Adjacent ranges would have to be written as one, which this loop does not do.
            if start < next || start >= end || end > entry.end() {
                return false;
            }
            text.push(if count == 0 { '[' } else { ',' });
            // Later numbers are not shorter: all can share these brackets.
            push_number(text, number(start), entry.width);
            if start + 1 < end {
                text.push('-');
                push_number(text, number(end - 1), entry.width);
            }
            next = end + 1;
            count += 1;
        }
        text.push(']');
        text.push_str(stem.suffix());
        count > 1 || !single
    }
}

impl fmt::Display for Hostlist {
    /// Writes the text of RFC 29: keeps order and repeats, and folds consecutive hosts if that reads the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.pad(&text)
    }
}
