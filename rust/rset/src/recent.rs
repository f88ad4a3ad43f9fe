//! What was made of the last pairs of resources.

use std::sync::Arc;

use crate::segments::Children;

/// The places of [`Recent`].
const PLACES: usize = 64;

/// What was made of the last pairs of resources: with few kinds of nodes every pair is worked on once.
pub(crate) struct Recent<'a> {
    places: Vec<Option<Made<'a>>>,
}

struct Made<'a> {
    left: Option<&'a Arc<Children>>,
    right: Option<&'a Arc<Children>>,
    children: Option<Arc<Children>>,
}

impl Default for Recent<'_> {
    fn default() -> Self {
        Self {
            places: std::iter::repeat_with(|| None).take(PLACES).collect(),
        }
    }
}

impl<'a> Recent<'a> {
    pub(crate) fn get_or_make(
        &mut self,
        left: Option<&'a Arc<Children>>,
        right: Option<&'a Arc<Children>>,
        make: impl FnOnce() -> Option<Arc<Children>>,
    ) -> Option<Arc<Children>> {
        let address = |children: Option<&Arc<Children>>| {
            children.map_or(0, |children| Arc::as_ptr(children).addr())
        };
        let (one, other) = (address(left), address(right));
        // Allocations lie 16 bytes apart or more.
        let place = &mut self.places[((one >> 5) ^ (other >> 4)) % PLACES];
        match place {
            Some(made) if address(made.left) == one && address(made.right) == other => {
                made.children.clone()
            }
            _ => {
                let children = make();
                *place = Some(Made {
                    left,
                    right,
                    children: children.clone(),
                });
                children
            }
        }
    }
}
