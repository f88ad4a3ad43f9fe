//! The state of the conversation with the scheduler.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

use penstock_flux::job_manager::SchedStats;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::context::Context;
use crate::effect::{ExpirationChange, ProbeId};
use crate::handshake::AllocMode;
use crate::jobs::SchedulerWriter;
use crate::queues::Queues;
use crate::record::Record;

/// Queue order: priority descending, then id ascending.
pub(super) type QueuePosition = (Reverse<u32>, JobId);

/// Jobs with requests to the scheduler. Their order is known under a limit alone: without one a million may be requested.
#[derive(Debug)]
pub(super) enum RequestedJobs {
    /// The number of jobs.
    Unlimited(usize),
    Limited(BTreeSet<QueuePosition>),
}

impl Default for RequestedJobs {
    fn default() -> Self {
        Self::Unlimited(0)
    }
}

impl RequestedJobs {
    /// No jobs, before the first request in this mode.
    pub(super) fn new(mode: AllocMode) -> Self {
        match mode {
            AllocMode::Unlimited => Self::Unlimited(0),
            AllocMode::Limited(_) => Self::Limited(BTreeSet::new()),
        }
    }

    /// The number of jobs.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Unlimited(count) => *count,
            Self::Limited(positions) => positions.len(),
        }
    }

    /// The last job in queue order; `None` without a limit.
    pub(super) fn last(&self) -> Option<QueuePosition> {
        match self {
            Self::Unlimited(_) => None,
            Self::Limited(positions) => positions.last().copied(),
        }
    }

    /// Adds a job.
    pub(super) fn insert(&mut self, position: QueuePosition) {
        match self {
            Self::Unlimited(count) => *count += 1,
            Self::Limited(positions) => {
                positions.insert(position);
            }
        }
    }

    /// Removes a job.
    pub(super) fn remove(&mut self, position: QueuePosition) {
        match self {
            Self::Unlimited(count) => {
                debug_assert!(*count > 0, "no request is outstanding");
                *count = count.saturating_sub(1);
            }
            Self::Limited(positions) => {
                positions.remove(&position);
            }
        }
    }
}

/// Jobs to request resources for.
#[derive(Debug, Default)]
pub(super) struct QueuedJobs {
    /// Jobs that were queued one by one.
    single: BTreeSet<QueuePosition>,
    /// Jobs of queues whose jobs were [collected](crate::queues::Queues::begin_collection) then, or are now.
    collected: BTreeSet<QueuePosition>,
}

impl QueuedJobs {
    /// The number of jobs.
    pub(super) fn len(&self) -> usize {
        self.single.len() + self.collected.len()
    }

    /// Adds a job at its position.
    pub(super) fn insert(&mut self, queues: &Queues, job: &Record, position: QueuePosition) {
        if queues.is_collecting(job) {
            self.collected.insert(position);
        } else {
            self.single.insert(position);
        }
    }

    /// Removes a job.
    pub(super) fn remove(&mut self, position: QueuePosition) {
        let _ = self.single.remove(&position) || self.collected.remove(&position);
    }

    /// Moves a job to its new position.
    pub(super) fn reposition(&mut self, old: QueuePosition, new: QueuePosition) {
        if self.collected.remove(&old) {
            self.collected.insert(new);
        } else {
            self.single.remove(&old);
            self.single.insert(new);
        }
    }

    /// The first job in queue order whose request can be sent. The requests of collected jobs are sent in this order, once
    /// all jobs are collected.
    pub(super) fn first(&self, queues: &Queues) -> Option<QueuePosition> {
        let single = self.single.first();
        let collected = self.collected.first().filter(|_| !queues.has_collection());
        single.into_iter().chain(collected).min().copied()
    }

    /// Takes the first job in queue order whose request can be sent.
    pub(super) fn pop_first(&mut self, queues: &Queues) -> Option<QueuePosition> {
        let first = self.first(queues)?;
        self.remove(first);
        Some(first)
    }
}

