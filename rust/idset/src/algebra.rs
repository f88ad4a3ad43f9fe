//! The four set operations on the ids of one chunk.
use alloc::vec;
use alloc::vec::Vec;

use crate::body::{Body, Counted, counted_ids, counted_runs, counted_words, words_up_to};
use crate::op::Op;
use crate::run::{CHUNK_IDS, CHUNK_WORDS, Run};
use crate::runwise::{MAX_IDS_AS_RUNS, RunwiseOp};
use crate::wide;

/// Runs of both operands up to which runs are merged; for more, bitmaps are faster.
const MAX_MERGED_RUNS: usize = 256;
/// Ids of both operands up to which they are compared in turn; for more, a bitmap of the right ones is faster.
const MAX_COMPARED_IDS: usize = 128;
/// The ratio of the numbers of ids of the right and of the left operand, above which each left one is searched for in the right.
const MAX_LOOKUP_FACTOR: usize = 32;

/// Runs of one operand up to which the other's ids are kept or changed run by run.
const MAX_FEW_RUNS: usize = 8;
/// Ids up to which each is searched for in the other operand's runs; for more, a bitmap of the runs is faster.
const MAX_SEARCHED_IDS: usize = 16;

/// Words up to which a bitmap of its own length is made faster than one of a whole chunk.
const MAX_SHORT_WORDS: usize = CHUNK_WORDS / 4;

/// All words of a chunk.
static ALL_WORDS: [u64; CHUNK_WORDS] = [u64::MAX; CHUNK_WORDS];

impl Op {
    /// Applies the operation. The result and how many ids it has; none if it has none.
    pub(crate) fn apply(self, left: Counted<'_>, right: Counted<'_>) -> Option<(Body, u32)> {
        match (left.body, right.body) {
            (Body::Full, Body::Full) => self.keeps(true, true).then_some((Body::Full, CHUNK_IDS)),
            (Body::Full, other) | (other, Body::Full) if self == Self::Intersection => {
                Some((other.clone(), left.count.min(right.count)))
            }
            (Body::Full, _) | (_, Body::Full) if self == Self::Union => {
                Some((Body::Full, CHUNK_IDS))
            }
            (_, Body::Full) if self == Self::Difference => None,
            (Body::Full, Body::Bits(words)) | (Body::Bits(words), Body::Full) => {
                counted_words(wide::combined(Self::Difference, &ALL_WORDS, words))
            }
            (Body::Full, Body::Ids(ids)) | (Body::Ids(ids), Body::Full)
                if ids.len() > MAX_IDS_AS_RUNS =>
            {
                let mut words = ALL_WORDS.to_vec();
                wide::change_ids(Self::Difference, &mut words, ids);
                counted_words((words, CHUNK_IDS - left.count.min(right.count)))
            }
            (Body::Bits(a), Body::Bits(b)) => counted_words(wide::combined(self, a, b)),
            (Body::Ids(a), Body::Ids(b))
                if matches!(self, Self::Union | Self::SymmetricDifference) =>
            {
                counted_ids(wide::merged(self, a, b).unwrap_or_else(|| self.merge(a, b)))
            }
            (Body::Ids(a), Body::Ids(b)) if a.len() >= b.len() / MAX_LOOKUP_FACTOR => {
                counted_ids(wide::merged(self, a, b).unwrap_or_else(|| self.filter(a, b)))
            }
            (left, right) => self.apply_mixed(left, right),
        }
    }

    /// The operation on forms that `apply` has no direct way for.
    fn apply_mixed(self, left: &Body, right: &Body) -> Option<(Body, u32)> {
        if let Some(runs) = few_runs(right) {
            return RunwiseOp::new(|in_run, in_other| self.keeps(in_other, in_run))
                .apply(runs, left);
        }
        if let Some(runs) = few_runs(left) {
            return RunwiseOp::new(|in_run, in_other| self.keeps(in_run, in_other))
                .apply(runs, right);
        }
        match (left, right) {
            (Body::Ids(ids), other) if matches!(self, Self::Intersection | Self::Difference) => {
                counted_ids(self.select(ids, other))
            }
            (other, Body::Ids(ids)) if self == Self::Intersection => {
                counted_ids(self.select(ids, other))
            }
            (Body::Runs(a), Body::Runs(b)) if a.len() + b.len() <= MAX_MERGED_RUNS => {
                counted_runs(&self.sweep(a, b))
            }
            (left, right) => self.through_words(left, right),
        }
    }

    /// Converts operands to bitmaps where needed, and combines these.
    fn through_words(self, left: &Body, right: &Body) -> Option<(Body, u32)> {
        let swap = matches!(right, Body::Bits(_)) && self != Self::Difference;
        let (left, right) = if swap { (right, left) } else { (left, right) };
        match (left, right) {
            (Body::Bits(words), Body::Runs(_)) if self == Self::Intersection => counted_words(
                wide::combined(self, words, right.mask(&mut [0; CHUNK_WORDS])),
            ),
            (_, Body::Bits(words)) => {
                let mask = &mut [0; CHUNK_WORDS];
                let mask = &left.mask(mask)[..words_up_to(left.last())];
                counted_words(wide::combined(self, mask, words))
            }
            (_, Body::Runs(_)) if self == Self::Intersection => counted_words(wide::combined(
                self,
                left.mask(&mut [0; CHUNK_WORDS]),
                right.mask(&mut [0; CHUNK_WORDS]),
            )),
            _ => {
                let mut words = left.to_words(words_up_to(left.last().max(right.last())));
                right.write(self, &mut words);
                let count = wide::count(&words);
                counted_words((words, count))
            }
        }
    }

