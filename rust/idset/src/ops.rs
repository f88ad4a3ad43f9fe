//! Set algebra.
use crate::chunks::Chunks;
use crate::op::Op;
use crate::{Form, IdSet};

/// Ranges up to which an operand is added or removed range by range.
const MAX_SINGLE_RANGES: usize = 8;

impl IdSet {
    fn apply(&self, op: Op, other: &Self) -> Self {
        if let (Form::Small(a), Form::Small(b)) = (&self.form, &other.form) {
            return Self::from_form(Form::Small([op.word(a[0], b[0]), op.word(a[1], b[1])]));
        }
        if other.is_empty() {
            return if op.keeps(true, false) {
                self.clone()
            } else {
                Self::new()
            };
        }
        if self.is_empty() {
            return if op.keeps(false, true) {
                other.clone()
            } else {
                Self::new()
            };
        }
        Self::from_chunks(Chunks::combine(op, &self.chunks(), &other.chunks()))
    }

    /// The ids of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.apply(Op::Union, other)
    }

    /// The ids of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.apply(Op::Intersection, other)
    }

    /// The ids of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.apply(Op::Difference, other)
    }

    /// The ids of exactly one of the sets.
    #[must_use]
    pub fn symmetric_difference(&self, other: &Self) -> Self {
        self.apply(Op::SymmetricDifference, other)
    }

    /// Whether there are so few ranges that this set is not worth walking another one for.
    fn is_few(&self) -> bool {
        self.ranges().nth(MAX_SINGLE_RANGES).is_none()
    }

    /// Adds the ids of the other set.
    pub fn union_with(&mut self, other: &Self) {
        if other.is_few() {
            for range in other.ranges() {
                self.insert_range(range);
            }
        } else {
            *self = self.union(other);
        }
    }

    /// Removes the ids that are not in the other set.
    pub fn intersect_with(&mut self, other: &Self) {
        *self = self.intersection(other);
    }

    /// Removes the ids of the other set.
    pub fn subtract(&mut self, other: &Self) {
        if other.is_few() {
            for range in other.ranges() {
                self.remove_range(range);
            }
        } else {
            *self = self.difference(other);
        }
    }

    /// Whether every id is also in the other set.
    pub fn is_subset(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Small(a), Form::Small(b)) => a[0] & !b[0] == 0 && a[1] & !b[1] == 0,
            (Form::Large(_), Form::Small(_)) => false,
            _ => self.len() <= other.len() && self.chunks().is_subset(&other.chunks()),
        }
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
        if let (Form::Small(a), Form::Small(b)) = (&self.form, &other.form) {
            return a[0] & b[0] != 0 || a[1] & b[1] != 0;
        }
        self.chunks().intersects(&other.chunks())
    }

    /// The number of ids that are in both sets.
    pub fn intersection_len(&self, other: &Self) -> u64 {
        self.intersection(other).len()
    }
}