/// Maximum number of requests of a lost scheduler that are ended in one slice, and of responses to hello in one.
const REQUESTS_PER_SLICE: usize = 200;

/// The outstanding requests of a scheduler that is lost. A request that is outstanding while they are open is one of them.
#[derive(Debug, Default)]
pub(super) struct LostRequests {
    /// The job that was looked at last; `None` if all requests have ended.
    pub(super) after: Option<Bound<JobId>>,
    /// The number of requests that are left.
    pub(super) left: usize,
}

/// A hello whose responses are not complete.
#[derive(Debug)]
pub(super) struct OpenHello {
    pub(super) request: Message,
    /// The job that was looked at last.
    pub(super) after: Bound<JobId>,
}

/// The conversation with the scheduler. The state of its handshake is in the
/// [`Context`](crate::context::Context), where others read it.
#[derive(Debug)]
pub(crate) struct SchedulerPeer {
    pub(super) writer: SchedulerWriter,
    pub(super) session: Session,
    /// Jobs to request resources for.
    pub(super) queued: QueuedJobs,
    /// Bytes of the alloc requests of this batch, which the next [`Manager::take_messages`](crate::Manager::take_messages)
    /// takes.
    pub(super) bytes_this_batch: usize,
    /// Whether the instance is about to end: nothing is requested, and no allocation accepted.
    pub(super) is_stopped: bool,
    /// Whether nothing is requested for now.
    pub(super) is_paused: bool,
    /// The requests of the scheduler before.
    pub(super) lost: LostRequests,
    /// Maximum number of lost requests ended in one slice, and of responses to hello in one.
    pub(super) per_slice: usize,
}

/// The state of the conversation that ends when the scheduler goes.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The scheduler's route, by which a disconnect is recognized.
    pub(super) origin: Option<Vec<u8>>,
    /// Whether it is in the same process: it then gets the cancellations of several requests in one message.
    pub(super) is_in_process: bool,
    /// Its hello, until all responses are sent.
    pub(super) hello: Option<OpenHello>,
    /// Its `sched-ready`, if that is answered after the responses to hello, and after the end of the requests of the
    /// scheduler before.
    pub(super) ready: Option<(Message, AllocMode)>,
    /// Jobs whose outstanding requests are cancelled by the next [`SchedulerPeer::send_cancels`].
    pub(super) cancels: Vec<JobId>,
    /// Free ranks of jobs whose allocations are freed only as a whole.
    pub(super) withheld: BTreeMap<JobId, IdSet>,
    /// Requests that correct the responses to hello, for a scheduler that is not ready yet.
    pub(super) belated: Vec<Message>,
    /// Jobs with outstanding requests whose priority has changed since it was last sent to the scheduler.
    pub(super) reprioritized: BTreeSet<JobId>,
    /// The jobs in `reprioritized` whose requests are to be cancelled and sent again.
    pub(super) displaced: Vec<JobId>,
    /// Jobs whose requests are outstanding and not cancelled.
    pub(super) requested: RequestedJobs,
    /// Number of cancelled requests; they count against the limit until the scheduler answers.
    pub(super) cancelling: usize,
    /// Outstanding `sched.expiration` requests by matchtag.
    pub(super) expirations: BTreeMap<u32, ExpirationChange>,
    /// Outstanding probes by matchtag.
    pub(super) probes: BTreeMap<u32, ProbeId>,
}

impl SchedulerPeer {
    /// The conversation before a scheduler says hello.
    pub(crate) fn new(writer: SchedulerWriter) -> Self {
        Self {
            writer,
            session: Session::default(),
            queued: QueuedJobs::default(),
            bytes_this_batch: 0,
            is_stopped: false,
            is_paused: false,
            lost: LostRequests::default(),
            per_slice: REQUESTS_PER_SLICE,
        }
    }

