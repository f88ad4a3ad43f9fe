//! Loans: reclaiming lent resources. A loan returns as it was lent, node for node and cpu for cpu.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use penstock_elastic::{
    Account, Demand, Denial, Directive, Entry, Loan, LoanEnd, PmixRequest, ReleasedPart, Return,
    Status,
};
use penstock_flux::eventlog;
use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use super::naming::name_of;
use super::request_job::{request_of, time_left};
use super::requests::{Call, End, Requester, Requests};
use super::returns::LoanKey;
use super::submission::{Submission, Submissions};
use super::table::RequestTable;
use crate::context::Context;
use crate::effect::RequestKey;
use crate::event::Event;
use crate::state::State;

fn out_of_resource(reason: impl Into<String>) -> Denial {
    Denial::new(Status::OUT_OF_RESOURCE, reason)
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Released ranks of the job's own allocation, reacquired ones included.
pub(super) fn own_ranks(cx: &Context, target: JobId, parts: &[ReleasedPart]) -> IdSet {
    let mut own = IdSet::new();
    for part in parts {
        let request = request_of(cx, part.alloc);
        if part.alloc == target || request.is_some_and(|request| request.demand.own) {
            own.union_with(&part.ranks);
        }
    }
    own
}

/// Splits `lend` into one loan per kind of node.
pub(super) fn lends_of(
    cx: &Context,
    released: &ResourceSet,
    own: &IdSet,
    lend: &Loan,
) -> Vec<Loan> {
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct NodeKind {
        own: bool,
        whole: bool,
        cpus: u32,
        gpus: u32,
    }

    let mut kinds: BTreeMap<NodeKind, IdSet> = BTreeMap::new();
    for node in released.nodes() {
        let kind = NodeKind {
            own: own.contains(node.rank),
            whole: cx.claims.is_whole(&node),
            cpus: count(node.cores.len()),
            gpus: count(node.gpus.len()),
        };
        kinds.entry(kind).or_default().insert(node.rank);
    }
    let lends = kinds.into_iter().map(|(kind, ranks)| Loan {
        nodes: count(ranks.len()),
        cpus: kind.cpus,
        gpus: kind.gpus,
        whole: kind.whole,
        own: kind.own,
        hosts: released.restrict(&ranks).nodelist().to_string(),
        ..lend.clone()
    });
    lends.collect()
}

/// The loans that a request reclaims, by kind of node: one request job requests nodes of one kind.
fn returns_of(table: &RequestTable, job: JobId, request: &PmixRequest) -> Vec<Vec<Return>> {
    let Some(account) = table.account(job) else {
        return Vec::new();
    };
    let max = request.nodes.as_ref().map(|nodes| nodes.value);
    let mut kinds: Vec<(&Loan, Vec<Return>)> = Vec::new();
    for due in account.to_reclaim(request.alloc.as_deref(), max) {
        let Some(lend) = account.loan(due.loan) else {
            continue;
        };
        match kinds.iter_mut().find(|(kind, _)| kind.is_like(lend)) {
            Some((_, returns)) => returns.push(due),
            None => kinds.push((lend, vec![due])),
        }
    }
    kinds.into_iter().map(|(_, returns)| returns).collect()
}

/// REACQUIRE: as much as was lent, on the same hosts if they are free. Nodes of different kinds
/// are requested separately; the first request is the caller's.
pub(super) fn reacquire(
    submissions: &mut Submissions,
    requests: &mut Requests,
    cx: &mut Context,
    call: &Call<'_>,
) -> Result<(), Denial> {
    let (job, request) = (call.requester.job, call.request);
    let kinds = returns_of(&requests.table, job, request);
    let nodes: u32 = kinds.iter().flatten().map(|due| due.nodes).sum();
    let max = request.nodes.as_ref().map(|nodes| nodes.value);
    let is_short = max.is_some_and(|max| max > nodes);
    if nodes == 0 || (is_short && request.required) {
        let reason = format!("{nodes} nodes are lent and not requested yet");
        let status = if nodes == 0 {
            Status::NOT_FOUND
        } else {
            Status::OUT_OF_RESOURCE
        };
        return Err(Denial::new(status, reason));
    }
    if kinds.len() > 1 && request.required {
        return request_all_returns(submissions, requests, cx, call, &kinds);
    }
    let mut kinds = kinds.into_iter();
    let first = kinds.next().unwrap_or_default();
    let elsewhere = nodes - first.iter().map(|due| due.nodes).sum::<u32>();
    request_return(submissions, requests, cx, call, first, elsewhere)?;
    for returns in kinds {
        let key = requests.table.next_key(job);
        let call = Call { key, ..*call };
        if let Err(denial) = request_return(submissions, requests, cx, &call, returns, 0) {
            requests.begin(cx, &call, Entry::default());
            requests.end(cx, key, &End::denied(denial));
        }
    }
    Ok(())
}

/// Requests nodes of one kind; `elsewhere` nodes are requested by other requests.
fn request_return(
    submissions: &mut Submissions,
    requests: &mut Requests,
    cx: &mut Context,
    call: &Call<'_>,
    returns: Vec<Return>,
    elsewhere: u32,
) -> Result<(), Denial> {
    let Some((demand, target)) = ask_for(&requests.table, cx, call, &returns)? else {
        return Ok(());
    };
    let demand = Demand {
        elsewhere,
        ..demand
    };
    let left = time_left(cx, target);
    let submission = Submission {
        demand,
        joins: Some(target),
        duration: left,
        returns,
    };
    submissions.submit(requests, cx, call, submission)
}

/// Requests nodes of several kinds: all of them or none.
fn request_all_returns(
    submissions: &mut Submissions,
    requests: &mut Requests,
    cx: &mut Context,
    call: &Call<'_>,
    kinds: &[Vec<Return>],
) -> Result<(), Denial> {
    if kinds.len() > Demand::MAX_PARTS {
        let (kinds, max) = (kinds.len(), Demand::MAX_PARTS);
        let reason =
            format!("the loans are of {kinds} kinds of nodes: one request reclaims at most {max}");
        return Err(Denial::new(Status::NOT_SUPPORTED, reason));
    }
    let mut parts = Vec::new();
    for returns in kinds {
        if let Some((demand, target)) = ask_for(&requests.table, cx, call, returns)? {
            let joins = Some(target);
            parts.push(Demand { joins, ..demand });
        }
    }
    // The largest first: the fewest nodes can provide it.
    parts.sort_by_key(|part| Reverse((part.cpus == 0, part.cpus)));
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else {
        return Ok(());
    };
    let target = first.joins.unwrap_or(call.requester.job);
    let demand = Demand {
        rest: parts.collect(),
        ..first
    };
    let left = time_left(cx, target);
    let submission = Submission {
        demand,
        joins: Some(target),
        duration: left,
        returns: kinds.concat(),
    };
    submissions.submit(requests, cx, call, submission)
}

/// The request for these loans, which are of one kind, and the allocation that it joins.
fn ask_for(
    table: &RequestTable,
    cx: &Context,
    call: &Call<'_>,
    returns: &[Return],
) -> Result<Option<(Demand, JobId)>, Denial> {
    let (job, request) = (call.requester.job, call.request);
    let Some(account) = table.account(job) else {
        return Ok(None);
    };
    let lends: Vec<(&Loan, u32)> = returns
        .iter()
        .filter_map(|due| Some((account.loan(due.loan)?, due.nodes)))
        .collect();
    let Some((kind, _)) = lends.first().copied() else {
        return Ok(None);
    };
    let mut hosts = Hostlist::default();
    for (lend, _) in &lends {
        let added = hosts.extend_from_str(&lend.hosts);
        added.map_err(|error| out_of_resource(error.to_string()))?;
    }
    let alike = cx.claims.nodes_like(kind.cpus, kind.gpus);
    let among = alike.filter(|_| kind.whole).map(|hosts| hosts.to_string());
    let demand = Demand {
        nodes: Some(lends.iter().map(|(_, nodes)| nodes).sum()),
        cpus: if kind.whole { 0 } else { kind.cpus },
        hosts: Some(hosts.to_string()),
        among,
        own: kind.own,
        required: request.required,
        dropped: request.dropped.clone(),
        ..Demand::default()
    };
    Ok(Some((demand, kind.target.unwrap_or(job))))
}

/// Requests the return of a loan whose time has expired.
pub(super) fn request_due_return(
    submissions: &mut Submissions,
    requests: &mut Requests,
    cx: &mut Context,
    key: LoanKey,
) {
    let LoanKey { job, loan } = key;
    let account = requests.table.account(job);
    let lend = account.and_then(|account| account.loan(loan));
    let Some(outstanding) = lend.map(Loan::outstanding) else {
        return;
    };
    let request = PmixRequest::new(Directive::Reacquire);
    let requester = Requester {
        job,
        rank: None,
        host: None,
    };
    let call = Call {
        key: requests.table.next_key(job),
        requester: &requester,
        request: &request,
    };
    let due = Return {
        loan,
        nodes: outstanding,
    };
    if let Err(denial) = request_return(submissions, requests, cx, &call, vec![due], 0) {
        let name = name_of(job);
        cx.log_line(format!("loan of job {name}: {}", denial.reason));
        requests.postpone_return(cx, key, &denial.reason);
    }
}

/// Ends the requests for an allocation that has ended, and its loans.
pub(super) fn end_loans_of(requests: &mut Requests, cx: &mut Context, target: JobId) {
    let accounts = requests.table.about(target);
    let open = accounts.flat_map(|(job, account)| account.open().map(move |loan| (job, loan)));
    let open = open.filter(|(_, entry)| entry.target == Some(target));
    let open: Vec<RequestKey> = open
        .map(|(job, entry)| RequestKey {
            job,
            seq: entry.seq,
        })
        .collect();
    for key in open {
        let denial = Denial::new(Status::CANCELLED, "the allocation has ended");
        requests.end(cx, key, &End::denied(denial));
    }
    let is_of_target = |lend: &Loan| lend.target == Some(target);
    let has_lent = |account: &Account| account.loans().any(|(_, lend)| is_of_target(lend));
    let is_running = |job: &JobId| {
        let record = cx.jobs.record(*job);
        record.is_some_and(|record| record.state() == State::Run)
    };
    let accounts = requests.table.about(target);
    let lenders = accounts.filter(|(_, account)| has_lent(account));
    let lenders: Vec<JobId> = lenders.map(|(job, _)| job).filter(is_running).collect();
    for job in lenders {
        let event = Event::with(cx.now, eventlog::LOAN_END, &LoanEnd { target });
        requests.table.log(cx, job, event);
    }
}
