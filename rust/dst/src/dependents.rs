//! Jobs that depend on others: what a submission says of them, and the invariants about them.
//!
//! A dependent leaves DEPEND when each of its conditions is met; it fails if one cannot be met. The jobs on which it depends
//! are not purged before.

use std::collections::{BTreeMap, BTreeSet};

use penstock_flux::eventlog;
use penstock_jobspec::job_id::JobId;
use penstock_store::Store;

use crate::eventlog::{Event, events};

/// The schemes of dependencies.
pub(crate) const SCHEMES: [&str; 5] = ["after", "afterany", "afterok", "afternotok", BEGIN_TIME];
pub(crate) const BEGIN_TIME: &str = "begin-time";

/// The dependencies of a job, as its events describe them: scheme and value.
pub type Dependencies = BTreeSet<String>;

/// The attribute of a jobspec with these dependencies, and a comma behind it.
pub(crate) fn attribute(dependencies: &Dependencies) -> String {
    if dependencies.is_empty() {
        return String::new();
    }
    let list = dependencies.iter().filter_map(|dependency| {
        let (scheme, value) = dependency.split_once('=')?;
        Some(format!(r#"{{"scheme":"{scheme}","value":"{value}"}}"#))
    });
    format!(
        r#""dependencies":[{}],"#,
        list.collect::<Vec<_>>().join(",")
    )
}

/// The job of a dependency; `None` if that is a time.
pub(crate) fn antecedent(dependency: &str) -> Option<u64> {
    let (scheme, value) = dependency.split_once('=')?;
    value.parse().ok().filter(|_| scheme != BEGIN_TIME)
}

/// The jobs on which those of a submission depend.
pub(crate) fn antecedents(submission: &[Dependencies]) -> impl Iterator<Item = u64> {
    let dependencies = submission.iter().flatten();
    dependencies.filter_map(|dependency| antecedent(dependency))
}

/// The latest time on which jobs depend, in seconds since the epoch.
pub(crate) fn latest_begin<'a>(all: impl Iterator<Item = &'a Dependencies>) -> Option<f64> {
    let times = all.flatten().filter_map(|dependency| {
        let value = dependency.strip_prefix(BEGIN_TIME)?.strip_prefix('=')?;
        value.parse::<f64>().ok()
    });
    times.max_by(f64::total_cmp)
}

/// Whether messages are under way, or steps are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    UnderWay,
    Silent,
}

/// The facts of a job on which the conditions of others depend.
#[derive(Debug, Clone, Copy)]
struct AntecedentFacts {
    has_run: bool,
    /// Whether it has ended well, if it has ended.
    end: Option<bool>,
}

impl AntecedentFacts {
    fn of(log: &[Event]) -> Self {
        let has = |name: &str| log.iter().any(|event| event.name == name);
        let finish = log.iter().find(|event| event.name == "finish");
        let is_ok = finish.is_some_and(|finish| finish.context["status"] == 0)
            && fatal_exception(log).is_none();
        Self {
            has_run: has("alloc"),
            end: has("clean").then_some(is_ok),
        }
    }
}

fn fatal_exception(log: &[Event]) -> Option<&Event> {
    let is_fatal = |event: &&Event| event.name == "exception" && event.context["severity"] == 0;
    log.iter().find(is_fatal)
}

/// The state of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Open,
    Met,
    /// It cannot be met.
    Failed,
    /// The job was purged before it was looked at.
    Unknown,
}

/// The ids in the logs of the jobs with dependencies, and the ends of those on which they depend.
#[derive(Default)]
pub(crate) struct DependentsCheck {
    /// The jobs that need no further check: they were released, or have ended.
    pub(crate) settled: BTreeSet<u64>,
    /// The jobs that have ended, which may have been purged since.
    ended: BTreeMap<u64, AntecedentFacts>,
}

