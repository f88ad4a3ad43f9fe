//! The list: its contents, and the operations on single hosts and positions.
use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::entry::{Entry, Runs, number_in};
use crate::error::{Limit, MAX_LEN, MAX_SUFFIXED_HOSTS};
use crate::index::Finder;
use crate::iter::Iter;
use crate::name::check_name;
use crate::stem::{Parts, Stem};
use crate::stems::{Interner, Renumber, Stems};

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
    /// The stems that the entries refer to.
    pub(crate) stems: Stems,
    /// Hosts in ranges whose suffix has digits.
    suffixed: usize,
    finder: Finder,
}

/// The number of runs for which a result may have memory beyond a fourth of its own.
const MAX_SPARE_RUNS: usize = 4;

/// The hosts of a range that are compared one by one.
fn suffixed(entry: &Entry, stems: &Stems) -> usize {
    let one_by_one = !entry.is_single() && stems.get(entry.stem).has_digits_behind();
    if one_by_one { entry.len() } else { 0 }
}

/// The number of entries that end no later than a position. It is optimized for few entries.
pub(crate) fn reach(entries: &[Entry], end: usize) -> usize {
    let mut near = 4;
    while entries.get(near).is_some_and(|entry| entry.end() <= end) {
        near *= 2;
    }
    let near = near.min(entries.len());
    entries[..near].partition_point(|entry| entry.end() <= end)
}

impl Hostlist {
    /// The greatest number of hosts in a list, 4294967295.
    pub const MAX_LEN: usize = MAX_LEN;

