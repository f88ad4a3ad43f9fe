//! Authorization: the role that each method requires, and the limits of guests.
//!
//! The [router](crate::router) checks the role before it calls a handler, with what the rule depends on: the
//! job, user or key that the payload names. A method about several jobs, and one that answers a denial with
//! a status of its own, get [`PermittedJob`]s, which only this file makes: without one the handler has no job
//! to act on.
//!
//! Limits are no roles: [`urgency`] and [`signer`] check a value of a submission, [`dependency`] one of the
//! jobs that a jobspec names, [`has_limits`] tells whose jobs get no more time than the site's limits allow.

use penstock_flux::job_manager::{HistoryRequest, JobsRequest};
use penstock_flux::role::owner_only;
use penstock_flux::urgency::{self, EXPEDITE};
use penstock_flux::{Credentials, JobRequest, RequestError, kvs, pmix};
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
    /// Every user if the instance has guests, else the instance owner.
    Submitter,
    /// The user whose jobs the payload asks for (`userid`; if absent the sender), or the instance owner.
    NamedUser,
    /// The owner of the one job that the payload names, or the instance owner.
    JobOwner(JobKey),
    /// The same until the job runs, then the instance owner.
    PendingJobOwner(JobKey),
    /// The owner of the job whose document the payload's `key` names; for other keys the instance owner.
    KeyOwner,
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

/// A job that the sender of a request may see and change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PermittedJob(JobId);

impl PermittedJob {
    /// The job.
    pub(crate) fn id(&self) -> JobId {
        self.0
    }
}

/// A job, if the sender may see and change it.
pub(crate) type Permission = Result<PermittedJob, RequestError>;

/// The jobs that a request names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PermittedJobs {
    /// One job.
    One(PermittedJob),
    /// Several jobs, each with the result of its check.
    Several(Vec<(JobId, Permission)>),
}

/// How a request for several jobs can name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobNames {
    /// `id` or `ids`.
    Ids,
    /// The same, or `all`, with `userid`.
    IdsOrAll,
}

/// Checks that the sender of a request has the role that its method requires.
pub(crate) fn check(
    caller: Caller,
    settings: &Settings,
    jobs: &Jobs,
    request: Request<'_>,
) -> Result<(), RequestError> {
    let sender = request.sender;
    match caller {
        Caller::Anyone => Ok(()),
        Caller::Owner => sender.require_owner(request.message.topic()),
        Caller::Submitter if settings.guests => Ok(()),
        Caller::Submitter => sender.require_owner("a submission to an instance without guests"),
        Caller::NamedUser => {
            let named = request.payload::<HistoryRequest<'_>>()?.userid;
            match named.filter(|userid| !sender.may_act_for(*userid)) {
                Some(other) => Err(owner_only(&format!("the jobs of user {other}"))),
                None => Ok(()),
            }
        }
        Caller::JobOwner(key) => named_job(key, jobs, request).map(drop),
        Caller::PendingJobOwner(key) => {
            let job = named_job(key, jobs, request)?;
            match jobs.record(job.id()).map(Record::state) {
                Some(State::Run) => sender.require_owner("another duration for a running job"),
                _ => Ok(()),
            }
        }
        Caller::KeyOwner => {
            let key = request.payload::<kvs::LookupRequest<'_>>()?.key;
            match kvs::document_of(&key) {
                Some((id, _)) => job(jobs, sender, id).map(drop),
                None => sender.require_owner(&format!("key `{key}`")),
            }
        }
    }
}

/// The one job that a request names, if its sender may see and change it.
///
/// # Errors
///
/// The payload names none.
pub(crate) fn permission(
    key: JobKey,
    jobs: &Jobs,
    request: Request<'_>,
) -> Result<Permission, RequestError> {
    let id = match key {
        JobKey::Id => request.payload::<JobRequest>()?.id,
        JobKey::Job => request.payload::<pmix::AnyRequest>()?.job,
    };
    Ok(job(jobs, request.sender, id))
}

fn named_job(key: JobKey, jobs: &Jobs, request: Request<'_>) -> Permission {
    permission(key, jobs, request)?
}

/// The jobs that a request names, each checked.
///
/// # Errors
///
/// The payload names none, or one that the sender may not act on.
pub(crate) fn permitted_jobs(
    names: JobNames,
    jobs: &Jobs,
    request: Request<'_>,
) -> Result<PermittedJobs, RequestError> {
    let sender = request.sender;
    let payload: JobsRequest = request.payload()?;
    let ids = match (payload.id, payload.ids) {
        (Some(id), None) => return job(jobs, sender, id).map(PermittedJobs::One),
        (None, Some(ids)) => ids,
        (None, None) if payload.all && names == JobNames::IdsOrAll => {
            // A guest means its own jobs.
            let of = payload
                .userid
                .or((!sender.is_owner()).then_some(sender.userid));
            let records = jobs.iter().map(|job| &job.record);
            let active = records.filter(|record| {
                record.state() != State::Inactive
                    && of.is_none_or(|userid| record.userid() == userid)
            });
            active.map(Record::id).collect()
        }
        _ => {
            return Err(RequestError::invalid(match names {
                JobNames::Ids => "expected `id` or `ids`",
                JobNames::IdsOrAll => "expected `id`, `ids` or `all`",
            }));
        }
    };
    let checked = ids.into_iter().map(|id| (id, job(jobs, sender, id)));
    Ok(PermittedJobs::Several(checked.collect()))
}

/// A job, if the sender may see and change it: its owner or the instance owner.
pub(crate) fn job(jobs: &Jobs, sender: Credentials, id: JobId) -> Permission {
    let Job { record, .. } = jobs.known(id)?;
    if sender.may_act_for(record.userid()) {
        return Ok(PermittedJob(id));
    }
    let text = format!("job {id} belongs to another user");
    Err(RequestError::not_permitted(text))
}

