//! The resources of one rank.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_idset::IdSet;

use crate::raw::Carried;

/// The resources of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Children {
    pub(crate) cores: IdSet,
    rest: Rest,
}

/// Gpus, and unknown keys with their opaque values, which few ranks have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rest {
    Gpus(IdSet),
    /// There is an unknown key.
    Extended(Box<Extended>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Extended {
    gpus: IdSet,
    others: Others,
}

/// Unknown keys with their opaque values.
pub(crate) type Others = BTreeMap<String, Carried>;

// With the counters of an `Arc` it fills a cache line.
const _: () = assert!(size_of::<Children>() == 48);

impl Default for Rest {
    fn default() -> Self {
        Self::Gpus(IdSet::new())
    }
}

impl Rest {
    fn new(gpus: IdSet, others: Others) -> Self {
        if others.is_empty() {
            Self::Gpus(gpus)
        } else {
            Self::Extended(Box::new(Extended { gpus, others }))
        }
    }

    /// The result of an operation on the gpus, with the keys of both. For a key of both it has the left value.
    #[inline]
    fn combine(&self, other: &Self, operation: impl Fn(&IdSet, &IdSet) -> IdSet) -> Self {
        match (self, other) {
            (Self::Gpus(left), Self::Gpus(right)) => Self::Gpus(operation(left, right)),
            _ => self.extended(other, operation(self.gpus(), other.gpus())),
        }
    }

    #[cold]
    fn extended(&self, other: &Self, gpus: IdSet) -> Self {
        let mut others = other.others().cloned().unwrap_or_default();
        others.extend(self.others().cloned().unwrap_or_default());
        Self::new(gpus, others)
    }

    #[inline]
    fn gpus(&self) -> &IdSet {
        match self {
            Self::Gpus(gpus) => gpus,
            Self::Extended(extended) => &extended.gpus,
        }
    }

    fn others(&self) -> Option<&Others> {
        match self {
            Self::Gpus(_) => None,
            Self::Extended(extended) => Some(&extended.others),
        }
    }
}

impl Children {
    pub(crate) fn new(cores: IdSet, gpus: IdSet, others: Others) -> Self {
        let rest = Rest::new(gpus, others);
        Self { cores, rest }
    }

    #[inline]
    pub(crate) fn gpus(&self) -> &IdSet {
        self.rest.gpus()
    }

    /// The keys that RFC 20 reserves; they stay with the rank. `None` for none.
    pub(crate) fn others(&self) -> Option<&Others> {
        self.rest.others()
    }

    /// Neither core nor gpu: the resources of a removed rank, or of a rank without any.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        self.cores.is_empty() && self.gpus().is_empty()
    }

    #[inline]
    pub(crate) fn union(&self, other: &Self) -> Self {
        Self {
            cores: self.cores.union(&other.cores),
            rest: self.rest.combine(&other.rest, IdSet::union),
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "without it the result is copied twice for each rank, which costs a tenth"
    )]
    #[inline(always)]
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self {
            cores: self.cores.intersection(&other.cores),
            rest: self.rest.combine(&other.rest, IdSet::intersection),
        }
    }

    /// The cores and gpus that `other` lacks, with all further keys.
    #[inline]
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let gpus = self.gpus().difference(other.gpus());
        Self {
            cores: self.cores.difference(&other.cores),
            rest: match &self.rest {
                Rest::Gpus(_) => Rest::Gpus(gpus),
                Rest::Extended(extended) => Rest::new(gpus, extended.others.clone()),
            },
        }
    }

    /// The first of `originals` with equal resources, or a new allocation.
    #[expect(
        clippy::inline_always,
        reason = "without it the result is copied twice for each rank, which costs a tenth"
    )]
    #[inline(always)]
    pub(crate) fn shared_with(self, originals: [&Arc<Self>; 2]) -> Arc<Self> {
        let equal = originals.into_iter().find(|original| ***original == self);
        equal.map_or_else(|| Arc::new(self), Arc::clone)
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.cores.is_subset(&other.cores) && self.gpus().is_subset(other.gpus())
    }

    /// Whether nothing is shared; two ranks without cores and gpus share the rank itself.
    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        !(self.is_bare() && other.is_bare())
            && self.cores.is_disjoint(&other.cores)
            && self.gpus().is_disjoint(other.gpus())
    }
}
