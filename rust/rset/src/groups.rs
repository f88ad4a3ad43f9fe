//! Groups of ranks with equal resources, for output.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::children::Children;
use crate::execution::{Segment, Segments};

/// The runs of ranks, grouped by equal resources, in the order of the groups' first ranks.
pub(crate) struct Groups<'a> {
    runs: &'a [Segment],
    /// The texts of all groups, concatenated.
    text: Vec<u8>,
    texts: Vec<GroupText>,
    /// For each run the next one of its group.
    next: Vec<Option<usize>>,
}

/// The text of the resources of some runs, and these runs.
struct GroupText {
    text: Range<usize>,
    first: usize,
    last: usize,
    /// An earlier group whose text has the same hash.
    collides: Option<usize>,
}

impl<'a> Groups<'a> {
    /// Groups runs by the texts that `write` makes of their resources.
    pub(crate) fn new(segments: &'a Segments, write: impl Fn(&mut Vec<u8>, &Children)) -> Self {
        let runs = segments.as_slice();
        // Most jobs have one: it needs no index.
        if let [run] = runs {
            let mut text = Vec::with_capacity(64);
            write(&mut text, &run.children);
            let only = GroupText {
                text: 0..text.len(),
                first: 0,
                last: 0,
                collides: None,
            };
            return Self {
                runs,
                text,
                texts: vec![only],
                next: vec![None],
            };
        }
        let hasher = RandomState::new();
        let mut index: HashMap<u64, usize, BuildHasherDefault<IdentityHasher>> = HashMap::default();
        let mut text = Vec::with_capacity(runs.len().min(1 << 16) * 64);
        let mut texts: Vec<GroupText> = Vec::new();
        let mut next = vec![None; runs.len()];
        // The resources of the run before, and its group.
        let mut before: Option<(&Arc<Children>, usize)> = None;
        for (run, segment) in runs.iter().enumerate() {
            let start = text.len();
            let known = match before {
                // Shared by most neighbours: these are neither written nor looked up again.
                Some((children, at)) if Arc::ptr_eq(children, &segment.children) => Some(at),
                _ => {
                    write(&mut text, &segment.children);
                    let entry = index.entry(hasher.hash_one(&text[start..]));
                    let latest = match &entry {
                        Entry::Occupied(known) => Some(*known.get()),
                        Entry::Vacant(_) => None,
                    };
                    let mut colliding = std::iter::successors(latest, |&at| texts[at].collides);
                    let known = colliding.find(|&at| text[texts[at].text.clone()] == text[start..]);
                    if known.is_none() {
                        entry.insert_entry(texts.len());
                        texts.push(GroupText {
                            text: start..text.len(),
                            first: run,
                            last: run,
                            collides: latest,
                        });
                    }
                    known
                }
            };
            if let Some(at) = known {
                text.truncate(start);
                next[texts[at].last] = Some(run);
                texts[at].last = run;
            }
            before = Some((&segment.children, known.unwrap_or(texts.len() - 1)));
        }
        Self {
            runs,
            text,
            texts,
            next,
        }
    }

    /// The approximate size of the groups with their ranks, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.text.len() + self.runs.len() * 20
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Group<'_>> {
        let texts = self.texts.iter();
        texts.map(|group| Group {
            groups: self,
            group,
        })
    }
}

/// The ranks of one group, and the text of their resources.
pub(crate) struct Group<'a> {
    groups: &'a Groups<'a>,
    group: &'a GroupText,
}

impl Group<'_> {
    pub(crate) fn text(&self) -> &[u8] {
        &self.groups.text[self.group.text.clone()]
    }

    pub(crate) fn ranks(&self) -> impl Iterator<Item = RangeInclusive<u32>> {
        let runs = std::iter::successors(Some(self.group.first), |&run| self.groups.next[run]);
        runs.map(|run| self.groups.runs[run].ranks())
    }

    pub(crate) fn is_one_rank(&self) -> bool {
        self.group.first == self.group.last && self.groups.runs[self.group.first].len() == 1
    }
}

/// A hasher that returns the number itself.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
