//! The order of jobs (RFC 30): urgency, which the user sets, and priority, which follows from it or
//! is assigned by the instance owner.

use penstock_flux::eventlog;
use penstock_flux::job_manager::{PrioritizeRequest, UrgencyRequest, UrgencyResponse};
use penstock_flux::urgency::{EXPEDITE, HOLD, priority};
use penstock_flux::{Credentials, RequestError};
use penstock_jobspec::job_id::JobId;

use crate::authorize::{self, NamedJobs, Permission, PermittedJob, PermittedJobs};
use crate::bulk::{BulkRequests, Operation};
use crate::context::Context;
use crate::effect::Effect;
use crate::event::Event;
use crate::quota;
use crate::record::Record;
use crate::rpc::{Handled, Reply, Request};
use crate::state::State;

/// More than the length of the events of another urgency, which has another priority.
const MAX_URGENCY_BYTES: usize = 200;

/// A new urgency of jobs, and the user who sets it.
#[derive(Clone, Copy, Debug)]
struct SetUrgency {
    urgency: u8,
    sender: Credentials,
}

impl Operation for SetUrgency {
    fn apply(&mut self, cx: &mut Context, job: Permission) -> Result<(), RequestError> {
        set_urgency_of(cx, &job?, *self).map(drop)
    }
}

/// The priorities of the jobs that are left, in their order.
#[derive(Debug)]
struct Prioritize(std::vec::IntoIter<i64>);

impl Operation for Prioritize {
    fn apply(&mut self, cx: &mut Context, job: Permission) -> Result<(), RequestError> {
        let priority = self.0.next().unwrap_or_default();
        prioritize_one(cx, job?.id(), priority)
    }
}

/// `job-manager.urgency`: another urgency, and with it another priority, for jobs without resources.
pub(crate) fn set_urgency(
    cx: &mut Context,
    bulk: &mut BulkRequests,
    request: Request<'_>,
    jobs: PermittedJobs,
) -> Handled {
    let change: UrgencyRequest = request.payload()?;
    let urgency = authorize::urgency(request.sender, change.urgency)?;
    let sender = request.sender;
    let change = SetUrgency { urgency, sender };
    match jobs {
        PermittedJobs::One(job) => {
            let old = set_urgency_of(cx, &job, change)?;
            Ok(Reply::of(&UrgencyResponse { old }))
        }
        PermittedJobs::Several(jobs) => Ok(bulk.begin(cx, request, jobs, change)),
    }
}

/// Sets the urgency of a job without resources on behalf of a user. Returns the old one.
fn set_urgency_of(
    cx: &mut Context,
    job: &PermittedJob,
    SetUrgency { urgency, sender }: SetUrgency,
) -> Result<u8, RequestError> {
    let id = job.id();
    let old = without_resources(cx, id, "urgency")?.urgency();
    quota::check_event(cx, sender, id, MAX_URGENCY_BYTES)?;
    log_urgency(cx, id, urgency, sender.userid);
    Ok(old)
}

/// Holds a pending job in the name of the instance owner.
pub(crate) fn hold(cx: &mut Context, id: JobId) {
    log_urgency(cx, id, HOLD, cx.settings.owner);
}

fn log_urgency(cx: &mut Context, id: JobId, urgency: u8, userid: u32) {
    let Some(old) = cx.jobs.record(id).map(Record::due_priority) else {
        return;
    };
    let context = eventlog::Urgency { urgency, userid };
    cx.log(id, Event::with(cx.now, eventlog::URGENCY, &context));
    let new = priority(urgency);
    if cx.jobs.record(id).map(Record::state) == Some(State::Depend) {
        cx.add_effect(Effect::Reprioritize { id, old, new });
    }
    set_priority(cx, id, new);
}

/// `job-manager.prioritize`: assigns priorities, which hold until the urgency changes. Held and
/// expedited jobs keep theirs (RFC 30).
pub(crate) fn prioritize(
    cx: &mut Context,
    bulk: &mut BulkRequests,
    request: Request<'_>,
) -> Handled {
    let PrioritizeRequest { jobs } = request.payload()?;
    let (ids, priorities): (Vec<JobId>, Vec<i64>) = jobs.into_iter().unzip();
    let jobs = NamedJobs::with_ids(request.sender, ids);
    let operation = Prioritize(priorities.into_iter());
    Ok(bulk.begin(cx, request, jobs, operation))
}

/// Assigns a priority to a pending job.
fn prioritize_one(cx: &mut Context, id: JobId, priority: i64) -> Result<(), RequestError> {
    cx.jobs.active(id)?;
    let Ok(priority) = u32::try_from(priority) else {
        let text = format!("priority {priority} is out of range: expected 0 to 4294967295");
        return Err(RequestError::invalid(text));
    };
    let record = without_resources(cx, id, "priority")?;
    let reason = match record.urgency() {
        HOLD => "held",
        EXPEDITE => "expedited",
        _ if record.state() < State::Sched => "not in state SCHED yet",
        _ => {
            // An event for each time that all priorities are computed again would make eventlogs grow.
            if record.priority() != priority {
                let owner = Credentials::owner(cx.settings.owner);
                quota::check_event(cx, owner, id, MAX_URGENCY_BYTES)?;
                set_priority(cx, id, priority);
            }
            return Ok(());
        }
    };
    let text = format!("priority cannot be assigned: the job is {reason}");
    Err(RequestError::invalid(text))
}

/// The facts of an active job that has no resources yet.
fn without_resources<'a>(
    cx: &'a Context,
    id: JobId,
    what: &str,
) -> Result<&'a Record, RequestError> {
    let record = &cx.jobs.active(id)?.record;
    if record.has_resources() || record.state() > State::Sched {
        let text = format!("{what} cannot be changed once resources are allocated");
        return Err(RequestError::invalid(text));
    }
    Ok(record)
}

/// Sets the priority of a job in SCHED; before that it follows from the urgency.
fn set_priority(cx: &mut Context, id: JobId, priority: u32) {
    let record = cx.jobs.record(id);
    if let Some(old) = record
        .filter(|record| record.state() == State::Sched)
        .map(Record::priority)
    {
        let context = eventlog::Priority { priority };
        cx.log(id, Event::with(cx.now, eventlog::PRIORITY, &context));
        cx.add_effect(Effect::Reprioritize {
            id,
            old,
            new: priority,
        });
    }
}
