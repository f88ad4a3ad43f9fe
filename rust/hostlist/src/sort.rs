//! Natural order.
use std::cmp::Ordering;
use std::ops::Range;

use crate::error::Limit;
use crate::ops::Positions;
use crate::piece::{Keys, Pieces};
use crate::{Error, Hostlist};

/// Ranges that a sorted list may fall apart into, however few it had.
const MAX_PIECES: usize = 1 << 24;

/// Compares texts with the runs of digits in them taken as numbers.
fn natural(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    while let (Some(a), Some(b)) = (left.first(), right.first()) {
        let (mut m, mut n) = (run(left), run(right));
        let order = if m > 0 && n > 0 {
            let (p, q) = (significant(&left[..m]), significant(&right[..n]));
            let order = p.len().cmp(&q.len()).then_with(|| p.cmp(q));
            order.then(m.cmp(&n))
        } else {
            (m, n) = (1, 1);
            a.cmp(b)
        };
        if order.is_ne() {
            return order;
        }
        (left, right) = (&left[m..], &right[n..]);
    }
    left.len().cmp(&right.len())
}

/// How many digits there are in front.
fn run(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count()
}

/// Digits without leading zeroes.
fn significant(digits: &[u8]) -> &[u8] {
    let zeroes = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeroes..]
}

/// A piece with its place in the order: by prefix, number, digits, suffix, position. The fields stand in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    prefix: usize,
    lo: u64,
    lane: Lane,
    hi: u64,
}

/// What orders hosts with the same prefix and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    len: u8,
    suffix: usize,
    at: usize,
}

impl Item {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a list has no more hosts than fit"
    )]
    fn positions(&self, lo: u64, hi: u64) -> Range<usize> {
        let at = self.lane.at;
        at + (lo - self.lo) as usize..at + (hi - self.lo) as usize + 1
    }
}

/// Puts out items that overlap number by number, the others whole.
struct Sweep {
    out: Positions,
    limit: usize,
}

impl Sweep {
    /// Items of one prefix in ascending order, each of which overlaps the ones before.
    fn cluster(&mut self, items: &[Item]) -> Result<(), Error> {
        let mut items = items.iter().copied().peekable();
        let mut active: Vec<Item> = Vec::new();
        let mut from = 0;
        loop {
            if active.is_empty() {
                match items.peek() {
                    Some(item) => from = item.lo,
                    None => return Ok(()),
                }
            }
            while let Some(item) = items.next_if(|item| item.lo == from) {
                let place = active.partition_point(|other| other.lane < item.lane);
                active.insert(place, item);
            }
            let last = active.iter().map(|item| item.hi).min().unwrap_or(from);
            let last = items.peek().map_or(last, |next| last.min(next.lo - 1));
            self.stretch(&active, from, last)?;
            active.retain(|item| item.hi > last);
            from = last.saturating_add(1);
        }
    }

    /// The numbers `from..=last` of items that all have them.
    fn stretch(&mut self, active: &[Item], from: u64, last: u64) -> Result<(), Error> {
        if let [item] = active {
            self.out.push(item.positions(from, last));
            return Ok(());
        }
        for number in from..=last {
            for item in active {
                self.out.push(item.positions(number, number));
            }
            if self.out.count() > self.limit {
                return Err(Error::limit(Limit::Sorted));
            }
        }
        Ok(())
    }
}

impl Hostlist {
    /// Sorts in natural order: by prefix (runs of digits in it as numbers), number, its width, suffix. Repeats stay.
    ///
    /// Refused, and nothing changed, where ranges that overlap would fall apart into more than 16,777,216 hosts.
    pub fn sort(&mut self) -> Result<(), Error> {
        let mut keys = Keys::default();
        let mut items: Vec<Item> = Pieces::new(self)
            .map(|piece| Item {
                prefix: keys.key(&piece).stem,
                lo: piece.lo,
                lane: Lane {
                    len: piece.len,
                    suffix: 0,
                    at: piece.at,
                },
                hi: piece.hi,
            })
            .collect();
        let stems = keys.into_stems();
        let mut order: Vec<usize> = (0..stems.len()).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (&stems[a], &stems[b]);
            natural(a.prefix(), b.prefix()).then_with(|| natural(a.suffix(), b.suffix()))
        });
        // By number of the stem: the place of its prefix, which others may share, and its own place.
        let mut places = vec![(0, 0); stems.len()];
        let mut group = 0;
        for (place, &stem) in order.iter().enumerate() {
            let before = place
                .checked_sub(1)
                .map(|place| stems[order[place]].prefix());
            if before != Some(stems[stem].prefix()) {
                group = place;
            }
            places[stem] = (group, place);
        }
        for item in &mut items {
            (item.prefix, item.lane.suffix) = places[item.prefix];
        }
        items.sort_unstable();
        let mut sweep = Sweep {
            out: Positions::default(),
            limit: MAX_PIECES.max(items.len().saturating_mul(2)),
        };
        let mut rest = &items[..];
        while let Some((first, others)) = rest.split_first() {
            let mut hi = first.hi;
            let more = others.iter().take_while(|item| {
                let overlaps = item.prefix == first.prefix && item.lo <= hi;
                hi = hi.max(item.hi);
                overlaps
            });
            let (cluster, after) = rest.split_at(1 + more.count());
            sweep.cluster(cluster)?;
            rest = after;
        }
        let mut sorted = Self::new();
        sweep.out.copy(self, &mut sorted);
        *self = sorted;
        Ok(())
    }
}
