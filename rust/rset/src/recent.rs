//! A cache of results for the last pairs of resources.

use std::sync::Arc;

use crate::children::Children;

/// The greatest number of cached pairs, a power of two.
const MAX_CACHE_SLOTS: usize = 64;

/// A cache of results for the last pairs of resources: with few kinds of nodes each pair is computed once.
pub(crate) struct Recent<'a> {
    /// A power of two of them.
    slots: Vec<Option<CachedResult<'a>>>,
}

struct CachedResult<'a> {
    left: &'a Arc<Children>,
    right: &'a Arc<Children>,
    children: Option<Arc<Children>>,
}

impl<'a> Recent<'a> {
    /// A cache for an operation that combines about this number of pairs.
    pub(crate) fn new(pairs: usize) -> Self {
        let slots = pairs.clamp(1, MAX_CACHE_SLOTS).next_power_of_two();
        Self {
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
        }
    }

    // Called for each run of ranks.
    #[inline]
    pub(crate) fn get_or_make(
        &mut self,
        left: &'a Arc<Children>,
        right: &'a Arc<Children>,
        make: impl FnOnce() -> Option<Arc<Children>>,
    ) -> Option<Arc<Children>> {
        let address = |children: &Arc<Children>| Arc::as_ptr(children).addr();
        let (one, other) = (address(left), address(right));
        // Allocations are at least 16 bytes apart.
        let position = ((one >> 5) ^ (other >> 4)) & (self.slots.len() - 1);
        let slot = &mut self.slots[position];
        match slot {
            Some(known) if address(known.left) == one && address(known.right) == other => {
                known.children.clone()
            }
            _ => {
                let children = make();
                *slot = Some(CachedResult {
                    left,
                    right,
                    children: children.clone(),
                });
                children
            }
        }
    }
}
