//! `kvs.commit` and `kvs.lookup` over the job schema of RFC 16: `job.<dothex>.R`, `.jobspec`,
//! `.eventlog`, `.guest`. Other keys are plain values. Directories (RFC 11) are made of the keys when they are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::errno::{EISDIR, ENOTDIR, EOPNOTSUPP};
use penstock_flux::kvs::{
    APPEND, CommitRequest, CommitResponse, Directory, DirectoryResponse, Dirent, Entry, EntryData,
    LookupRequest, LookupResponse, NO_BLOB, Namespace, NamespaceListResponse, NamespaceRequest,
    ObjectResponse, PRIMARY, READDIR, READLINK, ROOTDIR, Reference, RootResponse, Symlink, TREEOBJ,
    TreeObject, document_of,
};
use penstock_flux::{Allocation, RequestError, TypedPayload};
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use super::guest::{self, OutputReader, Relays};
use super::info;
use super::key_watch::KeyWatches;
use super::tree;
use crate::authorize::PermittedKey;
use crate::context::Context;
use crate::rpc::{Handled, Reply, Request};
use crate::scheduler::SchedulerPeer;

/// One operation of a commit on a key that is not a job's.
struct Write {
    /// The key without links in the directories above it.
    key: String,
    change: Change,
}

enum Change {
    Set(Vec<u8>),
    Append(Vec<u8>),
    Remove,
    MakeDirectory,
    Link(String),
}

/// The operations of a commit on keys that are no job's.
#[derive(Default)]
struct Writes {
    list: Vec<Write>,
    /// By key, the position of an operation that appends to its value, which no later operation replaces or removes.
    appending: BTreeMap<String, usize>,
}

impl Writes {
    /// Adds an operation. All that is appended to a value is one: each reads and writes the value.
    fn push(&mut self, key: String, change: Change) {
        if let Change::Append(more) = &change
            && let Some(position) = self.appending.get(&key)
            && let Some(Write {
                change: Change::Append(data),
                ..
            }) = self.list.get_mut(*position)
        {
            return data.extend_from_slice(more);
        }
        if !self.appending.is_empty() {
            self.end_appending(&key);
        }
        if matches!(change, Change::Append(_)) {
            self.appending.insert(key.clone(), self.list.len());
        }
        self.list.push(Write { key, change });
    }

    /// Ends appending to the values that a write to a key replaces or removes.
    fn end_appending(&mut self, key: &str) {
        for replaced in tree::directories_above(key).chain([key]) {
            self.appending.remove(replaced);
        }
        let prefix = format!("{key}.");
        let below = self.appending.range(prefix.clone()..);
        let below = below.map(|(below, _)| below.clone());
        let below: Vec<String> = below.take_while(|key| key.starts_with(&prefix)).collect();
        for key in below {
            self.appending.remove(&key);
        }
    }
}

/// An accepted commit: none of its operations can be rejected any longer.
#[derive(Default)]
struct Commit {
    allocations: Vec<Allocation>,
    writes: Writes,
}

fn check_namespace(namespace: Option<&str>) -> Result<(), RequestError> {
    match namespace {
        None | Some(PRIMARY) => Ok(()),
        Some(other) => Err(RequestError::not_found(format!("no namespace `{other}`"))),
    }
}

/// `kvs.commit`: all operations or, if one is rejected, none.
pub(crate) fn commit(
    cx: &mut Context,
    scheduler: &SchedulerPeer,
    watches: &mut KeyWatches,
    request: Request<'_>,
) -> Handled {
    match accept(cx, request) {
        Ok(commit) => Ok(apply(cx, scheduler, watches, commit)),
        Err(error) => {
            cx.complain(format!("kvs.commit rejected: {}", error.text));
            Err(error)
        }
    }
}

