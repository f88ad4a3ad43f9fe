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

#[cfg(test)]
mod tests {
    use super::Queries;
    use crate::event::Event;
    use crate::fixture::{add_pending_job, context, described, message};
    use crate::settings::Settings;

    #[test]
    fn a_stream_has_the_events_of_its_job_until_its_peer_disconnects() {
        let mut cx = context(Settings::default());
        let (id, other) = (add_pending_job(&mut cx), add_pending_job(&mut cx));
        let mut queries = Queries::default();
        let request = message("job-info.eventlog-watch", "client", "{}");
        queries.watchers.follow(id, request);
        let event = Event::new(cx.now, "debug");
        queries.watchers.send_event(&mut cx, other, &event);
        assert!(described(&mut cx).is_empty());
        queries.watchers.send_event(&mut cx, id, &event);
        assert_eq!(described(&mut cx), ["send job-info.eventlog-watch"]);
        queries.disconnect(b"another");
        queries.watchers.send_event(&mut cx, id, &event);
        assert_eq!(described(&mut cx), ["send job-info.eventlog-watch"]);
        queries.disconnect(b"client");
        queries.watchers.send_event(&mut cx, id, &event);
        assert!(described(&mut cx).is_empty());
    }
}
