//! What users do to jobs after submission: raise an exception (cancel), signal.

use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::exception::Raised;
use crate::job::Exec;
use crate::manager::Manager;
use crate::priority::summary;
use crate::rpc::{self, EINVAL, ENOENT, EPERM, RequestError};
use crate::state::State;

#[derive(Deserialize)]
struct Raise {
    id: Option<u64>,
    ids: Option<Vec<u64>>,
    #[serde(default)]
    all: bool,
    userid: Option<u32>,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    severity: i64,
    #[serde(default)]
    note: String,
    wait_status: Option<u16>,
}

#[derive(Deserialize)]
struct Kill {
    id: Option<u64>,
    ids: Option<Vec<u64>>,
    signum: i32,
}

impl Manager {
    /// Refuses everybody but the instance owner.
    pub(crate) fn owner_only(&self, request: &Message) -> Result<(), RequestError> {
        if request.userid == self.settings.owner {
            return Ok(());
        }
        let text = format!("{}: only the instance owner may do this", request.topic());
        Err(RequestError::new(EPERM, text))
    }

    /// A job that the asker may change: it is not over.
    pub(crate) fn active(&self, request: &Message, id: u64) -> Result<(), RequestError> {
        self.may_see(request, id)?;
        let state = self.jobs.get(&id).map(|job| job.state);
        if state == Some(State::Inactive) {
            let text = format!("job {} is inactive", Fluid(id));
            return Err(RequestError::new(ENOENT, text));
        }
        Ok(())
    }

    /// `job-manager.raise` for one job, for several, or for all active ones.
    pub(crate) fn raise(&mut self, request: &Message, now: f64) -> Result<Value, RequestError> {
        let raise: Raise = rpc::payload(request)?;
        if !(0..=7).contains(&raise.severity) {
            let text = format!(
                "severity {} is out of range: expected 0 to 7",
                raise.severity
            );
            return Err(RequestError::new(EINVAL, text));
        }
        if raise.kind.is_empty() || !raise.kind.chars().all(|it| it.is_ascii_graphic()) {
            let text = format!("invalid exception type `{}`", raise.kind.escape_debug());
            return Err(RequestError::new(EINVAL, text));
        }
        if let Some(id) = raise.id {
            self.active(request, id)?;
            self.raise_one(id, &raise, request.userid, now);
            return Ok(Value::Null);
        }
        let owner = request.userid == self.settings.owner;
        let ids = match &raise.ids {
            Some(ids) => ids.clone(),
            None if raise.all => {
                let of = raise.userid.or((!owner).then_some(request.userid));
                let active = self.jobs.values().filter(|job| {
                    job.state != State::Inactive && of.is_none_or(|userid| job.userid == userid)
                });
                active.map(|job| job.id).collect()
            }
            None => return Err(RequestError::new(EINVAL, "expected `id`, `ids` or `all`")),
        };
        let mut count = 0;
        let mut errors = Map::new();
        for id in ids {
            match self.active(request, id) {
                Ok(()) => {
                    self.raise_one(id, &raise, request.userid, now);
                    count += 1;
                }
                Err(refusal) => {
                    errors.insert(id.to_string(), refusal.text.into());
                }
            }
        }
        Ok(summary(count, &errors))
    }

    fn raise_one(&mut self, id: u64, raise: &Raise, userid: u32, now: f64) {
        let raised = Raised {
            kind: &raise.kind,
            severity: raise.severity,
            note: &raise.note,
            userid,
            wait_status: raise.wait_status.map(i32::from),
        };
        self.raise_exception(id, now, &raised);
    }

    /// `job-manager.kill`: a signal for the tasks of a job, or of several, by way of the execution
    /// service.
    pub(crate) fn kill(&mut self, request: &Message) -> Result<Value, RequestError> {
        let kill: Kill = rpc::payload(request)?;
        if !(1..=64).contains(&kill.signum) {
            let text = format!("signal {} is out of range: expected 1 to 64", kill.signum);
            return Err(RequestError::new(EINVAL, text));
        }
        let ids = match (kill.id, kill.ids) {
            (Some(id), None) => {
                self.kill_one(request, id, kill.signum)?;
                return Ok(json!({}));
            }
            (None, Some(ids)) => ids,
            _ => return Err(RequestError::new(EINVAL, "expected `id` or `ids`")),
        };
        let mut count = 0;
        let mut errors = Map::new();
        for id in ids {
            match self.kill_one(request, id, kill.signum) {
                Ok(()) => count += 1,
                Err(refusal) => {
                    errors.insert(id.to_string(), refusal.text.into());
                }
            }
        }
        Ok(summary(count, &errors))
    }

    fn kill_one(&mut self, request: &Message, id: u64, signum: i32) -> Result<(), RequestError> {
        self.active(request, id)?;
        // One that waits for its prolog has nothing yet that a signal could reach.
        let running = self
            .jobs
            .get(&id)
            .is_some_and(|job| job.state == State::Run && job.exec == Exec::Requested);
        let topic = self.executor.topic("kill").filter(|_| running);
        let Some(topic) = topic else {
            let text = format!("job {} is not running", Fluid(id));
            return Err(RequestError::new(EINVAL, text));
        };
        let payload = json!({"id": id, "signum": signum}).to_string();
        let message = Message::request(&topic, &payload);
        self.out.push(rpc::unanswered(message));
        Ok(())
    }
}
