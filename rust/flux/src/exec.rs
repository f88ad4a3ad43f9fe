//! RFC 32: the conversation of job manager and execution service.

use std::fmt;

use penstock_idset::IdSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::payload::{Json, Payload, Text, parse_str};

pub use crate::alloc::ExpirationRequest;

/// `job-manager.exec-hello`: an execution service registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloRequest<'a> {
    /// The name under which it serves `start`.
    #[serde(borrow)]
    pub service: Text<'a>,
}

/// `<service>.start`: a job has resources and is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRequest<'a> {
    /// The job.
    pub id: u64,
    /// Its owner.
    pub userid: u32,
    /// Its jobspec.
    #[serde(borrow)]
    pub jobspec: Json<'a>,
    /// Whether it may be running already, under a service before this one.
    #[serde(default)]
    pub reattach: bool,
    /// Its resources (current version; in the KVS otherwise).
    #[serde(borrow, rename = "R", skip_serializing_if = "Option::is_none")]
    pub r: Option<Json<'a>>,
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
            known.ok_or_else(|| {
                let expected = "expected start, reattached, release, exception or finish";
                format!("unknown type `{name}`: {expected}")
            })
        })
    }
}

/// A response to `<service>.start`. `D` is the type of its details, [`Json`] where it is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartResponse<D> {
    /// The job.
    pub id: u64,
    /// What has happened.
    #[serde(rename = "type")]
    pub kind: StartResponseType,
    /// The details, by the type: [`Release`], [`Exception`], [`Finish`], or [`NoData`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<D>,
}

impl<'a> StartResponse<Json<'a>> {
    /// The details as the structure of the response's type.
    ///
    /// # Errors
    ///
    /// Fails as [`read`](crate::read) does.
    pub fn data<T: Deserialize<'a>>(&self) -> Result<T, crate::Error> {
        crate::read(self.data.map(|data| data.0.as_bytes()))
    }
}

/// The data of `start` and `reattached` responses: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoData {}

/// The ranks of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleasedRanks {
    /// Whatever the job still has.
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
            ranks => match ranks.parse() {
                Ok(ranks) => Ok(Self::Ranks(ranks)),
                Err(error) => Err(penstock_idset::Error::to_string(&error)),
            },
        })
    }
}

/// The data of a `release` response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// What is released.
    pub ranks: ReleasedRanks,
    /// Whether nothing follows.
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
    /// For people.
    #[serde(borrow, default)]
    pub note: Text<'a>,
    /// The job's wait status if this is its first fatal exception (current version).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_status: Option<u16>,
}

/// The data of a `finish` response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    /// The greatest wait status of the job's tasks.
    pub status: i32,
}

/// `<service>.kill`: a signal for the job's tasks. It is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillRequest {
    /// The job.
    pub id: u64,
    /// The signal's number.
    pub signum: i32,
}

/// `<service>.replaced`: another service has the jobs now (Penstock's own). It is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedRequest<'a> {
    /// The name of the new service.
    #[serde(borrow)]
    pub service: Text<'a>,
}

/// The event `job-exception`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobExceptionEvent<'a> {
    /// The job.
    pub id: u64,
    /// The type, a word.
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    /// 0 (fatal) to 7.
    pub severity: i64,
    /// The job's wait status if this is its first fatal exception (current version).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_status: Option<i32>,
}

impl Payload for HelloRequest<'_> {}
impl<D: Serialize> Payload for StartResponse<D> {}
impl Payload for NoData {}
impl Payload for Release {}
impl Payload for Exception<'_> {}
impl Payload for Finish {}
impl Payload for KillRequest {}
impl Payload for ReplacedRequest<'_> {}
impl Payload for JobExceptionEvent<'_> {}

// Written once for every job: the documents are JSON already and are copied as they are.
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
        out.push(b'}');
    }
}
