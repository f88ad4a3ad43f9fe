//! The index of a list with many ranges: the position of each host.
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::entry::Runs;
use crate::hash::Map;
use crate::hosts::Hosts;
use crate::intervals::Interval;
use crate::piece::{Key, Keys, each_span};
use crate::stem::Parts;

/// Greatest number of ranges of a list that is searched from the start.
const MAX_SCANNED_ENTRIES: usize = 24;
/// Maximum number of searches from the start before an index is built, however many indices were discarded unused.
const MAX_SCANS: u32 = 1 << 12;

/// Hosts that count up, at their first occurrence.
#[derive(Clone, Copy, Debug)]
struct Run {
    lo: u64,
    hi: u64,
    at: usize,
}

/// The position of each host's first occurrence.
#[derive(Debug)]
pub(crate) struct Index {
    keys: Keys<'static>,
    /// The runs of each key, which are disjoint and ascending.
    parts: Map<Key, Range<usize>>,
    runs: Vec<Run>,
}

impl Index {
    fn new(hosts: Runs<'_>) -> Self {
        let mut keys = Keys::default();
        let mut found = Vec::new();
        first_parts(hosts, &mut keys, |key, run| found.push((key, run)));
        found.sort_unstable_by_key(|&(key, run)| (key, run.lo));
        let mut parts = Map::default();
        for (place, &(key, _)) in found.iter().enumerate() {
            parts.entry(key).or_insert(place..place).end = place + 1;
        }
        Self {
            keys: keys.into_owned(),
            parts,
            runs: found.into_iter().map(|(_, run)| run).collect(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        let parts = Parts::split(name);
        let number = parts.number;
        let key = Key {
            stem: self.keys.find(&parts)?,
            len: number.map_or(0, |number| number.len),
        };
        let value = number.map_or(0, |number| number.value);
        let runs = &self.runs[self.parts.get(&key)?.clone()];
        let run = runs.get(runs.partition_point(|run| run.hi < value))?;
        let offset = usize::try_from(value.checked_sub(run.lo)?).ok()?;
        Some(run.at + offset)
    }
}

/// Hands the first occurrence of every host to `found`.
fn first_parts<'a>(hosts: Runs<'a>, keys: &mut Keys<'a>, mut found: impl FnMut(Key, Run)) {
    let mut seen = Hosts::sized_for(&[hosts.entries]);
    each_span(hosts, keys, |key, span| {
        seen.insert(key, span.numbers, |Interval { lo, hi }| {
            let at = span.position(lo);
            found(key, Run { lo, hi, at });
        });
    });
}

/// A lazily built index of a list.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    index: OnceLock<Index>,
    /// Searches since the last change.
    searches: AtomicU32,
    /// Searches before an index is built, less one; grows with each one that a change made void.
    patience: u32,
}

impl Finder {
    pub(crate) const fn new() -> Self {
        Self {
            index: OnceLock::new(),
            searches: AtomicU32::new(0),
            patience: 0,
        }
    }

    /// The index, if its cost pays off.
    pub(crate) fn index(&self, hosts: Runs<'_>) -> Option<&Index> {
        if hosts.entries.len() <= MAX_SCANNED_ENTRIES {
            return None;
        }
        if let Some(index) = self.index.get() {
            return Some(index);
        }
        let searches = self.searches.fetch_add(1, Ordering::Relaxed);
        (searches > self.patience).then(|| self.index.get_or_init(|| Index::new(hosts)))
    }

    /// To be called at any change of the list.
    pub(crate) fn forget(&mut self) {
        if std::mem::take(self.searches.get_mut()) > 0 && self.index.take().is_some() {
            self.patience = (self.patience * 2 + 1).min(MAX_SCANS);
        }
    }
}

impl Clone for Finder {
    /// A copy is made to be changed: it finds out for itself.
    fn clone(&self) -> Self {
        Self {
            patience: self.patience,
            ..Self::new()
        }
    }
}
