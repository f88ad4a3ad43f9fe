//! R of shares: as a set, as text, and back.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use penstock_idset::IdSet;
use penstock_rset::{ResourceSet, Writer};

use super::Machine;
use super::share::{Share, Shares};
use crate::Error;

/// Runs of numbers that ascend.
fn runs(
    numbers: impl Iterator<Item = u32> + Clone,
) -> impl Iterator<Item = RangeInclusive<u32>> + Clone {
    let mut numbers = numbers.peekable();
    std::iter::from_fn(move || {
        let first = numbers.next()?;
        let mut last = first;
        while let Some(next) = numbers.next_if(|next| last.checked_add(1) == Some(*next)) {
            last = next;
        }
        Some(first..=last)
    })
}

impl Machine {
    /// R of shares, which are in the order of places: hosts, and the properties that a job may
    /// see (RFC 20: those that begin with `+` are local to the instance).
    pub fn r(&self, shares: &[Share]) -> Result<ResourceSet, Error> {
        let wrap = |error: penstock_rset::Error| Error::new(error.to_string());
        let mut r = ResourceSet::new();
        let mut host = String::new();
        for share in shares {
            let place = share.place as usize;
            let mut hosts = self.book.hosts().iter_range(place..place + 1);
            hosts.read_next(&mut host);
            let kind = self.nodes.kind(share.place);
            let (cores, gpus) = (kind.cores.at(&share.cores), kind.gpus.at(&share.gpus));
            r.insert(self.nodes.rank(share.place), &host, cores, gpus)
                .map_err(wrap)?;
        }
        for (property, places) in self.visible(shares) {
            let ranks = places.into_iter().map(|place| self.nodes.rank(place));
            let name = self.book.profiles().name(property);
            r.add_property(name, &ranks.collect()).map_err(wrap)?;
        }
        Ok(r)
    }

    /// Appends the text of R, as [`r`](Self::r) and [`ResourceSet::to_json`] would make it, to a
    /// text. The times are unset where they are `None` or 0.
    pub fn write_r(
        &self,
        shares: &[Share],
        starttime: Option<f64>,
        expiration: Option<f64>,
        nslots: Option<u64>,
        text: &mut String,
    ) {
        let mut writer = Writer::new(text);
        self.write_entries(shares, &mut writer);
        self.write_hosts(shares, &mut writer);
        let profiles = self.book.profiles();
        for (property, places) in self.visible(shares) {
            let ranks = places.into_iter().map(|place| self.nodes.rank(place));
            writer.property(profiles.name(property), runs(ranks));
        }
        let set = |time: Option<f64>| time.filter(|time| *time > 0.0);
        writer.finish(set(starttime), set(expiration), nslots);
    }

