//! RFC 27: the conversation of job manager and scheduler about allocations.

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::limits::MAX_JOBS_PER_REQUEST;
use crate::payload::{
    InvalidValue, Json, Member, Payload, Text, at_most, object, optional_object, parse_u64,
    write_value,
};

/// `job-manager.sched-hello`: a scheduler requests the jobs that hold resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloRequest {
    /// Whether the scheduler accepts releases of parts of an allocation (current version).
    #[serde(rename = "partial-ok", default)]
    pub partial_ok: bool,
}

/// A response to hello: one job that holds resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HelloResponse<'a> {
    /// The job.
    pub id: JobId,
    /// Its priority.
    pub priority: u32,
    /// Its owner.
    pub userid: u32,
    /// When it was submitted, seconds since the epoch.
    pub t_submit: f64,
    /// An idset of the ranks that it has released already (current version).
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub free: Option<Text<'a>>,
}

/// The limit of outstanding alloc requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadyMode {
    /// Any number.
    Unlimited,
    /// As many as the request's `limit`.
    Limited,
}

/// `job-manager.sched-ready`: the scheduler accepts alloc requests from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyRequest {
    /// The limit of outstanding alloc requests.
    pub mode: ReadyMode,
    /// The limit of the mode `limited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
}

/// The response to ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyResponse {
    /// Pending jobs without an outstanding alloc request.
    pub count: u64,
}

/// `sched.alloc`: a job requests resources.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocRequest<'a> {
    /// The job.
    pub id: JobId,
    /// Its priority: greater starts first.
    pub priority: u32,
    /// Its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
    /// When it was submitted, seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_submit: Option<f64>,
    /// Its jobspec, without the environment.
    #[serde(borrow)]
    pub jobspec: Json<'a>,
}

/// The type of a response to `sched.alloc`; the value is the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AllocResponseType {
    /// Resources are allocated: R is in the KVS.
    Success = 0,
    /// Annotations of a pending job.
    Annotate = 1,
    /// The job will never get resources.
    Deny = 2,
    /// The request was cancelled.
    Cancel = 3,
}

impl Serialize for AllocResponseType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

impl<'de> Deserialize<'de> for AllocResponseType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parse_u64(deserializer, |number| match number {
            0 => Ok(Self::Success),
            1 => Ok(Self::Annotate),
            2 => Ok(Self::Deny),
            3 => Ok(Self::Cancel),
            found => Err(InvalidValue::TypeNumber {
                found,
                expected: "0 to 3",
            }),
        })
    }
}

/// A response to `sched.alloc`. `A` is the type of its annotations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "A: Deserialize<'de>"))]
pub struct AllocResponse<'a, A = Map<String, Value>> {
    /// The job.
    pub id: JobId,
    /// The type; any but `Annotate` is the last response.
    #[serde(rename = "type")]
    pub kind: AllocResponseType,
    /// Why the request is denied.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub note: Option<Text<'a>>,
    /// The R that was committed (current version).
    #[serde(borrow, rename = "R", skip_serializing_if = "Option::is_none")]
    pub r: Option<Json<'a>>,
    /// Annotations, to be merged into those that the job has.
    #[serde(
        default,
        deserialize_with = "optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub annotations: Option<A>,
}

impl<'a, A> AllocResponse<'a, A> {
    /// Returns a response with an id and a type only.
    pub fn new(id: JobId, kind: AllocResponseType) -> Self {
        Self {
            id,
            kind,
            note: None,
            r: None,
            annotations: None,
        }
    }

    /// Returns a denial with its note.
    pub fn deny(id: JobId, note: impl Into<Text<'a>>) -> Self {
        Self {
            note: Some(note.into()),
            ..Self::new(id, AllocResponseType::Deny)
        }
    }
}

/// The annotations that a scheduler makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Annotations<'a> {
    /// The annotations under `sched`.
    #[serde(borrow, deserialize_with = "object")]
    pub sched: SchedAnnotations<'a>,
}

