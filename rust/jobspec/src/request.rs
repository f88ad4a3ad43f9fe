use crate::{Constraint, Count};

/// A jobspec reduced to what matching needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Nodes, where the jobspec has a node level.
    pub nnodes: Option<Count>,
    /// Whether the nodes are wanted whole.
    pub exclusive: bool,
    /// Slots: on each node where there is a node level, else in total.
    pub slots: Count,
    /// Cores of each slot, at least one.
    pub cores_per_slot: Count,
    /// Gpus of each slot.
    pub gpus_per_slot: Count,
    /// Time limit in seconds; 0 for none.
    pub duration: f64,
    /// Which targets will do; `None` for any.
    pub constraint: Option<Constraint>,
}

impl Request {
    /// Slots on all nodes together, the least that will do.
    pub fn total_slots(&self) -> u64 {
        u64::from(self.slots.min()) * u64::from(self.least_nodes().unwrap_or(1))
    }

    /// Cores of all slots together, the least that will do; as many as a number holds where there
    /// are more.
    pub fn total_cores(&self) -> u64 {
        let cores = self.cores_per_slot.min();
        self.total_slots().saturating_mul(cores.into())
    }

    /// Gpus of all slots together, the least that will do; as many as a number holds where there
    /// are more.
    pub fn total_gpus(&self) -> u64 {
        let gpus = self.gpus_per_slot.min();
        self.total_slots().saturating_mul(gpus.into())
    }

    /// The least number of nodes that will do, where the jobspec has a node level.
    pub fn least_nodes(&self) -> Option<u32> {
        self.nnodes.as_ref().map(Count::min)
    }

    /// The most nodes that will do; `None` where there is no end, or no node level.
    pub fn most_nodes(&self) -> Option<u32> {
        self.nnodes.as_ref().and_then(Count::max)
    }

    /// Cores of all slots together, the most that will do; `None` where there is no end.
    pub fn most_cores(&self) -> Option<u64> {
        self.most(&self.cores_per_slot)
    }

    /// Gpus of all slots together, the most that will do; `None` where there is no end.
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

    /// Whether each of the numbers is one, not a range.
    pub fn is_exact(&self) -> bool {
        let per_slot = [&self.slots, &self.cores_per_slot, &self.gpus_per_slot];
        self.nnodes.iter().chain(per_slot).all(Count::is_exact)
    }
}
