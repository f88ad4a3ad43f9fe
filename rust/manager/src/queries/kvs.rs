//! `kvs.commit` and `kvs.lookup` over the job schema of RFC 16: `job.<dothex>.R`, `.jobspec`,
//! `.eventlog`. Other keys are plain values.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::kvs::{
    CommitRequest, CommitResponse, Dirent, LookupRequest, LookupResponse, PRIMARY, document_of,
};
use penstock_flux::{Allocation, RequestError, TypedPayload};
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use super::info;
use crate::authorize::PermittedKey;
use crate::context::Context;
use crate::rpc::{Handled, Reply, Request};
use crate::scheduler::SchedulerPeer;

/// One operation of a commit on a key that is not a job's.
enum Write {
    Set(String, Vec<u8>),
    Remove(String),
}

/// A validated commit; overlaps are checked when it is applied.
#[derive(Default)]
struct Commit {
    allocations: Vec<Allocation>,
    writes: Vec<Write>,
}

fn check_namespace(namespace: Option<&str>) -> Result<(), RequestError> {
    match namespace {
        None | Some(PRIMARY) => Ok(()),
        Some(other) => Err(RequestError::not_found(format!("no namespace `{other}`"))),
    }
}

/// `kvs.commit`: all operations or, if one is rejected, none.
pub(crate) fn commit(cx: &mut Context, scheduler: &SchedulerPeer, request: Request<'_>) -> Handled {
    let done = check(cx, request).and_then(|commit| apply(cx, scheduler, commit));
    if let Err(error) = &done {
        cx.complain(format!("kvs.commit rejected: {}", error.text));
    }
    done
}

fn check(cx: &Context, request: Request<'_>) -> Result<Commit, RequestError> {
    if let Some(TypedPayload::Commit(allocations)) = request.message.typed() {
        return check_allocations(cx, allocations);
    }
    let request: CommitRequest<'_> = request.payload()?;
    check_namespace(request.namespace.as_deref())?;
    let mut commit = Commit::default();
    for op in request.ops {
        if op.flags != 0 {
            let (key, flags) = (op.key, op.flags);
            let text = format!("`{key}`: flags {flags}: appending is not supported");
            return Err(RequestError::invalid(text));
        }
        let data = op
            .dirent
            .map(|dirent| decode(&op.key, &dirent))
            .transpose()?;
        match document_of(&op.key) {
            Some((id, "R")) => {
                let text = data.and_then(|data| String::from_utf8(data).ok());
                let text = text.ok_or_else(|| {
                    RequestError::invalid(format!("`{}`: expected the text of an R", op.key))
                })?;
                check_outstanding(cx, id)?;
                let r = ResourceSet::from_json(&text)
                    .map_err(|error| RequestError::invalid(format!("job {id}: {error}")))?;
                check_slots(cx, id, &r)?;
                let (r, text) = match cx.claims.with_own_hosts(&r) {
                    Some(own) => {
                        let text = own.to_json();
                        (own, text)
                    }
                    None => (r, text),
                };
                let (r, text) = (Arc::new(r), text.into());
                commit.allocations.push(Allocation { id, r, text });
            }
            Some(_) => {
                let text = format!("`{}`: only R of a job can be committed", op.key);
                return Err(RequestError::invalid(text));
            }
            None => commit.writes.push(match data {
                Some(data) => Write::Set(op.key.into_string(), data),
                None => Write::Remove(op.key.into_string()),
            }),
        }
    }
    Ok(commit)
}

/// Checks a commit of a scheduler in this process.
fn check_allocations(cx: &Context, allocations: &[Allocation]) -> Result<Commit, RequestError> {
    for allocation in allocations {
        check_outstanding(cx, allocation.id)?;
    }
    Ok(Commit {
        allocations: allocations.to_vec(),
        writes: Vec::new(),
    })
}

/// Checks that a job has an outstanding request. The error number tells a scheduler the fault:
/// EINVAL is about R, any other about the job.
fn check_outstanding(cx: &Context, id: JobId) -> Result<(), RequestError> {
    let Some(job) = cx.jobs.get(id) else {
        return Err(RequestError::not_found(format!(
            "no job {id} to commit R for"
        )));
    };
    if !job.dialogue.scheduler.alloc().is_outstanding() {
        let text = format!("job {id} has no outstanding request for resources");
        return Err(RequestError::protocol(text));
    }
    Ok(())
}

/// Checks that R has a number of slots that the jobspec accepts, if it names a number.
fn check_slots(cx: &Context, id: JobId, r: &ResourceSet) -> Result<(), RequestError> {
    let (Some(job), Some(slots)) = (cx.jobs.get(id), r.nslots()) else {
        return Ok(());
    };
    let nodes = r.nnodes() as u64;
    let request = &job.dialogue.scheduler.request().requested().request;
    if request.accepts_slots(slots, nodes) {
        return Ok(());
    }
    let text =
        format!("job {id}: `nslots` is {slots} on {nodes} nodes, not as the jobspec requests");
    Err(RequestError::invalid(text))
}

fn apply(cx: &mut Context, scheduler: &SchedulerPeer, commit: Commit) -> Handled {
    let claimed = cx.claims.commit(&commit.allocations);
    claimed.map_err(|error| RequestError::invalid(error.to_string()))?;
    for allocation in commit.allocations {
        scheduler.commit_allocation(cx, allocation);
    }
    for write in commit.writes {
        match &write {
            Write::Set(key, data) => cx.store_value(key, Some(data)),
            Write::Remove(key) => cx.store_value(key, None),
        }
    }
    // The commit that these changes will be part of.
    let rootseq = cx.commits() + 1;
    Ok(Reply::of(&CommitResponse { rootseq }))
}

/// `kvs.lookup`: a document of a job, or another key of the store.
pub(crate) fn lookup(cx: &mut Context, request: Request<'_>, key: PermittedKey) -> Handled {
    let LookupRequest { namespace, .. } = request.payload()?;
    check_namespace(namespace.as_deref())?;
    let data = match key {
        PermittedKey::Document(job, name) if name == "R" => {
            let stored = info::stored_r(cx, job.id());
            let stored = stored.ok_or_else(|| RequestError::not_found(""))?;
            return Ok(Reply::Typed(TypedPayload::StoredR(stored)));
        }
        PermittedKey::Document(job, name) => {
            info::document(cx, job.id(), &name)?.map(String::into_bytes)
        }
        PermittedKey::Site(key) => cx.read_store(|store| store.value(&key)),
    };
    let data = data.ok_or_else(|| RequestError::not_found(""))?;
    let val = Dirent::val(BASE64.encode(data));
    Ok(Reply::of(&LookupResponse { val }))
}

fn decode(key: &str, dirent: &Dirent<'_>) -> Result<Vec<u8>, RequestError> {
    if *dirent.kind != *Dirent::VAL {
        let text = format!("`{key}`: expected a dirent of type `val`");
        return Err(RequestError::invalid(text));
    }
    BASE64
        .decode(&*dirent.data)
        .map_err(|error| RequestError::invalid(format!("`{key}`: invalid base64: {error}")))
}
