//! Authorization: the role that each method requires, and the limits of guests.
//!
//! The [router](crate::router) does the check before it calls a handler, and hands on what the rule depends on:
//! the [`PermittedJob`], [`PermittedUser`] or [`PermittedKey`] that the payload names, or the [`VisibleJobs`] of the
//! sender. Only this file makes these: without one a handler has nothing to act on.
//!
//! Some rules depend on what a handler reads first, and are functions that it calls: [`urgency`], [`submission_flags`] and
//! [`signer`] check a value of a submission, [`check_dependency`] a job that a jobspec names, [`may_name`] a job that an
//! elastic request names, [`check_registration`] a service, [`purged_user`] and
//! [`check_purged`] the jobs of a purge. The site's limits of time do not hold for every request:
//! [`has_limits_when_running`] decides by the owner of a running job, [`has_limits_on_update`] by the sender.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;

use penstock_flux::job_ingest::WAITABLE;
use penstock_flux::job_manager::{JobsRequest, MatchingJobsRequest};
use penstock_flux::role::owner_only;
use penstock_flux::urgency::{self, EXPEDITE};
use penstock_flux::{Credentials, JobRequest, RequestError, guest_log, kvs, pmix};
use penstock_jobspec::job_id::JobId;
use serde::Deserialize;

use crate::context::Context;
use crate::jobs::{HiddenJobs, Job, Jobs};
use crate::record::Record;
use crate::rpc::Request;
use crate::settings::{JobVisibility, Settings};
use crate::state::State;

/// The highest urgency of a guest's job (RFC 30).
const MAX_GUEST_URGENCY: u8 = urgency::DEFAULT;

/// The role that a method requires, whatever its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Every user.
    Anyone,
    /// Every user if the instance has guests, else the instance owner.
    Submitter,
    /// The instance owner.
    Owner,
}

/// The role that a method about one job requires, which the payload names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobRule {
    /// The owner of the job, or the instance owner.
    Owner(JobKey),
    /// The same until the job runs, then the instance owner.
    PendingOwner(JobKey),
}

/// The key of the job in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKey {
    /// `id`.
    Id,
    /// `job`.
    Job,
    /// None: the topic names it, `job-shell.ID.stdin`.
    Topic,
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

/// The user that a request names, whatever else is in its payload.
#[derive(Debug, Deserialize)]
struct NamedUser {
    #[serde(default)]
    userid: Option<u32>,
}

/// A user whose jobs the sender of a request may see and purge.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PermittedUser(u32);

impl PermittedUser {
    /// The user's id.
    pub(crate) fn userid(&self) -> u32 {
        self.0
    }
}

/// The jobs whose rows the sender of a request may read: those of one user, or of all users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VisibleJobs(Option<Credentials>);

impl VisibleJobs {
    /// Whether a job is one of them.
    pub(crate) fn contain(self, record: &Record) -> bool {
        self.contain_those_of(record.userid())
    }

    /// Whether the jobs of a user are among them.
    pub(crate) fn contain_those_of(self, userid: u32) -> bool {
        self.0.is_none_or(|reader| reader.may_act_for(userid))
    }

    /// Whether these are all jobs.
    pub(crate) fn are_all(self) -> bool {
        self.0.is_none_or(Credentials::is_owner)
    }

    /// A job by its id.
    ///
    /// # Errors
    ///
    /// Fails if there is no such job, or if it is not one of them.
    pub(crate) fn known(self, cx: &mut Context, id: JobId) -> Result<&Job, RequestError> {
        cx.load(id);
        let job = cx.jobs.known(id)?;
        if self.contain(&job.record) {
            return Ok(job);
        }
        Err(belongs_to_another(id))
    }
}

/// A key of the store that the sender of a request may read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PermittedKey {
    /// A document or directory of a job, by its name (RFC 16); empty for the job's directory.
    Document(PermittedJob, String),
    /// Any other key, the instance owner's.
    Site(String),
}

/// A job, if the sender may see and change it.
pub(crate) type Permission = Result<PermittedJob, RequestError>;

/// The jobs that a request names.
#[derive(Debug)]
pub(crate) enum PermittedJobs {
    /// One job.
    One(PermittedJob),
    /// Several jobs.
    Several(NamedJobs),
}

