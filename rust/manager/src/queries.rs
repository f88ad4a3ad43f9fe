//! `Queries`: requests about jobs, answered at once or by several or later responses: listings, streams
//! and waits.
//!
//! `job_list` lists the rows of jobs (`row`) that pass a `filter`, `watch` has the streams and waits,
//! `info`, `history` and `kvs` answer at once; `guest` has the logs of a job's execution and output, the latter by way
//! of the execution service, `lookup_bytes` what lookups of it have collected, `input_log` that of its standard input.

mod criteria;
mod filter;
pub(crate) mod guest;
pub(crate) mod history;
pub(crate) mod info;
pub(crate) mod input_log;
pub(crate) mod job_list;
pub(crate) mod job_results;
mod journal;
pub(crate) mod key_watch;
pub(crate) mod kvs;
mod lookup_bytes;
pub(crate) mod row;
mod selection;
mod shell_options;
mod slice_budget;
mod tree;
pub(crate) mod usage;
pub(crate) mod watch;

use penstock_flux::eventlog;
use penstock_flux::job_info::EventlogWatchRequest;
use penstock_flux::job_manager::OutstandingStats;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use self::guest::{JobLog, Relays};
use self::history::HistoryRequests;
use self::job_list::Listings;
use self::job_results::JobResults;
use self::journal::Journal;
use self::key_watch::KeyWatches;
use self::usage::UsageRequests;
use self::watch::{Drained, Watchers};
use crate::authorize::{PermittedJob, PermittedKey, VisibleJobs};
use crate::census::Census;
use crate::context::Context;
use crate::event::Event;
use crate::rpc::{Handled, Reply, Request};

/// The open listings, streams and waits.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    listings: Listings,
    pub(crate) usage: UsageRequests,
    pub(crate) histories: HistoryRequests,
    watchers: Watchers,
    journal: Journal,
    pub(crate) results: JobResults,
    pub(crate) key_watches: KeyWatches,
    pub(crate) relays: Relays,
}

impl Queries {
    /// `job-info.eventlog-watch`: the logged events of a job, then each further one until `clean`.
    pub(crate) fn watch_eventlog(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        job: &PermittedJob,
    ) -> Handled {
        let EventlogWatchRequest { path, flags, .. } = request.payload()?;
        match JobLog::named(path.as_deref())? {
            JobLog::Output => self.relays.watch_output(cx, request, job),
            log => self.watchers.eventlog_watch(cx, request, job, log, flags),
        }
    }

    /// `job-info.lookup`: documents of a job.
    pub(crate) fn look_up(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        job: &PermittedJob,
    ) -> Handled {
        info::lookup(cx, &mut self.relays, request, job)
    }

    /// `kvs.lookup`: a key of the store.
    pub(crate) fn look_up_key(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        key: PermittedKey,
    ) -> Handled {
        kvs::lookup(cx, &mut self.relays, request, key)
    }

    /// `job-list.list`: opens a listing.
    pub(crate) fn open_listing(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        visible: VisibleJobs,
    ) -> Handled {
        self.listings.list(cx, request, visible)
    }

    /// `job-list.list-cancel`: ends a listing before its remaining rows.
    pub(crate) fn cancel_listing(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        self.listings.list_cancel(cx, request)
    }

    /// `job-list.wait`: the row of each job when it becomes inactive.
    pub(crate) fn wait_for_jobs(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        visible: VisibleJobs,
    ) -> Handled {
        self.watchers.wait(cx, request, visible)
    }

    /// `job-info.eventlog-watch-cancel` and `job-list.wait-cancel`: ends a stream with ENODATA.
    pub(crate) fn cancel_stream(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        if !self.relays.cancel_stream(cx, request)? {
            self.watchers.stream_cancel(cx, request)?;
        }
        Ok(Reply::Empty)
    }

    /// `job-manager.drain` and `job-manager.idle`: answered when no such jobs are left.
    pub(crate) fn await_drain(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        jobs: Drained,
    ) -> Handled {
        self.watchers.drain(cx, request, jobs)
    }

    /// `job-manager.drain-cancel` and `job-manager.idle-cancel`: ends such a request with ECANCELED.
    pub(crate) fn cancel_drain(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        self.watchers.drain_cancel(cx, request)
    }

    /// `job-manager.events-journal`: the events of all jobs.
    pub(crate) fn open_journal(&mut self, request: Request<'_>) -> Handled {
        self.journal.open(request)
    }