    fn write_entries(&self, shares: &[Share], writer: &mut Writer) {
        let Some(first) = shares.first() else {
            return;
        };
        let ranks = |shares: &[Share]| {
            let ranks: Vec<u32> = shares.iter().map(|it| self.nodes.rank(it.place)).collect();
            ranks
        };
        let plain = |share: &Share| {
            let kind = self.nodes.kind(share.place);
            kind.cores.plain && kind.gpus.plain
        };
        let number = self.nodes.kind_number(first.place);
        let first_plain = plain(first);
        let same = |share: &Share| {
            share.cores == first.cores
                && share.gpus == first.gpus
                && (self.nodes.kind_number(share.place) == number || first_plain && plain(share))
        };
        if shares[1..].iter().all(same) {
            let ranks = shares.iter().map(|share| self.nodes.rank(share.place));
            return self.write_entry(runs(ranks), first, writer);
        }
        if shares.iter().all(plain) {
            let key = |share: &'_ Share| (share.cores.clone(), share.gpus.clone());
            return self.write_groups(shares, key, ranks, writer);
        }
        let key = |share: &'_ Share| {
            let kind = self.nodes.kind(share.place);
            (kind.cores.at(&share.cores), kind.gpus.at(&share.gpus))
        };
        self.write_groups(shares, key, ranks, writer);
    }

    /// Entries of the shares with equal keys, in the order of their first ranks.
    fn write_groups<K: std::hash::Hash + Eq>(
        &self,
        shares: &[Share],
        key: impl Fn(&Share) -> K,
        ranks: impl Fn(&[Share]) -> Vec<u32>,
        writer: &mut Writer,
    ) {
        let ranks = ranks(shares);
        let mut known: HashMap<K, usize> = HashMap::new();
        let mut groups: Vec<(&Share, Vec<u32>)> = Vec::new();
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
        share: &Share,
        writer: &mut Writer,
    ) {
        let kind = self.nodes.kind(share.place);
        writer.entry(
            ranks,
            kind.cores.runs(&share.cores),
            kind.gpus.runs(&share.gpus),
        );
    }

    fn write_hosts(&self, shares: &[Share], writer: &mut Writer) {
        let hosts = self.book.hosts();
        if let [share] = shares {
            let place = share.place as usize;
            let mut host = String::new();
            hosts.iter_range(place..place + 1).write_next(&mut host);
            return writer.hosts(&host);
        }
        let places = runs(shares.iter().map(|share| share.place));
        let parts = places.map(|run| *run.start() as usize..*run.end() as usize + 1);
        let mut text = String::with_capacity(8 * shares.len());
        hosts.write_slices(parts, &mut text);
        writer.hosts(&text);
    }

    /// The properties that a job on these nodes may see, by name, with the places that have each.
    fn visible(&self, shares: &[Share]) -> Vec<(u32, Vec<u32>)> {
        let profiles = self.book.profiles();
        let mut visible: Vec<(u32, Vec<u32>)> = Vec::new();
        for share in shares {
            for property in profiles.of_set(profiles.number(share.place)) {
                if profiles.name(*property).starts_with('+') {
                    continue;
                }
                match visible.binary_search_by_key(property, |(known, _)| *known) {
                    Ok(at) => visible[at].1.push(share.place),
                    Err(at) => visible.insert(at, (*property, vec![share.place])),
                }
            }
        }
        visible
    }

    /// The share of a rank that these cores and gpus are, as far as they are there. `None` for a
    /// rank that is not there.
    fn known_part(&self, rank: u32, cores: &IdSet, gpus: &IdSet) -> Option<Share> {
        let place = self.book.place_of(rank)?;
        let kind = self.nodes.kind(place);
        Some(Share {
            place,
            cores: kind.cores.positions(cores),
            gpus: kind.gpus.positions(gpus),
        })
    }

    /// As far as it is there: the share of an R's node.
    fn checked_part(&self, node: &penstock_rset::Node) -> Result<Share, Error> {
        let rank = node.rank;
        let share = self
            .known_part(rank, node.cores, node.gpus)
            .ok_or_else(|| Error::new(format!("rank {rank} is not in the inventory")))?;
        let kind = self.nodes.kind(share.place);
        for (what, wanted, all) in [
            ("core", node.cores, kind.cores.ids()),
            ("gpu", node.gpus, kind.gpus.ids()),
        ] {
            if !wanted.is_subset(all) {
                let lacking = wanted.difference(all);
                return Err(Error::new(format!("rank {rank} has no {what} {lacking}")));
            }
        }
        Ok(share)
    }

    /// The shares that an R stands for, if every one of them exists and is free.
    pub fn shares(&self, r: &ResourceSet) -> Result<Shares, Error> {
        let share = |node: penstock_rset::Node<'_>| {
            let share = self.checked_part(&node)?;
            if !self.nodes.is_free(&share) {
                let free = self.nodes.free_of(&share);
                let kind = self.nodes.kind(share.place);
                let cores = node.cores.difference(&kind.cores.at(&free.cores));
                let gpus = node.gpus.difference(&kind.gpus.at(&free.gpus));
                let (what, taken) = if cores.is_empty() {
                    ("gpu", gpus)
                } else {
                    ("core", cores)
                };
                let rank = node.rank;
                let text = format!("{what} {taken} of rank {rank} is allocated already");
                return Err(Error::new(text));
            }
            Ok(share)
        };
        let shares: Result<_, Error> = r.nodes().map(share).collect();
        let slots = r.nslots().and_then(|slots| u32::try_from(slots).ok());
        Ok(Shares::new(shares?, slots.unwrap_or(0)))
    }

    /// What of these cores and gpus of a rank is there and free.
    pub fn share_of(&self, rank: u32, cores: &IdSet, gpus: &IdSet) -> Option<Share> {
        let share = self.known_part(rank, cores, gpus)?;
        Some(self.nodes.free_of(&share))
    }

    /// Shares by rank: those on these ranks, and the others, which keep the slots.
    pub fn split(&self, shares: Shares, ranks: &IdSet) -> (Shares, Shares) {
        let slots = shares.count();
        let shares = shares.into_iter();
        let (on, others): (Vec<Share>, Vec<Share>) =
            shares.partition(|share| ranks.contains(self.nodes.rank(share.place)));
        let others = Shares::new(others.into(), slots);
        (on.into_iter().collect(), others)
    }

    /// Shares by what an R names: its part, and the rest. Fails where the R names what is not in
    /// the shares.
    pub fn part(&self, shares: &[Share], r: &ResourceSet) -> Result<(Shares, Shares), Error> {
        let mut named: HashMap<u32, Share> = HashMap::new();
        for node in r.nodes() {
            let share = self.checked_part(&node)?;
            named.insert(share.place, share);
        }
        let (mut part, mut rest) = (Vec::new(), Vec::new());
        for share in shares {
            let Some(wanted) = named.remove(&share.place) else {
                rest.push(share.clone());
                continue;
            };
            let left = Share {
                place: share.place,
                cores: share.cores.difference(&wanted.cores),
                gpus: share.gpus.difference(&wanted.gpus),
            };
            let lacking = wanted.cores.difference(&share.cores);
            let lacking_gpus = wanted.gpus.difference(&share.gpus);
            if !lacking.is_empty() || !lacking_gpus.is_empty() {
                return Err(self.not_held(share.place));
            }
            if !left.is_empty() {
                rest.push(left);
            }
            part.push(wanted);
        }
        let strange = named.into_keys().min();
        match strange {
            Some(place) => Err(self.not_held(place)),
            None => Ok((part.into_iter().collect(), rest.into_iter().collect())),
        }
    }

    fn not_held(&self, place: u32) -> Error {
        let rank = self.nodes.rank(place);
        Error::new(format!(
            "rank {rank}: expected a part of what is held, found more"
        ))
    }
}