/// Annotations under `sched`: null removes a key, an absent key is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SchedAnnotations<'a> {
    /// The allocated resources in short, for people.
    #[serde(borrow, default, skip_serializing_if = "Member::is_absent")]
    pub resource_summary: Member<Text<'a>>,
    /// Why the job is pending.
    #[serde(borrow, default, skip_serializing_if = "Member::is_absent")]
    pub reason_pending: Member<Text<'a>>,
    /// When the job is expected to start, seconds since the epoch.
    #[serde(default, skip_serializing_if = "Member::is_absent")]
    pub t_estimate: Member<f64>,
}

/// `sched.cancel`: cancels the alloc request of a job. It has no response; the alloc request gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// The job.
    pub id: JobId,
}

/// `sched.prioritize`: the priorities of jobs have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrioritizeRequest {
    /// Ids and their new priorities.
    #[serde(deserialize_with = "at_most::<MAX_JOBS_PER_REQUEST, _, _>")]
    pub jobs: Vec<(JobId, u32)>,
}

/// `sched.free`: resources of a job are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeRequest<'a> {
    /// The job.
    pub id: JobId,
    /// R of the released resources (current version); the whole allocation if absent.
    #[serde(borrow, rename = "R", skip_serializing_if = "Option::is_none")]
    pub r: Option<Json<'a>>,
    /// Whether this is the last release of the job (current version).
    #[serde(rename = "final", default)]
    pub is_final: bool,
}

/// The response to `sched.free` (specified version; the current one has none).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeResponse {
    /// The job.
    pub id: JobId,
}

/// `sched.expiration` (RFC 27) and `<service>.expiration` (RFC 32): the expiration of a running job changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpirationRequest {
    /// The job.
    pub id: JobId,
    /// Seconds since the epoch; 0 for none.
    pub expiration: f64,
}

/// `feasibility.check`: whether a jobspec can be satisfied by the resources when all are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeasibilityRequest<'a> {
    /// The jobspec.
    #[serde(borrow)]
    pub jobspec: Json<'a>,
}

impl Payload for HelloRequest {}
impl Payload for HelloResponse<'_> {}
impl Payload for ReadyRequest {}
impl Payload for ReadyResponse {}
impl Payload for CancelRequest {}
impl Payload for PrioritizeRequest {}
impl Payload for FreeResponse {}
impl Payload for ExpirationRequest {}
impl Payload for FeasibilityRequest<'_> {}

/// Appends `,"key":value`.
fn write_member(out: &mut Vec<u8>, key: &str, value: &impl Serialize) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    write_value(value, out);
}

// The payloads below are written once for every job: their documents are JSON already and are copied as they are.

impl Payload for AllocRequest<'_> {
    fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.jobspec.0.len() + 128);
        out.extend_from_slice(b"{\"id\":");
        write_value(&self.id, out);
        write_member(out, "priority", &self.priority);
        if let Some(userid) = self.userid {
            write_member(out, "userid", &userid);
        }
        if let Some(t_submit) = self.t_submit {
            write_member(out, "t_submit", &t_submit);
        }
        out.extend_from_slice(b",\"jobspec\":");
        out.extend_from_slice(self.jobspec.0.as_bytes());
        out.push(b'}');
    }
}

impl<A: Serialize> Payload for AllocResponse<'_, A> {
    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":");
        write_value(&self.id, out);
        write_member(out, "type", &self.kind);
        if let Some(note) = &self.note {
            write_member(out, "note", note);
        }
        if let Some(r) = self.r {
            out.extend_from_slice(b",\"R\":");
            out.extend_from_slice(r.0.as_bytes());
        }
        if let Some(annotations) = &self.annotations {
            write_member(out, "annotations", annotations);
        }
        out.push(b'}');
    }
}

impl Payload for FreeRequest<'_> {
    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":");
        write_value(&self.id, out);
        if let Some(r) = self.r {
            out.extend_from_slice(b",\"R\":");
            out.extend_from_slice(r.0.as_bytes());
            write_member(out, "final", &self.is_final);
        }
        out.push(b'}');
    }
}
