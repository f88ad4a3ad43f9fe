//! The service `pmix-exec`: PMIx servers of the jobs of an execution service, Penstock's own messages.
//!
//! The execution service requests the server of a job before it starts the job's tasks.

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};

use crate::payload::{Payload, Text, objects};

pub use crate::pmix_server::StartResponse;

/// `pmix-exec.start`, streaming: starts the PMIx server of a job. The stream lasts as long as the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRequest<'a> {
    /// The job.
    pub id: JobId,
    /// Whether tasks of the job have been started with the environment of an earlier request.
    #[serde(default)]
    pub reattach: bool,
    /// Its tasks, by rank.
    #[serde(borrow, deserialize_with = "objects")]
    pub tasks: Vec<TaskPlacement<'a>>,
}

/// The place of a task in the request to start a PMIx server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPlacement<'a> {
    /// The rank of the task.
    pub rank: u32,
    /// Its execution target.
    pub target: u32,
    /// The target's host.
    #[serde(borrow)]
    pub host: Text<'a>,
}

/// `pmix-exec.ended`: a task has ended. It has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRequest {
    /// The job.
    pub id: JobId,
    /// The rank of the task.
    pub rank: u32,
}

/// `pmix-exec.stop`: the job has ended; so does its server. It has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    /// The job.
    pub id: JobId,
}

impl Payload for StartRequest<'_> {}
impl Payload for EndedRequest {}
impl Payload for StopRequest {}
