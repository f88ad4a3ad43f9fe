//! The key-value store: the requests that schedulers and execution services make (RFC 11, RFC 16).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_jobspec::job_id::JobId;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::RequestError;
use crate::limits::{MAX_KEY_BYTES, MAX_OPERATIONS_PER_COMMIT};
use crate::payload::{Json, Payload, Text, object, objects_at_most, optional_object, parse_short};

/// The namespace of jobs, and the only one served.
pub const PRIMARY: &str = "primary";

/// The length of a job id in keys: four groups of four hexadecimal digits.
const DOTHEX_BYTES: usize = 19;

/// The key of a job's R (RFC 16).
pub fn r_key(id: JobId) -> String {
    format!("job.{}.R", id.dothex())
}

/// The job and the document that a key names (RFC 16), `job.<dothex>.<document>`; `None` for other keys.
///
/// ```
/// use penstock_flux::{JobId, kvs};
///
/// assert_eq!(kvs::document_of(&kvs::r_key(JobId::new(7))), Some((JobId::new(7), "R")));
/// assert_eq!(kvs::document_of("job.7.R"), None);
/// ```
pub fn document_of(key: &str) -> Option<(JobId, &str)> {
    let rest = key.strip_prefix("job.")?;
    let (dothex, document) = (rest.get(..DOTHEX_BYTES)?, rest.get(DOTHEX_BYTES..)?);
    let document = document.strip_prefix('.').filter(|name| !name.is_empty())?;
    let id: JobId = dothex.parse().ok()?;
    (id.dothex() == dothex).then_some((id, document))
}

/// The beginning of the names of the namespaces of jobs: `job-<dothex>`.
const JOB_NAMESPACE: &str = "job-";

/// Checks the length of a key.
///
/// # Errors
///
/// It has more than [`MAX_KEY_BYTES`].
pub fn check_key(key: &str) -> Result<(), RequestError> {
    if key.len() <= MAX_KEY_BYTES {
        return Ok(());
    }
    let length = key.len();
    let text =
        format!("the key is too long: expected at most {MAX_KEY_BYTES} bytes, found {length}");
    Err(RequestError::invalid(text))
}

/// The key that a key of a namespace is in the primary one, in its shortest form: without periods at its ends, empty for
/// the root. `None` for an unknown namespace.
///
/// ```
/// use penstock_flux::kvs;
///
/// assert_eq!(kvs::primary_key(None, "a.b."), Some("a.b".to_owned()));
/// assert_eq!(kvs::primary_key(Some("primary"), "."), Some(String::new()));
/// let key = kvs::primary_key(Some("job-0017.e9fb.8df1.6c2e"), "output");
/// assert_eq!(key.as_deref(), Some("job.0017.e9fb.8df1.6c2e.guest.output"));
/// assert_eq!(kvs::primary_key(Some("x"), "output"), None);
/// ```
pub fn primary_key(namespace: Option<&str>, key: &str) -> Option<String> {
    let key = key.trim_matches('.');
    match namespace {
        None | Some(PRIMARY) => Some(key.to_owned()),
        Some(other) => {
            let dothex = other.strip_prefix(JOB_NAMESPACE)?;
            let id: JobId = dothex.parse().ok()?;
            let guest = format!("job.{}.guest.{key}", id.dothex());
            (id.dothex() == dothex).then(|| guest.trim_end_matches('.').to_owned())
        }
    }
}

/// The job whose directory a key names, `job.<dothex>`; `None` for other keys.
pub fn directory_of(key: &str) -> Option<JobId> {
    let dothex = key.strip_prefix("job.")?;
    let id: JobId = dothex.parse().ok()?;
    (id.dothex() == dothex).then_some(id)
}

/// The flag of an operation that appends to a value.
pub const APPEND: i64 = 32;

/// The flag of a watch that waits until the key exists.
pub const WAITCREATE: i64 = 8;
/// The flag of a watch that wants every change of the value, also by a change of a directory above.
pub const WATCH_FULL: i64 = 64;
/// The flag of a watch that wants a value only if it differs from the one before.
pub const WATCH_UNIQ: i64 = 128;
/// The flag of a watch that wants what is appended.
pub const WATCH_APPEND: i64 = 256;
/// The flag of a watch, which is known by its topic.
pub const WATCH: i64 = 4;

