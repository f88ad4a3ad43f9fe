//! `Queries`: requests about jobs that get several or later responses: lists, streams and waits.
//!
//! Requests that are answered at once are handled by functions in [`info`](crate::info),
//! [`history`](crate::history), [`job_list`](crate::job_list) and [`kvs`](crate::kvs).

use crate::job_list::Listings;
use crate::watch::Watchers;

/// The open listings, streams and waits.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    pub(crate) listings: Listings,
    pub(crate) watchers: Watchers,
}

impl Queries {
    /// Drops the open requests of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.listings.disconnect(origin);
        self.watchers.disconnect(origin);
    }
}
