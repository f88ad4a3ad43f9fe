//! Jobspec V1 (RFC 25): one program, its resources, its tasks and its attributes.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::constraint::kind;
use crate::copies::CopyIds;
use crate::error::{Input, shown};
use crate::{Constraint, Count, Error, Request};

/// The greatest number of dependencies of a job: each is an event of its own.
const MAX_DEPENDENCIES: usize = 10_000;

/// The greatest number of tasks of a job: with the shell option `per-resource`, nothing else bounds it.
pub const MAX_TASKS: u64 = 1 << 26;

/// The number of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskCount {
    /// The number on every slot; in V1 always one.
    PerSlot(u32),
    /// The total number.
    Total(u64),
}

/// A condition that must be met before a job may run (RFC 26).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The kind of dependency, e.g. `afterok`.
    pub scheme: String,
    /// The object of the dependency; its meaning depends on the scheme.
    pub value: String,
}

/// The path of the copies that share a stored jobspec, below `attributes`.
pub const COPY_IDS: &str = "system.cc";

/// A valid jobspec V1.
///
/// A jobspec keeps its whole document, so that changes ([`with_defaults`](Self::with_defaults),
/// [`set_duration`](Self::set_duration), [`redacted`](Self::redacted)) and output ([`to_text`](Self::to_text)) need no
/// parsing.
#[derive(Clone, Debug)]
pub struct Jobspec {
    request: Request,
    command: Vec<String>,
    /// The number of tasks.
    pub tasks: TaskCount,
    dependencies: Vec<Dependency>,
    document: Value,
}

// Paths are arguments that are formatted by an error alone: most jobspecs have none.

fn fail(path: impl fmt::Display, detail: impl Into<String>) -> Error {
    Error::new(Input::Jobspec, &path.to_string(), detail)
}

fn object(value: &Value, path: impl fmt::Display) -> Result<&Map<String, Value>, Error> {
    value
        .as_object()
        .ok_or_else(|| fail(path, format!("expected an object, found {}", kind(value))))
}

fn list(value: &Value, path: impl fmt::Display) -> Result<&Vec<Value>, Error> {
    value
        .as_array()
        .ok_or_else(|| fail(path, format!("expected a list, found {}", kind(value))))
}

fn text(value: &Value, path: impl fmt::Display) -> Result<&str, Error> {
    value
        .as_str()
        .ok_or_else(|| fail(path, format!("expected a string, found {}", kind(value))))
}

/// A string that can be passed to a process: the kernel's strings end with NUL.
fn word(value: &Value, path: impl fmt::Display) -> Result<&str, Error> {
    let word = text(value, &path)?;
    if word.contains('\0') {
        return Err(fail(path, "expected a string without NUL"));
    }
    Ok(word)
}

/// The longest object in which a key is searched by comparisons: a hash takes longer.
const MAX_SEARCHED_MEMBERS: usize = 12;

/// The member of an object with this key.
fn member<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    if map.len() > MAX_SEARCHED_MEMBERS {
        return map.get(key);
    }
    let mut members = map.iter();
    members
        .find(|(name, _)| name.as_str() == key)
        .map(|(_, value)| value)
}

/// The value at a dotted path below a value.
fn descendant<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    // Keys are short: the general search for a character takes longer than a look at each.
    let period = path.bytes().position(|byte| byte == b'.');
    let split = period.and_then(|at| path.split_at_checked(at));
    let (key, rest) = split.unwrap_or((path, ""));
    let found = member(value.as_object()?, key)?;
    rest.get(1..)
        .map_or(Some(found), |rest| descendant(found, rest))
}

fn required<'a>(
    map: &'a Map<String, Value>,
    key: &str,
    path: impl fmt::Display,
) -> Result<&'a Value, Error> {
    member(map, key).ok_or_else(|| {
        let detail = format!("expected the key `{key}`");
        fail(path, detail)
    })
}

fn only(map: &Map<String, Value>, keys: &[&str], path: impl fmt::Display) -> Result<(), Error> {
    match map.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let detail = format!("unknown key `{}`: expected {}", shown(key), keys.join(", "));
            Err(fail(path, detail))
        }
    }
}

fn one(value: &Value, path: impl fmt::Display) -> Result<&Value, Error> {
    match list(value, &path)?.as_slice() {
        [one] => Ok(one),
        all => {
            let detail = format!("expected exactly one element, found {}", all.len());
            Err(fail(path, detail))
        }
    }
}

