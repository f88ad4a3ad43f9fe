//! The allocation or loan that a request is about.

use penstock_elastic::{Account, Denial, Directive, Entry, PmixRequest, Progress, Status};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Jobspec, Layout};

use super::requests::Requester;
use super::table::RequestTable;
use crate::authorize;
use crate::context::Context;
use crate::state::State;

/// The allocation that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetAllocation {
    /// The requesting job's, with its grants.
    Own,
    /// One that a request has made, of the same owner.
    Allocation(JobId),
    /// One grant of the requesting job.
    Grant(JobId),
}

/// The allocation that an entry of the ledger names; `None` for the requesting job's own.
pub(super) fn own_allocation(job: JobId, allocation: JobId) -> Option<JobId> {
    Some(allocation).filter(|allocation| *allocation != job)
}

/// Resolves `pmix.alloc.id`: an allocation or, if there is none of that name and no other id,
/// the user's id of this request.
pub(super) fn resolve_target(
    table: &RequestTable,
    cx: &Context,
    job: JobId,
    request: &mut PmixRequest,
) -> Result<TargetAllocation, Denial> {
    let mut target = TargetAllocation::Own;
    let account = table.account(job);
    let is_loan = |id: &str| {
        let mut lends = account.into_iter().flat_map(Account::loans);
        lends.any(|(_, lend)| lend.id.as_deref() == Some(id))
    };
    if request.directive == Directive::Reacquire && request.alloc.is_none() {
        // The name of a loan may be given as the request's own.
        request.alloc = request.id.clone().filter(|id| is_loan(id));
    }
    if let Some(name) = request.alloc.clone() {
        if request.directive == Directive::Reacquire && is_loan(&name) {
            // It stays in `alloc`, as the name of the loan.
        } else if let Some(found) = allocation(table, cx, job, &name, request.directive) {
            target = found;
        } else if request.id.is_none() && may_be_new(cx, &name, request) {
            request.id = request.alloc.take();
        } else {
            return Err(unknown_target(table, cx, job, &name, request.directive));
        }
    }
    if let Some(id) = &request.id
        && account
            .and_then(|account| account.named(id))
            .is_some_and(Entry::is_open)
    {
        let id = id.escape_debug();
        let reason = format!("a request `{id}` of this job is pending already");
        request.id = None;
        return Err(Denial::new(Status::BAD_PARAM, reason));
    }
    Ok(target)
}

fn unknown_target(
    table: &RequestTable,
    cx: &Context,
    job: JobId,
    name: &str,
    directive: Directive,
) -> Denial {
    let is_known = allocation(table, cx, job, name, Directive::Extend).is_some();
    let name = name.escape_debug();
    if is_known && directive == Directive::New {
        let reason = format!(
            "`pmix.alloc.id`: `{name}` exists already: expected another name for a new allocation"
        );
        return Denial::new(Status::BAD_PARAM, reason);
    }
    let what = match directive {
        Directive::Reacquire => "loan",
        _ => "allocation",
    };
    let reason = format!("`pmix.alloc.id`: there is no {what} `{name}`");
    Denial::new(Status::NOT_FOUND, reason)
}

/// The active allocation with this job id, or of the newest granted request of this name.
fn allocation(
    table: &RequestTable,
    cx: &Context,
    job: JobId,
    name: &str,
    directive: Directive,
) -> Option<TargetAllocation> {
    if directive == Directive::New {
        return None;
    }
    let named = name.parse::<JobId>().ok();
    let account = table.account(job);
    let requests = account
        .into_iter()
        .flat_map(|account| account.all_named(name));
    let granted = requests.filter(|entry| entry.progress() == Progress::Granted);
    let granted = granted.filter_map(|entry| entry.alloc);
    let mut ids = named.into_iter().chain(granted);
    ids.find_map(|id| active_allocation(table, cx, job, id))
}

/// The relation of job `id` to the requesting `job` of the same owner; `None` if it has no resources.
fn active_allocation(
    table: &RequestTable,
    cx: &Context,
    job: JobId,
    id: JobId,
) -> Option<TargetAllocation> {
    if id == job {
        return Some(TargetAllocation::Own);
    }
    let requester = cx.jobs.record(job)?;
    let found = cx.jobs.record(id)?;
    let is_running = |id: &JobId| {
        let record = cx.jobs.record(*id);
        record.is_some_and(|record| record.state() == State::Run)
    };
    if !authorize::may_name(requester, found) || !table.all_parts(id).iter().any(is_running) {
        return None;
    }
    match found.elastic_request()?.joins {
        None => Some(TargetAllocation::Allocation(id)),
        Some(joined) if joined == job => Some(TargetAllocation::Grant(id)),
        Some(_) => None,
    }
}

/// Whether an unknown `pmix.alloc.id` counts as a new request name. False for RELEASE, for a required
/// attribute and, except in NEW, for known job ids.
fn may_be_new(cx: &Context, name: &str, request: &PmixRequest) -> bool {
    let job = name.parse::<JobId>().ok();
    match request.directive {
        Directive::New => !request.alloc_required,
        Directive::Release => false,
        _ => !request.alloc_required && job.is_none_or(|id| !cx.jobs.contains(id)),
    }
}

/// Finds the ranks of a job on which the requesting task runs: empty for the job as a whole, all of the
/// job's own if the task's node is unknown.
pub(super) fn find_own_node(cx: &Context, requester: &Requester) -> IdSet {
    let Some(record) = cx.jobs.record(requester.job) else {
        return IdSet::new();
    };
    let (Some(r), key) = (record.r().cloned(), record.spec().key) else {
        return IdSet::new();
    };
    if let Some(host) = &requester.host
        && let Ok(hosts) = host.parse()
    {
        let ranks = r.ranks_on(&hosts);
        if !ranks.is_empty() {
            return ranks;
        }
    }
    let Some(task) = requester.rank else {
        return IdSet::new();
    };
    let text = cx.read_store(|store| store.jobspec(key));
    let jobspec = text.and_then(|text| Jobspec::from_json(&text).ok());
    let layout = jobspec.and_then(|jobspec| Layout::new(&jobspec, &r).ok());
    let rank = layout.and_then(|layout| layout.target_of(task.into()));
    rank.map_or_else(|| r.ranks(), |rank| IdSet::from(rank..=rank))
}
