//! Operations that compare the hosts of lists, range by range.
use std::hash::{Hash, Hasher};
use std::ops::{BitAnd, BitOr, BitXor, Range, Sub};

use crate::error::Limit;
use crate::hash::Map;
use crate::hosts::Hosts;
use crate::intervals::{Counts, Interval};
use crate::piece::{Key, Keys, Pieces, Span, each_span};
use crate::stems::Renumber;
use crate::{Error, Hostlist};

/// The greatest number of runs for which a result reserves memory before it is known how many it has.
const MAX_RESERVED_RUNS: usize = 1 << 17;

fn cover<'a>(list: &'a Hostlist, keys: &mut Keys<'a>, mut hosts: Hosts) -> Hosts {
    each_span(list.as_runs(), keys, |key, span| {
        hosts.insert(key, span.numbers, |_| ());
    });
    hosts
}

/// An empty set that is fit for the hosts of both lists.
fn hosts_of(left: &Hostlist, right: &Hostlist) -> Hosts {
    Hosts::sized_for(&[&left.entries, &right.entries])
}

/// Positions to keep: ranges, those that touch joined, each with the index of the entry that it begins in.
#[derive(Debug, Default)]
struct Positions(Vec<(Range<usize>, usize)>);

impl Positions {
    fn push(&mut self, range: Range<usize>, entry: usize) {
        match self.0.last_mut() {
            Some((last, _)) if last.end == range.start => last.end = range.end,
            _ => self.0.push((range, entry)),
        }
    }

    /// The hosts of a piece with some of its numbers.
    fn push_part(&mut self, span: Span, numbers: Interval) {
        self.push(span.positions(numbers), span.entry);
    }

    fn hosts(&self) -> usize {
        self.0.iter().map(|(range, _)| range.len()).sum()
    }

    fn of(&self, list: &Hostlist) -> Hostlist {
        let mut part = Hostlist::new();
        part.reserve(self.0.len());
        let mut renumber = part.renumber(list, list.entries.len().min(self.hosts()));
        for (range, entry) in &self.0 {
            list.copy_from(*entry, range.clone(), &mut part, &mut renumber);
        }
        part.trim_stems();
        part
    }
}

/// Copies hosts of a list to another, those at positions that touch in one part.
#[derive(Debug)]
struct Copier<'a> {
    from: &'a Hostlist,
    to: &'a mut Hostlist,
    renumber: Renumber,
    /// Positions that are to be copied next, and the index of the entry that they begin in.
    part: Range<usize>,
    entry: usize,
    /// Whether the other list would have become too long.
    is_full: bool,
}

impl<'a> Copier<'a> {
    fn new(from: &'a Hostlist, to: &'a mut Hostlist) -> Self {
        to.reserve(from.entries.len().min(MAX_RESERVED_RUNS));
        Self {
            renumber: to.renumber(from, from.entries.len()),
            from,
            to,
            part: 0..0,
            entry: 0,
            is_full: false,
        }
    }

    /// The hosts of a piece with some of its numbers.
    #[inline]
    fn push_part(&mut self, span: Span, numbers: Interval) {
        let part = span.positions(numbers);
        if !self.part.is_empty() {
            if part.start == self.part.end {
                self.part.end = part.end;
                return;
            }
            self.copy();
        }
        match self.from.entries.get(span.entry) {
            // Nothing is won by a copy of several runs at once.
            Some(entry) if part.len() == entry.len() && self.has_room_for(&part) => {
                self.to.append_of(self.from, *entry, &mut self.renumber);
            }
            _ => (self.part, self.entry) = (part, span.entry),
        }
    }

    #[inline]
    fn has_room_for(&self, part: &Range<usize>) -> bool {
        part.len() <= Hostlist::MAX_LEN - self.to.len()
    }

    #[inline(never)]
    fn copy(&mut self) {
        let part = std::mem::take(&mut self.part);
        if self.has_room_for(&part) {
            let renumber = &mut self.renumber;
            self.from.copy_from(self.entry, part, self.to, renumber);
        } else {
            self.is_full = true;
        }
    }

    /// Copies what is left. Returns an error if the list would have become too long.
    fn finish(mut self) -> Result<(), Error> {
        if !self.part.is_empty() {
            self.copy();
        }
        if self.is_full {
            return Err(Error::limit(Limit::Hosts));
        }
        Ok(())
    }
}

