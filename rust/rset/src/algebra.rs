//! Set operations; the crate's documentation says what becomes of times, properties and the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;

use crate::hosts::{HostsBuilder, append};
use crate::properties;
use crate::raw::Carried;
use crate::segments::{Children, Interner, Part, Segments, overlay};
use crate::set::{Execution, check_order};
use crate::{Error, ResourceSet};

impl ResourceSet {
    /// What is in either set. Fails if a rank has different hosts in them; see the crate for the rest.
    pub fn union(&self, other: &Self) -> Result<Self, Error> {
        self.combine(other, |left, right| {
            let disjoint = left.is_disjoint(right);
            let (segments, hosts) = left.select(right, |part| match part {
                (Some(left), Some(right)) => Some(left.union(right)),
                (one, other) => one.or(other).cloned(),
            })?;
            let mut properties = left.properties.clone();
            for (name, ranks) in &right.properties {
                properties
                    .entry(name.clone())
                    .or_default()
                    .union_with(ranks);
            }
            let nslots = if segments == left.segments {
                left.nslots
            } else {
                disjoint.then(|| add(left.nslots, right.nslots)).flatten()
            };
            Ok(left.derive(segments, hosts, properties, nslots))
        })
    }

    /// What is in both sets. Fails if a rank has different hosts in them, or if they are valid at different times.
    pub fn intersection(&self, other: &Self) -> Result<Self, Error> {
        self.combine(other, |left, right| {
            let (segments, hosts) = left.select(right, |part| match part {
                (Some(left), Some(right)) => {
                    let both_bare = left.is_bare() && right.is_bare();
                    Some(left.intersection(right)).filter(|shared| both_bare || !shared.is_bare())
                }
                _ => None,
            })?;
            let mut result = left.keep(segments, hosts);
            let times = |of: fn(&Execution) -> Option<f64>| [of(left), of(right)].into_iter().flatten();
            result.starttime = times(|execution| execution.starttime).reduce(f64::max);
            result.expiration = times(|execution| execution.expiration).reduce(f64::min);
            check_order(result.starttime, result.expiration).map_err(|_| {
                Error::refused("the sets are valid at different times: the start of one is not before the expiration of the other")
            })?;
            Ok(result)
        })
    }

    /// What is in this set but not in the other. Fails if a rank has different hosts in them.
    pub fn difference(&self, other: &Self) -> Result<Self, Error> {
        self.combine(other, |left, right| {
            let (segments, hosts) = left.select(right, |part| match part {
                (Some(left), Some(right)) if left.is_bare() => {
                    Some(left.clone()).filter(|_| !right.is_bare())
                }
                (Some(left), Some(right)) => {
                    Some(left.difference(right)).filter(|rest| !rest.is_bare())
                }
                (left, _) => left.cloned(),
            })?;
            Ok(left.keep(segments, hosts))
        })
    }

    /// This set, and the other's nodes after it: they get the ranks after this set's last, in their order.
    ///
    /// Fails if there are not enough ranks.
    pub fn append(&self, other: &Self) -> Result<Self, Error> {
        self.combine(other, |left, right| {
            let first = left.ranks.last().map_or(0, |last| u64::from(last) + 1);
            let moved = right.renumber(first)?;
            let mut segments = left.segments.clone();
            for segment in moved.segments.iter() {
                segments.push(segment.first, segment.last, Arc::clone(&segment.children));
            }
            let mut hosts = left.hosts.clone();
            append(&mut hosts, &moved.hosts)?;
            let mut properties = left.properties.clone();
            for (name, ranks) in &moved.properties {
                properties
                    .entry(name.clone())
                    .or_default()
                    .union_with(ranks);
            }
            let nslots = if moved.segments.is_empty() {
                left.nslots
            } else {
                add(left.nslots, right.nslots)
            };
            Ok(left.derive(segments, hosts, properties, nslots))
        })
    }

    /// The nodes of these ranks; ranks that are not in the set do not matter.
    #[must_use]
    pub fn restrict(&self, ranks: &IdSet) -> Self {
        let mut set = self.clone();
        if let Some(execution) = &self.execution {
            set.execution = Some(execution.restrict(ranks));
        }
        set
    }

