//! The list: its contents, and the operations on single hosts and positions.
use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::entry::Entry;
use crate::error::{Limit, MAX_LEN, MAX_SUFFIXED_HOSTS};
use crate::index::Finder;
use crate::iter::Iter;
use crate::name::check_name;
use crate::stem::{Number, Parts, Stem, Stems};

/// An ordered list of host names, repeats kept.
///
/// Consecutive hosts that count up by one are stored as one range, so memory and the time of `len`, `get`, `find`,
/// slices and set operations are proportional to the number of ranges, not of hosts.
///
/// A list holds at most [`Self::MAX_LEN`] hosts. At most 1,048,576 of them may come from ranges in brackets followed by
/// a suffix with digits (`foo[0-9]-ib0`), because those are compared one by one. Operations that would exceed a limit
/// fail.
///
/// For the same reason the names with several pairs of brackets in one text expand to at most 1,048,576 ranges.
///
/// Names may be invalid and lists too long, so instead of [`FromIterator`] and [`Extend`] there are the fallible
/// [`Self::try_from_hosts`] and [`Self::try_extend`]. The operators `&` and `-` return a list, `|` and `^` a result.
///
/// Two lists are equal if they hold the same names in the same order, however they were written.
#[derive(Clone, Debug, Default)]
pub struct Hostlist {
    pub(crate) entries: Vec<Entry>,
    /// Hosts in ranges whose suffix has digits.
    suffixed: usize,
    finder: Finder,
}

/// The hosts of a range that are compared one by one.
fn suffixed(entry: &Entry) -> usize {
    let one_by_one = entry.hi > entry.lo && entry.stem.has_digits_behind();
    if one_by_one { entry.len() } else { 0 }
}

/// The number of entries that end no later than a position. It is optimized for few entries.
pub(crate) fn reach(entries: &[Entry], end: usize) -> usize {
    let mut near = 4;
    while entries.get(near).is_some_and(|entry| entry.end <= end) {
        near *= 2;
    }
    let near = near.min(entries.len());
    entries[..near].partition_point(|entry| entry.end <= end)
}

impl Hostlist {
    /// The greatest number of hosts in a list, 4294967295.
    pub const MAX_LEN: usize = MAX_LEN;

