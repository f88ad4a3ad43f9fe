//! RFC 27 as the scheduler speaks it: requests into the engine, decisions back.

use penstock_engine::{Decision, Job};
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::fluid::Fluid;
use penstock_rset::ResourceSet;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{EAGAIN, EINVAL, Outcome, Phase, Scheduler, Settings, Waiting, malformed, payload};

/// Alloc response types (RFC 27).
pub(crate) const SUCCESS: u64 = 0;
pub(crate) const ANNOTATE: u64 = 1;
pub(crate) const DENY: u64 = 2;
pub(crate) const CANCEL: u64 = 3;

/// Allocations that go into one commit at the most.
const BATCH: usize = 1024;

#[derive(Deserialize)]
struct Alloc {
    id: u64,
    priority: u32,
    userid: Option<u32>,
    jobspec: Box<RawValue>,
}

#[derive(Deserialize)]
struct Id {
    id: u64,
}

#[derive(Deserialize)]
struct Prioritize {
    jobs: Vec<(u64, u32)>,
}

#[derive(Deserialize)]
struct Free {
    id: u64,
    #[serde(rename = "R")]
    r: Option<Box<RawValue>>,
    #[serde(rename = "final", default)]
    last: bool,
}

#[derive(Deserialize)]
struct Expiration {
    id: u64,
    expiration: f64,
}

#[derive(Deserialize)]
struct Feasibility {
    jobspec: Box<RawValue>,
}

impl Scheduler {
    pub(crate) fn alloc(&mut self, request: &Message) {
        // The job manager means a predecessor, and does not know yet that it has gone: it asks
        // again after the answer to our ready.
        if self.phase != Phase::Running {
            let text = "sched.alloc before job-manager.sched-ready is answered: ignored";
            return self.log.push(text.to_owned());
        }
        let mut header = request.clone();
        header.set_payload(None);
        let alloc: Alloc = match payload(request) {
            Ok(alloc) => alloc,
            Err(error) => return self.malformed_alloc(request, header, error),
        };
        let waiting = Waiting {
            header,
            userid: alloc.userid,
        };
        let known = self.requests.insert(alloc.id, waiting).is_some();
        let (settings, names) = (&self.options.settings, &mut self.queues);
        let Some(engine) = &mut self.engine else {
            return;
        };
        if known {
            // RFC 27 allows one request a job: the later one is answered.
            engine.prioritize(&[(alloc.id, alloc.priority)]);
            self.stale = true;
            let name = Fluid(alloc.id);
            return self
                .log
                .push(format!("sched.alloc for job {name} comes a second time"));
        }
        let queued = Jobspec::from_json(alloc.jobspec.get())
            .map_err(|error| error.to_string())
            .and_then(|jobspec| {
                let name = jobspec.queue().unwrap_or_default();
                let queue = *names.entry(name.to_owned()).or_insert_with(|| {
                    let queue = engine.queue(name);
                    engine.set_queue(queue, settings.queue(name));
                    queue
                });
                let job = Job {
                    id: alloc.id,
                    priority: alloc.priority,
                    request: jobspec.request().clone(),
                    queue,
                };
                engine.submit(job).map_err(|error| error.to_string())
            });
        match queued {
            Ok(()) => self.stale = true,
            Err(note) => self.answer(alloc.id, DENY, &json!({ "note": note })),
        }
    }

    /// A job whose request cannot be read is denied; without an id there is only the error that
    /// ends the conversation (RFC 27, Finalization).
    fn malformed_alloc(&mut self, request: &Message, header: Message, error: String) {
        if let Ok(Id { id }) = payload(request) {
            let userid = None;
            self.requests.insert(id, Waiting { header, userid });
            self.answer(id, DENY, &json!({ "note": error }));
        } else {
            self.out.push(Message::error_to(request, EINVAL, &error));
            self.log.push(error);
        }
    }

    pub(crate) fn cancel(&mut self, request: &Message) {
        // Neither a cancel for an unknown job nor one for a job just answered means anything.
        let Ok(Id { id }) = payload(request) else {
            return;
        };
        if self.engine.as_mut().is_some_and(|engine| engine.cancel(id)) {
            self.stale = true;
            self.answer(id, CANCEL, &json!({}));
        } else if self.requests.contains_key(&id) {
            // Its R is on the way to the store: it is cancelled should it not get there.
            self.recalled.insert(id);
        }
    }

    pub(crate) fn prioritize(&mut self, request: &Message) {
        let (Ok(Prioritize { jobs }), Some(engine)) = (payload(request), &mut self.engine) else {
            return;
        };
        engine.prioritize(&jobs);
        self.stale = true;
    }

