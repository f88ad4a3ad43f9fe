//! The service `pmix-exec`: the instance's end of the PMIx servers of jobs, Penstock's own messages.
//!
//! The execution service starts the server of a job, and requests the environment of the job's tasks before it starts
//! them.

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};

use crate::payload::{Payload, Text, objects};

pub use crate::pmix_server::StartResponse;

/// `pmix-exec.start`, streaming: connects to the PMIx server of a job. The stream lasts as long as the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRequest<'a> {
    /// The job.
    pub id: JobId,
    /// The directory of the server, which listens on `socket` in it.
    #[serde(borrow)]
    pub directory: Text<'a>,
    /// The user that the server runs as, if that is a guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
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

/// `pmix-exec.stop`: the job has ended, and so has its server. It has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    /// The job.
    pub id: JobId,
}

impl Payload for StartRequest<'_> {}
impl Payload for EndedRequest {}
impl Payload for StopRequest {}
