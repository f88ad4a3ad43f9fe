use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use serde_json::value::RawValue;

use crate::Error;
use crate::children::Children;
use crate::execution::{Execution, Segments};
use crate::hosts::{of_part, rejected};
use crate::raw::Carried;

/// A resource set, *R* of RFC 20.
///
/// Two sets are equal if they have the same hosts, cores and gpus on the same ranks, and the same properties, times and
/// opaque values, regardless of the form of their documents.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSet {
    pub(crate) execution: Option<Execution>,
    pub(crate) scheduling: Option<Carried>,
    pub(crate) attributes: Option<Carried>,
    /// Top-level keys that RFC 20 does not name.
    pub(crate) others: BTreeMap<String, Carried>,
}

/// One execution target of a [`ResourceSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// The execution target.
    pub rank: u32,
    /// The name of its host.
    pub host: String,
    /// Its logical cores.
    pub cores: &'a IdSet,
    /// Its logical gpus.
    pub gpus: &'a IdSet,
}

/// The empty `execution` of an R without one.
static NO_EXECUTION: LazyLock<Execution> = LazyLock::new(Execution::default);

impl Default for ResourceSet {
    fn default() -> Self {
        Self::new()
    }
}

impl ResourceSet {
    /// Returns a set without ranks.
    pub fn new() -> Self {
        Self {
            execution: Some(Execution::default()),
            scheduling: None,
            attributes: None,
            others: BTreeMap::new(),
        }
    }

    /// Returns a set of `hosts` in the order of `ranks`, each with the same cores and gpus. The cost does not depend on
    /// the number of nodes.
    ///
    /// # Errors
    ///
    /// The number of hosts is not the number of ranks.
    pub fn uniform(
        ranks: &IdSet,
        hosts: &Hostlist,
        cores: IdSet,
        gpus: IdSet,
    ) -> Result<Self, Error> {
        if hosts.len() as u64 != ranks.len() {
            return Err(Error::rejected(format!(
                "expected {} hosts for ranks {ranks}, found {}",
                ranks.len(),
                hosts.len()
            )));
        }
        let children = Arc::new(Children::new(cores, gpus, BTreeMap::new()));
        let mut segments = Segments::default();
        for range in ranks.ranges() {
            segments.push(range, Arc::clone(&children));
        }
        let mut set = Self::new();
        set.execution = Some(Execution {
            segments,
            ranks: ranks.clone(),
            hosts: hosts.clone(),
            ..Execution::default()
        });
        Ok(set)
    }

    pub(crate) fn view(&self) -> &Execution {
        self.execution.as_ref().unwrap_or(&NO_EXECUTION)
    }

    /// Whether the R has `execution`; false for an R with `scheduling` alone.
    pub fn has_execution(&self) -> bool {
        self.execution.is_some()
    }

    /// Checks that the R has `execution`, which operations on ranks need.
    ///
    /// # Errors
    ///
    /// The R has no `execution`.
    pub fn require_execution(&self) -> Result<(), Error> {
        if self.has_execution() {
            return Ok(());
        }
        Err(Error::rejected(
            "expected an R with `execution`, found one with `scheduling` alone",
        ))
    }

    pub(crate) fn execution_mut(&mut self) -> Result<&mut Execution, Error> {
        self.require_execution()?;
        Ok(self.execution.get_or_insert_default())
    }

    /// The execution targets.
    pub fn ranks(&self) -> IdSet {
        self.view().ranks.clone()
    }

    /// The number of execution targets.
    pub fn nnodes(&self) -> usize {
        self.view().hosts.len()
    }

    fn count(&self, of: impl Fn(&Children) -> &IdSet) -> u64 {
        let sums = self
            .view()
            .segments
            .iter()
            .map(|segment| segment.len().saturating_mul(of(&segment.children).len()));
        sums.fold(0, u64::saturating_add)
    }

    /// The number of cores on all targets.
    pub fn ncores(&self) -> u64 {
        self.count(|children| &children.cores)
    }

