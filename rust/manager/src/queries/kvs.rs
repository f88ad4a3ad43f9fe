//! `kvs.commit` and `kvs.lookup` over the job schema of RFC 16: `job.<dothex>.R`, `.jobspec`,
//! `.eventlog`, `.guest`. Other keys are plain values. Directories (RFC 11) are made of the keys when they are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::errno::{EISDIR, ENOTDIR, EOPNOTSUPP};
use penstock_flux::kvs::{
    APPEND, CommitRequest, CommitResponse, Directory, DirectoryResponse, Dirent, LookupRequest,
    LookupResponse, NO_BLOB, Namespace, NamespaceListResponse, NamespaceRequest, PRIMARY, READDIR,
    READLINK, ROOTDIR, Reference, RootResponse, TREEOBJ, document_of,
};
use penstock_flux::{Allocation, RequestError, TypedPayload};
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use super::guest::{self, OutputReader, Relays};
use super::info;
use crate::authorize::PermittedKey;
use crate::context::Context;
use crate::exec::ExecPeer;
use crate::rpc::{Handled, Reply, Request};
use crate::scheduler::SchedulerPeer;

/// One operation of a commit on a key that is not a job's.
enum Write {
    Set(String, Vec<u8>),
    Append(String, Vec<u8>),
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
        let is_append = op.flags == APPEND;
        if op.flags != 0 && !is_append {
            let (key, flags) = (op.key, op.flags);
            let text = format!("`{key}`: flags {flags}: expected 0, or {APPEND} to append");
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
            None => {
                let key = site_key(&op.key)?;
                commit.writes.push(match data {
                    Some(data) if is_append => Write::Append(key, data),
                    Some(data) => Write::Set(key, data),
                    None => Write::Remove(key),
                });
            }
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
            Write::Append(key, data) => {
                let before = cx.read_store(|store| store.value(key)).unwrap_or_default();
                cx.store_value(key, Some(&[before.as_slice(), data].concat()));
            }
            Write::Remove(key) => cx.store_value(key, None),
        }
    }
    // The commit that these changes will be part of.
    let rootseq = cx.commits() + 1;
    Ok(Reply::of(&CommitResponse { rootseq }))
}

/// `kvs.lookup`: a document of a job, or another key of the store.
pub(crate) fn lookup(
    cx: &mut Context,
    exec: &ExecPeer,
    relays: &mut Relays,
    request: Request<'_>,
    key: PermittedKey,
) -> Handled {
    let LookupRequest { flags, .. } = request.payload()?;
    let rootdir = penstock_flux::document(request.message.payload_json(), ROOTDIR);
    if rootdir.is_ok_and(|rootdir| rootdir.is_some()) {
        let text = "kvs.lookup: `rootdir`: earlier states are not retained";
        return Err(RequestError::new(EOPNOTSUPP, text));
    }
    if flags & !(READDIR | READLINK | TREEOBJ) != 0 {
        let text = format!("kvs.lookup: flags {flags}: expected those of RFC 11 lookups");
        return Err(RequestError::invalid(text));
    }
    if let Some(entries) = entries(cx, &key) {
        if flags & (READDIR | TREEOBJ) == 0 {
            return Err(RequestError::new(EISDIR, "the key is a directory"));
        }
        let val = Directory::new(entries);
        return Ok(Reply::of(&DirectoryResponse { val }));
    }
    let is_other = flags & READLINK != 0;
    let check_value = || match flags & READDIR {
        0 if !is_other => Ok(()),
        0 => Err(RequestError::invalid("the key is no symbolic link")),
        _ => Err(RequestError::new(ENOTDIR, "the key is a value")),
    };
    let data = match key {
        PermittedKey::Document(job, name) if name == "R" => {
            let stored = info::stored_r(cx, job.id());
            let stored = stored.ok_or_else(|| RequestError::not_found(""))?;
            check_value()?;
            return Ok(Reply::Typed(TypedPayload::StoredR(stored)));
        }
        PermittedKey::Document(job, name) if name == guest::OUTPUT_LOG => {
            check_value()?;
            return relays.look_up_output(cx, exec, request, job.id(), OutputReader::Kvs);
        }
        PermittedKey::Document(job, name) => {
            info::document(cx, job.id(), &name)?.map(String::into_bytes)
        }
        PermittedKey::Site(key) => cx.read_store(|store| store.value(&key)),
    };
    let data = data.ok_or_else(|| RequestError::not_found(""))?;
    check_value()?;
    let val = Dirent::val(BASE64.encode(data));
    Ok(Reply::of(&LookupResponse { val }))
}

/// `kvs.getroot`: the number of the last commit. There is no content store, and so no reference of the root.
pub(crate) fn root(cx: &Context, request: Request<'_>) -> Handled {
    let NamespaceRequest { namespace } = request.payload()?;
    check_namespace(namespace.as_deref())?;
    Ok(Reply::of(&RootResponse {
        rootref: NO_BLOB,
        rootseq: cx.commits(),
        owner: cx.settings.owner,
        flags: 0,
    }))
}

