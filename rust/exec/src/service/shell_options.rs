//! The options of a job's shell (`attributes.system.shell.options`), as the Flux shell documents them.

use std::collections::BTreeMap;
use std::ffi::CString;

use penstock_idset::IdSet;
use penstock_jobspec::{Jobspec, duration};
use rustix::process::Resource;
use serde_json::Value;

use crate::error::Note;
use crate::protocol::{Input, Limit, Relay, WindowSize};
use crate::types::MAX_SIGNAL;

/// The resources of `rlimit`. `RLIMIT_LOCKS`, which marks jobs, is not one of them in Flux either.
const RESOURCES: [(&str, u32); 16] = [
    ("cpu", Resource::Cpu as u32),
    ("fsize", Resource::Fsize as u32),
    ("data", Resource::Data as u32),
    ("stack", Resource::Stack as u32),
    ("core", Resource::Core as u32),
    ("nofile", Resource::Nofile as u32),
    ("ofile", Resource::Nofile as u32),
    ("as", Resource::As as u32),
    ("rss", Resource::Rss as u32),
    ("nproc", Resource::Nproc as u32),
    ("memlock", Resource::Memlock as u32),
    ("msgqueue", Resource::Msgqueue as u32),
    ("nice", Resource::Nice as u32),
    ("rtprio", Resource::Rtprio as u32),
    ("rttime", Resource::Rttime as u32),
    ("sigpending", Resource::Sigpending as u32),
];

/// The window of a terminal whose size is not given.
const DEFAULT_WINDOW: WindowSize = WindowSize {
    rows: 24,
    columns: 80,
};

/// A signal to the tasks before the end of the allocation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Warning {
    pub(super) signal: u32,
    /// The time between the signal and the end, in seconds.
    pub(super) time_left_s: f64,
}

impl Default for Warning {
    /// The default of the Flux shell.
    fn default() -> Self {
        Self {
            signal: libc::SIGUSR1.cast_unsigned(),
            time_left_s: 60.0,
        }
    }
}

/// The status with which a task that a signal has ended counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StatusForm {
    /// Its wait status.
    #[default]
    Wait,
    /// The exit code of a shell, 128 + N, as in Flux.
    Shell,
}

/// The shell options of a job that the service carries out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ShellOptions {
    /// The soft limits of the tasks, by the resource's number; `u64::MAX` for no limit.
    soft_limits: BTreeMap<u32, u64>,
    input: StandardInput,
    labels: Labels,
    /// The tasks that have a terminal, and the size of its window.
    terminal: Option<(TaskRanks, WindowSize)>,
    pub(super) warning: Option<Warning>,
    /// The file mode creation mask, if the job has one of its own.
    pub(super) umask: Option<u32>,
    pub(super) is_pmix_requested: bool,
    pub(super) is_pmi_requested: bool,
    pub(super) status_form: StatusForm,
    /// The variables of `env-expand`: templates, filled in for each task.
    pub(super) variables: BTreeMap<String, String>,
}

/// The standard input of a job.
#[derive(Debug, Clone, Default, PartialEq)]
enum StandardInput {
    #[default]
    Empty,
    /// A file, relative to the working directory.
    File(CString),
    /// Written by requests, to these tasks.
    Written(TaskRanks),
}

/// Tasks of a job.
#[derive(Debug, Clone, PartialEq)]
enum TaskRanks {
    All,
    Some(IdSet),
}

impl TaskRanks {
    fn contains(&self, task_rank: u32) -> bool {
        match self {
            Self::All => true,
            Self::Some(ranks) => ranks.contains(task_rank),
        }
    }

    /// Reads `"all"`, an idset or a task rank.
    fn read(option: &str, value: &Value) -> Result<Self, Note> {
        let ranks = match value {
            Value::String(text) if text == "all" => return Ok(Self::All),
            Value::String(text) => text.parse().ok(),
            value => value
                .as_u64()
                .and_then(|task_rank| task_rank.to_string().parse().ok()),
        };
        ranks.map(Self::Some).ok_or_else(|| {
            format!("shell option `{option}`: expected `all` or an idset, found `{value}`").into()
        })
    }
}

/// The streams whose lines get the task rank in front.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Labels {
    stdout: bool,
    stderr: bool,
    is_line_buffered: bool,
}

impl Labels {
    fn new(options: &Value) -> Self {
        let member = |stream: &str, name: &str| options.get("output")?.get(stream)?.get(name);
        let is_labelled = |stream| member(stream, "label").is_some_and(is_requested);
        let buffer = member("stdout", "buffer").and_then(|buffer| buffer.get("type"));
        Self {
            stdout: is_labelled("stdout"),
            stderr: is_labelled("stderr"),
            is_line_buffered: buffer.and_then(Value::as_str) != Some("none"),
        }
    }