    /// The empty list.
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
            stems: Stems::None,
            suffixed: 0,
            finder: Finder::new(),
        }
    }

    /// The number of hosts, repeats included.
    pub fn len(&self) -> usize {
        self.entries.last().map_or(0, Entry::end)
    }

    /// The number of ranges in which the hosts are stored, to which memory is proportional.
    pub fn range_count(&self) -> usize {
        self.entries.len()
    }

    /// The runs and their stems.
    #[inline]
    pub(crate) fn as_runs(&self) -> Runs<'_> {
        Runs {
            entries: &self.entries,
            stems: self.stems.as_slice(),
        }
    }

    /// Whether the list has no host.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Index of the entry that holds the host at a position below the length.
    fn entry_at(&self, index: usize) -> usize {
        self.entries.partition_point(|entry| entry.end() <= index)
    }

    /// The host at a position, counted from 0.
    pub fn get(&self, index: usize) -> Option<String> {
        let entry = self.entries.get(self.entry_at(index))?;
        Some(entry.name(self.stems.get(entry.stem), index - entry.start()))
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
        Iter::new(self.as_runs(), range.start..range.end.min(self.len()))
    }

    /// The position of the first occurrence of a host.
    ///
    /// In a list of many ranges the second call builds an index, which lasts until the list is changed.
    pub fn find(&self, name: &str) -> Option<usize> {
        match self.finder.index(self.as_runs()) {
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
        // Neighbours mostly share their stem: the name is compared once with each.
        let (mut stem, mut number) = (None, None);
        let runs = self.as_runs();
        let entries = runs.entries.get(entry..).unwrap_or_default();
        entries.iter().filter_map(move |entry| {
            if stem != Some(entry.stem) {
                (stem, number) = (Some(entry.stem), number_in(runs.stem(entry), name));
            }
            Some(entry.start() + entry.index_of(number?)?)
        })
    }

    /// Appends a run of hosts; its position is set here.
    pub(crate) fn append_entry(&mut self, entry: Entry) -> Result<(), Limit> {
        if entry.len() > Self::MAX_LEN - self.len() {
            return Err(Limit::Hosts);
        }
        let one_by_one = suffixed(&entry, &self.stems);
        if one_by_one > 0 && one_by_one > MAX_SUFFIXED_HOSTS.saturating_sub(self.suffixed) {
            return Err(Limit::Suffixed);
        }
        self.append_part(entry);
        Ok(())
    }

    /// Appends a run of hosts that is known to be within the limits.
    #[inline]
    pub(crate) fn append_part(&mut self, entry: Entry) {
        self.finder.forget();
        if !self.join_part(&entry) {
            self.push_part(entry);
        }
    }

    /// Appends a run of hosts that does not continue the last one.
    #[inline]
    fn push_part(&mut self, entry: Entry) {
        self.suffixed += suffixed(&entry, &self.stems);
        self.entries.push(entry.up_to(self.len() + entry.len()));
    }

    /// Joins a run to the last one if it continues it. Otherwise returns false and changes nothing.
    #[inline]
    fn join_part(&mut self, entry: &Entry) -> bool {
        let Some(last) = self.entries.last() else {
            return false;
        };
        if last.stem == entry.stem && !last.is_before(entry) {
            return false;
        }
        self.join_likely_part(entry)
    }

    /// The same for a run that may continue the last one.
    #[inline(never)]
    fn join_likely_part(&mut self, entry: &Entry) -> bool {
        let Some(last) = self.entries.last_mut() else {
            return false;
        };
        // No operation returns a list whose text would be rejected.
        if self.suffixed + 1 >= MAX_SUFFIXED_HOSTS
            && (self.stems.get(entry.stem).has_digits_behind()
                || !last.same_stem(entry, self.stems.as_slice()))
        {
            return false;
        }
        let before = *last;
        let joined = last.join(entry, &mut self.stems);
        if joined {
            let after = suffixed(last, &self.stems);
            self.suffixed = self.suffixed - suffixed(&before, &self.stems) + after;
        }
        joined
    }

    /// Begins to append at most `runs` runs of another list.
    pub(crate) fn renumber(&mut self, from: &Self, runs: usize) -> Renumber {
        Renumber::new(&from.stems, &mut self.stems, runs)
    }

    /// Appends hosts of a run of a list of such parts.
    #[inline]
    pub(crate) fn append_of(&mut self, from: &Self, entry: Entry, renumber: &mut Renumber) {
        let stem = renumber.number(entry.stem, &from.stems, &mut self.stems);
        self.append_part(entry.with_stem(stem));
    }

    /// Removes stems that no run has, if they are many. Numbers of stems that are known from before are invalid then: an
    /// [`Interner`] or a [`Renumber`] must not be used further.
    pub(crate) fn trim_stems(&mut self) {
        if self.entries.is_empty() {
            self.stems = Stems::None;
        } else if self.stems.are_too_many_for(self.entries.len()) {
            let old = std::mem::take(&mut self.stems);
            let mut last = None;
            for entry in &mut self.entries {
                let number = match last {
                    Some((number, there)) if number == entry.stem => there,
                    _ => self.stems.adopt(&old.as_slice()[entry.stem as usize]),
                };
                last = Some((entry.stem, number));
                entry.stem = number;
            }
        }
    }

    /// Returns memory that this list does not need, if it is much.
    pub(crate) fn trim(&mut self) {
        self.trim_stems();
        let len = self.entries.len();
        if self.entries.capacity() - len > len / 4 + MAX_SPARE_RUNS {
            self.entries.shrink_to_fit();
        }
    }

    /// Appends the last host once more.
    pub(crate) fn repeat_last(&mut self) {
        self.finder.forget();
        let Some(last) = self.entries.last() else {
            return;
        };
        let len = last.len();
        self.push_part(last.slice(len - 1..len));
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
        self.trim_stems();
        let entry = self.entry_for(name, None);
        self.append_entry(entry).map_err(Error::limit)
    }

    /// The run of one host, and the length of its name, if the text continues with a name that has the last stem.
    #[inline]
    pub(crate) fn entry_alike(&self, text: &[u8]) -> Option<(Entry, usize)> {
        let stem = self.entries.last()?.stem;
        let (number, len) = self.stems.get(stem).match_plain(text)?;
        Some((Entry::new(stem, Some(number)), len))
    }

    /// The run of one host to be appended; its stem is that of the last run if equal.
    pub(crate) fn entry_for(&mut self, name: &str, interner: Option<&mut Interner>) -> Entry {
        let parts = Parts::split(name);
        let last = self.entries.last().map(|last| last.stem);
        let stem = match (last, interner) {
            (Some(last), _) if self.stems.get(last).is_of(&parts) => last,
            (_, Some(interner)) => interner.intern(&parts, &mut self.stems),
            (_, None) => self.stems.push(Arc::new(Stem::new(&parts))),
        };
        Entry::new(stem, parts.number)
    }

    /// Appends the hosts of another list.
    ///
    /// # Errors
    ///
    /// The list would become too long; it is unchanged.
    pub fn append(&mut self, other: &Self) -> Result<(), Error> {
        self.append_list(other)?;
        self.trim_stems();
        Ok(())
    }

    /// Appends the hosts of another list; the stems keep their numbers.
    pub(crate) fn append_list(&mut self, other: &Self) -> Result<(), Error> {
        self.check_splice(self.len(), other)?;
        self.append_runs(other, &other.entries);
        Ok(())
    }

    /// Appends runs of another list.
    fn append_runs(&mut self, from: &Self, entries: &[Entry]) {
        self.entries.reserve(entries.len());
        let mut renumber = self.renumber(from, entries.len());
        for entry in entries {
            self.append_of(from, *entry, &mut renumber);
        }
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
        self.check_splice(rest, with)?;
        self.replace(range, with);
        Ok(())
    }

    /// Checks that hosts of another list can be added to `rest` of these.
    fn check_splice(&self, rest: usize, with: &Self) -> Result<(), Error> {
        if with.len() > Self::MAX_LEN - rest {
            return Err(Error::limit(Limit::Hosts));
        }
        if with.suffixed > 0 && with.suffixed > MAX_SUFFIXED_HOSTS.saturating_sub(self.suffixed) {
            return Err(Error::limit(Limit::Suffixed));
        }
        Ok(())
    }

    /// Replaces the hosts at these positions; the result is known to be within the limits.
    fn replace(&mut self, range: Range<usize>, with: &Self) {
        self.finder.forget();
        let start = range.start.min(self.len());
        let first = self.cut(start);
        let last = self.cut(range.end.clamp(start, self.len()));
        let tail = self.entries.split_off(last);
        let gone = self.entries[first..].iter().chain(&tail);
        let suffixed = gone.map(|entry| suffixed(entry, &self.stems));
        self.suffixed -= suffixed.sum::<usize>();
        self.entries.truncate(first);
        self.append_runs(with, &with.entries);
        for entry in tail {
            self.append_part(entry);
        }
        self.trim_stems();
    }

    /// Splits the run that contains a position, unless it begins there; returns the index of the run that begins there.
    fn cut(&mut self, position: usize) -> usize {
        let index = self.entry_at(position);
        let Some(entry) = self.entries.get(index) else {
            return index;
        };
        let (start, end) = (entry.start(), entry.end());
        if start == position {
            return index;
        }
        let head = entry.slice(0..position - start).up_to(position);
        let tail = entry.slice(position - start..end - start).up_to(end);
        let suffixed = |entry| suffixed(entry, &self.stems);
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
        let mut renumber = to.renumber(self, range.len().min(self.entries.len()));
        self.copy_from(self.entry_at(range.start), range, to, &mut renumber);
        to.trim_stems();
    }

    /// Appends the hosts at these positions, the first of which is in that entry or starts the next one.
    pub(crate) fn copy_from(
        &self,
        entry: usize,
        range: Range<usize>,
        to: &mut Self,
        renumber: &mut Renumber,
    ) {
        let end = range.end.min(self.len());
        let mut position = range.start;
        if position >= end {
            return;
        }
        let mut first = entry + usize::from(self.entries[entry].end() == position);
        let entry = &self.entries[first];
        if position > entry.start() || end < entry.end() {
            let stop = entry.end().min(end);
            let part = entry.slice(position - entry.start()..stop - entry.start());
            to.append_of(self, part, renumber);
            position = stop;
            // A part may join a host that the whole run did not: one host of `a[1-2]b1` the host `a2b2`.
            if let Some(next) = self.entries.get(first + 1).filter(|next| next.end() <= end) {
                first += 1;
                to.append_of(self, *next, renumber);
                position = next.end();
            }
        } else {
            to.append_of(self, *entry, renumber);
            position = entry.end();
        }
        if position >= end {
            return;
        }
        // Adjacent runs of the list are known not to join.
        let last = first + 1 + reach(&self.entries[first + 1..], end);
        self.copy_whole(first + 1..last, to, renumber);
        if let Some(entry) = self.entries.get(last)
            && entry.start() < end
        {
            to.append_of(self, entry.slice(0..end - entry.start()), renumber);
        }
    }

    /// Appends runs with these indices, of which none continues the one before it.
    fn copy_whole(&self, runs: Range<usize>, to: &mut Self, renumber: &mut Renumber) {
        let runs = &self.entries[runs];
        let Some(first) = runs.first() else {
            return;
        };
        if self.suffixed > 0 {
            let suffixed = runs.iter().map(|entry| suffixed(entry, &self.stems));
            to.suffixed += suffixed.sum::<usize>();
        }
        let (start, len) = (first.start(), to.len());
        let stems = &mut to.stems;
        to.entries.extend(runs.iter().map(|entry| {
            let stem = renumber.number(entry.stem, &self.stems, stems);
            let end = entry.end() - start + len;
            entry.with_stem(stem).up_to(end)
        }));
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
        let counted = self
            .entries
            .iter()
            .map(|entry| suffixed(entry, &self.stems));
        let counted: usize = counted.sum();
        assert_eq!(self.suffixed, counted);
    }

    /// The number of stems that it has in memory.
    pub(crate) fn stem_count(&self) -> usize {
        self.stems.as_slice().len()
    }
}
