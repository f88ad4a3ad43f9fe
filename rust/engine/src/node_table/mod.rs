//! The node table: the nodes of the inventory, their free resources, and the nodes on which a shape fits.
//!
//! A shape is a request without its duration. It needs a number of units, and each node provides a
//! number of units that depends on that node alone: slots, or one for a node that holds all slots
//! of a node.
//!
//! The free resources of a node are a word or two in flat arrays. Shapes with the same constraint
//! and the same kind of unit find nodes through one [view](view): a tree over the nodes that the
//! constraint allows. It finds the next node with enough free, or with a given fullness, in a few
//! steps, and counts units without visiting nodes. A view is updated when it is used.

mod allocation;
mod bits;
mod directory;
mod feasibility;
mod index;
mod journal;

mod matching;
mod node_class;
mod nodes;
mod placement;
mod r;
mod reconfiguration;
mod select;
mod shape;

mod view;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_rset::ResourceSet;

use self::directory::NodeDirectory;
use self::feasibility::NodeCensus;
use self::journal::Journal;
use self::node_class::NodeClasses;
use self::nodes::Nodes;
use self::shape::Shapes;
use self::view::{NodeSet, ViewRef, Views};
use crate::Error;
use crate::ids::NodeIndex;
use crate::sparse_vec::SparseVec;

pub(crate) use self::allocation::{Allocation, NodeAmount, NodeShare, Size};
pub use self::feasibility::Infeasible;
pub(crate) use self::feasibility::counted;
pub(crate) use self::node_class::Amounts;
pub(crate) use self::nodes::NodeResources;
pub(crate) use self::reconfiguration::{Relocated, Relocation};
pub use self::select::Selection;
pub use self::shape::ShapeId;
pub(crate) use self::shape::{Demand, Unit, UnitKind};

/// The cached properties of a shape, valid until nodes or properties change.
#[derive(Clone, Debug, Default)]
struct ShapeCache {
    view: ViewRef,
    /// The generation in which it last did not fit, plus one.
    failed: u64,
    /// Whether it can ever fit; `None` until computed.
    feasible: Option<Result<(), Infeasible>>,
}

/// The nodes that a constraint allows, with a census of them.
#[derive(Clone, Debug)]
struct EligibleNodes {
    nodes: Arc<NodeSet>,
    census: Arc<NodeCensus>,
}

/// The nodes of the inventory with their free resources, and the indices that find them.
#[derive(Debug)]
pub(crate) struct NodeTable {
    nodes: Nodes,
    directory: NodeDirectory,
    expiration: Option<f64>,
    selection: Selection,
    shapes: Shapes,
    /// By shape.
    shape_cache: SparseVec<ShapeCache>,
    /// By shape, whether a unit is any idle node, if known.
    pub any_node: SparseVec<bool>,
    /// By shape, whether it is [reachable](Self::is_reachable), if known since nodes have changed.
    pub reachable: SparseVec<bool>,
    /// Every node, for shapes without a constraint.
    all: EligibleNodes,
    /// By the number of the constraint, if known.
    eligible: SparseVec<EligibleNodes>,
    /// The same by node set, so that constraints that allow the same nodes share views.
    by_nodes: HashMap<IdSet, EligibleNodes>,
    views: Views,
    journal: Journal,
    generation: u64,
}

/// Maximum number of cached node sets; above that, all are dropped.
const MAX_CACHED_NODE_SETS: usize = 4096;

impl Clone for NodeTable {
    /// A copy that builds its own views when they are first needed.
    fn clone(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            directory: self.directory.clone(),
            expiration: self.expiration,
            selection: self.selection,
            shapes: self.shapes.clone(),
            shape_cache: {
                let mut caches = self.shape_cache.clone();
                for (_, cache) in caches.iter_mut() {
                    cache.view = ViewRef::default();
                }
                caches
            },
            any_node: self.any_node.clone(),
            reachable: self.reachable.clone(),
            all: self.all.clone(),
            eligible: self.eligible.clone(),
            by_nodes: self.by_nodes.clone(),
            views: Views::default(),
            journal: Journal::new(self.nodes.len()),
            generation: self.generation,
        }
    }
}

impl NodeTable {
    /// The node table of a resource set. Every node is down until it is marked up.
    pub fn new(resources: &ResourceSet) -> Result<Self, Error> {
        resources
            .require_execution()
            .map_err(|error| Error::new(error.to_string()))?;
        let mut classes = NodeClasses::default();
        let entries = Nodes::entries(&mut classes, resources)?;
        let nodes = Nodes::checked(Arc::new(classes), &entries)?;
        let directory = NodeDirectory::new(resources)?;
        Ok(Self {
            all: Self::all_of(&nodes),
            journal: Journal::new(nodes.len()),
            nodes,
            directory,
            expiration: resources.expiration(),
            selection: Selection::default(),
            shapes: Shapes::default(),
            shape_cache: SparseVec::default(),
            any_node: SparseVec::default(),
            reachable: SparseVec::default(),
            eligible: SparseVec::default(),
            by_nodes: HashMap::new(),
            views: Views::default(),
            generation: 0,
        })
    }