/// `kvs.namespace-list`: the primary namespace; jobs' namespaces are views of their directories.
pub(crate) fn namespaces(cx: &Context) -> Reply {
    let namespaces = [Namespace {
        namespace: PRIMARY,
        owner: cx.settings.owner,
        flags: 0,
    }];
    Reply::of(&NamespaceListResponse { namespaces })
}

/// A key outside of `job` that can be written.
fn site_key(key: &str) -> Result<String, RequestError> {
    let shown = key.escape_debug();
    let key = key.trim_matches('.');
    if key.is_empty() || key.split('.').any(str::is_empty) || key == "job" {
        let text = format!("`{shown}`: expected words with periods between");
        return Err(RequestError::invalid(text));
    }
    Ok(key.to_owned())
}

/// The entries of the directory that a key names; `None` if it names none.
fn entries(cx: &Context, key: &PermittedKey) -> Option<BTreeMap<String, Reference>> {
    match key {
        PermittedKey::Document(job, name) => job_entries(cx, job.id(), name),
        PermittedKey::Site(key) => {
            let mut entries = site_entries(cx, key);
            if key.is_empty() {
                entries.insert("job".to_owned(), Reference::DIRECTORY);
                return Some(entries);
            }
            entries.extend(id_entries(cx, key));
            (!entries.is_empty() || key == "job").then_some(entries)
        }
    }
}

fn references<'a>(
    entries: impl IntoIterator<Item = (&'a str, Reference)>,
) -> BTreeMap<String, Reference> {
    let entries = entries.into_iter();
    entries
        .map(|(name, entry)| (name.to_owned(), entry))
        .collect()
}

/// The entries of a directory of a job.
fn job_entries(cx: &Context, id: JobId, name: &str) -> Option<BTreeMap<String, Reference>> {
    let job = cx.jobs.get(id)?;
    let has_started = job.record.has_started();
    match name {
        "" => {
            let values = ["eventlog", "jobspec"].into_iter();
            let values = values.chain(job.r().map(|_| "R"));
            let values = values.map(|name| (name, Reference::VALUE));
            let guest = has_started.then_some(("guest", Reference::DIRECTORY));
            Some(references(values.chain(guest)))
        }
        "guest" if has_started => Some(references([
            ("exec", Reference::DIRECTORY),
            ("output", Reference::VALUE),
        ])),
        "guest.exec" if has_started => Some(references([("eventlog", Reference::VALUE)])),
        _ => None,
    }
}

/// The entries of a directory outside of `job`: the next words of the keys in it.
fn site_entries(cx: &Context, directory: &str) -> BTreeMap<String, Reference> {
    let prefix = match directory {
        "" => String::new(),
        directory => format!("{directory}."),
    };
    let keys = cx.read_store(|store| store.keys(&prefix));
    let mut entries = BTreeMap::new();
    for key in keys {
        let rest = key.get(prefix.len()..).unwrap_or_default();
        let (word, entry) = match rest.split_once('.') {
            Some((word, _)) => (word, Reference::DIRECTORY),
            None => (rest, Reference::VALUE),
        };
        entries.insert(word.to_owned(), entry);
    }
    entries
}

/// The entries of `job`, or of a directory with a part of an id: the next four digits of the ids of jobs.
fn id_entries(cx: &Context, key: &str) -> BTreeMap<String, Reference> {
    let mut entries = BTreeMap::new();
    let Some(groups) = key
        .strip_prefix("job")
        .filter(|rest| rest.is_empty() || rest.starts_with('.'))
    else {
        return entries;
    };
    let mut prefix = 0_u64;
    let mut shift = u64::BITS;
    for group in groups.split('.').skip(1) {
        let digits = u16::from_str_radix(group, 16).ok();
        let digits = digits.filter(|digits| format!("{digits:04x}") == group);
        let (Some(digits), Some(left)) = (digits, shift.checked_sub(16)) else {
            return entries;
        };
        shift = left;
        prefix |= u64::from(digits) << shift;
    }
    let Some(step) = shift.checked_sub(16) else {
        return entries;
    };
    let last = prefix | u64::MAX.checked_shr(u64::BITS - shift).unwrap_or(0);
    let mut next = Some(prefix);
    while let Some(first) = next.filter(|first| *first <= last) {
        let range = JobId::new(first)..=JobId::new(last);
        let Some((id, _)) = cx.jobs.range(range).next() else {
            break;
        };
        let group = id.get() >> step;
        entries.insert(format!("{:04x}", group & 0xffff), Reference::DIRECTORY);
        next = (group + 1).checked_mul(1 << step);
    }
    entries
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
