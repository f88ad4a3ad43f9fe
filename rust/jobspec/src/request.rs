use crate::Constraint;

/// A jobspec reduced to what matching needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Nodes, where the jobspec has a node level.
    pub nnodes: Option<u32>,
    /// Whether the nodes are wanted whole.
    pub exclusive: bool,
    /// Slots: on each node where there is a node level, else in total.
    pub slots: u32,
    /// Cores of each slot, at least one.
    pub cores_per_slot: u32,
    /// Gpus of each slot.
    pub gpus_per_slot: u32,
    /// Time limit in seconds; 0 for none.
    pub duration: f64,
    /// Which targets will do; `None` for any.
    pub constraint: Option<Constraint>,
}

impl Request {
    /// Slots on all nodes together.
    pub fn total_slots(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.nnodes.unwrap_or(1))
    }
}
