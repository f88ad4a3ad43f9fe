//! RFC 27 as the scheduler speaks it: requests into the engine, decisions back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_engine::{Decision, Job, QueueId};
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::fluid::Fluid;
use penstock_rset::ResourceSet;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{EAGAIN, EINVAL, Phase, Scheduler, Sent, describe, payload};

/// Alloc response types (RFC 27).
const SUCCESS: u64 = 0;
const ANNOTATE: u64 = 1;
const DENY: u64 = 2;
const CANCEL: u64 = 3;

/// Allocations that go into one commit at the most.
const BATCH: usize = 1024;

/// A decision on its way into the store.
#[derive(Debug)]
pub(crate) struct Allocated {
    id: u64,
    r: String,
    summary: String,
}

#[derive(Deserialize)]
struct Alloc {
    id: u64,
    priority: u32,
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

/// What a request comes to: a payload, no answer, or an error number and a text.
type Outcome = Result<Option<String>, (u32, String)>;

fn malformed(text: String) -> (u32, String) {
    (EINVAL, text)
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
        let known = self.requests.insert(alloc.id, header).is_some();
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
                let job = Job {
                    id: alloc.id,
                    priority: alloc.priority,
                    request: jobspec.request().clone(),
                    queue: QueueId::default(),
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
            self.requests.insert(id, header);
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
    /// at once; allocations go into the store first. Returns whether there may be more to do.
    pub fn schedule(&mut self, now: f64) -> bool {
        if !self.stale || self.phase != Phase::Running {
            return false;
        }
        self.stale = false;
        let Some(engine) = &mut self.engine else {
            return false;
        };
        let decisions = engine.schedule(now, BATCH);
        let more = decisions.len() >= BATCH;
        let head = engine.head();
        let mut allocated = Vec::new();
        let mut denied = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Alloc { id, .. } => match engine.r(id) {
                    Ok(r) => allocated.push(Allocated {
                        id,
                        r: r.to_json(),
                        summary: r.summary(),
                    }),
                    Err(error) => {
                        engine.set_aside(id);
                        denied.push((id, error.to_string()));
                    }
                },
                Decision::Deny { id, note } => denied.push((id, note)),
            }
        }
        for (id, note) in denied {
            self.answer(id, DENY, &json!({ "note": note }));
        }
        if !allocated.is_empty() {
            self.commit(allocated);
        }
        if more {
            self.stale = true;
        } else if let Some(id) = head.filter(|id| self.blocked != Some(*id)) {
            self.blocked = Some(id);
            let reason = json!({"sched": {"reason_pending": "insufficient resources"}});
            self.answer(id, ANNOTATE, &json!({ "annotations": reason }));
        }
        more
    }

    fn commit(&mut self, allocated: Vec<Allocated>) {
        let ops: Vec<Value> = allocated
            .iter()
            .map(|it| {
                let key = format!("job.{}.R", Fluid(it.id).dothex());
                let dirent = json!({"ver": 1, "type": "val", "data": BASE64.encode(&it.r)});
                json!({"key": key, "flags": 0, "dirent": dirent})
            })
            .collect();
        let payload = json!({"namespace": "primary", "flags": 0, "ops": ops}).to_string();
        self.ask("kvs.commit", &payload, 0, Sent::Commit(allocated));
    }

    /// R is in the store: now the job manager may hear of it.
    pub(crate) fn committed(&mut self, mut allocated: Vec<Allocated>, response: &Message) {
        if response.errnum() == 0 {
            for Allocated { id, r, summary } in allocated {
                self.succeed(id, &r, &summary);
            }
        } else if allocated.len() > 1 {
            // One bad entry fails a commit as a whole: find out which.
            for one in allocated.drain(..) {
                self.commit(vec![one]);
            }
        } else {
            let reason = describe(response);
            for Allocated { id, summary, .. } in allocated {
                if response.errnum() == EINVAL {
                    self.not_committed(id, &summary, &reason);
                } else {
                    self.not_wanted(id, &reason);
                }
            }
        }
    }

    fn succeed(&mut self, id: u64, r: &str, summary: &str) {
        if self.blocked == Some(id) {
            self.blocked = None;
        }
        // R is JSON text already: it goes in as it is.
        let annotations = json!({
            "sched": {"resource_summary": summary, "reason_pending": null}
        });
        let payload =
            format!("{{\"id\":{id},\"type\":{SUCCESS},\"R\":{r},\"annotations\":{annotations}}}");
        self.respond(id, &payload);
    }

    /// The store takes no R for this job, whatever it is: what it was to get is free again.
    fn not_wanted(&mut self, id: u64, reason: &str) {
        let name = Fluid(id);
        self.log.push(format!("job {name} gets nothing: {reason}"));
        if let Some(engine) = &mut self.engine
            && let Err(error) = engine.free(id, None)
        {
            self.log.push(error.to_string());
        }
        if self.recalled.contains(&id) {
            self.answer(id, CANCEL, &json!({}));
        } else {
            self.answer(id, DENY, &json!({ "note": reason }));
        }
        self.stale = true;
    }

    /// The store does not take a job's R: somebody else has these resources, or they have left
    /// the inventory. The job gets others; these are given to nobody until the next start.
    fn not_committed(&mut self, id: u64, summary: &str, reason: &str) {
        let name = Fluid(id);
        self.log.push(format!(
            "{summary} set aside, job {name} is queued again: {reason}"
        ));
        let Some(engine) = &mut self.engine else {
            return;
        };
        let job = engine.job(id);
        engine.set_aside(id);
        if self.recalled.contains(&id) {
            self.answer(id, CANCEL, &json!({}));
        } else if let Some(Err(error)) = job.map(|job| engine.submit(job)) {
            self.log.push(error.to_string());
        }
        self.stale = true;
    }

    /// Answers an alloc request; anything but an annotation is its last answer.
    fn answer(&mut self, id: u64, kind: u64, extra: &Value) {
        let mut payload = json!({ "id": id, "type": kind });
        if let (Some(payload), Some(extra)) = (payload.as_object_mut(), extra.as_object()) {
            payload.extend(extra.clone());
        }
        let payload = payload.to_string();
        if kind == ANNOTATE {
            if let Some(request) = self.requests.get(&id) {
                let payload = Some(Message::json_payload(&payload));
                self.out.push(Message::response_to(request, 0, payload));
            }
        } else {
            if self.blocked == Some(id) {
                self.blocked = None;
            }
            self.respond(id, &payload);
        }
    }

    fn respond(&mut self, id: u64, payload: &str) {
        self.recalled.remove(&id);
        if let Some(request) = self.requests.remove(&id) {
            let payload = Some(Message::json_payload(payload));
            self.out.push(Message::response_to(&request, 0, payload));
        }
    }
}
