//! Equality, order and hash by content, collecting, and operators.
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use core::ops::{
    BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, RangeInclusive, Sub, SubAssign,
};

use crate::builder::Builder;
use crate::chunks::Span;
use crate::{Form, IdSet, Iter};

impl PartialEq for IdSet {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Small(a), Form::Small(b)) => a == b,
            (Form::Large(a), Form::Large(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for IdSet {}

impl Hash for IdSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.len());
        for range in self.ranges() {
            range.hash(state);
        }
    }
}

impl Ord for IdSet {
    /// The order of the ascending sequences of ids: `1,5` before `2`, and `1` before `1,5`.
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (self.ranges(), other.ranges());
        loop {
            let (a, b) = match (left.next(), right.next()) {
                (Some(a), Some(b)) => (a, b),
                (a, b) => return a.is_some().cmp(&b.is_some()),
            };
            match a.start().cmp(b.start()) {
                Ordering::Equal => {}
                order => return order,
            }
            // If one range ends first, its set continues with a greater id than the other, or has ended.
            match a.end().cmp(b.end()) {
                Ordering::Equal => {}
                Ordering::Less if left.next().is_some() => return Ordering::Greater,
                Ordering::Greater if right.next().is_some() => return Ordering::Less,
                order => return order,
            }
        }
    }
}

impl PartialOrd for IdSet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Extend<u32> for IdSet {
    /// Adds ids in any order; 4294967295 is left out.
    fn extend<T: IntoIterator<Item = u32>>(&mut self, ids: T) {
        let ids: Self = ids.into_iter().collect();
        self.union_with(&ids);
    }
}

impl FromIterator<u32> for IdSet {
    /// Collects ids in any order; 4294967295 is left out.
    fn from_iter<T: IntoIterator<Item = u32>>(ids: T) -> Self {
        let mut ascending = Builder::default();
        let mut rest = Vec::new();
        let mut run: Option<Span> = None;
        for id in ids.into_iter().filter(|&id| id <= Self::MAX_ID) {
            match &mut run {
                None => run = Some(Span { lo: id, hi: id }),
                Some(run) if id == run.hi + 1 => run.hi = id,
                Some(run) if (run.lo..=run.hi).contains(&id) => {}
                Some(run) if id > run.hi => {
                    ascending.push(*run);
                    *run = Span { lo: id, hi: id };
                }
                Some(_) => rest.push(id),
            }
        }
        if let Some(run) = run {
            ascending.push(run);
        }
        let mut set = ascending.finish();
        if !rest.is_empty() {
            rest.sort_unstable();
            let others = rest.into_iter().map(|id| Span { lo: id, hi: id });
            set.union_with(&Builder::build(others));
        }
        set
    }
}

impl<'a> IntoIterator for &'a IdSet {
    type Item = u32;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl From<RangeInclusive<u32>> for IdSet {
    fn from(range: RangeInclusive<u32>) -> Self {
        Self::with_range(range)
    }
}

impl BitOr for &IdSet {
    type Output = IdSet;

    fn bitor(self, other: Self) -> IdSet {
        self.union(other)
    }
}

impl BitAnd for &IdSet {
    type Output = IdSet;

    fn bitand(self, other: Self) -> IdSet {
        self.intersection(other)
    }
}

impl Sub for &IdSet {
    type Output = IdSet;

    fn sub(self, other: Self) -> IdSet {
        self.difference(other)
    }
}

impl BitXor for &IdSet {
    type Output = IdSet;

    fn bitxor(self, other: Self) -> IdSet {
        self.symmetric_difference(other)
    }
}

impl BitOrAssign<&Self> for IdSet {
    fn bitor_assign(&mut self, other: &Self) {
        self.union_with(other);
    }
}

impl BitAndAssign<&Self> for IdSet {
    fn bitand_assign(&mut self, other: &Self) {
        self.intersect_with(other);
    }
}

impl SubAssign<&Self> for IdSet {
    fn sub_assign(&mut self, other: &Self) {
        self.subtract(other);
    }
}

impl BitXorAssign<&Self> for IdSet {
    fn bitxor_assign(&mut self, other: &Self) {
        *self = self.symmetric_difference(other);
    }
}

impl Extend<RangeInclusive<u32>> for IdSet {
    /// Adds ranges in any order; ids above [`Self::MAX_ID`] are ignored.
    fn extend<T: IntoIterator<Item = RangeInclusive<u32>>>(&mut self, ranges: T) {
        let ranges: Self = ranges.into_iter().collect();
        self.union_with(&ranges);
    }
}

impl FromIterator<RangeInclusive<u32>> for IdSet {
    /// Collects ranges in any order; ids above [`Self::MAX_ID`] are ignored.
    fn from_iter<T: IntoIterator<Item = RangeInclusive<u32>>>(ranges: T) -> Self {
        let mut spans: Vec<Span> = ranges
            .into_iter()
            .filter_map(|range| crate::set::clipped(&range))
            .collect();
        spans.sort_unstable_by_key(|span| span.lo);
        Builder::build(spans.into_iter())
    }
}
