//! `JobResults`: `job-manager.wait`, by which the instance owner takes the results of jobs that were submitted as waitable.
//!
//! Each result is taken once. A restart of the instance forgets those of the jobs that have ended before it.

use std::collections::{BTreeMap, VecDeque};

use penstock_flux::errno::ECHILD;
use penstock_flux::exec::exit_status;
use penstock_flux::job_manager::{ANY_JOB, WaitRequest, WaitResponse};
use penstock_flux::{Payload as _, RequestError, job_ingest};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::context::Context;
use crate::record::Record;
use crate::rpc::{Handled, Reply, Request};
use crate::state::JobResult;

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    is_successful: bool,
    error: String,
}

impl Ended {
    fn of(record: &Record) -> Self {
        let is_successful = record.result() == Some(JobResult::Completed);
        let error = match (record.fatal_exception(), record.wait_status()) {
            _ if is_successful => String::new(),
            (Some(fatal), _) => {
                let (kind, note) = (&fatal.kind, &fatal.note);
                let separator = if note.is_empty() { "" } else { ": " };
                format!("exception {kind}{separator}{note}")
            }
            (None, Some(status)) if status & 0x7f != 0 => {
                format!("a task was ended by signal {}", status & 0x7f)
            }
            (None, status) => {
                let code = status.map_or(1, exit_status);
                format!("a task has exit code {code}")
            }
        };
        Self {
            is_successful,
            error,
        }
    }

    fn response(&self, id: JobId) -> WaitResponse<'_> {
        WaitResponse {
            id,
            success: self.is_successful,
            errstr: self.error.as_str().into(),
        }
    }
}

/// The results that no request has taken, and the requests for those of active jobs.
#[derive(Debug, Default)]
pub(crate) struct JobResults {
    ended: BTreeMap<JobId, Ended>,
    /// The request for the result of a job whose end is to be reported.
    named: BTreeMap<JobId, Message>,
    /// The requests for the next result of any job that none names.
    any: VecDeque<Message>,
}

impl JobResults {
    /// `job-manager.wait`: the result of a job, or of the next one.
    pub(crate) fn wait(&mut self, cx: &Context, request: Request<'_>) -> Handled {
        let WaitRequest { id } = request.payload()?;
        if id == ANY_JOB {
            return self.wait_for_any(cx, request);
        }
        let id = JobId::new(id.cast_unsigned());
        if let Some(ended) = self.ended.remove(&id) {
            return Ok(Reply::Payload(ended.response(id).to_payload()));
        }
        let reason = match cx.record(id).map(|record| is_waitable(&record)) {
            None => "there is no such job",
            Some(false) => "it was not submitted as waitable",
            Some(true) if !cx.jobs.is_awaited(id) => "its result has been taken",
            Some(true) if self.named.contains_key(&id) => "another request waits for it",
            Some(true) => {
                self.named.insert(id, request.message.header());
                return Ok(Reply::Deferred);
            }
        };
        let text = format!("job {id}: {reason}");
        Err(RequestError::new(ECHILD, text))
    }

    fn wait_for_any(&mut self, cx: &Context, request: Request<'_>) -> Handled {
        if let Some((id, ended)) = self.ended.pop_first() {
            return Ok(Reply::Payload(ended.response(id).to_payload()));
        }
        if cx.jobs.awaited() <= self.len() as u64 {
            return Err(RequestError::new(ECHILD, "no waitable job is left"));
        }
        self.any.push_back(request.message.header());
        Ok(Reply::Deferred)
    }

    /// Sends the result of a job that has become inactive to the request for it, or holds it for one.
    pub(crate) fn report_end(&mut self, cx: &mut Context, id: JobId) {
        let Some(record) = cx.jobs.record(id).filter(|record| is_waitable(record)) else {
            return;
        };
        let ended = Ended::of(record);
        let waiting = self.named.remove(&id).or_else(|| self.any.pop_front());
        match waiting {
            Some(request) => cx.respond_with(&request, &ended.response(id)),
            None => {
                self.ended.insert(id, ended);
            }
        }
    }

    /// Drops the result of a job that is purged.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.ended.remove(&id);
    }

    /// The number of open requests.
    pub(crate) fn len(&self) -> usize {
        self.named.len() + self.any.len()
    }

    /// Drops the requests of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        let is_theirs = |request: &Message| request.origin() == Some(origin);
        self.named.retain(|_, request| !is_theirs(request));
        self.any.retain(|request| !is_theirs(request));
    }
}

fn is_waitable(record: &Record) -> bool {
    record.flags() & job_ingest::WAITABLE != 0
}
