//! Settings of the job manager, read from the daemon's configuration.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The default number of pending PMIx requests of one job.
const DEFAULT_JOB_REQUESTS: i64 = 4096;

/// The least and greatest amounts that one job may request. A negative number is unlimited: in a
/// queue it overrides the general limit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Longest time limit in seconds; if set, a job without a time limit is rejected. 0 or negative is
    /// unlimited.
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

/// A named queue: its resources and limits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// Properties that the execution targets of the queue must have.
    pub requires: Vec<String>,
    /// Another constraint (RFC 31) on the execution targets of the queue.
    pub constraint: Option<Value>,
    /// Limits that override the general ones.
    pub limits: Limits,
    /// Time limit of a job that does not set one, in seconds.
    pub default_duration: Option<f64>,
}

/// The response to an `exec-hello` while jobs run under another execution service (RFC 32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecHello {
    /// The new service replaces the old one, running jobs included.
    #[default]
    Replace,
    /// The new service is rejected, as earlier versions of the protocol say.
    Reject,
}

/// The greatest amounts that requests of running jobs may have at a time. A negative number is
/// unlimited.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ElasticLimits {
    /// Pending requests.
    pub requests: Option<i64>,
    /// Nodes, granted or requested.
    pub nnodes: Option<i64>,
    /// Cores, granted or requested.
    pub ncores: Option<i64>,
}

/// The limits of PMIx requests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ElasticSettings {
    /// For the requests of one job.
    pub job: ElasticLimits,
    /// For the requests of all jobs of one user.
    pub user: ElasticLimits,
}

impl Default for ElasticSettings {
    fn default() -> Self {
        Self {
            job: ElasticLimits {
                requests: Some(DEFAULT_JOB_REQUESTS),
                ..ElasticLimits::default()
            },
            user: ElasticLimits::default(),
        }
    }
}

/// The job manager's settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// User id of the instance owner.
    pub owner: u32,
    /// Whether jobs of other users are accepted.
    pub guests: bool,
    /// Queues by name; if none is configured, jobs may not name one.
    pub queues: BTreeMap<String, Queue>,
    /// Limits for every job.
    pub limits: Limits,
    /// Time limit of a job that does not set one, in seconds.
    pub default_duration: Option<f64>,
    /// The response to an `exec-hello` while jobs run under another execution service.
    pub exec_hello: ExecHello,
    /// Queue of a job that does not name one.
    pub default_queue: Option<String>,
    /// Age in seconds at which an inactive job is purged.
    pub inactive_age_limit: Option<f64>,
    /// Number of inactive jobs above which the oldest are purged.
    pub inactive_num_limit: Option<u64>,
    /// Whether a job waits for the `hooks` service's prolog before it starts.
    pub prolog: bool,
    /// Whether the `hooks` service's epilog runs before a job's resources are freed.
    pub epilog: bool,
    /// The limits of PMIx requests.
    pub elastic: ElasticSettings,
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::{Value, json};

    use super::Settings;

    /// Generated from the declaration of the configuration by `make configuration`.
    const DECLARED: &str = include_str!("settings.json");

    #[test]
    fn defaults_and_choices_are_those_of_the_declaration() {
        let declared: Value = serde_json::from_str(DECLARED).unwrap();
        let defaults = Settings::deserialize(&declared["defaults"]).unwrap();
        assert_eq!(defaults, Settings::default());
        let choices = declared["choices"].as_array().unwrap();
        assert!(choices.contains(&json!({"exec_hello": "reject"})));
        for choice in choices {
            let read = Settings::deserialize(choice);
            assert!(read.is_ok(), "{choice}: {read:?}");
        }
    }
}
