//! Peers that wait for the end of requests: callers of `pmix.alloc`, and streams of `pmix.events`.

use std::collections::BTreeMap;

use penstock_elastic::{Account, Entry};
use penstock_flux::pmix::{EventResponse, JobRequest};
use penstock_flux::{RequestError, StreamCancelRequest, errno};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use super::naming::{is_named, report};
use super::table::RequestTable;
use crate::authorize::PermittedJob;
use crate::context::Context;
use crate::effect::RequestKey;
use crate::rpc::{self, Handled, Reply, Request};
use crate::state::State;

/// The greatest number of streams of one job: each gets a response for each request of the job. Its PMIx server needs one.
const MAX_STREAMS_PER_JOB: usize = 64;

/// A `pmix.events` stream: requests that have ended, of one job.
#[derive(Debug)]
struct Watch {
    message: Message,
    job: JobId,
    /// The name of the one request that it reports; `None` for all.
    id: Option<String>,
}

impl Watch {
    fn is_about(&self, job: JobId, entry: &Entry) -> bool {
        self.job == job && is_named(entry, self.id.as_deref())
    }
}

/// The outstanding `pmix.alloc` and `pmix.events`.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// The `pmix.alloc` of each open request, unless its caller has gone.
    callers: BTreeMap<RequestKey, Message>,
    watches: Vec<Watch>,
}

impl Listeners {
    /// Adds the caller of a request, which waits for its end.
    pub(super) fn await_end(&mut self, key: RequestKey, caller: Message) {
        self.callers.insert(key, caller);
    }

    /// The caller of a request, which waits for its end.
    pub(super) fn caller(&self, key: RequestKey) -> Option<&Message> {
        self.callers.get(&key)
    }

    /// Removes the caller of a request.
    pub(super) fn take_caller(&mut self, key: RequestKey) -> Option<Message> {
        self.callers.remove(&key)
    }

    /// Reports a request that has ended to the streams that are about it.
    pub(super) fn notify(&self, cx: &mut Context, job: JobId, entry: &Entry) {
        let event = report(entry);
        for watch in &self.watches {
            if watch.is_about(job, entry) {
                cx.respond_with(&watch.message, &event);
            }
        }
    }

    /// Drops the calls and streams of a peer that has disconnected.
    pub(super) fn disconnect(&mut self, origin: &[u8]) {
        let is_theirs = |message: &Message| message.origin() == Some(origin);
        self.watches.retain(|watch| !is_theirs(&watch.message));
        self.callers.retain(|_, caller| !is_theirs(caller));
    }

    /// `pmix.events`: the requests that have ended, oldest first, then every further one until the job
    /// ends.
    pub(super) fn events(
        &mut self,
        table: &RequestTable,
        cx: &mut Context,
        request: Request<'_>,
        job: &PermittedJob,
    ) -> Handled {
        let JobRequest { id: name, .. } = request.payload()?;
        let job = job.id();
        let streams = self.watches.iter().filter(|watch| watch.job == job);
        if streams.count() >= MAX_STREAMS_PER_JOB {
            let text = format!(
                "job {job} has {MAX_STREAMS_PER_JOB} streams of ended requests: expected less"
            );
            return Err(RequestError::new(errno::EAGAIN, text));
        }
        let is_over = cx.jobs.known(job)?.record.state() == State::Inactive;
        let watch = Watch {
            message: request.message.clone(),
            job,
            id: name.map(penstock_flux::Text::into_string),
        };
        let account = table.account(watch.job);
        let entries = account.into_iter().flat_map(Account::entries);
        let ended = entries.filter(|entry| !entry.is_open() && watch.is_about(watch.job, entry));
        let ended: Vec<EventResponse> = ended.map(report).collect();
        for event in ended {
            cx.respond_with(request.message, &event);
        }
        if is_over {
            return Err(RequestError::end_of_stream());
        }
        self.watches.push(watch);
        Ok(Reply::Deferred)
    }

    /// Ends the streams of a job that has ended.
    pub(super) fn end_watches(&mut self, cx: &mut Context, job: JobId) {
        self.watches.retain(|watch| {
            if watch.job == job {
                cx.end_stream(&watch.message);
            }
            watch.job != job
        });
    }

    /// `pmix.events-cancel`: ends the stream.
    pub(super) fn events_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let is_it =
            |watch: &Watch| rpc::is_request_of(&watch.message, request.origin(), cancel.matchtag);
        let watches = &mut self.watches;
        if let Some(index) = watches.iter().position(is_it) {
            let ended = watches.swap_remove(index);
            cx.end_stream(&ended.message);
        }
        Ok(Reply::Empty)
    }

    /// `pmix.alloc-cancel`: ends the caller's stream; the request stays open.
    pub(super) fn alloc_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let mut callers = self.callers.iter();
        let found = callers
            .find(|(_, caller)| rpc::is_request_of(caller, request.origin(), cancel.matchtag));
        let key = found.map(|(key, _)| *key);
        if let Some(caller) = key.and_then(|key| self.take_caller(key))
            && caller.is_streaming()
        {
            cx.end_stream(&caller);
        }
        Ok(Reply::Empty)
    }
}
