//! The JSON lines format: one object per line and job. It can express every shape of the engine.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};

use penstock_jobspec::{Constraint, Count};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::Error;
use crate::error::{Verb, excerpt, some, strip_byte_order_mark};
use crate::swf::whole;
use crate::workload::{
    Column, Dependencies, Dependency, Dependent, JobIndex, JobShape, JobTimes, MAX_TIME_S,
    Priority, RUN_TIME_TAKEN, TraceJobId, Workload,
};

/// The error of a line.
#[derive(Debug)]
enum LineError {
    /// The value of a key is not of its kind.
    Value {
        key: &'static str,
        expected: &'static str,
        found: String,
    },
    /// A number is too small.
    TooSmall {
        key: &'static str,
        least: u32,
        found: String,
    },
    /// A range of numbers is invalid; the error begins with the problem and its position.
    Count {
        key: &'static str,
        error: penstock_jobspec::Error,
    },
    Constraint(penstock_jobspec::Error),
    /// A key that `cores` replaces.
    BesideCores(&'static str),
    /// Neither cores, slots nor nodes.
    NoSize,
    ExclusiveWithoutNodes,
    /// A key beyond the maximum number of keys without a meaning.
    TooManyKeys(Box<str>),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value {
                key,
                expected,
                found,
            } => write!(f, "{key}: expected {expected}, found {found}"),
            Self::TooSmall { key, least, found } => {
                write!(f, "{key}: expected {least} or more, found {found}")
            }
            Self::Count { key, error } => write!(f, "{key}: {error}"),
            Self::Constraint(error) => error.fmt(f),
            Self::BesideCores(other) => write!(
                f,
                "cores: cannot stand beside {other}\nhint: `cores` is short for `slots` of one core each"
            ),
            Self::NoSize => f.write_str("expected cores, slots or nodes"),
            Self::ExclusiveWithoutNodes => f.write_str("exclusive: expected nodes beside it"),
            Self::TooManyKeys(name) => write!(
                f,
                "unknown key `{name}`: expected one of {}, or at most {MAX_FURTHER_KEYS} others in a trace",
                KEYS.join(", ")
            ),
        }
    }
}

impl std::error::Error for LineError {}

/// Maximum number of distinct keys of a trace that have no meaning here.
const MAX_FURTHER_KEYS: usize = 256;

/// The largest whole number below which a 64-bit float represents every one.
const MAX_EXACT: u64 = 1 << 53;

/// Declares the keys that have a meaning, as fields of [`Line`] and as [`KEYS`].
macro_rules! line {
    ($($key:ident),* $(,)?) => {
        /// A line as it is written; the values are checked where they are used.
        #[derive(Default)]
        struct Line {
            $($key: Field,)*
            /// The other keys.
            further: Vec<(Box<str>, Value)>,
        }

        /// The keys that have a meaning.
        const KEYS: &[&str] = &[$(stringify!($key)),*];

        impl Line {
            /// The field of a key; `None` for other keys.
            fn field(&mut self, key: &str) -> Option<&mut Field> {
                match key {
                    $(stringify!($key) => Some(&mut self.$key),)*
                    _ => None,
                }
            }
        }
    };
}

line!(
    submit,
    run,
    id,
    cores,
    nodes,
    slots,
    cores_per_slot,
    gpus_per_slot,
    exclusive,
    limit,
    priority,
    queue,
    constraint,
    after,
    think,
    user,
    group,
);

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LineVisitor;

        impl<'de> Visitor<'de> for LineVisitor {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
                let mut line = Line::default();
                while let Some(Key(key)) = map.next_key()? {
                    let repeated = || A::Error::custom(format!("duplicate field `{key}`"));
                    if let Some(field) = line.field(&key) {
                        if field.0.is_some() {
                            return Err(repeated());
                        }
                        field.0 = Some(map.next_value()?);
                    } else {
                        if line.further.iter().any(|(known, _)| **known == *key) {
                            return Err(repeated());
                        }
                        let value = map.next_value()?;
                        line.further.push((key.into(), value));
                    }
                }
                Ok(line)
            }
        }

        deserializer.deserialize_map(LineVisitor)
    }
}

/// A key, borrowed from the line if it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// The value of a key, if the line has it.
#[derive(Default)]
struct Field(Option<Value>);

