//! `job-info`: a job's documents, and its eventlog as it grows.

use std::sync::Arc;

use penstock_flux::job_info::{
    EventlogWatchRequest, EventlogWatchResponse, LookupRequest, LookupResponse,
};
use penstock_flux::{RWithText, RequestError};
use penstock_jobspec::job_id::JobId;
use serde_json::Map;

use super::watch::Watchers;
use crate::authorize::PermittedJob;
use crate::context::Context;
use crate::rpc::{Handled, Reply, Request};
use crate::state::State;

/// One of the documents of a job that RFC 16 stores, as text; `None` if the job has none yet.
pub(crate) fn document(
    cx: &mut Context,
    id: JobId,
    key: &str,
) -> Result<Option<String>, RequestError> {
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
        "R" => stored_r(cx, id).map(|stored| stored.json().into_owned()),
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
pub(crate) fn lookup(cx: &mut Context, request: Request<'_>, job: &PermittedJob) -> Handled {
    let LookupRequest { keys, .. } = request.payload()?;
    let id = job.id();
    let mut documents = Map::new();
    for key in keys {
        // Each document is read once, however often the request names it.
        if documents.contains_key(&*key) {
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
    Ok(Reply::of(&LookupResponse { id, documents }))
}

impl Watchers {
    /// `job-info.eventlog-watch`: the logged events, then every further one until `clean`.
    pub(crate) fn eventlog_watch(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        job: &PermittedJob,
    ) -> Handled {
        let EventlogWatchRequest { path, .. } = request.payload()?;
        if path.is_some_and(|path| *path != *"eventlog") {
            let text = "only the path `eventlog` can be watched";
            return Err(RequestError::invalid(text));
        }
        let id = job.id();
        let is_over = cx.jobs.known(id)?.record.state() == State::Inactive;
        let log = document(cx, id, "eventlog")?.unwrap_or_default();
        for line in log.split_inclusive('\n') {
            cx.respond_with(
                request.message,
                &EventlogWatchResponse { event: line.into() },
            );
        }
        if is_over {
            return Err(RequestError::end_of_stream());
        }
        self.follow(id, request.message.header());
        Ok(Reply::Deferred)
    }
}
