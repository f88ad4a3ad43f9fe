//! The scheduler's state: its phase, its engine, and the outstanding requests on both sides.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use penstock_engine::{Engine, QueueId};
use penstock_flux::{Allocation, Histogram, Matchtags};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_wire::{Body, Message};

use crate::Settings;
use crate::forecast_requests::ForecastRequests;
use crate::retries::CommitRetries;

/// The options of a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The greatest number of outstanding alloc requests; `None` for no limit.
    pub limit: Option<u32>,
    /// Whether to declare, in the payload of `resource.acquire`, that new ranks are understood: a
    /// Penstock instance then sends `grow`. RFC 28 gives that request no payload, so this must be
    /// off for a Flux broker.
    pub grow: bool,
    /// The scheduling configuration.
    pub settings: Settings,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limit: None,
            grow: true,
            settings: Settings::default(),
        }
    }
}

/// The phase of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The service names are being registered.
    Registering,
    /// The inventory is requested (RFC 28).
    Acquiring,
    /// The jobs that hold resources are requested (RFC 27, Hello).
    Greeting,
    /// Ready is sent and not answered yet.
    Readying,
    /// Alloc requests are served.
    Running,
    /// The service names are being unregistered.
    Stopping,
    /// The scheduler has ended on request.
    Stopped,
    /// The scheduler has ended, with the reason.
    Failed(String),
}

/// A job that holds resources, as a response to hello announces it.
#[derive(Debug)]
pub(crate) struct AllocatedJob {
    pub id: JobId,
    /// An idset of the ranks that it has released already.
    pub freed: Option<String>,
    /// The ranks that it has released since.
    pub freed_since: IdSet,
    /// Whether it has released all ranks since.
    pub has_ended: bool,
}

/// The progress of hello.
#[derive(Debug, Default)]
pub(crate) struct Hello {
    pub has_ended: bool,
    pub lookups_outstanding: usize,
}

/// An outstanding request of the scheduler, by which its response is handled.
#[derive(Debug)]
pub(crate) enum OutstandingRequest {
    Register(&'static str),
    Acquire,
    Hello,
    Lookup(AllocatedJob),
    Ready,
    Commit(Arc<[Allocation]>),
    Unregister,
}

/// An alloc request of the job manager without a last response.
#[derive(Debug)]
pub(crate) struct OutstandingAlloc {
    /// The request without its payload, to be answered.
    pub header: Arc<Message>,
    /// The job's owner, if the request has it.
    pub userid: Option<u32>,
}

/// The header of the last alloc request. A job manager's requests differ in their payloads alone: they share it.
#[derive(Debug, Default)]
pub(crate) struct LastHeader(Option<Arc<Message>>);

impl LastHeader {
    /// The header of a request.
    pub fn of(&mut self, request: &Message) -> Arc<Message> {
        let header = request.header();
        match &self.0 {
            Some(last) if **last == header => Arc::clone(last),
            _ => Arc::clone(self.0.insert(Arc::new(header))),
        }
    }
}

/// The annotations that a job has.
#[derive(Debug, Default)]
pub(crate) struct Annotated {
    pub reason: String,
    pub estimate: Option<f64>,
}

/// The annotations of pending jobs, and when they are next computed.
#[derive(Debug, Default)]
pub(crate) struct Annotator {
    pub annotated: HashMap<JobId, Annotated>,
    /// Whether a pass has run since jobs were annotated.
    pub is_outdated: bool,
    /// The earliest time of the next annotation.
    pub earliest: f64,
    /// The time of the next annotation if nothing changes.
    pub refresh: f64,
}

impl Annotator {
    pub fn forget(&mut self, id: JobId) {
        self.annotated.remove(&id);
    }