    /// The empty list.
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
            suffixed: 0,
            finder: Finder::new(),
        }
    }

    /// The number of hosts, repeats included.
    pub fn len(&self) -> usize {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    /// The number of ranges in which the hosts are stored, to which memory is proportional.
    pub fn range_count(&self) -> usize {
        self.entries.len()
    }

    /// Whether the list has no host.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Index of the entry that holds the host at a position below the length.
    fn entry_at(&self, index: usize) -> usize {
        self.entries.partition_point(|entry| entry.end <= index)
    }

    /// The host at a position, counted from 0.
    pub fn get(&self, index: usize) -> Option<String> {
        let entry = self.entries.get(self.entry_at(index))?;
        Some(entry.name(index - entry.start()))
    }

    /// The first host.
    pub fn first(&self) -> Option<String> {
        self.get(0)
    }

    /// The last host.
    pub fn last(&self) -> Option<String> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The hosts in order.
    pub fn iter(&self) -> Iter<'_> {
        self.iter_range(0..self.len())
    }

    /// The hosts at positions `range`, in order; positions past the end are ignored.
    pub fn iter_range(&self, range: Range<usize>) -> Iter<'_> {
        Iter::new(&self.entries, range.start..range.end.min(self.len()))
    }

    /// The position of the first occurrence of a host.
    ///
    /// In a list of many ranges the second call builds an index, which lasts until the list is changed.
    pub fn find(&self, name: &str) -> Option<usize> {
        match self.finder.index(&self.entries) {
            Some(index) => index.find(name),
            None => self.positions(name).next(),
        }
    }

    /// The position of the first occurrence of a host at or after `start`.
    pub fn find_from(&self, name: &str, start: usize) -> Option<usize> {
        let first = self.find(name)?;
        if first >= start {
            return Some(first);
        }
        self.positions_from(name, self.entry_at(start))
            .find(|&position| position >= start)
    }

    /// Whether the host is in the list.
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The number of occurrences of the host.
    pub fn count(&self, name: &str) -> usize {
        self.positions(name).count()
    }

    /// The positions of a host, ascending.
    pub fn positions(&self, name: &str) -> impl Iterator<Item = usize> {
        self.positions_from(name, 0)
    }

    fn positions_from(&self, name: &str, entry: usize) -> impl Iterator<Item = usize> {
        // Neighbours mostly share their stem: compare the name once with each stem.
        let mut known: Option<(&Arc<Stem>, Option<Number>)> = None;
        let entries = self.entries.get(entry..).unwrap_or_default();
        entries.iter().filter_map(move |entry| {
            if !entry.stem.is_numbered() {
                return (entry.stem.prefix() == name).then(|| entry.start());
            }
            let number = match known {
                Some((stem, number)) if Arc::ptr_eq(stem, &entry.stem) => number,
                _ => entry.number_in(name),
            };
            known = Some((&entry.stem, number));
            Some(entry.start() + entry.index_of(number?)?)
        })
    }

    /// Appends a run of hosts; its `end` is set here.
    pub(crate) fn append_entry(&mut self, entry: Entry) -> Result<(), Limit> {
        if entry.len() > Self::MAX_LEN - self.len() {
            return Err(Limit::Hosts);
        }
        let one_by_one = suffixed(&entry);
        if one_by_one > 0 && one_by_one > MAX_SUFFIXED_HOSTS.saturating_sub(self.suffixed) {
            return Err(Limit::Suffixed);
        }
        self.append_part(entry);
        Ok(())
    }

    /// Appends a run of hosts that is known to be within the limits.
    pub(crate) fn append_part(&mut self, entry: Entry) {
        if !self.join_part(&entry) {
            self.push_part(entry);
        }
    }

    /// Appends a run of hosts that does not continue the last one.
    #[inline]
    fn push_part(&mut self, mut entry: Entry) {
        entry.end = self.len() + entry.len();
        self.suffixed += suffixed(&entry);
        self.entries.push(entry);
    }

    /// Joins a run to the last one if it continues it. Otherwise returns false and changes nothing.
    fn join_part(&mut self, entry: &Entry) -> bool {
        self.finder.forget();
        let Some(last) = self.entries.last_mut() else {
            return false;
        };
        // No operation returns a list whose text would be rejected.
        let full = self.suffixed + 1 >= MAX_SUFFIXED_HOSTS;
        if full && (entry.stem.has_digits_behind() || !last.same_stem(entry)) {
            return false;
        }
        let before = suffixed(last);
        let end = last.end;
        let joined = last.join(entry);
        if joined {
            last.end = end + entry.len();
            self.suffixed = self.suffixed - before + suffixed(last);
        }
        joined
    }

    /// Appends the hosts of the run with that index in a list of such parts.
    pub(crate) fn append_from(&mut self, from: &Self, index: usize) {
        if let Some(entry) = from.entries.get(index)
            && !self.join_part(entry)
        {
            self.push_part(entry.clone());
        }
    }

    /// Appends the last host once more.
    pub(crate) fn repeat_last(&mut self) {
        self.finder.forget();
        let Some(last) = self.entries.last() else {
            return;
        };
        let len = last.len();
        let host = if len == 1 {
            last.clone()
        } else {
            last.slice(len - 1..len)
        };
        self.push_part(host);
    }

    /// The number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.entries.len()
    }

    /// Reserves capacity for this many more runs.
    pub(crate) fn reserve(&mut self, runs: usize) {
        self.entries.reserve(runs);
    }

    /// Appends one host.
    ///
    /// # Errors
    ///
    /// Fails if the name is invalid (RFC 29): it is empty, or has a blank, a control or non-ASCII character, a comma or
    /// a bracket; or if the list would be too long.
    pub fn push(&mut self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        let entry = self.entry_for(name, None);
        self.append_entry(entry).map_err(Error::limit)
    }

    /// The run of one host, and the length of its name, if the text continues with a name that has the last stem.
    pub(crate) fn entry_alike(&self, text: &[u8]) -> Option<(Entry, usize)> {
        let stem = &self.entries.last()?.stem;
        let (number, len) = stem.match_plain(text)?;
        Some((Entry::new(Arc::clone(stem), Some(number)), len))
    }

    /// The run of one host after the last run; it shares that one's stem if equal.
    pub(crate) fn entry_for(&self, name: &str, stems: Option<&mut Stems>) -> Entry {
        let parts = Parts::split(name);
        let stem = match (self.entries.last(), stems) {
            (Some(last), _) if last.stem.is_of(&parts) => Arc::clone(&last.stem),
            (_, Some(stems)) => stems.intern(&parts),
            (_, None) => Arc::new(Stem::new(&parts)),
        };
        Entry::new(stem, parts.number)
    }

    /// Appends the hosts of another list.
    ///
    /// # Errors
    ///
    /// The list would become too long; it is unchanged.
    pub fn append(&mut self, other: &Self) -> Result<(), Error> {
        self.splice(self.len()..self.len(), other)
    }

    /// Inserts one host before the position; at the end if there is no such position.
    ///
    /// # Errors
    ///
    /// The name is invalid, or the list would become too long; it is unchanged.
    pub fn insert(&mut self, index: usize, name: &str) -> Result<(), Error> {
        let mut host = Self::new();
        host.push(name)?;
        let index = index.min(self.len());
        self.splice(index..index, &host)
    }

    /// Removes and returns the host at a position.
    pub fn remove(&mut self, index: usize) -> Option<String> {
        let name = self.get(index)?;
        self.remove_range(index..index + 1);
        Some(name)
    }

    /// Removes and returns the last host.
    pub fn pop(&mut self) -> Option<String> {
        self.remove(self.len().checked_sub(1)?)
    }

    /// Removes the hosts at these positions; positions past the end are ignored.
    pub fn remove_range(&mut self, range: Range<usize>) {
        self.replace(range, &Self::new());
    }

    /// Removes the hosts from a position to the end.
    pub fn truncate(&mut self, len: usize) {
        self.remove_range(len..self.len());
    }

    /// Removes all hosts.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Replaces the hosts at these positions.
    ///
    /// # Errors
    ///
    /// The list would become too long; it is unchanged.
    pub fn splice(&mut self, range: Range<usize>, with: &Self) -> Result<(), Error> {
        let rest = self.len() - range.end.min(self.len()).saturating_sub(range.start);
        if with.len() > Self::MAX_LEN - rest {
            return Err(Error::limit(Limit::Hosts));
        }
        if with.suffixed > 0 && with.suffixed > MAX_SUFFIXED_HOSTS.saturating_sub(self.suffixed) {
            return Err(Error::limit(Limit::Suffixed));
        }
        self.replace(range, with);
        Ok(())
    }

    /// Replaces the hosts at these positions; the result is known to be within the limits.
    fn replace(&mut self, range: Range<usize>, with: &Self) {
        self.finder.forget();
        let start = range.start.min(self.len());
        let first = self.cut(start);
        let last = self.cut(range.end.clamp(start, self.len()));
        let tail = self.entries.split_off(last);
        let gone = self.entries[first..].iter().chain(&tail).map(suffixed);
        self.suffixed -= gone.sum::<usize>();
        self.entries.truncate(first);
        for entry in with.entries.iter().cloned().chain(tail) {
            self.append_part(entry);
        }
    }

    /// Splits the run that contains a position, unless it begins there; returns the index of the run that begins there.
    fn cut(&mut self, position: usize) -> usize {
        let index = self.entry_at(position);
        let Some(entry) = self.entries.get(index) else {
            return index;
        };
        let (start, end) = (entry.start(), entry.end);
        if start == position {
            return index;
        }
        let mut head = entry.slice(0..position - start);
        let mut tail = entry.slice(position - start..end - start);
        (head.end, tail.end) = (position, end);
        self.suffixed = self.suffixed - suffixed(entry) + suffixed(&head) + suffixed(&tail);
        self.entries[index] = head;
        self.entries.insert(index + 1, tail);
        index + 1
    }

    /// Returns the hosts at these positions; positions past the end are ignored.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let mut part = Self::new();
        self.copy_range(range, &mut part);
        part
    }

    /// Whether there are hosts that are compared one by one.
    pub(crate) fn has_suffixed(&self) -> bool {
        self.suffixed > 0
    }

    /// Appends the hosts at these positions to a list of such parts.
    pub(crate) fn copy_range(&self, range: Range<usize>, to: &mut Self) {
        self.copy_from(self.entry_at(range.start), range, to);
    }

    /// Appends the hosts at these positions, the first of which is in that entry or starts the next one.
    pub(crate) fn copy_from(&self, entry: usize, range: Range<usize>, to: &mut Self) {
        let end = range.end.min(self.len());
        let mut position = range.start;
        if position >= end {
            return;
        }
        let mut first = entry + usize::from(self.entries[entry].end == position);
        let entry = &self.entries[first];
        if position > entry.start() || end < entry.end {
            let stop = entry.end.min(end);
            to.append_part(entry.slice(position - entry.start()..stop - entry.start()));
            position = stop;
            // A part may join a host that the whole run did not: one host of `a[1-2]b1` the host `a2b2`.
            if let Some(next) = self.entries.get(first + 1).filter(|next| next.end <= end) {
                first += 1;
                to.append_from(self, first);
                position = next.end;
            }
        } else {
            to.append_from(self, first);
            position = entry.end;
        }
        if position >= end {
            return;
        }
        // Adjacent runs of the list are known not to join.
        let last = first + 1 + reach(&self.entries[first + 1..], end);
        let shift = to.len().wrapping_sub(position);
        let whole = &self.entries[first + 1..last];
        to.suffixed += whole.iter().map(suffixed).sum::<usize>();
        to.entries.extend(whole.iter().map(|entry| Entry {
            end: entry.end.wrapping_add(shift),
            ..entry.clone()
        }));
        if let Some(entry) = self.entries.get(last)
            && entry.start() < end
        {
            to.append_part(entry.slice(0..end - entry.start()));
        }
    }

    /// Returns the hosts at these positions, in that order; `None` if one is past the end, or if there are more than
    /// [`Self::MAX_LEN`].
    #[must_use]
    pub fn select(&self, positions: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut list = Self::new();
        for position in positions {
            if position >= self.len() || list.len() == Self::MAX_LEN {
                return None;
            }
            self.copy_range(position..position + 1, &mut list);
        }
        Some(list)
    }

    /// Splits the list into `parts` parts in its order, whose lengths differ by at most one, the longer ones first.
    /// Returns fewer parts if there are fewer hosts, so that no part is empty.
    pub fn split(&self, parts: usize) -> Vec<Self> {
        let len = self.len();
        let parts = parts.min(len);
        let mut start = 0;
        let sizes = (0..parts).map(|part| len / parts + usize::from(part < len % parts));
        let part = |size| {
            start += size;
            self.slice(start - size..start)
        };
        sizes.map(part).collect()
    }
}

impl<'a> IntoIterator for &'a Hostlist {
    type Item = String;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[cfg(test)]
impl Hostlist {
    /// The count of hosts in ranges whose suffix has digits is right.
    pub(crate) fn check(&self) {
        let counted: usize = self.entries.iter().map(suffixed).sum();
        assert_eq!(self.suffixed, counted);
    }
}