    /// Takes away the nodes of these ranks; ranks that are not in the set do not matter.
    pub fn remove_ranks(&mut self, ranks: &IdSet) {
        if let Some(execution) = &mut self.execution {
            *execution = execution.restrict(&execution.ranks.difference(ranks));
        }
    }

    /// The same nodes in the same order with the ranks 0, 1, 2 …
    #[must_use]
    pub fn rerank(&self) -> Self {
        let mut set = self.clone();
        if let Some(execution) = &self.execution {
            set.execution = execution.renumber(0).ok();
        }
        set
    }

    /// Whether each rank, core and gpu of this set is in the other; hosts do not matter.
    pub fn is_subset(&self, other: &Self) -> bool {
        overlay(&self.view().segments, &other.view().segments).all(|part| {
            match (part.left, part.right) {
                (Some(left), Some(right)) => left.is_subset(right),
                (left, _) => left.is_none(),
            }
        })
    }

    /// Whether the sets share neither a core nor a gpu, nor a rank that has neither in both; hosts do not matter.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.view().is_disjoint(other.view())
    }

    fn combine(
        &self,
        other: &Self,
        operation: impl FnOnce(&Execution, &Execution) -> Result<Execution, Error>,
    ) -> Result<Self, Error> {
        self.require_execution()?;
        other.require_execution()?;
        let mut execution = operation(self.view(), other.view())?;
        execution.others = both(&self.view().others, &other.view().others);
        Ok(Self {
            execution: Some(execution),
            scheduling: agree(
                "scheduling",
                self.scheduling.as_ref(),
                other.scheduling.as_ref(),
            )?,
            attributes: agree(
                "attributes",
                self.attributes.as_ref(),
                other.attributes.as_ref(),
            )?,
            others: both(&self.others, &other.others),
        })
    }
}

fn both(
    left: &BTreeMap<String, Carried>,
    right: &BTreeMap<String, Carried>,
) -> BTreeMap<String, Carried> {
    let mut both = right.clone();
    both.extend(left.clone());
    both
}

fn agree(
    key: &str,
    left: Option<&Carried>,
    right: Option<&Carried>,
) -> Result<Option<Carried>, Error> {
    match (left, right) {
        (Some(left), Some(right)) if left != right => Err(Error::refused(format!(
            "the sets have different values of `{key}`, which cannot be combined"
        ))),
        _ => Ok(left.or(right).cloned()),
    }
}

fn add(left: Option<u64>, right: Option<u64>) -> Option<u64> {
    left?.checked_add(right?)
}

impl Execution {
    fn is_disjoint(&self, other: &Self) -> bool {
        overlay(&self.segments, &other.segments).all(|part| match (part.left, part.right) {
            (Some(left), Some(right)) => left.is_disjoint(right),
            _ => true,
        })
    }

    /// The nodes that `choose` leaves, run by run; fails where both sets have a rank, on different hosts.
    fn select(
        &self,
        other: &Self,
        mut choose: impl FnMut((Option<&Children>, Option<&Children>)) -> Option<Children>,
    ) -> Result<(Segments, Hostlist), Error> {
        let mut segments = Segments::default();
        let mut hosts = HostsBuilder::new();
        let mut interner = Interner::default();
        let (mut at_left, mut at_right) = (0, 0);
        for part in overlay(&self.segments, &other.segments) {
            let len = part.len();
            let left = at_left..at_left + if part.left.is_some() { len } else { 0 };
            let right = at_right..at_right + if part.right.is_some() { len } else { 0 };
            (at_left, at_right) = (left.end, right.end);
            if !left.is_empty() && !right.is_empty() {
                let (ours, theirs) = (
                    self.hosts.slice(left.clone()),
                    other.hosts.slice(right.clone()),
                );
                if ours != theirs {
                    return Err(different_hosts(&part, &ours, &theirs));
                }
            }
            let children = choose((part.left.map(AsRef::as_ref), part.right.map(AsRef::as_ref)));
            if let Some(children) = children {
                segments.push(part.first, part.last, interner.share(children));
                if left.is_empty() {
                    hosts.push(&other.hosts, right)?;
                } else {
                    hosts.push(&self.hosts, left)?;
                }
            }
        }
        Ok((segments, hosts.finish()?))
    }

