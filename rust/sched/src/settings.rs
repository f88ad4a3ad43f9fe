//! What a scheduler is told of the configuration, at its start and when that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;

use penstock_engine::{Engine, Options, Overlong, Policy, QueueOptions, Selection};
use serde_json::{Map, Value};

/// Jobs, from the first in the queue on, that are told why they wait unless it is said otherwise.
const ANNOTATED: usize = 100;

/// The table `penstock.scheduler` of the configuration, as far as it is about deciding.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// In what order jobs start.
    pub policy: Policy,
    /// Which nodes a job gets of those that would do.
    pub selection: Selection,
    /// What becomes of a job that would outlive the resources.
    pub overlong: Overlong,
    /// How many of the jobs that wait, from the first on, are told why, and until when.
    pub annotate: usize,
    /// Queues that are treated in a way of their own; the others share one order, without limits.
    pub queues: BTreeMap<String, QueueOptions>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::Easy,
            selection: Selection::First,
            overlong: Overlong::Shorten,
            annotate: ANNOTATED,
            queues: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Reads a JSON object; what is left out has its default.
    ///
    /// # Errors
    ///
    /// Fails where a key is unknown, or its value is not one that it may have: the error names it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let fields: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| format!("expected an object: {error}"))?;
        let mut settings = Self::default();
        for (key, value) in &fields {
            match key.as_str() {
                "policy" => settings.policy = word(key, value)?,
                "selection" => settings.selection = word(key, value)?,
                "overlong" => {
                    settings.overlong = match value.as_str() {
                        Some("shorten") => Overlong::Shorten,
                        Some("deny") => Overlong::Deny,
                        _ => {
                            let expected = "expected `shorten` or `deny`";
                            return Err(format!("{key}: {expected}, found {value}"));
                        }
                    }
                }
                "annotate" => {
                    let number = value.as_u64().and_then(|it| usize::try_from(it).ok());
                    let expected = || format!("{key}: expected a whole number, found {value}");
                    settings.annotate = number.ok_or_else(expected)?;
                }
                "queues" => settings.queues = queues(value)?,
                _ => return Err(format!("unknown key `{key}`")),
            }
        }
        Ok(settings)
    }

    /// What an engine gets to know of it.
    pub(crate) fn engine(&self) -> Options {
        Options {
            selection: self.selection,
            policy: self.policy,
            overlong: self.overlong,
        }
    }

    /// Tells an engine how queues are treated, the one without a name and those that these
    /// settings or those before name.
    pub(crate) fn set_queues(&self, engine: &mut Engine, before: &Self) {
        let mut names: BTreeSet<&str> = self.queues.keys().map(String::as_str).collect();
        names.extend(before.queues.keys().map(String::as_str));
        names.insert("");
        for name in names {
            let queue = engine.queue(name);
            engine.set_queue(queue, self.queue(name));
        }
    }

    /// How a queue is treated.
    pub(crate) fn queue(&self, name: &str) -> QueueOptions {
        let known = self.queues.get(name).cloned();
        let mut options = known.unwrap_or_default();
        options.group.get_or_insert_default();
        options
    }
}

fn queues(value: &Value) -> Result<BTreeMap<String, QueueOptions>, String> {
    let expected = |name: &str| format!("queues{name}: expected an object");
    let tables = value.as_object().ok_or_else(|| expected(""))?;
    let mut queues = BTreeMap::new();
    for (name, table) in tables {
        let place = format!(".{name}");
        let table = table.as_object().ok_or_else(|| expected(&place))?;
        let mut options = QueueOptions::default();
        for (key, value) in table {
            let path = format!("queues.{name}.{key}");
            match key.as_str() {
                "group" => options.group = Some(word(&path, value)?),
                "order" => options.order = word(&path, value)?,
                "max-jobs" => options.max_jobs = limit(&path, value)?,
                "max-nodes" => options.max_nodes = limit(&path, value)?,
                "max-cores" => options.max_cores = limit(&path, value)?,
                _ => return Err(format!("unknown key `{path}`")),
            }
        }
        queues.insert(name.clone(), options);
    }
    Ok(queues)
}

/// A number, or -1 for none.
fn limit(path: &str, value: &Value) -> Result<Option<u64>, String> {
    match (value.as_i64(), value.as_u64()) {
        (Some(-1), _) => Ok(None),
        (_, Some(limit)) => Ok(Some(limit)),
        _ => Err(format!(
            "{path}: expected a whole number, or -1 for any number, found {value}"
        )),
    }
}

fn word<T: FromStr<Err: Display>>(key: &str, value: &Value) -> Result<T, String> {
    let text = value.as_str();
    let text = text.ok_or_else(|| format!("{key}: expected a string, found {value}"))?;
    text.parse().map_err(|error| format!("{key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::Settings;
    use penstock_engine::{Policy, Selection};

    #[test]
    fn what_is_left_out_has_its_default() {
        assert_eq!(Settings::from_json("{}"), Ok(Settings::default()));
        let settings = Settings::from_json(r#"{"policy":"hybrid:3","selection":"pack"}"#);
        let settings = settings.unwrap();
        assert_eq!(settings.policy, Policy::Hybrid { depth: 3 });
        assert_eq!(settings.selection, Selection::Pack);
        assert_eq!(settings.annotate, 100);
    }

    #[test]
    fn queues_share_an_order_unless_it_is_said_otherwise() {
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
            assert!(error.starts_with(key), "{error}");
        }
    }
}
