//! Kinds of nodes: the ids that positions stand for. Equal nodes share one.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use penstock_idset::IdSet;

use super::bits::{Bits, words_for};
use crate::Error;

/// Cores, or gpus, that a node can have.
pub(crate) const MOST: u64 = 1 << 20;

/// The cores and gpus of nodes. A position is the place of an id in its set.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub cores: Ids,
    pub gpus: Ids,
}

impl Kind {
    /// Words that a node of this kind has.
    pub fn words(&self) -> u32 {
        words_for(self.cores.len) + words_for(self.gpus.len)
    }
}

/// Ids in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    all: IdSet,
    pub len: u32,
    /// Whether each id is its own position.
    pub plain: bool,
}

impl Ids {
    fn new(ids: &IdSet, what: &str) -> Result<Self, Error> {
        let count = ids.len();
        let len = u32::try_from(count).ok().filter(|_| count <= MOST);
        let Some(len) = len else {
            let text = format!("expected at most {MOST} {what} on a node, found {count}");
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

    fn id(&self, position: u32) -> u32 {
        if self.plain {
            return position;
        }
        self.all.nth(u64::from(position)).unwrap_or(position)
    }

    /// The ids at these positions.
    pub fn at(&self, bits: &Bits) -> IdSet {
        if self.plain {
            let mut ids = IdSet::new();
            for range in bits.ranges() {
                ids.insert_range(range.start..=range.end - 1);
            }
            return ids;
        }
        bits.ranges().flatten().map(|it| self.id(it)).collect()
    }

    /// Runs of the ids at these positions, ascending.
    pub fn runs<'a>(&'a self, bits: &'a Bits) -> impl Iterator<Item = RangeInclusive<u32>> + 'a {
        let plain = self.plain.then(|| bits.ranges());
        let plain = plain.into_iter().flatten();
        let ids = (!self.plain).then(|| self.at(bits));
        let ranges: Vec<_> = ids.iter().flat_map(IdSet::ranges).collect();
        plain.map(|it| it.start..=it.end - 1).chain(ranges)
    }

    /// The positions of these ids, as far as they are there.
    pub fn positions(&self, ids: &IdSet) -> Bits {
        let there = ids.intersection(&self.all);
        if self.plain {
            return Bits::from_positions(&there);
        }
        let positions = there.iter().filter_map(|id| self.all.rank_of(id));
        Bits::from_positions(positions.filter_map(|it| u32::try_from(it).ok()))
    }
}

/// All kinds there have been.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds {
    kinds: Vec<Kind>,
    known: HashMap<(IdSet, IdSet), u32>,
}

impl Kinds {
    /// The kind with these cores and gpus.
    pub fn intern(&mut self, cores: &IdSet, gpus: &IdSet) -> Result<u32, Error> {
        let key = (cores.clone(), gpus.clone());
        if let Some(kind) = self.known.get(&key) {
            return Ok(*kind);
        }
        let number = u32::try_from(self.kinds.len())
            .map_err(|_| Error::new("there are too many kinds of nodes"))?;
        self.kinds.push(Kind {
            cores: Ids::new(cores, "cores")?,
            gpus: Ids::new(gpus, "gpus")?,
        });
        self.known.insert(key, number);
        Ok(number)
    }

    #[inline]
    pub fn get(&self, kind: u32) -> &Kind {
        &self.kinds[kind as usize]
    }
}
