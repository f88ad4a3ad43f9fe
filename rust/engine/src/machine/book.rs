//! What is known of nodes beside their resources: ranks, hosts, properties; and which nodes meet
//! a constraint.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::Constraint;
use penstock_rset::ResourceSet;

use crate::Error;

/// Ranks, hosts and properties.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    /// The ranks with their hosts and properties, without cores and gpus.
    set: Arc<ResourceSet>,
    ranks: IdSet,
    hosts: Arc<Hostlist>,
    profiles: OnceLock<Arc<Profiles>>,
}

/// Which properties the nodes have: equal sets of properties have one number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profiles {
    /// The number of each place's set; empty where no node has a property.
    of: Vec<u32>,
    /// The properties of each set, by their order in the names.
    sets: Vec<Vec<u32>>,
    names: Vec<String>,
}

fn wrap(error: &penstock_rset::Error) -> Error {
    Error::new(error.to_string())
}

fn bare(set: &ResourceSet) -> Result<ResourceSet, Error> {
    let (ranks, hosts) = (set.ranks(), set.nodelist());
    let mut bare = ResourceSet::uniform(&ranks, &hosts, IdSet::new(), IdSet::new())
        .map_err(|error| wrap(&error))?;
    for (name, ranks) in set.properties() {
        bare.add_property(name, ranks)
            .map_err(|error| wrap(&error))?;
    }
    Ok(bare)
}

impl Book {
    pub fn new(set: &ResourceSet) -> Result<Self, Error> {
        Ok(Self::of(bare(set)?))
    }

    fn of(set: ResourceSet) -> Self {
        Self {
            ranks: set.ranks(),
            hosts: Arc::new(set.nodelist()),
            profiles: OnceLock::new(),
            set: Arc::new(set),
        }
    }

    pub fn ranks(&self) -> &IdSet {
        &self.ranks
    }

    /// One host for each place.
    pub fn hosts(&self) -> &Hostlist {
        &self.hosts
    }

    pub fn place_of(&self, rank: u32) -> Option<u32> {
        u32::try_from(self.ranks.rank_of(rank)?).ok()
    }

    /// The places of ranks, all of which are there.
    fn places(&self, ranks: &IdSet) -> IdSet {
        let mut places = IdSet::new();
        for range in ranks.ranges() {
            // The ranks between two of them are there as well.
            let ends = (self.place_of(*range.start()), self.place_of(*range.end()));
            if let (Some(first), Some(last)) = ends {
                places.insert_range(first..=last);
            }
        }
        places
    }

    /// Adds ranks that are not there yet.
    pub fn with(&self, more: &ResourceSet) -> Result<Self, Error> {
        let more = bare(more)?;
        let set = self.set.union(&more).map_err(|error| wrap(&error))?;
        Ok(Self::of(set))
    }

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
        self.profiles = OnceLock::new();
        Ok(())
    }

    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        Arc::make_mut(&mut self.set).remove_property(name, ranks);
        self.profiles = OnceLock::new();
    }

    /// The places that meet a constraint.
    pub fn meeting(&self, constraint: &Constraint) -> IdSet {
        self.places(&self.ranks_meeting(constraint))
    }

    fn ranks_meeting(&self, constraint: &Constraint) -> IdSet {
        let all = |parts: &[Constraint]| {
            let parts = parts.iter().map(|part| self.ranks_meeting(part));
            parts.fold(self.ranks.clone(), |met, part| met.intersection(&part))
        };
        let with = |name: &str| self.set.ranks_with_property(name);
        match constraint {
            Constraint::And(parts) => all(parts),
            Constraint::Or(parts) if parts.is_empty() => self.ranks.clone(),
            Constraint::Or(parts) => {
                let parts = parts.iter().map(|part| self.ranks_meeting(part));
                parts.fold(IdSet::new(), |met, part| met.union(&part))
            }
            Constraint::Not(parts) => self.ranks.difference(&all(parts)),
            Constraint::Properties(names) => names.iter().fold(self.ranks.clone(), |met, name| {
                match name.strip_prefix('^') {
                    Some(absent) => met.difference(&with(absent)),
                    None => met.intersection(&with(name)),
                }
            }),
            Constraint::Hostlist(hosts) => self.set.ranks_on(hosts),
            Constraint::Ranks(ranks) => ranks.intersection(&self.ranks),
        }
    }

    /// Which properties the nodes have.
    pub fn profiles(&self) -> &Profiles {
        self.profiles.get_or_init(|| Arc::new(Profiles::new(self)))
    }
}

impl Profiles {
    fn new(book: &Book) -> Self {
        let properties = book.set.properties();
        if properties.is_empty() {
            return Self::default();
        }
        let nodes = usize::try_from(book.ranks.len()).unwrap_or_default();
        let mut profiles = Self {
            of: vec![0; nodes],
            sets: vec![Vec::new()],
            names: properties.keys().cloned().collect(),
        };
        for (ranks, property) in properties.values().zip(0_u32..) {
            let mut grown: HashMap<u32, u32> = HashMap::new();
            for place in &book.places(ranks) {
                let set = &mut profiles.of[place as usize];
                let sets = &mut profiles.sets;
                *set = *grown.entry(*set).or_insert_with(|| {
                    let mut more = sets[*set as usize].clone();
                    more.push(property);
                    sets.push(more);
                    u32::try_from(sets.len() - 1).unwrap_or(u32::MAX)
                });
            }
        }
        profiles
    }

    /// The number of a node's set of properties; 0 is the empty set.
    pub fn number(&self, place: u32) -> u32 {
        self.of.get(place as usize).copied().unwrap_or(0)
    }

    /// Sets of properties there are.
    pub fn count(&self) -> usize {
        self.sets.len().max(1)
    }

    /// The properties of a set, by number.
    pub fn of_set(&self, number: u32) -> &[u32] {
        self.sets.get(number as usize).map_or(&[], Vec::as_slice)
    }

    /// The name of a property.
    pub fn name(&self, property: u32) -> &str {
        &self.names[property as usize]
    }

    /// How many of a set's properties none of these names asks for.
    pub fn unasked(&self, number: u32, asked: &[&str]) -> u32 {
        let is_asked = |name: &str| {
            asked.iter().any(|asked| {
                let rest = name.strip_prefix(asked);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
            })
        };
        let set = self.of_set(number).iter();
        let unasked = set.filter(|it| !is_asked(self.name(**it)));
        u32::try_from(unasked.count()).unwrap_or(u32::MAX)
    }
}
