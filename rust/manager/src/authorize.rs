//! Authorization: the roles that methods require, and the rules that depend on a value in the request.
//!
//! The [router](crate::router) checks the role before it calls a handler. A method whose rule depends on
//! a value has no role: its handler applies the rule and returns a [`Decided`], which only this file
//! makes. A handler that applies none does not compile.
//!
//! A second rule of the same request returns what its handler needs next: the urgency or the
//! time limit to be applied, the text of a signed jobspec. Two rules return no proof, because they do not
//! decide about the request: [`dependency`] about one of the jobs that a jobspec names, and
//! [`has_limits`] about the site's limits, which are no right.

use penstock_flux::role::owner_only;
use penstock_flux::urgency::{self, EXPEDITE};
use penstock_flux::{Credentials, JobRequest, RequestError, pmix};
use penstock_jobspec::job_id::JobId;

use crate::jobs::{Job, Jobs};
use crate::record::Record;
use crate::rpc::Request;
use crate::settings::Settings;
use crate::state::State;

/// The highest urgency of a guest's job (RFC 30).
const MAX_GUEST_URGENCY: u8 = urgency::DEFAULT;

/// The role that a method requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Every user.
    Anyone,
    /// The owner of the one job that the payload names, or the instance owner.
    JobOwner(JobKey),
    /// The instance owner.
    Owner,
}

/// The key of the job in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKey {
    /// `id`.
    Id,
    /// `job`.
    Job,
}

/// A value, and the proof that a rule was applied to the request.
#[derive(Debug)]
pub(crate) struct Decided<T>(T);

impl<T> Decided<T> {
    /// Applies a function to the value.
    pub(crate) fn map<U>(self, function: impl FnOnce(T) -> U) -> Decided<U> {
        Decided(function(self.0))
    }

    /// Replaces the value.
    pub(crate) fn with<U>(self, value: U) -> Decided<U> {
        self.map(|_| value)
    }

    /// Separates the value from the proof.
    pub(crate) fn split(self) -> (T, Decided<()>) {
        (self.0, Decided(()))
    }
}

/// Runs an operation for each of several items, with a rule for each, and reports the results.
pub(crate) fn each<I: Copy, T>(
    items: impl IntoIterator<Item = I>,
    mut operation: impl FnMut(I) -> Result<Decided<T>, RequestError>,
    mut report: impl FnMut(I, Result<T, RequestError>),
) -> Decided<()> {
    for item in items {
        let result = operation(item);
        report(item, result.map(|decided| decided.0));
    }
    Decided(())
}

/// Checks that the sender of a request has the role that its method requires.
pub(crate) fn check(caller: Caller, jobs: &Jobs, request: Request<'_>) -> Result<(), RequestError> {
    let id = match caller {
        Caller::Anyone => return Ok(()),
        Caller::Owner => return request.sender.require_owner(request.message.topic()),
        Caller::JobOwner(JobKey::Id) => request.payload::<JobRequest>()?.id,
        Caller::JobOwner(JobKey::Job) => request.payload::<pmix::AnyRequest>()?.job,
    };
    job(jobs, request.sender, id).map(drop)
}

/// The job, if the sender may see and change it: its owner or the instance owner.
pub(crate) fn job(
    jobs: &Jobs,
    sender: Credentials,
    id: JobId,
) -> Result<Decided<&Job>, RequestError> {
    let job = jobs.known(id)?;
    if sender.may_act_for(job.record.userid()) {
        return Ok(Decided(job));
    }
    let text = format!("job {id} belongs to another user");
    Err(RequestError::not_permitted(text))
}

/// The same rule, for a method that answers a denial with a status of its own.
pub(crate) fn job_or_denial(
    jobs: &Jobs,
    sender: Credentials,
    id: JobId,
) -> Decided<Result<&Job, RequestError>> {
    Decided(job(jobs, sender, id).map(|decided| decided.0))
}

/// Submissions: guests may have jobs only if the settings say so.
pub(crate) fn submit(
    settings: &Settings,
    sender: Credentials,
) -> Result<Decided<()>, RequestError> {
    if !settings.guests {
        sender.require_owner("a submission to an instance without guests")?;
    }
    Ok(Decided(()))
}

/// A job's urgency, checked: above the default it is the instance owner's (RFC 30).
pub(crate) fn urgency(sender: Credentials, urgency: i64) -> Result<Decided<u8>, RequestError> {
    let Some(valid) = u8::try_from(urgency)
        .ok()
        .filter(|valid| *valid <= EXPEDITE)
    else {
        let text = format!("urgency {urgency} is out of range: expected 0 to {EXPEDITE}");
        return Err(RequestError::invalid(text));
    };
    if valid > MAX_GUEST_URGENCY {
        sender.require_owner(&format!("urgency {urgency}, above {MAX_GUEST_URGENCY}"))?;
    }
    Ok(Decided(valid))
}

/// Another time limit of a job: its owner's; of a running job it is the instance owner's.
pub(crate) fn duration(
    jobs: &Jobs,
    sender: Credentials,
    id: JobId,
) -> Result<Decided<()>, RequestError> {
    let decided = job(jobs, sender, id)?;
    if decided.0.record.state() > State::Sched {
        sender.require_owner("another duration for a running job")?;
    }
    Ok(decided.with(()))
}

