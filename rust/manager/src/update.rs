//! Changes to a job after its submission: its time limit, and what is put on record with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_jobspec::Jobspec;
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::elastic::Number;
use crate::event::Event;
use crate::job::{Alloc, Exec, Spec};
use crate::manager::Manager;
use crate::policy;
use crate::rpc::{self, EINVAL, ENOENT, ENOSYS, EPERM, RequestError};
use crate::state::State;

/// The one attribute that can be changed.
const DURATION: &str = "attributes.system.duration";

/// Who wants a job to end at another time.
#[derive(Debug)]
pub(crate) enum By {
    /// The manager itself.
    Nobody,
    /// Who sent this `job-manager.update`.
    Update(Message),
    /// A request for so many seconds more.
    Elastic(Number, u32),
}

/// A scheduler that has been asked whether a running job may end at another time.
#[derive(Debug)]
struct Asked {
    id: u64,
    duration: f64,
    expiration: f64,
    by: By,
}

/// The outstanding `sched.expiration` requests, by matchtag.
#[derive(Debug, Default)]
pub struct Updates {
    asked: BTreeMap<u32, Asked>,
    tag: u32,
}

#[derive(Deserialize)]
struct Update {
    id: u64,
    updates: Map<String, Value>,
}

#[derive(Deserialize)]
struct Memo {
    id: u64,
    memo: Map<String, Value>,
}

fn refuse(text: impl Into<String>) -> RequestError {
    RequestError::new(EINVAL, text)
}

/// The new duration in seconds; 0 is none.
fn wanted_duration(updates: &Map<String, Value>) -> Result<f64, RequestError> {
    if let Some(other) = updates.keys().find(|key| *key != DURATION) {
        let text = format!("`{other}` cannot be updated: expected `{DURATION}`");
        return Err(refuse(text));
    }
    let value = updates.get(DURATION);
    let value = value.ok_or_else(|| refuse(format!("expected the update `{DURATION}`")))?;
    let seconds = value.as_f64().filter(|it| it.is_finite() && *it >= 0.0);
    seconds.ok_or_else(|| refuse(format!("`{DURATION}`: expected seconds, found `{value}`")))
}

impl Manager {
    /// `job-manager.memo`: what is put on record with a job; null takes a key away again.
    pub(crate) fn memo(&mut self, request: &Message, now: f64) -> Result<Value, RequestError> {
        let memo: Memo = rpc::payload(request)?;
        self.active(request, memo.id)?;
        let context = Value::Object(memo.memo);
        self.post(memo.id, &Event::with(now, "memo", context));
        Ok(Value::Null)
    }

    /// `job-manager.update`: another time limit. For a running job the answer comes when the
    /// scheduler has agreed.
    pub(crate) fn update(&mut self, request: &Message, now: f64) {
        match self.take_update(request, now) {
            Ok(true) => self.respond(request, None),
            Ok(false) => {}
            Err(refusal) => self.refuse(request, &refusal),
        }
    }

    /// Whether the update is done; it is not yet where the scheduler is asked.
    fn take_update(&mut self, request: &Message, now: f64) -> Result<bool, RequestError> {
        let update: Update = rpc::payload(request)?;
        let id = update.id;
        self.active(request, id)?;
        let duration = wanted_duration(&update.updates)?;
        let Some(job) = self.jobs.get(&id) else {
            return Err(RequestError::new(ENOENT, ""));
        };
        let owner = request.userid == self.settings.owner;
        let (state, queue) = (job.state, job.spec.queue.clone());
        if !owner {
            if state > State::Sched {
                let text = "only the instance owner may change the duration of a running job";
                return Err(RequestError::new(EPERM, text));
            }
            policy::check_duration(duration, queue.as_deref(), &self.settings)?;
        }
        match state {
            State::Run => {
                let by = By::Update(request.clone());
                self.ask_expiration(id, duration, by, now)
            }
            State::Cleanup | State::Inactive => Err(refuse(format!("job {} has ended", Fluid(id)))),
            _ => {
                self.set_duration(id, duration, now)?;
                Ok(true)
            }
        }
    }