    fn all_of(nodes: &Nodes) -> EligibleNodes {
        let ids = match nodes.len().checked_sub(1) {
            Some(last) => (0..=last).into(),
            None => IdSet::new(),
        };
        EligibleNodes {
            census: Arc::new(NodeCensus::new(nodes, None)),
            nodes: Arc::new(NodeSet { number: 0, ids }),
        }
    }

    /// Which of the nodes that fit are selected.
    pub fn selection(&self) -> Selection {
        self.selection
    }

    /// Changes which of the nodes that fit are selected.
    pub fn set_selection(&mut self, selection: Selection) {
        self.selection = selection;
        self.invalidate_views();
    }

    fn invalidate_views(&mut self) {
        self.views.clear();
        for (_, cache) in self.shape_cache.iter_mut() {
            cache.view = ViewRef::default();
        }
    }

    /// The number of nodes.
    pub fn node_count(&self) -> u32 {
        self.nodes.len()
    }

    /// Every node, in rank order.
    pub fn node_indices(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        self.nodes.indices()
    }

    /// The ranks of all nodes, up or down.
    pub fn ranks(&self) -> &IdSet {
        self.directory.ranks()
    }

    /// The rank of a node.
    pub fn rank(&self, node: NodeIndex) -> u32 {
        self.nodes.rank(node)
    }

    /// The node with a rank.
    #[cfg(test)]
    pub fn node_of(&self, rank: u32) -> Option<NodeIndex> {
        self.directory.node_of(rank)
    }

    /// The ranks that are up.
    pub fn up(&self) -> IdSet {
        self.nodes.up()
    }

    pub fn is_up(&self, node: NodeIndex) -> bool {
        self.nodes.is_up(node)
    }

    /// When the resources expire, in seconds since the epoch; `None` for never.
    pub fn expiration(&self) -> Option<f64> {
        self.expiration
    }

    pub fn set_expiration(&mut self, expiration: Option<f64>) {
        self.expiration = expiration;
    }

    /// Counts the changes that may have made resources available: a shape that did not fit in this
    /// generation does not fit until the next.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The free resources of a node, whether it is up or down.
    #[inline]
    pub fn free(&self, node: NodeIndex) -> NodeResources {
        self.nodes.free(node)
    }

    /// The host of a node.
    pub fn host(&self, node: NodeIndex) -> String {
        let mut host = String::new();
        let at = node.index();
        let mut hosts = self.directory.hosts().iter_range(at..at + 1);
        hosts.read_next(&mut host);
        host
    }

    /// Whether a node has this many cores and gpus in all.
    #[inline]
    pub fn is_whole_node(&self, node: NodeIndex, amounts: Amounts) -> bool {
        self.nodes.is_whole_node(node, amounts)
    }

    /// The cores and gpus of a node, free or allocated.
    #[inline]
    pub fn total(&self, node: NodeIndex) -> NodeResources {
        let class = self.nodes.class(node);
        NodeResources {
            cores: class.cores.len,
            gpus: class.gpus.len,
            whole: true,
        }
    }

    /// The number of cores of the largest node.
    pub fn max_cores_per_node(&self) -> u64 {
        self.all.census.max_cores_per_node()
    }

    /// The lowest free cores and gpus of a node, which has at least that many free.
    pub fn lowest_free(&self, node: NodeIndex, amounts: Amounts) -> NodeShare {
        self.nodes.lowest_free(node, amounts)
    }

    /// The shape of a request. Without a [user](Self::hold) it is kept until hundreds of others have been without one.
    pub fn shape(&mut self, request: &Request) -> ShapeId {
        let (id, is_new) = self.shapes.intern(request);
        if is_new {
            self.eligible(self.shapes.get(id).constraint);
            self.drop_surplus();
        }
        id
    }

    /// Counts a user of a shape.
    #[inline]
    pub fn hold(&mut self, id: ShapeId) {
        self.shapes.hold(id);
    }

    /// Counts a user of a shape no longer.
    #[inline]
    pub fn release_shape(&mut self, id: ShapeId) {
        self.shapes.release(id);
        self.drop_surplus();
    }

    fn drop_surplus(&mut self) {
        while let Some(dropped) = self.shapes.drop_surplus() {
            let number = dropped.shape.0;
            self.shape_cache.remove(number);
            self.any_node.remove(number);
            self.reachable.remove(number);
            if let Some(constraint) = dropped.constraint {
                self.eligible.remove(constraint);
            }
        }
    }

    /// The number of shapes and of constraints that are known.
    #[cfg(test)]
    pub fn known_shapes(&self) -> (usize, usize) {
        self.shapes.known()
    }

    /// The cached properties of a shape.
    #[inline]
    fn cache(&mut self, id: ShapeId) -> &mut ShapeCache {
        self.shape_cache.get_or_set_with(id.0, ShapeCache::default)
    }

    /// Whether a shape has not fitted since resources became available last.
    #[inline]
    fn has_failed(&self, id: ShapeId) -> bool {
        let cache = self.shape_cache.get(id.0);
        cache.is_some_and(|cache| cache.failed > self.generation)
    }

