//! The four set operations on the ids of one chunk.
use alloc::vec;
use alloc::vec::Vec;

use crate::body::Body;
use crate::op::Op;
use crate::run::{CHUNK_IDS, CHUNK_WORDS, Run};
use crate::wide;
use crate::words;

/// Runs of both operands up to which runs are merged; for more, bitmaps are faster.
const MAX_MERGED_RUNS: usize = 256;
/// Ids of both operands up to which they are compared in turn; for more, a bitmap of the right ones is faster.
const MAX_COMPARED_IDS: usize = 128;
/// The ratio of the numbers of ids of the right and of the left operand, above which each left one is searched for in the right.
const MAX_LOOKUP_FACTOR: usize = 32;

impl Op {
    /// Applies the operation. The result and how many ids it has; none if it has none.
    pub(crate) fn apply(self, left: &Body, right: &Body) -> Option<(Body, u32)> {
        match (left, right) {
            (Body::Full, Body::Full) => self.keeps(true, true).then_some((Body::Full, CHUNK_IDS)),
            (Body::Full, other) => match self {
                Self::Union => Some((Body::Full, CHUNK_IDS)),
                Self::Intersection => Some((other.clone(), other.count())),
                Self::Difference | Self::SymmetricDifference => self.with_full(other),
            },
            (other, Body::Full) => match self {
                Self::Union => Some((Body::Full, CHUNK_IDS)),
                Self::Intersection => Some((other.clone(), other.count())),
                Self::Difference => None,
                Self::SymmetricDifference => self.with_full(other),
            },
            (Body::Bits(a), Body::Bits(b)) => {
                let (words, count) = wide::combined(self, a, b);
                Some((Body::from_words(words, count)?, count))
            }
            (Body::Ids(a), Body::Ids(b))
                if matches!(self, Self::Union | Self::SymmetricDifference) =>
            {
                counted(wide::merged(self, a, b).unwrap_or_else(|| self.merge(a, b)))
            }
            (Body::Ids(a), Body::Ids(b)) if a.len() >= b.len() / MAX_LOOKUP_FACTOR => {
                counted(wide::merged(self, a, b).unwrap_or_else(|| self.filter(a, b)))
            }
            (Body::Ids(ids), other) if matches!(self, Self::Intersection | Self::Difference) => {
                let wanted = self == Self::Intersection;
                ids_body(ids.iter().filter(|&&id| other.contains(id) == wanted))
            }
            (other, Body::Ids(ids)) if self == Self::Intersection => {
                ids_body(ids.iter().filter(|&&id| other.contains(id)))
            }
            (Body::Runs(a), Body::Runs(b)) if a.len() + b.len() <= MAX_MERGED_RUNS => {
                let runs = self.sweep(a, b);
                let count = runs.iter().map(|run| run.count()).sum();
                (count > 0).then(|| (Body::from_runs(&runs, count), count))
            }
            _ => self.through_words(left, right),
        }
    }

    /// The difference of all ids of a chunk and some, which is their symmetric difference too.
    fn with_full(self, other: &Body) -> Option<(Body, u32)> {
        match other {
            Body::Runs(_) => self.apply(&Body::Runs(vec![Run::ALL]), other),
            _ => self.through_words(&Body::Full, other),
        }
    }

    /// On a bitmap of the left chunk, or of the right one where the order does not matter and that is one already.
    fn through_words(self, left: &Body, right: &Body) -> Option<(Body, u32)> {
        let swap = matches!(right, Body::Bits(_)) && self != Self::Difference;
        let (left, right) = if swap { (right, left) } else { (left, right) };
        let mut words = left.to_words();
        let whole = words.first_chunk_mut::<CHUNK_WORDS>()?;
        let count = match right {
            Body::Runs(runs) if self != Self::Intersection => {
                wide::combine_runs(self, whole, runs);
                wide::count(whole)
            }
            _ => {
                let mut others = [0; CHUNK_WORDS];
                right.write(&mut others);
                wide::combine(self, whole, &others)
            }
        };
        Some((Body::from_words(words, count)?, count))
    }

    /// The ids of the left operand that belong to the result, for an intersection or a difference.
    fn filter(self, left: &[u16], right: &[u16]) -> Vec<u16> {
        if left.len() + right.len() <= MAX_COMPARED_IDS {
            let mut others = right.iter().copied().peekable();
            let mut is_kept = |id: u16| {
                while others.next_if(|other| *other < id).is_some() {}
                self.keeps(true, others.peek() == Some(&id))
            };
            return left.iter().copied().filter(|id| is_kept(*id)).collect();
        }
        let mut words = [0; CHUNK_WORDS];
        for &id in right {
            words::add(&mut words, id.into());
        }
        let mut ids = vec![0; left.len()];
        let mut len = 0;
        for &id in left {
            ids[len] = id;
            len += usize::from(self.keeps(true, words::contains(&words, id.into())));
        }
        ids.truncate(len);
        ids
    }

