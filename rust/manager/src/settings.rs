//! Settings of the job manager, read from the daemon's configuration.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The declared defaults and choices: `make configuration` generates the file from the declaration of the
/// configuration.
const DECLARATION_JSON: &str = include_str!("settings.json");

/// The least and greatest amounts that one job may request. A negative number is unlimited: in a
/// queue it overrides the general limit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields)]
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
#[cfg_attr(test, derive(serde::Serialize))]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum ExecHello {
    /// The new service replaces the old one, running jobs included.
    Replace,
    /// The new service is rejected, as earlier versions of the protocol say.
    Reject,
}

/// The jobs that a guest can list and wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "lowercase")]
pub enum JobVisibility {
    /// The guest's own jobs.
    Own,
    /// The jobs of all users.
    All,
}

/// The greatest amounts that requests of running jobs may have at a time. A negative number is
/// unlimited.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields)]
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
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields)]
pub struct ElasticSettings {
    /// For the requests of one job.
    pub job: ElasticLimits,
    /// For the requests of all jobs of one user.
    pub user: ElasticLimits,
}

/// The limits of one user's requests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Size of a jobspec of the instance owner.
    pub jobspec_bytes: usize,
    /// Size of a jobspec of another user.
    pub guest_jobspec_bytes: usize,
    /// Values in a jobspec of another user; a negative number is unlimited.
    pub guest_jobspec_values: i64,
    /// Active jobs of another user; a negative number is unlimited.
    pub active_jobs: i64,
    /// The same of all users but the instance owner.
    pub all_active_jobs: i64,
    /// Jobs of one request of another user; a negative number is unlimited.
    pub submission_jobs: i64,
    /// Bytes of the memos of another user's active jobs; a negative number is unlimited.
    pub memo_bytes: i64,
    /// The same of all users but the instance owner.
    pub all_memo_bytes: i64,
    /// Approximate bytes of memory for the constraints, dependencies and names of another user's active jobs; a negative
    /// number is unlimited.
    pub job_bytes: i64,
    /// The same of all users but the instance owner.
    pub all_job_bytes: i64,
    /// Approximate bytes that another user has in the store; a negative number is unlimited.
    pub store_bytes: i64,
    /// Free bytes of the file system below which requests of other users that store something are rejected, or a tenth of the
    /// file system if that is less.
    pub reserved_bytes: u64,
}

/// The job manager's settings. [`Settings::default`] has the declared defaults of the configuration; the fields that
/// are no keys of it are zero and false there.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// User id of the instance owner.
    #[serde(default)]
    pub owner: u32,
    /// Whether jobs of other users are accepted.
    #[serde(default)]
    pub guests: bool,
    /// Queues by name; if none is configured, jobs may not name one.
    pub queues: BTreeMap<String, Queue>,
    /// Limits for every job.
    pub limits: Limits,
    /// Time limit of a job that does not set one, in seconds.
    pub default_duration: Option<f64>,
    /// The response to an `exec-hello` while jobs run under another execution service.
    pub exec_hello: ExecHello,
    /// The jobs that a guest can list and wait for.
    pub job_visibility: JobVisibility,
    /// Queue of a job that does not name one.
    pub default_queue: Option<String>,
    /// Age in seconds at which an inactive job is purged; 0 is no limit.
    pub inactive_age_limit: f64,
    /// Number of inactive jobs above which the oldest are purged; a negative number is unlimited.
    pub inactive_num_limit: i64,
    /// Whether a job waits for the `hooks` service's prolog before it starts.
    #[serde(default)]
    pub prolog: bool,
    /// Whether the `hooks` service's epilog runs before a job's resources are freed.
    #[serde(default)]
    pub epilog: bool,
    /// The limits of PMIx requests.
    pub elastic: ElasticSettings,
    /// The limits of one user's requests.
    pub quota: Quota,
}

impl Settings {
    /// Whether a jobspec has the same defaults, limits and constraints under both settings.
    pub(crate) fn accepts_same_jobspecs(&self, other: &Self) -> bool {
        self.queues == other.queues
            && self.limits == other.limits
            && self.default_duration == other.default_duration
            && self.default_queue == other.default_queue
            && self.quota == other.quota
    }

    /// Reads a JSON object; absent keys have their defaults.
    ///
    /// # Errors
    ///
    /// Fails if a key is unknown or its value is invalid. The error names the key and what was expected.
    pub fn from_json(text: &str) -> Result<Self, SettingsError> {
        #[derive(Deserialize)]
        struct Declared {
            defaults: Value,
        }
        let read = |text: &str| penstock_flux::read(Some(text.as_bytes())).map_err(SettingsError);
        let new: Map<String, Value> = read(text)?;
        let declared = penstock_flux::read::<Declared>(Some(DECLARATION_JSON.as_bytes()));
        let mut settings = declared.map_err(SettingsError)?.defaults;
        overwrite(&mut settings, Value::Object(new));
        penstock_flux::read(Some(settings.to_string().as_bytes())).map_err(SettingsError)
    }
}