impl DependentsCheck {
    fn verdict(&mut self, store: &Store, now: f64, dependency: &str) -> Verdict {
        let (scheme, value) = dependency.split_once('=').unwrap_or_default();
        if scheme == BEGIN_TIME {
            let time: f64 = value.parse().unwrap_or_default();
            return if now >= time {
                Verdict::Met
            } else {
                Verdict::Open
            };
        }
        let id = antecedent(dependency).unwrap_or_default();
        let Some(facts) = self.facts(store, id) else {
            return Verdict::Unknown;
        };
        let verdict = |is_met| {
            if is_met {
                Verdict::Met
            } else {
                Verdict::Failed
            }
        };
        match (scheme, facts.end) {
            ("after", _) if facts.has_run => Verdict::Met,
            (_, None) => Verdict::Open,
            ("after", _) => Verdict::Failed,
            ("afterok", Some(is_ok)) => verdict(is_ok),
            ("afternotok", Some(is_ok)) => verdict(!is_ok),
            _ => Verdict::Met,
        }
    }

    fn facts(&mut self, store: &Store, id: u64) -> Option<AntecedentFacts> {
        if let Some(facts) = self.ended.get(&id) {
            return Some(*facts);
        }
        let log = store.eventlog(JobId::new(id)).unwrap_or_default();
        if log.is_empty() {
            return None;
        }
        let facts = AntecedentFacts::of(&events(&log));
        if facts.end.is_some() {
            self.ended.insert(id, facts);
        }
        Some(facts)
    }

    /// Checks a job with dependencies.
    pub(crate) fn check(
        &mut self,
        store: &Store,
        now: f64,
        id: u64,
        submitted: &[Dependencies],
        traffic: Traffic,
    ) -> Option<(&'static str, String)> {
        let text = store.eventlog(JobId::new(id)).unwrap_or_default();
        let log = events(&text);
        let described = |name: &str| -> Dependencies {
            let named = log.iter().filter(|event| event.name == name);
            let texts = named.filter_map(|event| event.context["description"].as_str());
            texts.map(str::to_owned).collect()
        };
        let added = described(eventlog::DEPENDENCY_ADD);
        let removed = described(eventlog::DEPENDENCY_REMOVE);
        let has = |name: &str| log.iter().any(|event| event.name == name);
        let is_released = has("depend");
        if (is_released || !added.is_empty()) && !submitted.contains(&added) {
            return Some((
                "dependency",
                format!("job {id} of {submitted:?} has {added:?}"),
            ));
        }
        for dependency in &removed {
            let verdict = self.verdict(store, now, dependency);
            if matches!(verdict, Verdict::Open | Verdict::Failed) {
                let text = format!("job {id}: {dependency} is removed, and {verdict:?}");
                return Some(("dependency", text));
            }
        }
        if is_released || has("clean") || log.is_empty() {
            self.settled.insert(id);
        }
        if is_released && added != removed {
            let text = format!("job {id} is released with {removed:?} of {added:?}");
            return Some(("dependency", text));
        }
        let exception = fatal_exception(&log);
        let mut open = added.difference(&removed);
        if let Some(exception) = exception {
            self.settled.insert(id);
            if exception.context["type"] != "dependency" {
                return None;
            }
            let note = exception.context["note"].as_str().unwrap_or_default();
            let is_due = |dependency: &String| {
                matches!(
                    self.verdict(store, now, dependency),
                    Verdict::Failed | Verdict::Unknown
                )
            };
            if note.contains("no job") || !open.any(is_due) {
                return Some(("dependency", format!("job {id} of {added:?} fails: {note}")));
            }
            return None;
        }
        let is_left = |dependency: &&String| {
            let verdict = self.verdict(store, now, dependency);
            antecedent(dependency).is_some() && verdict != Verdict::Open
        };
        let left = open
            .find(is_left)
            .filter(|_| traffic == Traffic::Silent && !is_released)?;
        Some((
            "dependent-left",
            format!("job {id}: {left} is decided, and not removed"),
        ))
    }
}
