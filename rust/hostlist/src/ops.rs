//! Operations that compare the hosts of lists, range by range.
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use crate::error::Limit;
use crate::intervals::{Counts, Intervals};
use crate::piece::{Key, Keys, Piece, Pieces};
use crate::{Error, Hostlist};

/// The hosts that one or several lists hold.
type Cover = HashMap<Key, Intervals>;

fn cover<'a>(list: &'a Hostlist, keys: &mut Keys<'a>) -> Cover {
    let mut cover = Cover::new();
    for piece in Pieces::new(list) {
        let known = cover.entry(keys.key(&piece)).or_default();
        known.insert(piece.lo, piece.hi, |_, _| ());
    }
    cover
}

/// Positions to keep: ranges, those that touch joined.
#[derive(Debug, Default)]
pub(crate) struct Positions(Vec<Range<usize>>);

impl Positions {
    pub(crate) fn push(&mut self, range: Range<usize>) {
        match self.0.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.0.push(range),
        }
    }

    /// The hosts of a piece with the numbers `lo..=hi`.
    fn push_part(&mut self, piece: &Piece<'_>, lo: u64, hi: u64) {
        self.push(piece.position(lo)..piece.position(hi) + 1);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    fn hosts(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }

    pub(crate) fn copy(&self, from: &Hostlist, to: &mut Hostlist) {
        for range in &self.0 {
            from.copy_range(range.clone(), to);
        }
    }

    fn of(&self, list: &Hostlist) -> Hostlist {
        let mut part = Hostlist::new();
        self.copy(list, &mut part);
        part
    }
}

/// The first occurrences in a list of what is not in `seen`, which learns of them.
fn unseen<'a>(list: &'a Hostlist, keys: &mut Keys<'a>, seen: &mut Cover) -> Positions {
    let mut positions = Positions::default();
    for piece in Pieces::new(list) {
        let seen = seen.entry(keys.key(&piece)).or_default();
        seen.insert(piece.lo, piece.hi, |lo, hi| {
            positions.push_part(&piece, lo, hi);
        });
    }
    positions
}

impl Hostlist {
    /// Takes out the repeats: of each host the first occurrence stays, the order stays.
    pub fn uniq(&mut self) {
        let positions = unseen(self, &mut Keys::default(), &mut Cover::new());
        if positions.hosts() < self.len() {
            *self = positions.of(self);
        }
    }

    /// The hosts of either list, each once: those of this list, then those only in the other, in their order.
    ///
    /// Refused where the result would be too long.
    pub fn union(&self, other: &Self) -> Result<Self, Error> {
        let (mut keys, mut seen) = (Keys::default(), Cover::new());
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
        let there = cover(other, &mut keys);
        let mut seen = Cover::new();
        let mut positions = Positions::default();
        for piece in Pieces::new(self) {
            let key = keys.key(&piece);
            let Some(there) = there.get(&key) else {
                continue;
            };
            seen.entry(key)
                .or_default()
                .insert(piece.lo, piece.hi, |lo, hi| {
                    for (lo, hi) in there.parts(lo, hi) {
                        positions.push_part(&piece, lo, hi);
                    }
                });
        }
        positions.of(self)
    }

    /// The hosts of this list that are not in the other, each once, in this list's order.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut keys = Keys::default();
        let mut seen = cover(other, &mut keys);
        unseen(self, &mut keys, &mut seen).of(self)
    }

    /// The hosts of exactly one of the lists, each once: those of this list, then those of the other.
    ///
    /// Refused where the result would be too long.
    pub fn symmetric_difference(&self, other: &Self) -> Result<Self, Error> {
        let mut keys = Keys::default();
        let mut in_other = cover(other, &mut keys);
        let left = unseen(self, &mut keys, &mut in_other);
        let mut in_self = cover(self, &mut keys);
        let right = unseen(other, &mut keys, &mut in_self);
        Self::concatenate((self, &left), (other, &right))
    }

    /// Takes out the first occurrence of each host of the other list, of one that it names twice the first two, and so
    /// on. Returns how many were taken out.
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
        let mut intervals: HashMap<Key, Vec<(u64, u64)>> = HashMap::new();
        for piece in Pieces::new(other) {
            let known = intervals.entry(keys.key(&piece)).or_default();
            known.push((piece.lo, piece.hi));
        }
        let mut counts: HashMap<Key, Counts> = intervals
            .into_iter()
            .map(|(key, intervals)| (key, Counts::new(&intervals)))
            .collect();
        let mut kept = Positions::default();
        let mut from = 0;
        for piece in Pieces::new(self) {
            if counts.is_empty() {
                break;
            }
            let key = keys.key(&piece);
            let Some(left) = counts.get_mut(&key) else {
                continue;
            };
            left.take(piece.lo, piece.hi, |lo, hi| {
                if from < piece.position(lo) {
                    kept.push(from..piece.position(lo));
                }
                from = piece.position(hi) + 1;
            });
            if left.is_empty() {
                counts.remove(&key);
            }
        }
        if from < self.len() {
            kept.push(from..self.len());
        }
        kept
    }
}

impl PartialEq for Hostlist {
    fn eq(&self, other: &Self) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let (mut left, mut right) = (Pieces::new(self), Pieces::new(other));
        let (mut a, mut b) = (left.next(), right.next());
        while let (Some(x), Some(y)) = (&mut a, &mut b) {
            if x.len != y.len || x.lo != y.lo || x.stem != y.stem {
                return false;
            }
            // The pieces may be of different length: what the longer one has more is compared with what follows.
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
    /// Equal lists may be kept in different ranges: what is cheap and equal in all of them goes in.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.first().hash(state);
        self.get(self.len() / 2).hash(state);
        self.last().hash(state);
    }
}
