//! What exists, what is up, what is free.

use std::collections::{BTreeMap, HashMap};

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::Constraint;
use penstock_rset::ResourceSet;

use crate::Error;
use crate::index::{Free, Index};

/// One execution target.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub rank: u32,
    pub host: String,
    pub cores: IdSet,
    pub gpus: IdSet,
    pub free_cores: IdSet,
    pub free_gpus: IdSet,
    pub up: bool,
}

/// A part of a node.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Place of the node in rank order.
    pub place: u32,
    pub cores: IdSet,
    pub gpus: IdSet,
}

/// The nodes in rank order, with the index over what they have to give.
#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    pub nodes: Vec<Node>,
    pub index: Index,
    places: HashMap<u32, usize>,
    hosts: HashMap<String, IdSet>,
    properties: BTreeMap<String, IdSet>,
    ranks: IdSet,
    pub expiration: Option<f64>,
    /// Grows whenever something becomes available that was not.
    pub version: u64,
}

/// The size of a set of cores or gpus: ids are 32 bits wide, so a full set saturates at most.
pub(crate) fn size(ids: &IdSet) -> u32 {
    u32::try_from(ids.len()).unwrap_or(u32::MAX)
}

fn nodes_of(resources: &ResourceSet) -> impl Iterator<Item = Node> + '_ {
    resources.nodes().map(|node| Node {
        rank: node.rank,
        host: node.host.clone(),
        cores: node.cores.clone(),
        gpus: node.gpus.clone(),
        free_cores: node.cores.clone(),
        free_gpus: node.gpus.clone(),
        up: false,
    })
}

impl Inventory {
    pub fn new(resources: &ResourceSet) -> Result<Self, Error> {
        resources
            .require_execution()
            .map_err(|error| Error::new(error.to_string()))?;
        let mut inventory = Self {
            index: Index::new(0),
            places: HashMap::new(),
            hosts: HashMap::new(),
            properties: resources.properties().clone(),
            ranks: IdSet::new(),
            expiration: resources.expiration(),
            nodes: Vec::new(),
            version: 0,
        };
        inventory.set_nodes(nodes_of(resources).collect());
        Ok(inventory)
    }

    /// Takes these nodes, in rank order, in place of what there was.
    fn set_nodes(&mut self, nodes: Vec<Node>) {
        self.index = Index::new(nodes.len());
        self.places = nodes.iter().map(|node| node.rank).zip(0..).collect();
        self.ranks = nodes.iter().map(|node| node.rank).collect();
        self.hosts.clear();
        for node in &nodes {
            let ranks = self.hosts.entry(node.host.clone()).or_default();
            ranks.insert(node.rank);
        }
        self.nodes = nodes;
        for place in 0..self.nodes.len() {
            self.refresh(place);
        }
        self.version += 1;
    }

    /// Adds nodes, which are down until they are marked up. Places change: the caller has to
    /// look up again those that it knows.
    pub fn grow(&mut self, more: &ResourceSet) -> Result<(), Error> {
        let known = more.ranks().intersection(&self.ranks);
        if !known.is_empty() {
            let text = format!("ranks {known} are in the inventory already");
            return Err(Error::new(text));
        }
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.extend(nodes_of(more));
        nodes.sort_by_key(|node| node.rank);
        self.set_nodes(nodes);
        for (name, ranks) in more.properties() {
            let known = self.properties.entry(name.clone()).or_default();
            known.union_with(ranks);
        }
        Ok(())
    }

    /// Removes nodes; unknown ranks do not matter. Places change, as with [`grow`](Self::grow).
    pub fn shrink(&mut self, ranks: &IdSet) {
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.retain(|node| !ranks.contains(node.rank));
        self.set_nodes(nodes);
        for with in self.properties.values_mut() {
            with.subtract(ranks);
        }
    }

    /// The ranks there are, up or not.
    pub fn ranks(&self) -> &IdSet {
        &self.ranks
    }

    /// The place of the node with this rank.
    pub fn place(&self, rank: u32) -> Option<usize> {
        self.places.get(&rank).copied()
    }

    /// The first place whose rank is at least `rank`.
    pub fn place_from(&self, rank: u32) -> usize {
        self.nodes.partition_point(|node| node.rank < rank)
    }

    /// Says what the node has to give now.
    fn refresh(&mut self, place: usize) {
        let node = &self.nodes[place];
        let free = if node.up {
            let untouched = node.free_cores == node.cores && node.free_gpus == node.gpus;
            Free {
                cores: size(&node.free_cores),
                gpus: size(&node.free_gpus),
                whole: if untouched { size(&node.cores) } else { 0 },
            }
        } else {
            Free::default()
        };
        self.index.set(place, free);
    }

    /// Marks ranks up or down; unknown ones do not matter.
    pub fn mark(&mut self, ranks: &IdSet, up: bool) {
        for rank in &ranks.intersection(&self.ranks) {
            if let Some(place) = self.place(rank) {
                self.nodes[place].up = up;
                self.refresh(place);
            }
        }
        self.version += 1;
    }

    /// The ranks that are up.
    pub fn up(&self) -> IdSet {
        let up = self.nodes.iter().filter(|node| node.up);
        up.map(|node| node.rank).collect()
    }