    /// Gives resources back. Only a free without `R` is answered: today's manager expects none.
    pub(crate) fn free(&mut self, request: &Message) -> Outcome {
        let free: Free = payload(request).map_err(malformed)?;
        let Some(engine) = &mut self.engine else {
            return Ok(None);
        };
        let ranks = match &free.r {
            Some(r) if !free.last => {
                let r = ResourceSet::from_json(r.get());
                Some(r.map_err(|error| malformed(error.to_string()))?.ranks())
            }
            _ => None::<IdSet>,
        };
        if let Err(error) = engine.free(free.id, ranks.as_ref()) {
            self.log.push(format!("sched.free: {error}"));
        }
        self.stale = true;
        Ok(free.r.is_none().then(|| json!({"id": free.id}).to_string()))
    }

    pub(crate) fn expiration(&mut self, request: &Message) -> Outcome {
        let change: Expiration = payload(request).map_err(malformed)?;
        if let Some(engine) = &mut self.engine {
            let changed = engine.set_expiration(change.id, change.expiration);
            changed.map_err(|error| malformed(error.to_string()))?;
        }
        self.out.push(Message::response_to(request, 0, None));
        Ok(None)
    }

    /// The configuration has changed: from the next pass on it is so.
    pub(crate) fn reload(&mut self, request: &Message) -> Outcome {
        let bytes = request.payload_json().unwrap_or(b"{}");
        let text = std::str::from_utf8(bytes).map_err(|error| malformed(error.to_string()))?;
        let settings = Settings::from_json(text).map_err(malformed)?;
        let before = std::mem::replace(&mut self.options.settings, settings);
        if let Some(engine) = &mut self.engine {
            engine.set_options(self.options.settings.engine());
            self.options.settings.set_queues(engine, &before);
        }
        self.stale = true;
        Ok(Some("{}".to_owned()))
    }

    pub(crate) fn feasibility(&mut self, request: &Message) -> Outcome {
        let check: Feasibility = payload(request).map_err(malformed)?;
        let jobspec = Jobspec::from_json(check.jobspec.get());
        let jobspec = jobspec.map_err(|error| malformed(error.to_string()))?;
        let Some(engine) = &mut self.engine else {
            return Err((EAGAIN, "no resources are acquired yet".to_owned()));
        };
        engine.feasible(jobspec.request()).map_err(malformed)?;
        self.out.push(Message::response_to(request, 0, None));
        Ok(None)
    }

    /// Lets the engine decide, if anything has changed since it last did. Denials are answered
    /// at once; allocations go into the store first. Then answers what people have asked. `now` is
    /// in seconds since the epoch. Returns whether there may be more to do.
    pub fn schedule(&mut self, now: f64) -> bool {
        let more = self.pass(now);
        self.answer_questions(now);
        more
    }

    fn pass(&mut self, now: f64) -> bool {
        if !self.stale || self.phase != Phase::Running {
            return false;
        }
        self.stale = false;
        let Some(engine) = &mut self.engine else {
            return false;
        };
        let decisions = engine.schedule(now, BATCH);
        let more = decisions.len() >= BATCH;
        let mut allocated = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Alloc { id, .. } => {
                    self.accuracy.started(id, now);
                    allocated.push(id);
                }
                Decision::Deny { id, note } => self.answer(id, DENY, &json!({ "note": note })),
            }
        }
        if !allocated.is_empty() {
            self.commit(allocated);
        }
        self.stale = more;
        self.pass_ended(now);
        more
    }

    /// Answers an alloc request; anything but an annotation is its last answer.
    pub(crate) fn answer(&mut self, id: u64, kind: u64, extra: &Value) {
        let mut payload = json!({ "id": id, "type": kind });
        if let (Some(payload), Some(extra)) = (payload.as_object_mut(), extra.as_object()) {
            payload.extend(extra.clone());
        }
        let payload = payload.to_string();
        if kind == ANNOTATE {
            if let Some(waiting) = self.requests.get(&id) {
                let payload = Some(Message::json_payload(&payload));
                let response = Message::response_to(&waiting.header, 0, payload);
                self.out.push(response);
            }
        } else {
            self.respond(id, &payload);
        }
    }

    pub(crate) fn respond(&mut self, id: u64, payload: &str) {
        self.recalled.remove(&id);
        self.notes.forget(id);
        self.accuracy.forget(id);
        if let Some(waiting) = self.requests.remove(&id) {
            let payload = Some(Message::json_payload(payload));
            let response = Message::response_to(&waiting.header, 0, payload);
            self.out.push(response);
        }
    }
}
