//! Measures: the one number by which a view orders nodes.

use super::amounts::Amounts;
use super::nodes::Nodes;
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
