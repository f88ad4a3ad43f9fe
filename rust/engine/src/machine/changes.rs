//! What changes of the machine at run time: nodes come, go, and are up or down, and have
//! properties.

use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::Constraint;
use penstock_rset::ResourceSet;

use super::book::Book;
use super::journal::Journal;
use super::nodes::Nodes;
use super::share::{Share, Shares};
use super::{Known, Machine, Selection, ShapeId};
use crate::Error;

/// Where nodes have gone, after the machine has grown or shrunk.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    /// The new place of each old one, if the node is still there.
    places: Vec<Option<u32>>,
    /// The rank and the kind of each old place.
    before: Vec<(u32, u32)>,
}

impl Moves {
    /// The new place of an old one, if the node is still there.
    pub fn to(&self, place: u32) -> Option<u32> {
        self.places.get(place as usize).copied().flatten()
    }
}

/// Whether a constraint may be met by other nodes when some get a property or lose it.
fn names(constraint: &Constraint, property: &str) -> bool {
    fn bare(name: &str) -> Option<&str> {
        name.split('@').next()
    }
    match constraint {
        Constraint::And(parts) | Constraint::Or(parts) | Constraint::Not(parts) => {
            parts.iter().any(|part| names(part, property))
        }
        Constraint::Properties(all) => all.iter().any(|name| {
            let name = name.strip_prefix('^').unwrap_or(name);
            bare(name) == bare(property)
        }),
        Constraint::Hostlist(_) | Constraint::Ranks(_) => false,
    }
}

/// Cores and gpus of a rank that is not there any more.
pub(crate) type Lost = (u32, IdSet, IdSet);

impl Machine {
    /// Marks ranks up or down; unknown ones do not matter.
    pub fn mark(&mut self, ranks: &IdSet, up: bool) {
        for rank in &ranks.intersection(self.book.ranks()) {
            if let Some(place) = self.book.place_of(rank)
                && self.nodes.set_up(place, up)
            {
                self.journal.push(place);
            }
        }
        self.generation += 1;
    }

    /// Gives ranks a property.
    pub fn add_property(&mut self, name: &str, ranks: &IdSet) -> Result<(), Error> {
        self.book.add_property(name, ranks)?;
        self.revise(name);
        Ok(())
    }

    /// Takes a property from ranks.
    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        self.book.remove_property(name, ranks);
        self.revise(name);
    }

    /// Other nodes have a property: what rests on constraints that do not name it holds.
    fn revise(&mut self, property: &str) {
        if self.selection == Selection::Thrifty {
            // Which of them are in order of all their properties.
            return self.reconsider();
        }
        for (allowed, number) in self.allowed.iter_mut().zip(1..) {
            let constraint = self.shapes.constraint(number);
            if constraint.is_none_or(|it| names(it, property)) {
                *allowed = None;
            }
        }
        for (known, shape) in self.known.iter_mut().zip(0..) {
            let constraint = self.shapes.get(ShapeId(shape)).constraint as usize;
            let held = constraint.checked_sub(1).map(|at| self.allowed.get(at));
            if held.is_some_and(|it| it.is_none_or(Option::is_none)) {
                *known = Known::default();
            }
        }
        self.generation += 1;
    }

    /// Nodes or properties have changed: nothing that is remembered holds.
    fn reconsider(&mut self) {
        self.forget_allowed();
        for known in &mut self.known {
            *known = Known::default();
        }
        self.generation += 1;
    }

    /// Adds nodes, which are down until they are marked up. Fails, and changes nothing, where a
    /// rank is known.
    pub fn grow(&mut self, more: &ResourceSet) -> Result<Moves, Error> {
        let known = more.ranks().intersection(self.book.ranks());
        if !known.is_empty() {
            let text = format!("ranks {known} are in the inventory already");
            return Err(Error::new(text));
        }
        let book = self.book.with(more)?;
        let mut kinds = (**self.nodes.kinds()).clone();
        let mut entries = Nodes::entries(&mut kinds, more)?;
        entries.extend(self.nodes.to_entries());
        entries.sort_by_key(|entry| entry.rank);
        let nodes = Nodes::checked(Arc::new(kinds), &entries)?;
        Ok(self.replace(nodes, book))
    }

    /// Removes nodes; unknown ranks do not matter.
    pub fn shrink(&mut self, ranks: &IdSet) -> Moves {
        let book = self.book.without(ranks);
        let entries: Vec<_> = self
            .nodes
            .to_entries()
            .filter(|entry| !ranks.contains(entry.rank))
            .collect();
        let nodes = Nodes::new(Arc::clone(self.nodes.kinds()), &entries);
        self.replace(nodes, book)
    }

    fn replace(&mut self, nodes: Nodes, book: Book) -> Moves {
        let before = std::mem::replace(&mut self.nodes, nodes);
        self.book = book;
        self.all = Self::all_of(&self.nodes);
        self.journal = Journal::new(self.nodes.len());
        self.reconsider();
        let old = 0..before.len();
        Moves {
            places: old
                .clone()
                .map(|place| self.book.place_of(before.rank(place)))
                .collect(),
            before: old
                .map(|place| (before.rank(place), before.kind_number(place)))
                .collect(),
        }
    }

    /// Shares from before the machine has grown or shrunk: those that are still there, and what
    /// was on ranks that are not.
    pub fn relocate(&self, shares: &Shares, moves: &Moves) -> (Shares, Vec<Lost>) {
        let mut lost = Vec::new();
        let still = shares.iter().filter_map(|share| {
            let before = share.place as usize;
            if let Some(place) = moves.places[before] {
                return Some(Share {
                    place,
                    ..share.clone()
                });
            }
            let (rank, kind) = moves.before[before];
            let kind = self.nodes.kinds().get(kind);
            lost.push((rank, kind.cores.at(&share.cores), kind.gpus.at(&share.gpus)));
            None
        });
        let still = Shares::new(still.collect(), shares.count());
        (still, lost)
    }
}
