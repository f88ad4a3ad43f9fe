//! Responses of the scheduler: accepted if one is due, else logged and ignored.

use std::cmp::Reverse;

use penstock_flux::alloc::{AllocResponse, AllocResponseType};
use penstock_flux::{Allocation, TypedPayload, errno};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::{Map, Value};

use super::peer::SchedulerPeer;
use super::request::undo_commit;
use crate::annotations;
use crate::context::Context;
use crate::dialogue::{AllocInput, AllocState};
use crate::effect::{Effect, ProbeAnswer};
use crate::event::Event;
use crate::state::State;

/// A response that is due.
#[derive(Clone, Copy)]
struct Due {
    /// The state of the conversation about the job.
    request: AllocState,
    /// The job's state.
    state: State,
    /// Whether the request was sent before the constraint of the job's queue has changed.
    is_superseded: bool,
    /// Whether it was sent before the job's time limit has changed.
    is_outdated: bool,
}

/// A SUCCESS response that is due.
struct Success {
    due: Due,
    /// Whether the response names the R that was committed, or none.
    is_same_r: bool,
    annotations: Option<Map<String, Value>>,
}

impl SchedulerPeer {
    /// Handles a response to `sched.alloc`.
    pub(crate) fn handle_alloc_response(&mut self, cx: &mut Context, response: &Message) {
        let errnum = response.errnum();
        if errnum != 0 {
            return self.suspend(cx, &errno::failure(response.topic(), errnum, None));
        }
        if !cx.handshake().is_ready() {
            return cx.complain("alloc response before sched-ready: ignored".to_owned());
        }
        if let Some(TypedPayload::Allocated(allocated)) = response.typed() {
            let Allocation { id, r, .. } = &allocated.allocation;
            if let Some(due) = check_due(cx, *id) {
                let success = Success {
                    due,
                    is_same_r: cx.claims.is_committed(*id, r),
                    annotations: Some(annotations::of(&allocated.annotations)),
                };
                self.succeed(cx, *id, success);
            }
            return;
        }
        if let Some(TypedPayload::CancelledAllocs(jobs)) = response.typed() {
            for id in jobs.iter() {
                self.end_cancelled(cx, *id);
            }
            return;
        }
        let alloc: AllocResponse<'_> = match response.read_request() {
            Ok(alloc) => alloc,
            Err(error) => return cx.complain(format!("alloc response ignored: {}", error.text)),
        };
        let id = alloc.id;
        let Some(due) = check_due(cx, id) else {
            return;
        };
        match alloc.kind {
            AllocResponseType::Success => {
                let success = Success {
                    due,
                    is_same_r: cx.claims.agrees(id, alloc.r.map(|r| r.0)),
                    annotations: alloc.annotations,
                };
                self.succeed(cx, id, success);
            }
            AllocResponseType::Annotate => {
                match (cx.jobs.scheduler_mut(&self.writer, id), alloc.annotations) {
                    (Some((_, dialogue)), Some(update)) if due.state == State::Sched => {
                        dialogue.annotate(update);
                    }
                    (_, Some(_)) => {}
                    (_, None) => {
                        cx.complain(format!("alloc annotate for {id} ignored: no annotations"));
                    }
                }
            }
            AllocResponseType::Deny => {
                self.end_request(cx, id, AllocInput::Deny);
                if due.state == State::Sched && !(due.is_superseded || due.is_outdated) {
                    let note = alloc.note.unwrap_or_default();
                    deny(cx, id, note.into_string());
                }
                cx.revisit(id);
            }
            AllocResponseType::Cancel => {
                if matches!(due.request, AllocState::Cancelling(_)) {
                    check_cancel(cx, response, id);
                }
                self.end_cancelled(cx, id);
            }
        }
    }

    /// Handles CANCEL.
    fn end_cancelled(&mut self, cx: &mut Context, id: JobId) {
        let job = cx.jobs.scheduler_mut(&self.writer, id);
        let Some((_, dialogue)) = job.filter(|(_, dialogue)| dialogue.alloc().is_outstanding())
        else {
            return complain_of_no_request(cx, id);
        };
        let request = dialogue.alloc();
        if !dialogue.advance(AllocInput::Cancelled) {
            let line = format!("alloc cancel for {id} ignored: it was not requested");
            return cx.complain(line);
        }
        self.session.cancelling -= 1;
        undo_commit(cx, id, request);
        cx.revisit(id);
    }

    /// Ends a request without an allocation.
    fn end_request(&mut self, cx: &mut Context, id: JobId, input: AllocInput) {
        let job = cx.jobs.get(id);
        let request = job.map_or(AllocState::Idle, |job| job.dialogue.scheduler.alloc());
        self.advance(cx, id, input);
        undo_commit(cx, id, request);
    }

    /// Frees the resources of a job whose queue has another constraint since they were requested.
    fn return_resources(&mut self, cx: &mut Context, id: JobId) {
        self.advance(cx, id, AllocInput::LateSuccess);
        self.end_allocation(cx, id);
        cx.clear_r(id);
    }

    fn advance(&mut self, cx: &mut Context, id: JobId, input: AllocInput) {
        let Some((record, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) else {
            return;
        };
        let before = dialogue.alloc();
        if !dialogue.advance(input) {
            return;
        }
        match before {
            AllocState::Cancelling(_) => self.session.cancelling -= 1,
            AllocState::Requested(_) => {
                self.session
                    .requested
                    .remove((Reverse(record.priority()), id));
            }
            AllocState::Idle | AllocState::Queued | AllocState::Outdated | AllocState::Surplus => {}
        }
    }

    /// Handles SUCCESS. Without a commit of the same R the request stays open: the fault is the
    /// scheduler's, not the job's.
    fn succeed(&mut self, cx: &mut Context, id: JobId, success: Success) {
        let committed = cx
            .jobs
            .get(id)
            .and_then(|job| job.dialogue.scheduler.committed());
        let Some(r) = committed.cloned() else {
            return cx.complain(format!(
                "alloc success for {id} without committing R: ignored"
            ));
        };
        if !success.is_same_r {
            return cx.complain(format!(
                "alloc success for {id} with another R than was committed: ignored"
            ));
        }
        if success.due.state != State::Sched {
            // The job has ended while the response was on its way: the resources are freed at once.
            self.advance(cx, id, AllocInput::LateSuccess);
            return cx.revisit(id);
        }
        if self.is_stopped {
            self.end_request(cx, id, AllocInput::Deny);
            return cx.revisit(id);
        }
        if success.due.is_superseded {
            self.return_resources(cx, id);
            return cx.revisit(id);
        }
        self.advance(cx, id, AllocInput::Success);
        let Some((_, dialogue)) = cx.jobs.scheduler_mut(&self.writer, id) else {
            return;
        };
        if let Some(update) = success.annotations {
            dialogue.annotate(update);
        }
        let annotations = dialogue.take_annotations();
        cx.log(id, Event::alloc(cx.now, r, annotations));
    }

    /// Handles the response to a probe.
    pub(crate) fn handle_probe_response(&mut self, cx: &mut Context, response: &Message) {
        if let Some(probe) = self.session.probes.remove(&response.matchtag) {
            let answer = match response.errnum() {
                0 => ProbeAnswer::Considered,
                _ => ProbeAnswer::Unsupported,
            };
            cx.add_effect(Effect::Probed { probe, answer });
        }
    }

    /// Handles a response to `sched.free`: no step waits for it, but an error means that the scheduler
    /// has gone.
    pub(crate) fn handle_free_response(&mut self, cx: &mut Context, response: &Message) {
        let errnum = response.errnum();
        if errnum != 0 {
            self.suspend(cx, &errno::failure(response.topic(), errnum, None));
        }
    }
}

