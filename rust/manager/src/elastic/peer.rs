//! `Elastic`: the state of all PMIx requests, and its changes by events.

use penstock_elastic::{Entry, Ledger};
use penstock_flux::eventlog;
use penstock_jobspec::job_id::JobId;

use super::tables::{Listeners, Parts, PostponedReturns, Probes, TimeRequests, Timers};
use super::usage::Usage;
use crate::context::Context;
use crate::effect::RequestKey;
use crate::elastic_state::ElasticRequest;
use crate::event::{Event, EventContext};

/// The PMIx requests of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Elastic {
    /// Requests and loans, as recorded in the eventlogs.
    pub(super) ledger: Ledger,
    /// Request jobs and what they use, for the site's limits.
    pub(super) usage: Usage,
    pub(super) parts: Parts,
    pub(super) listeners: Listeners,
    pub(super) timers: Timers,
    pub(super) time_requests: TimeRequests,
    pub(super) probes: Probes,
    pub(super) postponed: PostponedReturns,
}

impl Elastic {
    /// Logs an event of an elastic allocation and applies it to the ledger.
    pub(super) fn log(&mut self, cx: &mut Context, id: JobId, event: Event) {
        self.apply(id, &event);
        cx.log(id, event);
    }

    /// Marks a job for recounting after any event of it.
    pub(crate) fn observe(&mut self, id: JobId) {
        self.usage.touch(id);
    }

    /// Applies an event from before a restart.
    pub(crate) fn replay(&mut self, id: JobId, event: &Event) {
        self.observe(id);
        if event.name.starts_with(eventlog::OWN_PREFIX) {
            self.apply(id, event);
        }
    }

    /// The jobs with requests or loans.
    #[cfg(debug_assertions)]
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.ledger.jobs()
    }

    /// Whether the facts of a job agree with `replayed`, which has them from the job's events alone: the
    /// requests and loans, and the position among the parts of a request.
    #[cfg(debug_assertions)]
    pub(crate) fn agrees_on(&self, id: JobId, replayed: &Self) -> bool {
        self.ledger.account(id) == replayed.ledger.account(id)
            && self.parts.agrees_with(&replayed.parts)
    }

    /// Whether a job is counted as its record says.
    #[cfg(debug_assertions)]
    pub(crate) fn counts(&self, record: &crate::record::Record) -> bool {
        self.usage.counts(record)
    }

    fn apply(&mut self, id: JobId, event: &Event) {
        if event.name == eventlog::REQUEST {
            self.usage.insert(id);
            let request: Option<ElasticRequest> = event.read();
            if let Some(request) = request.filter(|request| !request.before.is_empty()) {
                self.parts.insert(request.first(id), id);
            }
        }
        let context = event.context.as_ref().map(EventContext::text);
        self.ledger.apply(id, &event.name, context);
    }

    /// When [`advance`](Self::advance) is due next, seconds since the epoch.
    pub(crate) fn deadline(&self) -> Option<f64> {
        self.timers.deadline()
    }

    /// Forgets a purged job.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.ledger.forget(id);
        self.parts.forget(id);
        self.postponed.forget_job(id);
        self.forget_request_job(id);
    }

    /// Queues a probe about a request job, for which resources were requested.
    pub(crate) fn queue_probe(&mut self, id: JobId) {
        self.probes.queue(id);
    }

    /// Forgets the usage of a request job that has ended, and the time of its decision.
    pub(crate) fn forget_request_job(&mut self, id: JobId) {
        self.usage.remove(id);
        self.probes.end_decision(id);
    }

    /// Drops the calls and streams of a peer that has disconnected. Its requests stay open.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.listeners.disconnect(origin);
    }

    /// The entry of a request in the ledger.
    pub(super) fn entry(&self, key: RequestKey) -> Option<&Entry> {
        self.ledger.account(key.job)?.entry(key.seq)
    }
}