    /// The ids that the other operand has (intersection) or lacks (difference).
    fn select(self, ids: &[u16], other: &Body) -> Vec<u16> {
        match other {
            Body::Bits(words) => wide::select(self, ids, words),
            Body::Runs(_) if ids.len() > MAX_SEARCHED_IDS => {
                let len = words_up_to(other.last());
                if len <= MAX_SHORT_WORDS {
                    wide::select(self, ids, &other.to_words(len))
                } else {
                    wide::select(self, ids, other.mask(&mut [0; CHUNK_WORDS]))
                }
            }
            _ => {
                let is_kept = |id: &u16| self.keeps(true, other.contains(*id));
                ids.iter().copied().filter(is_kept).collect()
            }
        }
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
        wide::change_ids(Self::Union, &mut words, right);
        wide::select(self, left, &words)
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

/// The runs of a chunk that has a few of them.
fn few_runs(body: &Body) -> Option<&[Run]> {
    match body {
        Body::Full => Some(&[Run::ALL]),
        Body::Runs(runs) if runs.len() <= MAX_FEW_RUNS => Some(runs),
        _ => None,
    }
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
        (other, Body::Runs(_) | Body::Ids(_)) => Op::Difference.apply_mixed(other, right).is_none(),
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::body::runs_of;
    use crate::words;

    const OPS: [Op; 4] = [
        Op::Union,
        Op::Intersection,
        Op::Difference,
        Op::SymmetricDifference,
    ];

    /// The ids of a bitmap in each form, whether that suits them or not.
    fn forms(words: &[u64]) -> Vec<Body> {
        let ids: Vec<u16> = (0..=u16::MAX)
            .filter(|&id| words::contains(words, id.into()))
            .collect();
        let Some(&last) = ids.last() else {
            return Vec::new();
        };
        let mut forms = vec![
            Body::Runs(runs_of(&ids)),
            Body::Bits(words[..words_up_to(last)].to_vec()),
        ];
        if ids.len() == CHUNK_IDS as usize {
            forms.push(Body::Full);
        }
        forms.push(Body::Ids(ids));
        forms
    }

    /// Ids of runs of some number and length, up to some id.
    fn bitmaps() -> impl Strategy<Value = Vec<u64>> {
        let most = prop_oneof![Just(200_u16), Just(9000), Just(u16::MAX)];
        let shape = prop_oneof![
            Just((1, u16::MAX)),
            Just((6, 3000)),
            Just((400, 30)),
            Just((900, 1))
        ];
        (most, shape, any::<bool>()).prop_flat_map(|(most, (number, longest), ends)| {
            vec((0..=most, 1..=longest), 0..=number).prop_map(move |runs| {
                let mut words = std::vec![0; CHUNK_WORDS];
                for (lo, len) in runs {
                    words::set(&mut words, lo.into(), lo.saturating_add(len - 1).into());
                }
                if ends {
                    words[0] |= 1;
                    words[CHUNK_WORDS - 1] |= 1 << 63;
                }
                words
            })
        })
    }

    fn check(left: &[u64], right: &[u64]) {
        let combined = |op: Op| -> Vec<u64> {
            left.iter()
                .zip(right)
                .map(|(&a, &b)| op.word(a, b))
                .collect()
        };
        let is_disjoint = combined(Op::Intersection).iter().all(|&word| word == 0);
        let is_inside = combined(Op::Difference).iter().all(|&word| word == 0);
        let (lefts, rights) = (forms(left), forms(right));
        let pairs = || {
            lefts
                .iter()
                .flat_map(|a| rights.iter().map(move |b| (a, b)))
        };
        for op in OPS {
            let expected = combined(op);
            let ones: u32 = expected.iter().map(|word| word.count_ones()).sum();
            for (a, b) in pairs() {
                let [a, b] = [a, b].map(|body| Counted {
                    body,
                    count: body.count(),
                });
                let made = op.apply(a, b);
                assert_eq!(made.as_ref().map_or(0, |made| made.1), ones, "{op:?}");
                let words =
                    made.map_or_else(|| vec![0; CHUNK_WORDS], |made| made.0.to_words(CHUNK_WORDS));
                assert!(words == expected, "{op:?} of {:?} and {:?}", a.body, b.body);
            }
        }
        for (a, b) in pairs() {
            assert_eq!(intersects(a, b), !is_disjoint);
            assert_eq!(is_subset(a, b), is_inside);
            assert!(a.count() != b.count() || is_equal(a, b) == (left == right));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn operations_on_all_pairs_of_forms_are_those_of_bitmaps(left in bitmaps(), right in bitmaps()) {
            check(&left, &right);
        }
    }

    #[test]
    fn operations_with_all_ids_are_those_of_bitmaps() {
        let all = vec![u64::MAX; CHUNK_WORDS];
        let even = vec![0x5555_5555_5555_5555; CHUNK_WORDS];
        let mut one = vec![0; CHUNK_WORDS];
        one[700] = 1 << 9;
        let others = one.iter().map(|word| !word).collect();
        for other in [&all, &even, &one, &others] {
            check(&all, other);
            check(other, &all);
        }
    }
}
