//! How long a simulated job runs, and when its time limit ends it.

use std::fmt;

use penstock_flux::exec::StartRequest;
use penstock_flux::{object, read};
use penstock_jobspec::duration;
use serde::Deserialize;
use serde_json::Value;

/// The part of a jobspec that decides how long the job runs.
#[derive(Deserialize)]
struct Jobspec {
    #[serde(deserialize_with = "object")]
    attributes: Attributes,
}

#[derive(Deserialize)]
struct Attributes {
    #[serde(deserialize_with = "object")]
    system: System,
}

#[derive(Deserialize)]
struct System {
    #[serde(default)]
    duration: f64,
    exec: Option<Exec>,
}

#[derive(Deserialize)]
struct Exec {
    test: Option<Test>,
}

#[derive(Deserialize)]
struct Test {
    run_duration: Option<Value>,
}

/// The part of R that limits the job.
#[derive(Deserialize)]
struct R {
    #[serde(deserialize_with = "object")]
    execution: Execution,
}

#[derive(Deserialize)]
struct Execution {
    #[serde(default)]
    starttime: f64,
    #[serde(default)]
    expiration: f64,
}

/// Why a start request has no timing.
#[derive(Debug)]
pub(crate) enum Error {
    /// A document is malformed: its name, and what is wrong with it.
    Malformed(&'static str, penstock_flux::Error),
    /// `run_duration` is no duration.
    RunDuration(String),
}

impl Error {
    /// Whether a document of the request is malformed; otherwise the test's `run_duration` is invalid.
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::Malformed(..))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(document, error) => write!(f, "{document}: {error}"),
            Self::RunDuration(text) => f.write_str(text),
        }
    }
}

/// When a job ends by itself, and when its time limit ends it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    done: f64,
    /// Infinite without a limit.
    limit: f64,
}

impl Timing {
    /// The timing of a job that is started, or reattached, at `now`.
    pub fn of(start: &StartRequest, now: f64) -> Result<Self, Error> {
        let jobspec: Jobspec = read(Some(start.jobspec.as_str().as_bytes()))
            .map_err(|error| Error::Malformed("jobspec", error))?;
        let r = start.r.map(|r| read::<R>(Some(r.as_str().as_bytes())));
        let r = r
            .transpose()
            .map_err(|error| Error::Malformed("R", error))?;
        let system = jobspec.attributes.system;
        let run_duration = run_duration(system.exec)?;
        let duration = system.duration;
        let (starttime, expiration) = r.map_or((0.0, 0.0), |r| {
            (r.execution.starttime, r.execution.expiration)
        });
        // A reattached job began at its R's start, and its end may have been moved.
        let began = if start.reattach && starttime > 0.0 {
            starttime
        } else {
            now
        };
        // A job that starts gets its whole duration, unless the resources expire earlier.
        let has_whole_duration = !start.reattach
            && starttime > 0.0
            && duration > 0.0
            && expiration >= starttime + duration;
        let limit = match (expiration > 0.0 && !has_whole_duration, duration > 0.0) {
            (true, _) => expiration,
            (false, true) => began + duration,
            (false, false) => f64::INFINITY,
        };
        let done = match run_duration {
            Some(run_duration) => began + run_duration,
            None if duration > 0.0 => limit,
            // Without a time limit of its own a job takes no time, however long it might run.
            None => began,
        };
        Ok(Self { done, limit })
    }

    /// When the job ends.
    pub fn end(self) -> f64 {
        self.done.min(self.limit)
    }

    /// Whether the time limit ends the job.
    pub fn exceeds_limit(self) -> bool {
        self.done > self.limit
    }

    /// Moves the time limit; 0 removes it.
    pub fn set_limit(&mut self, expiration: f64) {
        self.limit = if expiration == 0.0 {
            f64::INFINITY
        } else {
            expiration
        };
    }
}

fn run_duration(exec: Option<Exec>) -> Result<Option<f64>, Error> {
    let run_duration = exec
        .and_then(|exec| exec.test)
        .and_then(|test| test.run_duration);
    match run_duration {
        None => Ok(None),
        Some(Value::String(text)) => match duration::parse(&text) {
            Ok(seconds) => Ok(Some(seconds)),
            Err(error) => Err(Error::RunDuration(error.to_string())),
        },
        Some(value) => match value.as_f64() {
            Some(seconds) => Ok(Some(seconds)),
            None => Err(Error::RunDuration(format!(
                "run_duration {value}: expected a duration"
            ))),
        },
    }
}
