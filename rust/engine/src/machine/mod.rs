//! The machine: what exists, what is free, and where a shape fits.
//!
//! A shape is a request without its duration. It needs a number of units, and each node gives a
//! number of units that depends on that node alone: slots, or one for a node that holds all of a
//! node's slots.
//!
//! What is free is a word or two per node in flat arrays. Shapes that ask alike look at the nodes
//! through a [view](view): a tree over the nodes that their constraint allows, which finds the
//! next node with enough free, or of a certain fullness, in a few steps, and knows how many units
//! there are without looking at nodes. Views see what has changed when they are used.

mod bits;
mod book;
mod changes;
mod feasibility;
mod index;
mod journal;
mod kind;
mod matching;
mod nodes;
mod placing;
mod r;
mod select;
mod shape;
mod share;
mod view;
mod within;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_rset::ResourceSet;

use self::book::Book;
use self::feasibility::Census;
use self::journal::Journal;
use self::kind::Kinds;
use self::nodes::Nodes;
use self::shape::Shapes;
use self::view::{Places, ViewRef, Views};
use crate::Error;

pub(crate) use self::changes::Moves;
pub use self::select::Selection;
pub use self::shape::ShapeId;
pub(crate) use self::shape::{Demand, Unit};
pub(crate) use self::share::{Share, Shares};
pub(crate) use self::within::Cap;

/// What a node has to give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Free {
    pub cores: u32,
    pub gpus: u32,
    /// Whether nothing of the node is in use.
    pub whole: bool,
}

/// What is known of a shape until nodes or properties change.
#[derive(Clone, Debug, Default)]
struct Known {
    view: ViewRef,
    /// The generation in which it did not fit, plus one.
    failed: u64,
    /// A note where it can never fit.
    feasible: Option<Result<(), Arc<str>>>,
}

/// Places that a constraint allows, with what they have.
#[derive(Clone, Debug)]
struct Allowed {
    places: Arc<Places>,
    census: Arc<Census>,
}

/// What exists, what is free, and where a shape fits.
#[derive(Debug)]
pub(crate) struct Machine {
    nodes: Nodes,
    book: Book,
    expiration: Option<f64>,
    selection: Selection,
    shapes: Shapes,
    /// By shape.
    known: Vec<Known>,
    /// All places.
    all: Allowed,
    /// By the number of a constraint less one; `None` for what was not asked for since a change.
    allowed: Vec<Option<Allowed>>,
    /// The same by places, so that constraints with the same places share views.
    by_places: HashMap<IdSet, Allowed>,
    views: Views,
    journal: Journal,
    generation: u64,
}

/// Constraints whose places are remembered.
const MOST_ALLOWED: usize = 4096;

impl Clone for Machine {
    /// A copy that makes its own views when it is asked where something fits.
    fn clone(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            book: self.book.clone(),
            expiration: self.expiration,
            selection: self.selection,
            shapes: self.shapes.clone(),
            known: self
                .known
                .iter()
                .map(|known| Known {
                    view: ViewRef::default(),
                    ..known.clone()
                })
                .collect(),
            all: self.all.clone(),
            allowed: self.allowed.clone(),
            by_places: self.by_places.clone(),
            views: Views::default(),
            journal: Journal::new(self.nodes.len()),
            generation: self.generation,
        }
    }
}

impl Machine {
    /// The machine of a resource set. Every node is down until it is marked up.
    pub fn new(resources: &ResourceSet) -> Result<Self, Error> {
        resources
            .require_execution()
            .map_err(|error| Error::new(error.to_string()))?;
        let mut kinds = Kinds::default();
        let entries = Nodes::entries(&mut kinds, resources)?;
        let nodes = Nodes::checked(Arc::new(kinds), &entries)?;
        let book = Book::new(resources)?;
        Ok(Self {
            all: Self::all_of(&nodes),
            journal: Journal::new(nodes.len()),
            nodes,
            book,
            expiration: resources.expiration(),
            selection: Selection::default(),
            shapes: Shapes::default(),
            known: Vec::new(),
            allowed: Vec::new(),
            by_places: HashMap::new(),
            views: Views::default(),
            generation: 0,
        })
    }