    /// The number of gpus on all targets.
    pub fn ngpus(&self) -> u64 {
        self.count(|children| children.gpus())
    }

    /// The hosts, one for each target, in the order of ranks.
    pub fn nodelist(&self) -> Hostlist {
        self.view().hosts.clone()
    }

    /// The targets by ascending rank.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.nodes_from(0)
    }

    /// The targets with at least this rank, ascending.
    pub fn nodes_from(&self, rank: u32) -> impl Iterator<Item = Node<'_>> {
        let execution = self.view();
        let position = usize::try_from(execution.ranks.count_below(rank)).unwrap_or(usize::MAX);
        let hosts = execution.hosts.iter_range(position..execution.hosts.len());
        let segments = execution.segments.starting_at(rank).iter();
        let ranks = segments.flat_map(move |segment| {
            let children = &*segment.children;
            (segment.first.max(rank)..=segment.last).map(move |rank| (rank, children))
        });
        ranks.zip(hosts).map(|((rank, children), host)| Node {
            rank,
            host,
            cores: &children.cores,
            gpus: children.gpus(),
        })
    }

    /// The target of this rank, if it is in the set.
    pub fn node(&self, rank: u32) -> Option<Node<'_>> {
        let host = self.host(rank)?;
        let children = &self.view().segments.find(rank)?.children;
        Some(Node {
            rank,
            host,
            cores: &children.cores,
            gpus: children.gpus(),
        })
    }

    /// The cores and gpus of a rank, if it is in the set.
    pub fn resources(&self, rank: u32) -> Option<(&IdSet, &IdSet)> {
        let children = &self.view().segments.find(rank)?.children;
        Some((&children.cores, children.gpus()))
    }

    /// Runs of neighbouring ranks with equal cores and gpus, ascending.
    pub fn runs(&self) -> impl Iterator<Item = (RangeInclusive<u32>, &IdSet, &IdSet)> {
        let segments = self.view().segments.iter();
        segments.map(|segment| {
            let children = &segment.children;
            (segment.ranks(), &children.cores, children.gpus())
        })
    }

    /// The host of a rank, if it is in the set.
    pub fn host(&self, rank: u32) -> Option<String> {
        let execution = self.view();
        if !execution.ranks.contains(rank) {
            return None;
        }
        let position = usize::try_from(execution.ranks.find(rank)?).ok()?;
        execution.hosts.get(position)
    }

    /// Returns this set with the hosts that `other` has for its ranks; `None` if `other` lacks one of the ranks.
    ///
    /// ```
    /// use penstock_idset::IdSet;
    /// use penstock_rset::ResourceSet;
    ///
    /// let set = |hosts: &str| {
    ///     let hosts = hosts.parse().expect("hosts");
    ///     ResourceSet::uniform(&IdSet::from(0..=1), &hosts, IdSet::from(0..=3), IdSet::new())
    /// };
    /// let (one, other) = (set("a[0-1]")?, set("b[0-1]")?);
    /// assert_eq!(one.with_hosts_of(&other), Some(other));
    /// assert_eq!(one.with_hosts_of(&ResourceSet::new()), None);
    /// # Ok::<(), penstock_rset::Error>(())
    /// ```
    #[must_use]
    pub fn with_hosts_of(&self, other: &Self) -> Option<Self> {
        let (ranks, from) = (&self.view().ranks, other.view());
        if !ranks.is_subset(&from.ranks) {
            return None;
        }
        let mut set = self.clone();
        if let Some(execution) = &mut set.execution {
            execution.hosts = of_part(from, ranks);
        }
        Some(set)
    }

    /// Adds cores and gpus to a rank.
    ///
    /// Cheap for a rank after all others.
    ///
    /// # Errors
    ///
    /// The rank is 4294967295 or is in the set with another host, the host is not a host name, or the R has no
    /// `execution`.
    pub fn insert(
        &mut self,
        rank: u32,
        host: &str,
        cores: IdSet,
        gpus: IdSet,
    ) -> Result<(), Error> {
        if rank > IdSet::MAX_ID {
            return Err(Error::rejected(format!(
                "expected a rank from 0 to {}, found {rank}",
                IdSet::MAX_ID
            )));
        }
        let known = self.host(rank);
        let execution = self.execution_mut()?;
        let children = Children::new(cores, gpus, BTreeMap::new());
        if let Some(known) = known {
            if known != host {
                return Err(Error::rejected(format!(
                    "rank {rank} is on host `{known}`, not on `{host}`"
                )));
            }
            if let Some(segment) = execution.segments.find(rank) {
                let children = segment.children.union(&children);
                execution.segments.set(rank, children);
            }
            return Ok(());
        }
        let position = usize::try_from(execution.ranks.count_below(rank)).unwrap_or(usize::MAX);
        if position == execution.hosts.len() {
            execution
                .hosts
                .push(host)
                .map_err(|error| rejected(&error))?;
        } else {
            execution
                .hosts
                .insert(position, host)
                .map_err(|error| rejected(&error))?;
        }
        execution.ranks.insert(rank);
        execution.segments.set(rank, children);
        Ok(())
    }

    /// The start of the set's validity, in seconds since the epoch; `None` if unlimited.
    pub fn starttime(&self) -> Option<f64> {
        self.view().starttime
    }

    /// The end of the set's validity, in seconds since the epoch; `None` if unlimited.
    pub fn expiration(&self) -> Option<f64> {
        self.view().expiration
    }

    /// Sets the start; 0 unsets it.
    ///
    /// # Errors
    ///
    /// The start is negative, not finite, or not before the expiration, or the R has no `execution`.
    pub fn set_starttime(&mut self, starttime: Option<f64>) -> Result<(), Error> {
        let starttime = check_time("starttime", starttime)?;
        let execution = self.execution_mut()?;
        check_order(starttime, execution.expiration)?;
        execution.starttime = starttime;
        Ok(())
    }

    /// Sets the expiration; 0 unsets it.
    ///
    /// # Errors
    ///
    /// The expiration is negative, not finite, or not after the start, or the R has no `execution`.
    pub fn set_expiration(&mut self, expiration: Option<f64>) -> Result<(), Error> {
        let expiration = check_time("expiration", expiration)?;
        let execution = self.execution_mut()?;
        check_order(execution.starttime, expiration)?;
        execution.expiration = expiration;
        Ok(())
    }

    /// The number of task slots of an allocation.
    pub fn nslots(&self) -> Option<u64> {
        self.view().nslots
    }

    /// Sets the number of task slots; has no effect without `execution`.
    pub fn set_nslots(&mut self, nslots: Option<u64>) {
        if let Some(execution) = &mut self.execution {
            execution.nslots = nslots;
        }
    }

    /// The value of the key `scheduling`, byte for byte as read.
    pub fn scheduling(&self) -> Option<&RawValue> {
        self.scheduling.as_ref().map(Carried::raw)
    }

    /// The value of the key `attributes`, byte for byte as read.
    pub fn attributes(&self) -> Option<&RawValue> {
        self.attributes.as_ref().map(Carried::raw)
    }
}

/// Checks a time; `None` for 0, which is unset (protocols: "0 for starttime or expiration").
pub(crate) fn check_time(name: &str, time: Option<f64>) -> Result<Option<f64>, Error> {
    match time {
        Some(time) if !time.is_finite() || time < 0.0 => Err(Error::rejected(format!(
            "expected {name} of at least 0, found {time}"
        ))),
        Some(time) => Ok((time > 0.0).then_some(time)),
        None => Ok(None),
    }
}

pub(crate) fn check_order(starttime: Option<f64>, expiration: Option<f64>) -> Result<(), Error> {
    match (starttime, expiration) {
        (Some(starttime), Some(expiration)) if expiration <= starttime => Err(Error::rejected(
            format!("expected an expiration after starttime {starttime}, found {expiration}"),
        )),
        _ => Ok(()),
    }
}
