//! The scheduler's responses to requests.

use std::sync::Arc;

use penstock_flux::RequestError;
use penstock_flux::alloc::{AllocResponse, AllocResponseType, Annotations, SchedAnnotations};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::Scheduler;

/// The reply to a request: the payload of a response, none yet or ever, or an error.
pub(crate) type Reply = Result<Option<Vec<u8>>, RequestError>;

impl Scheduler {
    /// Answers a request, unless it is a no-response request or is answered elsewhere.
    pub(crate) fn reply(&mut self, request: &Message, reply: Reply) {
        if request.is_noresponse() {
            return;
        }
        match reply {
            Ok(Some(payload)) => {
                self.out
                    .push(Message::response_to(request, 0, Some(payload)));
            }
            Ok(None) => {}
            Err(RequestError { errnum, text }) => {
                self.out.push(Message::error_to(request, errnum, &text));
            }
        }
    }

    pub(crate) fn deny(&mut self, id: JobId, note: &str) {
        self.respond(&AllocResponse::<()>::deny(id, note));
    }

    /// Sends the last response to a job's alloc request.
    pub(crate) fn respond<A: serde::Serialize>(&mut self, response: &AllocResponse<A>) {
        if let Some(request) = self.end_alloc(response.id) {
            self.out.push(Message::success_to(&request, response));
        }
    }

    /// Ends a job's alloc request. Returns its header, for the last response.
    pub(crate) fn end_alloc(&mut self, id: JobId) -> Option<Arc<Message>> {
        self.cancelled_in_commit.remove(&id);
        self.annotator.forget(id);
        self.accuracy.forget(id);
        self.allocs.remove(&id).map(|call| call.header)
    }

    /// Sends annotations of a pending job.
    pub(crate) fn send_annotations(&mut self, id: JobId, sched: SchedAnnotations) {
        if let Some(call) = self.allocs.get(&id) {
            let response = AllocResponse {
                annotations: Some(Annotations { sched }),
                ..AllocResponse::new(id, AllocResponseType::Annotate)
            };
            self.out.push(Message::success_to(&call.header, &response));
        }
    }
}
