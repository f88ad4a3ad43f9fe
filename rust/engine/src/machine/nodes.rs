//! The nodes: what each has, what of it is free, whether it is up. Flat arrays, in rank order.

use std::ops::RangeInclusive;
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

use super::Free;
use super::bits::{Bits, words_for};
use super::kind::{Kind, Kinds};
use super::share::Share;
use crate::Error;

/// Words for free cores and gpus that a machine can have: 2 GiB.
const MOST_WORDS: u32 = 1 << 28;

/// What is free of one node.
#[derive(Clone, Copy, Debug)]
struct Cell {
    cores: u32,
    gpus: u32,
    kind: u32,
    /// Where its words begin: those of the cores, then those of the gpus.
    at: u32,
}

/// A node on its way into the arrays.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub rank: u32,
    pub kind: u32,
    pub up: bool,
    /// What is free; everything where it says nothing.
    free: Option<(Bits, Bits)>,
}

/// All nodes.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    kinds: Arc<Kinds>,
    ranks: Arc<[u32]>,
    /// Where runs of nodes of one kind begin, with the kind.
    runs: Arc<[(u32, u32)]>,
    cells: Vec<Cell>,
    words: Vec<u64>,
    up: Vec<u64>,
    /// Free cores of the nodes that are up.
    free_cores: u64,
}

