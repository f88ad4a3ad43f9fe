//! `job-list`: one job's row, and waiting for jobs to be over.

use std::collections::BTreeSet;

use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::manager::Manager;
use crate::row::{Attrs, row};
use crate::rpc::{self, ENODATA, EPROTO, Refusal};
use crate::state::State;

/// Rows in one response of a stream.
const ROWS: usize = 1000;

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
