//! The stems of a list, to which its runs refer by number.
use std::sync::Arc;

use crate::hash::Table;
use crate::stem::{Parts, Stem};

/// The number of stems that a list may have beyond two for each of its runs.
const SPARE_STEMS: usize = 16;
/// The number of stems, from the last, among which one is searched for.
const RECENT_STEMS: usize = 16;

/// The stems of the runs of a list.
///
/// They may be more than its runs have, within the limit of [`Self::are_too_many_for`], and some may be equal. Copies of
/// a list share them.
#[derive(Clone, Debug, Default)]
pub(crate) enum Stems {
    #[default]
    None,
    One(Arc<Stem>),
    Many(Arc<Vec<Arc<Stem>>>),
}

impl Stems {
    /// The stems in the order of their numbers.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[Arc<Stem>] {
        match self {
            Self::None => &[],
            Self::One(stem) => std::slice::from_ref(stem),
            Self::Many(stems) => stems,
        }
    }

    /// The stem with a number that this has returned.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> &Stem {
        &self.as_slice()[number as usize]
    }

    /// Adds a stem, and returns its number.
    pub(crate) fn push(&mut self, stem: Arc<Stem>) -> u32 {
        let number = self.as_slice().len();
        match self {
            Self::None => *self = Self::One(stem),
            Self::One(first) => *self = Self::Many(Arc::new(vec![Arc::clone(first), stem])),
            Self::Many(stems) => Arc::make_mut(stems).push(stem),
        }
        u32::try_from(number).expect("a list has fewer than 32 bits count of stems")
    }

    /// The number of a stem of another list, which is added unless it is one of the last, or equal to one of a few.
    pub(crate) fn adopt(&mut self, stem: &Arc<Stem>) -> u32 {
        let stems = self.as_slice();
        let start = stems.len().saturating_sub(RECENT_STEMS);
        let recent = &stems[start..];
        let mut known = recent.iter().rposition(|other| Arc::ptr_eq(other, stem));
        if known.is_none() && start == 0 {
            known = recent.iter().rposition(|other| other == stem);
        }
        match known.and_then(|place| u32::try_from(start + place).ok()) {
            Some(number) => number,
            None => self.push(Arc::clone(stem)),
        }
    }

    /// Whether the numbers of both are the same.
    fn is_shared_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::One(a), Self::One(b)) => Arc::ptr_eq(a, b),
            (Self::Many(a), Self::Many(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Whether these are too many for a list of `runs` runs, whose memory is to be proportional to these. The limit is
    /// twice what they need, so that stems are seldom removed.
    #[inline]
    pub(crate) fn are_too_many_for(&self, runs: usize) -> bool {
        match self {
            Self::Many(stems) => stems.len() > runs.saturating_mul(2).saturating_add(SPARE_STEMS),
            _ => false,
        }
    }
}

impl From<Vec<Arc<Stem>>> for Stems {
    fn from(stems: Vec<Arc<Stem>>) -> Self {
        match <[_; 1]>::try_from(stems) {
            Ok([stem]) => Self::One(stem),
            Err(stems) => Self::Many(Arc::new(stems)),
        }
    }
}

/// Finds stems of a list that is being read by their texts, so that each is stored once.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    table: Table,
    /// The numbers of the stems in the list.
    numbers: Vec<u32>,
}

impl Interner {
    /// The number of the stem of these parts, which is added if it is new.
    pub(crate) fn intern(&mut self, parts: &Parts<'_>, stems: &mut Stems) -> u32 {
        let hash = parts.hash();
        let is = |index: usize| stems.get(self.numbers[index]).is_of(parts);
        if let Some(index) = self.table.find(hash, is) {
            return self.numbers[index as usize];
        }
        let number = stems.push(Arc::new(Stem::hashed(parts, hash)));
        self.table.push(hash);
        self.numbers.push(number);
        number
    }
}

/// The numbers that the stems of a list have in another list, to which its runs are copied.
#[derive(Debug)]
pub(crate) struct Renumber {
    is_same: bool,
    /// Whether the runs to be copied are enough for a number for each stem.
    are_many: bool,
    /// The last number, and what it is in the other list.
    last: Option<(u32, u32)>,
    /// The numbers in the other list, or [`UNKNOWN`], if many runs of several stems are copied.
    numbers: Vec<u32>,
}

const UNKNOWN: u32 = u32::MAX;

impl Renumber {
    /// Begins to copy at most `runs` runs to a list, which takes over the stems if it has none.
    pub(crate) fn new(from: &Stems, to: &mut Stems, runs: usize) -> Self {
        let are_many = !from.are_too_many_for(runs);
        if are_many && matches!(to, Stems::None) {
            *to = from.clone();
        }
        Self {
            is_same: from.is_shared_with(to),
            are_many,
            last: None,
            numbers: Vec::new(),
        }
    }

    /// The number in the other list.
    #[inline]
    pub(crate) fn number(&mut self, number: u32, from: &Stems, to: &mut Stems) -> u32 {
        match self.last {
            _ if self.is_same => number,
            Some((last, there)) if last == number => there,
            _ => self.other_number(number, from, to),
        }
    }

    #[inline(never)]
    fn other_number(&mut self, number: u32, from: &Stems, to: &mut Stems) -> u32 {
        let stems = from.as_slice();
        let stem = &stems[number as usize];
        if let Some((last, there)) = self.last
            && self.are_many
            && self.numbers.is_empty()
        {
            self.numbers = vec![UNKNOWN; stems.len()];
            self.numbers[last as usize] = there;
        }
        let there = match self.numbers.get(number as usize) {
            None | Some(&UNKNOWN) => to.adopt(stem),
            Some(&known) => known,
        };
        if let Some(known) = self.numbers.get_mut(number as usize) {
            *known = there;
        }
        self.last = Some((number, there));
        there
    }
}