/// Several jobs that a request names. Each is checked when it is taken.
#[derive(Debug)]
pub(crate) struct NamedJobs {
    sender: Credentials,
    names: Names,
}

#[derive(Debug)]
enum Names {
    /// Their ids.
    Ids(std::vec::IntoIter<JobId>),
    /// The active jobs of a user, or of all users, the oldest first.
    Active {
        of: Option<u32>,
        /// A mask of states.
        states: u32,
        /// The job that was taken last.
        after: Bound<JobId>,
        /// The last job that there was when the request came.
        last: JobId,
        /// The jobs that were hidden then.
        hidden: HiddenJobs,
    },
}

/// The next of several jobs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextJob {
    /// A job with the result of its check.
    Job(JobId, Permission),
    /// A job that the request does not name.
    Skipped,
    /// There are no more.
    End,
}

impl NamedJobs {
    /// The jobs with these ids, each once.
    pub(crate) fn with_ids(sender: Credentials, mut ids: Vec<JobId>) -> Self {
        if !ids.is_sorted_by(|id, next| id < next) {
            let mut named = HashSet::new();
            ids.retain(|id| named.insert(*id));
        }
        Self {
            sender,
            names: Names::Ids(ids.into_iter()),
        }
    }

    /// Takes the next job.
    pub(crate) fn next(&mut self, cx: &mut Context) -> NextJob {
        match &mut self.names {
            Names::Ids(ids) => {
                let Some(id) = ids.next() else {
                    return NextJob::End;
                };
                cx.unload_surplus();
                NextJob::Job(id, job(cx, self.sender, id))
            }
            Names::Active {
                of,
                states,
                after,
                last,
                hidden,
            } => {
                let range = (*after, Bound::Included(*last));
                let Some((id, job)) = cx.jobs.range(range).next() else {
                    return NextJob::End;
                };
                *after = Bound::Excluded(id);
                let record = &job.record;
                if record.state() == State::Inactive
                    || u32::from(record.state().bit()) & *states == 0
                    || hidden.contains(id)
                    || of.is_some_and(|userid| record.userid() != userid)
                {
                    return NextJob::Skipped;
                }
                NextJob::Job(id, permission_for(self.sender, record))
            }
        }
    }

    /// The number of ids that are held in memory.
    pub(crate) fn left(&self) -> usize {
        match &self.names {
            Names::Ids(ids) => ids.len(),
            Names::Active { .. } => 0,
        }
    }
}

/// The keys by which a request can name several jobs.
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
    request: Request<'_>,
) -> Result<(), RequestError> {
    let sender = request.sender;
    match caller {
        Caller::Anyone => Ok(()),
        Caller::Owner => sender.require_owner(request.message.topic()),
        Caller::Submitter if settings.guests => Ok(()),
        Caller::Submitter => sender.require_owner("a submission to an instance without guests"),
    }
}

/// The user whose jobs a request asks for: `userid`, which only the instance owner may set to another's, or the
/// sender.
pub(crate) fn permitted_user(request: Request<'_>) -> Result<PermittedUser, RequestError> {
    let sender = request.sender;
    let named = request.payload::<NamedUser>()?.userid;
    match named.filter(|userid| !sender.may_act_for(*userid)) {
        Some(other) => Err(owner_only(&format!("the jobs of user {other}"))),
        None => Ok(PermittedUser(named.unwrap_or(sender.userid))),
    }
}

/// The user whose jobs a purge removes, or `None` for those of all users: the instance owner may purge these, and a guest that
/// names no user means its own.
pub(crate) fn purged_user(
    sender: Credentials,
    named: Option<u32>,
    user: &PermittedUser,
) -> Option<u32> {
    (named.is_some() || !sender.is_owner()).then_some(user.userid())
}

/// Checks that a job that a purge names is one of the user whose jobs it removes.
pub(crate) fn check_purged(of: Option<u32>, record: &Record) -> Result<(), RequestError> {
    if of.is_none_or(|userid| userid == record.userid()) {
        return Ok(());
    }
    Err(belongs_to_another(record.id()))
}

