//! `job-info`: a job's documents, and its eventlog as it grows.

use std::sync::Arc;

use penstock_flux::job_info::{EventlogWatchResponse, LookupRequest, LookupResponse, WAITCREATE};
use penstock_flux::{RWithText, RequestError};
use penstock_jobspec::job_id::JobId;
use serde_json::Map;

use super::guest::{self, JobLog, OutputReader, Relays};
use super::input_log::{self, INPUT_LOG};
use super::watch::Watchers;
use crate::authorize::PermittedJob;
use crate::context::Context;
use crate::rpc::{Handled, Reply, Request};
use crate::signed;
use crate::state::State;

/// One of the documents of a job that RFC 16 stores, as text. `J` follows from the jobspec. The result is; `None` if the job has none yet.
pub(crate) fn document(
    cx: &mut Context,
    id: JobId,
    key: &str,
) -> Result<Option<String>, RequestError> {
    cx.load(id);
    if !cx.jobs.contains(id) {
        return Ok(None);
    }
    Ok(match key {
        "eventlog" => {
            cx.write_events();
            Some(cx.read_store(|store| store.eventlog(id)))
        }
        "jobspec" => cx
            .jobspec_of(id)
            .map(|document| document.text().as_ref().to_owned()),
        "J" => {
            let userid = cx.jobs.known(id)?.record.userid();
            let document = cx.jobspec_of(id);
            document.map(|document| signed::wrap(document.text(), userid))
        }
        "R" => stored_r(cx, id).map(|stored| stored.json().into_owned()),
        guest::EXECUTION_LOG => Some(guest::execution_log(cx, id)).filter(|log| !log.is_empty()),
        INPUT_LOG => Some(input_log::text(cx, id)).filter(|log| !log.is_empty()),
        _ => return Err(RequestError::not_found(format!("unknown key `{key}`"))),
    })
}

/// The R of a job as the store has it; `None` if the job has none yet.
pub(crate) fn stored_r(cx: &Context, id: JobId) -> Option<RWithText> {
    let job = cx.jobs.get(id)?;
    // The store may still have the R of a request that a restart has interrupted.
    let r = Arc::clone(job.r()?);
    // It has R as it was committed; a later expiration is in the eventlog.
    let text = if job.record.is_expiration_updated() {
        None
    } else {
        let committed = cx.claims.committed_text(id, &r);
        committed.or_else(|| cx.read_store(|store| store.r(id)).map(Arc::from))
    };
    Some(RWithText { r, text })
}

/// `job-info.lookup`.
pub(crate) fn lookup(
    cx: &mut Context,
    relays: &mut Relays,
    request: Request<'_>,
    job: &PermittedJob,
) -> Handled {
    let LookupRequest { keys, .. } = request.payload()?;
    let id = job.id();
    let mut documents = Map::new();
    let mut has_output = false;
    for key in keys {
        // Each document is read once, however often the request names it.
        if documents.contains_key(&*key) {
            continue;
        }
        if *key == *guest::OUTPUT_LOG {
            has_output = true;
            continue;
        }
        let elastic = cx.jobs.record(id).and_then(|record| record.elastic());
        let extent = elastic.and_then(|elastic| elastic.extent.as_ref());
        if let Some(extent) = extent.filter(|_| *key == *"R") {
            documents.insert(key.into_string(), extent.to_json().into());
            continue;
        }
        let Some(text) = document(cx, id, &key)? else {
            let text = format!("job {id} has no {key} yet");
            return Err(RequestError::not_found(text));
        };
        documents.insert(key.into_string(), text.into());
    }
    let response = LookupResponse { id, documents };
    if has_output {
        return relays.look_up_output(cx, request, id, OutputReader::JobInfo(response));
    }
    Ok(Reply::of(&response))
}

impl Watchers {
    /// `job-info.eventlog-watch`: the events of a log so far, then every further one until `clean`.
    pub(crate) fn eventlog_watch(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        job: &PermittedJob,
        log: JobLog,
        flags: i64,
    ) -> Handled {
        let id = job.id();
        let record = &cx.jobs.known(id)?.record;
        let is_over = record.state() == State::Inactive;
        let text = match log {
            JobLog::Execution => guest::execution_log(cx, id),
            JobLog::Input => input_log::text(cx, id),
            JobLog::Events | JobLog::Output => document(cx, id, "eventlog")?.unwrap_or_default(),
        };
        if is_over && text.is_empty() && flags & WAITCREATE == 0 {
            let text = format!("job {id} has not been executed");
            return Err(RequestError::not_found(text));
        }
        for line in text.split_inclusive('\n') {
            cx.respond_with(
                request.message,
                &EventlogWatchResponse { event: line.into() },
            );
        }
        if is_over {
            return Err(RequestError::end_of_stream());
        }
        self.follow(id, log, request.message.header());
        Ok(Reply::Deferred)
    }
}
