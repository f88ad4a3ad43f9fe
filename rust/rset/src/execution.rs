//! The value of the key `execution` of R (RFC 20): cores and gpus as runs of neighbouring ranks with equal resources,
//! hosts, properties, times.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;

use crate::children::Children;
use crate::overlay::{Run, overlay};
use crate::raw::Carried;
use crate::recent::Recent;

/// The value of the key `execution`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Execution {
    pub(crate) segments: Segments,
    /// The ranks of `segments`.
    pub(crate) ranks: IdSet,
    /// One host for each rank, in the order of ranks.
    pub(crate) hosts: Hostlist,
    pub(crate) properties: BTreeMap<String, IdSet>,
    pub(crate) starttime: Option<f64>,
    pub(crate) expiration: Option<f64>,
    pub(crate) nslots: Option<u64>,
    /// Keys of `execution` that RFC 20 does not name.
    pub(crate) others: BTreeMap<String, Carried>,
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

/// The maps whose ranks stay in a combination although the other map lacks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpaired {
    Both,
    Left,
    Neither,
}

/// Runs in ascending order that neither overlap nor continue each other, so that equal maps are equal lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segments(Vec<Segment>);

impl Segments {
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Segment> {
        self.0.iter()
    }

    pub(crate) fn as_slice(&self) -> &[Segment] {
        &self.0
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
    pub(crate) fn push(&mut self, ranks: RangeInclusive<u32>, children: Arc<Children>) {
        let (first, last) = ranks.into_inner();
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

    /// Sets the resources of one rank. Cheap at the end; elsewhere the later runs move.
    pub(crate) fn set(&mut self, rank: u32, children: Children) {
        if self.0.last().is_none_or(|end| end.last < rank) {
            let children = match self.0.last() {
                Some(end) if *end.children == children => Arc::clone(&end.children),
                _ => Arc::new(children),
            };
            self.push(rank..=rank, children);
            return;
        }
        let at = self.0.partition_point(|segment| segment.last < rank);
        let children = Arc::new(children);
        // The run that has the rank, if any, and both neighbours: they may be split or merged.
        let (from, to) = (at.saturating_sub(1), (at + 2).min(self.0.len()));
        let mut around = Self::default();
        let mut written = false;
        for segment in &self.0[from..to] {
            if !written && rank < segment.first {
                around.push(rank..=rank, Arc::clone(&children));
                written = true;
            }
            if written || rank > segment.last {
                around.push(segment.ranks(), Arc::clone(&segment.children));
                continue;
            }
            if segment.first < rank {
                around.push(segment.first..=rank - 1, Arc::clone(&segment.children));
            }
            around.push(rank..=rank, Arc::clone(&children));
            written = true;
            if rank < segment.last {
                around.push(rank + 1..=segment.last, Arc::clone(&segment.children));
            }
        }
        self.0.splice(from..to, around.0);
    }

    /// Appends the runs of `from` with ranks in `range`, cut to it.
    pub(crate) fn extend_within(&mut self, from: &Self, range: &RangeInclusive<u32>) {
        let (first, last) = (*range.start(), *range.end());
        let rest = from.starting_at(first);
        let runs = &rest[..rest.partition_point(|segment| segment.first <= last)];
        let Some((head, tail)) = runs.split_first() else {
            return;
        };
        let children = Arc::clone(&head.children);
        self.push(head.first.max(first)..=head.last.min(last), children);
        // The others cannot continue the run before them, since they do not in `from`.
        self.0.extend_from_slice(tail);
        if let (false, Some(end)) = (tail.is_empty(), self.0.last_mut()) {
            end.last = end.last.min(last);
        }
    }

    /// Collects runs in any order; a rank in several runs gets the resources of all.
    pub(crate) fn collect(mut runs: Vec<Segment>) -> Self {
        let ascends = |pair: &[Segment]| pair[0].last < pair[1].first;
        if !runs.windows(2).all(ascends) {
            runs.sort_by_key(|run| run.first);
            if !runs.windows(2).all(ascends) {
                return Self::union_all(runs.into_iter().map(|run| Self(vec![run])).collect());
            }
        }
        let mut segments = Self(Vec::with_capacity(runs.len()));
        for run in runs {
            segments.push(run.ranks(), run.children);
        }
        segments
    }

    /// Returns the union of many maps, in a tree of pairs: each run is visited at most once a level.
    fn union_all(mut maps: Vec<Self>) -> Self {
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

    /// The resources that each rank has in either map.
    pub(crate) fn union(&self, other: &Self) -> Self {
        self.combine(other, Unpaired::Both, |left, right| {
            Some(left.union(right).shared_with([left, right]))
        })
    }

    /// Combines the resources of each rank of both maps by `choose`, and keeps those of ranks of the maps in `unpaired`.
    /// Omits ranks for which `choose` returns `None`.
    ///
    /// `choose` must depend on its arguments alone: its results for recent pairs are cached.
    pub(crate) fn combine(
        &self,
        other: &Self,
        unpaired: Unpaired,
        choose: impl Fn(&Arc<Children>, &Arc<Children>) -> Option<Arc<Children>>,
    ) -> Self {
        let length = self.0.len().max(other.0.len());
        let mut combined = Self(Vec::with_capacity(length));
        let mut recent = Recent::new(length);
        for part in overlay(self.runs(), other.runs()) {
            let chosen = match (part.left, part.right) {
                (Some(left), Some(right)) => {
                    recent.get_or_make(left, right, || choose(left, right))
                }
                (Some(left), None) if unpaired != Unpaired::Neither => Some(Arc::clone(left)),
                (None, Some(right)) if unpaired == Unpaired::Both => Some(Arc::clone(right)),
                _ => None,
            };
            if let Some(children) = chosen {
                combined.push(part.first..=part.last, children);
            }
        }
        combined
    }

    /// The ranks.
    pub(crate) fn ranks(&self) -> IdSet {
        self.0.iter().map(Segment::ranks).collect()
    }

    /// The runs in the form that [`overlay`] takes.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run<&Arc<Children>>> {
        self.0.iter().map(|segment| Run {
            first: segment.first,
            last: segment.last,
            value: &segment.children,
        })
    }
}
