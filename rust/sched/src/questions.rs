//! What people ask: why a job waits, when it will start, what would come of a change.
//!
//! Questions are answered from what a pass has left, never in the middle of one.

use penstock_engine::{Accuracy, Band};
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde_json::{Map, Value, json};

use crate::fields::Fields;
use crate::{EAGAIN, EPERM, Outcome, Phase, ROLE_OWNER, Scheduler, malformed};

/// Whether a request is a question.
pub(crate) fn is_one(request: &Message) -> bool {
    matches!(
        request.topic(),
        "sched.explain" | "sched.estimate" | "sched.what-if"
    )
}

/// Who asks.
#[derive(Clone, Copy)]
pub(crate) struct Asker {
    pub owner: bool,
    userid: u32,
}

impl Asker {
    fn of(request: &Message) -> Self {
        Self {
            owner: request.rolemask & ROLE_OWNER != 0,
            userid: request.userid,
        }
    }
}

impl Scheduler {
    /// Answers what has been asked since the last time.
    pub(crate) fn answer_questions(&mut self, now: f64) {
        for request in std::mem::take(&mut self.questions) {
            let outcome = self.question(&request, now);
            self.reply(&request, outcome);
        }
    }

    fn question(&mut self, request: &Message, now: f64) -> Outcome {
        if self.phase != Phase::Running {
            return Err((EAGAIN, "the scheduler is not ready yet".to_owned()));
        }
        let fields = Fields::of(request).map_err(malformed)?;
        let asker = Asker::of(request);
        let answer = match request.topic() {
            "sched.explain" => self.explain(&fields, asker, now)?,
            "sched.estimate" => self.estimate(&fields, asker, now)?,
            _ => self.what_if(&fields, asker, now)?,
        };
        Ok(Some(answer.to_string()))
    }

    /// Of these jobs those that the asker may ask about, and for the others why not.
    fn sort_out(&self, ids: Vec<u64>, asker: Asker) -> (Vec<u64>, Map<String, Value>) {
        let mut errors = Map::new();
        let mut jobs = Vec::with_capacity(ids.len());
        for id in ids {
            let name = Fluid(id);
            let waits = self.engine.as_ref().is_some_and(|it| it.is_queued(id));
            let userid = self.requests.get(&id).map(|it| it.userid);
            let text = match userid {
                Some(userid) if !asker.owner && userid != Some(asker.userid) => {
                    format!("job {name} is another user's")
                }
                Some(_) if waits => {
                    jobs.push(id);
                    continue;
                }
                Some(_) => format!("job {name} gets its resources now"),
                None => format!("job {name} does not wait for resources"),
            };
            errors.insert(id.to_string(), text.into());
        }
        (jobs, errors)
    }

    fn explain(&mut self, fields: &Fields, asker: Asker, now: f64) -> Result<Value, (u32, String)> {
        let ids = fields.jobs().map_err(malformed)?;
        let ids = ids.ok_or_else(|| malformed("ids: expected a list of job ids".to_owned()))?;
        let (ids, errors) = self.sort_out(ids, asker);
        let starts = self.starts(&ids, now);
        let band = self.accuracy.band();
        let mut jobs = Vec::with_capacity(ids.len());
        for (id, start) in ids.into_iter().zip(starts) {
            let mut row = self.reason(id, now);
            self.add_start(&mut row, now, start, band);
            jobs.push(row);
        }
        Ok(json!({ "jobs": jobs, "errors": errors }))
    }

    fn estimate(
        &mut self,
        fields: &Fields,
        asker: Asker,
        now: f64,
    ) -> Result<Value, (u32, String)> {
        let most = fields.whole("max_entries").map_err(malformed)?;
        let (ids, errors) = match fields.jobs().map_err(malformed)? {
            Some(ids) => self.sort_out(ids, asker),
            None if asker.owner => (self.first_in_line(most), Map::new()),
            None => {
                let text = "only the instance owner may ask for all jobs: name yours in `ids`";
                return Err((EPERM, text.to_owned()));
            }
        };
        let starts = self.starts(&ids, now);
        let band = self.accuracy.band();
        let mut jobs = Vec::with_capacity(ids.len());
        for (id, start) in ids.into_iter().zip(starts) {
            let mut row = json!({ "id": id });
            if start.is_none() {
                row["reason"] = self.reason(id, now)["reason"].take();
            }
            self.add_start(&mut row, now, start, band);
            jobs.push(row);
        }
        Ok(json!({ "jobs": jobs, "accuracy": described(&self.accuracy), "errors": errors }))
    }

    /// Puts the start that is expected, and how far it may be off, into a row.
    fn add_start(&mut self, row: &mut Value, now: f64, start: Option<f64>, band: Option<Band>) {
        row["start"] = json!(start);
        let Some(start) = start else {
            return;
        };
        if let Some(id) = row["id"].as_u64() {
            self.accuracy.expect(id, now, start);
        }
        if let Some((earliest, latest)) = band.and_then(|it| it.around(now, start)) {
            row["earliest"] = json!(earliest);
            row["latest"] = json!(latest);
        }
    }
}

/// How good estimates have been, in numbers: seconds by which starts were late.
pub(crate) fn described(accuracy: &Accuracy) -> Value {
    let errors = accuracy.errors();
    json!({
        "count": errors.count,
        "mean": errors.mean,
        "low": errors.low,
        "median": errors.median,
        "high": errors.high,
    })
}
