//! `pmix.events`: streams of requests that have ended, of a whole job or of one request.

use penstock_elastic::{Account, Entry};
use penstock_flux::pmix::JobRequest;
use penstock_flux::{RequestError, StreamCancelRequest};
use serde_json::Value;

use super::naming::{is_named, report};
use super::peer::{Elastic, Watch};
use crate::context::Context;
use crate::effect::RequestKey;
use crate::rpc::{self, Handled, Reply, Request};
use crate::state::State;

impl Watch {
    fn is_about(&self, job: u64, entry: &Entry) -> bool {
        self.job == job && is_named(entry, self.id.as_deref())
    }
}

impl Elastic {
    /// `pmix.events`: the requests that have ended, oldest first, then every further one until the job
    /// ends.
    pub(crate) fn events(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let events: JobRequest<'_> = request.payload()?;
        let job = cx.jobs.visible(events.job, request.sender)?;
        let is_over = job.record.state() == State::Inactive;
        let watch = Watch {
            message: request.message.clone(),
            job: events.job,
            id: events.id.map(penstock_flux::Text::into_string),
        };
        let account = self.ledger.account(watch.job);
        let entries = account.into_iter().flat_map(Account::entries);
        let ended = entries.filter(|entry| !entry.is_open() && watch.is_about(watch.job, entry));
        let ended: Vec<Value> = ended.map(report).collect();
        for event in ended {
            cx.respond(request.message, Some(&event));
        }
        if is_over {
            return Err(RequestError::end_of_stream());
        }
        self.watches.push(watch);
        Ok(Reply::Deferred)
    }

    /// Reports a request that has ended to those who watch it.
    pub(super) fn notify_watches(&self, cx: &mut Context, (job, seq): RequestKey) {
        let account = self.ledger.account(job);
        let Some(entry) = account.and_then(|account| account.entry(seq)) else {
            return;
        };
        let event = report(entry);
        let watches = self.watches.iter();
        for watch in watches.filter(|watch| watch.is_about(job, entry)) {
            cx.respond(&watch.message, Some(&event));
        }
    }

    /// Ends the streams of a job that has ended.
    pub(crate) fn end_watches(&mut self, cx: &mut Context, job: u64) {
        self.watches.retain(|watch| {
            if watch.job == job {
                cx.end_stream(&watch.message);
            }
            watch.job != job
        });
    }

    /// `pmix.events-cancel`: the stream ends.
    pub(crate) fn events_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let is_it =
            |watch: &Watch| rpc::is_request_of(&watch.message, request.origin(), cancel.matchtag);
        if let Some(index) = self.watches.iter().position(is_it) {
            let ended = self.watches.swap_remove(index);
            cx.end_stream(&ended.message);
        }
        Ok(Reply::Empty)
    }

    /// `pmix.alloc-cancel`: the caller no longer waits; the request goes on.
    pub(crate) fn alloc_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let mut callers = self.callers.iter();
        let found = callers
            .find(|(_, caller)| rpc::is_request_of(caller, request.origin(), cancel.matchtag));
        let key = found.map(|(key, _)| *key);
        if let Some(caller) = key.and_then(|key| self.callers.remove(&key))
            && caller.is_streaming()
        {
            cx.end_stream(&caller);
        }
        Ok(Reply::Empty)
    }
}
