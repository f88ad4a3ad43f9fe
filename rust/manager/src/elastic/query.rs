//! `pmix.query`: the requests and loans of a job.

use penstock_elastic::{Account, AttributeKey, Entry, Progress, Status};
use penstock_flux::pmix::{JobRequest, LoanRow, QueryResponse, RequestRow};
use penstock_hostlist::Hostlist;
use serde_json::Value;

use super::calls::denial_of;
use super::naming::{alloc_of, find};
use super::requests::Requests;
use super::returns::LoanKey;
use super::table::RequestTable;
use crate::authorize::Permission;
use crate::context::Context;
use crate::record::Record;
use crate::rpc::{Handled, Reply, Request};
use crate::state::State;

fn denied(status: Status, reason: &str) -> Reply {
    Reply::of(&QueryResponse {
        status: status.0,
        reason: reason.to_owned(),
        requests: Vec::new(),
        lent: Vec::new(),
    })
}

/// `pmix.query`: all requests, oldest first; with an id, the newest of that name.
pub(super) fn query(
    requests: &Requests,
    cx: &Context,
    request: Request<'_>,
    job: Permission,
) -> Handled {
    let query: JobRequest<'_> = request.payload()?;
    let id = match job.map_err(denial_of) {
        Ok(job) => job.id(),
        Err(denial) => return Ok(denied(denial.status, &denial.reason)),
    };
    let account = requests.table.account(id);
    let entries: Vec<&Entry> = match query.id.as_deref() {
        Some(id) => {
            let Some(newest) = account.and_then(|account| find(account, id)) else {
                let reason = format!("no request `{}` of this job", id.escape_debug());
                return Ok(denied(Status::NOT_FOUND, &reason));
            };
            vec![newest]
        }
        None => account.into_iter().flat_map(Account::entries).collect(),
    };
    // The loans of a job end with it.
    let state = cx.jobs.record(id).map(Record::state);
    let is_running = state == Some(State::Run);
    let lender = account.filter(|_| is_running);
    let lends = lender.into_iter().flat_map(Account::loans);
    let lent = lends.map(|(number, lend)| {
        let postponed = requests.postponed.of(LoanKey {
            job: id,
            loan: number,
        });
        let until = postponed.map(|postponed| postponed.until).or(lend.until);
        LoanRow {
            id: lend.id.clone(),
            nodes: (lend.nodes - lend.returned).into(),
            hosts: lend.hosts.clone(),
            cpus: lend.cpus,
            returning: lend.returning,
            until,
            reason: postponed.map_or_else(String::new, |postponed| postponed.reason.clone()),
        }
    });
    Ok(Reply::of(&QueryResponse {
        status: 0,
        reason: String::new(),
        requests: entries
            .iter()
            .map(|entry| row(&requests.table, cx, entry))
            .collect(),
        lent: lent.collect(),
    }))
}

fn row(table: &RequestTable, cx: &Context, entry: &Entry) -> RequestRow {
    let last = entry.alloc.map(|id| table.last_part(id));
    let job = last.and_then(|id| cx.jobs.get(id));
    let sched = job.and_then(|job| job.annotations().get("sched"));
    let annotation = |key: &str| sched.and_then(|sched| sched.get(key)).cloned();
    let is_open = entry.is_open();
    let reason = if is_open {
        let stop_reason = job.and_then(|job| job.dialogue.scheduler.stop_reason());
        let stop_reason = stop_reason.map_or("", |reason| &**reason);
        annotation("reason_pending").unwrap_or_else(|| stop_reason.into())
    } else {
        entry.reason.as_str().into()
    };
    let status = entry.status.unwrap_or(Status::QUEUED).0;
    let Amounts { nodes, cores, time } = amounts(entry);
    RequestRow {
        id: entry.id.clone(),
        alloc: alloc_of(entry),
        directive: entry.directive.clone(),
        rank: entry.rank,
        status,
        state: entry.progress().name().to_owned(),
        reason,
        nodes,
        cores,
        time,
        estimate: annotation("t_estimate").filter(|_| is_open),
        results: entry.results.clone(),
    }
}

/// The amounts of a request; `time` in seconds.
struct Amounts {
    nodes: u64,
    cores: u64,
    time: u64,
}

/// The granted amounts of a request or, before the grant, the requested ones.
fn amounts(entry: &Entry) -> Amounts {
    if entry.progress() != Progress::Granted {
        return Amounts {
            nodes: entry.nodes.into(),
            cores: entry.cpus.into(),
            time: entry.time.into(),
        };
    }
    let text = |key| entry.result(key).and_then(Value::as_str);
    let hosts: Option<Hostlist> = text(AttributeKey::NodeList).and_then(|hosts| hosts.parse().ok());
    let nodes = hosts.map_or(0, |hosts| hosts.len() as u64);
    let lists = text(AttributeKey::CpuCounts).into_iter();
    let counts = lists.flat_map(|list| list.split(','));
    let cores = counts.filter_map(|count| count.parse::<u64>().ok()).sum();
    let time = entry.result(AttributeKey::Time).and_then(Value::as_u64);
    Amounts {
        nodes,
        cores,
        time: time.unwrap_or_default(),
    }
}
