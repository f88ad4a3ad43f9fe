//! The resources of one rank.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_idset::IdSet;

use crate::raw::Carried;

/// The resources of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Children {
    pub(crate) cores: IdSet,
    pub(crate) gpus: IdSet,
    /// Keys that RFC 20 reserves; they stay with the rank.
    pub(crate) others: Others,
}

/// Unknown keys with their opaque values; `None` for none.
pub(crate) type Others = Option<Box<BTreeMap<String, Carried>>>;

/// The keys of both; for a key of both the left value.
#[inline]
fn either(left: &Others, right: &Others) -> Others {
    // Nearly always, for each rank.
    if left.is_none() && right.is_none() {
        return None;
    }
    merge(left, right)
}

#[cold]
fn merge(left: &Others, right: &Others) -> Others {
    match (left, right) {
        (Some(left), Some(right)) => {
            let mut both = right.clone();
            both.extend(left.iter().map(|(key, value)| (key.clone(), value.clone())));
            Some(both)
        }
        (one, other) => one.as_ref().or(other.as_ref()).cloned(),
    }
}

impl Children {
    /// Cores and gpus without further keys.
    pub(crate) fn new(cores: IdSet, gpus: IdSet) -> Self {
        let others = None;
        Self {
            cores,
            gpus,
            others,
        }
    }

    /// Neither core nor gpu: the resources of a removed rank, or of a rank without any.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        self.cores.is_empty() && self.gpus.is_empty()
    }

    #[inline]
    pub(crate) fn union(&self, other: &Self) -> Self {
        Self {
            cores: self.cores.union(&other.cores),
            gpus: self.gpus.union(&other.gpus),
            others: either(&self.others, &other.others),
        }
    }

    #[inline]
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self {
            cores: self.cores.intersection(&other.cores),
            gpus: self.gpus.intersection(&other.gpus),
            others: either(&self.others, &other.others),
        }
    }

    #[inline]
    pub(crate) fn difference(&self, other: &Self) -> Self {
        Self {
            cores: self.cores.difference(&other.cores),
            gpus: self.gpus.difference(&other.gpus),
            others: self.others.clone(),
        }
    }

    /// The first of `originals` with equal resources, or a new allocation.
    #[inline]
    pub(crate) fn shared_with(self, originals: [&Arc<Self>; 2]) -> Arc<Self> {
        let equal = originals.into_iter().find(|original| ***original == self);
        equal.map_or_else(|| Arc::new(self), Arc::clone)
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
