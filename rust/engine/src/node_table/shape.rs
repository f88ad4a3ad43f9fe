//! Shapes: requests without their duration, interned.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use penstock_jobspec::{Constraint, Count, Request};
use smallvec::SmallVec;

use super::node_class::Amounts;
use super::nodes::{NodeResources, Nodes};
use crate::ids::NodeIndex;

/// An interned request without its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ShapeId(pub(crate) u32);

/// The number by which a view orders nodes. A node that is down has 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Measure {
    /// Free cores, if at least `gpus` gpus are free too.
    Cores { gpus: u32 },
    /// Cores, if the node is idle and has at least `gpus` gpus.
    Whole { gpus: u32 },
    /// Slots of these cores and gpus.
    Slots(Amounts),
}

impl Measure {
    /// The number of a node that is up.
    #[inline]
    pub fn number(self, nodes: &Nodes, node: NodeIndex) -> u32 {
        let free = nodes.free(node);
        let cores_if = |fits: bool| if fits { free.cores } else { 0 };
        match self {
            Self::Cores { gpus } => cores_if(free.gpus >= gpus),
            Self::Whole { gpus } => cores_if(free.whole && free.gpus >= gpus),
            Self::Slots(per_slot) => Amounts::from(free).slots(per_slot),
        }
    }

    /// The largest number that a node can have.
    pub fn largest(self, nodes: &Nodes, node: NodeIndex) -> u32 {
        let class = nodes.class(node);
        match self {
            Self::Slots(per_slot) => Amounts::from(class).slots(per_slot),
            _ => class.cores.len,
        }
    }
}

/// The properties of a request that matching depends on.
#[derive(Debug)]
pub(crate) struct Shape {
    pub request: Request,
    /// The number of the constraint, from 1; 0 for none.
    pub constraint: u32,
    /// The fewest cores of a unit: of a slot, or of all slots of a node.
    pub cores: u32,
    /// The fewest gpus of a unit.
    pub gpus: u32,
    /// The fewest units.
    pub need: u32,
    pub measure: Measure,
    /// The least number, in terms of the measure, of a node that provides a unit.
    pub min_number: u32,
    /// Whether the counts within a unit are single numbers, not ranges.
    pub exact: bool,
}

/// Whether a unit is a slot, or a node with all of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UnitKind {
    Slot,
    Node,
}

/// The kind of unit of a shape: shapes with equal kinds get the same number from any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unit {
    constraint: u32,
    measure: Measure,
    min_number: u32,
    kind: UnitKind,
}

/// The resources that a unit needs on a node; comparable, so that a result for one shape bounds
/// that for another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    constraint: u32,
    pub kind: UnitKind,
    exclusive: bool,
    pub cores: u32,
    pub gpus: u32,
}

impl Demand {
    /// Whether any node provides at least as many of these units as of `other`.
    pub fn is_within(&self, other: &Self) -> bool {
        (self.constraint, self.kind, self.exclusive)
            == (other.constraint, other.kind, other.exclusive)
            && self.cores <= other.cores
            && self.gpus <= other.gpus
    }
}

impl Shape {
    /// The fewest cores and gpus of a unit.
    #[inline]
    pub fn unit_amounts(&self) -> Amounts {
        Amounts {
            cores: self.cores,
            gpus: self.gpus,
        }
    }

    fn new(request: Request, constraint: u32) -> Self {
        let slots_per_unit = if request.nnodes.is_some() {
            request.slots.min().max(1)
        } else {
            1
        };
        // A number that does not fit into 32 bits does not fit onto a node either.
        let cores = request.cores_per_slot.min().saturating_mul(slots_per_unit);
        let gpus = request.gpus_per_slot.min().saturating_mul(slots_per_unit);
        let units = request.nnodes.as_ref().unwrap_or(&request.slots);
        let measure = match &request.nnodes {
            Some(_) if request.exclusive => Measure::Whole { gpus },
            None if gpus > 0 => Measure::Slots(Amounts {
                cores: cores.max(1),
                gpus,
            }),
            _ => Measure::Cores { gpus },
        };
        let min_number = match measure {
            Measure::Slots(_) => 1,
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
            min_number,
            exact,
            request,
        }
    }

    /// Whether a unit is a node, not a slot.
    #[inline]
    pub fn has_nodes(&self) -> bool {
        self.request.nnodes.is_some()
    }

    #[inline]
    pub fn kind(&self) -> UnitKind {
        if self.has_nodes() {
            UnitKind::Node
        } else {
            UnitKind::Slot
        }
    }

    /// The acceptable numbers of units.
    pub fn units(&self) -> &Count {
        self.request.nnodes.as_ref().unwrap_or(&self.request.slots)
    }

    /// Whether the shape is for a single unit.
    pub fn is_single(&self) -> bool {
        self.need == 1 && self.units().is_exact()
    }

    /// The largest acceptable unit count not above `available`, which is at least `need`.
    pub fn max_units(&self, available: u64) -> u32 {
        let limit = u32::try_from(available).unwrap_or(u32::MAX);
        self.units().largest_up_to(limit).unwrap_or(self.need)
    }

    /// The units that a node provides with `free` resources, if it is up and eligible.
    #[inline]
    pub fn units_of(&self, free: NodeResources) -> u32 {
        if self.has_nodes() {
            let whole = free.whole || !self.request.exclusive;
            let enough = free.cores >= self.cores.max(1) && free.gpus >= self.gpus;
            return u32::from(whole && enough);
        }
        let (cores, gpus) = (self.cores, self.gpus);
        Amounts::from(free).slots(Amounts { cores, gpus })
    }

    /// The units that a node with this number, in terms of the measure, provides.
    #[inline]
    pub fn units_at(&self, number: u32) -> u32 {
        match self.measure {
            _ if self.has_nodes() => u32::from(number >= self.min_number),
            Measure::Slots(_) => number,
            _ if self.min_number == 1 => number,
            _ => number / self.min_number,
        }
    }

    /// The kind of unit.
    pub fn unit(&self) -> Unit {
        Unit {
            constraint: self.constraint,
            measure: self.measure,
            min_number: self.min_number,
            kind: self.kind(),
        }
    }

    /// The resources that a unit needs on a node.
    pub fn demand(&self) -> Demand {
        Demand {
            constraint: self.constraint,
            kind: self.kind(),
            exclusive: self.request.exclusive,
            cores: self.cores.max(1),
            gpus: self.gpus,
        }
    }

    /// Whether a unit is any one core.
    pub fn is_fungible(&self) -> bool {
        !self.has_nodes()
            && self.exact
            && (self.cores, self.gpus) == (1, 0)
            && self.request.constraint.is_none()
    }
}

/// The part of a request that determines its shape.
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

/// All shapes there have been, with their constraints. None is ever dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    list: Vec<Arc<Shape>>,
    /// Indices of shapes by the hash of their keys.
    known: HashMap<u64, SmallVec<[u32; 1]>>,
    hasher: RandomState,
    constraints: Vec<Arc<Constraint>>,
    known_constraints: HashMap<Arc<Constraint>, u32>,
}

impl Shapes {
    /// The shape of a request.
    pub fn intern(&mut self, request: &Request) -> ShapeId {
        let key = Key::of(request);
        let known = self.known.entry(self.hasher.hash_one(&key)).or_default();
        let shapes = &self.list;
        let same = |number: &&u32| Key::of(&shapes[**number as usize].request) == key;
        if let Some(number) = known.iter().find(same) {
            return ShapeId(*number);
        }
        // Memory is exhausted before the numbers are.
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
