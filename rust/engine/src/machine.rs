//! The machine: what exists, what is free, and where a shape fits.
//!
//! A shape is a request without its duration. It needs a number of units, and each node gives a
//! number of units that depends on that node alone: slots, or one for a node that holds all of a
//! node's slots.

use std::collections::HashMap;

use penstock_idset::IdSet;
use penstock_jobspec::{Constraint, Count, Request};
use penstock_rset::ResourceSet;

pub(crate) use crate::inventory::Share;
use crate::inventory::{Inventory, size};
use crate::{Error, feasibility, index, matching};

/// An interned request without its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShapeId(pub(crate) u32);

/// What a node has to give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Free {
    pub cores: u32,
    pub gpus: u32,
    /// Whether nothing of the node is in use.
    pub whole: bool,
}

/// Parts of nodes, by place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Vec<Share>, u64);

impl std::ops::Deref for Shares {
    type Target = [Share];

    fn deref(&self) -> &[Share] {
        &self.0
    }
}

impl Shares {
    pub fn slots(&self) -> u64 {
        self.1
    }

    pub fn merge(&mut self, others: Self) {
        self.0.extend(others.0);
        self.0.sort_by_key(|share| share.place);
    }

    pub fn push(&mut self, share: Share) {
        self.0.push(share);
    }
}

impl FromIterator<Share> for Shares {
    fn from_iter<I: IntoIterator<Item = Share>>(shares: I) -> Self {
        Self(shares.into_iter().collect(), 0)
    }
}

/// Ranks of the places before a change.
pub(crate) type Moves = Vec<u32>;

/// Which of the nodes that fit a job gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// The lowest ranks.
    #[default]
    First,
}

impl Share {
    pub fn ncores(&self) -> u32 {
        size(&self.cores)
    }

    pub fn ngpus(&self) -> u32 {
        size(&self.gpus)
    }
}

type Key = (Option<Count>, bool, Count, Count, Count, Option<Constraint>);

#[derive(Clone, Debug)]
struct Shape {
    request: Request,
    /// For which inventory the two below hold.
    version: u64,
    allowed: Option<IdSet>,
    feasible: Result<(), String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub inventory: Inventory,
    shapes: Vec<Shape>,
    ids: HashMap<Key, ShapeId>,
    /// Grows when nodes or properties change.
    version: u64,
    selection: Selection,
}

impl Machine {
    pub fn new(resources: &ResourceSet) -> Result<Self, Error> {
        Ok(Self {
            inventory: Inventory::new(resources)?,
            shapes: Vec::new(),
            ids: HashMap::new(),
            version: 1,
            selection: Selection::First,
        })
    }

