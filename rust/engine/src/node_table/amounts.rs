//! Numbers of cores and gpus.

/// Numbers of cores and gpus: of a node, of a slot, or of a share.
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
