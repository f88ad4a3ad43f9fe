//! Requests to the scheduler: alloc, cancel, prioritize, free, probes; the commit of R for an outstanding one, and its
//! undoing. No other module stores or clears R.

use std::cmp::Reverse;
use std::sync::Arc;

use penstock_flux::alloc::{CancelRequest, PrioritizeRequest};
use penstock_flux::eventlog;
use penstock_flux::sched::JobsRequest;
use penstock_flux::{Allocation, FreedResources, PendingJob, RWithText, TypedPayload, topic};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use super::peer::SchedulerPeer;
use crate::context::Context;
use crate::dialogue::{AllocInput, AllocState};
use crate::effect::{Effect, FreeRanks, ProbeId};
use crate::event::Event;
use crate::handshake::{AllocMode, FreeMode, Handshake};
use crate::rpc;

/// Bytes of alloc requests in one batch of messages: some hundred jobs of the usual size, a few milliseconds' work of the
/// scheduler.
const MAX_ALLOC_BYTES_PER_BATCH: usize = 128 * 1024;

/// Approximate size of an alloc request without its jobspec, in bytes.
const ALLOC_OVERHEAD_BYTES: usize = 80;

/// The size of a usual jobspec, in bytes: that of one whose text is not sent.
const USUAL_JOBSPEC_BYTES: usize = 400;

/// The state of a request for resources that was withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// The scheduler has still to respond to it.
    Outstanding,
    /// No request is outstanding.
    Complete,
}