    /// Nodes: places are 0 to this, in rank order.
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.inventory.nodes.len()).unwrap_or(u32::MAX)
    }

    /// The interned shape of a request.
    pub fn shape(&mut self, request: &Request) -> ShapeId {
        let key = (
            request.nnodes.clone(),
            request.exclusive,
            request.slots.clone(),
            request.cores_per_slot.clone(),
            request.gpus_per_slot.clone(),
            request.constraint.clone(),
        );
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let id = ShapeId(u32::try_from(self.shapes.len()).unwrap_or(u32::MAX));
        self.shapes.push(Shape {
            request: request.clone(),
            version: 0,
            allowed: None,
            feasible: Ok(()),
        });
        self.ids.insert(key, id);
        self.refresh(id);
        id
    }

    fn refresh(&mut self, id: ShapeId) {
        let shape = &mut self.shapes[id.0 as usize];
        if shape.version == self.version {
            return;
        }
        let constraint = shape.request.constraint.as_ref();
        shape.allowed = constraint.map(|it| self.inventory.matching(it));
        let allowed = shape.allowed.as_ref();
        shape.feasible = feasibility::check(&self.inventory, &shape.request, allowed);
        shape.version = self.version;
    }

    pub fn request(&self, id: ShapeId) -> &Request {
        &self.shapes[id.0 as usize].request
    }

    /// Whether everything there is, up and empty, could meet the shape; else the note of a denial.
    pub fn feasible(&mut self, id: ShapeId) -> Result<(), String> {
        self.refresh(id);
        self.shapes[id.0 as usize].feasible.clone()
    }

    /// Units that the shape needs.
    pub fn need(&self, id: ShapeId) -> u64 {
        let request = self.request(id);
        u64::from(request.nnodes.as_ref().unwrap_or(&request.slots).min())
    }

    pub fn is_up(&self, place: u32) -> bool {
        self.inventory.nodes[place as usize].up
    }

    pub fn allows(&self, id: ShapeId, place: u32) -> bool {
        let allowed = self.shapes[id.0 as usize].allowed.as_ref();
        allowed.is_none_or(|it| it.contains(self.inventory.nodes[place as usize].rank))
    }

    /// What a node has to give now, were it up.
    pub fn free(&self, place: u32) -> Free {
        let node = &self.inventory.nodes[place as usize];
        Free {
            cores: size(&node.free_cores),
            gpus: size(&node.free_gpus),
            whole: node.free_cores == node.cores && node.free_gpus == node.gpus,
        }
    }

    /// Whether so much free is the whole node.
    pub fn whole_with(&self, place: u32, cores: u32, gpus: u32) -> bool {
        let node = &self.inventory.nodes[place as usize];
        cores == size(&node.cores) && gpus == size(&node.gpus)
    }

    /// Units that a node would give with so much free; none if it is down or not allowed.
    pub fn units(&self, id: ShapeId, place: u32, free: Free) -> u32 {
        if !self.is_up(place) || !self.allows(id, place) {
            return 0;
        }
        let request = self.request(id);
        let slot = index::Free {
            cores: request.cores_per_slot.min(),
            gpus: request.gpus_per_slot.min(),
            whole: 0,
        };
        let has = index::Free {
            cores: free.cores,
            gpus: free.gpus,
            whole: 0,
        };
        let slots = matching::fitting(has, slot);
        match request.nnodes {
            None => slots,
            Some(_) => {
                u32::from(slots >= request.slots.min() && (free.whole || !request.exclusive))
            }
        }
    }

    /// Units that all nodes would give now.
    pub fn units_now(&mut self, id: ShapeId) -> u64 {
        self.refresh(id);
        let places = 0..self.nodes();
        places
            .map(|place| u64::from(self.units(id, place, self.free(place))))
            .sum()
    }

    /// Whether a unit is any core: then sums decide.
    pub fn is_fungible(&self, id: ShapeId) -> bool {
        let request = self.request(id);
        request.nnodes.is_none()
            && (request.cores_per_slot.min(), request.gpus_per_slot.min()) == (1, 0)
            && request.constraint.is_none()
    }

    /// Where the shape fits now. Nothing is taken.
    pub fn place(&mut self, id: ShapeId) -> Option<Shares> {
        self.refresh(id);
        let shape = &self.shapes[id.0 as usize];
        let slots = shape.request.total_slots();
        matching::place(&self.inventory, &shape.request, shape.allowed.as_ref())
            .map(|shares| Shares(shares, slots))
    }

    /// As [`place`](Self::place), on nodes that `accept` takes, given the place and the units.
    pub fn place_where(
        &mut self,
        id: ShapeId,
        accept: &mut dyn FnMut(&Self, u32, u32) -> bool,
    ) -> Option<Shares> {
        self.refresh(id);
        let mut refused = IdSet::new();
        let mut left = self.need(id);
        for place in 0..self.nodes() {
            let units = self.units(id, place, self.free(place));
            let take = left.min(u64::from(units));
            if take > 0 && accept(self, place, u32::try_from(take).unwrap_or(u32::MAX)) {
                left -= take;
            } else {
                refused.insert(self.inventory.nodes[place as usize].rank);
            }
        }
        let shape = &self.shapes[id.0 as usize];
        let all = shape.allowed.as_ref().unwrap_or(self.inventory.ranks());
        let allowed = all.difference(&refused);
        let slots = shape.request.total_slots();
        matching::place(&self.inventory, &shape.request, Some(&allowed))
            .map(|shares| Shares(shares, slots))
    }

    pub fn take(&mut self, shares: &[Share]) {
        self.inventory.take(shares);
    }

    pub fn give(&mut self, shares: &[Share]) {
        self.inventory.give(shares);
    }

    /// Grows whenever something becomes available that was not.
    pub fn generation(&self) -> u64 {
        self.inventory.version
    }

    pub fn set_selection(&mut self, selection: Selection) {
        self.selection = selection;
    }

    pub fn selection(&self) -> Selection {
        self.selection
    }

    pub fn ranks(&self) -> &IdSet {
        self.inventory.ranks()
    }

    pub fn rank(&self, place: u32) -> u32 {
        self.inventory.nodes[place as usize].rank
    }

    pub fn up(&self) -> IdSet {
        self.inventory.up()
    }

    pub fn mark(&mut self, ranks: &IdSet, up: bool) {
        self.inventory.mark(ranks, up);
    }

    pub fn expiration(&self) -> Option<f64> {
        self.inventory.expiration
    }

    pub fn set_expiration(&mut self, expiration: Option<f64>) {
        self.inventory.expiration = expiration;
    }

    pub fn add_property(&mut self, name: &str, ranks: &IdSet) -> Result<(), Error> {
        self.version += 1;
        self.inventory.add_property(name, ranks)
    }

    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        self.version += 1;
        self.inventory.remove_property(name, ranks);
    }

    fn places(&self) -> Moves {
        self.inventory.nodes.iter().map(|node| node.rank).collect()
    }

    pub fn grow(&mut self, more: &ResourceSet) -> Result<Moves, Error> {
        let moves = self.places();
        self.inventory.grow(more)?;
        self.version += 1;
        Ok(moves)
    }

    pub fn shrink(&mut self, ranks: &IdSet) -> Moves {
        let moves = self.places();
        self.inventory.shrink(ranks);
        self.version += 1;
        moves
    }

    /// What stays, and what is on ranks that are gone.
    pub fn relocate(&self, shares: &Shares, moves: &Moves) -> (Shares, Vec<(u32, IdSet, IdSet)>) {
        let mut stay = Shares(Vec::new(), shares.1);
        let mut gone = Vec::new();
        for share in &shares.0 {
            let rank = moves[share.place as usize];
            match self.inventory.place(rank) {
                Some(place) => stay.push(Share {
                    place: u32::try_from(place).unwrap_or(u32::MAX),
                    ..share.clone()
                }),
                None => gone.push((rank, share.cores.clone(), share.gpus.clone())),
            }
        }
        (stay, gone)
    }

    /// The part of these that is in the inventory and free.
    pub fn share_of(&self, rank: u32, cores: &IdSet, gpus: &IdSet) -> Option<Share> {
        let place = self.inventory.place(rank)?;
        let node = &self.inventory.nodes[place];
        Some(Share {
            place: u32::try_from(place).unwrap_or(u32::MAX),
            cores: cores.intersection(&node.free_cores),
            gpus: gpus.intersection(&node.free_gpus),
        })
    }

    pub fn shares(&self, r: &ResourceSet) -> Result<Shares, Error> {
        Ok(Shares(self.inventory.shares(r)?, 0))
    }

    pub fn split(&self, shares: Shares, ranks: &IdSet) -> (Shares, Shares) {
        let slots = shares.1;
        let on = |share: &Share| ranks.contains(self.rank(share.place));
        let (given, kept) = shares.0.into_iter().partition(on);
        (Shares(given, 0), Shares(kept, slots))
    }

    pub fn r(&self, shares: &Shares) -> Result<ResourceSet, Error> {
        self.inventory.r(shares)
    }
}
