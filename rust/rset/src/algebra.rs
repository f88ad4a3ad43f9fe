//! Set operations. The crate's documentation defines how they combine times, properties and the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_idset::IdSet;

use crate::children::Children;
use crate::execution::{Execution, Segments, Unpaired};
use crate::hosts::{self, append};
use crate::overlay::overlay;
use crate::properties;
use crate::raw::Carried;
use crate::set::check_order;
use crate::{Error, ResourceSet};

/// A set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The resources in either set.
    Union,
    /// The resources in both sets.
    Intersection,
    /// The resources in the first set but not in the second.
    Difference,
    /// The nodes of the first set, then those of the second, renumbered with the next ranks.
    Append,
}

/// The way in which an operation combines the opaque values `scheduling` and `attributes` of two sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// The left set's value, or the right's if the left has none; two different values are an error.
    #[default]
    Same,
    /// The left set's value, or the right's if the left has none.
    Left,
    /// No value.
    Drop,
}

impl ResourceSet {
    /// Returns the resources in either set. See the crate for times, properties and `nslots`.
    ///
    /// # Errors
    ///
    /// An R has no `execution`, a rank has different hosts in the sets, or the sets have different values of
    /// `scheduling` or `attributes`.
    pub fn union(&self, other: &Self) -> Result<Self, Error> {
        self.combine(Operation::Union, other, Scheduling::Same)
    }

    /// Returns the resources in both sets.
    ///
    /// # Errors
    ///
    /// An R has no `execution`, a rank has different hosts in the sets, the sets are valid at different times, or they
    /// have different values of `scheduling` or `attributes`.
    pub fn intersection(&self, other: &Self) -> Result<Self, Error> {
        self.combine(Operation::Intersection, other, Scheduling::Same)
    }

    /// Returns the resources in this set but not in the other.
    ///
    /// # Errors
    ///
    /// An R has no `execution`, a rank has different hosts in the sets, or the sets have different values of
    /// `scheduling` or `attributes`.
    pub fn difference(&self, other: &Self) -> Result<Self, Error> {
        self.combine(Operation::Difference, other, Scheduling::Same)
    }

    /// Returns this set followed by the other's nodes, in their order, with the ranks after this set's last.
    ///
    /// # Errors
    ///
    /// An R has no `execution`, there are not enough ranks, or the sets have different values of `scheduling` or
    /// `attributes`.
    pub fn append(&self, other: &Self) -> Result<Self, Error> {
        self.combine(Operation::Append, other, Scheduling::Same)
    }

    /// Performs an operation; `scheduling` selects the result's `scheduling` and `attributes`.
    ///
    /// ```
    /// use penstock_rset::{Operation, ResourceSet, Scheduling};
    ///
    /// let one = r#"{"version":1,"execution":{"R_lite":[],"nodelist":[]},"scheduling":{"graph":1}}"#;
    /// let one: ResourceSet = one.parse()?;
    /// let other: ResourceSet = r#"{"version":1,"execution":{"R_lite":[],"nodelist":[]},"scheduling":{}}"#.parse()?;
    /// assert!(one.union(&other).is_err());
    /// let union = one.combine(Operation::Union, &other, Scheduling::Left)?;
    /// assert_eq!(union.scheduling().map(|raw| raw.get()), Some(r#"{"graph":1}"#));
    /// # Ok::<(), penstock_rset::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// An R has no `execution`, the operation fails, or `scheduling` is [`Scheduling::Same`] and the sets have
    /// different values of `scheduling` or `attributes`.
    pub fn combine(
        &self,
        operation: Operation,
        other: &Self,
        scheduling: Scheduling,
    ) -> Result<Self, Error> {
        self.require_execution()?;
        other.require_execution()?;
        let agree = |key, left: &Option<Carried>, right: &Option<Carried>| match (left, right) {
            _ if scheduling == Scheduling::Drop => Ok(None),
            (Some(left), Some(right)) if scheduling == Scheduling::Same && left != right => {
                Err(Error::rejected(format!(
                    "the sets have different values of `{key}`, which cannot be combined"
                )))
            }
            _ => Ok(left.as_ref().or(right.as_ref()).cloned()),
        };
        let (left, right) = (self.view(), other.view());
        let mut execution = match operation {
            Operation::Union => left.union(right),
            Operation::Intersection => left.intersection(right),
            Operation::Difference => left.difference(right),
            Operation::Append => left.append(right),
        }?;
        execution.others = both(&left.others, &right.others);
        Ok(Self {
            execution: Some(execution),
            scheduling: agree("scheduling", &self.scheduling, &other.scheduling)?,
            attributes: agree("attributes", &self.attributes, &other.attributes)?,
            others: both(&self.others, &other.others),
        })
    }

    /// Whether each rank, core and gpu of this set is in the other; hosts do not matter.
    pub fn is_subset(&self, other: &Self) -> bool {
        let (left, right) = (&self.view().segments, &other.view().segments);
        overlay(left.runs(), right.runs()).all(|part| match (part.left, part.right) {
            (Some(left), Some(right)) => left.is_subset(right),
            (left, _) => left.is_none(),
        })
    }

    /// Whether the sets share neither a core nor a gpu, nor a rank that has neither in both; hosts do not matter.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.view().is_disjoint(other.view())
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

fn add(left: Option<u64>, right: Option<u64>) -> Option<u64> {
    left?.checked_add(right?)
}

impl Execution {
    fn union(&self, other: &Self) -> Result<Self, Error> {
        hosts::check_same(self, other)?;
        let segments = self.segments.union(&other.segments);
        let nslots = if segments == self.segments {
            self.nslots
        } else if self.is_disjoint(other) {
            add(self.nslots, other.nslots)
        } else {
            None
        };
        Ok(Self {
            ranks: self.ranks.union(&other.ranks),
            hosts: hosts::of_either(self, other)?,
            properties: properties::union(&self.properties, &other.properties),
            nslots,
            ..self.with(segments)
        })
    }

