//! R on its way into the store, which must have it before the job manager hears of it (RFC 27).

use std::fmt::Write as _;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde_json::{Value, json};

use crate::alloc::{CANCEL, DENY, SUCCESS};
use crate::{EINVAL, Scheduler, Sent, describe};

/// Allocations of one commit: whose they are, and their R as text, one after the other.
#[derive(Debug)]
pub(crate) struct Allocated {
    jobs: Vec<(u64, Range<usize>)>,
    text: String,
}

/// Bytes of a job's entry in a commit, without R.
const ENTRY: usize = 120;

impl Scheduler {
    /// Has what jobs get written down.
    pub(crate) fn commit(&mut self, ids: Vec<u64>) {
        let Some(engine) = &mut self.engine else {
            return;
        };
        let mut text = String::new();
        let mut jobs = Vec::with_capacity(ids.len());
        let mut failed = Vec::new();
        for id in ids {
            let start = text.len();
            if let Err(error) = engine.write_r(id, &mut text) {
                text.truncate(start);
                engine.set_aside(id);
                failed.push((id, error.to_string()));
            } else {
                jobs.push((id, start..text.len()));
            }
        }
        for (id, note) in failed {
            self.answer(id, DENY, &json!({ "note": note }));
        }
        if jobs.is_empty() {
            return;
        }
        let size = text.len() / 3 * 4 + (ENTRY + 4) * jobs.len();
        let mut payload = String::with_capacity(size);
        payload.push_str(r#"{"namespace":"primary","flags":0,"ops":["#);
        let mut mark = "";
        for (id, r) in &jobs {
            // Writing to a String does not fail.
            let _ = write!(
                payload,
                r#"{mark}{{"key":"job.{}.R","flags":0,"dirent":{{"ver":1,"type":"val","data":""#,
                Fluid(*id).dothex()
            );
            BASE64.encode_string(&text[r.clone()], &mut payload);
            payload.push_str(r#""}}"#);
            mark = ",";
        }
        payload.push_str("]}");
        let allocated = Allocated { jobs, text };
        self.ask("kvs.commit", &payload, 0, Sent::Commit(allocated));
    }

    /// R is in the store: now the job manager may hear of it.
    pub(crate) fn committed(&mut self, allocated: Allocated, response: &Message) {
        let Allocated { jobs, text } = allocated;
        if response.errnum() == 0 {
            for (id, r) in jobs {
                self.succeed(id, &text[r]);
            }
        } else if jobs.len() > 1 {
            // One bad entry fails a commit as a whole: find out which.
            for (id, _) in jobs {
                self.commit(vec![id]);
            }
        } else {
            let reason = describe(response);
            for (id, _) in jobs {
                if response.errnum() == EINVAL {
                    self.not_committed(id, &reason);
                } else {
                    self.not_wanted(id, &reason);
                }
            }
        }
    }

    fn succeed(&mut self, id: u64, r: &str) {
        let summary = self.summary(id);
        // What a job was told while it waited does not hold any more.
        let mut told = json!({"resource_summary": summary, "reason_pending": null});
        if self.notes.has_start(id) {
            told["t_estimate"] = Value::Null;
        }
        let annotations = json!({ "sched": told });
        // R is JSON text already: it goes in as it is.
        let payload =
            format!("{{\"id\":{id},\"type\":{SUCCESS},\"R\":{r},\"annotations\":{annotations}}}");
        self.respond(id, &payload);
    }

    /// What a job holds, in short.
    fn summary(&self, id: u64) -> String {
        let r = self.engine.as_ref().and_then(|engine| engine.r(id).ok());
        r.map_or_else(String::new, |r| r.summary())
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
    fn not_committed(&mut self, id: u64, reason: &str) {
        let (name, summary) = (Fluid(id), self.summary(id));
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
        } else if let Some(job) = job
            && let Err(error) = engine.submit(job)
        {
            self.log.push(error.to_string());
        }
        self.stale = true;
    }
}
