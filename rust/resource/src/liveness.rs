//! Monitors of targets, counted by target.

use penstock_idset::IdSet;

/// The number of monitors of each target. Time and memory grow with the ranges of ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Liveness {
    /// The targets with more monitors than the layer's index; each layer is a subset of the one before it.
    layers: Vec<IdSet>,
}

impl Liveness {
    /// The targets with a monitor.
    pub(crate) fn live(&self) -> IdSet {
        self.layers.first().cloned().unwrap_or_default()
    }

    /// Adds a monitor of these targets. Returns the targets that had no monitor.
    pub(crate) fn add(&mut self, ranks: &IdSet) -> IdSet {
        let new = ranks - &self.live();
        let mut rest = ranks.clone();
        for layer in &mut self.layers {
            let counted = &*layer & &rest;
            layer.union_with(&rest);
            rest = counted;
        }
        if !rest.is_empty() {
            self.layers.push(rest);
        }
        new
    }

    /// Removes a monitor of these targets. Returns the targets that have lost their last monitor.
    pub(crate) fn remove(&mut self, ranks: &IdSet) -> IdSet {
        let mut rest = ranks.clone();
        for layer in self.layers.iter_mut().rev() {
            let counted = &*layer & &rest;
            layer.subtract(&counted);
            rest.subtract(&counted);
        }
        self.layers.retain(|layer| !layer.is_empty());
        ranks - &self.live()
    }
}
