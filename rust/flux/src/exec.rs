//! RFC 32: the conversation of job manager and execution service.

use std::collections::BTreeMap;
use std::fmt;

use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Caller;
use crate::limits::MAX_NAMES_PER_REQUEST;
use crate::payload::{
    InvalidValue, Json, Payload, Text, object, object_document, optional_at_most, parse_str,
};
use crate::topic::{self, exec_method};

pub use crate::alloc::ExpirationRequest;

/// The methods of an execution service, each with the users who may call it.
pub const METHODS: [(&str, Caller); 12] = {
    use Caller::{Anyone, JobUser, Owner};
    use exec_method as method;
    [
        (method::CONFIG_RELOAD, Owner),
        (method::EXPIRATION, Owner),
        (method::INPUT, JobUser),
        (method::KILL, Owner),
        (method::OUTPUT, JobUser),
        (method::OUTPUT_CANCEL, Anyone),
        (method::REPLACED, Owner),
        (method::RESIZE, JobUser),
        (method::SHRINK, Owner),
        (method::SIGNAL, JobUser),
        (method::START, Owner),
        (topic::STATS_GET, Owner),
    ]
};

/// The users who may call a method.
pub fn caller(method: &str) -> Caller {
    let found = METHODS.iter().find(|(name, _)| *name == method);
    found.map_or(Caller::Anyone, |(_, caller)| *caller)
}

/// `job-manager.exec-hello`: an execution service registers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloRequest<'a> {
    /// The name under which it serves `start`.
    #[serde(borrow)]
    pub service: Text<'a>,
    /// The identity of the journal in which the service records a job before it starts it (Penstock's own). Another
    /// journal, or one that may have lost records, has another identity.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<Text<'a>>,
    /// Whether the service responds to `shrink` with a `release` of the ranks, when nothing of the job runs there any
    /// longer (Penstock's own).
    #[serde(
        rename = "releases-shrunk",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub releases_shrunk: bool,
}

/// `<service>.start`: starts a job, whose resources are allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRequest<'a> {
    /// The job.
    pub id: JobId,
    /// Its owner.
    pub userid: u32,
    /// Its jobspec, an object.
    #[serde(borrow, deserialize_with = "object_document")]
    pub jobspec: Json<'a>,
    /// Whether the job may be running already, started by an earlier service.
    #[serde(default)]
    pub reattach: bool,
    /// Its resources (current version; in the KVS otherwise).
    #[serde(borrow, rename = "R", skip_serializing_if = "Option::is_none")]
    pub r: Option<Json<'a>>,
    /// With `reattach`: no service has answered a start request for the job, and only services with this journal may have
    /// had one (Penstock's own). If the journal has no record of the job, it was not started.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<Text<'a>>,
}

/// The type of a response to `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartResponseType {
    /// The job has started.
    Start,
    /// The job was running already (current version).
    Reattached,
    /// Ranks are released: [`Release`].
    Release,
    /// An exception has occurred: [`Exception`].
    Exception,
    /// The tasks have ended: [`Finish`].
    Finish,
}

impl StartResponseType {
    /// Every type.
    pub const ALL: [Self; 5] = [
        Self::Start,
        Self::Reattached,
        Self::Release,
        Self::Exception,
        Self::Finish,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reattached => "reattached",
            Self::Release => "release",
            Self::Exception => "exception",
            Self::Finish => "finish",
        }
    }
}

impl fmt::Display for StartResponseType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for StartResponseType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for StartResponseType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parse_str(deserializer, |name| {
            let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
            known.ok_or_else(|| InvalidValue::TypeName {
                found: name.to_owned(),
                expected: "start, reattached, release, exception or finish",
            })
        })
    }
}

/// A response to `<service>.start`. `D` is the type of its details: [`Json`] until the type of the response is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartResponse<D> {
    /// The job.
    pub id: JobId,
    /// The type of the response.
    #[serde(rename = "type")]
    pub kind: StartResponseType,
    /// The details, by the type: [`Release`], [`Exception`], [`Finish`], or [`NoData`].
    pub data: D,
}

impl<'a> StartResponse<Json<'a>> {
    /// Returns type and details as one value.
    ///
    /// # Errors
    ///
    /// Fails as [`read`](crate::read) does.
    pub fn event(&self) -> Result<ExecEvent<'a>, crate::Error> {
        Ok(match self.kind {
            StartResponseType::Start => {
                self.data::<NoData>()?;
                ExecEvent::Start
            }
            StartResponseType::Reattached => {
                self.data::<NoData>()?;
                ExecEvent::Reattached
            }
            StartResponseType::Release => ExecEvent::Release(self.data()?),
            StartResponseType::Exception => ExecEvent::Exception(self.data()?),
            StartResponseType::Finish => ExecEvent::Finish(self.data()?),
        })
    }

    fn data<T: Deserialize<'a>>(&self) -> Result<T, crate::Error> {
        crate::read(Some(self.data.0.as_bytes()))
    }
}

