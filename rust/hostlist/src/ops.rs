//! Operations that compare the hosts of lists, range by range.
use std::hash::{Hash, Hasher};
use std::ops::{BitAnd, BitOr, BitXor, Range, Sub};

use crate::error::Limit;
use crate::hash::Map;
use crate::hosts::Hosts;
use crate::intervals::{Counts, Interval};
use crate::piece::{Key, Keys, Pieces, Span, each_span};
use crate::{Error, Hostlist};

fn cover<'a>(list: &'a Hostlist, keys: &mut Keys<'a>, mut hosts: Hosts) -> Hosts {
    each_span(&list.entries, keys, |key, span| {
        hosts.insert(key, span.numbers, |_| ());
    });
    hosts
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

    fn copy(&self, from: &Hostlist, to: &mut Hostlist) {
        to.reserve(self.0.len());
        for (range, entry) in &self.0 {
            from.copy_from(*entry, range.clone(), to);
        }
    }

    fn of(&self, list: &Hostlist) -> Hostlist {
        let mut part = Hostlist::new();
        self.copy(list, &mut part);
        part
    }
}

/// The first occurrences of hosts that are not in `seen`, to which they are added.
fn unseen<'a>(list: &'a Hostlist, keys: &mut Keys<'a>, seen: &mut Hosts) -> Positions {
    let mut positions = Positions::default();
    each_span(&list.entries, keys, |key, span| {
        seen.insert(key, span.numbers, |part| positions.push_part(span, part));
    });
    positions
}

impl Hostlist {
    /// Removes repeats: keeps the first occurrence of each host, in order.
    pub fn uniq(&mut self) {
        let positions = unseen(
            self,
            &mut Keys::default(),
            &mut Hosts::sized_for(&[&self.entries]),
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
        let (mut keys, mut seen) = (
            Keys::default(),
            Hosts::sized_for(&[&self.entries, &other.entries]),
        );
        let left = unseen(self, &mut keys, &mut seen);
        let right = unseen(other, &mut keys, &mut seen);
        Self::concatenate((self, &left), (other, &right))
    }

    fn concatenate(left: (&Self, &Positions), right: (&Self, &Positions)) -> Result<Self, Error> {
        if left.1.hosts() > Self::MAX_LEN - right.1.hosts() {
            return Err(Error::limit(Limit::Hosts));
        }
        let mut list = left.1.of(left.0);
        right.1.copy(right.0, &mut list);
        Ok(list)
    }

    /// The hosts of this list that are also in the other, each once, in this list's order.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut keys = Keys::default();
        let mut there = cover(
            other,
            &mut keys,
            Hosts::sized_for(&[&self.entries, &other.entries]),
        );
        let mut seen = Hosts::sized_for(&[&self.entries]);
        let mut positions = Positions::default();
        each_span(&self.entries, &mut keys, |key, span| {
            there.parts(key, span.numbers, |part| {
                seen.insert(key, part, |part| positions.push_part(span, part));
            });
        });
        positions.of(self)
    }

    /// The hosts of this list that are not in the other, each once, in this list's order.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut keys = Keys::default();
        let mut seen = cover(
            other,
            &mut keys,
            Hosts::sized_for(&[&self.entries, &other.entries]),
        );
        unseen(self, &mut keys, &mut seen).of(self)
    }

    /// The hosts of exactly one of the lists, each once: those of this list, then those of the other.
    ///
    /// # Errors
    ///
    /// The result would be too long.
    pub fn symmetric_difference(&self, other: &Self) -> Result<Self, Error> {
        let mut keys = Keys::default();
        let mut in_other = cover(
            other,
            &mut keys,
            Hosts::sized_for(&[&self.entries, &other.entries]),
        );
        let left = unseen(self, &mut keys, &mut in_other);
        let mut in_self = cover(
            self,
            &mut keys,
            Hosts::sized_for(&[&self.entries, &other.entries]),
        );
        let right = unseen(other, &mut keys, &mut in_self);
        Self::concatenate((self, &left), (other, &right))
    }

    /// Whether some host is in both lists.
    pub fn has_intersection(&self, other: &Self) -> bool {
        let (few, many) = if self.entries.len() < other.entries.len() {
            (self, other)
        } else {
            (other, self)
        };
        let mut keys = Keys::default();
        let mut there = cover(
            few,
            &mut keys,
            Hosts::sized_for(&[&few.entries, &many.entries]),
        );
        Pieces::new(&many.entries).any(|piece| {
            let mut met = false;
            there.parts(keys.key(&piece), piece.numbers(), |_| met = true);
            met
        })
    }

    /// Whether every host of this list is in the other, however often in either.
    pub fn is_subset(&self, other: &Self) -> bool {
        let mut keys = Keys::default();
        let mut there = cover(
            other,
            &mut keys,
            Hosts::sized_for(&[&self.entries, &other.entries]),
        );
        Pieces::new(&self.entries).all(|piece| {
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
        let mut there = cover(
            hosts,
            &mut keys,
            Hosts::sized_for(&[&self.entries, &hosts.entries]),
        );
        let mut positions = Positions::default();
        each_span(&self.entries, &mut keys, |key, span| {
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
        for piece in Pieces::new(&other.entries) {
            let known = intervals.entry(keys.key(&piece)).or_default();
            known.push(piece.numbers());
        }
        let mut counts: Map<Key, Counts> = intervals
            .into_iter()
            .map(|(key, intervals)| (key, Counts::new(&intervals)))
            .collect();
        let mut kept = Positions::default();
        let (mut from, mut entry) = (0, 0);
        for piece in Pieces::new(&self.entries) {
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
        let (mut left, mut right) = (Pieces::new(&self.entries), Pieces::new(&other.entries));
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
