//! What changes of the machine at run time: nodes come, go, and are up or down, and have
//! properties.

use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

use super::book::Book;
use super::journal::Journal;
use super::nodes::Nodes;
use super::share::{Share, Shares};
use super::{Known, Machine};
use crate::Error;

/// Where nodes have gone, after the machine has grown or shrunk.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    /// The new place of each old one, if the node is still there.
    places: Vec<Option<u32>>,
    /// The rank and the kind of each old place.
    before: Vec<(u32, u32)>,
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
        self.reconsider();
        Ok(())
    }

    /// Takes a property from ranks.
    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        self.book.remove_property(name, ranks);
        self.reconsider();
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
