//! The inventory and the state of every target in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::{Operation, ResourceSet, Scheduling};

use crate::Error;
use crate::drain::{Drain, Drains};
use crate::event::{Change, Event, Targets};
use crate::liveness::Liveness;

/// The configuration of the inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Targets to keep out of scheduling: an idset or a hostlist.
    pub exclude: Option<String>,
    /// Properties, and the targets that have them: an idset or a hostlist.
    pub properties: BTreeMap<String, String>,
}

/// The inventory and the state of its targets.
///
/// The state is the configuration, modified by events. It changes by
/// [`Ledger::apply`] and [`Ledger::configure`] only, so that the same events give the same state.
/// A copy is cheap: it shares the inventory.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The resources that the instance was started with.
    base: Arc<ResourceSet>,
    config: Config,
    grown: Vec<ResourceSet>,
    removed_ranks: IdSet,
    removed_hosts: Hostlist,
    /// Properties added at run time, which override those of the configuration.
    added: BTreeMap<String, IdSet>,
    removed: BTreeMap<String, IdSet>,
    expiration: Option<f64>,
    /// Targets that have had a monitor.
    monitored: IdSet,
    liveness: Liveness,
    drains: Drains,
    /// The inventory, which `rebuild` computes from the fields above.
    resources: Arc<ResourceSet>,
    exclude: IdSet,
}

/// The targets that a text names.
struct NamedTargets {
    /// Ranks, which may not exist if the text is an idset.
    ranks: IdSet,
    /// Hosts that the inventory does not have.
    unknown: Hostlist,
}

impl Ledger {
    /// Makes the ledger of an instance that was started with these resources.
    ///
    /// # Errors
    ///
    /// The configuration has a text that is neither an idset nor a hostlist, or an invalid property name.
    pub fn new(base: Arc<ResourceSet>, config: Config) -> Result<Self, Error> {
        let mut ledger = Self {
            expiration: base.expiration(),
            resources: Arc::clone(&base),
            base,
            config,
            grown: Vec::new(),
            removed_ranks: IdSet::new(),
            removed_hosts: Hostlist::new(),
            added: BTreeMap::new(),
            removed: BTreeMap::new(),
            monitored: IdSet::new(),
            liveness: Liveness::default(),
            drains: Drains::default(),
            exclude: IdSet::new(),
        };
        ledger.rebuild()?;
        Ok(ledger)
    }

    /// Replaces the configuration.
    ///
    /// # Errors
    ///
    /// As for [`Ledger::new`] and [`Ledger::check`]; nothing has changed then.
    pub fn configure(&mut self, config: Config) -> Result<(), Error> {
        let mut next = self.clone();
        next.config = config;
        next.rebuild()?;
        next.check()?;
        *self = next;
        Ok(())
    }

    /// Checks that every host named by the configuration is, or was, in the inventory.
    ///
    /// # Errors
    ///
    /// Some never were; the text names all of them, a line for each key.
    pub fn check(&self) -> Result<(), Error> {
        let exclude = self.config.exclude.iter();
        let exclude = exclude.map(|text| ("resource.exclude".to_owned(), text));
        let properties = self.config.properties.iter();
        let properties =
            properties.map(|(name, text)| (format!("resource.properties.{name}"), text));
        let mut lines = Vec::new();
        for (key, text) in exclude.chain(properties) {
            let unknown = find(&self.resources, text)?.unknown;
            let unknown = unknown.difference(&self.removed_hosts);
            if !unknown.is_empty() {
                lines.push(format!("{key}: no such hosts: {unknown}"));
            }
        }
        if lines.is_empty() {
            Ok(())
        } else {
            Err(Error::unknown(lines.join("\n")))
        }
    }

    /// The inventory, excluded targets included.
    pub fn resources(&self) -> &Arc<ResourceSet> {
        &self.resources
    }

    /// Targets that configuration excludes from scheduling.
    pub fn exclude(&self) -> &IdSet {
        &self.exclude
    }

    /// The drained targets.
    pub fn drains(&self) -> &Drains {
        &self.drains
    }

    /// Targets that have lost their last monitor.
    pub fn offline(&self) -> IdSet {
        &self.monitored - &self.liveness.live()
    }

    /// Targets that are not offline.
    pub fn online(&self) -> IdSet {
        &self.resources.ranks() - &self.offline()
    }

    /// Targets that may be allocated: neither excluded, drained nor offline.
    pub fn up(&self) -> IdSet {
        let mut up = self.online();
        up.subtract(&self.exclude);
        up.subtract(self.drains.ranks());
        up
    }