/// A job's urgency, checked: above the default it is the instance owner's (RFC 30).
pub(crate) fn urgency(sender: Credentials, urgency: i64) -> Result<u8, RequestError> {
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
    Ok(valid)
}

/// Checks the signer of a signed jobspec: the sender; root may sign for the instance owner.
pub(crate) fn signer(sender: Credentials, signer: i64) -> Result<(), RequestError> {
    if signer == i64::from(sender.userid) || (signer == 0 && sender.is_owner()) {
        return Ok(());
    }
    let userid = sender.userid;
    let text = format!("J is signed by user {signer}, but sent by user {userid}");
    Err(RequestError::not_permitted(text))
}

/// Whether the site's limits hold when a running job of this user requests time: the instance owner's jobs may exceed
/// them. At submission they hold for everybody.
pub(crate) fn has_limits(settings: &Settings, userid: u32) -> bool {
    userid != settings.owner
}

/// Whether a user's job may depend on a job: on the user's own, and the instance owner's on any.
pub(crate) fn dependency(settings: &Settings, userid: u32, antecedent: &Record) -> bool {
    userid == settings.owner || userid == antecedent.userid()
}

#[cfg(test)]
mod tests {
    use penstock_flux::{Credentials, RequestError, errno, kvs, role};
    use serde_json::json;

    use super::{
        Caller, JobKey, JobNames, PermittedJob, PermittedJobs, check, permitted_jobs, signer,
        urgency,
    };
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
            errnum(check(
                caller,
                &cx.settings,
                &cx.jobs,
                Request::new(&message),
            ))
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
    fn what_a_request_names_decides() {
        let mut cx = context(Settings::default());
        let (pending, running) = (add_pending_job(&mut cx), add_allocated_job(&mut cx));
        let user = |userid| Credentials {
            userid,
            rolemask: role::USER,
        };
        let (owner, of_owner, guest) = (Credentials::owner(OWNER), user(OWNER), user(GUEST));
        let update = |id| json!({"id": id}).to_string();
        let lookup = |key: String| json!({"key": key}).to_string();
        let history = |userid| json!({"slice": "[:]", "userid": userid}).to_string();
        let own = json!({"slice": "[:]"}).to_string();
        let of_job = Caller::PendingJobOwner(JobKey::Id);
        let permitted = 0;
        #[rustfmt::skip]
        let table = [
            (Caller::Submitter, String::new(),                     [permitted, errno::EPERM, errno::EPERM]),
            (of_job,            update(pending),                   [permitted, permitted,    errno::EPERM]),
            (of_job,            update(running),                   [permitted, errno::EPERM, errno::EPERM]),
            (Caller::NamedUser, own,                               [permitted, permitted,    permitted]),
            (Caller::NamedUser, history(OWNER),                    [permitted, permitted,    errno::EPERM]),
            (Caller::NamedUser, history(GUEST),                    [permitted, errno::EPERM, permitted]),
            (Caller::KeyOwner,  lookup(kvs::r_key(pending)),       [permitted, permitted,    errno::EPERM]),
            (Caller::KeyOwner,  lookup("site.key".to_owned()),     [permitted, errno::EPERM, errno::EPERM]),
        ];
        for (caller, payload, expected) in table {
            for (sender, expected) in [owner, of_owner, guest].into_iter().zip(expected) {
                let mut message = message("job-manager.x", "client", &payload);
                (message.userid, message.rolemask) = (sender.userid, sender.rolemask);
                let checked = check(caller, &cx.settings, &cx.jobs, Request::new(&message));
                assert_eq!(errnum(checked), expected, "{caller:?} {payload} {sender:?}");
            }
        }
    }

    #[test]
    fn each_of_several_jobs_is_checked() {
        let mut cx = context(Settings::default());
        let id = add_pending_job(&mut cx);
        let checked = |names, userid, payload: &str| {
            let mut message = message("job-manager.x", "client", payload);
            (message.userid, message.rolemask) = (userid, role::USER);
            permitted_jobs(names, &cx.jobs, Request::new(&message))
        };
        let one = json!({"id": id}).to_string();
        let both = json!({"ids": [id, 1]}).to_string();
        let all = json!({"all": true}).to_string();
        let of_owner = json!({"all": true, "userid": OWNER}).to_string();
        let single = PermittedJobs::One(PermittedJob(id));
        assert_eq!(checked(JobNames::Ids, OWNER, &one), Ok(single));
        let denied = checked(JobNames::Ids, GUEST, &one).map(drop);
        assert_eq!(errnum(denied), errno::EPERM);
        let numbers = |userid, payload: &str| {
            let permitted = checked(JobNames::IdsOrAll, userid, payload).unwrap();
            let PermittedJobs::Several(jobs) = permitted else {
                panic!("expected several jobs: {permitted:?}");
            };
            let numbers = jobs.into_iter().map(|(_, job)| errnum(job.map(drop)));
            numbers.collect::<Vec<u32>>()
        };
        assert_eq!(numbers(OWNER, &both), [0, errno::ENOENT]);
        assert_eq!(numbers(GUEST, &both), [errno::EPERM, errno::ENOENT]);
        assert_eq!(numbers(OWNER, &all), [0]);
        assert!(numbers(GUEST, &all).is_empty());
        assert_eq!(numbers(GUEST, &of_owner), [errno::EPERM]);
        for (names, payload) in [(JobNames::Ids, all), (JobNames::IdsOrAll, "{}".to_owned())] {
            let none = checked(names, OWNER, &payload).map(drop);
            assert_eq!(errnum(none), errno::EINVAL);
        }
    }
}
