//! R (RFC 20) of allocations: as a resource set, as text, and back.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use penstock_idset::IdSet;
use penstock_rset::{ResourceSet, Writer};

use super::NodeTable;
use super::allocation::{Allocation, NodeShare, Split};
use crate::Error;
use crate::ids::NodeIndex;

/// Runs of consecutive numbers in an ascending sequence.
fn runs(
    mut numbers: impl Iterator<Item = u32> + Clone,
) -> impl Iterator<Item = RangeInclusive<u32>> + Clone {
    let mut next = numbers.next();
    std::iter::from_fn(move || {
        let first = next?;
        let mut last = first;
        let mut following = numbers.next();
        while let Some(number) = following
            && last.checked_add(1) == Some(number)
        {
            last = number;
            following = numbers.next();
        }
        next = following;
        Some(first..=last)
    })
}

/// A property, by number, and nodes that have it.
struct PropertyNodes {
    property: u32,
    nodes: Vec<NodeIndex>,
}

impl NodeTable {
    /// The R of node shares, in rank order, with hosts and the properties that a job may see (RFC
    /// 20, properties: those that begin with `+` are private to the instance).
    pub fn r(&self, shares: &[NodeShare]) -> Result<ResourceSet, Error> {
        let wrap = |error: penstock_rset::Error| Error::new(error.to_string());
        let mut r = ResourceSet::new();
        let mut host = String::new();
        for share in shares {
            let at = share.node.index();
            let mut hosts = self.directory.hosts().iter_range(at..at + 1);
            hosts.read_next(&mut host);
            let class = self.nodes.class(share.node);
            let (cores, gpus) = (class.cores.at(&share.cores), class.gpus.at(&share.gpus));
            r.insert(self.nodes.rank(share.node), &host, cores, gpus)
                .map_err(wrap)?;
        }
        for PropertyNodes { property, nodes } in self.visible_properties(shares) {
            let ranks = nodes.into_iter().map(|node| self.nodes.rank(node));
            let name = self.directory.property_sets().name(property);
            r.add_property(name, &ranks.collect()).map_err(wrap)?;
        }
        Ok(r)
    }

    /// Appends the JSON text of an R to `text`, byte for byte as [`r`](Self::r) and
    /// [`ResourceSet::to_json`] would write it. Times that are `None` or 0 are left unset.
    pub fn write_r(
        &self,
        shares: &[NodeShare],
        starttime: Option<f64>,
        expiration: Option<f64>,
        nslots: Option<u64>,
        text: &mut String,
    ) {
        let mut writer = Writer::new(text);
        self.write_entries(shares, &mut writer);
        self.write_hosts(shares, &mut writer);
        let property_sets = self.directory.property_sets();
        for PropertyNodes { property, nodes } in self.visible_properties(shares) {
            let ranks = nodes.into_iter().map(|node| self.nodes.rank(node));
            writer.push_property(property_sets.name(property), runs(ranks));
        }
        let positive = |time: Option<f64>| time.filter(|time| *time > 0.0);
        writer.finish(positive(starttime), positive(expiration), nslots);
    }

