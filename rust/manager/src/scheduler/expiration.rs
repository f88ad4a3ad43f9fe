//! `sched.expiration`: requests for the scheduler's agreement to another expiration of a running job
//! (RFC 27).

use penstock_flux::alloc::ExpirationRequest;
use penstock_flux::errno::ENOSYS;
use penstock_flux::{RequestError, topic};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use super::peer::SchedulerPeer;
use crate::context::Context;
use crate::dialogue::AllocInput;
use crate::effect::{Effect, ExpirationCause, ExpirationChange};
use crate::rpc;

impl SchedulerPeer {
    /// Requests the scheduler's agreement to a change. The result is an [`Effect::ExpirationAccepted`] or
    /// [`Effect::ExpirationRejected`]. If no scheduler is ready, the change is accepted at once: there is
    /// no scheduler that could object.
    pub(crate) fn request_expiration(&mut self, cx: &mut Context, change: ExpirationChange) {
        if !cx.handshake().is_ready() {
            return cx.add_effect(Effect::ExpirationAccepted(change));
        }
        let (matchtag, message) = make_request(cx, change.id, change.expiration);
        self.session.expirations.insert(matchtag, change);
        cx.send(message);
    }

    /// Requests the expiration that follows from the time limit, if an update of the limit has crossed
    /// the scheduler's response.
    pub(crate) fn check_expiration(&self, cx: &mut Context, id: JobId) {
        let Some((record, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) else {
            return;
        };
        if dialogue.advance(AllocInput::Check) && record.has_resources() {
            let duration = record.spec().duration;
            cx.add_effect(Effect::RequestExpiration {
                id,
                duration,
                cause: ExpirationCause::Manager,
            });
        }
    }

    /// Sends an expiration that was changed without the scheduler to one that has been greeted and is
    /// not ready yet.
    pub(crate) fn correct_expiration(&mut self, cx: &mut Context, id: JobId, expiration: f64) {
        if !cx.handshake().is_ready() && !self.is_unannounced(id) {
            let (_, message) = make_request(cx, id, expiration);
            self.send_correction(cx, message);
        }
    }

    /// Handles a response to `sched.expiration`: an error leaves the job as it is. A scheduler that
    /// does not know the method does not object (RFC 27).
    pub(crate) fn handle_expiration_response(&mut self, cx: &mut Context, response: &Message) {
        let Some(change) = self.session.expirations.remove(&response.matchtag) else {
            return;
        };
        cx.add_effect(match response.errnum() {
            0 | ENOSYS => Effect::ExpirationAccepted(change),
            errnum => {
                let reason = response.error_text().unwrap_or_default();
                let text = format!("the scheduler rejects the update: {reason}");
                Effect::ExpirationRejected {
                    id: change.id,
                    cause: change.cause,
                    error: RequestError::new(errnum, text),
                }
            }
        });
    }

    /// Whether an expiration request for the job is outstanding.
    pub(crate) fn has_expiration_request(&self, id: JobId) -> bool {
        let mut changes = self.session.expirations.values();
        changes.any(|change| change.id == id)
    }
}

fn make_request(cx: &mut Context, id: JobId, expiration: f64) -> (u32, Message) {
    let matchtag = cx.next_matchtag();
    let request = ExpirationRequest { id, expiration };
    let message = rpc::request(topic::sched::EXPIRATION, &request);
    (matchtag, message.with_matchtag(matchtag))
}
