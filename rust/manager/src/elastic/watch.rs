//! Peers that wait for the end of requests: callers of `pmix.alloc`, and streams of `pmix.events`.

use penstock_elastic::Account;
use penstock_flux::pmix::{EventResponse, JobRequest};
use penstock_flux::{RequestError, StreamCancelRequest};

use super::naming::report;
use super::peer::Elastic;
use super::tables::Watch;
use crate::authorize::PermittedJob;
use crate::context::Context;
use crate::rpc::{self, Handled, Reply, Request};
use crate::state::State;
use penstock_jobspec::job_id::JobId;

impl Elastic {
    /// `pmix.events`: the requests that have ended, oldest first, then every further one until the job
    /// ends.
    pub(crate) fn events(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        job: &PermittedJob,
    ) -> Handled {
        let JobRequest { id: name, .. } = request.payload()?;
        let job = job.id();
        let is_over = cx.jobs.known(job)?.record.state() == State::Inactive;
        let watch = Watch {
            message: request.message.clone(),
            job,
            id: name.map(penstock_flux::Text::into_string),
        };
        let account = self.ledger.account(watch.job);
        let entries = account.into_iter().flat_map(Account::entries);
        let ended = entries.filter(|entry| !entry.is_open() && watch.is_about(watch.job, entry));
        let ended: Vec<EventResponse> = ended.map(report).collect();
        for event in ended {
            cx.respond_with(request.message, &event);
        }
        if is_over {
            return Err(RequestError::end_of_stream());
        }
        self.listeners.watches.push(watch);
        Ok(Reply::Deferred)
    }

    /// Ends the streams of a job that has ended.
    pub(crate) fn end_watches(&mut self, cx: &mut Context, job: JobId) {
        self.listeners.watches.retain(|watch| {
            if watch.job == job {
                cx.end_stream(&watch.message);
            }
            watch.job != job
        });
    }

    /// `pmix.events-cancel`: ends the stream.
    pub(crate) fn events_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let is_it =
            |watch: &Watch| rpc::is_request_of(&watch.message, request.origin(), cancel.matchtag);
        let watches = &mut self.listeners.watches;
        if let Some(index) = watches.iter().position(is_it) {
            let ended = watches.swap_remove(index);
            cx.end_stream(&ended.message);
        }
        Ok(Reply::Empty)
    }

    /// `pmix.alloc-cancel`: ends the caller's stream; the request stays open.
    pub(crate) fn alloc_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let mut callers = self.listeners.callers.iter();
        let found = callers
            .find(|(_, caller)| rpc::is_request_of(caller, request.origin(), cancel.matchtag));
        let key = found.map(|(key, _)| *key);
        if let Some(caller) = key.and_then(|key| self.listeners.take_caller(key))
            && caller.is_streaming()
        {
            cx.end_stream(&caller);
        }
        Ok(Reply::Empty)
    }
}
