//! `Queries`: requests about jobs, answered at once or by several or later responses: listings, streams
//! and waits.
//!
//! `job_list` lists the rows of jobs (`row`) that pass a `filter`, `watch` has the streams and waits,
//! `info`, `history` and `kvs` answer at once.

mod filter;
pub(crate) mod history;
pub(crate) mod info;
pub(crate) mod job_list;
pub(crate) mod kvs;
pub(crate) mod row;
pub(crate) mod watch;

use self::job_list::Listings;
use self::watch::Watchers;

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
