//! The order of jobs (RFC 30): urgency, which the user gives, and priority, which comes of it or
//! is assigned by the instance owner.

use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::event::Event;
use crate::job::Alloc;
use crate::manager::Manager;
use crate::rpc::{self, EINVAL, ENOENT, EPERM, RequestError};
use crate::state::State;

/// The urgency of a job that is held.
const HOLD: u8 = 0;
/// The urgency that means "now".
const EXPEDITE: u8 = 31;
/// The highest urgency of a guest's job.
pub(crate) const GUEST_URGENCY: i64 = 16;

/// The priority that an urgency stands for: held is 0, expedited the greatest.
pub(crate) fn priority_of(urgency: u8) -> u32 {
    match urgency {
        EXPEDITE.. => u32::MAX,
        urgency => u32::from(urgency),
    }
}

#[derive(Deserialize)]
struct Urgency {
    id: Option<u64>,
    ids: Option<Vec<u64>>,
    #[serde(rename = "urgency")]
    value: i64,
}

#[derive(Deserialize)]
struct Prioritize {
    jobs: Vec<(u64, i64)>,
}

/// A request for several jobs is answered with what was done and what was not.
pub(crate) fn summary(count: u64, errors: &Map<String, Value>) -> Value {
    json!({ "count": count, "errors": errors })
}

impl Manager {
    /// `job-manager.urgency`: a new place in the queue for jobs without resources.
    pub(crate) fn set_urgency(
        &mut self,
        request: &Message,
        now: f64,
    ) -> Result<Value, RequestError> {
        let wanted: Urgency = rpc::payload(request)?;
        let urgency = u8::try_from(wanted.value).ok().filter(|it| *it <= EXPEDITE);
        let Some(urgency) = urgency else {
            let text = format!("urgency {} is out of range: expected 0 to 31", wanted.value);
            return Err(RequestError::new(EINVAL, text));
        };
        if request.userid != self.settings.owner && wanted.value > GUEST_URGENCY {
            let text = format!("urgency {urgency}: only the instance owner may go above 16");
            return Err(RequestError::new(EPERM, text));
        }
        let ids = match (wanted.id, wanted.ids) {
            (Some(id), None) => {
                let old = self.urgency_of_one(request, id, urgency, now)?;
                return Ok(json!({ "old": old }));
            }
            (None, Some(ids)) => ids,
            _ => return Err(RequestError::new(EINVAL, "expected `id` or `ids`")),
        };
        let mut count = 0;
        let mut errors = Map::new();
        for id in ids {
            match self.urgency_of_one(request, id, urgency, now) {
                Ok(_) => count += 1,
                Err(refusal) => {
                    errors.insert(id.to_string(), refusal.text.into());
                }
            }
        }
        Ok(summary(count, &errors))
    }

    fn urgency_of_one(
        &mut self,
        request: &Message,
        id: u64,
        urgency: u8,
        now: f64,
    ) -> Result<u8, RequestError> {
        self.active(request, id)?;
        let (old, _) = self.in_front_of_resources(id, "urgency")?;
        let context = json!({"urgency": urgency, "userid": request.userid});
        self.post(id, &Event::with(now, "urgency", context));
        self.put_in_order(id, priority_of(urgency), now);
        Ok(old)
    }

    /// `job-manager.prioritize`: priorities in place of those that the urgencies stand for. They
    /// hold until the urgency changes. Held and expedited jobs keep theirs (RFC 30).
    pub(crate) fn prioritize(
        &mut self,
        request: &Message,
        now: f64,
    ) -> Result<Value, RequestError> {
        self.owner_only(request)?;
        let wanted: Prioritize = rpc::payload(request)?;
        let mut count = 0;
        let mut errors = Map::new();
        for (id, priority) in wanted.jobs {
            match self.prioritize_one(request, id, priority, now) {
                Ok(()) => count += 1,
                Err(refusal) => {
                    errors.insert(id.to_string(), refusal.text.into());
                }
            }
        }
        Ok(summary(count, &errors))
    }

    fn prioritize_one(
        &mut self,
        request: &Message,
        id: u64,
        priority: i64,
        now: f64,
    ) -> Result<(), RequestError> {
        self.active(request, id)?;
        let Ok(priority) = u32::try_from(priority) else {
            let text = format!("priority {priority} is out of range: expected 0 to 4294967295");
            return Err(RequestError::new(EINVAL, text));
        };
        let (urgency, state) = self.in_front_of_resources(id, "priority")?;
        let fixed = match urgency {
            HOLD => "held",
            EXPEDITE => "expedited",
            _ if state < State::Sched => "not in state SCHED yet",
            _ => "",
        };
        if !fixed.is_empty() {
            let text = format!("priority cannot be assigned: the job is {fixed}");
            return Err(RequestError::new(EINVAL, text));
        }
        self.put_in_order(id, priority, now);
        Ok(())
    }

    /// Urgency and state of a job that has no resources yet.
    fn in_front_of_resources(&self, id: u64, what: &str) -> Result<(u8, State), RequestError> {
        let Some(job) = self.jobs.get(&id) else {
            return Err(RequestError::new(ENOENT, ""));
        };
        if job.alloc == Alloc::Allocated || job.state > State::Sched {
            let text = format!("{what} cannot be changed once resources are allocated");
            return Err(RequestError::new(EINVAL, text));
        }
        Ok((job.urgency, job.state))
    }

    /// Gives a job in SCHED its priority and tells the scheduler.
    fn put_in_order(&mut self, id: u64, priority: u32, now: f64) {
        let known = self.jobs.get(&id).map(|job| (job.state, job.priority));
        if let Some((State::Sched, was)) = known {
            let context = json!({ "priority": priority });
            self.post(id, &Event::with(now, "priority", context));
            self.reprioritize(id, was);
        }
    }
}