/// Checks that a response is due for a job.
fn check_due(cx: &mut Context, id: JobId) -> Option<Due> {
    let job = cx.jobs.get(id);
    let due = job.and_then(|job| {
        let request = job.dialogue.scheduler.alloc();
        let sent = request.sent()?;
        Some(Due {
            request,
            state: job.record.state(),
            is_superseded: sent.is_superseded || cx.queues.is_renewing(&job.record),
            is_outdated: sent.is_outdated,
        })
    });
    if due.is_none() {
        complain_of_no_request(cx, id);
    }
    due
}

fn complain_of_no_request(cx: &mut Context, id: JobId) {
    cx.complain(format!("alloc response for {id} ignored: none is due"));
}

/// Ends a job that can never have its resources, or lets its PMIx request continue in another form.
fn deny(cx: &mut Context, id: JobId, note: String) {
    let record = cx.jobs.record(id);
    if record.is_some_and(|record| record.elastic_request().is_some()) {
        cx.add_effect(Effect::ElasticDenied { id, note });
    } else {
        cx.fail_job(id, "alloc", &note);
    }
}

/// RFC 27 allows CANCEL no other keys. They do no harm, but the log mentions them.
fn check_cancel(cx: &mut Context, response: &Message, id: JobId) {
    let keys: Map<String, Value> = response.read_request().unwrap_or_default();
    let others: Vec<&str> = keys
        .keys()
        .map(String::as_str)
        .filter(|key| !matches!(*key, "id" | "type"))
        .collect();
    if !others.is_empty() {
        let others = others.join(", ");
        cx.complain(format!(
            "alloc cancel for {id} has keys that it must not have: {others}"
        ));
    }
}