    /// Id by id, for a union or a symmetric difference.
    fn merge(self, left: &[u16], right: &[u16]) -> Vec<u16> {
        let mut ids = vec![0; left.len() + right.len()];
        let (mut i, mut j, mut len) = (0, 0, 0);
        // Without a branch on which of the two is less, which would be unpredictable.
        while let (Some(&a), Some(&b)) = (left.get(i), right.get(j)) {
            ids[len] = a.min(b);
            len += usize::from(a != b || self == Self::Union);
            i += usize::from(a <= b);
            j += usize::from(b <= a);
        }
        ids.truncate(len);
        ids.extend_from_slice(&left[i..]);
        ids.extend_from_slice(&right[j..]);
        ids
    }

    /// Boundary by boundary.
    fn sweep(self, left: &[Run], right: &[Run]) -> Vec<Run> {
        let mut result = Vec::with_capacity(left.len() + right.len());
        let (mut i, mut j, mut start) = (0, 0, None);
        loop {
            let (a, b) = (boundary(left, i), boundary(right, j));
            let at = a.min(b);
            if at > CHUNK_IDS {
                return result;
            }
            i += usize::from(a == at);
            j += usize::from(b == at);
            // An odd number of boundaries passed: inside a run.
            match (start, self.keeps(i % 2 == 1, j % 2 == 1)) {
                (None, true) => start = Some(at),
                (Some(from), false) => {
                    result.push(Run {
                        lo: edge(from),
                        hi: edge(at - 1),
                    });
                    start = None;
                }
                _ => {}
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "ids of a chunk have 16 bits"
)]
fn edge(id: u32) -> u16 {
    id as u16
}

/// The beginnings and ends of runs, in turn; beyond all ids past the last.
fn boundary(runs: &[Run], index: usize) -> u32 {
    runs.get(index / 2).map_or(u32::MAX, |run| {
        if index.is_multiple_of(2) {
            run.lo.into()
        } else {
            u32::from(run.hi) + 1
        }
    })
}

fn counted(ids: Vec<u16>) -> Option<(Body, u32)> {
    let count = u32::try_from(ids.len()).unwrap_or(CHUNK_IDS);
    Some((Body::from_ids(ids)?, count))
}

fn ids_body<'a>(ids: impl Iterator<Item = &'a u16>) -> Option<(Body, u32)> {
    let ids: Vec<u16> = ids.copied().collect();
    let count = u32::try_from(ids.len()).unwrap_or(CHUNK_IDS);
    (count > 0).then_some((Body::Ids(ids), count))
}

/// Whether two chunks have an id in common.
pub(crate) fn intersects(left: &Body, right: &Body) -> bool {
    match (left, right) {
        (Body::Full, _) | (_, Body::Full) => true,
        (Body::Bits(a), Body::Bits(b)) => a.iter().zip(b).any(|(a, b)| a & b != 0),
        (Body::Ids(ids), other) | (other, Body::Ids(ids)) => {
            ids.iter().any(|&id| other.contains(id))
        }
        (Body::Runs(runs), other) | (other, Body::Runs(runs)) => runs.iter().any(|run| {
            other
                .run_from(run.lo)
                .is_some_and(|found| found.lo <= run.hi)
        }),
    }
}

/// Whether all ids of the left chunk are in the right one.
pub(crate) fn is_subset(left: &Body, right: &Body) -> bool {
    match (left, right) {
        (_, Body::Full) => true,
        (Body::Bits(a), Body::Bits(b)) => a.len() <= b.len() && wide::is_subset(a, &b[..a.len()]),
        (Body::Ids(ids), other) => ids.iter().all(|&id| other.contains(id)),
        (Body::Full, other) => other.count() == CHUNK_IDS,
        (Body::Runs(runs), other) => runs.iter().all(|&run| other.count_in(run) == run.count()),
        (other, Body::Runs(_) | Body::Ids(_)) => Op::Difference.apply(other, right).is_none(),
    }
}

/// Whether two chunks hold the same ids, of which they have equally many.
pub(crate) fn is_equal(left: &Body, right: &Body) -> bool {
    match (left, right) {
        (Body::Bits(a), Body::Bits(b)) => a == b,
        (Body::Ids(a), Body::Ids(b)) => a == b,
        (Body::Runs(a), Body::Runs(b)) => wide::is_same_runs(a, b),
        (Body::Full, Body::Full) => true,
        _ => is_subset(left, right),
    }
}
