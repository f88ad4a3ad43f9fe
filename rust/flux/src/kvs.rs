//! The key-value store: the requests that schedulers and execution services make (RFC 11, RFC 16).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};

use crate::payload::{Payload, Text, object, objects, optional_object};

/// The namespace of jobs, and the only one served.
pub const PRIMARY: &str = "primary";

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
    let (dothex, document) = key.strip_prefix("job.")?.rsplit_once('.')?;
    let id: JobId = dothex.parse().ok()?;
    (id.dothex() == dothex).then_some((id, document))
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
    #[serde(borrow, deserialize_with = "objects")]
    pub ops: Vec<Operation<'a>>,
}

/// One operation of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation<'a> {
    /// The key.
    #[serde(borrow)]
    pub key: Text<'a>,
    /// 1 for appending.
    #[serde(default)]
    pub flags: i64,
    /// The new value; null or absent removes the key.
    #[serde(borrow, default, deserialize_with = "optional_object")]
    pub dirent: Option<Dirent<'a>>,
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
        for other in [
            "job.nope.R",
            "job.17.e9fb.8df1.6c2e.R",
            "penstock.a",
            "job.R",
            "job",
        ] {
            assert_eq!(document_of(other), None, "{other}");
        }
    }
}