impl Field {
    /// The value, unless it is `null`.
    fn value(&self) -> Option<&Value> {
        self.0.as_ref().filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, LineError> {
        let Some(value) = self.value() else {
            return Ok(None);
        };
        let invalid = || LineError::Value {
            key,
            expected,
            found: short(value),
        };
        read(value).map(Some).ok_or_else(invalid)
    }

    fn seconds(&self, key: &'static str) -> Result<Option<f64>, LineError> {
        self.read(key, "a number of seconds", Value::as_f64)
    }

    fn whole(&self, key: &'static str) -> Result<Option<u64>, LineError> {
        self.read(key, "a whole number from 0 on", Value::as_u64)
    }

    /// The name or the number of a user or a group; empty without one.
    fn name(&self, key: &'static str) -> Result<Box<str>, LineError> {
        let read = |value: &Value| match value {
            Value::String(text) => Some(text.as_str().into()),
            Value::Number(number) if number.is_u64() => Some(number.to_string().into()),
            _ => None,
        };
        let name = self.read(key, "a name or a number", read)?;
        Ok(name.unwrap_or_default())
    }

    /// A number, or a range of numbers.
    fn count(&self, key: &'static str, least: u32) -> Result<Option<Count>, LineError> {
        let Some(value) = self.value() else {
            return Ok(None);
        };
        if value.is_string() || value.is_object() {
            let count = Count::from_value(value);
            return count
                .map(Some)
                .map_err(|error| LineError::Count { key, error });
        }
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| *number >= least) {
            Some(number) => Ok(Some(Count::exactly(number))),
            None if number.is_some() => {
                let found = value.to_string();
                Err(LineError::TooSmall { key, least, found })
            }
            None => Err(LineError::Value {
                key,
                expected: "a whole number below 4294967296, or a range such as \"2-8\"",
                found: short(value),
            }),
        }
    }
}

/// A value, shortened for an error message.
fn short(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}

/// The dependencies of a job as they were read.
struct ReadDependencies {
    /// Counted from 1.
    line: usize,
    job: JobIndex,
    /// The ids of the jobs that have to end first.
    before: Vec<TraceJobId>,
}

/// The values of the jobs that are not arguments of [`Workload::push_shape`].
#[derive(Default)]
struct FurtherValues {
    think_times: Vec<f64>,
    users: Vec<Box<str>>,
    groups: Vec<Box<str>>,
    /// The keys without a meaning here, in the order of their first occurrence, and their indices by name.
    keys: Vec<FurtherKey>,
    key_indices: HashMap<Box<str>, usize>,
}

/// A key without a meaning here, and its values by the number of the job.
struct FurtherKey {
    name: Box<str>,
    values: Vec<(usize, Value)>,
}

impl FurtherKey {
    /// Adds the value of a job; `null` is unknown.
    fn add(&mut self, job: usize, value: Value) {
        if !value.is_null() {
            self.values.push((job, value));
        }
    }

    /// The values as a column of `jobs` jobs.
    fn column(&self, jobs: usize) -> Column {
        let values = || self.values.iter();
        // Whole numbers that a float cannot represent stay JSON.
        let number = |value: &Value| match (value.as_u64(), value.as_i64()) {
            (Some(number), _) if number > MAX_EXACT => None,
            (None, Some(number)) if number.unsigned_abs() > MAX_EXACT => None,
            _ => value.as_f64(),
        };
        if values().all(|(_, value)| number(value).is_some()) {
            let mut numbers = vec![f64::NAN; jobs];
            for (job, value) in values() {
                if let (Some(slot), Some(number)) = (numbers.get_mut(*job), number(value)) {
                    *slot = number;
                }
            }
            return Column::Numbers(numbers);
        }
        let is_text = values().all(|(_, value)| value.is_string());
        let mut texts = vec![Box::default(); jobs];
        for (job, value) in values() {
            let text = value.as_str().filter(|_| is_text);
            if let Some(slot) = texts.get_mut(*job) {
                *slot = text.map_or_else(|| value.to_string().into(), Box::from);
            }
        }
        if is_text {
            Column::Texts(texts)
        } else {
            Column::Json(texts)
        }
    }
}

