//! JSON lines: one job an object, one object a line. Every shape of the engine can be said.

use std::collections::HashMap;
use std::fmt::Write as _;

use penstock_jobspec::Constraint;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;
use crate::error::grouped;
use crate::workload::{DEFAULT_PRIORITY, JobShape, Workload};

/// A line as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    submit: f64,
    run: f64,
    id: Option<u64>,
    cores: Option<u32>,
    nodes: Option<u32>,
    slots: Option<u32>,
    cores_per_slot: Option<u32>,
    gpus_per_slot: Option<u32>,
    #[serde(default)]
    exclusive: bool,
    #[serde(default, deserialize_with = "limit")]
    limit: Limit,
    priority: Option<u32>,
    #[serde(default)]
    queue: String,
    constraint: Option<Value>,
    after: Option<Value>,
}

/// The estimate of a line: `null` is not the same as nothing at all.
#[derive(Default)]
enum Limit {
    #[default]
    Unsaid,
    Without,
    Seconds(f64),
}

fn limit<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
    let seconds = Option::<f64>::deserialize(deserializer)?;
    Ok(seconds.map_or(Limit::Without, Limit::Seconds))
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
    for (index, line) in data.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if limit.is_some_and(|limit| workload.len() >= limit) {
            break;
        }
        let at = |detail: String| Error::at(name, index + 1, detail);
        let job: Line = serde_json::from_slice(line).map_err(|error| at(located(&error)))?;
        let shape = shape(&job).map_err(at)?;
        let place = u32::try_from(workload.len()).map_err(|_| at("too many jobs".to_owned()))?;
        let id = job.id.unwrap_or_else(|| u64::from(place) + 1);
        if let Some(before) = places.insert(id, place) {
            let text = format!("id {id} is that of job {} already", before + 1);
            return Err(at(text));
        }
        let limit = match job.limit {
            Limit::Seconds(limit) => limit,
            Limit::Without => f64::INFINITY,
            Limit::Unsaid => {
                guessed += 1;
                job.run
            }
        };
        if let Some(after) = &job.after {
            waiting.push((index + 1, place, ids(after).map_err(at)?));
        }
        let shape = workload.shape_number(shape)?;
        let queue = workload.queue_number(job.queue)?;
        let rest = (job.priority.unwrap_or(DEFAULT_PRIORITY), queue);
        workload
            .push_shape(id, [job.submit, job.run, limit], shape, rest)
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
        let jobs = grouped(u64::try_from(workload.len()).unwrap_or(u64::MAX));
        let guessed = grouped(guessed);
        workload.assume(format!(
            "{guessed} of {jobs} jobs have no limit: the run time is taken as the estimate"
        ));
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
    let least = |what: &str, number: Option<u32>| match number {
        Some(0) => Err(format!("{what}: expected 1 or more, found 0")),
        number => Ok(number),
    };
    let cores = least("cores", job.cores)?;
    let nodes = least("nodes", job.nodes)?;
    let slots = least("slots", job.slots)?;
    let cores_per_slot = least("cores_per_slot", job.cores_per_slot)?;
    let constraint = match &job.constraint {
        None | Some(Value::Null) => None,
        Some(value) => Some(Constraint::from_value(value).map_err(|error| error.to_string())?),
    };
    if let Some(cores) = cores {
        let others = [
            ("nodes", nodes.is_some()),
            ("slots", slots.is_some()),
            ("cores_per_slot", cores_per_slot.is_some()),
            ("gpus_per_slot", job.gpus_per_slot.is_some()),
            ("exclusive", job.exclusive),
        ];
        if let Some((other, _)) = others.into_iter().find(|(_, there)| *there) {
            return Err(format!(
                "cores: cannot stand beside {other}\nhint: `cores` is short for `slots` of one core each"
            ));
        }
        return Ok(JobShape {
            constraint,
            ..JobShape::cores(cores)
        });
    }
    if nodes.is_none() && slots.is_none() {
        return Err("expected cores, slots or nodes".to_owned());
    }
    if job.exclusive && nodes.is_none() {
        return Err("exclusive: expected nodes beside it".to_owned());
    }
    Ok(JobShape {
        nodes,
        slots: slots.unwrap_or(1),
        cores_per_slot: cores_per_slot.unwrap_or(1),
        gpus_per_slot: job.gpus_per_slot.unwrap_or(0),
        exclusive: job.exclusive,
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
        Value::Null => Ok(Vec::new()),
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
        if *shape == JobShape::cores(shape.slots) {
            let _ = write!(text, ",\"cores\":{}", shape.slots);
        } else {
            if let Some(nodes) = shape.nodes {
                let _ = write!(text, ",\"nodes\":{nodes}");
            }
            let _ = write!(text, ",\"slots\":{}", shape.slots);
            let _ = write!(text, ",\"cores_per_slot\":{}", shape.cores_per_slot);
            if shape.gpus_per_slot > 0 {
                let _ = write!(text, ",\"gpus_per_slot\":{}", shape.gpus_per_slot);
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