    fn relay(self) -> Relay {
        if self.stdout || self.stderr {
            Relay::Labels {
                stdout: self.stdout,
                stderr: self.stderr,
                is_line_buffered: self.is_line_buffered,
            }
        } else {
            Relay::None
        }
    }
}

impl ShellOptions {
    /// Reads the options of a job. The error is the note of the job's exception.
    pub(super) fn new(jobspec: &Jobspec) -> Result<Self, Note> {
        let Some(options) = jobspec.attribute("system.shell.options") else {
            return Ok(Self::default());
        };
        let requested = |name| options.get(name).filter(|value| is_requested(value));
        Ok(Self {
            soft_limits: requested("rlimit").map_or_else(|| Ok(BTreeMap::new()), soft_limits)?,
            input: requested("input").map_or(Ok(StandardInput::Empty), standard_input)?,
            labels: Labels::new(options),
            terminal: requested("pty").map_or(Ok(None), terminal)?,
            warning: options.get("signal").map_or(Ok(None), warning)?,
            umask: options.get("umask").map_or(Ok(None), umask)?,
            is_pmix_requested: requested("pmix").is_some() || has_pmi(options, &["pmix"]),
            is_pmi_requested: has_pmi(options, &["simple", "pmi1", "pmi2"]),
            status_form: match requested("signal-exit-code") {
                Some(_) => StatusForm::Shell,
                None => StatusForm::Wait,
            },
            variables: requested("env-expand").map_or_else(|| Ok(BTreeMap::new()), variables)?,
        })
    }

    /// The standard input of a task.
    pub(super) fn stdin(&self, task_rank: u32) -> Input {
        match &self.input {
            StandardInput::File(file) => Input::File(file.clone()),
            StandardInput::Written(ranks) if ranks.contains(task_rank) => Input::Pipe,
            StandardInput::Empty | StandardInput::Written(_) => Input::Null,
        }
    }

    /// The way of a task's output through the reaper.
    pub(super) fn relay(&self, task_rank: u32) -> Relay {
        match &self.terminal {
            Some((ranks, size)) if ranks.contains(task_rank) => Relay::Terminal(*size),
            _ => self.labels.relay(),
        }
    }

    /// The resource limits of each task, below these hard limits; a resource without one has no hard limit.
    ///
    /// A greater soft limit is lowered to the hard limit, as in Flux.
    pub(super) fn limits(&self, hard_limits: &BTreeMap<u32, u64>) -> Vec<Limit> {
        let limit = |(&resource, &soft)| {
            let hard = hard_limits.get(&resource).copied().unwrap_or(u64::MAX);
            Limit {
                resource,
                soft: hard.min(soft),
                hard,
            }
        };
        self.soft_limits.iter().map(limit).collect()
    }
}

fn is_requested(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => text != "off",
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Array(_) => true,
    }
}

/// Whether the option `pmi`, a list of names, has one of these. As in Flux, unknown names are ignored.
fn has_pmi(options: &Value, names: &[&str]) -> bool {
    let list = options.get("pmi").and_then(Value::as_str);
    let mut listed = list.into_iter().flat_map(|list| list.split(','));
    listed.any(|name| names.contains(&name.trim()))
}

fn soft_limits(value: &Value) -> Result<BTreeMap<u32, u64>, Note> {
    let limits = value
        .as_object()
        .ok_or_else(|| format!("shell option `rlimit`: expected an object, found `{value}`"))?;
    let limit = |(name, value): (&String, &Value)| {
        let resource = RESOURCES.iter().find(|(known, _)| known == name);
        let (_, resource) = resource.ok_or_else(|| {
            let shown = name.escape_debug();
            let known: Vec<_> = RESOURCES.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            format!("shell option `rlimit.{shown}`: unknown resource: expected {known}")
        })?;
        let soft = match value {
            Value::String(text) if text == "unlimited" => Some(u64::MAX),
            value if value.as_i64() == Some(-1) => Some(u64::MAX),
            value => value.as_u64(),
        };
        let soft = soft.ok_or_else(|| {
            format!("shell option `rlimit.{name}`: expected a number, -1 or `unlimited`, found `{value}`")
        })?;
        Ok((*resource, soft))
    };
    limits.iter().map(limit).collect()
}

/// Reads the variables of `env-expand`, to which Flux's commands move those of `--env` that have templates.
fn variables(value: &Value) -> Result<BTreeMap<String, String>, Note> {
    let members = value
        .as_object()
        .ok_or_else(|| format!("shell option `env-expand`: expected an object, found `{value}`"))?;
    let variable = |(name, value): (&String, &Value)| {
        let shown = name.escape_debug();
        if name.is_empty() || name.contains(['=', '\0']) {
            let text = format!("shell option `env-expand`: invalid variable name `{shown}`");
            return Err(text.into());
        }
        let template = value.as_str().ok_or_else(|| {
            format!("shell option `env-expand.{shown}`: expected a string, found `{value}`")
        })?;
        Ok((name.clone(), template.to_owned()))
    };
    members.iter().map(variable).collect()
}

