//! What a job holds, in numbers.

use crate::Engine;

/// What a job holds of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The node's rank.
    pub rank: u32,
    /// How many of its cores.
    pub cores: u32,
    /// How many of its gpus.
    pub gpus: u32,
}

impl Engine {
    /// What a job holds of each node in the inventory, by rank; nothing where it does not run.
    /// Cheaper than its R: the cost is that of the nodes, without a text or a set.
    pub fn held(&self, id: u64) -> impl Iterator<Item = Held> {
        let shares = self.run(id).map(|running| running.shares.iter());
        shares.into_iter().flatten().map(|share| Held {
            rank: self.books.machine.rank(share.node),
            cores: share.ncores(),
            gpus: share.ngpus(),
        })
    }
}
