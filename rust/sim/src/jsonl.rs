//! JSON lines: one job an object, one object a line. Every shape of the engine can be said.

use std::collections::HashMap;
use std::fmt::Write as _;

use penstock_jobspec::{Constraint, Count};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;
use crate::error::{shown, some, without_mark};
use crate::workload::{DEFAULT_PRIORITY, JobShape, RUN_TIME_TAKEN, Workload};

/// A line as it is written: what each key may be is looked at where it is used.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Line {
    submit: Given,
    run: Given,
    id: Given,
    cores: Given,
    nodes: Given,
    slots: Given,
    cores_per_slot: Given,
    gpus_per_slot: Given,
    exclusive: Given,
    limit: Given,
    priority: Given,
    queue: Given,
    constraint: Given,
    after: Given,
}

/// The value of a key, if it is there.
#[derive(Default)]
struct Given(Option<Value>);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self(Some(value)))
    }
}

impl Given {
    /// The value; `null` is the same as nothing.
    fn value(&self) -> Option<&Value> {
        self.0.as_ref().filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.value() else {
            return Ok(None);
        };
        let found = || format!("{key}: expected {expected}, found {}", short(value));
        read(value).map(Some).ok_or_else(found)
    }

    fn seconds(&self, key: &str) -> Result<Option<f64>, String> {
        self.read(key, "a number of seconds", Value::as_f64)
    }

    fn whole(&self, key: &str) -> Result<Option<u64>, String> {
        self.read(key, "a whole number from 0 on", Value::as_u64)
    }

    /// A number, or a range of numbers.
    fn count(&self, key: &str, least: u32) -> Result<Option<Count>, String> {
        let Some(value) = self.value() else {
            return Ok(None);
        };
        if value.is_string() || value.is_object() {
            // The error begins with the name of what is wrong, and where in it.
            let count = Count::from_value(value).map_err(|error| format!("{key}: {error}"));
            return count.map(Some);
        }
        let number = value.as_u64().and_then(|it| u32::try_from(it).ok());
        match number.filter(|it| *it >= least) {
            Some(number) => Ok(Some(Count::exactly(number))),
            None if number.is_some() => {
                Err(format!("{key}: expected {least} or more, found {value}"))
            }
            None => Err(format!(
                "{key}: expected a whole number below 4294967296, or a range such as \"2-8\", found {}",
                short(value)
            )),
        }
    }
}

/// A value as an error shows it.
fn short(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}

/// Jobs that wait for others, as they were read: the line, the job's place, the ids.
type Waiting = Vec<(usize, u32, Vec<u64>)>;