/// Checks a commit, and claims the resources of its allocations.
fn accept(cx: &mut Context, request: Request<'_>) -> Result<Commit, RequestError> {
    let commit = check(cx, request)?;
    // Last, because a rejected claim is the only one that needs no undo.
    let claimed = cx.claims.commit(&commit.allocations);
    claimed.map_err(|error| RequestError::invalid(error.to_string()))?;
    Ok(commit)
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
        let change = op.dirent.map(|entry| decode(&op.key, entry)).transpose()?;
        match document_of(&op.key) {
            Some((id, "R")) => {
                let text = change.and_then(|change| match change {
                    Change::Set(data) => String::from_utf8(data).ok(),
                    _ => None,
                });
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
                let key = tree::resolve_parent(cx, &site_key(&op.key)?)?;
                let change = match change {
                    Some(Change::Set(data)) if is_append => Change::Append(data),
                    Some(change) => change,
                    None => Change::Remove,
                };
                commit.writes.push(key, change);
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
        writes: Writes::default(),
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
    // Without a scheduler that is ready, requests are those of a lost one.
    if !(cx.handshake().is_ready() && job.dialogue.scheduler.alloc().is_outstanding()) {
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
    let request = &job.dialogue.scheduler.requested().request;
    if request.accepts_slots(slots, nodes) {
        return Ok(());
    }
    let text =
        format!("job {id}: `nslots` is {slots} on {nodes} nodes, not as the jobspec requests");
    Err(RequestError::invalid(text))
}

/// Applies an accepted commit. Links are those before it.
fn apply(
    cx: &mut Context,
    scheduler: &SchedulerPeer,
    watches: &mut KeyWatches,
    commit: Commit,
) -> Reply {
    let Commit {
        allocations,
        writes,
    } = commit;
    for allocation in allocations {
        scheduler.commit_allocation(cx, allocation);
    }
    for Write { key, change } in &writes.list {
        match change {
            Change::Set(data) => tree::set(cx, key, data),
            Change::Append(data) => {
                let before = cx.read_store(|store| store.value(key)).unwrap_or_default();
                tree::set(cx, key, &[before.as_slice(), data].concat());
            }
            Change::Remove => tree::remove(cx, key),
            Change::MakeDirectory => tree::make_directory(cx, key),
            Change::Link(target) => tree::link(cx, key, target),
        }
    }
    let written = writes
        .list
        .iter()
        .map(|Write { key, change }| match change {
            Change::Append(data) => (key.as_str(), Some(data.as_slice())),
            _ => (key.as_str(), None),
        });
    watches.record_commit(cx, written);
    // The commit that these changes will be part of.
    let rootseq = cx.commits() + 1;
    Reply::of(&CommitResponse { rootseq })
}

/// `kvs.lookup`: a document of a job, or another key of the store.
pub(crate) fn lookup(
    cx: &mut Context,
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
    let key = match key {
        PermittedKey::Site(key) => {
            if let Some(target) = tree::link_at(cx, &key, flags)? {
                let val = TreeObject::Symlink(Symlink::new(target));
                return Ok(Reply::of(&ObjectResponse { val }));
            }
            PermittedKey::Site(tree::resolve(cx, &key)?)
        }
        document @ PermittedKey::Document(..) => document,
    };
    if is_directory(cx, &key) {
        if flags & READLINK != 0 {
            return Err(RequestError::invalid("the key is no symbolic link"));
        }
        if flags & (READDIR | TREEOBJ) == 0 {
            return Err(RequestError::new(EISDIR, "the key is a directory"));
        }
        if flags & READDIR == 0 {
            let val = TreeObject::Reference(Reference::DIRECTORY);
            return Ok(Reply::of(&ObjectResponse { val }));
        }
        let val = Directory::new(entries(cx, &key)?);
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
            return relays.look_up_output(cx, request, job.id(), OutputReader::Kvs);
        }
        PermittedKey::Document(job, name) => {
            info::document(cx, job.id(), &name)?.map(String::into_bytes)
        }
        PermittedKey::Site(key) if key == INVENTORY => {
            let inventory = cx.claims.inventory();
            inventory.map(|inventory| inventory.to_json().into_bytes())
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

/// The key of the inventory, which has the end of the resources.
const INVENTORY: &str = "resource.R";

/// A key outside of `job` that can be written.
fn site_key(key: &str) -> Result<String, RequestError> {
    penstock_flux::kvs::check_key(key)?;
    let shown = key.escape_debug();
    let key = key.trim_matches('.');
    if key.is_empty() || key.split('.').any(str::is_empty) || key == "job" {
        let text = format!("`{shown}`: expected words with periods between");
        return Err(RequestError::invalid(text));
    }
    if key == INVENTORY {
        let text = format!("`{INVENTORY}` is the inventory: `penstock resource` changes it");
        return Err(RequestError::invalid(text));
    }
    Ok(key.to_owned())
}

fn is_directory(cx: &Context, key: &PermittedKey) -> bool {
    match key {
        PermittedKey::Document(job, name) => job_entries(cx, job.id(), name).is_some(),
        PermittedKey::Site(key) => {
            key == "job" || tree::is_directory(cx, key) || !id_entries(cx, key).is_empty()
        }
    }
}

/// The entries of the directory that a key names.
fn entries(cx: &Context, key: &PermittedKey) -> Result<BTreeMap<String, TreeObject>, RequestError> {
    match key {
        PermittedKey::Document(job, name) => {
            Ok(job_entries(cx, job.id(), name).unwrap_or_default())
        }
        PermittedKey::Site(key) => {
            let mut entries = tree::entries(cx, key)?;
            if key.is_empty() {
                let jobs = TreeObject::Reference(Reference::DIRECTORY);
                entries.insert("job".to_owned(), jobs);
            }
            entries.extend(id_entries(cx, key));
            Ok(entries)
        }
    }
}

fn references<'a>(
    entries: impl IntoIterator<Item = (&'a str, Reference)>,
) -> BTreeMap<String, TreeObject> {
    let entries = entries.into_iter();
    entries
        .map(|(name, entry)| (name.to_owned(), TreeObject::Reference(entry)))
        .collect()
}

/// The entries of a directory of a job.
fn job_entries(cx: &Context, id: JobId, name: &str) -> Option<BTreeMap<String, TreeObject>> {
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
            ("input", Reference::VALUE),
            ("output", Reference::VALUE),
        ])),
        "guest.exec" if has_started => Some(references([("eventlog", Reference::VALUE)])),
        _ => None,
    }
}

/// The entries of `job`, or of a directory with a part of an id: the next four digits of the ids of jobs.
fn id_entries(cx: &Context, key: &str) -> BTreeMap<String, TreeObject> {
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
        let (first, last) = (JobId::new(first), JobId::new(last));
        let Some(id) = cx.read_store(|store| store.first_id(first, last)) else {
            break;
        };
        let group = id.get() >> step;
        let group_directory = TreeObject::Reference(Reference::DIRECTORY);
        entries.insert(format!("{:04x}", group & 0xffff), group_directory);
        next = (group + 1).checked_mul(1 << step);
    }
    entries
}

