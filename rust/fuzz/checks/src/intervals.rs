//! The model of an idset: a list of intervals, and one plain way to combine two of them.

/// Ids as disjoint ascending intervals `start..end` with gaps between them.
///
/// The model is slower than an idset, but has only one form, and handles four billion ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    /// One interval; empty where `start >= end`.
    pub fn new(start: u64, end: u64) -> Self {
        Self(if start < end {
            vec![(start, end)]
        } else {
            vec![]
        })
    }

    /// One id.
    pub fn one(id: u64) -> Self {
        Self::new(id, id + 1)
    }

    /// Ids in any order.
    pub fn of(ids: impl IntoIterator<Item = u64>) -> Self {
        let mut ids: Vec<u64> = ids.into_iter().collect();
        ids.sort_unstable();
        let mut intervals = Self::default();
        for id in ids {
            intervals.push(id, id + 1);
        }
        intervals
    }

    /// Adds an interval that starts no lower than the last one.
    fn push(&mut self, start: u64, end: u64) {
        match self.0.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => self.0.push((start, end)),
        }
    }

    /// The ids for which `keep(in this, in other)` is true; `keep(false, false)` is not called.
    #[must_use]
    pub fn combine(&self, other: &Self, keep: impl Fn(bool, bool) -> bool) -> Self {
        let both = || self.0.iter().chain(&other.0);
        let mut bounds: Vec<u64> = both().flat_map(|&(start, end)| [start, end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut result = Self::default();
        for pair in bounds.windows(2) {
            let (here, there) = (self.contains(pair[0]), other.contains(pair[0]));
            if (here || there) && keep(here, there) {
                result.push(pair[0], pair[1]);
            }
        }
        result
    }

    /// The ids of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |_, _| true)
    }

    /// The ids of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |here, there| here && there)
    }

    /// The ids of this one alone.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |here, there| here && !there)
    }

    /// The ids of exactly one.
    #[must_use]
    pub fn symmetric_difference(&self, other: &Self) -> Self {
        self.combine(other, |here, there| here != there)
    }

    /// Whether the id is there.
    pub fn contains(&self, id: u64) -> bool {
        let next = self.0.partition_point(|&(start, _)| start <= id);
        next > 0 && id < self.0[next - 1].1
    }

    /// The number of ids.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|&(start, end)| end - start).sum()
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of ids below `id`.
    pub fn below(&self, id: u64) -> u64 {
        self.intersection(&Self::new(0, id)).len()
    }

    /// The id with `n` ids below it.
    pub fn nth(&self, mut n: u64) -> Option<u64> {
        for &(start, end) in &self.0 {
            if n < end - start {
                return Some(start + n);
            }
            n -= end - start;
        }
        None
    }

    /// The ids at these positions.
    #[must_use]
    pub fn slice(&self, from: u64, to: u64) -> Self {
        let at = |n| self.nth(n).unwrap_or(u64::MAX);
        self.intersection(&Self::new(at(from), at(to)))
    }

    /// The intervals, each as `start..end`.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }

    /// The ids, ascending.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.iter().flat_map(|(start, end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Intervals;

    fn set() -> impl Strategy<Value = BTreeSet<u64>> {
        proptest::collection::btree_set(0_u64..40, 0..30)
    }

    fn same(intervals: &Intervals, set: &BTreeSet<u64>) {
        assert!(intervals.ids().eq(set.iter().copied()));
        assert_eq!(intervals.len(), set.len() as u64);
        let mut pairs = intervals.0.windows(2);
        assert!(pairs.all(|pair| pair[0].1 < pair[1].0));
    }

    proptest! {
        #[test]
        fn the_model_is_a_set(left in set(), right in set(), at in 0_u64..45, to in 0_u64..45) {
            let (a, b) = (Intervals::of(left.iter().copied()), Intervals::of(right.iter().copied()));
            same(&a, &left);
            same(&a.union(&b), &(&left | &right));
            same(&a.intersection(&b), &(&left & &right));
            same(&a.difference(&b), &(&left - &right));
            same(&a.symmetric_difference(&b), &(&left ^ &right));
            prop_assert_eq!(a.contains(at), left.contains(&at));
            prop_assert_eq!(a.below(at), left.range(..at).count() as u64);
            let position = usize::try_from(at).unwrap();
            prop_assert_eq!(a.nth(at), left.iter().nth(position).copied());
            let end = usize::try_from(to).unwrap().min(left.len());
            let positions = position.min(end)..end;
            let ids: Vec<u64> = left.iter().copied().collect();
            same(&a.slice(at, to), &ids[positions].iter().copied().collect());
        }
    }
}
