//! `job-ingest.submit`: one jobspec, many copies of one, or many jobspecs in one request.

use std::borrow::Cow;
use std::sync::Arc;

use penstock_jobspec::Jobspec;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::event::Event;
use crate::job::{Job, Spec};
use crate::manager::{Manager, milliseconds};
use crate::policy;
use crate::rpc::{EINVAL, EPERM, EPROTO, RequestError};
use crate::signed;

/// The highest urgency of a guest's job (RFC 30).
const GUEST_URGENCY: i64 = 16;
/// The most jobs that one submission may make.
const MAX_COUNT: u64 = 10_000_000;

#[derive(Deserialize)]
struct Submission<'a> {
    #[serde(borrow)]
    jobspec: Option<&'a RawValue>,
    /// In place of `jobspec`: the same, signed (RFC 15), as Flux's own tools send it.
    #[serde(borrow, rename = "J")]
    signed: Option<Cow<'a, str>>,
    urgency: Option<i64>,
    #[serde(default)]
    flags: u32,
    count: Option<u64>,
    #[serde(borrow)]
    jobs: Option<Vec<&'a RawValue>>,
}

fn read(text: &str) -> Result<Submission<'_>, RequestError> {
    serde_json::from_str(text)
        .map_err(|error| RequestError::new(EPROTO, format!("malformed submission: {error}")))
}

impl Manager {
    /// Takes jobs in. The ids are told when the jobs are on disk.
    pub(crate) fn submit(&mut self, request: &Message, now: f64) -> Result<Value, RequestError> {
        let payload = request.payload_json().unwrap_or(b"{}");
        let text = std::str::from_utf8(payload)
            .map_err(|error| RequestError::new(EPROTO, format!("malformed submission: {error}")))?;
        let submission = read(text)?;
        if let Some(jobs) = &submission.jobs {
            let results = jobs.iter().map(|job| {
                let ids = read(job.get()).and_then(|job| self.take_in(request, &job, now));
                match ids {
                    Ok(ids) => json!({ "ids": ids }),
                    Err(refusal) => json!({ "error": refusal.text }),
                }
            });
            let results: Vec<Value> = results.collect();
            return Ok(json!({ "results": results }));
        }
        let ids = self.take_in(request, &submission, now)?;
        Ok(match (submission.count, ids.as_slice()) {
            (None, [id]) => json!({ "id": id }),
            _ => json!({ "ids": ids }),
        })
    }

    fn take_in(
        &mut self,
        request: &Message,
        submission: &Submission<'_>,
        now: f64,
    ) -> Result<Vec<u64>, RequestError> {
        let userid = request.userid;
        let urgency = submission.urgency.unwrap_or(16);
        self.check_submitter(userid, urgency)?;
        let count = submission.count.unwrap_or(1);
        if !(1..=MAX_COUNT).contains(&count) {
            let text = format!("count {count} is out of range: expected 1 to {MAX_COUNT}");
            return Err(RequestError::new(EINVAL, text));
        }
        let spec = match (submission.jobspec, &submission.signed) {
            (Some(jobspec), None) => self.take_spec(jobspec.get(), userid, false)?,
            (None, Some(signed)) => {
                let text = signed::unwrap(signed, userid, self.settings.owner)?;
                self.take_spec(&text, userid, false)?
            }
            (None, None) => {
                return Err(RequestError::new(EPROTO, "the submission has no `jobspec`"));
            }
            (Some(_), Some(_)) => {
                let text = "the submission has both `jobspec` and `J`";
                return Err(RequestError::new(EPROTO, text));
            }
        };
        let context = json!({
            "userid": userid,
            "urgency": urgency,
            "flags": submission.flags,
            "version": 1,
        });
        let ids: Vec<u64> = (0..count).map(|_| self.next_id(now)).collect();
        for id in &ids {
            let stored = self.store.add_job(*id, userid, now, spec.key);
            self.keep(stored);
            self.admit(Job::new(*id, userid, Arc::clone(&spec)));
            self.post(*id, &Event::with(now, "submit", context.clone()));
            self.revisit(*id);
        }
        Ok(ids)
    }

    fn check_submitter(&self, userid: u32, urgency: i64) -> Result<(), RequestError> {
        let guest = userid != self.settings.owner;
        if guest && !self.settings.guests {
            let text = "this instance runs jobs of its owner only";
            return Err(RequestError::new(EPERM, text));
        }
        if !(0..=31).contains(&urgency) {
            let text = format!("urgency {urgency} is out of range: expected 0 to 31");
            return Err(RequestError::new(EINVAL, text));
        }
        if guest && urgency > GUEST_URGENCY {
            let text = format!("urgency {urgency}: only the instance owner may go above 16");
            return Err(RequestError::new(EPERM, text));
        }
        Ok(())
    }

    /// Validates a jobspec, fills in the site's defaults and stores it. What joins another job is
    /// not held to the limits of a job's size: that job is.
    pub(crate) fn take_spec(
        &mut self,
        text: &str,
        userid: u32,
        joins: bool,
    ) -> Result<Arc<Spec>, RequestError> {
        let invalid = |error: &dyn std::fmt::Display| RequestError::new(EINVAL, error.to_string());
        let mut jobspec = Jobspec::from_json(text).map_err(|error| invalid(&error))?;
        let filled = policy::fill_in(text, &jobspec, &self.settings);
        let filled = filled.map_err(|error| invalid(&error))?;
        let text = filled.as_deref().unwrap_or(text);
        if filled.is_some() {
            jobspec = Jobspec::from_json(text).map_err(|error| invalid(&error))?;
        }
        if joins {
            policy::check_duration(jobspec.duration(), jobspec.queue(), &self.settings)?;
        } else {
            policy::check(&jobspec, &self.settings)?;
        }
        self.queues.check_enabled(jobspec.queue())?;
        let redacted = policy::redact(text, &self.settings, jobspec.queue());
        let redacted = redacted.map_err(|error| invalid(&error))?;
        let spec = Spec::new(0, &jobspec, redacted);
        self.check_dependencies(&spec.dependencies, userid)?;
        let stored = self.store.add_jobspec(text);
        let key = self.keep(stored);
        Ok(Arc::new(Spec { key, ..spec }))
    }

    pub(crate) fn next_id(&mut self, now: f64) -> u64 {
        let since_epoch = milliseconds(now).saturating_sub(self.epoch_ms);
        self.ids.next(since_epoch)
    }
}
