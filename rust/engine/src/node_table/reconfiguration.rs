//! Changes of the node table at run time: nodes are added and removed, go up and down, gain and lose
//! properties.

use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::Constraint;
use penstock_rset::ResourceSet;

use super::allocation::{Allocation, NodeShare};
use super::directory::NodeDirectory;
use super::journal::Journal;
use super::nodes::Nodes;
use super::{NodeTable, Selection, ShapeCache, ShapeId};
use crate::Error;
use crate::ids::{NodeClassId, NodeIndex};

/// A node before the node table has grown or shrunk.
#[derive(Clone, Copy, Debug)]
struct FormerNode {
    rank: u32,
    class: NodeClassId,
    /// The node now; `None` if it has been removed.
    now: Option<NodeIndex>,
}

/// The renumbering of the nodes when the node table grows or shrinks.
#[derive(Clone, Debug)]
pub(crate) struct Relocation(Vec<FormerNode>);

impl Relocation {
    /// The new index of a node, unless it has been removed.
    pub fn new_index(&self, node: NodeIndex) -> Option<NodeIndex> {
        self.0.get(node.index())?.now
    }
}

/// Cores and gpus that a job holds on a rank that is not in the inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostShare {
    pub rank: u32,
    pub cores: IdSet,
    pub gpus: IdSet,
}

/// An allocation with renumbered nodes.
#[derive(Clone, Debug)]
pub(crate) struct Relocated {
    pub allocation: Allocation,
    /// The shares on ranks that have been removed.
    pub lost: Vec<LostShare>,
}

/// Whether adding a property to nodes, or removing it, may change which nodes meet a constraint.
fn depends_on(constraint: &Constraint, property: &str) -> bool {
    fn without_suffix(name: &str) -> Option<&str> {
        name.split('@').next()
    }
    match constraint {
        Constraint::And(parts) | Constraint::Or(parts) | Constraint::Not(parts) => {
            parts.iter().any(|part| depends_on(part, property))
        }
        Constraint::Properties(names) => names.iter().any(|name| {
            let name = name.strip_prefix('^').unwrap_or(name);
            without_suffix(name) == without_suffix(property)
        }),
        Constraint::Hostlist(_) | Constraint::Ranks(_) => false,
    }
}

impl NodeTable {
    /// Marks ranks up; unknown ones are ignored.
    pub fn mark_up(&mut self, ranks: &IdSet) {
        self.mark(ranks, Nodes::mark_up);
    }

    /// Marks ranks down; unknown ones are ignored.
    pub fn mark_down(&mut self, ranks: &IdSet) {
        self.mark(ranks, Nodes::mark_down);
    }

    /// Marks the nodes of ranks by `mark`, which returns whether the state of a node has changed.
    fn mark(&mut self, ranks: &IdSet, mark: fn(&mut Nodes, NodeIndex) -> bool) {
        for rank in &ranks.intersection(self.directory.ranks()) {
            if let Some(node) = self.directory.node_of(rank)
                && mark(&mut self.nodes, node)
            {
                self.journal.push(node);
            }
        }
        self.generation += 1;
    }

    /// Adds a property to ranks.
    pub fn add_property(&mut self, name: &str, ranks: &IdSet) -> Result<(), Error> {
        self.directory.add_property(name, ranks)?;
        self.invalidate_property(name);
        Ok(())
    }

    /// Removes a property from ranks.
    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        self.directory.remove_property(name, ranks);
        self.invalidate_property(name);
    }

    /// Invalidates the caches of constraints and shapes that depend on a property.
    fn invalidate_property(&mut self, property: &str) {
        if self.selection == Selection::Thrifty {
            // Thrifty selection orders nodes by all their properties.
            return self.invalidate();
        }
        let shapes = &self.shapes;
        self.eligible.retain(|number, _| {
            let constraint = shapes.constraint(number);
            constraint.is_some_and(|constraint| !depends_on(constraint, property))
        });
        for (shape, cache) in self.shape_cache.iter_mut() {
            let constraint = shapes.get(ShapeId(shape)).constraint;
            if constraint != 0 && self.eligible.get(constraint).is_none() {
                *cache = ShapeCache::default();
            }
        }
        self.generation += 1;
    }

    /// Invalidates the caches of all constraints and shapes.
    fn invalidate(&mut self) {
        self.invalidate_eligible();
        self.shape_cache.clear();
        self.generation += 1;
    }

    /// Adds nodes, which are down until they are marked up. Fails, and changes nothing, if a rank
    /// exists already.
    pub fn grow(&mut self, more: &ResourceSet) -> Result<Relocation, Error> {
        let known = more.ranks().intersection(self.directory.ranks());
        if !known.is_empty() {
            return Err(Error::new(format!(
                "ranks {known} are in the inventory already"
            )));
        }
        let directory = self.directory.with(more)?;
        let mut classes = (**self.nodes.classes()).clone();
        let mut entries = Nodes::entries(&mut classes, more)?;
        entries.extend(self.nodes.to_entries());
        entries.sort_by_key(|entry| entry.rank);
        let nodes = Nodes::checked(Arc::new(classes), &entries)?;
        Ok(self.replace(nodes, directory))
    }

    /// Removes nodes; unknown ranks are ignored.
    pub fn shrink(&mut self, ranks: &IdSet) -> Relocation {
        let directory = self.directory.without(ranks);
        let entries: Vec<_> = self
            .nodes
            .to_entries()
            .filter(|entry| !ranks.contains(entry.rank))
            .collect();
        let nodes = Nodes::new(Arc::clone(self.nodes.classes()), &entries);
        self.replace(nodes, directory)
    }

    fn replace(&mut self, nodes: Nodes, directory: NodeDirectory) -> Relocation {
        let former = std::mem::replace(&mut self.nodes, nodes);
        self.directory = directory;
        self.all = Self::all_of(&self.nodes);
        self.journal = Journal::new(self.nodes.len());
        self.invalidate();
        let former_nodes = former.indices().map(|node| FormerNode {
            rank: former.rank(node),
            class: former.class_id(node),
            now: self.directory.node_of(former.rank(node)),
        });
        Relocation(former_nodes.collect())
    }

    /// Renumbers the nodes of an allocation after the node table has grown or shrunk.
    pub fn relocate(&self, allocation: &Allocation, relocation: &Relocation) -> Relocated {
        let mut lost = Vec::new();
        let still = allocation.iter().filter_map(|share| {
            let former = relocation.0[share.node.index()];
            if let Some(node) = former.now {
                return Some(NodeShare {
                    node,
                    ..share.clone()
                });
            }
            let class = self.nodes.classes().get(former.class);
            lost.push(LostShare {
                rank: former.rank,
                cores: class.cores.at(&share.cores),
                gpus: class.gpus.at(&share.gpus),
            });
            None
        });
        Relocated {
            allocation: Allocation::new(still.collect(), allocation.slot_count()),
            lost,
        }
    }
}