    /// Ranks of the inventory with their hosts, for an event.
    pub fn targets_of(&self, ranks: &IdSet) -> Targets {
        Targets {
            hosts: self.resources.restrict(ranks).nodelist(),
            ranks: ranks.clone(),
        }
    }

    /// The ranks that a text names, as an idset or as a hostlist. Accepts unordered ranks unless a host has that name.
    ///
    /// # Errors
    ///
    /// The text names nothing, or targets that the inventory does not have; all of these are named.
    pub fn find(&self, text: &str) -> Result<IdSet, Error> {
        let NamedTargets { ranks, unknown } = find(&self.resources, text)?;
        if !unknown.is_empty() {
            let known = self.resources.nodelist();
            let text = format!("no such hosts: {unknown}; the hosts are {known}");
            return Err(Error::unknown(text));
        }
        self.check_ranks(&ranks)?;
        if ranks.is_empty() {
            return Err(Error::syntax("expected at least one rank or host"));
        }
        Ok(ranks)
    }

    /// Checks that ranks are in the inventory.
    ///
    /// # Errors
    ///
    /// Some are not; the text names all of them.
    pub fn check_ranks(&self, ranks: &IdSet) -> Result<(), Error> {
        let known = self.resources.ranks();
        let unknown = ranks - &known;
        if unknown.is_empty() {
            return Ok(());
        }
        let text = format!("no such ranks: {unknown}; the ranks are {known}");
        Err(Error::unknown(text))
    }

    /// Checks that these targets can be added.
    ///
    /// # Errors
    ///
    /// `more` has no ranks, or some exist already or were removed for good; all of these are named.
    pub fn check_growth(&self, more: &ResourceSet) -> Result<(), Error> {
        let ranks = more.ranks();
        if ranks.is_empty() {
            return Err(Error::syntax("expected an R with at least one rank"));
        }
        let present = &ranks & &self.resources.ranks();
        let removed = &ranks & &self.removed_ranks;
        let hosts = more.nodelist().intersection(&self.resources.nodelist());
        let mut conflicts = Vec::new();
        if !present.is_empty() {
            conflicts.push(format!("ranks that exist already: {present}"));
        }
        if !removed.is_empty() {
            conflicts.push(format!("ranks that were removed for good: {removed}"));
        }
        if !hosts.is_empty() {
            conflicts.push(format!("hosts that exist already: {hosts}"));
        }
        if conflicts.is_empty() {
            Ok(())
        } else {
            Err(Error::conflict(conflicts.join("; ")))
        }
    }

    /// Applies an event.
    ///
    /// # Errors
    ///
    /// Fails if the event contradicts the inventory (two hosts of one rank) or has an invalid property name. An error
    /// leaves the ledger between two states: to check an event, apply it to a copy.
    pub fn apply(&mut self, event: &Event) -> Result<(), Error> {
        match &event.change {
            Change::Drain {
                targets,
                reason,
                overwrite,
            } => {
                let drain = Drain {
                    timestamp: event.timestamp,
                    reason: reason.clone(),
                };
                let ranks = self.locate(targets);
                self.drains.drain(&ranks, &drain, *overwrite);
            }
            Change::Undrain { targets, .. } => {
                let ranks = self.locate(targets);
                self.drains.undrain(&ranks);
            }
            Change::Online(targets) | Change::Offline(targets) => {
                let ranks = self.locate(targets);
                self.monitored.union_with(&ranks);
            }
            Change::Unmonitor(targets) => {
                let ranks = self.locate(targets);
                self.monitored.subtract(&ranks);
            }
            Change::Grow(more) => {
                self.grown.push(more.clone());
                self.rebuild()?;
            }
            Change::Shrink(targets) => {
                let mut ranks = self.locate(targets);
                // Ranks that are not there may be taken no more either.
                ranks.union_with(&(&targets.ranks - &self.resources.ranks()));
                self.removed_ranks.union_with(&ranks);
                self.removed_hosts
                    .append(&targets.hosts)
                    .map_err(|error| Error::event(error.to_string()))?;
                self.rebuild()?;
            }
            Change::PropertyAdd { targets, name } => {
                let ranks = self.locate(targets);
                move_ranks(name, &ranks, &mut self.removed, &mut self.added);
                self.rebuild()?;
            }
            Change::PropertyRemove { targets, name } => {
                let ranks = self.locate(targets);
                move_ranks(name, &ranks, &mut self.added, &mut self.removed);
                self.rebuild()?;
            }
            Change::Expiration(expiration) => {
                self.expiration = *expiration;
                self.rebuild()?;
            }
            Change::Exclude(_) | Change::Unexclude(_) => {}
        }
        Ok(())
    }