    pub fn request(&self, id: ShapeId) -> &Request {
        &self.shapes.get(id).request
    }

    /// The fewest units that a job of the shape can run with.
    #[inline]
    pub fn need(&self, id: ShapeId) -> u64 {
        u64::from(self.shapes.get(id).need)
    }

    /// The kind of unit of a shape: shapes with equal kinds get the same number from any node.
    pub fn unit(&self, id: ShapeId) -> Unit {
        self.shapes.get(id).unit()
    }

    /// The cores and gpus that a unit of the shape needs on one node.
    pub fn demand(&self, id: ShapeId) -> Demand {
        self.shapes.get(id).demand()
    }

    /// Whether a unit is any one core, so that counting free cores decides whether the shape fits.
    #[inline]
    pub fn is_fungible(&self, id: ShapeId) -> bool {
        self.shapes.get(id).is_fungible()
    }

    /// The nodes that a constraint allows, if they have been computed.
    fn cached_eligible(&self, constraint: u32) -> Option<&EligibleNodes> {
        match constraint {
            0 => Some(&self.all),
            number => self.eligible.get(number),
        }
    }

    /// The nodes that a constraint allows.
    fn eligible(&mut self, constraint: u32) -> &EligibleNodes {
        if self.eligible.get(constraint).is_none()
            && let Some(known) = self.shapes.constraint(constraint)
        {
            let ids = self.directory.matching_nodes(known);
            let eligible = self.intern_eligible(ids);
            self.eligible.set(constraint, eligible);
        }
        self.eligible.get(constraint).unwrap_or(&self.all)
    }

    fn intern_eligible(&mut self, ids: IdSet) -> EligibleNodes {
        if ids == self.all.nodes.ids {
            return self.all.clone();
        }
        if let Some(eligible) = self.by_nodes.get(&ids) {
            return eligible.clone();
        }
        if self.by_nodes.len() >= MAX_CACHED_NODE_SETS {
            self.invalidate_eligible();
        }
        let number = u32::try_from(self.by_nodes.len() + 1).unwrap_or(u32::MAX);
        let eligible = EligibleNodes {
            census: Arc::new(NodeCensus::new(&self.nodes, Some(&ids))),
            nodes: Arc::new(NodeSet {
                number,
                ids: ids.clone(),
            }),
        };
        self.by_nodes.insert(ids, eligible.clone());
        eligible
    }

    /// Drops the nodes that constraints allow, and the views over them.
    fn invalidate_eligible(&mut self) {
        self.by_nodes.clear();
        self.eligible.clear();
        self.invalidate_views();
    }

    /// Whether the constraint of a shape allows a node.
    pub fn is_eligible(&self, id: ShapeId, node: NodeIndex) -> bool {
        let constraint = self.shapes.get(id).constraint;
        match self.cached_eligible(constraint) {
            _ if constraint == 0 => true,
            Some(eligible) => eligible.nodes.ids.contains(node.get()),
            None => self.shapes.constraint(constraint).is_none_or(|constraint| {
                // Not computed since the last change.
                self.directory
                    .matching_nodes(constraint)
                    .contains(node.get())
            }),
        }
    }

    /// The units that a node provides with `free` resources; 0 if it is down or not eligible.
    #[inline]
    pub fn units(&self, id: ShapeId, node: NodeIndex, free: NodeResources) -> u32 {
        if !self.nodes.is_up(node) || !self.is_eligible(id, node) {
            return 0;
        }
        self.shapes.get(id).units_of(free)
    }

    /// Checks whether the whole inventory, idle and up, could run the shape. Computed once.
    pub fn feasible(&mut self, id: ShapeId) -> Result<(), &Infeasible> {
        if self.cache(id).feasible.is_none() {
            let constraint = self.shapes.get(id).constraint;
            let census = Arc::clone(&self.eligible(constraint).census);
            let feasibility = feasibility::check(&census, &self.shapes.get(id).request);
            self.cache(id).feasible = Some(feasibility);
        }
        match &self.cache(id).feasible {
            Some(Err(reason)) => Err(reason),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// The number of changes of nodes' free resources so far.
    pub fn change_count(&self) -> u64 {
        self.journal.end()
    }

    /// The nodes changed after the first `seen` changes, oldest first; `None` if they are no longer
    /// in the journal.
    pub fn changed_since(&self, seen: u64) -> Option<&[NodeIndex]> {
        self.journal.since(seen)
    }

    /// Allocates shares of nodes. The caller ensures that they are free.
    #[inline]
    pub fn allocate(&mut self, shares: &[NodeShare]) {
        for share in shares {
            self.nodes.allocate(share);
            self.journal.push(share.node);
        }
    }

    /// Frees allocated shares of nodes.
    #[inline]
    pub fn release(&mut self, shares: &[NodeShare]) {
        for share in shares {
            self.nodes.release(share);
            self.journal.push(share.node);
        }
        self.generation += 1;
    }

    /// Bytes on the heap for nodes and views; small and shared structures are not counted.
    pub fn heap_bytes(&self) -> usize {
        self.nodes.heap_bytes() + self.views.heap_bytes()
    }
}
