//! The cores and gpus of one rank.

use penstock_idset::IdSet;

/// The resources of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Children {
    pub(crate) cores: IdSet,
    pub(crate) gpus: IdSet,
}

impl Children {
    /// Neither core nor gpu: the resources of a removed rank, or of a rank without any.
    pub(crate) fn is_bare(&self) -> bool {
        self.cores.is_empty() && self.gpus.is_empty()
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        Self {
            cores: self.cores.union(&other.cores),
            gpus: self.gpus.union(&other.gpus),
        }
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self {
            cores: self.cores.intersection(&other.cores),
            gpus: self.gpus.intersection(&other.gpus),
        }
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        Self {
            cores: self.cores.difference(&other.cores),
            gpus: self.gpus.difference(&other.gpus),
        }
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.cores.is_subset(&other.cores) && self.gpus.is_subset(&other.gpus)
    }

    /// Whether nothing is shared; two ranks without cores and gpus share the rank itself.
    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        !(self.is_bare() && other.is_bare())
            && self.cores.is_disjoint(&other.cores)
            && self.gpus.is_disjoint(&other.gpus)
    }
}