    /// Writes the new time limit into the job's jobspec; a request for resources starts anew.
    fn set_duration(&mut self, id: u64, duration: f64, now: f64) -> Result<(), RequestError> {
        let Some(job) = self.jobs.get(&id) else {
            return Ok(());
        };
        let text = self.store.jobspec(job.spec.key);
        let text = self
            .keep(text)
            .ok_or_else(|| refuse("the jobspec is not in the store"))?;
        let text = policy::with_duration(&text, duration).map_err(|it| refuse(it.to_string()))?;
        self.replace_spec(id, &text)?;
        let context = json!({ DURATION: duration });
        self.post(id, &Event::with(now, "jobspec-update", context));
        if self.jobs.get(&id).is_some_and(|it| it.state < State::Run) {
            self.withdraw(id);
            self.revisit(id);
        }
        Ok(())
    }

    /// Gives a job another jobspec.
    pub(crate) fn replace_spec(&mut self, id: u64, text: &str) -> Result<(), RequestError> {
        let jobspec = Jobspec::from_json(text).map_err(|it| refuse(it.to_string()))?;
        let redacted = policy::redact(text, &self.settings, jobspec.queue());
        let redacted = redacted.map_err(|it| refuse(it.to_string()))?;
        let stored = self.store.add_jobspec(text);
        let key = self.keep(stored);
        let stored = self.store.set_spec(id, key);
        self.keep(stored);
        let spec = Arc::new(Spec::new(key, &jobspec, redacted));
        if let Some(job) = self.jobs.get_mut(&id) {
            job.outdated = matches!(job.alloc, Alloc::Requested | Alloc::Canceling);
            let old = std::mem::replace(&mut job.spec, spec);
            self.drop_spec(old);
        }
        Ok(())
    }

    /// Removes a jobspec from the store once nobody refers to it any more.
    pub(crate) fn drop_spec(&mut self, spec: Arc<Spec>) {
        if let Some(spec) = Arc::into_inner(spec) {
            let stored = self.store.remove_jobspec(spec.key);
            self.keep(stored);
        }
    }

    /// Asks the scheduler whether a running job may end at another time. Where none is ready
    /// nobody has anything against it. Returns whether it is done.
    pub(crate) fn ask_expiration(
        &mut self,
        id: u64,
        duration: f64,
        by: By,
        now: f64,
    ) -> Result<bool, RequestError> {
        let Some(job) = self.jobs.get(&id) else {
            return Ok(true);
        };
        if self.is_being_updated(id) {
            let text = format!("job {} is being updated already", Fluid(id));
            return Err(RequestError::new(rpc::EBUSY, text));
        }
        let began = job.r.as_ref().and_then(|r| r.starttime());
        let began = began.filter(|it| *it > 0.0).unwrap_or(job.t_run);
        let expiration = if duration > 0.0 {
            began + duration
        } else {
            0.0
        };
        self.updates.tag = self.updates.tag % 0x7fff_ffff + 1;
        let tag = self.updates.tag;
        let asked = Asked {
            id,
            duration,
            expiration,
            by,
        };
        let payload = json!({"id": id, "expiration": expiration}).to_string();
        let message = Message::request("sched.expiration", &payload).with_matchtag(tag);
        let ready = self.allocator.is_ready();
        if ready {
            self.updates.asked.insert(tag, asked);
        } else {
            self.set_expiration(&asked, now)?;
        }
        self.tell_scheduler(message);
        Ok(!ready)
    }