/// Why settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(penstock_flux::Error);

impl SettingsError {
    /// Whether the settings are not JSON.
    pub fn is_syntax(&self) -> bool {
        self.0.is_syntax()
    }

    /// The path of the key in error, e.g. `elastic.job.nnodes`; empty for the settings as a whole.
    pub fn key(&self) -> &str {
        self.0.path()
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "invalid settings: {}", self.0)
    }
}

impl std::error::Error for SettingsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::from_json("{}").expect("the declared defaults are valid: a test reads them")
    }
}

/// Writes values over others, in objects key by key.
fn overwrite(values: &mut Value, new: Value) {
    match (values, new) {
        (Value::Object(values), Value::Object(new)) => {
            for (key, value) in new {
                overwrite(values.entry(key).or_insert(Value::Null), value);
            }
        }
        (values, new) => *values = new,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{DECLARATION_JSON, ExecHello, JobVisibility, Settings};

    #[test]
    fn absent_keys_have_the_declared_defaults() {
        let settings = Settings::default();
        assert_eq!(settings.exec_hello, ExecHello::Replace);
        assert_eq!(settings.elastic.job.requests, Some(4096));
        let text = r#"{"exec_hello":"reject","elastic":{"job":{"nnodes":3}},"queues":{"a":{}}}"#;
        let settings = Settings::from_json(text).unwrap();
        assert_eq!(settings.exec_hello, ExecHello::Reject);
        assert_eq!(settings.elastic.job.requests, Some(4096));
        assert_eq!(settings.elastic.job.nnodes, Some(3));
        assert!(settings.queues.contains_key("a"));
    }

    #[test]
    fn the_declared_keys_are_those_of_the_settings() {
        let declared: Value = serde_json::from_str(DECLARATION_JSON).unwrap();
        let settings = Settings::from_json(&declared["full"].to_string()).unwrap();
        let mut keys = serde_json::to_value(settings).unwrap();
        for of_the_daemon in ["owner", "guests", "prolog", "epilog"] {
            keys.as_object_mut().unwrap().remove(of_the_daemon).unwrap();
        }
        // An optional field that is not declared would be null here.
        assert_eq!(keys, declared["full"]);
    }

    #[test]
    fn the_declared_choices_are_known() {
        let declared: Value = serde_json::from_str(DECLARATION_JSON).unwrap();
        let choices = declared["choices"].as_array().unwrap();
        let read = choices.iter().map(|choice| {
            let settings = Settings::from_json(&choice.to_string()).unwrap();
            (settings.exec_hello, settings.job_visibility)
        });
        let expected = [
            (ExecHello::Replace, JobVisibility::Own),
            (ExecHello::Reject, JobVisibility::Own),
            (ExecHello::Replace, JobVisibility::All),
        ];
        for choice in expected {
            assert!(read.clone().any(|read| read == choice), "{choice:?}");
        }
    }

    #[test]
    fn other_keys_and_values_are_errors() {
        for (text, key, expected) in [
            (
                r#"{"other":1}"#,
                "other",
                "unknown field `other`, expected one of `owner`",
            ),
            (
                r#"{"exec_hello":"other"}"#,
                "exec_hello",
                "expected `replace` or `reject`, found `other`",
            ),
            (
                r#"{"elastic":{"job":{"other":1}}}"#,
                "elastic.job.other",
                "unknown field `other`, expected one of `requests`, `nnodes`, `ncores`",
            ),
            (
                r#"{"elastic":{"job":{"nnodes":"3"}}}"#,
                "elastic.job.nnodes",
                "expected an integer, found string \"3\"",
            ),
            (
                r#"{"queues":{"a":{"limits":{"max_nnodes":0.5}}}}"#,
                "queues.a.limits.max_nnodes",
                "expected an integer, found floating point `0.5`",
            ),
            ("[]", "", "expected an object, found an array"),
            ("null", "", "expected an object"),
            ("{", "", "invalid JSON"),
        ] {
            let error = Settings::from_json(text).unwrap_err();
            assert_eq!(
                (error.key(), error.is_syntax()),
                (key, text == "{"),
                "{text}"
            );
            let shown = error.to_string();
            let place = if key.is_empty() {
                String::new()
            } else {
                format!("`{key}`: ")
            };
            let start = format!("invalid settings: {place}{expected}");
            assert!(shown.starts_with(&start), "{shown}");
        }
    }
}