impl Nodes {
    /// The kinds of a set's nodes, which are down and free.
    pub fn entries(kinds: &mut Kinds, set: &ResourceSet) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::with_capacity(set.nnodes());
        for (ranks, cores, gpus) in set.runs() {
            let first = *ranks.start();
            let kind = kinds
                .intern(cores, gpus)
                .map_err(|error| Error::new(format!("rank {first}: {error}")))?;
            entries.extend(ranks.map(|rank| Entry {
                rank,
                kind,
                up: false,
                free: None,
            }));
        }
        Ok(entries)
    }

    /// These nodes, in rank order, if they are not too large.
    pub fn checked(kinds: Arc<Kinds>, entries: &[Entry]) -> Result<Self, Error> {
        let words = entries.iter();
        let words: u64 = words
            .map(|entry| u64::from(kinds.get(entry.kind).words()))
            .sum();
        if words > MOST_WORDS.into() {
            return Err(Error::new(
                "the resources have more cores and gpus than the engine can hold",
            ));
        }
        Ok(Self::new(kinds, entries))
    }

    /// These nodes, in rank order.
    pub fn new(kinds: Arc<Kinds>, entries: &[Entry]) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (entry, place) in entries.iter().zip(0..) {
            if runs.last().is_none_or(|last| last.1 != entry.kind) {
                runs.push((place, entry.kind));
            }
        }
        let mut nodes = Self {
            runs: runs.into(),
            ranks: entries.iter().map(|entry| entry.rank).collect(),
            cells: Vec::with_capacity(entries.len()),
            words: Vec::with_capacity(entries.len()),
            up: vec![0; entries.len().div_ceil(64)],
            free_cores: 0,
            kinds,
        };
        for (entry, place) in entries.iter().zip(0..) {
            nodes.push(entry, place);
        }
        nodes
    }

    fn push(&mut self, entry: &Entry, place: u32) {
        let kind = self.kinds.get(entry.kind);
        let at = self.words.len();
        let (cores, gpus) = match &entry.free {
            Some((cores, gpus)) => (cores.clone(), gpus.clone()),
            None => (Bits::full(kind.cores.len), Bits::full(kind.gpus.len)),
        };
        let (core_words, gpu_words) = (
            words_for(kind.cores.len) as usize,
            words_for(kind.gpus.len) as usize,
        );
        self.words.resize(at + core_words + gpu_words, 0);
        cores.give_to(&mut self.words[at..at + core_words]);
        gpus.give_to(&mut self.words[at + core_words..]);
        self.cells.push(Cell {
            cores: cores.len(),
            gpus: gpus.len(),
            kind: entry.kind,
            // At most `MOST_WORDS`.
            at: u32::try_from(at).unwrap_or_default(),
        });
        self.set_up(place, entry.up);
    }

    /// The nodes as they are, to be put together anew.
    pub fn to_entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.len()).map(|place| {
            let kind = self.kind(place);
            let share = self.free_share(place);
            let whole = share.ncores() == kind.cores.len && share.ngpus() == kind.gpus.len;
            Entry {
                rank: self.rank(place),
                kind: self.cells[place as usize].kind,
                up: self.is_up(place),
                free: (!whole).then_some((share.cores, share.gpus)),
            }
        })
    }

    pub fn kinds(&self) -> &Arc<Kinds> {
        &self.kinds
    }

    pub fn len(&self) -> u32 {
        // Ranks are distinct and of 32 bits, the largest of which is none.
        u32::try_from(self.cells.len()).unwrap_or(u32::MAX)
    }

    pub fn rank(&self, place: u32) -> u32 {
        self.ranks[place as usize]
    }

    /// Runs of nodes of one kind in a range of places: how many, and the number of the kind.
    pub fn kinds_of(&self, places: RangeInclusive<u32>) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (start, end) = (*places.start(), u64::from(*places.end()) + 1);
        let first = self.runs.partition_point(|run| run.0 <= start);
        let runs = self.runs.get(first.saturating_sub(1)..).unwrap_or_default();
        let runs = runs.iter().take_while(move |run| u64::from(run.0) < end);
        let ends = self.runs.get(first..).unwrap_or_default().iter();
        let ends = ends.map(|run| run.0).chain([self.len()]);
        runs.zip(ends).map(move |((begin, kind), stop)| {
            let stop = u64::from(stop).min(end) - u64::from(*begin.max(&start));
            (u32::try_from(stop).unwrap_or(u32::MAX), *kind)
        })
    }

    /// The number of the node's kind.
    pub fn kind_number(&self, place: u32) -> u32 {
        self.cells[place as usize].kind
    }

    pub fn kind(&self, place: u32) -> &Kind {
        self.kinds.get(self.cells[place as usize].kind)
    }

    #[inline]
    pub fn is_up(&self, place: u32) -> bool {
        self.up[place as usize / 64] >> (place % 64) & 1 == 1
    }

    /// Marks a node up or down. Returns whether that is new.
    pub fn set_up(&mut self, place: u32, up: bool) -> bool {
        if self.is_up(place) == up {
            return false;
        }
        self.up[place as usize / 64] ^= 1 << (place % 64);
        let cores = u64::from(self.cells[place as usize].cores);
        if up {
            self.free_cores += cores;
        } else {
            self.free_cores -= cores;
        }
        true
    }

    /// Whether every node is up.
    pub fn all_up(&self) -> bool {
        let up: u32 = self.up.iter().map(|bits| bits.count_ones()).sum();
        up == self.len()
    }

    /// The ranks of the nodes that are up.
    pub fn up(&self) -> IdSet {
        let places = (0..self.len()).filter(|place| self.is_up(*place));
        places.map(|place| self.rank(place)).collect()
    }

    /// Free cores of the nodes that are up.
    pub fn free_cores(&self) -> u64 {
        self.free_cores
    }

    #[inline]
    pub fn free(&self, place: u32) -> Free {
        let cell = self.cells[place as usize];
        Free {
            cores: cell.cores,
            gpus: cell.gpus,
            whole: self.whole_with(place, cell.cores, cell.gpus),
        }
    }

    #[inline]
    pub fn whole_with(&self, place: u32, cores: u32, gpus: u32) -> bool {
        let kind = self.kind(place);
        cores == kind.cores.len && gpus == kind.gpus.len
    }

    /// A node's words: of its cores, and of its gpus.
    #[inline]
    fn words(&self, place: u32) -> (&[u64], &[u64]) {
        let cell = self.cells[place as usize];
        let kind = self.kinds.get(cell.kind);
        let at = cell.at as usize;
        let gpus = at + words_for(kind.cores.len) as usize;
        let end = gpus + words_for(kind.gpus.len) as usize;
        (&self.words[at..gpus], &self.words[gpus..end])
    }

    /// The lowest cores and gpus that are free, of which there are so many.
    #[inline]
    pub fn share(&self, place: u32, cores: u32, gpus: u32) -> Share {
        let words = self.words(place);
        Share {
            place,
            cores: Bits::lowest(words.0, cores),
            gpus: Bits::lowest(words.1, gpus),
        }
    }

    /// Everything that is free.
    pub fn free_share(&self, place: u32) -> Share {
        let cell = self.cells[place as usize];
        self.share(place, cell.cores, cell.gpus)
    }

    /// Whether all of a share is free.
    pub fn is_free(&self, share: &Share) -> bool {
        let words = self.words(share.place);
        share.cores.is_within(words.0) && share.gpus.is_within(words.1)
    }

    /// The part of a share that is free.
    pub fn free_of(&self, share: &Share) -> Share {
        let words = self.words(share.place);
        Share {
            place: share.place,
            cores: share.cores.within(words.0),
            gpus: share.gpus.within(words.1),
        }
    }

    /// Takes a share away.
    #[inline]
    pub fn take(&mut self, share: &Share) {
        let (cores, gpus) = self.exchange(share, Bits::take_from);
        let cell = &mut self.cells[share.place as usize];
        cell.cores -= cores;
        cell.gpus -= gpus;
        if self.is_up(share.place) {
            self.free_cores -= u64::from(cores);
        }
    }

    /// Gives a share back.
    #[inline]
    pub fn give(&mut self, share: &Share) {
        let (cores, gpus) = self.exchange(share, Bits::give_to);
        let cell = &mut self.cells[share.place as usize];
        cell.cores += cores;
        cell.gpus += gpus;
        if self.is_up(share.place) {
            self.free_cores += u64::from(cores);
        }
    }

    #[inline]
    fn exchange(&mut self, share: &Share, apply: impl Fn(&Bits, &mut [u64]) -> u32) -> (u32, u32) {
        let cell = self.cells[share.place as usize];
        let kind = self.kinds.get(cell.kind);
        let at = cell.at as usize;
        let gpus = at + words_for(kind.cores.len) as usize;
        let cores = apply(&share.cores, &mut self.words[at..gpus]);
        if share.gpus.is_empty() {
            return (cores, 0);
        }
        let end = gpus + words_for(kind.gpus.len) as usize;
        (cores, apply(&share.gpus, &mut self.words[gpus..end]))
    }

    /// Bytes of the arrays.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.ranks)
            + size_of_val(&*self.runs)
            + self.cells.capacity() * size_of::<Cell>()
            + (self.words.capacity() + self.up.capacity()) * size_of::<u64>()
    }
}
