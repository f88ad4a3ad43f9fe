//! `job-list`: jobs by id or by a constraint in the manner of RFC 43, newest first.

use std::collections::BTreeSet;

use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::filter::Filter;
use crate::job::Job;
use crate::manager::Manager;
use crate::row::{Attrs, row};
use crate::rpc::{self, ENODATA, EPROTO, Refusal};
use crate::state::State;

/// Rows in one response of a stream.
const ROWS: usize = 1000;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    max_entries: usize,
    #[serde(default)]
    attrs: Vec<String>,
    #[serde(default)]
    since: f64,
    #[serde(default)]
    constraint: Option<Value>,
    ids: Option<Vec<u64>>,
}

#[derive(Deserialize)]
struct ListId {
    id: u64,
    #[serde(default)]
    attrs: Vec<String>,
}

#[derive(Deserialize)]
struct Wait {
    ids: Vec<u64>,
}

impl Manager {
    /// `job-list.list`: a stream of `{"jobs": [row…]}`, newest job first.
    pub(crate) fn list(&mut self, request: &Message) {
        let end = match self.list_rows(request) {
            Ok(rows) => {
                for chunk in rows.chunks(ROWS) {
                    let payload = json!({ "jobs": chunk, "version": 1 });
                    self.respond(request, Some(&payload));
                }
                Refusal::new(ENODATA, "")
            }
            Err(refusal) => refusal,
        };
        self.refuse(request, &end);
    }

    fn list_rows(&self, request: &Message) -> Result<Vec<Value>, Refusal> {
        if !request.is_streaming() {
            return Err(Refusal::new(EPROTO, "job-list.list is a streaming request"));
        }
        let list: List = rpc::payload(request)?;
        let everything = json!({});
        let filter = Filter::parse(list.constraint.as_ref().unwrap_or(&everything))?;
        let most = if list.max_entries == 0 {
            usize::MAX
        } else {
            list.max_entries
        };
        let shown = |job: &&Job| {
            (job.state != State::Inactive || job.t_inactive > list.since) && filter.matches(job)
        };
        let attrs = Attrs::named(&list.attrs);
        let row = |job: &Job| Value::Object(row(job, attrs));
        if let Some(ids) = &list.ids {
            let mut rows = Vec::with_capacity(ids.len());
            for id in ids {
                let job = self.jobs.get(id);
                let job = job.ok_or_else(|| self.unknown(*id))?;
                rows.extend(Some(job).filter(shown).map(row));
            }
            rows.truncate(most);
            return Ok(rows);
        }
        let jobs = self.jobs.values().rev().filter(shown);
        Ok(jobs.take(most).map(row).collect())
    }

    /// `job-list.list-id`: one job.
    pub(crate) fn list_id(&self, request: &Message) -> Result<Value, Refusal> {
        let wanted: ListId = rpc::payload(request)?;
        let job = self.jobs.get(&wanted.id);
        let job = job.ok_or_else(|| self.unknown(wanted.id))?;
        Ok(json!({ "job": row(job, Attrs::named(&wanted.attrs)) }))
    }

    /// `job-list.wait`: each job's row as it becomes inactive, ENODATA when all are.
    pub(crate) fn wait(&mut self, request: &Message) {
        if let Err(refusal) = self.start_wait(request) {
            self.refuse(request, &refusal);
        }
    }

    fn start_wait(&mut self, request: &Message) -> Result<(), Refusal> {
        if !request.is_streaming() {
            return Err(Refusal::new(EPROTO, "job-list.wait is a streaming request"));
        }
        let wait: Wait = rpc::payload(request)?;
        let mut left = BTreeSet::new();
        let mut over = Vec::new();
        for id in wait.ids {
            let job = self.jobs.get(&id);
            let job = job.ok_or_else(|| self.unknown(id))?;
            if job.state == State::Inactive {
                over.push(Value::Object(row(job, Attrs::ALL)));
            } else {
                left.insert(id);
            }
        }
        for chunk in over.chunks(ROWS) {
            self.respond(request, Some(&json!({ "jobs": chunk })));
        }
        if left.is_empty() {
            self.refuse(request, &Refusal::new(ENODATA, ""));
        } else {
            self.watchers.wait(request.clone(), left);
        }
        Ok(())
    }
}
