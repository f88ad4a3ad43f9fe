//! The handshake of a scheduler (`sched-hello`, `sched-ready`), and its disconnect.

use penstock_flux::alloc::{HelloResponse, ReadyMode, ReadyRequest, ReadyResponse};
use penstock_flux::errno::{EAGAIN, EBUSY};
use penstock_flux::{Payload, RequestError, TypedPayload};
use penstock_wire::Message;

use super::peer::{RequestedJobs, SchedulerPeer};
use super::request::undo_commit;
use crate::context::Context;
use crate::dialogue::AllocInput;
use crate::effect::Effect;
use crate::handshake::{AllocMode, FreeMode, Handshake, HandshakeFault, HandshakeInput, Sender};
use crate::rpc::{Handled, Reply, Request};

/// The greatest limit of outstanding requests that a scheduler may set.
const MAX_OUTSTANDING_ALLOCS: usize = 0x7fff_ffff;

impl SchedulerPeer {
    /// `sched-hello`: one response for every job that holds resources, then ENODATA.
    ///
    /// A scheduler without `partial-ok` also receives a job's free ranks, but the rest of that
    /// allocation is freed in one piece: such a scheduler never receives more than one `sched.free` of
    /// a job.
    ///
    /// Rejects the request while another scheduler is ready: that one could not be notified of its
    /// replacement.
    pub(crate) fn hello(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let message = request.message;
        let hello = match message.typed() {
            Some(TypedPayload::SchedHello(hello)) => *hello,
            _ => request.payload()?,
        };
        let input = HandshakeInput::Hello {
            from: self.sender(request),
            mode: if hello.partial_ok {
                FreeMode::Parts
            } else {
                FreeMode::Whole
            },
        };
        let greeted = match cx.handshake().after(input) {
            Ok(greeted) => greeted,
            Err(fault) => {
                cx.complain(format!("sched-hello rejected: {fault}"));
                return Err(rejection(fault));
            }
        };
        self.suspend(cx, "a scheduler says hello");
        cx.set_handshake(&self.writer, greeted);
        self.session.origin = request.origin().map(<[u8]>::to_vec);
        self.session.is_in_process = matches!(message.typed(), Some(TypedPayload::SchedHello(_)));
        let mut responses = Vec::new();
        for job in cx.jobs.iter() {
            let record = &job.record;
            if !record.has_resources() {
                continue;
            }
            // All its ranks are free, and the final release of the execution service is missing.
            if record
                .r()
                .is_some_and(|r| r.ranks().is_subset(record.freed()))
            {
                continue;
            }
            let free = (!record.freed().is_empty()).then(|| record.freed().to_string());
            let hello = HelloResponse {
                id: record.id(),
                priority: record.priority(),
                userid: record.userid(),
                t_submit: record.t_submit(),
                free: free.map(Into::into),
            };
            responses.push(Message::success_to(message, &hello));
        }
        for response in responses {
            cx.send(response);
        }
        Err(RequestError::end_of_stream())
    }

    /// `sched-ready`: enables `sched.alloc` requests.
    pub(crate) fn ready(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let input = HandshakeInput::Ready {
            from: self.sender(request),
            mode: read_mode(request)?,
        };
        let ready = cx.handshake().after(input).map_err(rejection)?;
        if let Handshake::Ready(_, mode) = ready {
            self.session.requested = RequestedJobs::new(mode);
        }
        cx.set_handshake(&self.writer, ready);
        let count = self.queued.len() as u64;
        let response = ReadyResponse { count }.to_payload();
        if !request.message.is_noresponse() {
            cx.send(Message::response_to(request.message, 0, Some(response)));
        }
        for message in std::mem::take(&mut self.session.belated) {
            cx.send(message);
        }
        Ok(Reply::Deferred)
    }

    fn sender(&self, request: Request<'_>) -> Sender {
        if self.session.origin.as_deref() == request.origin() {
            Sender::Known
        } else {
            Sender::Other
        }
    }

    /// Handles the disconnect of a peer, which may be the scheduler.
    pub(crate) fn disconnect(&mut self, cx: &mut Context, origin: &[u8]) {
        if self.session.origin.as_deref() == Some(origin) {
            self.suspend(cx, "the scheduler disconnected");
        }
    }

    /// Stops sending requests until the next hello and ready. Outstanding requests become void and are
    /// sent again to the next scheduler.
    pub(super) fn suspend(&mut self, cx: &mut Context, why: &str) {
        if cx.handshake() == Handshake::Suspended {
            return;
        }
        cx.log_line(format!("scheduling is suspended: {why}"));
        let lost = std::mem::take(&mut self.session);
        cx.set_handshake(&self.writer, Handshake::Suspended);
        cx.add_effect(Effect::SchedulerLost);
        for matchtag in lost.probes.into_keys() {
            cx.release_matchtag(matchtag);
        }
        for (matchtag, change) in lost.expirations {
            cx.release_matchtag(matchtag);
            let text = "the scheduler disconnected before it agreed: try again";
            let error = RequestError::new(EAGAIN, text);
            cx.add_effect(Effect::ExpirationRejected {
                id: change.id,
                cause: change.cause,
                error,
            });
        }
        let mut orphans = Vec::new();
        for (record, dialogue) in cx.jobs.iter_scheduler_mut(&self.writer) {
            if dialogue.alloc().is_outstanding() {
                orphans.push((record.id(), dialogue.alloc()));
                dialogue.advance(AllocInput::SchedulerLost);
            }
        }
        for (id, request) in orphans {
            undo_commit(cx, id, request);
            cx.revisit(id);
        }
    }
}

/// The limit of outstanding requests that `sched-ready` sets.
fn read_mode(request: Request<'_>) -> Result<AllocMode, RequestError> {
    let ready: ReadyRequest = request.payload()?;
    match (ready.mode, ready.limit) {
        (ReadyMode::Unlimited, _) => Ok(AllocMode::Unlimited),
        (ReadyMode::Limited, Some(limit)) => match usize::try_from(limit) {
            Ok(limit @ 1..=MAX_OUTSTANDING_ALLOCS) => Ok(AllocMode::Limited(limit)),
            _ => Err(RequestError::invalid(format!(
                "limit {limit} is out of range: expected 1 to {MAX_OUTSTANDING_ALLOCS}"
            ))),
        },
        (ReadyMode::Limited, None) => Err(RequestError::protocol("mode `limited` needs a `limit`")),
    }
}

fn rejection(fault: HandshakeFault) -> RequestError {
    let text = fault.to_string();
    match fault {
        HandshakeFault::Busy => RequestError::new(EBUSY, text),
        HandshakeFault::NotGreeted | HandshakeFault::ReadyBefore => RequestError::protocol(text),
    }
}
