//! Jobspec V1 (RFC 25): one program, its resources, its tasks and its attributes.

use serde_json::{Map, Value};

use crate::constraint::kind;
use crate::{Constraint, Count, Error, Request};

/// How many tasks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskCount {
    /// As many on every slot; in V1 always one.
    PerSlot(u32),
    /// As many altogether.
    Total(u64),
}

/// Something that must have happened before a job may run (RFC 26).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// What kind of dependency.
    pub scheme: String,
    /// On what; the scheme says how to read it.
    pub value: String,
}

/// A valid jobspec V1.
#[derive(Clone, Debug)]
pub struct Jobspec {
    request: Request,
    command: Vec<String>,
    /// How many tasks there are.
    pub tasks: TaskCount,
    dependencies: Vec<Dependency>,
    attributes: Value,
}

fn fail(path: &str, detail: impl Into<String>) -> Error {
    Error::new("jobspec", path, detail)
}

fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, Error> {
    value
        .as_object()
        .ok_or_else(|| fail(path, format!("expected an object, found {}", kind(value))))
}

fn list<'a>(value: &'a Value, path: &str) -> Result<&'a Vec<Value>, Error> {
    value
        .as_array()
        .ok_or_else(|| fail(path, format!("expected a list, found {}", kind(value))))
}

fn text<'a>(value: &'a Value, path: &str) -> Result<&'a str, Error> {
    value
        .as_str()
        .ok_or_else(|| fail(path, format!("expected a string, found {}", kind(value))))
}

/// A text that a process can be given: the kernel's end with NUL.
fn word<'a>(value: &'a Value, path: &str) -> Result<&'a str, Error> {
    let word = text(value, path)?;
    if word.contains('\0') {
        return Err(fail(path, "expected a string without NUL"));
    }
    Ok(word)
}

fn required<'a>(map: &'a Map<String, Value>, key: &str, path: &str) -> Result<&'a Value, Error> {
    map.get(key).ok_or_else(|| {
        let detail = format!("expected the key `{key}`");
        fail(path, detail)
    })
}

fn only(map: &Map<String, Value>, keys: &[&str], path: &str) -> Result<(), Error> {
    match map.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let detail = format!(
                "unknown key `{}`: expected {}",
                key.escape_debug(),
                keys.join(", ")
            );
            Err(fail(path, detail))
        }
    }
}

fn one<'a>(value: &'a Value, path: &str) -> Result<&'a Value, Error> {
    match list(value, path)?.as_slice() {
        [one] => Ok(one),
        all => {
            let detail = format!("expected exactly one element, found {}", all.len());
            Err(fail(path, detail))
        }
    }
}

fn count(vertex: &Map<String, Value>, path: &str) -> Result<Count, Error> {
    let value = required(vertex, "count", path)?;
    Count::from_value_at(value, &format!("{path}.count"))
}

fn vertex<'a>(
    value: &'a Value,
    keys: &[&str],
    path: &str,
) -> Result<(&'a str, &'a Map<String, Value>), Error> {
    let map = object(value, path)?;
    let kind = text(required(map, "type", path)?, &format!("{path}.type"))?;
    only(map, keys, path)?;
    if let Some(unit) = map.get("unit") {
        text(unit, &format!("{path}.unit"))?;
    }
    Ok((kind, map))
}

const VERTEX: [&str; 5] = ["type", "count", "unit", "with", "label"];
const NODE: [&str; 6] = ["type", "count", "unit", "with", "label", "exclusive"];

/// The slot's label beside what the resources ask for.
fn resources(value: &Value) -> Result<(Request, &str), Error> {
    let top = one(value, "resources")?;
    let path = "resources[0]";
    let is_node = top.get("type").and_then(Value::as_str) == Some("node");
    let keys: &[&str] = if is_node { &NODE } else { &VERTEX };
    let (kind, map) = vertex(top, keys, path)?;
    match kind {
        "slot" => slot(map, path, None, false),
        "node" => {
            let nnodes = count(map, path)?;
            let exclusive = match map.get("exclusive") {
                None => false,
                Some(Value::Bool(exclusive)) => *exclusive,
                Some(_) => {
                    let path = format!("{path}.exclusive");
                    return Err(fail(&path, "expected true or false"));
                }
            };
            let with = format!("{path}.with");
            let inner = one(required(map, "with", path)?, &with)?;
            let path = format!("{with}[0]");
            match vertex(inner, &VERTEX, &path)? {
                ("slot", map) => slot(map, &path, Some(nnodes), exclusive),
                (other, _) => {
                    let detail = format!("expected `slot` in a node, found `{other}`");
                    Err(fail(&format!("{path}.type"), detail))
                }
            }
        }
        other => {
            let detail = format!(
                "expected `node` or `slot`, found `{}`",
                other.escape_debug()
            );
            Err(fail(&format!("{path}.type"), detail))
        }
    }
}

