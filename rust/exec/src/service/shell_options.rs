//! The options of a job's shell (`attributes.system.shell.options`), as the Flux shell documents them.

use std::collections::BTreeMap;
use std::ffi::CString;

use penstock_jobspec::{Jobspec, duration};
use rustix::process::Resource;
use serde_json::Value;

use super::note::Note;
use crate::protocol::{Input, Limit};
use crate::types::MAX_SIGNAL;

/// Shell options that ask for what this service does not have yet.
const UNSUPPORTED: [(&str, &str); 1] = [("pty", "a pseudo-terminal")];

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

/// The shell options of a job that the service carries out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ShellOptions {
    /// The soft limits of the tasks, by the resource's number; `u64::MAX` for no limit.
    soft_limits: BTreeMap<u32, u64>,
    /// The file of standard input, relative to the working directory.
    input_file: Option<CString>,
    pub(super) warning: Option<Warning>,
    /// The file mode creation mask, if the job has one of its own.
    pub(super) umask: Option<u32>,
    pub(super) is_pmix_requested: bool,
}

impl ShellOptions {
    /// Reads the options of a job. The error is the note of the job's exception.
    pub(super) fn new(jobspec: &Jobspec) -> Result<Self, Note> {
        let Some(options) = jobspec.attribute("system.shell.options") else {
            return Ok(Self::default());
        };
        reject_unsupported(options)?;
        let requested = |name| options.get(name).filter(|value| is_requested(value));
        Ok(Self {
            soft_limits: requested("rlimit").map_or_else(|| Ok(BTreeMap::new()), soft_limits)?,
            input_file: requested("input").map_or(Ok(None), input_file)?,
            warning: options.get("signal").map_or(Ok(None), warning)?,
            umask: options.get("umask").map_or(Ok(None), umask)?,
            is_pmix_requested: requested("pmix").is_some(),
        })
    }

    /// The standard input of each task.
    pub(super) fn stdin(&self) -> Input {
        let file = self.input_file.clone();
        file.map_or(Input::Null, Input::File)
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

fn reject_unsupported(options: &Value) -> Result<(), Note> {
    for (option, meaning) in UNSUPPORTED {
        if options.get(option).is_some_and(is_requested) {
            let text = format!("the execution service does not support {meaning} (`{option}`) yet");
            return Err(text.into());
        }
    }
    for stream in ["stdout", "stderr"] {
        let output = options.get("output").and_then(|output| output.get(stream));
        let label = output.and_then(|output| output.get("label"));
        if label.is_some_and(is_requested) {
            let text = "the execution service does not support labelled output (`label`) yet";
            return Err(text.into());
        }
    }
    Ok(())
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

fn input_file(value: &Value) -> Result<Option<CString>, Note> {
    let members = value
        .as_object()
        .ok_or_else(|| format!("shell option `input`: expected an object, found `{value}`"))?;
    let mut requested = members.iter().filter(|(_, value)| is_requested(value));
    if let Some((name, _)) = requested.find(|(name, _)| name.as_str() != "stdin") {
        let shown = name.escape_debug();
        let text = format!("the execution service does not support `input.{shown}` yet");
        return Err(text.into());
    }
    let Some(stdin) = value.get("stdin").filter(|value| is_requested(value)) else {
        return Ok(None);
    };
    let is_plain = |(name, value): (&String, &Value)| {
        matches!(name.as_str(), "type" | "path") || !is_requested(value)
    };
    let is_plain = stdin
        .as_object()
        .is_some_and(|stdin| stdin.iter().all(is_plain));
    if !is_plain || stdin.get("type").and_then(Value::as_str) != Some("file") {
        let text = "the execution service does not support standard input (`input`) yet, except from a file";
        return Err(text.into());
    }
    let path = stdin.get("path").and_then(Value::as_str);
    let path = path.filter(|path| !path.is_empty());
    let path = path.ok_or("shell option `input.stdin.path`: expected a path")?;
    CString::new(path)
        .map(Some)
        .map_err(|_| "shell option `input.stdin.path`: zero byte".into())
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