fn standard_input(value: &Value) -> Result<StandardInput, Note> {
    let members = value
        .as_object()
        .ok_or_else(|| format!("shell option `input`: expected an object, found `{value}`"))?;
    let mut requested = members.iter().filter(|(_, value)| is_requested(value));
    // The limit and the batches of Flux's shell spare its key-value store, through which no input passes here.
    let known = ["stdin", "limit", "batch-timeout"];
    if let Some((name, _)) = requested.find(|(name, _)| !known.contains(&name.as_str())) {
        let shown = name.escape_debug();
        let text = format!("the execution service does not support `input.{shown}`");
        return Err(text.into());
    }
    let Some(stdin) = value.get("stdin").filter(|value| is_requested(value)) else {
        return Ok(StandardInput::Empty);
    };
    let member = |name| stdin.get(name).filter(|value| is_requested(value));
    match member("type").and_then(Value::as_str) {
        Some("service") => Ok(StandardInput::Written(match member("ranks") {
            None => TaskRanks::All,
            Some(ranks) => TaskRanks::read("input.stdin.ranks", ranks)?,
        })),
        Some("file") if member("ranks").is_none() => {
            let path = member("path").and_then(Value::as_str);
            let path = path.filter(|path| !path.is_empty());
            let path = path.ok_or("shell option `input.stdin.path`: expected a path")?;
            CString::new(path)
                .map(StandardInput::File)
                .map_err(|_| "shell option `input.stdin.path`: zero byte".into())
        }
        Some("file") => Err("shell option `input.stdin.ranks`: expected type `service`".into()),
        _ => Err("shell option `input.stdin.type`: expected `service` or `file`".into()),
    }
}

/// The tasks with a terminal: all of them, the first one if it is interactive, or `ranks`.
fn terminal(value: &Value) -> Result<Option<(TaskRanks, WindowSize)>, Note> {
    let member = |name| value.get(name).filter(|value| is_requested(value));
    let ranks = match member("ranks") {
        Some(ranks) => TaskRanks::read("pty.ranks", ranks)?,
        None if member("interactive").is_some() => TaskRanks::Some(IdSet::from_iter([0])),
        None => TaskRanks::All,
    };
    let length = |name, default| match value.get(name) {
        None => Ok(default),
        Some(value) => {
            let length = value.as_u64().and_then(|length| u16::try_from(length).ok());
            length.ok_or_else(|| {
                format!("shell option `pty.{name}`: expected 0 to 65535, found `{value}`")
            })
        }
    };
    let size = WindowSize {
        rows: length("rows", DEFAULT_WINDOW.rows)?,
        columns: length("columns", DEFAULT_WINDOW.columns)?,
    };
    Ok(Some((ranks, size)))
}

fn umask(value: &Value) -> Result<Option<u32>, Note> {
    if value.is_null() {
        return Ok(None);
    }
    let digits = value.as_str().filter(|text| !text.starts_with('+'));
    let mask = digits.and_then(|text| u32::from_str_radix(text, 8).ok());
    match mask.filter(|mask| *mask <= 0o777) {
        Some(mask) => Ok(Some(mask)),
        None => Err(format!(
            "shell option `umask`: expected octal digits such as \"022\", found `{value}`"
        )
        .into()),
    }
}

fn warning(value: &Value) -> Result<Option<Warning>, Note> {
    let mut warning = Warning::default();
    let members = match value {
        Value::Null | Value::Bool(false) => return Ok(None),
        Value::Number(number) if number.as_i64() == Some(0) => return Ok(None),
        Value::Number(number) if number.is_i64() => return Ok(Some(warning)),
        Value::Object(members) => members,
        _ => {
            let text =
                format!("shell option `signal`: expected an object or a number, found `{value}`");
            return Err(text.into());
        }
    };
    if let Some(value) = members.get("signum") {
        let signal = value.as_u64().and_then(|signal| u32::try_from(signal).ok());
        let signal = signal.filter(|signal| (1..=MAX_SIGNAL).contains(signal));
        warning.signal = signal.ok_or_else(|| {
            format!("shell option `signal.signum`: expected 1 to {MAX_SIGNAL}, found `{value}`")
        })?;
    }
    if let Some(value) = members.get("timeleft") {
        let seconds = match value {
            Value::String(text) => duration::parse(text).ok(),
            value => value.as_f64(),
        };
        let seconds = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
        warning.time_left_s = seconds.ok_or_else(|| {
            format!(
                "shell option `signal.timeleft`: expected seconds or a duration, found `{value}`"
            )
        })?;
    }
    Ok((warning.time_left_s > 0.0).then_some(warning))
}
