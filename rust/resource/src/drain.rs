//! Drained targets, grouped by time and reason.

use penstock_idset::IdSet;

use crate::event::Overwrite;

/// The time of a drain and its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Drain {
    /// Time of the drain, in seconds since the epoch.
    pub timestamp: f64,
    /// The administrator's reason; empty if none was given.
    pub reason: String,
}

/// The drained targets. Time and memory grow with the groups, not with the targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drains {
    /// Disjoint, never empty; no two have the same drain.
    groups: Vec<(Drain, IdSet)>,
    /// All of them.
    ranks: IdSet,
}

impl Drains {
    /// The drained targets.
    pub fn ranks(&self) -> &IdSet {
        &self.ranks
    }

    /// Targets that were drained at one time for one reason, the group with the lowest rank first.
    pub fn groups(&self) -> Vec<(&Drain, &IdSet)> {
        let mut groups: Vec<_> = self
            .groups
            .iter()
            .map(|(drain, ranks)| (drain, ranks))
            .collect();
        groups.sort_by_key(|(_, ranks)| ranks.first());
        groups
    }

    /// The drained targets without a reason.
    pub fn without_reason(&self) -> IdSet {
        let groups = self.groups.iter();
        groups.filter(|(drain, _)| drain.reason.is_empty()).fold(
            IdSet::new(),
            |mut all, (_, ranks)| {
                all.union_with(ranks);
                all
            },
        )
    }

    /// Drains targets; `overwrite` says how to treat targets that are drained already.
    pub(crate) fn drain(&mut self, ranks: &IdSet, drain: &Drain, overwrite: Overwrite) {
        if overwrite == Overwrite::All {
            self.undrain(ranks);
        }
        let mut changed = Vec::new();
        for (old, drained) in &mut self.groups {
            let again = &*drained & ranks;
            if !again.is_empty() && (overwrite == Overwrite::Reason || old.reason.is_empty()) {
                drained.subtract(&again);
                let reason = drain.reason.clone();
                let timestamp = old.timestamp;
                changed.push((Drain { timestamp, reason }, again));
            }
        }
        changed.push((drain.clone(), ranks - &self.ranks));
        for (drain, ranks) in changed {
            self.add(drain, &ranks);
        }
        self.groups.retain(|(_, ranks)| !ranks.is_empty());
    }

    fn add(&mut self, drain: Drain, ranks: &IdSet) {
        self.ranks.union_with(ranks);
        match self.groups.iter_mut().find(|(old, _)| *old == drain) {
            Some((_, drained)) => drained.union_with(ranks),
            None => self.groups.push((drain, ranks.clone())),
        }
    }

    /// Undrains targets, whether or not they are drained.
    pub(crate) fn undrain(&mut self, ranks: &IdSet) {
        self.ranks.subtract(ranks);
        for (_, drained) in &mut self.groups {
            drained.subtract(ranks);
        }
        self.groups.retain(|(_, drained)| !drained.is_empty());
    }

    /// Forgets targets that are no longer in the inventory.
    pub(crate) fn retain(&mut self, inventory: &IdSet) {
        let gone = &self.ranks - inventory;
        if !gone.is_empty() {
            self.undrain(&gone);
        }
    }
}