/// The type of a response to `start` with its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecEvent<'a> {
    /// The job has started.
    Start,
    /// The job was running already.
    Reattached,
    /// Ranks are released.
    Release(Release),
    /// An exception has occurred.
    Exception(Exception<'a>),
    /// The tasks have ended.
    Finish(Finish),
}

impl ExecEvent<'_> {
    /// The type of the response.
    pub fn kind(&self) -> StartResponseType {
        match self {
            Self::Start => StartResponseType::Start,
            Self::Reattached => StartResponseType::Reattached,
            Self::Release(_) => StartResponseType::Release,
            Self::Exception(_) => StartResponseType::Exception,
            Self::Finish(_) => StartResponseType::Finish,
        }
    }
}

/// The data of `start` and `reattached` responses: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoData {}

/// The ranks of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleasedRanks {
    /// All ranks that the job still holds.
    All,
    /// These ranks.
    Ranks(IdSet),
}

impl Serialize for ReleasedRanks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Ranks(ranks) => ranks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ReleasedRanks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parse_str(deserializer, |text| match text {
            "all" => Ok(Self::All),
            ranks => ranks.parse().map(Self::Ranks).map_err(InvalidValue::IdSet),
        })
    }
}

/// The data of a `release` response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The released ranks.
    pub ranks: ReleasedRanks,
    /// Whether this is the last release of the job.
    #[serde(rename = "final")]
    pub is_final: bool,
}

/// The data of an `exception` response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception<'a> {
    /// 0 (fatal) to 7.
    pub severity: i64,
    /// The type, a word.
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    /// The human-readable text.
    #[serde(borrow, default)]
    pub note: Text<'a>,
    /// The job's wait status if this is its first fatal exception (current version).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_status: Option<u16>,
}

/// The exit status of a task as a shell shows it, from its wait status: the exit code, or 128 + signal.
pub fn exit_status(wait_status: i32) -> i32 {
    match wait_status & 0x7f {
        0 => wait_status >> 8 & 0xff,
        signal => 128 + signal,
    }
}

/// The data of a `finish` response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    /// The greatest wait status of the job's tasks.
    pub status: i32,
    /// The resource usage of the job's tasks (Penstock's own). RFC 32 leaves further keys to the service: a value of
    /// another form is ignored.
    #[serde(
        default,
        deserialize_with = "object_if_known",
        skip_serializing_if = "Option::is_none"
    )]
    pub usage: Option<ResourceUsage>,
    /// The wait statuses of the tasks by their ranks, an idset, if they differ (Penstock's own). A value of another form
    /// is ignored.
    #[serde(
        default,
        deserialize_with = "object_if_known",
        skip_serializing_if = "Option::is_none"
    )]
    pub statuses: Option<BTreeMap<String, i32>>,
}

impl Finish {
    /// The data with this status alone.
    pub const fn new(status: i32) -> Self {
        Self {
            status,
            usage: None,
            statuses: None,
        }
    }
}

/// The resource usage of a job's tasks and of their children that they have waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// The greatest resident set of one process, in KiB.
    pub max_rss_kib: u64,
    /// CPU time in user mode, the sum of all tasks, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, the sum of all tasks, in microseconds.
    pub system_us: u64,
}

fn object_if_known<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(object(value).ok())
}

/// `<service>.kill`: sends a signal to the job's tasks. It has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillRequest {
    /// The job.
    pub id: JobId,
    /// The signal's number.
    pub signum: i32,
}

/// `<service>.shrink`: a job has released ranks, and its tasks there must end (Penstock's own). It has no response; a
/// service whose hello says so responds to the start request of the job with a `release` of the ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShrinkRequest {
    /// The job.
    pub id: JobId,
    /// The ranks.
    pub ranks: IdSet,
}

/// `<service>.replaced`: another service has registered and runs the jobs from now on (Penstock's own). It has no
/// response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedRequest<'a> {
    /// The name of the new service.
    #[serde(borrow)]
    pub service: Text<'a>,
}

/// `<service>.config-reload`: changes settings of the service (Penstock's own). An absent key changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ConfigReloadRequest {
    /// Time between SIGTERM and SIGKILL, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kill_timeout: Option<f64>,
    /// Bytes of retained output at which a job is killed; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<u64>,
    /// Free bytes of the file system of retained output below which no job of a guest with such output is started; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_reserve: Option<u64>,
    /// Bytes of retained output of all jobs of a guest; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_output_limit: Option<u64>,
}