/// Hands the first occurrences of hosts that are not in `seen`, to which they are added, to `new`.
fn unseen<'a>(
    list: &'a Hostlist,
    keys: &mut Keys<'a>,
    seen: &mut Hosts,
    mut new: impl FnMut(Span, Interval),
) {
    each_span(list.as_runs(), keys, |key, span| {
        seen.insert(key, span.numbers, |part| new(span, part));
    });
}

/// Appends those hosts of a list that are not in `seen`, to which they are added.
fn append_unseen<'a>(
    list: &'a Hostlist,
    keys: &mut Keys<'a>,
    seen: &mut Hosts,
    to: &mut Hostlist,
) -> Result<(), Error> {
    let mut copier = Copier::new(list, to);
    unseen(list, keys, seen, |span, part| copier.push_part(span, part));
    copier.finish()
}

impl Hostlist {
    /// Removes repeats: keeps the first occurrence of each host, in order.
    pub fn uniq(&mut self) {
        let mut positions = Positions::default();
        unseen(
            self,
            &mut Keys::default(),
            &mut Hosts::sized_for(&[&self.entries]),
            |span, part| positions.push_part(span, part),
        );
        if positions.hosts() < self.len() {
            *self = positions.of(self);
        }
    }

    /// The hosts of either list, each once: those of this list, then those only in the other, in their order.
    ///
    /// # Errors
    ///
    /// The result would be too long.
    pub fn union(&self, other: &Self) -> Result<Self, Error> {
        let (mut keys, mut seen) = (Keys::default(), hosts_of(self, other));
        let mut list = Self::new();
        list.reserve((self.entries.len() + other.entries.len()).min(MAX_RESERVED_RUNS));
        append_unseen(self, &mut keys, &mut seen, &mut list)?;
        append_unseen(other, &mut keys, &mut seen, &mut list)?;
        list.trim();
        Ok(list)
    }

    /// The hosts of this list that are also in the other, each once, in this list's order.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut keys = Keys::default();
        let mut there = cover(other, &mut keys, hosts_of(self, other));
        let mut seen = Hosts::sized_for(&[&self.entries]);
        let mut list = Self::new();
        let mut copier = Copier::new(self, &mut list);
        each_span(self.as_runs(), &mut keys, |key, span| {
            there.parts(key, span.numbers, |part| {
                seen.insert(key, part, |part| copier.push_part(span, part));
            });
        });
        let finished = copier.finish();
        debug_assert!(finished.is_ok(), "a part of a list is no longer");
        list.trim();
        list
    }

    /// The hosts of this list that are not in the other, each once, in this list's order.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut keys = Keys::default();
        let mut seen = cover(other, &mut keys, hosts_of(self, other));
        let mut list = Self::new();
        let appended = append_unseen(self, &mut keys, &mut seen, &mut list);
        debug_assert!(appended.is_ok(), "a part of a list is no longer");
        list.trim();
        list
    }

    /// The hosts of exactly one of the lists, each once: those of this list, then those of the other.
    ///
    /// # Errors
    ///
    /// The result would be too long.
    pub fn symmetric_difference(&self, other: &Self) -> Result<Self, Error> {
        let mut keys = Keys::default();
        let mut list = Self::new();
        let mut in_other = cover(other, &mut keys, hosts_of(self, other));
        append_unseen(self, &mut keys, &mut in_other, &mut list)?;
        let mut in_self = cover(self, &mut keys, hosts_of(self, other));
        append_unseen(other, &mut keys, &mut in_self, &mut list)?;
        list.trim();
        Ok(list)
    }

    /// Whether some host is in both lists.
    pub fn has_intersection(&self, other: &Self) -> bool {
        let (few, many) = if self.entries.len() < other.entries.len() {
            (self, other)
        } else {
            (other, self)
        };
        let mut keys = Keys::default();
        let mut there = cover(few, &mut keys, hosts_of(few, many));
        Pieces::new(many.as_runs()).any(|piece| {
            let mut met = false;
            there.parts(keys.key(&piece), piece.numbers(), |_| met = true);
            met
        })
    }

    /// Whether every host of this list is in the other, however often in either.
    pub fn is_subset(&self, other: &Self) -> bool {
        let mut keys = Keys::default();
        let mut there = cover(other, &mut keys, hosts_of(self, other));
        Pieces::new(self.as_runs()).all(|piece| {
            let mut all = true;
            there.insert(keys.key(&piece), piece.numbers(), |_| all = false);
            all
        })
    }

    /// The positions of all hosts that are also in the other list, as ranges, ascending.
    ///
    /// In a list of hosts by rank these are the ranks of some hosts.
    pub fn ranks(&self, hosts: &Self) -> Vec<Range<usize>> {
        let mut keys = Keys::default();
        let mut there = cover(hosts, &mut keys, hosts_of(self, hosts));
        let mut positions = Positions::default();
        each_span(self.as_runs(), &mut keys, |key, span| {
            there.parts(key, span.numbers, |part| positions.push_part(span, part));
        });
        positions.0.into_iter().map(|(range, _)| range).collect()
    }

    /// Removes as many occurrences of each host as the other list has, from the first. Returns the number of removed
    /// hosts.
    pub fn delete(&mut self, other: &Self) -> usize {
        let kept = self.without(other);
        let gone = self.len() - kept.hosts();
        if gone > 0 {
            *self = kept.of(self);
        }
        gone
    }

    fn without(&self, other: &Self) -> Positions {
        let mut keys = Keys::default();
        let mut intervals: Map<Key, Vec<Interval>> = Map::default();
        for piece in Pieces::new(other.as_runs()) {
            let known = intervals.entry(keys.key(&piece)).or_default();
            known.push(piece.numbers());
        }
        let mut counts: Map<Key, Counts> = intervals
            .into_iter()
            .map(|(key, intervals)| (key, Counts::new(&intervals)))
            .collect();
        let mut kept = Positions::default();
        let (mut from, mut entry) = (0, 0);
        for piece in Pieces::new(self.as_runs()) {
            if counts.is_empty() {
                break;
            }
            let key = keys.key(&piece);
            let Some(left) = counts.get_mut(&key) else {
                continue;
            };
            let span = piece.span();
            left.take(span.numbers, |numbers| {
                let gone = span.positions(numbers);
                if from < gone.start {
                    kept.push(from..gone.start, entry);
                }
                (from, entry) = (gone.end, span.entry);
            });
            if left.is_empty() {
                counts.remove(&key);
            }
        }
        if from < self.len() {
            kept.push(from..self.len(), entry);
        }
        kept
    }
}

