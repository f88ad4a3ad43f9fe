//! Shapes: requests without their duration, interned.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use penstock_jobspec::{Constraint, Count, Request};
use smallvec::SmallVec;

use super::node_class::Amounts;
use super::nodes::{NodeResources, Nodes};
use crate::ids::NodeIndex;
use crate::sparse_vec::SparseVec;

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

/// The number of shapes without users that are kept, in the order in which they came to be without: jobs with such requests may
/// follow. Few in debug builds, whose tests have few shapes.
const MAX_UNUSED: usize = if cfg!(debug_assertions) { 2 } else { 256 };

/// A shape, and the number of its users: classes of pending jobs, running jobs, and programs that know its number.
#[derive(Clone, Debug)]
struct UsedShape {
    shape: Arc<Shape>,
    users: u32,
}

/// A constraint, and the number of shapes with it.
#[derive(Clone, Debug)]
struct UsedConstraint {
    constraint: Arc<Constraint>,
    shapes: u32,
}

/// A shape that is no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub shape: ShapeId,
    /// The number of its constraint, if no other shape has it.
    pub constraint: Option<u32>,
}

/// The shapes of pending and running jobs, and some without users, with their constraints. No number is used again.
#[derive(Clone, Debug)]
pub(crate) struct Shapes {
    list: SparseVec<UsedShape>,
    /// The number of shapes there have been.
    len: u32,
    /// Stands for a shape that was dropped.
    nothing: Arc<Shape>,
    /// Numbers of shapes by the hash of their keys.
    known: HashMap<u64, SmallVec<[u32; 1]>>,
    hasher: RandomState,
    /// By their numbers, from 1.
    constraints: SparseVec<UsedConstraint>,
    constraints_len: u32,
    known_constraints: HashMap<Arc<Constraint>, u32>,
    /// Shapes that were without users when they were added here, each perhaps several times.
    unused: VecDeque<ShapeId>,
}

impl Default for Shapes {
    fn default() -> Self {
        let nothing = Request {
            nnodes: None,
            exclusive: false,
            slots: Count::exactly(1),
            cores_per_slot: Count::exactly(1),
            gpus_per_slot: Count::exactly(0),
            duration: 0.0,
            constraint: None,
        };
        Self {
            list: SparseVec::default(),
            len: 0,
            nothing: Arc::new(Shape::new(nothing, 0)),
            known: HashMap::new(),
            hasher: RandomState::new(),
            constraints: SparseVec::default(),
            constraints_len: 0,
            known_constraints: HashMap::new(),
            unused: VecDeque::new(),
        }
    }
}

impl Shapes {
    /// The shape of a request, and whether it is new. One without users is kept for a while.
    pub fn intern(&mut self, request: &Request) -> (ShapeId, bool) {
        let key = Key::of(request);
        let known = self.known.entry(self.hasher.hash_one(&key)).or_default();
        let list = &self.list;
        let same = |number: &&u32| {
            let used = list.get(**number);
            used.is_some_and(|used| Key::of(&used.shape.request) == key)
        };
        if let Some(number) = known.iter().find(same) {
            return (ShapeId(*number), false);
        }
        // The numbers last for weeks at thousands of new shapes a second.
        let number = self.len;
        self.len = self.len.saturating_add(1);
        known.push(number);
        let constraint = self.intern_constraint(request.constraint.as_ref());
        let request = Request {
            duration: 0.0,
            ..request.clone()
        };
        let shape = Arc::new(Shape::new(request, constraint));
        self.list.set(number, UsedShape { shape, users: 0 });
        self.unused.push_back(ShapeId(number));
        (ShapeId(number), true)
    }

    /// The number of a constraint, with one more shape; 0 for none.
    fn intern_constraint(&mut self, constraint: Option<&Constraint>) -> u32 {
        let Some(constraint) = constraint else {
            return 0;
        };
        if let Some(number) = self.known_constraints.get(constraint) {
            if let Some(used) = self.constraints.get_mut(*number) {
                used.shapes += 1;
            }
            return *number;
        }
        let constraint = Arc::new(constraint.clone());
        self.constraints_len = self.constraints_len.saturating_add(1);
        let number = self.constraints_len;
        let used = UsedConstraint {
            constraint: Arc::clone(&constraint),
            shapes: 1,
        };
        self.constraints.set(number, used);
        self.known_constraints.insert(constraint, number);
        number
    }

    #[inline]
    pub fn get(&self, id: ShapeId) -> &Shape {
        let used = self.list.get(id.0);
        used.map_or(&self.nothing, |used| &used.shape)
    }

    /// A constraint by its number, from 1.
    pub fn constraint(&self, number: u32) -> Option<&Arc<Constraint>> {
        self.constraints.get(number).map(|used| &used.constraint)
    }

    /// Counts a user of a shape.
    #[inline]
    pub fn hold(&mut self, id: ShapeId) {
        if let Some(used) = self.list.get_mut(id.0) {
            used.users = used.users.saturating_add(1);
        }
    }

    /// Counts a user of a shape no longer.
    #[inline]
    pub fn release(&mut self, id: ShapeId) {
        if let Some(used) = self.list.get_mut(id.0) {
            used.users = used.users.saturating_sub(1);
            if used.users == 0 {
                self.unused.push_back(id);
            }
        }
    }

    /// Drops a shape if there are too many without users: the one that has been so for the longest time.
    #[inline]
    pub fn drop_surplus(&mut self) -> Option<Dropped> {
        while self.unused.len() > MAX_UNUSED {
            let id = self.unused.pop_front()?;
            if self.list.get(id.0).is_some_and(|used| used.users == 0) {
                return self.remove(id);
            }
        }
        None
    }

    fn remove(&mut self, id: ShapeId) -> Option<Dropped> {
        let shape = self.list.remove(id.0)?.shape;
        let hash = self.hasher.hash_one(Key::of(&shape.request));
        if let Some(known) = self.known.get_mut(&hash) {
            known.retain(|number| *number != id.0);
            if known.is_empty() {
                self.known.remove(&hash);
            }
        }
        let number = shape.constraint;
        let used = self.constraints.get_mut(number);
        let is_last = used.is_some_and(|used| {
            used.shapes -= 1;
            used.shapes == 0
        });
        if is_last && let Some(used) = self.constraints.remove(number) {
            self.known_constraints.remove(&used.constraint);
        }
        Some(Dropped {
            shape: id,
            constraint: is_last.then_some(number),
        })
    }

    /// The number of shapes and of constraints that are known.
    #[cfg(test)]
    pub fn known(&self) -> (usize, usize) {
        let shapes = self.known.values().map(SmallVec::len).sum();
        (shapes, self.known_constraints.len())
    }
}