    fn all_of(nodes: &Nodes) -> Allowed {
        let ids = match nodes.len().checked_sub(1) {
            Some(last) => (0..=last).into(),
            None => IdSet::new(),
        };
        Allowed {
            census: Arc::new(Census::new(nodes, None)),
            places: Arc::new(Places { number: 0, ids }),
        }
    }

    /// Which of the nodes that fit are taken.
    pub fn selection(&self) -> Selection {
        self.selection
    }

    /// Sets which of the nodes that fit are taken.
    pub fn set_selection(&mut self, selection: Selection) {
        self.selection = selection;
        self.forget_views();
    }

    fn forget_views(&mut self) {
        self.views.clear();
        for known in &mut self.known {
            known.view = ViewRef::default();
        }
    }

    /// Nodes: places are 0 to this, in rank order.
    pub fn nodes(&self) -> u32 {
        self.nodes.len()
    }

    /// The ranks there are, up or not.
    pub fn ranks(&self) -> &IdSet {
        self.book.ranks()
    }

    /// The rank of a place.
    #[allow(dead_code, reason = "for explanations")]
    pub fn rank(&self, place: u32) -> u32 {
        self.nodes.rank(place)
    }

    /// The place of a rank.
    #[allow(dead_code, reason = "for explanations")]
    pub fn place_of(&self, rank: u32) -> Option<u32> {
        self.book.place_of(rank)
    }

    /// The ranks that are up.
    pub fn up(&self) -> IdSet {
        self.nodes.up()
    }

    pub fn is_up(&self, place: u32) -> bool {
        self.nodes.is_up(place)
    }

    /// When the resources end, in seconds since the epoch; `None` for never.
    pub fn expiration(&self) -> Option<f64> {
        self.expiration
    }

    pub fn set_expiration(&mut self, expiration: Option<f64>) {
        self.expiration = expiration;
    }

    /// Grows whenever something becomes available that was not.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What a node has to give now, were it up.
    #[inline]
    pub fn free(&self, place: u32) -> Free {
        self.nodes.free(place)
    }

    /// What a node has, in use or not.
    pub fn size(&self, place: u32) -> Free {
        let kind = self.nodes.kind(place);
        Free {
            cores: kind.cores.len,
            gpus: kind.gpus.len,
            whole: true,
        }
    }

    /// The host of a node.
    pub fn host(&self, place: u32) -> String {
        let mut host = String::new();
        let place = place as usize;
        let mut hosts = self.book.hosts().iter_range(place..place + 1);
        hosts.read_next(&mut host);
        host
    }

    /// Whether so much free is the whole node.
    #[inline]
    pub fn whole_with(&self, place: u32, cores: u32, gpus: u32) -> bool {
        self.nodes.whole_with(place, cores, gpus)
    }

    /// What a node has in all.
    #[inline]
    pub fn total(&self, place: u32) -> Free {
        let kind = self.nodes.kind(place);
        Free {
            cores: kind.cores.len,
            gpus: kind.gpus.len,
            whole: true,
        }
    }

    /// The most cores that a node has.
    pub fn most_cores(&self) -> u64 {
        self.all.census.most_cores()
    }

    /// The lowest free cores and gpus of a node, of which there are so many.
    pub fn pick(&self, place: u32, cores: u32, gpus: u32) -> Share {
        self.nodes.share(place, cores, gpus)
    }

    /// The interned shape of a request.
    pub fn shape(&mut self, request: &Request) -> ShapeId {
        let id = self.shapes.intern(request);
        if self.known.len() < self.shapes.len() {
            self.known.resize_with(self.shapes.len(), Known::default);
            self.allow(self.shapes.get(id).constraint);
        }
        id
    }

    pub fn request(&self, id: ShapeId) -> &Request {
        &self.shapes.get(id).request
    }

    /// Units that the shape needs, at the least.
    #[inline]
    pub fn need(&self, id: ShapeId) -> u64 {
        u64::from(self.shapes.get(id).need)
    }

    /// What a unit of the shape is.
    pub fn unit(&self, id: ShapeId) -> Unit {
        self.shapes.get(id).unit()
    }

    /// What a unit of the shape asks of a node.
    pub fn demand(&self, id: ShapeId) -> Demand {
        self.shapes.get(id).demand()
    }

