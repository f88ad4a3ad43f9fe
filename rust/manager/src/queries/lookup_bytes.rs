//! `LookupBytes`: the output that lookups of `guest.output` have collected so far, by user.

use std::collections::BTreeMap;

/// The most bytes that all outstanding lookups of one guest have.
pub(super) const MAX_GUEST_LOOKUP_BYTES: u64 = 64 << 20;

/// The bytes of the outstanding lookups of each user who has any.
#[derive(Debug, Default)]
pub(super) struct LookupBytes {
    by_user: BTreeMap<u32, u64>,
}

impl LookupBytes {
    /// Counts what a lookup has got. Returns the bytes of all of this user's.
    pub(super) fn add(&mut self, userid: u32, bytes: usize) -> u64 {
        let all = self.by_user.entry(userid).or_default();
        *all += bytes as u64;
        *all
    }

    /// Counts a lookup with this many bytes no longer.
    pub(super) fn remove(&mut self, userid: u32, bytes: usize) {
        if let Some(all) = self.by_user.get_mut(&userid) {
            *all = all.saturating_sub(bytes as u64);
            if *all == 0 {
                self.by_user.remove(&userid);
            }
        }
    }
}