fn count(vertex: &Map<String, Value>, path: fmt::Arguments<'_>) -> Result<Count, Error> {
    let value = required(vertex, "count", path)?;
    Count::from_value_at(value, format_args!("{path}.count"))
}

fn vertex<'a>(
    value: &'a Value,
    keys: &[&str],
    path: fmt::Arguments<'_>,
) -> Result<(&'a str, &'a Map<String, Value>), Error> {
    let map = object(value, path)?;
    let kind = text(required(map, "type", path)?, format_args!("{path}.type"))?;
    only(map, keys, path)?;
    if let Some(unit) = member(map, "unit") {
        text(unit, format_args!("{path}.unit"))?;
    }
    Ok((kind, map))
}

const VERTEX_KEYS: [&str; 5] = ["type", "count", "unit", "with", "label"];
const NODE_KEYS: [&str; 6] = ["type", "count", "unit", "with", "label", "exclusive"];

/// The requested resources, and the slot's label.
fn resources(value: &Value) -> Result<(Request, &str), Error> {
    let top = one(value, "resources")?;
    let path = format_args!("resources[0]");
    let is_node = descendant(top, "type").and_then(Value::as_str) == Some("node");
    let keys: &[&str] = if is_node { &NODE_KEYS } else { &VERTEX_KEYS };
    let (kind, map) = vertex(top, keys, path)?;
    match kind {
        "slot" => slot(map, path, None),
        "node" => {
            let count = count(map, path)?;
            let exclusive = match member(map, "exclusive") {
                None => false,
                Some(Value::Bool(exclusive)) => *exclusive,
                Some(_) => {
                    let path = format_args!("{path}.exclusive");
                    return Err(fail(path, "expected true or false"));
                }
            };
            let with = format_args!("{path}.with");
            let inner = one(required(map, "with", path)?, with)?;
            let path = format_args!("{with}[0]");
            match vertex(inner, &VERTEX_KEYS, path)? {
                ("slot", map) => slot(map, path, Some(Nodes { count, exclusive })),
                (other, _) => {
                    let detail = format!("expected `slot` in a node, found `{}`", shown(other));
                    Err(fail(format_args!("{path}.type"), detail))
                }
            }
        }
        other => {
            let detail = format!("expected `node` or `slot`, found `{}`", shown(other));
            Err(fail(format_args!("{path}.type"), detail))
        }
    }
}

/// The vertex `node` around a slot.
struct Nodes {
    count: Count,
    exclusive: bool,
}

fn slot<'a>(
    map: &'a Map<String, Value>,
    path: fmt::Arguments<'_>,
    nodes: Option<Nodes>,
) -> Result<(Request, &'a str), Error> {
    let slots = count(map, path)?;
    let label = text(required(map, "label", path)?, format_args!("{path}.label"))?;
    let with = format_args!("{path}.with");
    let (mut cores, mut gpus) = (None, None);
    for (place, value) in list(required(map, "with", path)?, with)?.iter().enumerate() {
        let path = format_args!("{with}[{place}]");
        let (kind, map) = vertex(value, &VERTEX_KEYS, path)?;
        let amount = match kind {
            "core" => &mut cores,
            "gpu" => &mut gpus,
            other => {
                let detail = format!(
                    "expected `core` or `gpu` in a slot, found `{}`",
                    shown(other)
                );
                return Err(fail(format_args!("{path}.type"), detail));
            }
        };
        if amount.is_some() {
            let detail = format!("`{kind}` is named twice");
            return Err(fail(format_args!("{path}.type"), detail));
        }
        if member(map, "with").is_some_and(|with| with != &Value::Array(Vec::new())) {
            let detail = format!("expected nothing in a {kind}");
            return Err(fail(format_args!("{path}.with"), detail));
        }
        *amount = Some(count(map, path)?);
    }
    let request = Request {
        exclusive: nodes.as_ref().is_some_and(|nodes| nodes.exclusive),
        nnodes: nodes.map(|nodes| nodes.count),
        slots,
        cores_per_slot: cores.ok_or_else(|| fail(with, "expected a `core` in the slot"))?,
        gpus_per_slot: gpus.unwrap_or(Count::exactly(0)),
        duration: 0.0,
        constraint: None,
    };
    Ok((request, label))
}

