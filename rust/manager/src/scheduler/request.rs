//! Requests to the scheduler: alloc, cancel, prioritize, free.

use std::cmp::Reverse;
use std::sync::Arc;

use penstock_flux::alloc::{AllocRequest, CancelRequest, FreeRequest, PrioritizeRequest};
use penstock_flux::{Attachment, Json, topic};
use penstock_idset::IdSet;
use penstock_wire::Message;

use super::peer::{Handshake, SchedulerPeer};
use crate::context::Context;
use crate::dialogue::{Alloc, AllocInput};
use crate::effect::Effect;
use crate::rpc;

/// Bytes of alloc requests made in one turn: some thousand jobs of the usual size.
const MAX_ALLOC_BYTES_PER_TURN: usize = 4 * 1024 * 1024;

impl SchedulerPeer {
    /// Queues a job in SCHED for resources.
    pub(crate) fn enqueue(&mut self, cx: &mut Context, id: u64) {
        if let Some((record, dialogue)) = cx.jobs.split(id)
            && dialogue.advance_alloc(AllocInput::Enqueue)
        {
            self.queued.insert((Reverse(record.priority()), id));
        }
    }

    /// Ends the wish of a job for resources, if it has one. Returns whether a request is still
    /// outstanding: it ends with CANCEL or SUCCESS.
    pub(crate) fn withdraw(&mut self, cx: &mut Context, id: u64) -> bool {
        let Some((record, dialogue)) = cx.jobs.split(id) else {
            return false;
        };
        let position = (Reverse(record.priority()), id);
        match dialogue.alloc() {
            Alloc::Queued => {
                dialogue.advance_alloc(AllocInput::Dequeue);
                self.queued.remove(&position);
            }
            Alloc::Requested => {
                dialogue.advance_alloc(AllocInput::Cancel);
                self.requested.remove(&position);
                self.canceling += 1;
                send_cancel(cx, id);
                return true;
            }
            Alloc::Canceling => return true,
            Alloc::Idle | Alloc::Surplus => {}
        }
        false
    }

    /// Sends alloc requests as far as mode and turn allow, in queue order. A scheduler whose send
    /// buffer is full gets no more.
    pub(crate) fn send_allocs(&mut self, cx: &mut Context) {
        let Handshake::Ready(limit) = self.handshake() else {
            return;
        };
        if self.is_stopped {
            return;
        }
        loop {
            if limit.is_some_and(|limit| self.outstanding() >= limit) {
                return self.displace_last(cx);
            }
            if self.bytes_this_turn >= MAX_ALLOC_BYTES_PER_TURN || self.is_backlogged(cx) {
                return;
            }
            let Some(position) = self.queued.pop_first() else {
                return;
            };
            let id = position.1;
            let Some((record, dialogue)) = cx.jobs.split(id) else {
                continue;
            };
            dialogue.advance_alloc(AllocInput::Request);
            let is_elastic = record.elastic_request().is_some();
            let jobspec = dialogue.request();
            let request = AllocRequest {
                id,
                priority: record.priority(),
                userid: Some(record.userid()),
                t_submit: Some(record.t_submit()),
                jobspec: Json(&jobspec.text),
            };
            let requested = Attachment::Alloc(Arc::clone(&jobspec.requested));
            let message = rpc::request(topic::sched::ALLOC, &request).with_attachment(requested);
            self.requested.insert(position);
            self.bytes_this_turn += message.payload.as_ref().map_or(0, Vec::len);
            if is_elastic {
                cx.effect(Effect::ElasticRequested(id));
            }
            cx.send(message);
        }
    }

    fn is_backlogged(&self, cx: &Context) -> bool {
        let scheduler = self.reader();
        scheduler.is_some_and(|scheduler| cx.backlogged.contains(scheduler))
    }

    /// Whether alloc requests are left for the next turn.
    pub(crate) fn has_more(&self, cx: &Context) -> bool {
        let Handshake::Ready(limit) = self.handshake() else {
            return false;
        };
        let has_room = limit.is_none_or(|limit| self.outstanding() < limit);
        has_room && !self.is_stopped && !self.queued.is_empty() && !self.is_backlogged(cx)
    }

