//! How large an allocation is, or may be.

use super::Allocation;

/// Nodes and cores: the size of an allocation, or a limit on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub nodes: u64,
    pub cores: u64,
}

impl Size {
    /// The limit that any allocation is within.
    pub const UNLIMITED: Self = Self {
        nodes: u64::MAX,
        cores: u64::MAX,
    };

    /// The smaller number of nodes and the smaller number of cores of two limits.
    pub fn min(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.min(other.nodes),
            cores: self.cores.min(other.cores),
        }
    }

    /// Whether an allocation is within this limit.
    pub fn admits(self, allocation: &Allocation) -> bool {
        let size = allocation.size();
        size.nodes <= self.nodes && size.cores <= self.cores
    }
}
