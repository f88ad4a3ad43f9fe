//! The four set operations: on one id, and on a word of 64.

/// Which ids of two sets belong to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Union,
    Intersection,
    Difference,
    SymmetricDifference,
}

impl Op {
    pub(crate) const fn keeps(self, left: bool, right: bool) -> bool {
        match self {
            Self::Union => left || right,
            Self::Intersection => left && right,
            Self::Difference => left && !right,
            Self::SymmetricDifference => left != right,
        }
    }

    pub(crate) const fn word(self, left: u64, right: u64) -> u64 {
        match self {
            Self::Union => left | right,
            Self::Intersection => left & right,
            Self::Difference => left & !right,
            Self::SymmetricDifference => left ^ right,
        }
    }
}
