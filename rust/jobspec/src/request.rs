use std::hash::{Hash, Hasher};

use crate::{Constraint, Count};

/// The part of a jobspec needed for matching.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Nodes, if the jobspec has a node level.
    pub nnodes: Option<Count>,
    /// Whether whole nodes are requested.
    pub exclusive: bool,
    /// Slots: on each node if there is a node level, otherwise in total.
    pub slots: Count,
    /// Cores of each slot, at least one.
    pub cores_per_slot: Count,
    /// Gpus of each slot.
    pub gpus_per_slot: Count,
    /// Time limit in seconds; 0 for none.
    pub duration: f64,
    /// The constraint on targets; `None` if all are acceptable.
    pub constraint: Option<Constraint>,
}

impl Hash for Request {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            nnodes,
            exclusive,
            slots,
            cores_per_slot,
            gpus_per_slot,
            duration,
            constraint,
        } = self;
        (nnodes, exclusive, slots, cores_per_slot, gpus_per_slot).hash(state);
        // No time limit is -0.
        (duration.to_bits(), constraint).hash(state);
    }
}

impl Request {
    /// The least acceptable number of slots on all nodes together.
    pub fn total_slots(&self) -> u64 {
        u64::from(self.slots.min()) * u64::from(self.least_nodes().unwrap_or(1))
    }

    /// Whether this number of slots, in total on this number of nodes, is acceptable.
    pub fn accepts_slots(&self, slots: u64, nodes: u64) -> bool {
        let here = match self.nnodes {
            Some(_) if nodes > 0 && slots.is_multiple_of(nodes) => slots / nodes,
            Some(_) => return false,
            None => slots,
        };
        u32::try_from(here).is_ok_and(|slots| self.slots.contains(slots))
    }

    /// The least acceptable number of cores of all slots together; saturates.
    pub fn total_cores(&self) -> u64 {
        let cores = self.cores_per_slot.min();
        self.total_slots().saturating_mul(cores.into())
    }

    /// The least acceptable number of gpus of all slots together; saturates.
    pub fn total_gpus(&self) -> u64 {
        let gpus = self.gpus_per_slot.min();
        self.total_slots().saturating_mul(gpus.into())
    }

    /// The least acceptable number of nodes, if the jobspec has a node level.
    pub fn least_nodes(&self) -> Option<u32> {
        self.nnodes.as_ref().map(Count::min)
    }

    /// The largest acceptable number of nodes; `None` if unlimited or without a node level.
    pub fn most_nodes(&self) -> Option<u32> {
        self.nnodes.as_ref().and_then(Count::max)
    }

    /// The largest acceptable number of cores of all slots together; `None` if unlimited.
    pub fn most_cores(&self) -> Option<u64> {
        self.most(&self.cores_per_slot)
    }

    /// The largest acceptable number of gpus of all slots together; `None` if unlimited.
    pub fn most_gpus(&self) -> Option<u64> {
        self.most(&self.gpus_per_slot)
    }

    fn most(&self, per_slot: &Count) -> Option<u64> {
        if *per_slot == 0 {
            return Some(0);
        }
        let nodes = self.nnodes.as_ref().map_or(Some(1), Count::max)?;
        let slots = u64::from(nodes) * u64::from(self.slots.max()?);
        Some(slots.saturating_mul(per_slot.max()?.into()))
    }

    /// Whether all counts are single numbers, not ranges.
    pub fn is_exact(&self) -> bool {
        let per_slot = [&self.slots, &self.cores_per_slot, &self.gpus_per_slot];
        self.nnodes.iter().chain(per_slot).all(Count::is_exact)
    }
}