fn slot<'a>(
    map: &'a Map<String, Value>,
    path: &str,
    nnodes: Option<Count>,
    exclusive: bool,
) -> Result<(Request, &'a str), Error> {
    let slots = count(map, path)?;
    let label = text(required(map, "label", path)?, &format!("{path}.label"))?;
    let with = format!("{path}.with");
    let (mut cores, mut gpus) = (None, None);
    for (place, value) in list(required(map, "with", path)?, &with)?
        .iter()
        .enumerate()
    {
        let path = format!("{with}[{place}]");
        let (kind, map) = vertex(value, &VERTEX, &path)?;
        let amount = match kind {
            "core" => &mut cores,
            "gpu" => &mut gpus,
            other => {
                let detail = format!("expected `core` or `gpu` in a slot, found `{other}`");
                return Err(fail(&format!("{path}.type"), detail));
            }
        };
        if amount.is_some() {
            let detail = format!("`{kind}` is named twice");
            return Err(fail(&format!("{path}.type"), detail));
        }
        if map
            .get("with")
            .is_some_and(|with| with != &Value::Array(Vec::new()))
        {
            let detail = format!("expected nothing in a {kind}");
            return Err(fail(&format!("{path}.with"), detail));
        }
        *amount = Some(count(map, &path)?);
    }
    let request = Request {
        nnodes,
        exclusive,
        slots,
        cores_per_slot: cores.ok_or_else(|| fail(&with, "expected a `core` in the slot"))?,
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
        .map(|(place, value)| word(value, &format!("tasks[0].command[{place}]")).map(str::to_owned))
        .collect();
    let command = command?;
    if command.is_empty() {
        return Err(fail("tasks[0].command", "expected at least one word"));
    }
    let slot = text(required(map, "slot", path)?, "tasks[0].slot")?;
    if slot != label {
        let detail = format!("expected the slot's label `{label}`, found `{slot}`");
        return Err(fail("tasks[0].slot", detail));
    }
    let path = "tasks[0].count";
    let counts = object(required(map, "count", "tasks[0]")?, path)?;
    let mut entries = counts.iter();
    let (Some((key, value)), None) = (entries.next(), entries.next()) else {
        return Err(fail(path, "expected one of `per_slot` and `total`"));
    };
    let path = format!("{path}.{key}");
    let number = value.as_u64();
    match key.as_str() {
        "per_slot" if number == Some(1) => Ok((command, TaskCount::PerSlot(1))),
        "per_slot" => Err(fail(&path, format!("expected 1, found {value}"))),
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
                    Err(fail(&path, detail))
                }
            }
        }
        _ => Err(fail(&path, "unknown key: expected `per_slot` or `total`")),
    }
}

fn dependencies(value: &Value) -> Result<Vec<Dependency>, Error> {
    let path = "attributes.system.dependencies";
    let entries = list(value, path)?.iter().enumerate();
    entries
        .map(|(place, value)| {
            let path = format!("{path}[{place}]");
            let map = object(value, &path)?;
            let field = |key: &str| {
                let value = required(map, key, &path)?;
                text(value, &format!("{path}.{key}")).map(str::to_owned)
            };
            Ok(Dependency {
                scheme: field("scheme")?,
                value: field("value")?,
            })
        })
        .collect()
}

/// Attributes of the system that must be objects where they are there, outer ones first.
const OBJECTS: [&str; 7] = [
    "environment",
    "job",
    "shell",
    "shell.options",
    "shell.options.output",
    "shell.options.output.stdout",
    "shell.options.output.stderr",
];

/// Attributes of the system that must be strings where they are there.
const WORDS: [&str; 5] = [
    "cwd",
    "queue",
    "job.name",
    "shell.options.output.stdout.path",
    "shell.options.output.stderr.path",
];

/// Checks the attributes that running the job relies on.
fn check_system(system: &Value) -> Result<(), Error> {
    let found = |path: &str| {
        path.split('.')
            .try_fold(system, |value, key| value.get(key))
            .map(|value| (value, format!("attributes.system.{path}")))
    };
    for (value, path) in OBJECTS.into_iter().filter_map(found) {
        object(value, &path)?;
    }
    for (value, path) in WORDS.into_iter().filter_map(found) {
        word(value, &path)?;
    }
    let Some((Value::Object(environment), path)) = found("environment") else {
        return Ok(());
    };
    for (name, value) in environment {
        let path = format!("{path}.{}", name.escape_debug());
        if name.contains('\0') {
            return Err(fail(&path, "expected a name without NUL"));
        }
        word(value, &path)?;
    }
    Ok(())
}

impl Jobspec {
    /// Reads and checks the JSON text of a jobspec.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let mut document: Value =
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
            .ok_or_else(|| {
                let detail = format!("expected a number of seconds, found {duration}");
                fail("attributes.system.duration", detail)
            })?;
        if let Some(constraint) = system.get("constraints") {
            let path = "attributes.system.constraints";
            request.constraint = Some(Constraint::from_value_at(constraint, path)?);
        }
        let dependencies = system
            .get("dependencies")
            .map_or(Ok(Vec::new()), dependencies)?;
        let attributes = document["attributes"].take();
        Ok(Self {
            request,
            command,
            tasks,
            dependencies,
            attributes,
        })
    }

    /// What matching needs.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The program and its arguments.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Tasks altogether.
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
        self.attribute("system.cwd")?.as_str()
    }

    /// Environment, where the jobspec has one.
    pub fn environment(&self) -> Option<&Map<String, Value>> {
        self.attribute("system.environment")?.as_object()
    }

    /// Queue.
    pub fn queue(&self) -> Option<&str> {
        self.attribute("system.queue")?.as_str()
    }

    /// Job name as the user gave it.
    pub fn job_name(&self) -> Option<&str> {
        self.attribute("system.job.name")?.as_str()
    }

    /// What must have happened before.
    pub fn dependencies(&self) -> &[Dependency] {
        &self.dependencies
    }

    /// Which targets will do.
    pub fn constraints(&self) -> Option<&Constraint> {
        self.request.constraint.as_ref()
    }

    /// An attribute by its dotted path below `attributes`.
    pub fn attribute(&self, path: &str) -> Option<&Value> {
        path.split('.')
            .try_fold(&self.attributes, |value, key| value.get(key))
    }
}