/// `<service>.output`, streaming: the retained output of a job (Penstock's own).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRequest<'a> {
    /// The job.
    pub id: JobId,
    /// `stdout`, `stderr`; both if absent.
    #[serde(
        borrow,
        default,
        deserialize_with = "optional_at_most::<MAX_NAMES_PER_REQUEST, _, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub streams: Option<Vec<Text<'a>>>,
    /// Whether later output is sent too, up to the job's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow: Option<bool>,
    /// Whether later output is sent with the least delay, which costs more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unbuffered: Option<bool>,
}

/// A streamed response to `<service>.output`: a part of the output of one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputResponse<'a> {
    /// `stdout` or `stderr`.
    #[serde(borrow)]
    pub stream: Text<'a>,
    /// The bytes in base64.
    #[serde(borrow)]
    pub data: Text<'a>,
}

/// `<service>.input`: writes to the standard input of the tasks of a job (Penstock's own). The response comes when the
/// pipes of all these tasks have the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRequest<'a> {
    /// The job.
    pub id: JobId,
    /// A random number of the sender. A request that is repeated does not write twice.
    pub writer: u64,
    /// The position of the data in what this sender writes.
    pub offset: u64,
    /// The bytes in base64.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Text<'a>>,
    /// Whether the input ends after the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<bool>,
    /// The rank of the one task that reads it; all tasks if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
}

/// `<service>.signal`: sends a signal to one task of a job (Penstock's own).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRequest {
    /// The job.
    pub id: JobId,
    /// The rank of the task.
    pub task: u32,
    /// The signal's number.
    pub signum: i32,
}

/// `<service>.resize`: sets the window size of the terminals of a job (Penstock's own).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeRequest {
    /// The job.
    pub id: JobId,
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// The event `job-exception`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobExceptionEvent<'a> {
    /// The job.
    pub id: JobId,
    /// The type, a word.
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    /// 0 (fatal) to 7.
    pub severity: i64,
    /// The job's wait status if this is its first fatal exception (current version).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_status: Option<i32>,
}

/// `<service>.stats-get` of `penstock-exec` (Penstock's own).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsResponse {
    /// The number of jobs whose start requests are being answered.
    pub jobs: usize,
    /// The number of running tasks of all jobs.
    pub tasks: usize,
    /// The number of requests for output that are being answered.
    pub followers: usize,
    /// The number of jobs that the service has and the instance has not requested.
    pub unclaimed: usize,
    /// The number of jobs that do not start before there is space for their output, or before it is known.
    pub held_starts: usize,
}

/// `<service>.stats-get` of simulated execution (Penstock's own).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulatedStatsResponse {
    /// The number of running jobs.
    pub running: u64,
}

impl Payload for HelloRequest<'_> {}
impl<D: Serialize> Payload for StartResponse<D> {}
impl Payload for NoData {}
impl Payload for Release {}
impl Payload for Exception<'_> {}
impl Payload for Finish {}
impl Payload for KillRequest {}
impl Payload for ShrinkRequest {}
impl Payload for ReplacedRequest<'_> {}
impl Payload for ConfigReloadRequest {}
impl Payload for OutputRequest<'_> {}
impl Payload for OutputResponse<'_> {}
impl Payload for InputRequest<'_> {}
impl Payload for SignalRequest {}
impl Payload for ResizeRequest {}
impl Payload for JobExceptionEvent<'_> {}
impl Payload for StatsResponse {}
impl Payload for SimulatedStatsResponse {}

// Hand-written because every job needs one: the documents are JSON already and are copied unparsed.
impl Payload for StartRequest<'_> {
    fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.jobspec.0.len() + self.r.map_or(0, |r| r.0.len()) + 96);
        out.extend_from_slice(b"{\"id\":");
        crate::payload::write_value(&self.id, out);
        out.extend_from_slice(b",\"userid\":");
        crate::payload::write_value(&self.userid, out);
        out.extend_from_slice(b",\"jobspec\":");
        out.extend_from_slice(self.jobspec.0.as_bytes());
        out.extend_from_slice(b",\"reattach\":");
        crate::payload::write_value(&self.reattach, out);
        if let Some(r) = self.r {
            out.extend_from_slice(b",\"R\":");
            out.extend_from_slice(r.0.as_bytes());
        }
        if let Some(journal) = &self.journal {
            out.extend_from_slice(b",\"journal\":");
            crate::payload::write_value(journal, out);
        }
        out.push(b'}');
    }
}
