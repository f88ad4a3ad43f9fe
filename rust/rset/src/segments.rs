//! Ranks to cores and gpus, as runs of neighbouring ranks with equal ones.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use penstock_idset::IdSet;

/// The resources of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Children {
    pub(crate) cores: IdSet,
    pub(crate) gpus: IdSet,
}

impl Children {
    /// Neither core nor gpu: what is left of a rank that was taken away, or a rank that never had any.
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

    /// Bare ranks share themselves.
    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        !(self.is_bare() && other.is_bare())
            && self.cores.is_disjoint(&other.cores)
            && self.gpus.is_disjoint(&other.gpus)
    }
}

/// Keeps one copy of equal resources.
#[derive(Default)]
pub(crate) struct Interner(HashSet<Arc<Children>>);

impl Interner {
    pub(crate) fn share(&mut self, children: Children) -> Arc<Children> {
        if let Some(shared) = self.0.get(&children) {
            return Arc::clone(shared);
        }
        let shared = Arc::new(children);
        self.0.insert(Arc::clone(&shared));
        shared
    }
}

/// A run of ranks with equal resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) children: Arc<Children>,
}

impl Segment {
    pub(crate) fn ranks(&self) -> RangeInclusive<u32> {
        self.first..=self.last
    }

    pub(crate) fn len(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }

    fn continues(&self, first: u32, children: &Arc<Children>) -> bool {
        self.last.checked_add(1) == Some(first)
            && (Arc::ptr_eq(&self.children, children) || self.children == *children)
    }
}

/// Runs in ascending order that neither overlap nor continue each other, so equal maps are equal lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segments(Vec<Segment>);

impl Segments {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Segment> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The runs that have a rank of at least `rank`.
    pub(crate) fn starting_at(&self, rank: u32) -> &[Segment] {
        let at = self.0.partition_point(|segment| segment.last < rank);
        &self.0[at..]
    }

    pub(crate) fn find(&self, rank: u32) -> Option<&Segment> {
        self.starting_at(rank)
            .first()
            .filter(|segment| segment.first <= rank)
    }

    /// Adds a run after all others.
    pub(crate) fn push(&mut self, first: u32, last: u32, children: Arc<Children>) {
        debug_assert!(
            first <= last && self.0.last().is_none_or(|end| end.last < first),
            "runs come in order"
        );
        match self.0.last_mut() {
            Some(end) if end.continues(first, &children) => end.last = last,
            _ => self.0.push(Segment {
                first,
                last,
                children,
            }),
        }
    }

    /// Gives one rank its resources, whatever it had before. Cheap at the end; elsewhere it moves what follows.
    pub(crate) fn set(&mut self, rank: u32, children: Children) {
        if self.0.last().is_none_or(|end| end.last < rank) {
            let children = match self.0.last() {
                Some(end) if *end.children == children => Arc::clone(&end.children),
                _ => Arc::new(children),
            };
            self.push(rank, rank, children);
            return;
        }
        let at = self.0.partition_point(|segment| segment.last < rank);
        let children = Arc::new(children);
        // The run it falls into, if any, and both neighbours: they may be split, or grow together.
        let (from, to) = (at.saturating_sub(1), (at + 2).min(self.0.len()));
        let mut around = Self::default();
        let mut written = false;
        for segment in &self.0[from..to] {
            if !written && rank < segment.first {
                around.push(rank, rank, Arc::clone(&children));
                written = true;
            }
            if written || rank > segment.last {
                around.push(segment.first, segment.last, Arc::clone(&segment.children));
                continue;
            }
            if segment.first < rank {
                around.push(segment.first, rank - 1, Arc::clone(&segment.children));
            }
            around.push(rank, rank, Arc::clone(&children));
            written = true;
            if rank < segment.last {
                around.push(rank + 1, segment.last, Arc::clone(&segment.children));
            }
        }
        self.0.splice(from..to, around.0);
    }

    /// The union of many maps, in a tree of pairs: no run is visited more than once a level.
    pub(crate) fn union_all(mut maps: Vec<Self>) -> Self {
        while maps.len() > 1 {
            let mut pairs = maps.into_iter();
            let mut merged = Vec::with_capacity(pairs.len().div_ceil(2));
            while let Some(left) = pairs.next() {
                merged.push(match pairs.next() {
                    Some(right) => left.union(&right),
                    None => left,
                });
            }
            maps = merged;
        }
        maps.pop().unwrap_or_default()
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut union = Self::default();
        let mut interner = Interner::default();
        for part in overlay(self, other) {
            let children = match (part.left, part.right) {
                (Some(left), Some(right)) if left != right => interner.share(left.union(right)),
                (Some(one), _) | (None, Some(one)) => Arc::clone(one),
                (None, None) => continue,
            };
            union.push(part.first, part.last, children);
        }
        union
    }
}

/// A run of ranks over which neither of two maps changes.
pub(crate) struct Part<'a> {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) left: Option<&'a Arc<Children>>,
    pub(crate) right: Option<&'a Arc<Children>>,
}

impl Part<'_> {
    pub(crate) fn len(&self) -> usize {
        (self.last - self.first) as usize + 1
    }
}

/// Both maps side by side, in ascending order of ranks; ranks that neither has are left out.
pub(crate) fn overlay<'a>(
    left: &'a Segments,
    right: &'a Segments,
) -> impl Iterator<Item = Part<'a>> {
    let (mut left, mut right) = (Runs::new(left), Runs::new(right));
    std::iter::from_fn(move || {
        let (first, last, has_left, has_right) = match (left.run(), right.run()) {
            (None, None) => return None,
            (Some((first, last)), None) => (first, last, true, false),
            (None, Some((first, last))) => (first, last, false, true),
            (Some((first, last)), Some((other, _))) if first < other => {
                (first, last.min(other - 1), true, false)
            }
            (Some((other, _)), Some((first, last))) if first < other => {
                (first, last.min(other - 1), false, true)
            }
            (Some((first, last)), Some((_, other))) => (first, last.min(other), true, true),
        };
        Some(Part {
            first,
            last,
            left: if has_left { left.take(last) } else { None },
            right: if has_right { right.take(last) } else { None },
        })
    })
}

/// The runs of one map, of the first of which a part may be taken.
struct Runs<'a> {
    segments: &'a [Segment],
    first: u32,
}

impl<'a> Runs<'a> {
    fn new(segments: &'a Segments) -> Self {
        let segments = segments.0.as_slice();
        Self {
            segments,
            first: segments.first().map_or(0, |segment| segment.first),
        }
    }

    fn run(&self) -> Option<(u32, u32)> {
        self.segments
            .first()
            .map(|segment| (self.first, segment.last))
    }

    /// Takes the ranks up to `last`, which lies in the first run.
    fn take(&mut self, last: u32) -> Option<&'a Arc<Children>> {
        let (segment, rest) = self.segments.split_first()?;
        if last == segment.last {
            self.segments = rest;
            self.first = rest.first().map_or(0, |segment| segment.first);
        } else {
            self.first = last + 1;
        }
        Some(&segment.children)
    }
}