fn tasks(value: &Value, label: &str, request: &Request) -> Result<(Vec<String>, TaskCount), Error> {
    let path = "tasks[0]";
    let map = object(one(value, "tasks")?, path)?;
    only(
        map,
        &["command", "slot", "count", "attributes", "distribution"],
        path,
    )?;
    let words = list(required(map, "command", path)?, "tasks[0].command")?;
    let command: Result<Vec<_>, _> = words
        .iter()
        .enumerate()
        .map(|(place, value)| {
            word(value, format_args!("tasks[0].command[{place}]")).map(str::to_owned)
        })
        .collect();
    let command = command?;
    if command.is_empty() {
        return Err(fail("tasks[0].command", "expected at least one word"));
    }
    let slot = text(required(map, "slot", path)?, "tasks[0].slot")?;
    if slot != label {
        let (label, slot) = (shown(label), shown(slot));
        let detail = format!("expected the slot's label `{label}`, found `{slot}`");
        return Err(fail("tasks[0].slot", detail));
    }
    let path = "tasks[0].count";
    let counts = object(required(map, "count", "tasks[0]")?, path)?;
    let mut entries = counts.iter();
    let (Some((key, value)), None) = (entries.next(), entries.next()) else {
        return Err(fail(path, "expected one of `per_slot` and `total`"));
    };
    let path = format_args!("{path}.{key}");
    let number = value.as_u64();
    match key.as_str() {
        "per_slot" if number == Some(1) => Ok((command, TaskCount::PerSlot(1))),
        "per_slot" => Err(fail(path, format!("expected 1, found {value}"))),
        "total" => {
            let (least, most) = (
                u64::from(request.least_nodes().unwrap_or(1)),
                request.total_slots(),
            );
            match number {
                Some(total) if (least..=most).contains(&total) => {
                    Ok((command, TaskCount::Total(total)))
                }
                _ => {
                    let detail = format!("expected {least} to {most}, found {value}");
                    Err(fail(path, detail))
                }
            }
        }
        _ => Err(fail(path, "unknown key: expected `per_slot` or `total`")),
    }
}

fn dependencies(value: &Value) -> Result<Vec<Dependency>, Error> {
    let path = "attributes.system.dependencies";
    let all = list(value, path)?;
    if all.len() > MAX_DEPENDENCIES {
        let detail = format!("expected at most {MAX_DEPENDENCIES}, found {}", all.len());
        return Err(fail(path, detail));
    }
    let entries = all.iter().enumerate();
    entries
        .map(|(place, value)| {
            let path = format_args!("{path}[{place}]");
            let map = object(value, path)?;
            let field = |key: &str| {
                let value = required(map, key, path)?;
                text(value, format_args!("{path}.{key}")).map(str::to_owned)
            };
            Ok(Dependency {
                scheme: field("scheme")?,
                value: field("value")?,
            })
        })
        .collect()
}

/// Optional attributes under `system` that must be objects, outer ones first.
const OBJECT_PATHS: [&str; 7] = [
    "environment",
    "job",
    "shell",
    "shell.options",
    "shell.options.output",
    "shell.options.output.stdout",
    "shell.options.output.stderr",
];

/// Optional attributes under `system` that must be strings.
const STRING_PATHS: [&str; 5] = [
    "cwd",
    "queue",
    "job.name",
    "shell.options.output.stdout.path",
    "shell.options.output.stderr.path",
];

/// Checks the attributes that execution of the job relies on.
fn check_system(system: &Value) -> Result<(), Error> {
    let found = |path: &str| descendant(system, path);
    for path in OBJECT_PATHS {
        if let Some(value) = found(path) {
            object(value, format_args!("attributes.system.{path}"))?;
        }
    }
    for path in STRING_PATHS {
        if let Some(value) = found(path) {
            word(value, format_args!("attributes.system.{path}"))?;
        }
    }
    let path = "shell.options.per-resource.count";
    if let Some(tasks) = found(path)
        .and_then(Value::as_u64)
        .filter(|&tasks| tasks > MAX_TASKS)
    {
        let detail = format!("expected at most {MAX_TASKS} tasks, found {tasks}");
        return Err(fail(format_args!("attributes.system.{path}"), detail));
    }
    let Some(Value::Object(environment)) = found("environment") else {
        return Ok(());
    };
    for (name, value) in environment {
        let is_word = |text: &str| !text.contains('\0');
        if is_word(name) && value.as_str().is_some_and(is_word) {
            continue;
        }
        let path = format!("attributes.system.environment.{}", shown(name));
        if !is_word(name) {
            return Err(fail(path, "expected a name without NUL"));
        }
        word(value, path)?;
    }
    Ok(())
}

