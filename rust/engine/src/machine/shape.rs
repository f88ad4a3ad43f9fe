//! Shapes: requests without their duration, interned.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use penstock_jobspec::{Constraint, Count, Request};
use smallvec::SmallVec;

use super::Free;
use super::view::Measure;

/// An interned request without its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShapeId(pub(crate) u32);

/// What matching needs of a request.
#[derive(Debug)]
pub(crate) struct Shape {
    pub request: Request,
    /// The number of the constraint, from 1; 0 for none.
    pub constraint: u32,
    /// Cores of a unit, at the least: of a slot, or of all slots of a node.
    pub cores: u32,
    /// Gpus of a unit, at the least.
    pub gpus: u32,
    /// Units, at the least.
    pub need: u32,
    pub measure: Measure,
    /// What a node's number must be at the least to give a unit.
    pub least: u32,
    /// Whether the counts below the units are numbers, not ranges.
    pub exact: bool,
}

/// What a unit is: shapes with the same get the same number of units from any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unit {
    constraint: u32,
    measure: Measure,
    least: u32,
    is_node: bool,
}

/// What a unit asks of a node, by which one asks for no more than another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    constraint: u32,
    is_node: bool,
    exclusive: bool,
    pub cores: u32,
    pub gpus: u32,
}

impl Demand {
    /// Whether any node gives as many of these units as of the others, or more.
    pub fn is_within(&self, other: &Self) -> bool {
        (self.constraint, self.is_node, self.exclusive)
            == (other.constraint, other.is_node, other.exclusive)
            && self.cores <= other.cores
            && self.gpus <= other.gpus
    }
}

impl Shape {
    fn new(request: Request, constraint: u32) -> Self {
        let per_unit = if request.nnodes.is_some() {
            request.slots.min().max(1)
        } else {
            1
        };
        // What does not fit a number does not fit a node.
        let cores = request.cores_per_slot.min().saturating_mul(per_unit);
        let gpus = request.gpus_per_slot.min().saturating_mul(per_unit);
        let units = request.nnodes.as_ref().unwrap_or(&request.slots);
        let measure = match &request.nnodes {
            Some(_) if request.exclusive => Measure::Whole { gpus },
            None if gpus > 0 => Measure::Slots {
                cores: cores.max(1),
                gpus,
            },
            _ => Measure::Cores { gpus },
        };
        let least = match measure {
            Measure::Slots { .. } => 1,
            _ => cores.max(1),
        };
        let exact = request.cores_per_slot.is_exact()
            && request.gpus_per_slot.is_exact()
            && (request.nnodes.is_none() || request.slots.is_exact());
        Self {
            constraint,
            cores,
            gpus,
            need: units.min().max(1),
            measure,
            least,
            exact,
            request,
        }
    }

    pub fn has_nodes(&self) -> bool {
        self.request.nnodes.is_some()
    }

    /// How many units will do.
    pub fn units(&self) -> &Count {
        self.request.nnodes.as_ref().unwrap_or(&self.request.slots)
    }

    /// Whether just one unit is wanted.
    pub fn is_single(&self) -> bool {
        self.need == 1 && self.units().is_exact()
    }

    /// The most units that will do and are there; at least those that are needed are.
    pub fn most(&self, there: u64) -> u32 {
        let limit = u32::try_from(there).unwrap_or(u32::MAX);
        self.units().largest_up_to(limit).unwrap_or(self.need)
    }

    /// Units that a node gives with so much free, if it is up and allowed.
    #[inline]
    pub fn units_of(&self, free: Free) -> u32 {
        if self.has_nodes() {
            let whole = free.whole || !self.request.exclusive;
            let enough = free.cores >= self.cores.max(1) && free.gpus >= self.gpus;
            return u32::from(whole && enough);
        }
        slots(free.cores, free.gpus, self.cores, self.gpus)
    }

    /// Units that a node with this number of the shape's measure gives.
    #[inline]
    pub fn units_at(&self, number: u32) -> u32 {
        match self.measure {
            _ if self.has_nodes() => u32::from(number >= self.least),
            Measure::Slots { .. } => number,
            _ if self.least == 1 => number,
            _ => number / self.least,
        }
    }

    pub fn unit(&self) -> Unit {
        Unit {
            constraint: self.constraint,
            measure: self.measure,
            least: self.least,
            is_node: self.has_nodes(),
        }
    }

    pub fn demand(&self) -> Demand {
        Demand {
            constraint: self.constraint,
            is_node: self.has_nodes(),
            exclusive: self.request.exclusive,
            cores: self.cores.max(1),
            gpus: self.gpus,
        }
    }

    /// Whether a unit is any core.
    pub fn is_fungible(&self) -> bool {
        !self.has_nodes()
            && self.exact
            && (self.cores, self.gpus) == (1, 0)
            && self.request.constraint.is_none()
    }
}

/// How many slots fit into so many cores and gpus.
pub(crate) fn slots(cores: u32, gpus: u32, of_slot: u32, gpus_of_slot: u32) -> u32 {
    let by_cores = cores / of_slot.max(1);
    match gpus.checked_div(gpus_of_slot) {
        Some(by_gpus) => by_cores.min(by_gpus),
        None => by_cores,
    }
}

/// What makes two requests the same shape.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    nnodes: Option<&'a Count>,
    exclusive: bool,
    slots: &'a Count,
    cores: &'a Count,
    gpus: &'a Count,
    constraint: Option<&'a Constraint>,
}

impl<'a> Key<'a> {
    fn of(request: &'a Request) -> Self {
        Self {
            nnodes: request.nnodes.as_ref(),
            exclusive: request.exclusive,
            slots: &request.slots,
            cores: &request.cores_per_slot,
            gpus: &request.gpus_per_slot,
            constraint: request.constraint.as_ref(),
        }
    }
}

/// All shapes there have been, and their constraints. It grows with what is new only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    list: Vec<Arc<Shape>>,
    /// By the hash of their keys.
    known: HashMap<u64, SmallVec<[u32; 1]>>,
    hasher: RandomState,
    constraints: Vec<Arc<Constraint>>,
    known_constraints: HashMap<Arc<Constraint>, u32>,
}

impl Shapes {
    pub fn intern(&mut self, request: &Request) -> ShapeId {
        let key = Key::of(request);
        let known = self.known.entry(self.hasher.hash_one(&key)).or_default();
        let shapes = &self.list;
        let same = |number: &&u32| Key::of(&shapes[**number as usize].request) == key;
        if let Some(number) = known.iter().find(same) {
            return ShapeId(*number);
        }
        // A shape takes more than a byte: memory ends first.
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        known.push(number);
        let constraint = request.constraint.as_ref().map_or(0, |constraint| {
            if let Some(number) = self.known_constraints.get(constraint) {
                return *number;
            }
            let constraint = Arc::new(constraint.clone());
            self.constraints.push(Arc::clone(&constraint));
            let number = u32::try_from(self.constraints.len()).unwrap_or(u32::MAX);
            self.known_constraints.insert(constraint, number);
            number
        });
        let request = Request {
            duration: 0.0,
            ..request.clone()
        };
        self.list.push(Arc::new(Shape::new(request, constraint)));
        ShapeId(number)
    }

    #[inline]
    pub fn get(&self, id: ShapeId) -> &Shape {
        &self.list[id.0 as usize]
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// A constraint by its number, from 1.
    pub fn constraint(&self, number: u32) -> Option<&Arc<Constraint>> {
        self.constraints.get((number as usize).checked_sub(1)?)
    }
}