    /// A response to `sched.expiration`: an error leaves the job as it is. A scheduler that does
    /// not know the method has nothing against it (RFC 27).
    pub(crate) fn expiration_response(&mut self, response: &Message, now: f64) {
        let Some(asked) = self.updates.asked.remove(&response.matchtag) else {
            return;
        };
        let outcome = match response.errnum() {
            0 | ENOSYS => self.set_expiration(&asked, now),
            errnum => {
                let text = response.error_text().unwrap_or_default();
                Err(RequestError::new(
                    errnum,
                    format!("the scheduler refuses the update: {text}"),
                ))
            }
        };
        self.answer_update(asked, outcome, now);
    }

    fn answer_update(&mut self, asked: Asked, outcome: Result<(), RequestError>, now: f64) {
        match (asked.by, outcome) {
            (By::Update(request), Ok(())) => self.respond(&request, None),
            (By::Update(request), Err(refusal)) => self.refuse(&request, &refusal),
            (By::Elastic(number, granted), outcome) => {
                self.time_answered(number, granted, outcome, now);
            }
            (By::Nobody, Ok(())) => {}
            (By::Nobody, Err(refusal)) => {
                let name = Fluid(asked.id);
                self.note(format!("expiration of job {name}: {}", refusal.text));
            }
        }
        self.retry_times(asked.id, now);
    }

    /// Whether the scheduler is being asked when the job may end.
    pub(crate) fn is_being_updated(&self, id: u64) -> bool {
        self.updates.asked.values().any(|asked| asked.id == id)
    }

    /// The scheduler is gone: what it was asked is not answered any more.
    pub(crate) fn forget_expirations(&mut self, now: f64) {
        for asked in std::mem::take(&mut self.updates.asked).into_values() {
            let text = "the scheduler went away before it agreed: try again";
            self.answer_update(asked, Err(RequestError::new(rpc::EAGAIN, text)), now);
        }
    }

    fn set_expiration(&mut self, asked: &Asked, now: f64) -> Result<(), RequestError> {
        let id = asked.id;
        let job = self.jobs.get_mut(&id).filter(|it| it.state == State::Run);
        let Some((job, r)) = job.and_then(|job| {
            let r = job.r.as_ref()?.as_ref().clone();
            Some((job, r))
        }) else {
            let text = format!("job {} is not running any more", Fluid(id));
            return Err(refuse(text));
        };
        let mut r = r;
        r.set_expiration(Some(asked.expiration))
            .map_err(|error| refuse(error.to_string()))?;
        let text = r.to_json();
        job.r = Some(Arc::new(r));
        if let Some(extent) = job.flex.as_mut().and_then(|it| it.extent.as_mut()) {
            let mut longer = extent.as_ref().clone();
            if longer.set_expiration(Some(asked.expiration)).is_ok() {
                *extent = Arc::new(longer);
            }
        }
        let (running, now_limited) = (job.exec == Exec::Requested, job.spec.duration);
        let stored = self.store.set_r(id, &text);
        self.keep(stored);
        #[allow(clippy::float_cmp, reason = "the same number, or another limit")]
        if now_limited != asked.duration {
            self.set_duration(id, asked.duration, now)?;
        }
        let context = json!({ "expiration": asked.expiration });
        self.post(id, &Event::with(now, "resource-update", context));
        self.follow_expiration(id, asked.expiration, now);
        if let Some(topic) = self.executor.topic("expiration").filter(|_| running) {
            let payload = json!({"id": id, "expiration": asked.expiration}).to_string();
            self.out
                .push(rpc::unanswered(Message::request(&topic, &payload)));
        }
        Ok(())
    }

    /// The job has resources: were they given for the time limit that it has now? An answer of
    /// the scheduler may have crossed an update.
    pub(crate) fn check_expiration(&mut self, id: u64, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if !std::mem::take(&mut job.outdated) || job.alloc != Alloc::Allocated {
            return;
        }
        let duration = job.spec.duration;
        if let Err(refusal) = self.ask_expiration(id, duration, By::Nobody, now) {
            self.note(refusal.text);
        }
    }
}