impl FurtherValues {
    fn add(&mut self, job: Line) -> Result<(), LineError> {
        let think = |value: &Value| {
            let seconds = value.as_f64();
            seconds.filter(|seconds| (0.0..=MAX_TIME_S).contains(seconds))
        };
        let think = job
            .think
            .read("think", "seconds from 0 on, at most 1e12", think)?;
        self.think_times.push(think.unwrap_or(0.0));
        let number = self.users.len();
        self.users.push(job.user.name("user")?);
        self.groups.push(job.group.name("group")?);
        for (name, value) in job.further {
            if let Some(index) = self.key_indices.get(&name) {
                if let Some(key) = self.keys.get_mut(*index) {
                    key.add(number, value);
                }
                continue;
            }
            if self.keys.len() == MAX_FURTHER_KEYS {
                return Err(LineError::TooManyKeys(name));
            }
            self.key_indices.insert(name.clone(), self.keys.len());
            let mut key = FurtherKey {
                name,
                values: Vec::new(),
            };
            key.add(number, value);
            self.keys.push(key);
        }
        Ok(())
    }

    /// Gives a workload the values, before its jobs are sorted.
    fn apply(self, workload: &mut Workload) {
        if self.think_times.iter().any(|think| *think > 0.0) {
            workload.think_times = self.think_times;
        }
        workload.add_column("user", Column::Texts(self.users));
        workload.add_column("group", Column::Texts(self.groups));
        if self.keys.is_empty() {
            return;
        }
        let names: Vec<_> = self
            .keys
            .iter()
            .map(|key| format!("`{}`", key.name))
            .collect();
        let names = names.join(", ");
        workload.assume(format!(
            "keys that are unknown here have no effect on the simulation: {names}"
        ));
        for key in self.keys {
            let column = key.column(workload.len());
            workload.add_column(&key.name, column);
        }
    }
}

/// Reads a trace, or its first `limit` jobs. Blank lines are skipped.
///
/// # Errors
///
/// A line is not a job as `docs/simulation.md` describes it, an id is repeated, or a job depends on
/// an unknown job or on itself. The error names the line.
pub fn read(data: &[u8], name: &str, limit: Option<usize>) -> Result<Workload, Error> {
    let mut workload = Workload::new(name);
    let mut by_id: HashMap<TraceJobId, JobIndex> = HashMap::new();
    let mut dependencies: Vec<ReadDependencies> = Vec::new();
    let mut without_limit = 0;
    let mut further = FurtherValues::default();
    for (index, line) in strip_byte_order_mark(data)
        .split(|byte| *byte == b'\n')
        .enumerate()
    {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if limit.is_some_and(|limit| workload.len() >= limit) {
            break;
        }
        let line_number = index + 1;
        let at = |detail: String| Error::at(name, line_number, detail);
        let invalid = |error: LineError| Error::at(name, line_number, error);
        // `serde` would also accept a list of the values.
        if line[0] != b'{' {
            let found = excerpt(&String::from_utf8_lossy(line));
            return Err(at(format!(
                "expected an object such as {{\"submit\": 0, \"run\": 60, \"cores\": 4}}, found {found}"
            )));
        }
        let job: Line = serde_json::from_slice(line).map_err(|error| at(located(&error)))?;
        let shape = shape(&job).map_err(invalid)?;
        let missing = |key: &str| {
            at(format!(
                "{key}: expected a number of seconds, found nothing"
            ))
        };
        let submit = job
            .submit
            .seconds("submit")
            .map_err(invalid)?
            .ok_or_else(|| missing("submit"))?;
        let run = job
            .run
            .seconds("run")
            .map_err(invalid)?
            .ok_or_else(|| missing("run"))?;
        let number = u32::try_from(workload.len()).map_err(|_| at("too many jobs".to_owned()))?;
        let index = JobIndex::new(number);
        let id = job.id.whole("id").map_err(invalid)?;
        let id = TraceJobId::new(id.unwrap_or_else(|| u64::from(number) + 1));
        if let Some(before) = by_id.insert(id, index) {
            let text = format!("id {id} is that of job {} already", before.get() + 1);
            return Err(at(text));
        }
        let limit = match (job.limit.seconds("limit").map_err(invalid)?, &job.limit.0) {
            (Some(limit), _) => limit,
            (None, Some(_)) => f64::INFINITY,
            (None, None) => {
                without_limit += 1;
                run
            }
        };
        if let Some(after) = job.after.value() {
            dependencies.push(ReadDependencies {
                line: line_number,
                job: index,
                before: ids(after).map_err(invalid)?,
            });
        }
        let shape = workload.shape_index(shape)?;
        let name = job
            .queue
            .read("queue", "a text", |value| value.as_str().map(str::to_owned));
        let queue = workload.queue_index(name.map_err(invalid)?.unwrap_or_default())?;
        let priority = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let priority = job
            .priority
            .read("priority", "a whole number from 0 to 4294967295", priority)
            .map_err(invalid)?;
        let priority = priority.map_or(Priority::DEFAULT, Priority::new);
        let times = JobTimes { submit, run, limit };
        workload
            .push_shape(id, times, shape, priority, queue)
            .map_err(|error| at(error.to_string()))?;
        further.add(job).map_err(invalid)?;
    }
    further.apply(&mut workload);
    add_dependencies(&mut workload, name, dependencies, &by_id, limit)?;
    if without_limit > 0 {
        let some = some(without_limit, workload.len() as u64, Verb::Have);
        workload.assume(format!("{some} no limit: {RUN_TIME_TAKEN}"));
    }
    if workload.sort() {
        workload.assume(
            "the lines are not in the order of submit times: they were sorted, equal times in \
             file order"
                .to_owned(),
        );
    }
    Ok(workload)
}