impl SchedulerPeer {
    /// Queues a job in SCHED for resources, unless it is held or its queue is stopped.
    pub(crate) fn schedule(&mut self, cx: &mut Context, id: JobId) {
        let Some((record, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) else {
            return;
        };
        let reason = cx.queues.stop_reason(record.spec().queue.as_deref());
        dialogue.set_stop_reason(reason.map(Arc::clone));
        if reason.is_none() && record.priority() > 0 && dialogue.alloc() == AllocState::Idle {
            self.enqueue(cx, id);
        }
    }

    /// Queues a job in SCHED for resources.
    pub(super) fn enqueue(&mut self, cx: &mut Context, id: JobId) {
        if let Some((record, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id)
            && dialogue.advance(AllocInput::Enqueue)
        {
            let position = (Reverse(record.priority()), id);
            self.queued.insert(&cx.queues, record, position);
        }
    }

    /// Withdraws a job's request for resources, if it has one. An outstanding request stays outstanding
    /// until CANCEL or SUCCESS. `None` if there is no such job.
    pub(crate) fn withdraw(&mut self, cx: &mut Context, id: JobId) -> Option<Withdrawal> {
        self.end_lost_request(cx, id);
        let (record, dialogue) = cx.jobs.scheduler_mut(&self.writer, id)?;
        let position = (Reverse(record.priority()), id);
        match dialogue.alloc() {
            AllocState::Queued => {
                dialogue.advance(AllocInput::Dequeue);
                self.queued.remove(position);
            }
            AllocState::Requested(_) => {
                dialogue.advance(AllocInput::Cancel);
                self.session.requested.remove(position);
                self.session.cancelling += 1;
                self.session.cancels.push(id);
            }
            AllocState::Idle
            | AllocState::Cancelling(_)
            | AllocState::Outdated
            | AllocState::Surplus => {}
        }
        Some(if dialogue.alloc().is_outstanding() {
            Withdrawal::Outstanding
        } else {
            Withdrawal::Complete
        })
    }

    /// Ends the request of a job if it was sent to a lost scheduler: the job is requested again. Returns whether it was.
    pub(super) fn end_lost_request(&mut self, cx: &mut Context, id: JobId) -> bool {
        if !self.has_lost_requests() {
            return false;
        }
        let Some((_, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) else {
            return false;
        };
        let request = dialogue.alloc();
        if !request.is_outstanding() || !dialogue.advance(AllocInput::SchedulerLost) {
            return false;
        }
        self.lost.left = self.lost.left.saturating_sub(1);
        undo_commit(cx, id, request);
        cx.revisit(id);
        true
    }

    /// Sends alloc requests in queue order, up to the limits of mode and batch. Stops when the
    /// scheduler's send buffer is full. Jobs of queues that were stopped, or are being collected, since they were queued
    /// have to wait.
    pub(crate) fn send_allocs(&mut self, cx: &mut Context) {
        let Handshake::Ready(_, mode) = cx.handshake() else {
            return;
        };
        if self.is_stopped || self.is_paused {
            return;
        }
        loop {
            if !self.has_room(mode) {
                return self.displace_last(cx);
            }
            if self.bytes_this_batch >= MAX_ALLOC_BYTES_PER_BATCH || self.is_backlogged(cx) {
                return;
            }
            let Some(position) = self.queued.pop_first(&cx.queues) else {
                return;
            };
            let id = position.1;
            self.bytes_this_batch += ALLOC_OVERHEAD_BYTES;
            let Some((record, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) else {
                continue;
            };
            let queue = record.spec().queue.as_deref();
            if let Some(reason) = cx.queues.stop_reason(queue) {
                dialogue.set_stop_reason(Some(Arc::clone(reason)));
                dialogue.advance(AllocInput::Dequeue);
                continue;
            }
            if cx.queues.is_collecting(record) {
                self.queued.insert(&cx.queues, record, position);
                continue;
            }
            let is_elastic = record.elastic_request().is_some();
            let key = record.spec().key;
            let mut job = PendingJob {
                id,
                priority: record.priority(),
                userid: record.userid(),
                t_submit: record.t_submit(),
                requested: Arc::clone(dialogue.requested()),
                jobspec: None,
            };
            let sent = if self.session.is_in_process {
                Ok(None)
            } else {
                cx.sent_jobspec(key).map(Some)
            };
            let Some((_, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) else {
                continue;
            };
            match sent {
                Ok(None) => self.bytes_this_batch += USUAL_JOBSPEC_BYTES,
                Ok(Some((sent, read))) => {
                    self.bytes_this_batch += read.max(sent.text.len());
                    // The constraint of a queue that was removed since is not sent.
                    dialogue.set_requested(&sent.requested);
                    job.requested = sent.requested;
                    job.jobspec = Some(sent.text);
                }
                Err(error) => {
                    dialogue.advance(AllocInput::Dequeue);
                    cx.fail_job(id, "alloc", &error.text);
                    continue;
                }
            }
            dialogue.advance(AllocInput::Request);
            self.session.requested.insert(position);
            if is_elastic {
                cx.add_effect(Effect::ElasticRequested(id));
            }
            let job = TypedPayload::Alloc(job);
            cx.send(rpc::typed_request(topic::sched::ALLOC, job));
        }
    }

    fn is_backlogged(&self, cx: &Context) -> bool {
        let scheduler = self.reader(cx);
        scheduler.is_some_and(|scheduler| cx.backlogged.contains(scheduler))
    }

    /// Whether alloc requests are left for the next batch.
    pub(crate) fn has_more(&self, cx: &Context) -> bool {
        let Handshake::Ready(_, mode) = cx.handshake() else {
            return false;
        };
        self.has_room(mode)
            && !self.is_stopped
            && !self.is_paused
            && self.queued.first(&cx.queues).is_some()
            && !self.is_backlogged(cx)
    }

    /// Whether one more request may be outstanding.
    fn has_room(&self, mode: AllocMode) -> bool {
        match mode {
            AllocMode::Unlimited => true,
            AllocMode::Limited(limit) => self.outstanding() < limit,
        }
    }

    /// In limited mode, cancels the last request if a queued job comes before it. The cancelled job
    /// is requested again later.
    fn displace_last(&mut self, cx: &mut Context) {
        let first = self.queued.first(&cx.queues);
        let (Some(first), Some(last)) = (first, self.session.requested.last()) else {
            return;
        };
        if first >= last || self.session.cancelling > 0 {
            return;
        }
        let id = last.1;
        if let Some((_, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id)
            && dialogue.advance(AllocInput::Cancel)
        {
            self.session.requested.remove(last);
            self.session.cancelling += 1;
            self.session.cancels.push(id);
        }
    }

    /// Moves a job from the position of its old priority to that of its new one.
    pub(crate) fn reprioritize(&mut self, cx: &mut Context, id: JobId, old: u32, new: u32) {
        self.end_lost_request(cx, id);
        let is_unlimited = matches!(cx.handshake(), Handshake::Ready(_, AllocMode::Unlimited));
        let Some((_, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) else {
            return;
        };
        if old == new {
            return;
        }
        match dialogue.alloc() {
            AllocState::Queued => {
                let position = (Reverse(old), id);
                if new > 0 {
                    self.queued.reposition(position, (Reverse(new), id));
                } else {
                    self.queued.remove(position);
                    dialogue.advance(AllocInput::Dequeue);
                }
            }
            AllocState::Requested(_) => {
                self.session.requested.remove((Reverse(old), id));
                if new > 0 {
                    self.session.reprioritized.insert(id);
                    if is_unlimited {
                        self.session.requested.insert((Reverse(new), id));
                        return;
                    }
                }
                dialogue.advance(AllocInput::Cancel);
                self.session.cancelling += 1;
                if new > 0 {
                    // In limited mode the job is requested again at its new position in the queue.
                    self.session.displaced.push(id);
                } else {
                    // A held job is not requested again until it is released.
                    self.session.cancels.push(id);
                }
            }
            AllocState::Idle => cx.revisit(id),
            AllocState::Cancelling(_) | AllocState::Outdated | AllocState::Surplus => {}
        }
    }

    /// Sends the scheduler all changed priorities, in one request.
    pub(crate) fn send_priorities(&mut self, cx: &mut Context) {
        if self.session.reprioritized.is_empty() {
            return;
        }
        let ids = std::mem::take(&mut self.session.reprioritized);
        let jobs = ids.into_iter().filter_map(|id| {
            let job = cx.jobs.get(id)?;
            let is_outstanding = job.dialogue.scheduler.alloc().is_outstanding();
            is_outstanding.then(|| (id, job.record.priority()))
        });
        let jobs: Vec<(JobId, u32)> = jobs.collect();
        if !jobs.is_empty() {
            cx.notify(topic::sched::PRIORITIZE, &PrioritizeRequest { jobs });
        }
        self.session.cancels.append(&mut self.session.displaced);
    }

    /// Sends the scheduler the cancellations since the last call.
    pub(crate) fn send_cancels(&mut self, cx: &mut Context) {
        let jobs = std::mem::take(&mut self.session.cancels);
        if jobs.is_empty() {
            return;
        }
        if self.session.is_in_process {
            let cancels = TypedPayload::CancelAllocs(jobs.into());
            let message = rpc::typed_request(topic::sched::CANCEL, cancels);
            return cx.send(rpc::without_response(message));
        }
        for id in jobs {
            cx.notify(topic::sched::CANCEL, &CancelRequest { id });
        }
    }

    /// Ends the allocation of a job, if it has one: frees the ranks that are left, drops the claim, and
    /// logs `free` if `alloc` was logged.
    pub(crate) fn end_allocation(&mut self, cx: &mut Context, id: JobId) {
        let job = cx.jobs.get(id).filter(|job| {
            job.record.has_resources() || job.dialogue.scheduler.alloc() == AllocState::Surplus
        });
        let Some(job) = job else {
            return;
        };
        let has_alloc_event = job.record.has_resources();
        let mut left = job.r().map_or_else(IdSet::new, |r| r.ranks());
        left.subtract(job.record.freed());
        if !left.is_empty() {
            let free = FreeRanks {
                id,
                ranks: left,
                is_final: true,
            };
            self.free(cx, free);
        }
        cx.claims.drop(id);
        if let Some((_, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) {
            dialogue.advance(AllocInput::Free);
        }
        if has_alloc_event {
            cx.log(id, Event::new(cx.now, eventlog::FREE));
        }
    }

    /// Frees ranks of a job (`sched.free`).
    pub(crate) fn free(&mut self, cx: &mut Context, free: FreeRanks) {
        // The next scheduler receives the free ranks in the response to its hello.
        let (Handshake::Greeted(mode) | Handshake::Ready(mode, _)) = cx.handshake() else {
            return;
        };
        let FreeRanks {
            id,
            mut ranks,
            is_final,
        } = free;
        // The response to hello will tell which of its ranks are free.
        if self.is_unannounced(id) {
            return;
        }
        let Some(r) = cx.jobs.get(id).and_then(|job| job.r()) else {
            return;
        };
        if mode == FreeMode::Whole {
            let withheld = self.session.withheld.entry(id).or_default();
            withheld.union_with(&ranks);
            if !is_final {
                return;
            }
            ranks = std::mem::take(withheld);
            self.session.withheld.remove(&id);
        }
        let is_whole = is_final && r.ranks() == ranks;
        let r = if is_whole {
            cx.claims.with_text(id, r)
        } else {
            let r = Arc::new(r.restrict(&ranks));
            RWithText { r, text: None }
        };
        let freed = TypedPayload::Free(FreedResources { id, r, is_final });
        let message = rpc::typed_request(topic::sched::FREE, freed);
        self.send_correction(cx, message);
    }

    /// Probes the scheduler by a query about no job: it responds after a pass, and what that pass has allocated is
    /// committed by then.
    pub(crate) fn probe(&mut self, cx: &mut Context, probe: ProbeId) {
        let nothing = JobsRequest {
            ids: Some(Vec::new()),
            ..JobsRequest::default()
        };
        let matchtag = cx.next_matchtag();
        self.session.probes.insert(matchtag, probe);
        let request = rpc::request(topic::sched::EXPLAIN, &nothing);
        cx.send(request.with_matchtag(matchtag));
    }

    /// Stores a commit of R for an outstanding request; the claims have it already.
    pub(crate) fn commit_allocation(&self, cx: &mut Context, allocation: Allocation) {
        let Allocation { id, r, text } = allocation;
        cx.store_r(id, &text);
        if let Some((_, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) {
            let is_outstanding = dialogue.commit(r);
            debug_assert!(is_outstanding, "checked before the commit");
        }
    }

    /// Sends a request that corrects the responses to hello, after the response to ready.
    pub(super) fn send_correction(&mut self, cx: &mut Context, request: Message) {
        match cx.handshake() {
            Handshake::Suspended => {}
            Handshake::Greeted(_) => self.session.belated.push(request),
            Handshake::Ready(..) => cx.send(request),
        }
    }
}

/// Undoes the commit of R for a request that ends without an allocation. `request` is the request
/// before its end.
pub(super) fn undo_commit(cx: &mut Context, id: JobId, request: AllocState) {
    cx.claims.drop(id);
    if request.is_committed() {
        cx.clear_r(id);
    }
}