    /// This set's times and unknown keys, with other resources.
    fn derive(
        &self,
        segments: Segments,
        hosts: Hostlist,
        properties: BTreeMap<String, IdSet>,
        nslots: Option<u64>,
    ) -> Self {
        let mut ranks = IdSet::new();
        for segment in segments.iter() {
            ranks.insert_range(segment.ranks());
        }
        let (starttime, expiration, others) =
            (self.starttime, self.expiration, self.others.clone());
        Self {
            segments,
            ranks,
            hosts,
            properties,
            starttime,
            expiration,
            nslots,
            others,
        }
    }

    /// This set with the part of its resources that stays.
    fn keep(&self, segments: Segments, hosts: Hostlist) -> Self {
        let nslots = self.nslots.filter(|_| segments == self.segments);
        let mut kept = self.derive(segments, hosts, BTreeMap::new(), nslots);
        kept.properties = properties::restrict(&self.properties, &kept.ranks);
        kept
    }

    fn restrict(&self, ranks: &IdSet) -> Self {
        let mut segments = Segments::default();
        let mut hosts = HostsBuilder::new();
        let mut wanted = Segments::default();
        let unit = Arc::new(Children::default());
        for range in ranks.ranges() {
            wanted.push(*range.start(), *range.end(), Arc::clone(&unit));
        }
        let mut at = 0;
        let mut push = |positions| hosts.push(&self.hosts, positions).expect(SHORTER);
        for part in overlay(&self.segments, &wanted) {
            let Some(children) = part.left else { continue };
            let positions = at..at + part.len();
            at = positions.end;
            if part.right.is_some() {
                segments.push(part.first, part.last, Arc::clone(children));
                push(positions);
            }
        }
        self.keep(segments, hosts.finish().expect(SHORTER))
    }

    /// The same nodes in the same order with the ranks from `first` on.
    fn renumber(&self, first: u64) -> Result<Self, Error> {
        let end = first.saturating_add(self.ranks.len());
        if end > u64::from(IdSet::MAX_ID) + 1 {
            return Err(Error::refused(format!(
                "expected ranks of at most {}, found {}",
                IdSet::MAX_ID,
                end - 1
            )));
        }
        let mut segments = Segments::default();
        let mut next = first;
        for segment in self.segments.iter() {
            let (start, last) = (narrow(next)?, narrow(next + (segment.len() - 1))?);
            segments.push(start, last, Arc::clone(&segment.children));
            next += segment.len();
        }
        let mut properties = BTreeMap::new();
        for (name, targets) in &self.properties {
            let mut moved = IdSet::new();
            for range in targets.ranges() {
                // A range of ranks of the set has no gap in the set either.
                let (start, len) = (
                    self.ranks.rank_of(*range.start()),
                    u64::from(range.end() - range.start()),
                );
                if let Some(start) = start {
                    moved.insert_range(narrow(first + start)?..=narrow(first + start + len)?);
                }
            }
            properties.insert(name.clone(), moved);
        }
        Ok(self.derive(segments, self.hosts.clone(), properties, self.nslots))
    }
}

/// Why taking hosts from a list cannot fail.
const SHORTER: &str = "a part of a host list is within the limits of the list";

fn narrow(rank: u64) -> Result<u32, Error> {
    u32::try_from(rank).map_err(|_| {
        Error::refused(format!(
            "expected a rank from 0 to {}, found {rank}",
            IdSet::MAX_ID
        ))
    })
}

/// The error of two sets of which one rank of `part` has different hosts.
fn different_hosts(part: &Part<'_>, ours: &Hostlist, theirs: &Hostlist) -> Error {
    let pairs = (part.first..=part.last).zip(ours.iter().zip(theirs.iter()));
    let mut different = pairs.filter(|(_, (ours, theirs))| ours != theirs);
    match different.next() {
        Some((rank, (ours, theirs))) => Error::refused(format!(
            "rank {rank} is on host `{ours}` in one set, and on `{theirs}` in the other"
        )),
        None => Error::refused(format!(
            "ranks {}-{} are on different hosts in the sets",
            part.first, part.last
        )),
    }
}