    /// Takes shares away. The caller has made sure that they are free.
    pub fn take(&mut self, shares: &[Share]) {
        for share in shares {
            let node = &mut self.nodes[share.place as usize];
            node.free_cores.subtract(&share.cores);
            node.free_gpus.subtract(&share.gpus);
            self.refresh(share.place as usize);
        }
    }

    /// Gives shares back.
    pub fn give(&mut self, shares: &[Share]) {
        for share in shares {
            let node = &mut self.nodes[share.place as usize];
            node.free_cores.union_with(&share.cores);
            node.free_gpus.union_with(&share.gpus);
            self.refresh(share.place as usize);
        }
        self.version += 1;
    }

    /// The shares that an R stands for, if every one of them exists and is free.
    pub fn shares(&self, r: &ResourceSet) -> Result<Vec<Share>, Error> {
        let share = |node: penstock_rset::Node<'_>| {
            let rank = node.rank;
            let place = self
                .place(rank)
                .ok_or_else(|| Error::new(format!("rank {rank} is not in the inventory")))?;
            let known = &self.nodes[place];
            for (what, wanted, all, free) in [
                ("core", node.cores, &known.cores, &known.free_cores),
                ("gpu", node.gpus, &known.gpus, &known.free_gpus),
            ] {
                if !wanted.is_subset(all) {
                    let lacking = wanted.difference(all);
                    return Err(Error::new(format!("rank {rank} has no {what} {lacking}")));
                }
                if !wanted.is_subset(free) {
                    let taken = wanted.difference(free);
                    let text = format!("{what} {taken} of rank {rank} is allocated already");
                    return Err(Error::new(text));
                }
            }
            Ok(Share {
                place: u32::try_from(place).unwrap_or(u32::MAX),
                cores: node.cores.clone(),
                gpus: node.gpus.clone(),
            })
        };
        r.nodes().map(share).collect()
    }

    /// R for shares: hosts, and the properties of the ranks that a job may see (RFC 20: those
    /// that begin with `+` are local to the instance).
    pub fn r(&self, shares: &[Share]) -> Result<ResourceSet, Error> {
        let wrap = |error: penstock_rset::Error| Error::new(error.to_string());
        let mut r = ResourceSet::new();
        for share in shares {
            let node = &self.nodes[share.place as usize];
            r.insert(
                node.rank,
                &node.host,
                share.cores.clone(),
                share.gpus.clone(),
            )
            .map_err(wrap)?;
        }
        let ranks = r.ranks();
        for (name, with) in &self.properties {
            let with = with.intersection(&ranks);
            if !name.starts_with('+') && !with.is_empty() {
                r.add_property(name, &with).map_err(wrap)?;
            }
        }
        Ok(r)
    }

    pub fn add_property(&mut self, name: &str, ranks: &IdSet) -> Result<(), Error> {
        if !ranks.is_subset(&self.ranks) {
            let unknown = ranks.difference(&self.ranks);
            let text = format!("property `{name}`: no ranks {unknown} in the inventory");
            return Err(Error::new(text));
        }
        let known = self.properties.entry(name.to_owned()).or_default();
        known.union_with(ranks);
        self.version += 1;
        Ok(())
    }

    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        if let Some(known) = self.properties.get_mut(name) {
            known.subtract(ranks);
        }
        self.version += 1;
    }

    /// The ranks that meet a constraint, whether up or not.
    pub fn matching(&self, constraint: &Constraint) -> IdSet {
        let all = |parts: &[Constraint]| {
            let parts = parts.iter().map(|part| self.matching(part));
            parts.fold(self.ranks.clone(), |met, part| met.intersection(&part))
        };
        match constraint {
            Constraint::And(parts) => all(parts),
            Constraint::Or(parts) if parts.is_empty() => self.ranks.clone(),
            Constraint::Or(parts) => {
                let parts = parts.iter().map(|part| self.matching(part));
                parts.fold(IdSet::new(), |met, part| met.union(&part))
            }
            Constraint::Not(parts) => self.ranks.difference(&all(parts)),
            Constraint::Properties(names) => names.iter().fold(self.ranks.clone(), |met, name| {
                match name.strip_prefix('^') {
                    Some(absent) => met.difference(&self.with_property(absent)),
                    None => met.intersection(&self.with_property(name)),
                }
            }),
            Constraint::Hostlist(hosts) => self.with_host(hosts),
            Constraint::Ranks(ranks) => ranks.intersection(&self.ranks),
        }
    }

    /// RFC 20: `name@suffix` also counts as `name`.
    fn with_property(&self, name: &str) -> IdSet {
        let mut ranks = self.properties.get(name).cloned().unwrap_or_default();
        let from = format!("{name}@");
        let suffixed = self.properties.range(from.clone()..);
        for (_, more) in suffixed.take_while(|(other, _)| other.starts_with(&from)) {
            ranks.union_with(more);
        }
        ranks
    }

    fn with_host(&self, hosts: &Hostlist) -> IdSet {
        let mut ranks = IdSet::new();
        // Whichever list is shorter is gone through; the other one is asked.
        if hosts.len() <= self.nodes.len() {
            for host in hosts {
                if let Some(more) = self.hosts.get(&*host) {
                    ranks.union_with(more);
                }
            }
        } else {
            let met = self.nodes.iter().filter(|node| hosts.contains(&node.host));
            ranks.extend(met.map(|node| node.rank));
        }
        ranks
    }
}
