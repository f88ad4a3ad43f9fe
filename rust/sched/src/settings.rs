//! The scheduling configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::str::FromStr;

use penstock_engine::{Engine, Options, Overlong, Policy, QueueOptions, Selection};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The declared defaults and choices: `make configuration` generates the file from the declaration of the
/// configuration.
const SETTINGS_JSON: &str = include_str!("settings.json");

/// The jobs that answers to a guest name: those that the guest can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobVisibility {
    /// The guest's own jobs.
    Own,
    /// The jobs of all users.
    All,
}

impl FromStr for JobVisibility {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "own" => Ok(Self::Own),
            "all" => Ok(Self::All),
            _ => Err("expected own or all"),
        }
    }
}

/// The table `penstock.scheduler` of the configuration, without the keys that choose a scheduler, and `access.job-visibility`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The order in which jobs start.
    pub policy: Policy,
    /// Which of the nodes that fit a job gets.
    pub selection: Selection,
    /// The treatment of a job that would end after the resources expire.
    pub overlong: Overlong,
    /// The number of pending jobs, from the first of the queue, that are annotated with reason and estimate.
    pub max_annotated_jobs: usize,
    /// Queues with options of their own; the others share one order, without limits.
    pub queues: BTreeMap<String, QueueOptions>,
    /// The jobs that answers to a guest name.
    pub job_visibility: JobVisibility,
}

impl Default for Settings {
    /// The declared defaults of the configuration.
    fn default() -> Self {
        Self::from_json("{}").expect("the declared defaults are valid: a test reads them")
    }
}

impl Settings {
    /// Reads a JSON object; absent keys have their defaults.
    ///
    /// # Errors
    ///
    /// Fails if a key is unknown or its value is invalid. The error names the key.
    pub fn from_json(text: &str) -> Result<Self, SettingsError> {
        let mut values = declared_defaults()?;
        let new: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| SettingsError::new("", format!("expected an object: {error}")))?;
        for (key, value) in new {
            match values.get_mut(&key) {
                Some(default) => *default = value,
                None => return Err(SettingsError::unknown(&key)),
            }
        }
        let value = |key: &str| values.get(key).unwrap_or(&Value::Null);
        Ok(Self {
            policy: word("policy", value("policy"))?,
            selection: word("selection", value("selection"))?,
            overlong: word("overlong", value("overlong"))?,
            max_annotated_jobs: count("annotate", value("annotate"))?,
            queues: queues(value("queues"))?,
            job_visibility: word("job-visibility", value("job-visibility"))?,
        })
    }

    /// The engine's part of the settings.
    pub(crate) fn engine_options(&self) -> Options {
        Options {
            selection: self.selection,
            policy: self.policy,
            overlong: self.overlong,
        }
    }

    /// Sets the options of an engine's queues: the one without a name, and all that these settings or the ones
    /// before them name. Another order of the pending jobs is left to [`Engine::reorder`].
    pub(crate) fn configure_queues(&self, engine: &mut Engine, before: &Self) {
        let mut names: BTreeSet<&str> = self.queues.keys().map(String::as_str).collect();
        names.extend(before.queues.keys().map(String::as_str));
        names.insert("");
        for name in names {
            let queue = engine.queue(name);
            engine.begin_set_queue(queue, self.queue(name));
        }
    }

    /// The options of a queue.
    pub(crate) fn queue(&self, name: &str) -> QueueOptions {
        let mut options = self.queues.get(name).cloned().unwrap_or_default();
        options.group.get_or_insert_default();
        options
    }
}

/// Why settings are rejected: the key, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    key: String,
    text: String,
    is_unknown_key: bool,
}

impl SettingsError {
    fn new(key: &str, text: impl Into<String>) -> Self {
        Self {
            key: key.to_owned(),
            text: text.into(),
            is_unknown_key: false,
        }
    }

    fn unknown(key: &str) -> Self {
        Self {
            is_unknown_key: true,
            ..Self::new(key, "")
        }
    }

    /// The path of the key, e.g. `queues.batch.order`; empty for the settings as a whole.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, text, .. } = self;
        if self.is_unknown_key {
            write!(f, "unknown key `{key}`")
        } else if key.is_empty() {
            f.write_str(text)
        } else {
            write!(f, "{key}: {text}")
        }
    }
}

impl std::error::Error for SettingsError {}

fn declared_defaults() -> Result<Map<String, Value>, SettingsError> {
    #[derive(Deserialize)]
    struct Declared {
        defaults: Map<String, Value>,
    }
    serde_json::from_str::<Declared>(SETTINGS_JSON)
        .map(|declared| declared.defaults)
        .map_err(|error| SettingsError::new("", error.to_string()))
}

fn queues(value: &Value) -> Result<BTreeMap<String, QueueOptions>, SettingsError> {
    let tables = object("queues", value)?;
    let mut queues = BTreeMap::new();
    for (name, table) in tables {
        let mut options = QueueOptions::default();
        for (key, value) in object(&format!("queues.{name}"), table)? {
            let path = format!("queues.{name}.{key}");
            match key.as_str() {
                "group" => options.group = Some(word(&path, value)?),
                "order" => options.order = word(&path, value)?,
                "max-jobs" => options.max_jobs = limit(&path, value)?,
                "max-nodes" => options.max_nodes = limit(&path, value)?,
                "max-cores" => options.max_cores = limit(&path, value)?,
                _ => return Err(SettingsError::unknown(&path)),
            }
        }
        queues.insert(name.clone(), options);
    }
    Ok(queues)
}