    fn intersection(&self, other: &Self) -> Result<Self, Error> {
        hosts::check_same(self, other)?;
        let shared = |left: &Arc<Children>, right: &Arc<Children>| {
            let both_bare = left.is_bare() && right.is_bare();
            let shared = left.intersection(right);
            (both_bare || !shared.is_bare()).then(|| shared.shared_with([left, right]))
        };
        let segments = self
            .segments
            .combine(&other.segments, Unpaired::Neither, shared);
        let ranks = segments.ranks();
        let mut result = self.keep(segments, ranks);
        let times = |of: fn(&Execution) -> Option<f64>| [of(self), of(other)].into_iter().flatten();
        result.starttime = times(|execution| execution.starttime).reduce(f64::max);
        result.expiration = times(|execution| execution.expiration).reduce(f64::min);
        check_order(result.starttime, result.expiration).map_err(|_| {
            Error::rejected("the sets are valid at different times: the start of one is not before the expiration of the other")
        })?;
        Ok(result)
    }

    fn difference(&self, other: &Self) -> Result<Self, Error> {
        hosts::check_same(self, other)?;
        let rest = |left: &Arc<Children>, right: &Arc<Children>| {
            if left.is_bare() {
                return (!right.is_bare()).then(|| Arc::clone(left));
            }
            let rest = left.difference(right);
            (!rest.is_bare()).then(|| rest.shared_with([left, right]))
        };
        let segments = self.segments.combine(&other.segments, Unpaired::Left, rest);
        let ranks = segments.ranks();
        Ok(self.keep(segments, ranks))
    }

    fn append(&self, other: &Self) -> Result<Self, Error> {
        let first = self.ranks.last().map_or(0, |last| u64::from(last) + 1);
        let moved = other.renumber(first)?;
        let mut segments = self.segments.clone();
        for segment in moved.segments.iter() {
            segments.push(segment.ranks(), Arc::clone(&segment.children));
        }
        let mut hosts = self.hosts.clone();
        append(&mut hosts, &moved.hosts)?;
        let nslots = if moved.segments.is_empty() {
            self.nslots
        } else {
            add(self.nslots, other.nslots)
        };
        Ok(Self {
            ranks: self.ranks.union(&moved.ranks),
            hosts,
            properties: properties::union(&self.properties, &moved.properties),
            nslots,
            ..self.with(segments)
        })
    }

    fn is_disjoint(&self, other: &Self) -> bool {
        let mut parts = overlay(self.segments.runs(), other.segments.runs());
        parts.all(|part| match (part.left, part.right) {
            (Some(left), Some(right)) => left.is_disjoint(right),
            _ => true,
        })
    }

    /// Returns a set with this set's times and unknown keys and with `segments`; ranks, hosts and the rest are missing.
    fn with(&self, segments: Segments) -> Self {
        Self {
            segments,
            starttime: self.starttime,
            expiration: self.expiration,
            others: self.others.clone(),
            ..Self::default()
        }
    }

    /// Returns this set with `segments` in place of its own; `ranks` are those of `segments`.
    pub(crate) fn keep(&self, segments: Segments, ranks: IdSet) -> Self {
        debug_assert_eq!(ranks, segments.ranks());
        Self {
            nslots: self.nslots.filter(|_| segments == self.segments),
            hosts: hosts::of_part(self, &ranks),
            properties: properties::restrict(&self.properties, &ranks),
            ranks,
            ..self.with(segments)
        }
    }

    /// Returns the same nodes in the same order, renumbered from rank `first`.
    pub(crate) fn renumber(&self, first: u64) -> Result<Self, Error> {
        let end = first.saturating_add(self.ranks.len());
        if end > u64::from(IdSet::MAX_ID) + 1 {
            return Err(Error::rejected(format!(
                "expected ranks of at most {}, found {}",
                IdSet::MAX_ID,
                end - 1
            )));
        }
        let mut segments = Segments::default();
        let mut next = first;
        for segment in self.segments.iter() {
            let (start, last) = (narrow(next)?, narrow(next + (segment.len() - 1))?);
            segments.push(start..=last, Arc::clone(&segment.children));
            next += segment.len();
        }
        let mut properties = BTreeMap::new();
        for (name, targets) in &self.properties {
            let mut moved = IdSet::new();
            for range in targets.ranges() {
                // A range of ranks of the set has no gap in the set either.
                let (start, len) = (
                    self.ranks.find(*range.start()),
                    u64::from(range.end() - range.start()),
                );
                if let Some(start) = start {
                    moved.insert_range(narrow(first + start)?..=narrow(first + start + len)?);
                }
            }
            properties.insert(name.clone(), moved);
        }
        let ranks = if self.ranks.is_empty() {
            IdSet::new()
        } else {
            IdSet::with_range(narrow(first)?..=narrow(end - 1)?)
        };
        Ok(Self {
            ranks,
            hosts: self.hosts.clone(),
            properties,
            nslots: self.nslots,
            ..self.with(segments)
        })
    }
}

fn narrow(rank: u64) -> Result<u32, Error> {
    u32::try_from(rank).map_err(|_| {
        Error::rejected(format!(
            "expected a rank from 0 to {}, found {rank}",
            IdSet::MAX_ID
        ))
    })
}