/// The key of a lookup with an object of the tree that its key is relative to.
pub const ROOTDIR: &str = "rootdir";

/// The flag of a lookup that wants a directory.
pub const READDIR: i64 = 1;
/// The flag of a lookup that wants a symbolic link.
pub const READLINK: i64 = 2;
/// The flag of a lookup that wants an object of the tree, whatever its type.
pub const TREEOBJ: i64 = 16;

/// The reference of every directory and value: none is in a content store.
pub const NO_BLOB: &str = "sha1-0000000000000000000000000000000000000000";

/// An entry of a directory (RFC 11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reference {
    /// The version of this structure, 1.
    pub ver: u32,
    /// `dirref` or `valref`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The place of its data.
    pub data: [&'static str; 1],
}

impl Reference {
    /// A directory.
    pub const DIRECTORY: Self = Self::new("dirref");
    /// A value.
    pub const VALUE: Self = Self::new("valref");

    const fn new(kind: &'static str) -> Self {
        Self {
            ver: 1,
            kind,
            data: [NO_BLOB],
        }
    }
}

/// A symbolic link (RFC 11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Symlink {
    /// The version of this structure, 1.
    pub ver: u32,
    /// `symlink`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The key that it stands for.
    pub data: LinkTarget,
}

impl Symlink {
    /// A link to a key.
    pub fn new(target: String) -> Self {
        Self {
            ver: 1,
            kind: Entry::SYMLINK,
            data: LinkTarget {
                target,
                namespace: None,
            },
        }
    }
}

/// The target of a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTarget {
    /// The key.
    pub target: String,
    /// Its namespace; that of the link if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// An entry of a directory, or an object by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum TreeObject {
    /// A directory or a value.
    Reference(Reference),
    /// A symbolic link.
    Symlink(Symlink),
}

/// The response to a lookup of an object other than a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectResponse {
    /// The object.
    pub val: TreeObject,
}

/// A directory (RFC 11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Directory {
    /// The version of this structure, 1.
    pub ver: u32,
    /// `dir`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The entries by name.
    pub data: BTreeMap<String, TreeObject>,
}

impl Directory {
    /// A directory with these entries.
    pub fn new(data: BTreeMap<String, TreeObject>) -> Self {
        Self {
            ver: 1,
            kind: Entry::DIRECTORY,
            data,
        }
    }
}

/// The response to a lookup of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DirectoryResponse {
    /// The directory.
    pub val: Directory,
}

/// `kvs.getroot`, `kvs.wait-version`: names a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceRequest<'a> {
    /// The namespace.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text<'a>>,
}

/// The response to `kvs.getroot`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RootResponse {
    /// [`NO_BLOB`].
    pub rootref: &'static str,
    /// The number of the last commit.
    pub rootseq: u64,
    /// The user who owns the namespace.
    pub owner: u32,
    /// None.
    pub flags: u32,
}

/// A namespace in the response to `kvs.namespace-list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// The name.
    pub namespace: &'static str,
    /// The user who owns it.
    pub owner: u32,
    /// None.
    pub flags: u32,
}

/// The response to `kvs.namespace-list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamespaceListResponse {
    /// The primary namespace.
    pub namespaces: [Namespace; 1],
}

/// `kvs.commit`: applies operations atomically.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRequest<'a> {
    /// The namespace; the primary one if absent.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text<'a>>,
    /// Flags of the commit.
    #[serde(default)]
    pub flags: i64,
    /// The operations.
    #[serde(
        borrow,
        deserialize_with = "objects_at_most::<MAX_OPERATIONS_PER_COMMIT, _, _>"
    )]
    pub ops: Vec<Operation<'a>>,
}

/// One operation of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation<'a> {
    /// The key.
    #[serde(borrow)]
    pub key: Text<'a>,
    /// [`APPEND`], or 0 to set the value.
    #[serde(default)]
    pub flags: i64,
    /// The new value, directory or link; null or absent removes the key.
    #[serde(borrow, default, deserialize_with = "optional_object")]
    pub dirent: Option<Entry<'a>>,
}

/// The new content of a key in a commit (RFC 11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<'a> {
    /// The version of this structure, 1.
    #[serde(default = "dirent_version")]
    pub ver: u32,
    /// `val`, `dir` or `symlink`.
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    /// Of a value its bytes in base64.
    #[serde(borrow)]
    pub data: EntryData<'a>,
}

