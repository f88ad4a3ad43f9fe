//! The PMIx server of a job and the daemon, over the server's socket: Penstock's own messages.
//!
//! The socket identifies the job, so no request names it. The daemon adds the job when it forwards a request to the
//! service `pmix`, and returns the responses unchanged. Each connection begins with `pmix.start`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::payload::{Payload, Text, short};

/// `pmix.start`: describes the job that the server serves. A server that serves it already gives the same response again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRequest {
    /// The PMIx namespace of the job: unique and unguessable. The first request's holds.
    pub namespace: String,
    /// The job id in F58.
    pub job: String,
    /// The number of tasks.
    pub size: u32,
    /// The greatest number of tasks that the job can have.
    pub universe: u32,
    /// The local ranks, ascending: all of one node, or of each of several nodes if all of them are this machine.
    pub local: Vec<u32>,
    /// The hostnames of the nodes, this one included.
    pub nodes: Vec<String>,
    /// The ranks on each node, ascending.
    pub ranks_per_node: Vec<Vec<u32>>,
}

/// The response to `pmix.start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartResponse {
    /// The environment variables of each task, by its rank.
    pub environment: BTreeMap<u32, BTreeMap<String, String>>,
}

/// `pmix.ended`: a task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRequest {
    /// The rank of the task.
    pub rank: u32,
}

/// The response to `pmix.stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsResponse {
    /// Requests of tasks without a response.
    pub parked: usize,
    /// Requests that have got a response.
    pub answered: u64,
    /// Results that libpmix has borrowed so far.
    pub lent: u64,
    /// Results that libpmix has released.
    pub back: u64,
}

/// `pmix.alloc`: a task's request for the job's allocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocRequest {
    /// The rank of the task, if libpmix names it.
    pub rank: Option<u32>,
    /// The number of the directive.
    pub directive: u8,
    /// The attributes.
    #[serde(deserialize_with = "short")]
    pub attributes: Vec<Value>,
}

/// `pmix.query`: the state of the job's requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryRequest<'a> {
    /// The request of this id; all if absent.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub id: Option<Text<'a>>,
}

impl Payload for StartRequest {}
impl Payload for StartResponse {}
impl Payload for EndedRequest {}
impl Payload for StatsResponse {}
impl Payload for AllocRequest {}
impl Payload for QueryRequest<'_> {}