    fn write_entries(&self, shares: &[NodeShare], writer: &mut Writer) {
        let Some(first) = shares.first() else {
            return;
        };
        let ranks = |shares: &[NodeShare]| {
            let ranks = shares.iter().map(|share| self.nodes.rank(share.node));
            ranks.collect::<Vec<u32>>()
        };
        let plain = |share: &NodeShare| {
            let class = self.nodes.class(share.node);
            class.cores.plain && class.gpus.plain
        };
        let number = self.nodes.class_id(first.node);
        let first_plain = plain(first);
        let same = |share: &NodeShare| {
            share.cores == first.cores
                && share.gpus == first.gpus
                && (self.nodes.class_id(share.node) == number || first_plain && plain(share))
        };
        if shares[1..].iter().all(same) {
            let ranks = shares.iter().map(|share| self.nodes.rank(share.node));
            return self.write_entry(runs(ranks), first, writer);
        }
        if shares.iter().all(plain) {
            let key = |share: &'_ NodeShare| (share.cores.clone(), share.gpus.clone());
            return self.write_groups(shares, key, ranks, writer);
        }
        let key = |share: &'_ NodeShare| {
            let class = self.nodes.class(share.node);
            (class.cores.at(&share.cores), class.gpus.at(&share.gpus))
        };
        self.write_groups(shares, key, ranks, writer);
    }

    /// Writes one entry for the shares of each key, in the order of their first ranks.
    fn write_groups<K: std::hash::Hash + Eq>(
        &self,
        shares: &[NodeShare],
        key: impl Fn(&NodeShare) -> K,
        ranks: impl Fn(&[NodeShare]) -> Vec<u32>,
        writer: &mut Writer,
    ) {
        let ranks = ranks(shares);
        let mut known: HashMap<K, usize> = HashMap::new();
        let mut groups: Vec<(&NodeShare, Vec<u32>)> = Vec::new();
        for (share, rank) in shares.iter().zip(ranks) {
            let group = *known.entry(key(share)).or_insert_with(|| {
                groups.push((share, Vec::new()));
                groups.len() - 1
            });
            groups[group].1.push(rank);
        }
        for (share, ranks) in groups {
            self.write_entry(runs(ranks.into_iter()), share, writer);
        }
    }

    fn write_entry(
        &self,
        ranks: impl Iterator<Item = RangeInclusive<u32>>,
        share: &NodeShare,
        writer: &mut Writer,
    ) {
        let class = self.nodes.class(share.node);
        writer.push_entry(
            ranks,
            class.cores.runs(&share.cores),
            class.gpus.runs(&share.gpus),
        );
    }

    fn write_hosts(&self, shares: &[NodeShare], writer: &mut Writer) {
        let hosts = self.directory.hosts();
        if let [share] = shares {
            let at = share.node.index();
            let mut host = String::new();
            hosts.iter_range(at..at + 1).write_next(&mut host);
            return writer.push_hosts(&host);
        }
        let nodes = runs(shares.iter().map(|share| share.node.get()));
        let parts = nodes.map(|run| *run.start() as usize..*run.end() as usize + 1);
        let mut text = String::with_capacity(8 * shares.len());
        hosts.write_slices(parts, &mut text);
        writer.push_hosts(&text);
    }

    /// The properties that a job with these shares may see, by number, with its nodes that have each.
    fn visible_properties(&self, shares: &[NodeShare]) -> Vec<PropertyNodes> {
        let property_sets = self.directory.property_sets();
        let mut visible: Vec<PropertyNodes> = Vec::new();
        for share in shares {
            for property in property_sets.of_set(property_sets.number(share.node)) {
                if property_sets.name(*property).starts_with('+') {
                    continue;
                }
                match visible.binary_search_by_key(property, |known| known.property) {
                    Ok(at) => visible[at].nodes.push(share.node),
                    Err(at) => visible.insert(
                        at,
                        PropertyNodes {
                            property: *property,
                            nodes: vec![share.node],
                        },
                    ),
                }
            }
        }
        visible
    }

    /// The share of a rank with the given cores and gpus, as far as it has them; `None` for an
    /// unknown rank.
    fn known_share(&self, rank: u32, cores: &IdSet, gpus: &IdSet) -> Option<NodeShare> {
        let node = self.directory.node_of(rank)?;
        let class = self.nodes.class(node);
        Some(NodeShare {
            node,
            cores: class.cores.indices(cores),
            gpus: class.gpus.indices(gpus),
        })
    }

    /// The share that a node of an R stands for. Fails if the inventory lacks any of it.
    fn checked_share(&self, node: &penstock_rset::Node) -> Result<NodeShare, Error> {
        let rank = node.rank;
        let share = self
            .known_share(rank, node.cores, node.gpus)
            .ok_or_else(|| Error::new(format!("rank {rank} is not in the inventory")))?;
        let class = self.nodes.class(share.node);
        for (what, wanted, all) in [
            ("core", node.cores, class.cores.ids()),
            ("gpu", node.gpus, class.gpus.ids()),
        ] {
            if !wanted.is_subset(all) {
                let missing = wanted.difference(all);
                return Err(Error::new(format!("rank {rank} has no {what} {missing}")));
            }
        }
        Ok(share)
    }

    /// The allocation that an R stands for. Fails unless all of it exists and is free.
    pub fn allocation_of(&self, r: &ResourceSet) -> Result<Allocation, Error> {
        let share = |node: penstock_rset::Node<'_>| {
            let share = self.checked_share(&node)?;
            if !self.nodes.is_free(&share) {
                let free = self.nodes.free_of(&share);
                let class = self.nodes.class(share.node);
                let cores = node.cores.difference(&class.cores.at(&free.cores));
                let gpus = node.gpus.difference(&class.gpus.at(&free.gpus));
                let (what, taken) = if cores.is_empty() {
                    ("gpu", gpus)
                } else {
                    ("core", cores)
                };
                let rank = node.rank;
                let text = format!("{what} {taken} of rank {rank} is allocated already");
                return Err(Error::unavailable(text));
            }
            Ok(share)
        };
        let shares: Result<_, Error> = r.nodes().map(share).collect();
        let slots = r.nslots().and_then(|slots| u32::try_from(slots).ok());
        Ok(Allocation::new(shares?, slots.unwrap_or(0)))
    }

    /// The share of a rank with the given cores and gpus, as far as they exist and are free; `None`
    /// for an unknown rank.
    pub fn free_share(&self, rank: u32, cores: &IdSet, gpus: &IdSet) -> Option<NodeShare> {
        let share = self.known_share(rank, cores, gpus)?;
        Some(self.nodes.free_of(&share))
    }

    /// Cuts the part on some ranks from an allocation. The rest keeps the number of slots.
    pub fn split_by_ranks(&self, allocation: &Allocation, ranks: &IdSet) -> Split {
        let slots = allocation.slot_count();
        let (on_ranks, others): (Vec<NodeShare>, Vec<NodeShare>) = allocation
            .iter()
            .cloned()
            .partition(|share| ranks.contains(self.nodes.rank(share.node)));
        Split {
            part: on_ranks.into_iter().collect(),
            rest: Allocation::new(others.into(), slots),
        }
    }

    /// Cuts the resources of an R from an allocation. Fails if the allocation lacks any of them.
    pub fn split_by_r(&self, shares: &[NodeShare], r: &ResourceSet) -> Result<Split, Error> {
        let mut named: HashMap<NodeIndex, NodeShare> = HashMap::new();
        for node in r.nodes() {
            let share = self.checked_share(&node)?;
            named.insert(share.node, share);
        }
        let (mut part, mut rest) = (Vec::new(), Vec::new());
        for share in shares {
            let Some(wanted) = named.remove(&share.node) else {
                rest.push(share.clone());
                continue;
            };
            let left = NodeShare {
                node: share.node,
                cores: share.cores.difference(&wanted.cores),
                gpus: share.gpus.difference(&wanted.gpus),
            };
            let missing_cores = wanted.cores.difference(&share.cores);
            let missing_gpus = wanted.gpus.difference(&share.gpus);
            if !missing_cores.is_empty() || !missing_gpus.is_empty() {
                return Err(self.not_held(share.node));
            }
            if !left.is_empty() {
                rest.push(left);
            }
            part.push(wanted);
        }
        match named.into_keys().min() {
            Some(node) => Err(self.not_held(node)),
            None => Ok(Split {
                part: part.into_iter().collect(),
                rest: rest.into_iter().collect(),
            }),
        }
    }

    fn not_held(&self, node: NodeIndex) -> Error {
        Error::not_held(self.nodes.rank(node))
    }
}
