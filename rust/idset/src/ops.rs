//! Set algebra.
use std::iter::Peekable;

use crate::bits::{Bits, Dense};
use crate::builder::Builder;
use crate::iter::Ranges;
use crate::set::View;
use crate::spans::Span;
use crate::{Form, IdSet, words};

/// One set has so many fewer ranges that looking each of them up in the other beats walking both.
fn far_fewer(few: usize, many: usize) -> bool {
    few.saturating_mul(16) < many
}

/// Which ids of two sets belong to the result.
#[derive(Clone, Copy)]
enum Op {
    Union,
    Intersection,
    Difference,
    SymmetricDifference,
}

impl Op {
    fn keeps(self, left: bool, right: bool) -> bool {
        match self {
            Self::Union => left || right,
            Self::Intersection => left && right,
            Self::Difference => left && !right,
            Self::SymmetricDifference => left != right,
        }
    }

    fn word(self, left: u64, right: u64) -> u64 {
        match self {
            Self::Union => left | right,
            Self::Intersection => left & right,
            Self::Difference => left & !right,
            Self::SymmetricDifference => left ^ right,
        }
    }

    /// The numbers of the first word of the result and of that behind its last one.
    fn window(self, left: Bits<'_>, right: Bits<'_>) -> (usize, usize) {
        let (a, b) = (left.start, left.start + left.words.len());
        let (c, d) = (right.start, right.start + right.words.len());
        match self {
            Self::Union | Self::SymmetricDifference => (a.min(c), b.max(d)),
            Self::Intersection => (a.max(c), b.min(d)),
            Self::Difference => (a, b),
        }
    }

    /// Word by word; none where the result's window is out of proportion to the operands'.
    fn bits(self, left: Bits<'_>, right: Bits<'_>) -> Option<IdSet> {
        let (start, end) = self.window(left, right);
        let size = end.saturating_sub(start);
        if size > 2 * (left.words.len() + right.words.len()) {
            return None;
        }
        let result =
            (start..start + size).map(|number| self.word(left.word(number), right.word(number)));
        Some(IdSet::from_words(start, result.collect()))
    }

    /// Boundary by boundary.
    fn sweep(self, left: &IdSet, right: &IdSet) -> IdSet {
        let mut result = Builder::default();
        let (mut left, mut right) = (Side::new(left), Side::new(right));
        let mut from = 0;
        // Each step handles the ids from `from` to the nearest boundary above it: there is none at the end of both.
        while let Some(to) = nearest(left.boundary(from), right.boundary(from)) {
            if self.keeps(left.holds(from), right.holds(from)) {
                result.push(Span {
                    lo: from,
                    hi: to - 1,
                });
            }
            from = to;
        }
        result.finish()
    }

    fn apply(self, left: &IdSet, right: &IdSet) -> IdSet {
        if let (Form::Small(a), Form::Small(b)) = (&left.form, &right.form) {
            return IdSet::from_form(Form::Small([self.word(a[0], b[0]), self.word(a[1], b[1])]));
        }
        if let (View::Bits(a), View::Bits(b)) = (left.view(), right.view())
            && let Some(result) = self.bits(a, b)
        {
            return result;
        }
        self.sweep(left, right)
    }
}

/// One operand of a sweep.
struct Side<'a> {
    ranges: Peekable<Ranges<'a>>,
}

impl<'a> Side<'a> {
    fn new(set: &'a IdSet) -> Self {
        Self {
            ranges: set.ranges().peekable(),
        }
    }

    /// The first id above `from` at which the set begins or ceases to hold ids.
    fn boundary(&mut self, from: u32) -> Option<u32> {
        while self.ranges.next_if(|range| *range.end() < from).is_some() {}
        let range = self.ranges.peek()?;
        if from < *range.start() {
            Some(*range.start())
        } else {
            range.end().checked_add(1)
        }
    }

    /// Whether the set holds `from`, for which the boundary has just been asked.
    fn holds(&mut self, from: u32) -> bool {
        self.ranges
            .peek()
            .is_some_and(|range| range.contains(&from))
    }
}

fn nearest(left: Option<u32>, right: Option<u32>) -> Option<u32> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (left, right) => left.or(right),
    }
}

impl IdSet {
    pub(crate) fn from_words(start: usize, words: Vec<u64>) -> Self {
        let Some(dense) = Dense::new(start, words) else {
            return Self::new();
        };
        let bits = dense.bits();
        if bits.start + bits.words.len() <= 2 {
            return Self::from_form(Form::Small([bits.word(0), bits.word(1)]));
        }
        let sparse = dense.is_sparse();
        let set = Self::from_form(Form::Dense(Box::new(dense)));
        if !sparse {
            return set;
        }
        Builder::build(set.spans())
    }

    /// The ids of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Op::Union.apply(self, other)
    }

    /// The ids of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) = if self.range_count() <= other.range_count() {
            (self, other)
        } else {
            (other, self)
        };
        if !far_fewer(few.range_count(), many.range_count()) {
            return Op::Intersection.apply(self, other);
        }
        let mut result = Builder::default();
        for range in few.ranges() {
            for part in Ranges::within(many, *range.start(), *range.end()) {
                result.push(Span {
                    lo: *part.start(),
                    hi: *part.end(),
                });
            }
        }
        result.finish()
    }

    /// The ids of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        if far_fewer(self.range_count(), other.range_count()) {
            return Op::Difference.apply(self, &self.intersection(other));
        }
        Op::Difference.apply(self, other)
    }

    /// The ids of exactly one of the sets.
    #[must_use]
    pub fn symmetric_difference(&self, other: &Self) -> Self {
        Op::SymmetricDifference.apply(self, other)
    }

    /// Adds the ids of the other set.
    pub fn union_with(&mut self, other: &Self) {
        if far_fewer(other.range_count(), self.range_count()) {
            for range in other.ranges() {
                self.insert_range(range);
            }
        } else {
            *self = self.union(other);
        }
    }

    /// Takes out what is not in the other set.
    pub fn intersect_with(&mut self, other: &Self) {
        *self = self.intersection(other);
    }

    /// Takes out the ids of the other set.
    pub fn subtract(&mut self, other: &Self) {
        if far_fewer(other.range_count(), self.range_count()) {
            for range in other.ranges() {
                self.remove_range(range);
            }
        } else {
            *self = self.difference(other);
        }
    }

    /// Whether every id is also in the other set.
    pub fn is_subset(&self, other: &Self) -> bool {
        if let (Form::Small(a), Form::Small(b)) = (&self.form, &other.form) {
            return a[0] & !b[0] == 0 && a[1] & !b[1] == 0;
        }
        self.len() <= other.len() && self.ranges().all(|range| other.contains_range(range))
    }

    /// Whether every id of the other set is also in this one.
    pub fn is_superset(&self, other: &Self) -> bool {
        other.is_subset(self)
    }

    /// Whether the sets have no id in common.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        !self.intersects(other)
    }

    /// Whether the sets have an id in common.
    pub fn intersects(&self, other: &Self) -> bool {
        let (few, many) = if self.range_count() <= other.range_count() {
            (self, other)
        } else {
            (other, self)
        };
        few.ranges().any(|range| {
            many.span_from(*range.start())
                .is_some_and(|span| span.lo <= *range.end())
        })
    }

    /// How many ids the sets have in common.
    pub fn intersection_len(&self, other: &Self) -> u64 {
        if let (Form::Small(a), Form::Small(b)) = (&self.form, &other.form) {
            return words::count(&[a[0] & b[0], a[1] & b[1]]);
        }
        self.intersection(other).len()
    }
}