    /// In limited mode, cancels the last request if a queued job comes before it. The canceled job
    /// is requested again later.
    fn displace_last(&mut self, cx: &mut Context) {
        let (Some(first), Some(last)) = (self.queued.first(), self.requested.last().copied())
        else {
            return;
        };
        if *first >= last || self.canceling > 0 {
            return;
        }
        let id = last.1;
        if let Some(dialogue) = cx.jobs.dialogue(id)
            && dialogue.advance_alloc(AllocInput::Cancel)
        {
            self.requested.remove(&last);
            self.canceling += 1;
            send_cancel(cx, id);
        }
    }

    /// Takes note of a job's new priority; `old` is the one before.
    pub(crate) fn reprioritize(&mut self, cx: &mut Context, id: u64, old: u32) {
        let Some((record, dialogue)) = cx.jobs.split(id) else {
            return;
        };
        let new = record.priority();
        if old == new {
            return;
        }
        match dialogue.alloc() {
            Alloc::Queued => {
                self.queued.remove(&(Reverse(old), id));
                if new > 0 {
                    self.queued.insert((Reverse(new), id));
                } else {
                    dialogue.advance_alloc(AllocInput::Dequeue);
                }
            }
            Alloc::Requested => {
                self.requested.remove(&(Reverse(old), id));
                if new > 0 {
                    self.reprioritized.insert(id);
                    if self.handshake() == Handshake::Ready(None) {
                        self.requested.insert((Reverse(new), id));
                        return;
                    }
                }
                dialogue.advance_alloc(AllocInput::Cancel);
                self.canceling += 1;
                if new > 0 {
                    // With a limit it is requested again at its new position in the queue.
                    self.displaced.push(id);
                } else {
                    // Held: it is not requested again until it is released.
                    send_cancel(cx, id);
                }
            }
            Alloc::Idle => cx.revisit(id),
            Alloc::Canceling | Alloc::Surplus => {}
        }
    }

    /// Tells the scheduler all priorities that have changed, in one request.
    pub(crate) fn send_priorities(&mut self, cx: &mut Context) {
        if self.reprioritized.is_empty() {
            return;
        }
        let ids = std::mem::take(&mut self.reprioritized);
        let jobs = ids.into_iter().filter_map(|id| {
            let job = cx.jobs.get(id)?;
            let is_outstanding = job.dialogue.alloc().is_outstanding();
            is_outstanding.then(|| (id, job.record.priority()))
        });
        let jobs: Vec<(u64, u32)> = jobs.collect();
        if !jobs.is_empty() {
            cx.notify(topic::sched::PRIORITIZE, &PrioritizeRequest { jobs });
        }
        for id in std::mem::take(&mut self.displaced) {
            send_cancel(cx, id);
        }
    }

    /// Tells the scheduler that ranks of a job are free; `is_final` if they are its last.
    pub(crate) fn free(&mut self, cx: &mut Context, id: u64, ranks: IdSet, is_final: bool) {
        // A scheduler that arrives later is told at hello.
        if self.handshake() == Handshake::Suspended {
            return;
        }
        let Some(r) = cx.jobs.get(id).and_then(|job| job.r()) else {
            return;
        };
        let mut ranks = ranks;
        if !self.is_partial_ok {
            let withheld = self.withheld.entry(id).or_default();
            withheld.union_with(&ranks);
            if !is_final {
                return;
            }
            ranks = std::mem::take(withheld);
            self.withheld.remove(&id);
        }
        let part = if is_final && r.ranks() == ranks {
            cx.claims.text(id, r)
        } else {
            r.restrict(&ranks).to_json().into()
        };
        let request = FreeRequest {
            id,
            r: Some(Json(&part)),
            is_final,
        };
        let message = rpc::request(topic::sched::FREE, &request);
        self.send_correction(cx, message);
    }

    /// Sends a request that corrects what hello said; the response to ready comes before it.
    pub(super) fn send_correction(&mut self, cx: &mut Context, request: Message) {
        match self.handshake() {
            Handshake::Suspended => {}
            Handshake::Greeted => self.belated.push(request),
            Handshake::Ready(_) => cx.send(request),
        }
    }
}

fn send_cancel(cx: &mut Context, id: u64) {
    cx.notify(topic::sched::CANCEL, &CancelRequest { id });
}