    /// Whether the job has an annotated start.
    pub fn has_estimate(&self, id: JobId) -> bool {
        let annotated = self.annotated.get(&id);
        annotated.is_some_and(|annotated| annotated.estimate.is_some())
    }
}

/// The scheduler: its phase, its engine, and the outstanding requests on both sides.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) options: Options,
    pub(crate) phase: Phase,
    pub(crate) engine: Option<Engine>,
    /// The inventory as it was acquired, with the ranks that were added since. Some may have left the engine's.
    pub(crate) inventory: Arc<ResourceSet>,
    /// Requests to others, by matchtag.
    pub(crate) outstanding: HashMap<u32, OutstandingRequest>,
    pub(crate) matchtags: Matchtags,
    pub(crate) hello: Hello,
    /// Alloc requests, by job.
    ///
    /// A tree: a table keeps the size that it had behind the longest queue.
    pub(crate) allocs: BTreeMap<JobId, OutstandingAlloc>,
    pub(crate) last_header: LastHeader,
    /// Jobs whose alloc request was cancelled while their R is committed.
    pub(crate) cancelled_in_commit: HashSet<JobId>,
    pub(crate) retries: CommitRetries,
    /// The engine's queues, by the names that jobs have used.
    pub(crate) queues: HashMap<String, QueueId>,
    /// Whether anything has changed since the last pass.
    pub(crate) needs_pass: bool,
    pub(crate) annotator: Annotator,
    /// The comparison of estimates with starts.
    pub(crate) accuracy: penstock_engine::Accuracy,
    /// Queries of users, which the next [`schedule`](Self::schedule) answers.
    pub(crate) queries: Vec<Message>,
    /// The requests for estimates, which are answered in parts.
    pub(crate) forecast_requests: ForecastRequests,
    pub(crate) out: Vec<Message>,
    pub(crate) log: Vec<String>,
    /// The durations of the passes.
    pub(crate) passes: Histogram,
}

impl Scheduler {
    /// A scheduler that has not sent anything yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            phase: Phase::Registering,
            engine: None,
            inventory: Arc::default(),
            outstanding: HashMap::new(),
            matchtags: Matchtags::default(),
            hello: Hello::default(),
            allocs: BTreeMap::new(),
            last_header: LastHeader::default(),
            cancelled_in_commit: HashSet::new(),
            retries: CommitRetries::default(),
            queues: HashMap::new(),
            needs_pass: false,
            annotator: Annotator::default(),
            accuracy: penstock_engine::Accuracy::new(),
            queries: Vec::new(),
            forecast_requests: ForecastRequests::default(),
            out: Vec::new(),
            log: Vec::new(),
            passes: Histogram::of_work(),
        }
    }

    /// Whether the next [`schedule`](Self::schedule) runs a pass.
    pub fn is_pass_due(&self) -> bool {
        self.needs_pass && self.phase == Phase::Running && !self.is_reordering()
    }

    /// Whether pending jobs are being put in another order of their queue.
    pub fn is_reordering(&self) -> bool {
        self.engine.as_ref().is_some_and(Engine::is_reordering)
    }

    /// Counts the duration of a pass, in seconds, for the statistics: the caller has the clock.
    pub fn record_pass(&mut self, seconds: f64) {
        self.passes.observe(seconds);
    }

    /// The phase of the handshake.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The engine, once resources are acquired.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// Takes the messages to be sent, in order.
    pub fn take_out(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.out)
    }

    /// The size of the payloads of these messages, in bytes. A payload that is written when it is sent does not count.
    pub fn out_bytes(&self) -> usize {
        let payloads = self
            .out
            .iter()
            .filter_map(|message| message.payload.as_ref());
        payloads.map(Body::written_len).sum()
    }

    /// Takes the log lines since the last call.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// Sends a request under a new matchtag.
    pub(crate) fn send(&mut self, request: Message, outstanding: OutstandingRequest) {
        let tag = self.matchtags.allot();
        self.outstanding.insert(tag, outstanding);
        self.out.push(request.with_matchtag(tag));
    }

    pub(crate) fn fail(&mut self, reason: String) {
        self.log.push(reason.clone());
        self.phase = Phase::Failed(reason);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use penstock_wire::Message;

    use super::{LastHeader, OutstandingAlloc};

    #[test]
    fn requests_of_one_sender_share_a_header() {
        let mut last = LastHeader::default();
        let request = |peer: &[u8], payload: &str| {
            let mut request = Message::request("sched.alloc", payload);
            request.push_route(peer);
            request
        };
        let (one, next) = (last.of(&request(b"a", "{}")), last.of(&request(b"a", "[]")));
        assert!(Arc::ptr_eq(&one, &next));
        let other = last.of(&request(b"b", "{}"));
        assert_eq!(other.origin(), Some(b"b".as_slice()));
        assert_eq!(last.of(&request(b"a", "{}")), one);
        assert!(size_of::<OutstandingAlloc>() <= 16);
    }
}
