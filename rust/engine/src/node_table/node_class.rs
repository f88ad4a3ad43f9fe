//! Node classes: nodes with the same cores and gpus share one.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use penstock_idset::IdSet;

use super::bits::{Bits, words_for};
use crate::Error;
use crate::ids::NodeClassId;

/// The most cores, and the most gpus, that a node can have.
pub(crate) const MAX_IDS_PER_NODE: u64 = 1 << 20;

/// Numbers of cores and gpus: of a node, of a slot, or of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Amounts {
    pub cores: u32,
    pub gpus: u32,
}

impl Amounts {
    /// The number of slots that fit into these cores and gpus.
    #[inline]
    pub fn slots(self, per_slot: Self) -> u32 {
        let by_cores = self.cores / per_slot.cores.max(1);
        match self.gpus.checked_div(per_slot.gpus) {
            Some(by_gpus) => by_cores.min(by_gpus),
            None => by_cores,
        }
    }
}

/// The cores and gpus of the nodes of a class.
#[derive(Clone, Debug)]
pub(crate) struct NodeClass {
    pub cores: Ids,
    pub gpus: Ids,
}

impl From<&NodeClass> for Amounts {
    fn from(class: &NodeClass) -> Self {
        Self {
            cores: class.cores.len,
            gpus: class.gpus.len,
        }
    }
}

impl NodeClass {
    /// The number of words that a node of this class takes.
    pub fn words(&self) -> u32 {
        words_for(self.cores.len) + words_for(self.gpus.len)
    }
}

/// The ids of cores, or of gpus. Bit `i` of a node's words stands for the `i`th id.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    all: IdSet,
    pub len: u32,
    /// Whether the ids are 0 to `len - 1`, so that each equals its index.
    pub plain: bool,
}

impl Ids {
    fn new(ids: &IdSet, what: &str) -> Result<Self, Error> {
        let count = ids.len();
        let len = u32::try_from(count)
            .ok()
            .filter(|_| count <= MAX_IDS_PER_NODE);
        let Some(len) = len else {
            let text =
                format!("expected at most {MAX_IDS_PER_NODE} {what} on a node, found {count}");
            return Err(Error::new(text));
        };
        let plain = len == 0 || ids.last() == Some(len - 1);
        Ok(Self {
            all: ids.clone(),
            len,
            plain,
        })
    }

    /// The ids, in order.
    pub fn ids(&self) -> &IdSet {
        &self.all
    }

    fn id(&self, index: u32) -> u32 {
        if self.plain {
            return index;
        }
        self.all.nth(u64::from(index)).unwrap_or(index)
    }

    /// The ids at these indices.
    pub fn at(&self, bits: &Bits) -> IdSet {
        if self.plain {
            let mut ids = IdSet::new();
            for range in bits.ranges() {
                ids.insert_range(range.start..=range.end - 1);
            }
            return ids;
        }
        bits.ranges()
            .flatten()
            .map(|index| self.id(index))
            .collect()
    }

    /// Runs of consecutive ids at these indices, ascending.
    pub fn runs<'a>(&'a self, bits: &'a Bits) -> impl Iterator<Item = RangeInclusive<u32>> + 'a {
        let plain = self.plain.then(|| bits.ranges());
        let plain = plain.into_iter().flatten();
        let ids = (!self.plain).then(|| self.at(bits));
        let ranges: Vec<_> = ids.iter().flat_map(IdSet::ranges).collect();
        plain.map(|range| range.start..=range.end - 1).chain(ranges)
    }

    /// The indices of the given ids that a node of the class has.
    pub fn indices(&self, ids: &IdSet) -> Bits {
        let known = ids.intersection(&self.all);
        if self.plain {
            return Bits::from_indices(&known);
        }
        let indices = known.iter().filter_map(|id| self.all.find(id));
        Bits::from_indices(indices.filter_map(|index| u32::try_from(index).ok()))
    }
}

/// All node classes there have been.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeClasses {
    classes: Vec<NodeClass>,
    known: HashMap<(IdSet, IdSet), NodeClassId>,
}

impl NodeClasses {
    /// The class with these cores and gpus.
    pub fn intern(&mut self, cores: &IdSet, gpus: &IdSet) -> Result<NodeClassId, Error> {
        let key = (cores.clone(), gpus.clone());
        if let Some(class) = self.known.get(&key) {
            return Ok(*class);
        }
        let id = u32::try_from(self.classes.len())
            .map(NodeClassId::new)
            .map_err(|_| Error::new("the nodes have too many different sets of cores and gpus"))?;
        self.classes.push(NodeClass {
            cores: Ids::new(cores, "cores")?,
            gpus: Ids::new(gpus, "gpus")?,
        });
        self.known.insert(key, id);
        Ok(id)
    }

    #[inline]
    pub fn get(&self, class: NodeClassId) -> &NodeClass {
        &self.classes[class.index()]
    }
}
