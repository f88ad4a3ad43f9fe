//! The directory of nodes: ranks, hosts and properties, and which nodes meet a constraint.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::Constraint;
use penstock_rset::ResourceSet;

use crate::Error;
use crate::ids::NodeIndex;

/// Ranks, hosts and properties of the nodes.
#[derive(Clone, Debug)]
pub(crate) struct NodeDirectory {
    /// The ranks with their hosts and properties, without cores and gpus.
    set: Arc<ResourceSet>,
    ranks: IdSet,
    hosts: Arc<Hostlist>,
    property_sets: OnceLock<Arc<PropertySets>>,
}

/// Which properties each node has. Equal sets of properties have one number.
#[derive(Clone, Debug, Default)]
pub(crate) struct PropertySets {
    /// The number of each node's set; empty if no node has a property.
    of: Vec<u32>,
    /// The properties of each set, as indices into `names`.
    sets: Vec<Vec<u32>>,
    names: Vec<String>,
}

fn wrap(error: &penstock_rset::Error) -> Error {
    Error::new(error.to_string())
}

/// A resource set without its cores and gpus.
fn without_resources(set: &ResourceSet) -> Result<ResourceSet, Error> {
    let (ranks, hosts) = (set.ranks(), set.nodelist());
    let mut bare = ResourceSet::uniform(&ranks, &hosts, IdSet::new(), IdSet::new())
        .map_err(|error| wrap(&error))?;
    for (name, ranks) in set.properties() {
        bare.add_property(name, ranks)
            .map_err(|error| wrap(&error))?;
    }
    Ok(bare)
}

impl NodeDirectory {
    pub fn new(set: &ResourceSet) -> Result<Self, Error> {
        Ok(Self::of(without_resources(set)?))
    }

    fn of(set: ResourceSet) -> Self {
        Self {
            ranks: set.ranks(),
            hosts: Arc::new(set.nodelist()),
            property_sets: OnceLock::new(),
            set: Arc::new(set),
        }
    }

    pub fn ranks(&self) -> &IdSet {
        &self.ranks
    }

    /// The host of each node.
    pub fn hosts(&self) -> &Hostlist {
        &self.hosts
    }

    /// The node with a rank.
    pub fn node_of(&self, rank: u32) -> Option<NodeIndex> {
        u32::try_from(self.ranks.find(rank)?)
            .ok()
            .map(NodeIndex::new)
    }

    /// The indices of ranks, all of which exist.
    fn nodes_with(&self, ranks: &IdSet) -> IdSet {
        let mut nodes = IdSet::new();
        for range in ranks.ranges() {
            // All ranks between the ends exist, so their indices are consecutive.
            let ends = (self.node_of(*range.start()), self.node_of(*range.end()));
            if let (Some(first), Some(last)) = ends {
                nodes.insert_range(first.get()..=last.get());
            }
        }
        nodes
    }

    /// The directory with more ranks, none of which it has yet.
    pub fn with(&self, more: &ResourceSet) -> Result<Self, Error> {
        let more = without_resources(more)?;
        let set = self.set.union(&more).map_err(|error| wrap(&error))?;
        Ok(Self::of(set))
    }

    /// The directory without some ranks.
    pub fn without(&self, ranks: &IdSet) -> Self {
        let mut set = (*self.set).clone();
        set.remove_ranks(ranks);
        Self::of(set)
    }

    pub fn add_property(&mut self, name: &str, ranks: &IdSet) -> Result<(), Error> {
        if !ranks.is_subset(&self.ranks) {
            let unknown = ranks.difference(&self.ranks);
            let text = format!("property `{name}`: no ranks {unknown} in the inventory");
            return Err(Error::new(text));
        }
        let set = Arc::make_mut(&mut self.set);
        set.add_property(name, ranks)
            .map_err(|error| wrap(&error))?;
        self.property_sets = OnceLock::new();
        Ok(())
    }

    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        Arc::make_mut(&mut self.set).remove_property(name, ranks);
        self.property_sets = OnceLock::new();
    }

    /// The indices of the nodes that meet a constraint.
    pub fn matching_nodes(&self, constraint: &Constraint) -> IdSet {
        self.nodes_with(&self.matching_ranks(constraint))
    }

    fn matching_ranks(&self, constraint: &Constraint) -> IdSet {
        let all = |parts: &[Constraint]| {
            let parts = parts.iter().map(|part| self.matching_ranks(part));
            parts.fold(self.ranks.clone(), |met, part| met.intersection(&part))
        };
        let having = |name: &str| self.set.ranks_with_property(name);
        match constraint {
            Constraint::And(parts) => all(parts),
            Constraint::Or(parts) if parts.is_empty() => self.ranks.clone(),
            Constraint::Or(parts) => {
                let parts = parts.iter().map(|part| self.matching_ranks(part));
                parts.fold(IdSet::new(), |met, part| met.union(&part))
            }
            Constraint::Not(parts) => self.ranks.difference(&all(parts)),
            Constraint::Properties(names) => names.iter().fold(self.ranks.clone(), |met, name| {
                match name.strip_prefix('^') {
                    Some(absent) => met.difference(&having(absent)),
                    None => met.intersection(&having(name)),
                }
            }),
            Constraint::Hostlist(hosts) => self.set.ranks_on(hosts),
            Constraint::Ranks(ranks) => ranks.intersection(&self.ranks),
        }
    }

    /// Which properties each node has; computed on first use after a change.
    pub fn property_sets(&self) -> &PropertySets {
        self.property_sets
            .get_or_init(|| Arc::new(PropertySets::new(self)))
    }
}

impl PropertySets {
    fn new(directory: &NodeDirectory) -> Self {
        let properties = directory.set.properties();
        if properties.is_empty() {
            return Self::default();
        }
        let nodes = usize::try_from(directory.ranks.len()).unwrap_or_default();
        let mut property_sets = Self {
            of: vec![0; nodes],
            sets: vec![Vec::new()],
            names: properties.keys().cloned().collect(),
        };
        for (ranks, property) in properties.values().zip(0_u32..) {
            let mut grown: HashMap<u32, u32> = HashMap::new();
            for node in &directory.nodes_with(ranks) {
                let set = &mut property_sets.of[node as usize];
                let sets = &mut property_sets.sets;
                *set = *grown.entry(*set).or_insert_with(|| {
                    let mut more = sets[*set as usize].clone();
                    more.push(property);
                    sets.push(more);
                    u32::try_from(sets.len() - 1).unwrap_or(u32::MAX)
                });
            }
        }
        property_sets
    }

    /// The number of a node's set of properties; 0 for the empty set.
    pub fn number(&self, node: NodeIndex) -> u32 {
        self.of.get(node.index()).copied().unwrap_or(0)
    }

    /// The number of distinct sets of properties.
    pub fn count(&self) -> usize {
        self.sets.len().max(1)
    }

    /// The properties of a set, as indices for [`name`](Self::name).
    pub fn of_set(&self, number: u32) -> &[u32] {
        self.sets.get(number as usize).map_or(&[], Vec::as_slice)
    }

    /// The name of a property.
    pub fn name(&self, property: u32) -> &str {
        &self.names[property as usize]
    }

    /// The number of a set's properties that are not among `names`.
    pub fn count_unnamed(&self, number: u32, names: &[&str]) -> u32 {
        let is_named = |property: &str| {
            names.iter().any(|name| {
                let rest = property.strip_prefix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
            })
        };
        let set = self.of_set(number).iter();
        let unnamed = set.filter(|property| !is_named(self.name(**property)));
        u32::try_from(unnamed.count()).unwrap_or(u32::MAX)
    }
}