impl PartialEq for Hostlist {
    fn eq(&self, other: &Self) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let (mut left, mut right) = (Pieces::new(self.as_runs()), Pieces::new(other.as_runs()));
        let (mut a, mut b) = (left.next(), right.next());
        while let (Some(x), Some(y)) = (&mut a, &mut b) {
            if x.len != y.len || x.lo != y.lo || x.stem != y.stem {
                return false;
            }
            // The pieces may have different lengths: the rest of the longer one is compared with the next piece.
            let hi = x.hi.min(y.hi);
            if x.hi > hi {
                x.lo = hi + 1;
            } else {
                a = left.next();
            }
            if y.hi > hi {
                y.lo = hi + 1;
            } else {
                b = right.next();
            }
        }
        a.is_none() && b.is_none()
    }
}

impl Eq for Hostlist {}

impl Hash for Hostlist {
    /// Equal lists may be stored in different ranges, so the hash uses only cheap facts that do not depend on these.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.first().hash(state);
        self.get(self.len() / 2).hash(state);
        self.last().hash(state);
    }
}

impl BitAnd for &Hostlist {
    type Output = Hostlist;

    /// [`Hostlist::intersection`].
    fn bitand(self, other: Self) -> Hostlist {
        self.intersection(other)
    }
}

impl Sub for &Hostlist {
    type Output = Hostlist;

    /// [`Hostlist::difference`].
    fn sub(self, other: Self) -> Hostlist {
        self.difference(other)
    }
}

impl BitOr for &Hostlist {
    type Output = Result<Hostlist, Error>;

    /// [`Hostlist::union`].
    fn bitor(self, other: Self) -> Self::Output {
        self.union(other)
    }
}

impl BitXor for &Hostlist {
    type Output = Result<Hostlist, Error>;

    /// [`Hostlist::symmetric_difference`].
    fn bitxor(self, other: Self) -> Self::Output {
        self.symmetric_difference(other)
    }
}
