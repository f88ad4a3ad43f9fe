//! Changes of the inventory while jobs are pending and running.

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

use crate::node_table::{Relocated, Relocation};
use crate::running_jobs::OutsideResources;
use crate::state::is_whole;
use crate::{Engine, Error};

impl Engine {
    /// Adds ranks to the inventory, down until they are marked up. Resources on them that a job is
    /// already known to hold stay allocated.
    ///
    /// # Errors
    ///
    /// A rank is in the inventory already, the R has no `execution`, or there are more cores and
    /// gpus than the engine can hold; the engine is unchanged.
    pub fn grow(&mut self, more: &ResourceSet) -> Result<(), Error> {
        let relocation = self.state.node_table.grow(more)?;
        self.relocate(&relocation);
        Ok(())
    }

    /// Removes ranks from the inventory; unknown ones are ignored. Jobs on them keep running, and
    /// resources that they release there are not reused. Pending jobs that have become impossible
    /// are denied at the next call of [`schedule`](Self::schedule).
    pub fn shrink(&mut self, ranks: &IdSet) {
        let relocation = self.state.node_table.shrink(ranks);
        self.relocate(&relocation);
        self.reconsider();
    }

    /// Renumbers the nodes of running jobs and reservations.
    fn relocate(&mut self, relocation: &Relocation) {
        let state = &mut self.state;
        state.timeline = None;
        state.changes += 1;
        state.node_table.any_node.clear();
        state.node_table.reachable.clear();
        state.partial = 0;
        for running in state.running_jobs.iter_mut() {
            let Relocated {
                allocation: mut shares,
                lost,
            } = state.node_table.relocate(&running.shares, relocation);
            let mut outside = running
                .outside
                .take()
                .map_or_else(BTreeMap::new, |boxed| *boxed);
            // Ranks that were outside the inventory before may be in it now.
            outside.retain(|rank, held| {
                let Some(share) = state.node_table.free_share(*rank, &held.cores, &held.gpus)
                else {
                    return true;
                };
                state.node_table.allocate(std::slice::from_ref(&share));
                shares.push(share);
                false
            });
            let lost = lost.into_iter();
            outside.extend(lost.map(|share| {
                let (cores, gpus) = (share.cores, share.gpus);
                (share.rank, OutsideResources { cores, gpus })
            }));
            state.partial += usize::from(!is_whole(&state.node_table, &shares));
            running.shares = shares;
            running.outside = (!outside.is_empty()).then(|| Box::new(outside));
        }
        self.policy_state.relocate(relocation);
    }

    /// Marks ranks up: they may be allocated from now on.
    pub fn mark_up(&mut self, ranks: &IdSet) {
        self.state.node_table.mark_up(ranks);
        self.invalidate_up_nodes();
    }

    /// Marks ranks down: they may no longer be allocated. Jobs on them keep running.
    pub fn mark_down(&mut self, ranks: &IdSet) {
        self.state.node_table.mark_down(ranks);
        self.invalidate_up_nodes();
    }

    /// Invalidates the state that depends on which nodes are up.
    fn invalidate_up_nodes(&mut self) {
        self.state.node_table.reachable.clear();
        // Cores released on nodes that are down do not count.
        self.state.timeline = None;
        self.state.changes += 1;
    }

    /// Adds a property to ranks. As with [`remove_property`](Self::remove_property), pending jobs
    /// that have become impossible are denied at the next call of [`schedule`](Self::schedule).
    ///
    /// # Errors
    ///
    /// The name is not a property name (RFC 20), or a rank is not in the inventory.
    pub fn add_property(&mut self, name: &str, ranks: &IdSet) -> Result<(), Error> {
        self.state.node_table.add_property(name, ranks)?;
        self.reconsider();
        Ok(())
    }

    /// Removes a property from ranks.
    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        self.state.node_table.remove_property(name, ranks);
        self.reconsider();
    }

    /// Sets when the inventory expires, in seconds since the epoch; `None` for never.
    pub fn set_inventory_expiration(&mut self, expiration: Option<f64>) {
        self.state.node_table.set_expiration(expiration);
        self.state.changes += 1;
    }

    /// When the inventory expires.
    pub fn inventory_expiration(&self) -> Option<f64> {
        self.state.node_table.expiration()
    }
}