fn decode(key: &str, entry: Entry<'_>) -> Result<Change, RequestError> {
    match (&*entry.kind, entry.data) {
        (Dirent::VAL, EntryData::Bytes(data)) => {
            let bytes = BASE64.decode(&*data);
            bytes
                .map(Change::Set)
                .map_err(|error| RequestError::invalid(format!("`{key}`: invalid base64: {error}")))
        }
        (Entry::DIRECTORY, EntryData::Entries(entries)) if entries.is_empty() => {
            Ok(Change::MakeDirectory)
        }
        (Entry::SYMLINK, EntryData::Link(link)) => {
            if link.namespace.is_some_and(|name| name != PRIMARY) {
                let text = format!("`{key}`: links to other namespaces are not supported");
                return Err(RequestError::new(EOPNOTSUPP, text));
            }
            // A job's documents have an owner of their own, by the key of a request.
            if link.target == "job" || link.target.starts_with("job.") {
                let text = format!("`{key}`: links to documents of jobs are not supported");
                return Err(RequestError::new(EOPNOTSUPP, text));
            }
            Ok(Change::Link(site_key(&link.target)?))
        }
        _ => {
            let text =
                format!("`{key}`: expected a dirent of type `val`, an empty `dir` or a `symlink`");
            Err(RequestError::invalid(text))
        }
    }
}