/// The key that a request names: of a job's document for the owner of the job, any for the instance owner.
pub(crate) fn permitted_key(
    cx: &mut Context,
    request: Request<'_>,
) -> Result<PermittedKey, RequestError> {
    let sender = request.sender;
    let request: kvs::LookupRequest<'_> = request.payload()?;
    kvs::check_key(&request.key)?;
    let namespace = request.namespace.as_deref();
    let key = kvs::primary_key(namespace, &request.key).ok_or_else(|| {
        RequestError::not_found(format!("no namespace `{}`", namespace.unwrap_or_default()))
    })?;
    let document = kvs::document_of(&key);
    if let Some((id, name)) = document.or_else(|| kvs::directory_of(&key).map(|id| (id, ""))) {
        let job = job(cx, sender, id)?;
        return Ok(PermittedKey::Document(job, name.to_owned()));
    }
    sender.require_owner(&format!("key `{key}`"))?;
    Ok(PermittedKey::Site(key))
}

/// The one job that a request names, if its sender may call the method for it.
pub(crate) fn permitted_job(rule: JobRule, cx: &mut Context, request: Request<'_>) -> Permission {
    match rule {
        JobRule::Owner(key) => permission(key, cx, request)?,
        JobRule::PendingOwner(key) => {
            let job = permission(key, cx, request)??;
            if cx.jobs.record(job.id()).map(Record::state) == Some(State::Run) {
                let action = "another duration for a running job";
                request.sender.require_owner(action)?;
            }
            Ok(job)
        }
    }
}

/// The one job that a request names, and whether its sender may see and change it.
///
/// # Errors
///
/// The payload names none.
pub(crate) fn permission(
    key: JobKey,
    cx: &mut Context,
    request: Request<'_>,
) -> Result<Permission, RequestError> {
    let id = match key {
        JobKey::Id => request.payload::<JobRequest>()?.id,
        JobKey::Job => request.payload::<pmix::AnyRequest>()?.job,
        JobKey::Topic => {
            let topic = request.message.topic();
            guest_log::stdin_of(topic).ok_or_else(|| RequestError::unknown_method(topic))?
        }
    };
    Ok(job(cx, request.sender, id))
}

/// The jobs that a request names. One job is checked; several are checked one by one as they are taken.
///
/// # Errors
///
/// The payload names none, or one that the sender may not act on.
pub(crate) fn permitted_jobs(
    names: JobNames,
    cx: &mut Context,
    request: Request<'_>,
) -> Result<PermittedJobs, RequestError> {
    let sender = request.sender;
    let payload: JobsRequest = request.payload()?;
    let ids = match (payload.id, payload.ids) {
        (Some(id), None) => return job(cx, sender, id).map(PermittedJobs::One),
        (None, Some(ids)) => ids,
        (None, None) if payload.all && names == JobNames::IdsOrAll => {
            // A guest means its own jobs.
            let of = payload
                .userid
                .or((!sender.is_owner()).then_some(sender.userid));
            return Ok(PermittedJobs::Several(active(
                &cx.jobs,
                sender,
                of,
                u32::MAX,
            )));
        }
        _ => {
            return Err(RequestError::invalid(match names {
                JobNames::Ids => "expected `id` or `ids`",
                JobNames::IdsOrAll => "expected `id`, `ids` or `all`",
            }));
        }
    };
    Ok(PermittedJobs::Several(NamedJobs::with_ids(sender, ids)))
}

/// The active jobs of a user, or of all, in some states, for that user or the instance owner.
pub(crate) fn matching_jobs(jobs: &Jobs, request: Request<'_>) -> Result<NamedJobs, RequestError> {
    let sender = request.sender;
    let named: MatchingJobsRequest = request.payload()?;
    let of = match named.userid {
        -1 => None,
        userid => Some(u32::try_from(userid).map_err(|_| {
            RequestError::invalid(format!("userid {userid}: expected 0 to 4294967295, or -1"))
        })?),
    };
    let of = of.filter(|userid| *userid != MatchingJobsRequest::ANY_USER);
    let is_permitted = of.is_some_and(|userid| sender.may_act_for(userid));
    if !is_permitted {
        sender.require_owner("a request for the jobs of other users")?;
    }
    let states = named.states.unwrap_or(State::Run.bit().into());
    Ok(active(jobs, sender, of, states))
}