impl Entry<'_> {
    /// The type of a directory.
    pub const DIRECTORY: &'static str = "dir";
    /// The type of a symbolic link.
    pub const SYMLINK: &'static str = "symlink";
}

/// The data of an entry, by its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum EntryData<'a> {
    /// The bytes of a value, in base64.
    Bytes(Text<'a>),
    /// The target of a link.
    Link(LinkTarget),
    /// The entries of a directory.
    Entries(Map<String, Value>),
    /// References into a content store.
    Blobs(Vec<String>),
}

/// The data of an entry that is no value.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a string, the target of a link, an object or an array of strings"
)]
enum Structure {
    Link(LinkTarget),
    Entries(Map<String, Value>),
    Blobs(Vec<String>),
}

impl<'de: 'a, 'a> Deserialize<'de> for EntryData<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Json(data) = Json::deserialize(deserializer)?;
        if data.starts_with('"') {
            let text = serde_json::from_str(data);
            return text.map(Self::Bytes).map_err(D::Error::custom);
        }
        Ok(match parse_short(data)? {
            Structure::Link(link) => Self::Link(link),
            Structure::Entries(entries) => Self::Entries(entries),
            Structure::Blobs(blobs) => Self::Blobs(blobs),
        })
    }
}

impl<'a> From<Dirent<'a>> for Entry<'a> {
    fn from(value: Dirent<'a>) -> Self {
        Self {
            ver: value.ver,
            kind: value.kind,
            data: EntryData::Bytes(value.data),
        }
    }
}

/// A value in the store (RFC 11): base64 of its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dirent<'a> {
    /// The version of this structure, 1.
    #[serde(default = "dirent_version")]
    pub ver: u32,
    /// `val` for a value within the dirent.
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    /// The bytes in base64.
    #[serde(borrow)]
    pub data: Text<'a>,
}

const fn dirent_version() -> u32 {
    1
}

impl<'a> Dirent<'a> {
    /// The type of a value within the dirent.
    pub const VAL: &'static str = "val";

    /// Returns a dirent for a value whose bytes are in base64 already.
    pub fn val(base64: impl Into<Text<'a>>) -> Self {
        Self {
            ver: dirent_version(),
            kind: Self::VAL.into(),
            data: base64.into(),
        }
    }

    /// Returns a dirent for a value of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::val(BASE64.encode(bytes))
    }
}

/// The response to a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitResponse {
    /// The number of the commit.
    pub rootseq: u64,
}

/// `kvs.lookup`: one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupRequest<'a> {
    /// The namespace; the primary one if absent.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text<'a>>,
    /// The key.
    #[serde(borrow)]
    pub key: Text<'a>,
    /// Flags of the lookup.
    #[serde(default)]
    pub flags: i64,
}

/// The response to a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupResponse<'a> {
    /// The value.
    #[serde(borrow, deserialize_with = "object")]
    pub val: Dirent<'a>,
}

impl Payload for DirectoryResponse {}
impl Payload for ObjectResponse {}
impl Payload for NamespaceRequest<'_> {}
impl Payload for RootResponse {}
impl Payload for NamespaceListResponse {}
impl Payload for CommitResponse {}
impl Payload for LookupRequest<'_> {}
impl Payload for LookupResponse<'_> {}
impl Payload for CommitRequest<'_> {}

#[cfg(test)]
mod tests {
    use penstock_jobspec::job_id::JobId;

    use super::document_of;

    #[test]
    fn a_key_of_a_job_is_recognised_by_its_exact_form() {
        let id = JobId::new(6_731_191_091_817_518);
        assert_eq!(document_of("job.0017.e9fb.8df1.6c2e.R"), Some((id, "R")));
        assert_eq!(
            document_of("job.0017.e9fb.8df1.6c2e.eventlog"),
            Some((id, "eventlog"))
        );
        assert_eq!(
            document_of("job.0017.e9fb.8df1.6c2e.guest.exec.eventlog"),
            Some((id, "guest.exec.eventlog"))
        );
        for other in [
            "job.nope.R",
            "job.17.e9fb.8df1.6c2e.R",
            "penstock.a",
            "job.0017.e9fb.8df1.6c2e",
            "job.0017.e9fb.8df1.6c2e.",
            "job.R",
            "job",
        ] {
            assert_eq!(document_of(other), None, "{other}");
        }
    }
}
