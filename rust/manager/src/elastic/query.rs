//! `pmix.query`: the requests and loans of a job.

use penstock_elastic::{Account, Entry, Key, Progress, Status};
use penstock_flux::pmix::JobRequest;
use penstock_hostlist::Hostlist;
use serde_json::{Value, json};

use super::calls::visible;
use super::naming::{alloc_of, find};
use super::peer::Elastic;
use crate::context::Context;
use crate::rpc::{Handled, Request};
use crate::state::State;

fn denied(status: Status, reason: &str) -> Value {
    json!({"status": status.0, "reason": reason, "requests": []})
}

impl Elastic {
    /// `pmix.query`: all requests, oldest first; with an id, the newest of that name.
    pub(crate) fn query(&self, cx: &Context, request: Request<'_>) -> Handled {
        let query: JobRequest<'_> = request.payload()?;
        let job = match visible(cx, request, query.job) {
            Ok(job) => job,
            Err(denial) => return Ok(denied(denial.status, &denial.reason).into()),
        };
        let account = self.ledger.account(query.job);
        let entries: Vec<&Entry> = match query.id.as_deref() {
            Some(id) => {
                let Some(newest) = account.and_then(|account| find(account, id)) else {
                    let reason = format!("no request `{}` of this job", id.escape_debug());
                    return Ok(denied(Status::NOT_FOUND, &reason).into());
                };
                vec![newest]
            }
            None => account.into_iter().flat_map(Account::entries).collect(),
        };
        let rows: Vec<Value> = entries.iter().map(|entry| self.row(cx, entry)).collect();
        // The loans of a job end with it.
        let is_running = job.record.state() == State::Run;
        let account = account.filter(|_| is_running);
        let lends = account.into_iter().flat_map(Account::loans);
        let lent = lends.map(|(number, lend)| {
            let postponed = self.postponed.get(&(query.job, number));
            let until = postponed.map(|postponed| postponed.until).or(lend.until);
            json!({
                "id": lend.id,
                "nodes": lend.nodes - lend.returned,
                "hosts": lend.hosts,
                "cpus": lend.cpus,
                "returning": lend.returning,
                "until": until,
                "reason": postponed.map_or("", |postponed| postponed.reason.as_str()),
            })
        });
        let lent: Vec<Value> = lent.collect();
        Ok(json!({"status": 0, "reason": "", "requests": rows, "lent": lent}).into())
    }

    fn row(&self, cx: &Context, entry: &Entry) -> Value {
        let last = entry.alloc.map(|id| self.last_part(id));
        let job = last.and_then(|id| cx.jobs.get(id));
        let sched = job.and_then(|job| job.annotations().get("sched"));
        let annotation = |key: &str| sched.and_then(|sched| sched.get(key)).cloned();
        let is_open = entry.is_open();
        let reason = if is_open {
            let stop_reason = job.and_then(|job| job.dialogue.stop_reason());
            let stop_reason = stop_reason.map_or("", |reason| &**reason);
            annotation("reason_pending").unwrap_or_else(|| stop_reason.into())
        } else {
            entry.reason.as_str().into()
        };
        let status = entry.status.unwrap_or(Status::QUEUED).0;
        let (nodes, cores, time) = amounts(entry);
        json!({
            "id": entry.id,
            "alloc": alloc_of(entry),
            "directive": entry.directive,
            "rank": entry.rank,
            "status": status,
            "state": entry.progress().name(),
            "reason": reason,
            "nodes": nodes,
            "cores": cores,
            "time": time,
            "estimate": annotation("t_estimate").filter(|_| is_open),
            "results": entry.results,
        })
    }
}

/// Nodes, cores and seconds that a request asks for or, once granted, that it was granted.
fn amounts(entry: &Entry) -> (u64, u64, u64) {
    if entry.progress() != Progress::Granted {
        return (entry.nodes.into(), entry.cpus.into(), entry.time.into());
    }
    let text = |key| entry.result(key).and_then(Value::as_str);
    let hosts: Option<Hostlist> = text(Key::NodeList).and_then(|hosts| hosts.parse().ok());
    let nodes = hosts.map_or(0, |hosts| hosts.len() as u64);
    let counts = text(Key::CpuCounts).into_iter();
    let counts = counts.flat_map(|counts| counts.split(','));
    let cores = counts.filter_map(|count| count.parse::<u64>().ok()).sum();
    let time = entry.result(Key::Time).and_then(Value::as_u64);
    (nodes, cores, time.unwrap_or_default())
}
