//! What an administrator configures of the job manager; read from the daemon's configuration.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Least and most of a resource that one job may ask for. A negative number is no limit: in a
/// queue it takes the general one away.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Longest time limit in seconds; a job without one is refused where this is set. 0 and less
    /// is no limit.
    pub duration: Option<f64>,
    /// Greatest number of nodes.
    pub max_nnodes: Option<i64>,
    /// Greatest number of cores.
    pub max_ncores: Option<i64>,
    /// Greatest number of gpus.
    pub max_ngpus: Option<i64>,
    /// Least number of nodes.
    pub min_nnodes: Option<i64>,
    /// Least number of cores.
    pub min_ncores: Option<i64>,
    /// Least number of gpus.
    pub min_ngpus: Option<i64>,
}

impl Limits {
    /// No limits at all.
    pub const NONE: Self = Self {
        duration: None,
        max_nnodes: None,
        max_ncores: None,
        max_ngpus: None,
        min_nnodes: None,
        min_ncores: None,
        min_ngpus: None,
    };
}

/// A named queue: the resources it stands for and its limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// Properties that a target must have to serve the queue.
    pub requires: Vec<String>,
    /// What else a target must meet to serve the queue: a constraint of RFC 31.
    pub constraint: Option<Value>,
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

/// The most that requests of running jobs may have at a time. A negative number is no limit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ElasticLimits {
    /// Requests that wait.
    pub requests: Option<i64>,
    /// Nodes, granted or asked for.
    pub nnodes: Option<i64>,
    /// Cores, granted or asked for.
    pub ncores: Option<i64>,
}

/// What running jobs may ask for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ElasticSettings {
    /// By the requests of one job.
    pub job: ElasticLimits,
    /// By the requests of all jobs of one user.
    pub user: ElasticLimits,
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
    /// Seconds that an inactive job is kept.
    pub inactive_age_limit: Option<f64>,
    /// Inactive jobs that are kept.
    pub inactive_num_limit: Option<u64>,
    /// Whether a job waits for the `hooks` service's prolog before it starts.
    pub prolog: bool,
    /// Whether a job keeps its resources until the `hooks` service's epilog has ended.
    pub epilog: bool,
    /// What running jobs may ask for.
    pub elastic: ElasticSettings,
}