/// Reads a trace, or its first `limit` jobs. Blank lines do not count.
///
/// Fails, with the line, where one is not a job as `docs/simulation.md` describes it, where an id
/// comes twice, and where jobs wait for one that is not there or for each other.
pub fn read(data: &[u8], name: &str, limit: Option<usize>) -> Result<Workload, Error> {
    let mut workload = Workload::new(name);
    let mut places: HashMap<u64, u32> = HashMap::new();
    let mut waiting: Waiting = Vec::new();
    let mut guessed = 0;
    for (index, line) in without_mark(data).split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if limit.is_some_and(|limit| workload.len() >= limit) {
            break;
        }
        let at = |detail: String| Error::at(name, index + 1, detail);
        // A list in the order of the keys would be read as well.
        if line[0] != b'{' {
            let found = shown(&String::from_utf8_lossy(line));
            return Err(at(format!(
                "expected an object such as {{\"submit\": 0, \"run\": 60, \"cores\": 4}}, found {found}"
            )));
        }
        let job: Line = serde_json::from_slice(line).map_err(|error| at(located(&error)))?;
        let shape = shape(&job).map_err(at)?;
        let missing = |key: &str| {
            at(format!(
                "{key}: expected a number of seconds, found nothing"
            ))
        };
        let submit = job.submit.seconds("submit").map_err(at)?;
        let submit = submit.ok_or_else(|| missing("submit"))?;
        let run = job.run.seconds("run").map_err(at)?;
        let run = run.ok_or_else(|| missing("run"))?;
        let place = u32::try_from(workload.len()).map_err(|_| at("too many jobs".to_owned()))?;
        let id = job.id.whole("id").map_err(at)?;
        let id = id.unwrap_or_else(|| u64::from(place) + 1);
        if let Some(before) = places.insert(id, place) {
            let text = format!("id {id} is that of job {} already", before + 1);
            return Err(at(text));
        }
        let limit = match (job.limit.seconds("limit").map_err(at)?, &job.limit.0) {
            (Some(limit), _) => limit,
            (None, Some(_)) => f64::INFINITY,
            (None, None) => {
                guessed += 1;
                run
            }
        };
        if let Some(after) = job.after.value() {
            waiting.push((index + 1, place, ids(after).map_err(at)?));
        }
        let shape = workload.shape_number(shape)?;
        let name = job
            .queue
            .read("queue", "a text", |it| it.as_str().map(str::to_owned));
        let queue = workload.queue_number(name.map_err(at)?.unwrap_or_default())?;
        let priority = |value: &Value| value.as_u64().and_then(|it| u32::try_from(it).ok());
        let priority = job
            .priority
            .read("priority", "a whole number from 0 to 4294967295", priority)
            .map_err(at)?;
        let rest = (priority.unwrap_or(DEFAULT_PRIORITY), queue);
        workload
            .push_shape(id, [submit, run, limit], shape, rest)
            .map_err(|error| at(error.to_string()))?;
    }
    for (line, place, ids) in waiting {
        for id in ids {
            match places.get(&id) {
                Some(before) => workload.after.push((place, *before)),
                // What comes after the first jobs that were asked for is not waited for.
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
    if let Some(id) = in_a_circle(&workload) {
        let text = format!("{name}: after: job {id} waits, in a circle, for itself");
        return Err(Error::new(text));
    }
    if guessed > 0 {
        let some = some(guessed, workload.len() as u64, ("has", "have"));
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

/// The error of a line, with the column alone: the line is that of the file.
fn located(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (what, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    format!("column {}: {what}", error.column())
}

fn shape(job: &Line) -> Result<JobShape, String> {
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
    let constraint = constraint.transpose().map_err(|error| error.to_string())?;
    if let Some(cores) = cores {
        let others = [
            ("nodes", nodes.is_some()),
            ("slots", slots.is_some()),
            ("cores_per_slot", cores_per_slot.is_some()),
            ("gpus_per_slot", gpus_per_slot.is_some()),
            ("exclusive", exclusive),
        ];
        if let Some((other, _)) = others.into_iter().find(|(_, there)| *there) {
            return Err(format!(
                "cores: cannot stand beside {other}\nhint: `cores` is short for `slots` of one core each"
            ));
        }
        return Ok(JobShape {
            slots: cores,
            constraint,
            ..JobShape::cores(1)
        });
    }
    if nodes.is_none() && slots.is_none() {
        return Err("expected cores, slots or nodes".to_owned());
    }
    if exclusive && nodes.is_none() {
        return Err("exclusive: expected nodes beside it".to_owned());
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

fn ids(value: &Value) -> Result<Vec<u64>, String> {
    let one = |value: &Value| {
        value
            .as_u64()
            .ok_or_else(|| format!("after: expected an id or a list of ids, found {value}"))
    };
    match value {
        Value::Array(values) => values.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

/// The id of a job that can never come, because it waits for itself.
fn in_a_circle(workload: &Workload) -> Option<u64> {
    let mut open = vec![0u32; workload.len()];
    let mut followers: Vec<(u32, u32)> = Vec::with_capacity(workload.after.len());
    for (job, before) in &workload.after {
        open[*job as usize] += 1;
        followers.push((*before, *job));
    }
    followers.sort_unstable();
    let mut free: Vec<u32> = (0u32..).take(open.len()).collect();
    free.retain(|place| open[*place as usize] == 0);
    while let Some(before) = free.pop() {
        let from = followers.partition_point(|(it, _)| *it < before);
        for (_, job) in followers[from..].iter().take_while(|(it, _)| *it == before) {
            open[*job as usize] -= 1;
            if open[*job as usize] == 0 {
                free.push(*job);
            }
        }
    }
    let place = open.iter().position(|open| *open > 0)?;
    Some(workload.id[place])
}

/// Writes a workload as JSON lines.
pub fn write(workload: &Workload) -> String {
    let mut text = String::with_capacity(workload.len() * 64);
    for place in 0..workload.len() {
        let shape = &workload.shapes[workload.shape[place] as usize];
        let (submit, run) = (workload.submit[place], workload.run[place]);
        let id = workload.id[place];
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
                let _ = write!(text, ",\"constraint\":{constraint}");
            }
        }
        let limit = workload.limit[place];
        if limit.is_finite() {
            let _ = write!(text, ",\"limit\":{limit}");
        } else {
            text.push_str(",\"limit\":null");
        }
        if workload.priority[place] != DEFAULT_PRIORITY {
            let _ = write!(text, ",\"priority\":{}", workload.priority[place]);
        }
        let queue = &workload.queues[usize::from(workload.queue[place])];
        if !queue.is_empty() {
            let _ = write!(text, ",\"queue\":{}", json!(queue));
        }
        let from = workload
            .after
            .partition_point(|(job, _)| (*job as usize) < place);
        let after: Vec<u64> = workload.after[from..]
            .iter()
            .take_while(|(job, _)| *job as usize == place)
            .map(|(_, before)| workload.id[*before as usize])
            .collect();
        if !after.is_empty() {
            let _ = write!(text, ",\"after\":{}", json!(after));
        }
        text.push_str("}\n");
    }
    text
}
