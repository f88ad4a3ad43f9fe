//! Changed settings at run time.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use penstock_flux::RequestedResources;
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::context::Context;
use crate::effect::Effect;
use crate::policy;
use crate::queues::Collector;
use crate::rpc::{Reply, Request};
use crate::settings::Settings;
use crate::spec::Spec;
use crate::state::State;

/// Maximum number of jobs renewed in one slice, and examined.
const JOBS_PER_SLICE: usize = 200;
const JOBS_EXAMINED_PER_SLICE: usize = 2_500;
/// Bytes of a jobspec whose reading takes as long as the renewal of a job.
const BYTES_PER_JOB: usize = 1024;

/// The renewal of what is sent to the scheduler about jobs in queues whose constraint has changed, in slices.
///
/// Meanwhile the jobs of these queues are [collected](crate::queues::Queues::begin_collection): no request is sent with a
/// constraint of the former settings, and those with the current one are sent in queue order. Resources that the scheduler
/// allocates for the former constraint are freed, and requested again.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// The queues; none if there is nothing to renew.
    queues: BTreeSet<String>,
    /// The job that was looked at last.
    after: Bound<JobId>,
    /// The last job of the former settings.
    last: JobId,
    /// By jobspec: what is requested now.
    renewed: HashMap<i64, Renewed>,
    /// Maximum number of jobs renewed in one slice.
    jobs_per_slice: usize,
    /// Requests that are answered at the end.
    waiting: Vec<Message>,
}

/// The resources that a jobspec requests now.
#[derive(Debug)]
struct Renewed {
    /// The jobspec: the store gives the key of one that is gone to another.
    of: Weak<Spec>,
    requested: Option<Arc<RequestedResources>>,
}

impl Default for Renewal {
    fn default() -> Self {
        Self {
            queues: BTreeSet::new(),
            after: Bound::Unbounded,
            last: JobId::default(),
            renewed: HashMap::new(),
            jobs_per_slice: JOBS_PER_SLICE,
            waiting: Vec::new(),
        }
    }
}

impl Renewal {
    /// Sets the number of jobs renewed in one slice.
    pub(crate) fn set_slice(&mut self, jobs: usize) {
        self.jobs_per_slice = jobs;
    }

    /// Whether [`run_next_slice`](Self::run_next_slice) has something to do.
    pub(crate) fn is_open(&self) -> bool {
        !self.queues.is_empty()
    }

    /// `job-manager.config-wait`: answered when the requests to the scheduler are those of the last settings.
    pub(crate) fn wait(&mut self, request: Request<'_>) -> Reply {
        if !self.is_open() {
            return Reply::Empty;
        }
        self.waiting.push(request.message.header());
        Reply::Deferred
    }

    /// Forgets the requests of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.waiting
            .retain(|request| request.origin() != Some(origin));
    }

    /// Begins with these queues. A renewal that is under way restarts with its own queues and these.
    fn begin(&mut self, cx: &mut Context, changed: BTreeSet<String>) {
        cx.queues.end_collection(Collector::Renewal, &self.queues);
        self.queues.extend(changed);
        self.after = Bound::Unbounded;
        self.last = cx.jobs.greatest_id();
        cx.queues
            .begin_collection(Collector::Renewal, &self.queues, self.last);
        self.renewed.clear();
        self.run_next_slice(cx);
    }

    /// Renews the next jobs.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context) {
        if !self.is_open() {
            return;
        }
        let mut renewed = 0;
        for _ in 0..JOBS_EXAMINED_PER_SLICE {
            if renewed >= self.jobs_per_slice {
                return;
            }
            let ids = (self.after, Bound::Included(self.last));
            let Some(job) = cx.jobs.next_with_hidden(ids) else {
                cx.queues.end_collection(Collector::Renewal, &self.queues);
                self.queues.clear();
                self.renewed = HashMap::new();
                for request in self.waiting.drain(..) {
                    cx.respond_empty(&request);
                }
                return;
            };
            let (id, spec) = (job.record.id(), Arc::clone(job.record.spec()));
            self.after = Bound::Excluded(id);
            let queue = spec.queue.as_ref();
            if job.record.state() != State::Inactive
                && queue.is_some_and(|queue| self.queues.contains(queue))
            {
                renewed += 1 + self.renew(cx, id, &spec) / BYTES_PER_JOB;
            }
        }
    }

    /// Replaces what is sent to the scheduler about a job, and requests its resources again. Returns the length of the
    /// jobspec that it has read; 0 if it has read none.
    fn renew(&mut self, cx: &mut Context, id: JobId, spec: &Arc<Spec>) -> usize {
        let mut bytes = 0;
        let mut new = |cx: &mut Context| {
            let text = read_jobspec(cx, spec.key);
            bytes = text.len();
            Renewed {
                of: Arc::downgrade(spec),
                requested: requested(cx, &text),
            }
        };
        let renewed = self.renewed.entry(spec.key);
        let renewed = renewed.or_insert_with(|| new(cx));
        if renewed.of.as_ptr() != Arc::as_ptr(spec) {
            *renewed = new(cx);
        }
        let Some(requested) = &renewed.requested else {
            return bytes;
        };
        if !cx.jobs.set_requested(id, requested) {
            return bytes;
        }
        let record = cx.jobs.record(id);
        if record.is_some_and(|record| record.state() < State::Run) {
            cx.add_effect(Effect::Withdraw(id));
            cx.revisit(id);
        }
        bytes
    }
}

/// Replaces the settings. Resources for pending jobs of a queue that is new, or whose constraint has changed, are
/// requested again, in slices; those that the scheduler has allocated for the former constraint are not accepted.
pub(crate) fn apply(cx: &mut Context, renewal: &mut Renewal, settings: Settings) {
    let old = std::mem::replace(&mut cx.settings, settings);
    if !cx.settings.accepts_same_jobspecs(&old) {
        cx.jobspecs.forget_submitted();
    }
    let changed: BTreeSet<String> = cx
        .settings
        .queues
        .iter()
        .filter(|(name, queue)| {
            // Jobs may have been submitted to a queue that was removed since, and comes back.
            old.queues.get(*name).is_none_or(|old| {
                old.requires != queue.requires || old.constraint != queue.constraint
            })
        })
        .map(|(name, _)| name.clone())
        .collect();
    if !changed.is_empty() {
        cx.constraint_changes += 1;
        renewal.begin(cx, changed);
    }
    cx.add_effect(Effect::QueuesChanged);
}

/// A jobspec in the store; an empty text if it cannot be read.
pub(crate) fn read_jobspec(cx: &Context, key: i64) -> String {
    cx.read_store(|store| store.jobspec(key))
        .unwrap_or_default()
}

/// The resources that a jobspec in the store requests of the scheduler now.
pub(crate) fn requested(cx: &mut Context, text: &str) -> Option<Arc<RequestedResources>> {
    let requested =
        Jobspec::from_json(text).and_then(|jobspec| policy::requested(jobspec, &cx.settings));
    // It was valid when it was stored.
    requested
        .ok()
        .map(|requested| cx.jobspecs.share_requested(requested))
}