/// Whether the site's limits hold for a user's jobs: for guests'.
pub(crate) fn has_limits(settings: &Settings, userid: u32) -> bool {
    userid != settings.owner
}

/// The jobs of a user: that user's and the instance owner's to list.
pub(crate) fn jobs_of(sender: Credentials, userid: u32) -> Result<Decided<()>, RequestError> {
    if sender.may_act_for(userid) {
        return Ok(Decided(()));
    }
    Err(owner_only(&format!("the jobs of user {userid}")))
}

/// The user whose jobs are meant if a request names none: a guest's own; `None` for all users.
pub(crate) fn default_user(sender: Credentials) -> Option<u32> {
    (!sender.is_owner()).then_some(sender.userid)
}

/// A key of the store that is no document of a job.
pub(crate) fn store_key(sender: Credentials, key: &str) -> Result<Decided<()>, RequestError> {
    sender.require_owner(&format!("key `{key}`"))?;
    Ok(Decided(()))
}

/// A dependency on a job: its owner's and the instance owner's.
pub(crate) fn dependency(settings: &Settings, userid: u32, antecedent: &Record) -> bool {
    userid == settings.owner || userid == antecedent.userid()
}

/// A signed jobspec: the signer is the sender; root may sign for the instance owner.
pub(crate) fn signer(sender: Credentials, signer: i64) -> Result<Decided<()>, RequestError> {
    if signer == i64::from(sender.userid) || (signer == 0 && sender.is_owner()) {
        return Ok(Decided(()));
    }
    let userid = sender.userid;
    let text = format!("J is signed by user {signer}, but sent by user {userid}");
    Err(RequestError::not_permitted(text))
}

#[cfg(test)]
mod tests {
    use penstock_flux::{Credentials, RequestError, errno, role};
    use serde_json::json;

    use super::{Caller, JobKey, check, duration, signer, urgency};
    use crate::fixture::{OWNER, add_allocated_job, add_pending_job, context, message};
    use crate::rpc::Request;
    use crate::settings::Settings;

    const GUEST: u32 = 1001;

    fn errnum(result: Result<(), RequestError>) -> u32 {
        result.map_or_else(|error| error.errnum, |()| 0)
    }

    #[test]
    fn the_role_of_a_sender_decides() {
        let mut cx = context(Settings::default());
        let id = add_pending_job(&mut cx);
        let checked = |sender: Credentials, caller: Caller, payload: &str| {
            let mut message = message("job-manager.x", "client", payload);
            (message.userid, message.rolemask) = (sender.userid, sender.rolemask);
            errnum(check(caller, &cx.jobs, Request::new(&message)))
        };
        let (by_id, by_job) = (
            json!({"id": id}).to_string(),
            json!({"job": id}).to_string(),
        );
        let (of_id, of_job) = (Caller::JobOwner(JobKey::Id), Caller::JobOwner(JobKey::Job));
        let user = |userid| Credentials {
            userid,
            rolemask: role::USER,
        };
        // The job is the owner's: its user id suffices for it, and for nothing else.
        for (sender, of_owner, of_user) in [
            (Credentials::owner(OWNER), 0, 0),
            (user(OWNER), errno::EPERM, 0),
            (user(GUEST), errno::EPERM, errno::EPERM),
        ] {
            assert_eq!(checked(sender, Caller::Anyone, ""), 0);
            assert_eq!(checked(sender, Caller::Owner, ""), of_owner);
            assert_eq!(checked(sender, of_id, &by_id), of_user);
            assert_eq!(checked(sender, of_job, &by_job), of_user);
            assert_eq!(checked(sender, of_id, &by_job), errno::EPROTO);
            assert_eq!(checked(sender, of_id, r#"{"id":1}"#), errno::ENOENT);
        }
    }

    #[test]
    fn values_decide_for_guests() {
        let guest = Credentials {
            userid: GUEST,
            rolemask: role::USER,
        };
        let owner = Credentials::owner(OWNER);
        for (sender, number, expected) in [
            (guest, 16, 0),
            (guest, 17, errno::EPERM),
            (guest, -1, errno::EINVAL),
            (guest, 32, errno::EINVAL),
            (owner, 31, 0),
            (owner, 32, errno::EINVAL),
        ] {
            let decided = urgency(sender, number).map(drop);
            assert_eq!(errnum(decided), expected, "urgency {number}");
        }
        assert_eq!(errnum(signer(owner, 0).map(drop)), 0);
        assert_eq!(errnum(signer(guest, 0).map(drop)), errno::EPERM);
    }

    #[test]
    fn the_time_limit_of_a_running_job_is_the_owners() {
        let mut cx = context(Settings::default());
        let (pending, running) = (add_pending_job(&mut cx), add_allocated_job(&mut cx));
        let user = |userid| Credentials {
            userid,
            rolemask: role::USER,
        };
        for (sender, id, expected) in [
            (user(OWNER), pending, 0),
            (user(GUEST), pending, errno::EPERM),
            (user(OWNER), running, errno::EPERM),
            (Credentials::owner(OWNER), running, 0),
        ] {
            let decided = duration(&cx.jobs, sender, id).map(drop);
            assert_eq!(errnum(decided), expected);
        }
    }
}
