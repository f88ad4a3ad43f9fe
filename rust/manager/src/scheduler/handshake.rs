//! The handshake of a scheduler (`sched-hello`, `sched-ready`), and its disconnect.

use std::ops::Bound;

use penstock_flux::alloc::{HelloResponse, ReadyMode, ReadyRequest, ReadyResponse};
use penstock_flux::errno::{EAGAIN, EBUSY};
use penstock_flux::{Payload, RequestError, TypedPayload};
use penstock_wire::Message;

use super::peer::{OpenHello, RequestedJobs, SchedulerPeer};
use crate::context::Context;
use crate::effect::Effect;
use crate::handshake::{AllocMode, FreeMode, Handshake, HandshakeFault, HandshakeInput, Sender};
use crate::record::Record;
use crate::rpc::{Handled, Reply, Request};

/// The greatest limit of outstanding requests that a scheduler may set.
const MAX_OUTSTANDING_ALLOCS: usize = 0x7fff_ffff;

/// Maximum number of jobs examined in one slice of the end of requests to a lost scheduler.
const JOBS_EXAMINED_PER_SLICE: usize = 2_500;

/// The same of the responses to hello, which are sent before anything else can be done: some milliseconds.
const JOBS_EXAMINED_PER_HELLO_SLICE: usize = 10_000;

impl SchedulerPeer {
    /// `sched-hello`: one response for every job that holds resources, in slices, then ENODATA.
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
        self.session.hello = Some(OpenHello {
            request: message.header(),
            after: Bound::Unbounded,
        });
        self.announce_jobs(cx);
        Ok(Reply::Deferred)
    }

    /// Sends the next responses to an open hello.
    fn announce_jobs(&mut self, cx: &mut Context) {
        let mut announced = 0;
        for _ in 0..JOBS_EXAMINED_PER_HELLO_SLICE {
            let Some(hello) = &mut self.session.hello else {
                return;
            };
            if announced >= self.per_slice {
                return;
            }
            let next = cx.jobs.next_with_hidden((hello.after, Bound::Unbounded));
            let Some(record) = next.map(|job| &job.record) else {
                let request = hello.request.header();
                self.session.hello = None;
                return cx.end_stream(&request);
            };
            hello.after = Bound::Excluded(record.id());
            if let Some(response) = hello_response(record) {
                let response = Message::success_to(&hello.request, &response);
                cx.send(response);
                announced += 1;
            }
        }
    }

    /// Does the next slice of the end of requests to a lost scheduler and of the responses to hello, and answers
    /// `sched-ready` after the last one.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context) {
        self.end_lost_requests(cx);
        self.announce_jobs(cx);
        if !self.has_slices()
            && let Some((request, mode)) = self.session.ready.take()
        {
            self.complete_ready(cx, &request, mode);
        }
    }

    /// `sched-ready`: enables `sched.alloc` requests.
    pub(crate) fn ready(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let mode = read_mode(request)?;
        let input = HandshakeInput::Ready {
            from: self.sender(request),
            mode,
        };
        cx.handshake().after(input).map_err(rejection)?;
        if self.session.ready.is_some() {
            return Err(rejection(HandshakeFault::ReadyBefore));
        }
        if self.has_slices() {
            self.session.ready = Some((request.message.header(), mode));
        } else {
            self.complete_ready(cx, request.message, mode);
        }
        Ok(Reply::Deferred)
    }

    /// Enables `sched.alloc` requests.
    fn complete_ready(&mut self, cx: &mut Context, request: &Message, mode: AllocMode) {
        let (Handshake::Greeted(free) | Handshake::Ready(free, _)) = cx.handshake() else {
            return;
        };
        self.session.requested = RequestedJobs::new(mode);
        cx.set_handshake(&self.writer, Handshake::Ready(free, mode));
        let count = self.queued.len() as u64;
        let response = ReadyResponse { count }.to_payload();
        if !request.is_noresponse() {
            cx.send(Message::response_to(request, 0, Some(response)));
        }
        for message in std::mem::take(&mut self.session.belated) {
            cx.send(message);
        }
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
        let hello = lost.hello.map(|hello| hello.request);
        let ready = lost.ready.map(|(request, _)| request);
        for request in hello.into_iter().chain(ready) {
            let text = "the scheduler has begun another handshake";
            cx.reject(&request, &RequestError::new(EAGAIN, text));
        }
        let count = lost.requested.len() + lost.cancelling;
        if count > 0 {
            self.lost.left += count;
            self.lost.after = Some(Bound::Unbounded);
        }
        self.end_lost_requests(cx);
    }

    /// Ends the next requests of a lost scheduler.
    fn end_lost_requests(&mut self, cx: &mut Context) {
        let mut ended = 0;
        for _ in 0..JOBS_EXAMINED_PER_SLICE {
            let Some(after) = self.lost.after else {
                return;
            };
            if ended >= self.per_slice {
                return;
            }
            let next = cx.jobs.next_with_hidden((after, Bound::Unbounded));
            let Some(id) = next.map(|job| job.record.id()) else {
                self.lost.after = None;
                self.lost.left = 0;
                return;
            };
            self.lost.after = Some(Bound::Excluded(id));
            ended += usize::from(self.end_lost_request(cx, id));
        }
    }
}

/// The response to hello about a job; `None` if it has no ranks left to announce.
fn hello_response(record: &Record) -> Option<HelloResponse<'static>> {
    if !record.has_resources() {
        return None;
    }
    // All its ranks may be free while the final release of the execution service is missing.
    let r = record.r();
    if r.is_some_and(|r| r.ranks().is_subset(record.freed())) {
        return None;
    }
    let free = (!record.freed().is_empty()).then(|| record.freed().to_string());
    Some(HelloResponse {
        id: record.id(),
        priority: record.priority(),
        userid: record.userid(),
        t_submit: record.t_submit(),
        free: free.map(Into::into),
    })
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
