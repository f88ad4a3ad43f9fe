use std::collections::HashSet;

use crate::flags::{MATCHTAG_MAX, MATCHTAG_NONE};

/// The matchtags of a peer's outstanding requests (RFC 6).
///
/// Matchtags are allotted in ascending order and start again after the greatest one; a matchtag whose request is still
/// outstanding by then is skipped.
#[derive(Clone, Debug, Default)]
pub struct Matchtags {
    last: u32,
    outstanding: HashSet<u32>,
}

impl Matchtags {
    /// Allots the matchtag of a new request; it is outstanding until [`release`](Self::release).
    pub fn allot(&mut self) -> u32 {
        loop {
            if self.last == MATCHTAG_MAX {
                self.last = MATCHTAG_NONE;
            }
            self.last += 1;
            if self.outstanding.insert(self.last) {
                return self.last;
            }
        }
    }

    /// The last response has arrived, or none is awaited any longer. A matchtag that is not outstanding is ignored.
    pub fn release(&mut self, matchtag: u32) {
        self.outstanding.remove(&matchtag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outstanding_matchtags_and_0_are_skipped_after_the_greatest() {
        let mut matchtags = Matchtags::default();
        assert_eq!([1, 2, 3].map(|_| matchtags.allot()), [1, 2, 3]);
        matchtags.release(2);
        matchtags.release(7);
        matchtags.last = u32::MAX - 1;
        assert_eq!([(); 3].map(|()| matchtags.allot()), [u32::MAX, 2, 4]);
    }
}