    /// Adds a monitor of these targets. Returns the targets that had no monitor.
    pub fn add_monitor(&mut self, ranks: &IdSet) -> IdSet {
        self.liveness.add(ranks)
    }

    /// Removes a monitor of these targets. Returns the targets that have lost their last monitor.
    pub fn remove_monitor(&mut self, ranks: &IdSet) -> IdSet {
        self.liveness.remove(ranks)
    }

    /// The present ranks of an event's targets: the ranks of its hosts if these have changed since.
    fn locate(&self, targets: &Targets) -> IdSet {
        let (ranks, hosts) = (&targets.ranks, &targets.hosts);
        let known = self.resources.ranks();
        let is_unchanged = hosts.is_empty()
            || (ranks.is_subset(&known) && self.resources.restrict(ranks).nodelist() == *hosts);
        // A host with several ranks does not say which of them is meant.
        if is_unchanged || has_repeats(&self.resources.nodelist()) {
            return ranks & &known;
        }
        self.resources.ranks_on(hosts)
    }

    /// Rebuilds the inventory from the initial one, the configuration and the events.
    fn rebuild(&mut self) -> Result<(), Error> {
        let mut resources = (*self.base).clone();
        for grown in &self.grown {
            // Ranks that the base has come to name since the growth are the base's.
            let new = &grown.ranks() - &resources.ranks();
            let grown = grown.restrict(&new);
            resources = resources.combine(Operation::Union, &grown, Scheduling::Left)?;
        }
        resources.remove_ranks(&self.removed_ranks);
        let ranks = resources.ranks();
        for (name, text) in &self.config.properties {
            let targets = find(&resources, text)?.ranks;
            add_property(&mut resources, name, &targets)?;
        }
        for (name, targets) in &self.added {
            add_property(&mut resources, name, targets)?;
        }
        for (name, targets) in &self.removed {
            resources.remove_property(name, targets);
        }
        resources.set_expiration(self.expiration)?;
        self.exclude = match &self.config.exclude {
            Some(text) => &find(&resources, text)?.ranks & &ranks,
            None => IdSet::new(),
        };
        self.drains.retain(&ranks);
        self.monitored.intersect_with(&ranks);
        self.resources = Arc::new(resources);
        Ok(())
    }
}

/// The targets that a text names, in a certain inventory or not.
fn find(resources: &ResourceSet, text: &str) -> Result<NamedTargets, Error> {
    if let Ok(ranks) = text.parse::<IdSet>() {
        let unknown = Hostlist::new();
        return Ok(NamedTargets { ranks, unknown });
    }
    let hosts: Hostlist = text.parse().map_err(|error| {
        Error::syntax(format!(
            "`{text}` is neither an idset nor a hostlist: {error}"
        ))
    })?;
    let unknown = hosts.difference(&resources.nodelist());
    if unknown.len() == hosts.len()
        && let Some(ranks) = as_ranks(&hosts)
    {
        let unknown = Hostlist::new();
        return Ok(NamedTargets { ranks, unknown });
    }
    Ok(NamedTargets {
        ranks: resources.ranks_on(&hosts),
        unknown,
    })
}

/// Ranks in any order, which an idset must not have (RFC 22); `None` unless every word is a rank.
fn as_ranks(words: &Hostlist) -> Option<IdSet> {
    let ranks = words.iter().map(|word| {
        let rank: u32 = word.parse().ok()?;
        (rank <= IdSet::MAX_ID && rank.to_string() == word).then_some(rank)
    });
    ranks.collect()
}

fn has_repeats(hosts: &Hostlist) -> bool {
    let mut distinct = hosts.clone();
    distinct.uniq();
    distinct.len() < hosts.len()
}

fn add_property(resources: &mut ResourceSet, name: &str, targets: &IdSet) -> Result<(), Error> {
    let present = targets & &resources.ranks();
    // Without ranks the name is not checked: an earlier version may have allowed it.
    if !present.is_empty() {
        resources.add_property(name, &present)?;
    }
    Ok(())
}

/// Moves ranks of a property from one list of changes to the other.
fn move_ranks(
    name: &str,
    ranks: &IdSet,
    from: &mut BTreeMap<String, IdSet>,
    to: &mut BTreeMap<String, IdSet>,
) {
    if let Some(others) = from.get_mut(name) {
        others.subtract(ranks);
    }
    to.entry(name.to_owned()).or_default().union_with(ranks);
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
