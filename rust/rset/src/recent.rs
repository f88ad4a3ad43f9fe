//! A cache of results for the last pairs of resources.

use std::sync::Arc;

use crate::children::Children;

/// The number of cached pairs.
const CACHE_SLOTS: usize = 64;

/// A cache of results for the last pairs of resources: with few kinds of nodes each pair is computed once.
pub(crate) struct Recent<'a> {
    slots: Vec<Option<CachedResult<'a>>>,
}

struct CachedResult<'a> {
    left: &'a Arc<Children>,
    right: &'a Arc<Children>,
    children: Option<Arc<Children>>,
}

impl Default for Recent<'_> {
    fn default() -> Self {
        Self {
            slots: std::iter::repeat_with(|| None).take(CACHE_SLOTS).collect(),
        }
    }
}

impl<'a> Recent<'a> {
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
        let slot = &mut self.slots[((one >> 5) ^ (other >> 4)) % CACHE_SLOTS];
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
