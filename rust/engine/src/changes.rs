//! Changes of what exists while jobs wait and run.

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

use crate::books::is_whole;
use crate::machine::Relocation;
use crate::{Engine, Error};

impl Engine {
    /// Adds ranks to the inventory, down until they are marked up. What a job holds of them
    /// already, as far as the engine knows, stays held. Fails, and changes nothing, where a rank
    /// is known.
    pub fn grow(&mut self, more: &ResourceSet) -> Result<(), Error> {
        let moves = self.books.machine.grow(more)?;
        self.relocate(&moves);
        Ok(())
    }

    /// Removes ranks from the inventory for good; unknown ones do not matter. Jobs on them are
    /// left alone: what they give back there is nobody's. Jobs in the queue that have become
    /// impossible are denied at the next call of [`schedule`](Self::schedule).
    pub fn shrink(&mut self, ranks: &IdSet) {
        let moves = self.books.machine.shrink(ranks);
        self.relocate(&moves);
        self.reconsider();
    }

    /// The places of nodes have changed: finds those of everybody's shares.
    fn relocate(&mut self, moves: &Relocation) {
        let books = &mut self.books;
        books.timeline = None;
        books.changes += 1;
        books.any_node.clear();
        books.reachable.clear();
        books.moves += 1;
        books.partial = 0;
        for running in books.runs.iter_mut() {
            let (mut shares, gone) = books.machine.relocate(&running.shares, moves);
            let mut outside = running.outside.take().map_or_else(BTreeMap::new, |it| *it);
            // What was outside before may be back.
            outside.retain(|rank, (cores, gpus)| {
                let Some(share) = books.machine.free_share(*rank, cores, gpus) else {
                    return true;
                };
                books.machine.allocate(std::slice::from_ref(&share));
                shares.push(share);
                false
            });
            let gone = gone.into_iter();
            outside.extend(gone.map(|lost| (lost.rank, (lost.cores, lost.gpus))));
            books.partial += usize::from(!is_whole(&books.machine, &shares));
            running.shares = shares;
            running.outside = (!outside.is_empty()).then(|| Box::new(outside));
        }
        self.scratch.relocate(moves);
    }

    /// Targets that may be allocated from now on.
    pub fn mark_up(&mut self, ranks: &IdSet) {
        self.mark(ranks, true);
    }

    /// Targets that may not be allocated any more. Jobs on them are left alone.
    pub fn mark_down(&mut self, ranks: &IdSet) {
        self.mark(ranks, false);
    }

    fn mark(&mut self, ranks: &IdSet, up: bool) {
        if up {
            self.books.machine.mark_up(ranks);
        } else {
            self.books.machine.mark_down(ranks);
        }
        self.books.reachable.clear();
        // What comes back on nodes that are down does not count.
        self.books.timeline = None;
        self.books.changes += 1;
    }

    /// Gives ranks a property. As with [`remove_property`](Self::remove_property), jobs in the
    /// queue that have become impossible are denied at the next call of
    /// [`schedule`](Self::schedule).
    pub fn add_property(&mut self, name: &str, ranks: &IdSet) -> Result<(), Error> {
        self.books.machine.add_property(name, ranks)?;
        self.reconsider();
        Ok(())
    }

    /// Takes a property from ranks.
    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        self.books.machine.remove_property(name, ranks);
        self.reconsider();
    }

    /// When the resources themselves end, in seconds since the epoch; `None` for never.
    pub fn set_inventory_expiration(&mut self, expiration: Option<f64>) {
        self.books.machine.set_expiration(expiration);
        self.books.changes += 1;
    }

    /// When the resources themselves end.
    pub fn inventory_expiration(&self) -> Option<f64> {
        self.books.machine.expiration()
    }
}