impl Jobspec {
    /// Reads and checks the JSON text of a jobspec.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a jobspec V1; the error names the key and the expected value.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let document: Value =
            serde_json::from_str(json).map_err(|error| fail("", error.to_string()))?;
        let map = object(&document, "")?;
        only(map, &["resources", "tasks", "attributes", "version"], "")?;
        let version = required(map, "version", "")?;
        if version.as_u64() != Some(1) {
            return Err(fail("version", format!("expected 1, found {version}")));
        }
        let (mut request, label) = resources(required(map, "resources", "")?)?;
        let (command, tasks) = tasks(required(map, "tasks", "")?, label, &request)?;
        let attributes = object(required(map, "attributes", "")?, "attributes")?;
        only(attributes, &["system", "user"], "attributes")?;
        let path = "attributes.system";
        let system = required(attributes, "system", "attributes")?;
        check_system(system)?;
        let system = object(system, path)?;
        let duration = required(system, "duration", path)?;
        request.duration = duration
            .as_f64()
            .filter(|seconds| *seconds >= 0.0)
            // Not -0.
            .map(|seconds| seconds + 0.0)
            .ok_or_else(|| {
                let detail = format!("expected a number of seconds, found {duration}");
                fail("attributes.system.duration", detail)
            })?;
        if let Some(constraint) = member(system, "constraints") {
            let path = "attributes.system.constraints";
            request.constraint = Some(Constraint::from_value_at(constraint, path)?);
        }
        let dependencies = member(system, "dependencies").map_or(Ok(Vec::new()), dependencies)?;
        Ok(Self {
            request,
            command,
            tasks,
            dependencies,
            document,
        })
    }

    /// Writes compact JSON text, with the keys in the order in which they were read.
    pub fn to_text(&self) -> String {
        // Most are shorter: their text is written without growing.
        let mut text = Vec::with_capacity(512);
        let written = serde_json::to_writer(&mut text, &self.document);
        let text = written.ok().and_then(|()| String::from_utf8(text).ok());
        text.unwrap_or_else(|| self.document.to_string())
    }

    /// Returns the jobspec with this queue and this time limit where it has none: a changed copy, or the jobspec itself
    /// if nothing is to be set.
    ///
    /// `duration` is in seconds, more than 0. A time limit of 0 in the jobspec means no limit, and is replaced.
    pub fn with_defaults(&self, queue: Option<&str>, duration: Option<f64>) -> Cow<'_, Self> {
        let queue = queue.filter(|_| self.queue().is_none());
        let duration = duration.filter(|_| self.duration() <= 0.0);
        if queue.is_none() && duration.is_none() {
            return Cow::Borrowed(self);
        }
        let mut copy = self.clone();
        if let Some(queue) = queue {
            copy.set_system("queue", queue.into());
        }
        if let Some(duration) = duration {
            copy.set_duration(duration);
        }
        Cow::Owned(copy)
    }

    /// Sets the time limit in seconds; 0 for none.
    pub fn set_duration(&mut self, duration: f64) {
        self.set_system("duration", duration.into());
        self.request.duration = duration + 0.0;
    }

    /// The copies that share this jobspec as it is stored.
    pub fn copy_ids(&self) -> Option<CopyIds> {
        CopyIds::from_value(member(self.system()?, "cc")?)
    }

    /// Sets the copies that share this jobspec.
    pub fn set_copy_ids(&mut self, copies: &CopyIds) {
        self.set_system("cc", copies.to_value());
    }

    /// Returns the jobspec as it was submitted for its copies.
    #[must_use]
    pub fn without_copy_ids(mut self) -> Self {
        if let Some(system) = self.system_mut() {
            system.shift_remove("cc");
        }
        self
    }

    /// Returns the form for the scheduler: without environment (RFC 27) and ids of copies, and with additional constraints.
    ///
    /// # Errors
    ///
    /// Fails if one of `constraints`, JSON values by RFC 31, is invalid.
    pub fn redacted(mut self, constraints: Vec<Value>) -> Result<Self, Error> {
        let is_empty = |value: &Value| value.as_object().is_none_or(Map::is_empty);
        let Some(system) = self.system_mut() else {
            return Ok(self);
        };
        system.shift_remove("environment");
        system.shift_remove("cc");
        let mut all: Vec<Value> = constraints
            .into_iter()
            .filter(|constraint| !is_empty(constraint))
            .collect();
        if all.is_empty() {
            return Ok(self);
        }
        let own = system.shift_remove("constraints");
        all.splice(0..0, own.filter(|constraint| !is_empty(constraint)));
        let constraint = match all.as_mut_slice() {
            [one] => one.take(),
            _ => serde_json::json!({ "and": all }),
        };
        let path = "attributes.system.constraints";
        let parsed = Constraint::from_value_at(&constraint, path)?;
        system.insert("constraints".to_owned(), constraint);
        self.request.constraint = Some(parsed);
        Ok(self)
    }

    fn set_system(&mut self, key: &str, value: Value) {
        if let Some(system) = self.system_mut() {
            system.insert(key.to_owned(), value);
        }
    }

    /// The attributes under `system`, which every valid jobspec has.
    fn system(&self) -> Option<&Map<String, Value>> {
        let attributes = member(self.document.as_object()?, "attributes")?;
        member(attributes.as_object()?, "system")?.as_object()
    }

    /// The same for changes.
    fn system_mut(&mut self) -> Option<&mut Map<String, Value>> {
        self.document
            .get_mut("attributes")?
            .get_mut("system")?
            .as_object_mut()
    }

    /// The part needed for matching.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The program and its arguments.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// The number of tasks in total.
    pub fn ntasks(&self) -> u64 {
        match self.tasks {
            TaskCount::PerSlot(count) => self.request.total_slots() * u64::from(count),
            TaskCount::Total(total) => total,
        }
    }

    /// Time limit in seconds; 0 for none.
    pub fn duration(&self) -> f64 {
        self.request.duration
    }

    /// Working directory.
    pub fn cwd(&self) -> Option<&str> {
        member(self.system()?, "cwd")?.as_str()
    }

    /// The environment, if the jobspec has one.
    pub fn environment(&self) -> Option<&Map<String, Value>> {
        member(self.system()?, "environment")?.as_object()
    }

    /// Queue.
    pub fn queue(&self) -> Option<&str> {
        member(self.system()?, "queue")?.as_str()
    }

    /// The job's name, if the user gave one.
    pub fn job_name(&self) -> Option<&str> {
        member(member(self.system()?, "job")?.as_object()?, "name")?.as_str()
    }

    /// The dependencies.
    pub fn dependencies(&self) -> &[Dependency] {
        &self.dependencies
    }

    /// The constraint on execution targets.
    pub fn constraints(&self) -> Option<&Constraint> {
        self.request.constraint.as_ref()
    }

    /// An attribute by its dotted path below `attributes`.
    pub fn attribute(&self, path: &str) -> Option<&Value> {
        descendant(member(self.document.as_object()?, "attributes")?, path)
    }
}