/// Adds the dependencies that were read, once all ids are known.
fn add_dependencies(
    workload: &mut Workload,
    name: &str,
    dependencies: Vec<ReadDependencies>,
    by_id: &HashMap<TraceJobId, JobIndex>,
    limit: Option<usize>,
) -> Result<(), Error> {
    for ReadDependencies { line, job, before } in dependencies {
        for id in before {
            match by_id.get(&id) {
                Some(before) => workload.after.push(Dependency {
                    job,
                    before: *before,
                }),
                // Jobs beyond the first `limit` are no dependencies.
                None if limit.is_some() => {}
                None => {
                    let text = format!("after: expected the id of another job, found {id}");
                    return Err(Error::at(name, line, text));
                }
            }
        }
    }
    workload.after.sort_unstable();
    workload.after.dedup();
    if let Some(id) = find_cycle(workload) {
        let text = format!("{name}: after: job {id} depends on itself, through others or directly");
        return Err(Error::new(text));
    }
    Ok(())
}

/// The error of a line, with its column only: the parser reads a single line.
fn located(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (what, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    format!("column {}: {what}", error.column())
}

fn shape(job: &Line) -> Result<JobShape, LineError> {
    let cores = job.cores.count("cores", 1)?;
    let nodes = job.nodes.count("nodes", 1)?;
    let slots = job.slots.count("slots", 1)?;
    let cores_per_slot = job.cores_per_slot.count("cores_per_slot", 1)?;
    let gpus_per_slot = job.gpus_per_slot.count("gpus_per_slot", 0)?;
    let exclusive = job
        .exclusive
        .read("exclusive", "true or false", Value::as_bool)?;
    let exclusive = exclusive.unwrap_or(false);
    let constraint = job.constraint.value().map(Constraint::from_value);
    let constraint = constraint.transpose().map_err(LineError::Constraint)?;
    if let Some(cores) = cores {
        let others = [
            ("nodes", nodes.is_some()),
            ("slots", slots.is_some()),
            ("cores_per_slot", cores_per_slot.is_some()),
            ("gpus_per_slot", gpus_per_slot.is_some()),
            ("exclusive", exclusive),
        ];
        if let Some((other, _)) = others.into_iter().find(|(_, there)| *there) {
            return Err(LineError::BesideCores(other));
        }
        return Ok(JobShape {
            slots: cores,
            constraint,
            ..JobShape::cores(1)
        });
    }
    if nodes.is_none() && slots.is_none() {
        return Err(LineError::NoSize);
    }
    if exclusive && nodes.is_none() {
        return Err(LineError::ExclusiveWithoutNodes);
    }
    Ok(JobShape {
        nodes,
        slots: slots.unwrap_or(Count::exactly(1)),
        cores_per_slot: cores_per_slot.unwrap_or(Count::exactly(1)),
        gpus_per_slot: gpus_per_slot.unwrap_or(Count::exactly(0)),
        exclusive,
        constraint,
    })
}

fn ids(value: &Value) -> Result<Vec<TraceJobId>, LineError> {
    let one = |value: &Value| {
        value
            .as_u64()
            .map(TraceJobId::new)
            .ok_or_else(|| LineError::Value {
                key: "after",
                expected: "an id or a list of ids",
                found: value.to_string(),
            })
    };
    match value {
        Value::Array(values) => values.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

/// The id of a job that depends, directly or through others, on itself.
fn find_cycle(workload: &Workload) -> Option<TraceJobId> {
    let Dependencies {
        mut open_dependencies,
        dependents,
    } = workload.dependencies();
    let mut ready: Vec<JobIndex> = (0..open_dependencies.len())
        .filter(|index| open_dependencies[*index] == 0)
        .map(JobIndex::from_usize)
        .collect();
    while let Some(before) = ready.pop() {
        let first = dependents.partition_point(|dependent| dependent.before < before);
        let dependents = dependents[first..].iter();
        for Dependent { job, .. } in dependents.take_while(|dependent| dependent.before == before) {
            let open = &mut open_dependencies[job.index()];
            *open -= 1;
            if *open == 0 {
                ready.push(*job);
            }
        }
    }
    let index = open_dependencies.iter().position(|open| *open > 0)?;
    Some(workload.id[index])
}

/// Writes a workload as JSON lines.
pub fn write(workload: &Workload) -> String {
    let mut text = String::with_capacity(workload.len() * 64);
    let mut places = vec![0; workload.len()];
    for place in 0..workload.len() {
        places[workload.index_from_file(place)] = place;
    }
    for (index, place) in places.into_iter().enumerate() {
        let shape = &workload.shapes[workload.shape[index].index()];
        let (submit, run) = (workload.submit[index], workload.run[index]);
        let id = workload.id[index].get();
        let _ = write!(text, "{{\"id\":{id},\"submit\":{submit},\"run\":{run}");
        let cores = JobShape {
            slots: shape.slots.clone(),
            ..JobShape::cores(1)
        };
        if *shape == cores {
            let _ = write!(text, ",\"cores\":{}", shape.slots.to_value());
        } else {
            if let Some(nodes) = &shape.nodes {
                let _ = write!(text, ",\"nodes\":{}", nodes.to_value());
            }
            let (slots, cores) = (&shape.slots, &shape.cores_per_slot);
            let _ = write!(text, ",\"slots\":{}", slots.to_value());
            let _ = write!(text, ",\"cores_per_slot\":{}", cores.to_value());
            if shape.gpus_per_slot != 0 {
                let _ = write!(
                    text,
                    ",\"gpus_per_slot\":{}",
                    shape.gpus_per_slot.to_value()
                );
            }
            if shape.exclusive {
                text.push_str(",\"exclusive\":true");
            }
            if let Some(constraint) = &shape.constraint {
                let _ = write!(text, ",\"constraint\":{}", constraint.to_value());
            }
        }
        let limit = workload.limit[index];
        if limit.is_finite() {
            let _ = write!(text, ",\"limit\":{limit}");
        } else {
            text.push_str(",\"limit\":null");
        }
        if workload.priority[index] != Priority::DEFAULT {
            let _ = write!(text, ",\"priority\":{}", workload.priority[index].get());
        }
        let queue = &workload.queues[workload.queue[index].index()];
        if !queue.is_empty() {
            let _ = write!(text, ",\"queue\":{}", json!(queue));
        }
        for (name, column) in workload.columns() {
            write_value(&mut text, name, column, place);
        }
        let from = workload
            .after
            .partition_point(|dependency| dependency.job.index() < index);
        let after: Vec<u64> = workload.after[from..]
            .iter()
            .take_while(|dependency| dependency.job.index() == index)
            .map(|dependency| workload.id[dependency.before.index()].get())
            .collect();
        if !after.is_empty() {
            let _ = write!(text, ",\"after\":{}", json!(after));
        }
        let think = workload.think_times.get(index).copied().unwrap_or(0.0);
        if think > 0.0 {
            let _ = write!(text, ",\"think\":{think}");
        }
        text.push_str("}\n");
    }
    text
}

/// Writes the value of a further column, if the job has one that a reader of the format takes.
fn write_value(text: &mut String, name: &str, column: &Column, place: usize) {
    let is_user = ["user", "group"].contains(&name);
    if KEYS.contains(&name) && !is_user {
        return;
    }
    let value = match column {
        Column::Texts(texts) if !texts[place].is_empty() => json!(texts[place]).to_string(),
        Column::Json(texts) if !texts[place].is_empty() => texts[place].to_string(),
        Column::Numbers(numbers) => match whole(numbers[place]) {
            Some(number) => number.to_string(),
            None if is_user || numbers[place].is_nan() => return,
            None => json!(numbers[place]).to_string(),
        },
        _ => return,
    };
    let _ = write!(text, ",{}:{value}", json!(name));
}
