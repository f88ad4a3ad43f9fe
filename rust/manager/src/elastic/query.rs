//! `pmix.query`: how requests stand.

use penstock_elastic::{Account, Entry, Key, Progress, Status};
use penstock_hostlist::Hostlist;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use super::watch::{alloc_of, named};
use crate::manager::Manager;
use crate::rpc::{self, RequestError};
use crate::state::State;

#[derive(Deserialize)]
struct Query {
    job: u64,
    id: Option<String>,
}

impl Manager {
    /// The requests of a job, the oldest first; with an id, the newest of that name.
    pub(crate) fn pmix_query(&mut self, request: &Message) -> Result<Value, RequestError> {
        let query: Query = rpc::payload(request)?;
        if let Err(denial) = self.may_know(request, query.job) {
            let status = denial.status.0;
            return Ok(json!({"status": status, "reason": denial.reason, "requests": []}));
        }
        let id = query.id.as_deref();
        let account = self.elastic.ledger.account(query.job);
        let meant: Vec<&Entry> = match id {
            Some(id) => {
                let Some(newest) = account.and_then(|it| named(it, id)) else {
                    let reason = format!("no request `{}` of this job", id.escape_debug());
                    let status = Status::NOT_FOUND.0;
                    return Ok(json!({"status": status, "reason": reason, "requests": []}));
                };
                vec![newest]
            }
            None => account.into_iter().flat_map(Account::entries).collect(),
        };
        let rows: Vec<Value> = meant.into_iter().map(|it| self.standing(it)).collect();
        // Nothing is lent for a job that has ended.
        let job = self.jobs.get(&query.job);
        let account = account.filter(|_| job.is_some_and(|it| it.state == State::Run));
        let lends = account.into_iter().flat_map(Account::lends);
        let lent = lends.map(|(number, lend)| {
            let postponed = self.elastic.postponed.get(&(query.job, number));
            let until = postponed.map(|it| it.until).or(lend.until);
            json!({"id": lend.id, "nodes": lend.nodes - lend.returned, "hosts": lend.hosts, "cpus": lend.cpus,
                   "returning": lend.returning, "until": until,
                   "reason": postponed.map_or("", |it| it.reason.as_str())})
        });
        let lent: Vec<Value> = lent.collect();
        Ok(json!({"status": 0, "reason": "", "requests": rows, "lent": lent}))
    }

    fn standing(&self, entry: &Entry) -> Value {
        let last = entry.alloc.map(|id| self.elastic.last_part(id));
        let job = last.and_then(|id| self.jobs.get(&id));
        let sched = job.and_then(|it| it.annotations.get("sched"));
        let note = |key: &str| sched.and_then(|it| it.get(key)).cloned();
        let waits = entry.is_open();
        let reason = if waits {
            let stopped = job.and_then(|it| it.stopped.as_deref());
            let stopped = stopped.unwrap_or_default();
            note("reason_pending").unwrap_or_else(|| stopped.into())
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
            "estimate": note("t_estimate").filter(|_| waits),
            "results": entry.results,
        })
    }
}

/// Nodes, cores and seconds that are asked for or, of a request that was granted, that it was granted.
fn amounts(entry: &Entry) -> (u64, u64, u64) {
    if entry.progress() != Progress::Granted {
        return (entry.nodes.into(), entry.cpus.into(), entry.time.into());
    }
    let text = |key| entry.result(key).and_then(Value::as_str);
    let nodes: Option<Hostlist> = text(Key::NodeList).and_then(|it| it.parse().ok());
    let cores = text(Key::CpuCounts)
        .into_iter()
        .flat_map(|it| it.split(','));
    let cores = cores.filter_map(|it| it.parse::<u64>().ok()).sum();
    let time = entry.result(Key::Time).and_then(Value::as_u64);
    let nodes = nodes.map_or(0, |it| it.len() as u64);
    (nodes, cores, time.unwrap_or_default())
}