/// The jobs that are active now, of a user or of all, in some states.
pub(crate) fn active(jobs: &Jobs, sender: Credentials, of: Option<u32>, states: u32) -> NamedJobs {
    let names = Names::Active {
        of,
        states,
        after: Bound::Unbounded,
        last: jobs.greatest_id(),
        hidden: jobs.hidden().clone(),
    };
    NamedJobs { sender, names }
}

/// A job, if the sender may see and change it: its owner or the instance owner.
pub(crate) fn job(cx: &mut Context, sender: Credentials, id: JobId) -> Permission {
    cx.load(id);
    let Job { record, .. } = cx.jobs.known(id)?;
    permission_for(sender, record)
}

fn permission_for(sender: Credentials, record: &Record) -> Permission {
    let id = record.id();
    if sender.may_act_for(record.userid()) {
        return Ok(PermittedJob(id));
    }
    Err(belongs_to_another(id))
}

/// The jobs whose rows the sender of a request may read.
pub(crate) fn visible_jobs(settings: &Settings, sender: Credentials) -> VisibleJobs {
    match settings.job_visibility {
        JobVisibility::All => VisibleJobs(None),
        JobVisibility::Own => VisibleJobs(Some(sender)),
    }
}

fn belongs_to_another(id: JobId) -> RequestError {
    RequestError::not_permitted(format!("job {id} belongs to another user"))
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

/// Checks the flags of a submission: jobs for whose result others wait are the instance owner's.
pub(crate) fn submission_flags(sender: Credentials, flags: u32) -> Result<(), RequestError> {
    if flags & WAITABLE == 0 {
        return Ok(());
    }
    sender.require_owner("a waitable job")
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
pub(crate) fn has_limits_when_running(settings: &Settings, userid: u32) -> bool {
    userid != settings.owner
}

/// Whether the site's limits hold for another time limit of a job: the instance owner may exceed them for the job of
/// any user, a guest not for its own.
pub(crate) fn has_limits_on_update(sender: Credentials) -> bool {
    !sender.is_owner()
}

/// Checks that a user's job may depend on a job: on the user's own, and the instance owner's on any.
pub(crate) fn check_dependency(
    settings: &Settings,
    userid: u32,
    antecedent: &Record,
    scheme: &str,
    value: &str,
) -> Result<(), RequestError> {
    if userid == settings.owner || userid == antecedent.userid() {
        return Ok(());
    }
    let text = format!("dependency `{scheme}:{value}`: the job belongs to another user");
    Err(RequestError::not_permitted(text))
}

/// Whether an elastic request of a job may name another job: one of the same user, also for the instance owner.
pub(crate) fn may_name(requester: &Record, named: &Record) -> bool {
    requester.userid() == named.userid()
}

/// Checks that a route has registered the name of a service. `registered` has the route of each registered name, and is
/// `None` if the broker does not say.
pub(crate) fn check_registration(
    registered: Option<&HashMap<String, Vec<u8>>>,
    service: &str,
    origin: &[u8],
) -> Result<(), RequestError> {
    let is_permitted = registered.is_none_or(|routes| {
        let route = routes.get(service);
        route.is_some_and(|route| route == origin)
    });
    if is_permitted {
        return Ok(());
    }
    let text = format!("service `{service}` is not registered by this connection");
    Err(RequestError::not_permitted(text))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use penstock_flux::job_manager::HistoryRequest;
    use penstock_flux::{Credentials, RequestError, errno, kvs, role};
    use penstock_wire::Message;
    use serde_json::json;

    use super::{
        Caller, JobKey, JobNames, JobRule, NextJob, PermittedJob, PermittedJobs, PermittedKey,
        PermittedUser, WAITABLE, check, check_registration, has_limits_on_update,
        has_limits_when_running, permitted_job, permitted_jobs, permitted_key, permitted_user,
        signer, submission_flags, urgency,
    };
    use crate::context::Context;
    use crate::fixture::{OWNER, add_allocated_job, add_pending_job, context, message};
    use crate::rpc::Request;
    use crate::settings::Settings;

    const GUEST: u32 = 1001;

    fn errnum(result: Result<(), RequestError>) -> u32 {
        result.map_or_else(|error| error.errnum, |()| 0)
    }

    fn user(userid: u32) -> Credentials {
        Credentials {
            userid,
            rolemask: role::USER,
        }
    }

    fn sent_by(sender: Credentials, payload: &str) -> Message {
        let mut message = message("job-manager.x", "client", payload);
        (message.userid, message.rolemask) = (sender.userid, sender.rolemask);
        message
    }

    #[test]
    fn the_role_of_a_sender_decides() {
        let mut cx = context(Settings::default());
        let id = add_pending_job(&mut cx);
        let settings = Settings::default();
        let has_role = |sender: Credentials, caller: Caller| {
            let message = sent_by(sender, "");
            errnum(check(caller, &settings, Request::new(&message)))
        };
        let mut may_act = |sender: Credentials, rule: JobRule, payload: &str| {
            let message = sent_by(sender, payload);
            let job = permitted_job(rule, &mut cx, Request::new(&message));
            assert!(job.as_ref().is_ok_and(|job| job.id() == id) || job.is_err());
            errnum(job.map(drop))
        };
        let (by_id, by_job) = (
            json!({"id": id}).to_string(),
            json!({"job": id}).to_string(),
        );
        let (of_id, of_job) = (JobRule::Owner(JobKey::Id), JobRule::Owner(JobKey::Job));
        // The job is the owner's: its user id suffices for it, and for nothing else.
        for (sender, of_owner, of_user) in [
            (Credentials::owner(OWNER), 0, 0),
            (user(OWNER), errno::EPERM, 0),
            (user(GUEST), errno::EPERM, errno::EPERM),
        ] {
            assert_eq!(has_role(sender, Caller::Anyone), 0);
            assert_eq!(has_role(sender, Caller::Owner), of_owner);
            assert_eq!(has_role(sender, Caller::Submitter), of_owner);
            assert_eq!(may_act(sender, of_id, &by_id), of_user);
            assert_eq!(may_act(sender, of_job, &by_job), of_user);
            assert_eq!(may_act(sender, of_id, &by_job), errno::EPROTO);
            assert_eq!(may_act(sender, of_id, r#"{"id":1}"#), errno::ENOENT);
        }
    }

    #[test]
    fn values_decide_for_guests() {
        let (guest, owner) = (user(GUEST), Credentials::owner(OWNER));
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
        assert_eq!(errnum(submission_flags(owner, WAITABLE)), 0);
        assert_eq!(errnum(submission_flags(guest, WAITABLE)), errno::EPERM);
        assert_eq!(errnum(submission_flags(guest, !WAITABLE)), 0);
        assert_eq!(errnum(signer(owner, 0).map(drop)), 0);
        assert_eq!(errnum(signer(guest, 0).map(drop)), errno::EPERM);
    }

    #[test]
    fn a_service_is_introduced_by_the_route_that_has_registered_it() {
        let registered = HashMap::from([("exec".to_owned(), b"3".to_vec())]);
        for (registered, service, expected) in [
            (Some(&registered), "exec", 0),
            (Some(&registered), "other", errno::EPERM),
            (None, "other", 0),
        ] {
            let checked = check_registration(registered, service, b"3");
            assert_eq!(errnum(checked), expected, "{service}");
        }
        let of_other = check_registration(Some(&registered), "exec", b"4");
        assert_eq!(errnum(of_other), errno::EPERM);
    }

    #[test]
    fn limits_of_time_hold_by_sender_or_by_owner_of_the_job() {
        let settings = Settings {
            owner: OWNER,
            ..Settings::default()
        };
        for (userid, expected) in [(OWNER, false), (GUEST, true)] {
            assert_eq!(has_limits_when_running(&settings, userid), expected);
        }
        // Without the role the user id of the instance owner does not suffice.
        let senders = [Credentials::owner(OWNER), user(OWNER), user(GUEST)];
        assert_eq!(senders.map(has_limits_on_update), [false, true, true]);
    }

    #[test]
    fn what_a_request_names_decides() {
        let mut cx = context(Settings::default());
        let (pending, running) = (add_pending_job(&mut cx), add_allocated_job(&mut cx));
        let senders = [Credentials::owner(OWNER), user(OWNER), user(GUEST)];
        let errnums = |check: &mut dyn FnMut(Request<'_>) -> Result<(), RequestError>,
                       payload: &str| {
            senders.map(|sender| {
                let message = sent_by(sender, payload);
                errnum(check(Request::new(&message)))
            })
        };
        let (permitted, denied) = (0, errno::EPERM);

        let of_job = JobRule::PendingOwner(JobKey::Id);
        let mut update = |request: Request<'_>| permitted_job(of_job, &mut cx, request).map(drop);
        for (id, expected) in [
            (pending, [permitted, permitted, denied]),
            (running, [permitted, denied, denied]),
        ] {
            let payload = json!({"id": id}).to_string();
            assert_eq!(errnums(&mut update, &payload), expected, "{payload}");
        }

        let mut history = |request: Request<'_>| {
            let user = permitted_user(request)?;
            let named = request.payload::<HistoryRequest<'_>>().unwrap().userid;
            assert_eq!(user, PermittedUser(named.unwrap_or(request.sender.userid)));
            Ok(())
        };
        for (payload, expected) in [
            (json!({"slice": "[:]"}), [permitted; 3]),
            (
                json!({"slice": "[:]", "userid": OWNER}),
                [permitted, permitted, denied],
            ),
            (
                json!({"slice": "[:]", "userid": GUEST}),
                [permitted, denied, permitted],
            ),
        ] {
            assert_eq!(errnums(&mut history, &payload.to_string()), expected);
        }

        let (document, site) = (
            PermittedKey::Document(PermittedJob(pending), "R".to_owned()),
            PermittedKey::Site("site.key".to_owned()),
        );
        for (key, named, expected) in [
            (
                kvs::r_key(pending),
                document,
                [permitted, permitted, denied],
            ),
            ("site.key".to_owned(), site, [permitted, denied, denied]),
        ] {
            let mut lookup = |request: Request<'_>| {
                assert_eq!(permitted_key(&mut cx, request)?, named);
                Ok(())
            };
            let payload = json!({"key": key}).to_string();
            assert_eq!(errnums(&mut lookup, &payload), expected, "{key}");
        }
    }

    #[test]
    fn each_of_several_jobs_is_checked() {
        let mut cx = context(Settings::default());
        let id = add_pending_job(&mut cx);
        let checked = |cx: &mut Context, names, userid, payload: &str| {
            let mut message = message("job-manager.x", "client", payload);
            (message.userid, message.rolemask) = (userid, role::USER);
            permitted_jobs(names, cx, Request::new(&message))
        };
        let one = json!({"id": id}).to_string();
        let both = json!({"ids": [id, 1]}).to_string();
        let all = json!({"all": true}).to_string();
        let of_owner = json!({"all": true, "userid": OWNER}).to_string();
        let single = checked(&mut cx, JobNames::Ids, OWNER, &one);
        assert!(matches!(single, Ok(PermittedJobs::One(PermittedJob(job))) if job == id));
        let denied = checked(&mut cx, JobNames::Ids, GUEST, &one).map(drop);
        assert_eq!(errnum(denied), errno::EPERM);
        let mut numbers = |userid, payload: &str| {
            let permitted = checked(&mut cx, JobNames::IdsOrAll, userid, payload).unwrap();
            let PermittedJobs::Several(mut named) = permitted else {
                panic!("expected several jobs: {permitted:?}");
            };
            let next = || match named.next(&mut cx) {
                NextJob::Job(_, job) => Some(Some(errnum(job.map(drop)))),
                NextJob::Skipped => Some(None),
                NextJob::End => None,
            };
            std::iter::from_fn(next).flatten().collect::<Vec<u32>>()
        };
        assert_eq!(numbers(OWNER, &both), [0, errno::ENOENT]);
        assert_eq!(numbers(GUEST, &both), [errno::EPERM, errno::ENOENT]);
        assert_eq!(numbers(OWNER, &all), [0]);
        assert!(numbers(GUEST, &all).is_empty());
        assert_eq!(numbers(GUEST, &of_owner), [errno::EPERM]);
        for (names, payload) in [(JobNames::Ids, all), (JobNames::IdsOrAll, "{}".to_owned())] {
            let none = checked(&mut cx, names, OWNER, &payload).map(drop);
            assert_eq!(errnum(none), errno::EINVAL);
        }
    }
}