    /// Requests no more resources: pending jobs stay pending for the next start of the instance.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Requests no resources for now.
    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Requests resources again.
    pub(crate) fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Sets the number of lost requests ended in one slice, and of responses to hello in one.
    pub(crate) fn set_slice(&mut self, requests: usize) {
        self.per_slice = requests;
    }

    /// Whether requests of a lost scheduler are left.
    pub(super) fn has_lost_requests(&self) -> bool {
        self.lost.after.is_some()
    }

    /// Whether [`run_next_slice`](Self::run_next_slice) has something to do.
    pub(crate) fn has_slices(&self) -> bool {
        self.has_lost_requests() || self.session.hello.is_some()
    }

    /// Whether a job is still to be announced to the scheduler, by a response to its hello.
    pub(super) fn is_unannounced(&self, id: JobId) -> bool {
        let hello = self.session.hello.as_ref();
        hello.is_some_and(|hello| (hello.after, Bound::Unbounded).contains(&id))
    }

    /// Begins a new batch of messages, with a fresh budget of alloc requests.
    pub(crate) fn begin_batch(&mut self) {
        self.bytes_this_batch = 0;
    }

    /// The route of the scheduler, if one is ready.
    pub(crate) fn reader(&self, cx: &Context) -> Option<&[u8]> {
        let origin = self.session.origin.as_deref();
        origin.filter(|_| cx.handshake().is_ready())
    }

    /// The number of outstanding alloc requests.
    pub(super) fn outstanding(&self) -> usize {
        self.session.requested.len() + self.session.cancelling
    }

