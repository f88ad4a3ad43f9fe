//! Measures: the one number by which a view orders nodes.

use super::node_class::NodeClass;
use super::nodes::{NodeResources, Nodes};
use crate::ids::NodeIndex;

/// The meaning of the number of a node in a view. A node that is down has 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Measure {
    /// Free cores, if at least `gpus` gpus are free too.
    Cores { gpus: u32 },
    /// Cores, if the node is idle and has at least `gpus` gpus.
    Whole { gpus: u32 },
    /// Slots of these cores and gpus.
    Slots(Amounts),
}

/// Numbers of cores and gpus: of a node, or of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Amounts {
    pub cores: u32,
    pub gpus: u32,
}

impl Amounts {
    /// The number of slots that fit into these cores and gpus.
    #[inline]
    pub fn slots(self, per_slot: Self) -> u32 {
        let by_cores = self.cores / per_slot.cores.max(1);
        match self.gpus.checked_div(per_slot.gpus) {
            Some(by_gpus) => by_cores.min(by_gpus),
            None => by_cores,
        }
    }
}

impl From<NodeResources> for Amounts {
    #[inline]
    fn from(NodeResources { cores, gpus, .. }: NodeResources) -> Self {
        Self { cores, gpus }
    }
}

impl From<&NodeClass> for Amounts {
    fn from(class: &NodeClass) -> Self {
        Self {
            cores: class.cores.len,
            gpus: class.gpus.len,
        }
    }
}

impl Measure {
    /// The number of a node that is up.
    #[inline]
    pub fn number(self, nodes: &Nodes, node: NodeIndex) -> u32 {
        let free = nodes.free(node);
        let cores_if = |fits: bool| if fits { free.cores } else { 0 };
        match self {
            Self::Cores { gpus } => cores_if(free.gpus >= gpus),
            Self::Whole { gpus } => cores_if(free.whole && free.gpus >= gpus),
            Self::Slots(per_slot) => Amounts::from(free).slots(per_slot),
        }
    }

    /// The largest number that a node can have.
    pub fn largest(self, nodes: &Nodes, node: NodeIndex) -> u32 {
        let class = nodes.class(node);
        match self {
            Self::Slots(per_slot) => Amounts::from(class).slots(per_slot),
            _ => class.cores.len,
        }
    }
}