    /// Whether a unit is any core: then sums decide.
    #[inline]
    pub fn is_fungible(&self, id: ShapeId) -> bool {
        self.shapes.get(id).is_fungible()
    }

    /// The places that a constraint allows, if they are known.
    fn known_allowed(&self, constraint: u32) -> Option<&Allowed> {
        match (constraint as usize).checked_sub(1) {
            None => Some(&self.all),
            Some(at) => self.allowed.get(at)?.as_ref(),
        }
    }

    /// The places that a constraint allows.
    fn allow(&mut self, constraint: u32) -> &Allowed {
        let Some(at) = (constraint as usize).checked_sub(1) else {
            return &self.all;
        };
        if self.allowed.len() <= at {
            self.allowed.resize(at + 1, None);
        }
        if self.allowed[at].is_none()
            && let Some(asked) = self.shapes.constraint(constraint)
        {
            let ids = self.book.meeting(asked);
            self.allowed[at] = Some(self.allowed_of(ids));
        }
        self.allowed[at].as_ref().unwrap_or(&self.all)
    }

    fn allowed_of(&mut self, ids: IdSet) -> Allowed {
        if ids == self.all.places.ids {
            return self.all.clone();
        }
        if let Some(known) = self.by_places.get(&ids) {
            return known.clone();
        }
        if self.by_places.len() >= MOST_ALLOWED {
            self.forget_allowed();
        }
        let number = u32::try_from(self.by_places.len() + 1).unwrap_or(u32::MAX);
        let allowed = Allowed {
            census: Arc::new(Census::new(&self.nodes, Some(&ids))),
            places: Arc::new(Places {
                number,
                ids: ids.clone(),
            }),
        };
        self.by_places.insert(ids, allowed.clone());
        allowed
    }

    /// Forgets which places constraints allow, and what rests on it.
    fn forget_allowed(&mut self) {
        self.by_places.clear();
        self.allowed.fill(None);
        self.forget_views();
    }

    pub fn allows(&self, id: ShapeId, place: u32) -> bool {
        let constraint = self.shapes.get(id).constraint;
        match self.known_allowed(constraint) {
            _ if constraint == 0 => true,
            Some(allowed) => allowed.places.ids.contains(place),
            None => self.shapes.constraint(constraint).is_none_or(|asked| {
                // Not asked for since a change.
                self.book.meeting(asked).contains(place)
            }),
        }
    }

    /// Units that a node would give with so much free; none if it is down or not allowed.
    #[inline]
    pub fn units(&self, id: ShapeId, place: u32, free: Free) -> u32 {
        if !self.nodes.is_up(place) || !self.allows(id, place) {
            return 0;
        }
        self.shapes.get(id).units_of(free)
    }

    /// Whether everything there is, up and empty, could meet the shape; else the note of a denial.
    pub fn feasible(&mut self, id: ShapeId) -> Result<(), String> {
        let at = id.0 as usize;
        if self.known[at].feasible.is_none() {
            let constraint = self.shapes.get(id).constraint;
            let census = Arc::clone(&self.allow(constraint).census);
            let outcome = feasibility::check(&census, &self.shapes.get(id).request);
            self.known[at].feasible = Some(outcome.map_err(Arc::from));
        }
        match &self.known[at].feasible {
            Some(Err(note)) => Err(note.to_string()),
            _ => Ok(()),
        }
    }

    /// Changes of nodes' free resources that there have been.
    pub fn changes(&self) -> u64 {
        self.journal.end()
    }

    /// The places that have changed after so many changes; `None` where they are forgotten.
    pub fn changed_since(&self, seen: u64) -> Option<&[u32]> {
        self.journal.since(seen)
    }

    /// Takes shares away. The caller has made sure that they are free.
    #[inline]
    pub fn take(&mut self, shares: &[Share]) {
        for share in shares {
            self.nodes.take(share);
            self.journal.push(share.place);
        }
    }

    /// Gives shares back.
    #[inline]
    pub fn give(&mut self, shares: &[Share]) {
        for share in shares {
            self.nodes.give(share);
            self.journal.push(share.place);
        }
        self.generation += 1;
    }

    /// Bytes on the heap for nodes and views; what is small or shared is left out.
    pub fn heap_bytes(&self) -> usize {
        self.nodes.heap_bytes() + self.views.heap_bytes()
    }
}