    /// The statistics of `stats-get`.
    pub(crate) fn stats(&self, cx: &Context, unstepped: u64) -> SchedStats<'static> {
        SchedStats {
            state: cx.handshake().name().into(),
            queued: (self.queued.len() + self.lost.left) as u64 + unstepped,
            requested: self.outstanding() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SchedulerPeer;
    use crate::context::Context;
    use crate::dialogue::AllocState;
    use crate::effect::Effect;
    use crate::effect::FreeRanks;
    use crate::fixture::{
        R, add_pending_job, allocate, context, described, effects, message, ranks, request,
        response, writers,
    };
    use crate::handshake::Handshake;
    use crate::queries::key_watch::KeyWatches;
    use crate::queries::kvs;
    use crate::rpc::Request;
    use crate::settings::Settings;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use penstock_flux::TypedPayload;
    use penstock_jobspec::job_id::JobId;
    use serde_json::json;

    fn greet(scheduler: &mut SchedulerPeer, cx: &mut Context) {
        let hello = message("job-manager.sched-hello", "sched", r#"{"partial-ok":true}"#);
        scheduler.hello(cx, request(&hello)).unwrap();
        let ready = message(
            "job-manager.sched-ready",
            "sched",
            r#"{"mode":"unlimited"}"#,
        );
        scheduler.ready(cx, request(&ready)).unwrap();
    }

    fn commit(scheduler: &SchedulerPeer, cx: &mut Context, id: JobId) {
        let key = format!("job.{}.R", id.dothex());
        let data = BASE64.encode(R);
        let payload =
            format!(r#"{{"ops":[{{"key":"{key}","dirent":{{"type":"val","data":"{data}"}}}}]}}"#);
        let message = message("kvs.commit", "sched", &payload);
        kvs::commit(
            cx,
            scheduler,
            &mut KeyWatches::default(),
            Request::new(&message),
        )
        .unwrap();
    }

    fn respond(scheduler: &mut SchedulerPeer, cx: &mut Context, payload: &str) -> Vec<String> {
        scheduler.handle_alloc_response(cx, &response("sched.alloc", 0, payload));
        described(cx)
    }

    #[test]
    fn a_job_gets_resources_that_were_committed() {
        let mut cx = context(Settings::default());
        let mut scheduler = SchedulerPeer::new(writers().scheduler);
        let id = add_pending_job(&mut cx);
        scheduler.enqueue(&mut cx, id);
        scheduler.send_allocs(&mut cx);
        assert!(effects(&mut cx).is_empty(), "there is no scheduler");
        greet(&mut scheduler, &mut cx);
        effects(&mut cx);
        scheduler.send_allocs(&mut cx);
        let sent = effects(&mut cx);
        let [Effect::Send(alloc)] = sent.as_slice() else {
            panic!("expected a request: {sent:?}");
        };
        assert_eq!(alloc.topic(), "sched.alloc");
        assert!(matches!(alloc.typed(), Some(TypedPayload::Alloc(_))));
        let success = json!({"id": id, "type": 0}).to_string();
        let early = respond(&mut scheduler, &mut cx, &success);
        assert!(
            early[0].ends_with("without committing R: ignored"),
            "{early:?}"
        );
        commit(&scheduler, &mut cx, id);
        assert_eq!(respond(&mut scheduler, &mut cx, &success), ["log alloc"]);
        let job = cx.jobs.get(id).unwrap();
        assert!(job.record.has_resources() && job.dialogue.scheduler.committed().is_none());
    }

    #[test]
    fn resources_for_a_job_that_has_ended_are_surplus() {
        let mut cx = context(Settings::default());
        let mut scheduler = SchedulerPeer::new(writers().scheduler);
        let id = add_pending_job(&mut cx);
        greet(&mut scheduler, &mut cx);
        scheduler.enqueue(&mut cx, id);
        scheduler.send_allocs(&mut cx);
        cx.fail_job(id, "cancel", "");
        effects(&mut cx);
        scheduler.withdraw(&mut cx, id);
        scheduler.send_cancels(&mut cx);
        assert_eq!(described(&mut cx), ["send sched.cancel"]);
        commit(&scheduler, &mut cx, id);
        let success = json!({"id": id, "type": 0}).to_string();
        assert_eq!(respond(&mut scheduler, &mut cx, &success), ["revisit"]);
        let job = cx.jobs.get(id).unwrap();
        assert_eq!(job.dialogue.scheduler.alloc(), AllocState::Surplus);
        assert!(job.r().is_some() && !job.record.has_resources());
    }

    #[test]
    fn a_scheduler_that_takes_whole_allocations_gets_one_free() {
        let mut cx = context(Settings::default());
        let mut scheduler = SchedulerPeer::new(writers().scheduler);
        let id = add_pending_job(&mut cx);
        allocate(&mut cx, id);
        let hello = message("job-manager.sched-hello", "sched", "{}");
        scheduler.hello(&mut cx, request(&hello)).unwrap();
        let ready = message(
            "job-manager.sched-ready",
            "sched",
            r#"{"mode":"unlimited"}"#,
        );
        scheduler.ready(&mut cx, request(&ready)).unwrap();
        effects(&mut cx);
        for (text, is_final) in [("1", false), ("0", true)] {
            assert!(effects(&mut cx).is_empty());
            let ranks = ranks(text);
            let free = FreeRanks {
                id,
                ranks,
                is_final,
            };
            scheduler.free(&mut cx, free);
        }
        assert_eq!(described(&mut cx), ["send sched.free"]);
    }

    #[test]
    fn a_lost_scheduler_leaves_no_request_behind() {
        let mut cx = context(Settings::default());
        let mut scheduler = SchedulerPeer::new(writers().scheduler);
        let id = add_pending_job(&mut cx);
        greet(&mut scheduler, &mut cx);
        scheduler.enqueue(&mut cx, id);
        scheduler.send_allocs(&mut cx);
        commit(&scheduler, &mut cx, id);
        effects(&mut cx);
        scheduler.disconnect(&mut cx, b"sched");
        assert_eq!(cx.handshake(), Handshake::Suspended);
        let job = cx.jobs.get(id).unwrap();
        assert_eq!(job.dialogue.scheduler.alloc(), AllocState::Idle);
        assert!(job.r().is_none(), "the commit is void");
    }
}