/// The label of the slot of a jobspec that is built.
const BUILT_LABEL: &str = "task";

/// The parts of a jobspec that a program makes, with one task on each slot.
///
/// ```
/// use penstock_jobspec::{Count, JobspecBuilder, Request};
///
/// let request = Request {
///     nnodes: Some("1-3".parse()?),
///     exclusive: true,
///     slots: Count::exactly(1),
///     cores_per_slot: Count::exactly(4),
///     gpus_per_slot: Count::exactly(0),
///     duration: 60.0,
///     constraint: None,
/// };
/// let builder = JobspecBuilder {
///     request,
///     command: vec!["hostname".to_owned()],
///     name: None,
///     queue: Some("batch".to_owned()),
/// };
/// assert_eq!(builder.build()?.queue(), Some("batch"));
/// # Ok::<(), penstock_jobspec::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct JobspecBuilder {
    /// The resources, the time limit and the constraint.
    pub request: Request,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The job's name.
    pub name: Option<String>,
    /// Queue.
    pub queue: Option<String>,
}

impl JobspecBuilder {
    /// Makes the jobspec, without writing and reading its text.
    ///
    /// # Errors
    ///
    /// Fails where [`Jobspec::from_json`] would fail on the text: at a count that may be 0, whole nodes without a
    /// number of nodes, a time limit that is no number of seconds, an empty command, or a string with NUL.
    pub fn build(self) -> Result<Jobspec, Error> {
        let Self {
            request,
            command,
            name,
            queue,
        } = self;
        let resources = built_resources(&request)?;
        if command.is_empty() {
            return Err(fail("tasks[0].command", "expected at least one word"));
        }
        let words = command.iter().map(|word| ("tasks[0].command", word));
        let attributes = [
            ("attributes.system.job.name", &name),
            ("attributes.system.queue", &queue),
        ];
        let attributes = attributes
            .into_iter()
            .filter_map(|(path, text)| Some((path, text.as_ref()?)));
        if let Some((path, _)) = words
            .chain(attributes)
            .find(|(_, text)| text.contains('\0'))
        {
            return Err(fail(path, "expected a string without NUL"));
        }
        let mut system = Map::new();
        system.insert("duration".to_owned(), request.duration.into());
        if let Some(name) = name {
            system.insert("job".to_owned(), json!({ "name": name }));
        }
        if let Some(queue) = queue {
            system.insert("queue".to_owned(), queue.into());
        }
        if let Some(constraint) = &request.constraint {
            system.insert("constraints".to_owned(), constraint.to_value());
        }
        let document = json!({
            "version": 1,
            "resources": [resources],
            "tasks": [{"command": command, "slot": BUILT_LABEL, "count": {"per_slot": 1}}],
            "attributes": {"system": system},
        });
        Ok(Jobspec {
            request,
            command,
            tasks: TaskCount::PerSlot(1),
            dependencies: Vec::new(),
            document,
        })
    }
}

