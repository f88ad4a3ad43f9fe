//! What an administrator configures of the job manager; read from the daemon's configuration.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Least and most of a resource that one job may ask for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Longest time limit in seconds; a job without one is refused where this is set.
    pub duration: Option<f64>,
    /// Most nodes.
    pub max_nnodes: Option<u64>,
    /// Most cores.
    pub max_ncores: Option<u64>,
    /// Most gpus.
    pub max_ngpus: Option<u64>,
    /// Fewest nodes.
    pub min_nnodes: Option<u64>,
    /// Fewest cores.
    pub min_ncores: Option<u64>,
    /// Fewest gpus.
    pub min_ngpus: Option<u64>,
}

/// A named queue: the resources it stands for and its limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// Properties that a target must have to serve the queue.
    pub requires: Vec<String>,
    /// Limits that hold in place of the general ones, where set.
    pub limits: Limits,
    /// Time limit of a job that names none, seconds.
    pub default_duration: Option<f64>,
}

/// What becomes of an `exec-hello` while jobs run under another execution service (RFC 32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecHello {
    /// The newcomer takes over, running jobs included.
    #[default]
    Replace,
    /// It is refused, as earlier versions of the protocol say.
    Refuse,
}

/// The job manager's settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// User id of the instance owner.
    pub owner: u32,
    /// Whether jobs of other users are taken.
    pub guests: bool,
    /// Queues by name; none configured means that jobs may not name one.
    pub queues: BTreeMap<String, Queue>,
    /// Limits for every job.
    pub limits: Limits,
    /// Time limit of a job that names none, seconds.
    pub default_duration: Option<f64>,
    /// What becomes of an `exec-hello` while jobs run under another execution service.
    pub exec_hello: ExecHello,
    /// Queue of a job that names none.
    pub default_queue: Option<String>,
}
