//! `pmix.query`: how requests stand.

use penstock_elastic::{Account, Entry, Status};
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use super::watch::named;
use crate::manager::Manager;
use crate::rpc::{self, Refusal};

#[derive(Deserialize)]
struct Query {
    job: u64,
    id: Option<String>,
}

impl Manager {
    /// The requests of a job, the oldest first; with an id, the newest of that name.
    pub(crate) fn pmix_query(&mut self, request: &Message) -> Result<Value, Refusal> {
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
        let lends = account.into_iter().flat_map(Account::lends);
        let lent = lends.map(|(_, lend)| {
            json!({"id": lend.id, "nodes": lend.nodes - lend.returned, "hosts": lend.hosts, "cpus": lend.cpus,
                   "returning": lend.returning, "until": lend.until})
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
            note("reason_pending").unwrap_or_else(|| "".into())
        } else {
            entry.reason.as_str().into()
        };
        let status = entry.status.unwrap_or(Status::QUEUED).0;
        json!({
            "id": entry.id,
            "alloc": entry.alloc.map(|it| Fluid(it).to_string()),
            "directive": entry.directive,
            "rank": entry.rank,
            "status": status,
            "state": entry.progress().name(),
            "reason": reason,
            "nodes": entry.nodes,
            "cores": entry.cpus,
            "time": entry.time,
            "estimate": note("t_estimate").filter(|_| waits),
            "results": entry.results,
        })
    }
}