fn object<'a>(path: &str, value: &'a Value) -> Result<&'a Map<String, Value>, SettingsError> {
    let object = value.as_object();
    object.ok_or_else(|| SettingsError::new(path, "expected an object"))
}

fn count(path: &str, value: &Value) -> Result<usize, SettingsError> {
    let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| SettingsError::new(path, format!("expected a whole number, found {value}")))
}

/// A limit; -1 for no limit.
fn limit(path: &str, value: &Value) -> Result<Option<u64>, SettingsError> {
    match (value.as_i64(), value.as_u64()) {
        (Some(-1), _) => Ok(None),
        (_, Some(limit)) => Ok(Some(limit)),
        _ => Err(SettingsError::new(
            path,
            format!("expected a whole number, or -1 for any number, found {value}"),
        )),
    }
}

fn word<T: FromStr<Err: Display>>(key: &str, value: &Value) -> Result<T, SettingsError> {
    let text = value
        .as_str()
        .ok_or_else(|| SettingsError::new(key, format!("expected a string, found {value}")))?;
    text.parse()
        .map_err(|error: T::Err| SettingsError::new(key, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{SETTINGS_JSON, Settings};
    use penstock_engine::{Order, Overlong, Policy, QueueOptions, Selection};
    use serde_json::{Value, json};

    #[test]
    fn absent_keys_have_the_declared_defaults() {
        let settings = Settings::from_json(r#"{"policy":"hybrid:3","selection":"pack"}"#);
        let settings = settings.unwrap();
        assert_eq!(settings.policy, Policy::Hybrid { depth: 3 });
        assert_eq!(settings.selection, Selection::Pack);
        assert_eq!(settings.overlong, Overlong::Shorten);
        assert_eq!(settings.max_annotated_jobs, 100);
        assert_eq!(Settings::default().policy, Policy::Easy);
    }

    #[test]
    fn the_declared_choices_are_those_of_the_engine() {
        let mut choices = Vec::new();
        choices.extend(Selection::ALL.map(|selection| json!({"selection": selection.name()})));
        choices.extend(Overlong::ALL.map(|overlong| json!({"overlong": overlong.name()})));
        choices
            .extend(Order::ALL.map(|order| json!({"queues": {"NAME": {"order": order.name()}}})));
        choices.extend(["own", "all"].map(|jobs| json!({"job-visibility": jobs})));
        let declared: Value = serde_json::from_str(SETTINGS_JSON).unwrap();
        assert_eq!(declared["choices"], Value::Array(choices));
    }

    #[test]
    fn the_declared_keys_are_those_of_the_settings() {
        let declared: Value = serde_json::from_str(SETTINGS_JSON).unwrap();
        let full = &declared["full"];
        let settings = Settings::from_json(&full.to_string()).unwrap();
        // The patterns name every field: a new one fails to compile here until it is declared and checked.
        let Settings {
            policy: _,
            selection: _,
            overlong: _,
            max_annotated_jobs: _,
            queues,
            job_visibility: _,
        } = settings;
        let QueueOptions {
            group,
            order: _,
            max_jobs,
            max_nodes,
            max_cores,
        } = queues["NAME"].clone();
        assert_eq!(group.as_deref(), Some("x"));
        assert_eq!([max_jobs, max_nodes, max_cores], [Some(1); 3]);
    }

    #[test]
    fn queues_share_an_order_unless_configured_otherwise() {
        let text = r#"{"queues":{"a":{"group":"x","max-jobs":3},"b":{"max-cores":-1}}}"#;
        let settings = Settings::from_json(text).unwrap();
        let options = settings.queue("a");
        assert_eq!(
            (options.group.as_deref(), options.max_jobs),
            (Some("x"), Some(3))
        );
        assert_eq!(settings.queue("b"), settings.queue("c"));
        assert_eq!(settings.queue("c").group.as_deref(), Some(""));
    }

    #[test]
    fn an_error_names_the_key() {
        for (text, key) in [
            (r#"{"policy":"sjf"}"#, "policy: "),
            (r#"{"policy":1}"#, "policy: expected a string, found 1"),
            (r#"{"selection":""}"#, "selection: "),
            (r#"{"overlong":"kill"}"#, "overlong: "),
            (r#"{"annotate":-1}"#, "annotate: expected a whole number"),
            (r#"{"job-visibility":"some"}"#, "job-visibility: expected"),
            (r#"{"other":1}"#, "unknown key `other`"),
            (
                r#"{"queues":{"a":{"max-jobs":-2}}}"#,
                "queues.a.max-jobs: expected",
            ),
            (
                r#"{"queues":{"a":{"min":1}}}"#,
                "unknown key `queues.a.min`",
            ),
            ("[]", "expected an object"),
        ] {
            let error = Settings::from_json(text).unwrap_err();
            assert!(error.to_string().starts_with(key), "{error}");
        }
    }
}