/// The `resources` of a request: its slots, in its nodes if it has any.
fn built_resources(request: &Request) -> Result<Value, Error> {
    let has_gpus = request.gpus_per_slot != 0;
    let counts = [
        Some(("slots", &request.slots)),
        Some(("cores", &request.cores_per_slot)),
        has_gpus.then_some(("gpus", &request.gpus_per_slot)),
        request.nnodes.as_ref().map(|nodes| ("nodes", nodes)),
    ];
    if let Some((what, count)) = counts
        .into_iter()
        .flatten()
        .find(|(_, count)| count.min() == 0)
    {
        let detail = format!("expected at least 1 of {what}, found `{count}`");
        return Err(fail("resources[0]", detail));
    }
    if !(request.duration.is_finite() && request.duration >= 0.0) {
        let detail = format!("expected a number of seconds, found {}", request.duration);
        return Err(fail("attributes.system.duration", detail));
    }
    let mut inner = vec![json!({"type": "core", "count": built_count(&request.cores_per_slot)})];
    if has_gpus {
        inner.push(json!({"type": "gpu", "count": built_count(&request.gpus_per_slot)}));
    }
    let count = built_count(&request.slots);
    let slot = json!({"type": "slot", "count": count, "label": BUILT_LABEL, "with": inner});
    match &request.nnodes {
        Some(nodes) => Ok(json!({
            "type": "node",
            "count": built_count(nodes),
            "exclusive": request.exclusive,
            "with": [slot],
        })),
        None if request.exclusive => Err(fail("resources[0]", "expected a number of whole nodes")),
        None => Ok(slot),
    }
}