    /// `job-manager.events-journal-cancel`.
    pub(crate) fn cancel_journal(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        self.journal.cancel(cx, request)
    }

    /// Has the first events of new jobs, with these ids, sent to the readers of all events.
    pub(crate) fn add_jobs(&mut self, first: JobId, last: JobId) {
        self.journal.add_jobs(first, last);
    }

    /// Sends an event to the followers of its job.
    pub(crate) fn send_event(&mut self, cx: &mut Context, id: JobId, event: &Event) {
        self.watchers.send_event(cx, id, event);
        self.journal.send_event(cx, id, event);
        if event.name == eventlog::CLEAN {
            self.relays.end_input(id);
        }
    }

    /// Handles a response of the execution service to a request that was made for a client.
    pub(crate) fn handle_relay_response(&mut self, cx: &mut Context, response: &Message) {
        if let Some((id, events)) = self.relays.handle_response(cx, response) {
            self.watchers.send_input(cx, id, &events);
        }
    }

    /// Reports a job that has become inactive to the requests that wait for it.
    pub(crate) fn report_end(&mut self, cx: &mut Context, id: JobId) {
        self.watchers.report_end(cx, id);
        self.results.report_end(cx, id);
    }

    /// Sends the rows of the jobs that have become inactive since the last call to the requests that wait for them.
    pub(crate) fn send_ended(&mut self, cx: &mut Context) {
        self.watchers.send_ended(cx);
    }

    /// Answers the `drain` and `idle` requests whose jobs have ended.
    pub(crate) fn answer_drains(&mut self, cx: &mut Context, census: &Census) {
        self.watchers.answer_drains(cx, census);
    }

    /// Sends the next parts of open listings, of sums of usage, of histories and of waits for jobs that have ended, as many as one slice has.
    pub(crate) fn send_listing_parts(&mut self, cx: &mut Context, census: &Census) {
        self.listings.send_slice(cx, census);
        self.usage.run_next_slice(cx, census);
        self.histories.run_next_slice(cx);
        self.journal.send_slice(cx);
        self.watchers.send_slice(cx);
    }

    /// Whether a listing, a sum, a history, or a wait for jobs that have ended, can send its next part.
    pub(crate) fn has_more(&self, cx: &Context) -> bool {
        let has_more = self.listings.has_more(cx) || self.watchers.has_more(cx);
        has_more || self.journal.has_more(cx) || self.usage.is_open() || self.histories.is_open()
    }

    /// The peers with such a listing or wait.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &[u8]> {
        let readers = self.listings.readers().chain(self.watchers.readers());
        readers.chain(self.journal.readers())
    }

    /// The numbers of open streams and waits.
    pub(crate) fn stats(&self) -> OutstandingStats {
        let mut stats = self.watchers.stats();
        stats.followers += (self.relays.len() + self.journal.len() + self.key_watches.len()) as u64;
        stats.waits += self.results.len() as u64;
        stats
    }

    /// Drops the open requests of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, cx: &mut Context, origin: &[u8]) {
        self.relays.disconnect(cx, origin);
        self.listings.disconnect(origin);
        self.usage.disconnect(origin);
        self.histories.disconnect(origin);
        self.watchers.disconnect(origin);
        self.journal.disconnect(origin);
        self.results.disconnect(origin);
        self.key_watches.disconnect(origin);
    }
}

#[cfg(test)]
mod tests {
    use super::Queries;
    use super::guest::JobLog;
    use crate::event::Event;
    use crate::fixture::{add_pending_job, context, described, message};
    use crate::settings::Settings;

    #[test]
    fn a_stream_has_the_events_of_its_job_until_its_peer_disconnects() {
        let mut cx = context(Settings::default());
        let (id, other) = (add_pending_job(&mut cx), add_pending_job(&mut cx));
        let mut queries = Queries::default();
        let request = message("job-info.eventlog-watch", "client", "{}");
        queries.watchers.follow(id, JobLog::Events, request);
        let event = Event::new(cx.now, "debug");
        queries.send_event(&mut cx, other, &event);
        assert!(described(&mut cx).is_empty());
        queries.send_event(&mut cx, id, &event);
        assert_eq!(described(&mut cx), ["send job-info.eventlog-watch"]);
        queries.disconnect(&mut cx, b"another");
        queries.send_event(&mut cx, id, &event);
        assert_eq!(described(&mut cx), ["send job-info.eventlog-watch"]);
        queries.disconnect(&mut cx, b"client");
        queries.send_event(&mut cx, id, &event);
        assert!(described(&mut cx).is_empty());
    }
}
