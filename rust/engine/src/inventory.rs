//! Changes of the inventory while jobs are pending and running.

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

use crate::books::is_whole;
use crate::machine::Relocation;
use crate::{Engine, Error};

impl Engine {
    /// Adds ranks to the inventory, down until they are marked up. What a job is known to have on
    /// them already stays allocated.
    ///
    /// # Errors
    ///
    /// A rank is in the inventory already, the R has no `execution`, or there are more cores and
    /// gpus than the engine can hold; the engine is unchanged.
    pub fn grow(&mut self, more: &ResourceSet) -> Result<(), Error> {
        let relocation = self.books.machine.grow(more)?;
        self.relocate(&relocation);
        Ok(())
    }

    /// Removes ranks from the inventory; unknown ones are ignored. Jobs on them keep running, and
    /// what they release there is not reused. Pending jobs that have become impossible are denied
    /// at the next call of [`schedule`](Self::schedule).
    pub fn shrink(&mut self, ranks: &IdSet) {
        let relocation = self.books.machine.shrink(ranks);
        self.relocate(&relocation);
        self.reconsider();
    }

    /// Renumbers the nodes of running jobs and reservations.
    fn relocate(&mut self, relocation: &Relocation) {
        let books = &mut self.books;
        books.timeline = None;
        books.changes += 1;
        books.any_node.clear();
        books.reachable.clear();
        books.partial = 0;
        for running in books.runs.iter_mut() {
            let (mut shares, gone) = books.machine.relocate(&running.shares, relocation);
            let mut outside = running.outside.take().map_or_else(BTreeMap::new, |it| *it);
            // What was outside the inventory before may be in it now.
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
        self.scratch.relocate(relocation);
    }

    /// Marks ranks up: they may be allocated from now on.
    pub fn mark_up(&mut self, ranks: &IdSet) {
        self.books.machine.mark_up(ranks);
        self.nodes_changed();
    }

    /// Marks ranks down: they may no longer be allocated. Jobs on them keep running.
    pub fn mark_down(&mut self, ranks: &IdSet) {
        self.books.machine.mark_down(ranks);
        self.nodes_changed();
    }

    /// Drops what depends on which nodes are up.
    fn nodes_changed(&mut self) {
        self.books.reachable.clear();
        // Cores released on nodes that are down do not count.
        self.books.timeline = None;
        self.books.changes += 1;
    }

    /// Gives ranks a property. As with [`remove_property`](Self::remove_property), pending jobs
    /// that have become impossible are denied at the next call of [`schedule`](Self::schedule).
    ///
    /// # Errors
    ///
    /// The name is not a property name (RFC 20), or a rank is not in the inventory.
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

    /// Sets when the inventory expires, in seconds since the epoch; `None` for never.
    pub fn set_inventory_expiration(&mut self, expiration: Option<f64>) {
        self.books.machine.set_expiration(expiration);
        self.books.changes += 1;
    }

    /// When the inventory expires.
    pub fn inventory_expiration(&self) -> Option<f64> {
        self.books.machine.expiration()
    }
}