/// A number, or the text of RFC 45.
fn built_count(count: &Count) -> Value {
    if count.is_exact() {
        count.min().into()
    } else {
        count.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"resources":[{"type":"slot","count":1,"label":"t","with":[{"type":"core","count":2}]}],"tasks":[{"command":["x"],"slot":"t","count":{"per_slot":1}}],"attributes":{"system":{"duration":0,"environment":{"A":"b"},"constraints":{"properties":["p"]}}},"version":1}"#;

    fn jobspec() -> Jobspec {
        Jobspec::from_json(TEXT).unwrap()
    }

    /// Checks that a changed copy is equal to the jobspec read from its text.
    fn check(copy: &Jobspec) {
        let again = Jobspec::from_json(&copy.to_text()).unwrap();
        assert_eq!(again.request(), copy.request());
        assert_eq!(again.to_text(), copy.to_text());
    }

    #[test]
    fn the_text_is_that_which_was_read() {
        assert_eq!(jobspec().to_text(), TEXT);
    }

    #[test]
    fn defaults_are_set_where_the_jobspec_has_none() {
        let plain = jobspec();
        let changed = plain.with_defaults(Some("batch"), Some(60.0)).into_owned();
        assert_eq!((changed.queue(), changed.duration()), (Some("batch"), 60.0));
        check(&changed);
        assert_eq!(plain.to_text(), TEXT);
        let is_unchanged = |queue, duration| {
            let jobspec = changed.with_defaults(queue, duration);
            matches!(jobspec, Cow::Borrowed(_))
        };
        assert!(is_unchanged(Some("debug"), Some(30.0)));
        assert!(is_unchanged(None, None));
    }

    #[test]
    fn a_redacted_copy_has_no_environment_and_all_constraints() {
        let plain = jobspec().redacted(Vec::new()).unwrap();
        assert_eq!(
            (plain.environment(), plain.request()),
            (None, jobspec().request())
        );
        check(&plain);
        let queue = serde_json::json!({"hostlist": ["n1"]});
        let copy = jobspec()
            .redacted(vec![serde_json::json!({}), queue.clone()])
            .unwrap();
        let expected = serde_json::json!({"and": [{"properties": ["p"]}, queue]});
        assert_eq!(copy.attribute("system.constraints"), Some(&expected));
        check(&copy);
        let error = jobspec().redacted(vec![serde_json::json!({"hostlist": 1})]);
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("attributes.system.constraints")
        );
        assert!(jobspec().environment().is_some());
    }

    #[test]
    fn a_single_constraint_stands_alone() {
        let text = TEXT.replace(r#","constraints":{"properties":["p"]}"#, "");
        let own = Jobspec::from_json(&text).unwrap();
        let copy = own
            .redacted(vec![serde_json::json!({"ranks": ["0"]})])
            .unwrap();
        assert_eq!(
            copy.attribute("system.constraints"),
            Some(&serde_json::json!({"ranks": ["0"]}))
        );
        check(&copy);
    }

    fn builder() -> JobspecBuilder {
        JobspecBuilder {
            request: Request {
                nnodes: Some("2-4".parse().unwrap()),
                exclusive: true,
                slots: Count::exactly(1),
                cores_per_slot: "1,3".parse().unwrap(),
                gpus_per_slot: Count::exactly(2),
                duration: 60.5,
                constraint: Some(Constraint::Not(vec![Constraint::Hostlist(
                    "n[1-2]".parse().unwrap(),
                )])),
            },
            command: vec!["a".to_owned(), "b c".to_owned()],
            name: Some("name".to_owned()),
            queue: Some("batch".to_owned()),
        }
    }

    #[test]
    fn a_built_jobspec_is_that_which_its_text_gives() {
        let slots = Request {
            nnodes: None,
            exclusive: false,
            slots: "1-8:2:*".parse().unwrap(),
            cores_per_slot: Count::exactly(1),
            gpus_per_slot: Count::exactly(0),
            duration: 0.0,
            constraint: None,
        };
        let plain = JobspecBuilder {
            request: slots,
            name: None,
            queue: None,
            ..builder()
        };
        for builder in [builder(), plain] {
            let built = builder.build().unwrap();
            check(&built);
            let again = Jobspec::from_json(&built.to_text()).unwrap();
            assert_eq!(again.command(), built.command());
            assert_eq!(again.tasks, built.tasks);
            assert_eq!(
                (again.queue(), again.job_name()),
                (built.queue(), built.job_name())
            );
            assert_eq!(built.dependencies(), []);
        }
    }

    #[test]
    fn what_no_text_could_say_is_not_built() {
        let with = |change: fn(&mut JobspecBuilder)| {
            let mut builder = builder();
            change(&mut builder);
            builder.build().unwrap_err().path().to_owned()
        };
        assert_eq!(with(|b| b.request.slots = 0.into()), "resources[0]");
        assert_eq!(
            with(|b| b.request.cores_per_slot = 0.into()),
            "resources[0]"
        );
        assert_eq!(with(|b| b.request.nnodes = Some(0.into())), "resources[0]");
        assert_eq!(with(|b| b.request.nnodes = None), "resources[0]");
        for duration in [-1.0, f64::NAN, f64::INFINITY] {
            let mut builder = builder();
            builder.request.duration = duration;
            let error = builder.build().unwrap_err();
            assert_eq!(error.path(), "attributes.system.duration");
        }
        assert_eq!(with(|b| b.command.clear()), "tasks[0].command");
        assert_eq!(with(|b| b.command[0].push('\0')), "tasks[0].command");
        assert_eq!(
            with(|b| b.queue = Some("\0".into())),
            "attributes.system.queue"
        );
        assert_eq!(
            with(|b| b.name = Some("\0".into())),
            "attributes.system.job.name"
        );
    }
}
