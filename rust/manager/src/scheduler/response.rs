//! Responses of the scheduler: accepted where one is due, logged and ignored where not.

use std::cmp::Reverse;

use penstock_flux::alloc::{AllocResponse, AllocResponseType};
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde_json::{Map, Value, json};

use super::handshake::void_r;
use super::peer::SchedulerPeer;
use crate::context::Context;
use crate::dialogue::{Alloc, AllocInput, Dialogue};
use crate::effect::Effect;
use crate::event::{Document, Event};
use crate::rpc;
use crate::state::State;

impl SchedulerPeer {
    /// A response to `sched.alloc`.
    pub(crate) fn alloc_response(&mut self, cx: &mut Context, response: &Message) {
        let errnum = response.errnum();
        if errnum != 0 {
            return self.suspend(cx, &format!("sched.alloc failed with errnum {errnum}"));
        }
        if !self.is_ready() {
            return cx.complain("alloc response before sched-ready: ignored".to_owned());
        }
        let alloc: AllocResponse<'_> = match rpc::payload(response) {
            Ok(alloc) => alloc,
            Err(error) => return cx.complain(format!("alloc response ignored: {}", error.text)),
        };
        let id = alloc.id;
        let job = cx.jobs.get(id);
        let job = job.filter(|job| job.dialogue.alloc().is_outstanding());
        let Some((request, state)) = job.map(|job| (job.dialogue.alloc(), job.record.state()))
        else {
            let name = Fluid(id);
            return cx.complain(format!("alloc response for {name} ignored: none is due"));
        };
        match alloc.kind {
            AllocResponseType::Success => self.succeed(cx, &alloc, state),
            AllocResponseType::Annotate => match (cx.jobs.dialogue(id), &alloc.annotations) {
                (Some(dialogue), Some(update)) if state == State::Sched => {
                    dialogue.annotate(update);
                }
                (_, Some(_)) => {}
                (_, None) => {
                    let name = Fluid(id);
                    cx.complain(format!("alloc annotate for {name} ignored: no annotations"));
                }
            },
            AllocResponseType::Deny => {
                self.end_request(cx, id, AllocInput::Deny);
                let note = alloc.note.unwrap_or_default();
                if state == State::Sched {
                    let note = note.into_string();
                    cx.effect(Effect::Denied { id, note });
                }
                cx.revisit(id);
            }
            AllocResponseType::Cancel if request == Alloc::Canceling => {
                check_cancel(cx, response, id);
                self.end_request(cx, id, AllocInput::Canceled);
                cx.revisit(id);
            }
            AllocResponseType::Cancel => {
                let name = Fluid(id);
                cx.complain(format!(
                    "alloc cancel for {name} ignored: it was not requested"
                ));
            }
        }
    }

    /// Ends a request without an allocation.
    fn end_request(&mut self, cx: &mut Context, id: u64, input: AllocInput) {
        let dialogue = cx.jobs.dialogue(id);
        let had_r = dialogue.is_some_and(Dialogue::void_commit);
        self.advance(cx, id, input);
        void_r(cx, id, had_r);
    }

    fn advance(&mut self, cx: &mut Context, id: u64, input: AllocInput) {
        let Some((record, dialogue)) = cx.jobs.split(id) else {
            return;
        };
        let before = dialogue.alloc();
        if !dialogue.advance_alloc(input) {
            return;
        }
        match before {
            Alloc::Canceling => self.canceling -= 1,
            Alloc::Requested => {
                self.requested.remove(&(Reverse(record.priority()), id));
            }
            Alloc::Idle | Alloc::Queued | Alloc::Surplus => {}
        }
    }

    /// SUCCESS. Without a commit of the same R the request stays open: the fault is the
    /// scheduler's, not the job's.
    fn succeed(&mut self, cx: &mut Context, alloc: &AllocResponse<'_>, state: State) {
        let id = alloc.id;
        let committed = cx.jobs.get(id).and_then(|job| job.dialogue.committed());
        let Some(r) = committed.cloned() else {
            let name = Fluid(id);
            return cx.complain(format!(
                "alloc success for {name} without committing R: ignored"
            ));
        };
        if !cx.claims.agrees(id, alloc.r.map(|r| r.0)) {
            let name = Fluid(id);
            return cx.complain(format!(
                "alloc success for {name} with another R than was committed: ignored"
            ));
        }
        if state != State::Sched {
            // The job has ended while the response was on its way: the resources are freed at once.
            self.advance(cx, id, AllocInput::LateSuccess);
            return cx.revisit(id);
        }
        if self.is_stopped {
            self.end_request(cx, id, AllocInput::Success);
            return cx.revisit(id);
        }
        self.advance(cx, id, AllocInput::Success);
        let Some(dialogue) = cx.jobs.dialogue(id) else {
            return;
        };
        if let Some(update) = &alloc.annotations {
            dialogue.annotate(update);
        }
        let context = json!({ "annotations": dialogue.take_annotations() });
        let event = Event::with(cx.now, "alloc", context);
        cx.log(id, event.with_document(Document::R(r)));
    }

    /// A response to `sched.free`: not awaited, but an error means that the scheduler is gone.
    pub(crate) fn free_response(&mut self, cx: &mut Context, response: &Message) {
        let errnum = response.errnum();
        if errnum != 0 {
            self.suspend(cx, &format!("sched.free failed with errnum {errnum}"));
        }
    }
}

/// RFC 27 allows CANCEL no other keys. They do no harm, but the log mentions them.
fn check_cancel(cx: &mut Context, response: &Message, id: u64) {
    let keys: Map<String, Value> = rpc::payload(response).unwrap_or_default();
    let others: Vec<&str> = keys
        .keys()
        .map(String::as_str)
        .filter(|key| !matches!(*key, "id" | "type"))
        .collect();
    if !others.is_empty() {
        let (name, others) = (Fluid(id), others.join(", "));
        cx.complain(format!(
            "alloc cancel for {name} has keys that it must not have: {others}"
        ));
    }
}
