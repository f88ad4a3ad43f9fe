//! `job-info`: a job's documents, and its eventlog as it grows.

use penstock_flux::RequestError;
use penstock_flux::job_info::{
    EventlogWatchRequest, EventlogWatchResponse, LookupRequest, LookupResponse,
};
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
    let Some(job) = cx.jobs.get(id) else {
        return Ok(None);
    };
    let (spec, has_r) = (job.record.spec().key, job.r().is_some());
    // The store has R as it was committed; a later expiration is in the eventlog.
    let updated = job
        .record
        .r()
        .filter(|_| job.record.is_expiration_updated());
    let updated = updated.map(|r| r.to_json());
    Ok(match key {
        "eventlog" => {
            cx.write_events();
            Some(cx.read_store(|store| store.eventlog(id)))
        }
        "jobspec" => cx.read_store(|store| store.jobspec(spec)),
        // The store may still have the R of a request that a restart has interrupted.
        "R" if updated.is_some() => updated,
        "R" if has_r => cx.read_store(|store| store.r(id)),
        "R" => None,
        _ => return Err(RequestError::not_found(format!("unknown key `{key}`"))),
    })
}

/// `job-info.lookup`.
pub(crate) fn lookup(cx: &mut Context, request: Request<'_>, job: &PermittedJob) -> Handled {
    let LookupRequest { keys, .. } = request.payload()?;
    let id = job.id();
    let mut documents = Map::new();
    for key in keys {
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
        self.follow(id, request.message.clone());
        Ok(Reply::Deferred)
    }
}
