//! What a scheduler answers (RFC 27): taken where it is due, refused and logged where it is not.

use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::annotations;
use crate::event::Event;
use crate::job::Alloc;
use crate::manager::Manager;
use crate::rpc;
use crate::state::State;

/// Alloc response types (RFC 27).
const SUCCESS: u64 = 0;
const ANNOTATE: u64 = 1;
const DENY: u64 = 2;
const CANCEL: u64 = 3;

#[derive(Deserialize)]
struct AllocResponse<'a> {
    id: u64,
    #[serde(rename = "type")]
    kind: u64,
    note: Option<String>,
    annotations: Option<Map<String, Value>>,
    /// Today's SUCCESS repeats what was committed.
    #[serde(borrow, rename = "R")]
    r: Option<&'a RawValue>,
}

impl Manager {
    /// A response to `sched.alloc`.
    pub(crate) fn alloc_response(&mut self, response: &Message, now: f64) {
        if response.errnum() != 0 {
            let errnum = response.errnum();
            return self.suspend_scheduling(&format!("sched.alloc failed with errnum {errnum}"));
        }
        if !self.allocator.is_ready() {
            return self.complain("alloc response before sched-ready: ignored".to_owned());
        }
        let alloc: AllocResponse = match rpc::payload(response) {
            Ok(alloc) => alloc,
            Err(refusal) => {
                return self.complain(format!("alloc response ignored: {}", refusal.text));
            }
        };
        let id = alloc.id;
        let state = self.jobs.get(&id).map(|job| (job.alloc, job.state));
        let Some((asked @ (Alloc::Requested | Alloc::Canceling), state)) = state else {
            let name = Fluid(id);
            return self.complain(format!("alloc response for {name} ignored: none is due"));
        };
        match alloc.kind {
            SUCCESS => self.alloc_success(&alloc, now),
            ANNOTATE => match (self.jobs.get_mut(&id), &alloc.annotations) {
                (Some(job), Some(update)) if state == State::Sched => {
                    annotations::merge(&mut job.annotations, update);
                }
                (_, Some(_)) => {}
                (_, None) => {
                    let name = Fluid(id);
                    self.complain(format!("alloc annotate for {name} ignored: no annotations"));
                }
            },
            DENY => {
                self.end_alloc(id);
                self.drop_r(id);
                let note = alloc.note.unwrap_or_default();
                if state == State::Sched && !self.request_denied(id, &note, now) {
                    self.fail_job(id, now, "alloc", &note);
                }
                self.revisit(id);
            }
            // It ends a request that was taken back, no other: asking again at once would only
            // bring the next one.
            CANCEL if asked == Alloc::Requested => {
                let name = Fluid(id);
                self.complain(format!(
                    "alloc cancel for {name} ignored: nobody asked for it"
                ));
            }
            CANCEL => {
                self.check_cancel(response, id);
                self.end_alloc(id);
                self.drop_r(id);
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.annotations.clear();
                }
                self.revisit(id);
            }
            kind => self.complain(format!("alloc response of unknown type {kind} ignored")),
        }
    }

    fn in_sched(&self, id: u64) -> bool {
        let job = self.jobs.get(&id);
        job.is_some_and(|job| job.state == State::Sched)
    }

    /// RFC 27 allows CANCEL no other keys. They do no harm, but somebody should know of them.
    fn check_cancel(&mut self, response: &Message, id: u64) {
        let keys: Map<String, Value> = rpc::payload(response).unwrap_or_default();
        let others: Vec<&str> = keys
            .keys()
            .map(String::as_str)
            .filter(|key| !matches!(*key, "id" | "type"))
            .collect();
        if !others.is_empty() {
            let (name, others) = (Fluid(id), others.join(", "));
            self.complain(format!(
                "alloc cancel for {name} has keys that it must not have: {others}"
            ));
        }
    }

    /// A SUCCESS that is not backed by a commit leaves the request open: the fault is the
    /// scheduler's, not the job's.
    fn alloc_success(&mut self, alloc: &AllocResponse, now: f64) {
        let id = alloc.id;
        let committed = self.jobs.get(&id).is_some_and(|job| job.r.is_some());
        if !committed || !self.claims.agrees(id, alloc.r.map(RawValue::get)) {
            let fault = if committed {
                "with another R than was committed"
            } else {
                "without committing R"
            };
            let name = Fluid(id);
            return self.complain(format!("alloc success for {name} {fault}: ignored"));
        }
        self.end_alloc(id);
        if self.allocator.is_stopped() && self.in_sched(id) {
            self.drop_r(id);
            return self.revisit(id);
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.state == State::Sched {
            if let Some(update) = &alloc.annotations {
                annotations::merge(&mut job.annotations, update);
            }
            let annotations = job.annotations.clone();
            let context = json!({ "annotations": annotations });
            self.post(id, &Event::with(now, "alloc", context));
        } else {
            // Cancelled while the answer was on its way: give it back at once.
            job.alloc = Alloc::Allocated;
            self.revisit(id);
        }
    }

    /// A response to `sched.free`: tolerated, never awaited, but an error ends the scheduler.
    pub(crate) fn free_response(&mut self, response: &Message) {
        if response.errnum() != 0 {
            let errnum = response.errnum();
            self.suspend_scheduling(&format!("sched.free failed with errnum {errnum}"));
        }
    }
}
