//! The run time of a simulated job, and the end by its time limit.

use std::fmt;

use penstock_flux::exec::StartRequest;
use penstock_flux::{Simulation, StartingJob};
use penstock_jobspec::duration;
use penstock_rset::ResourceSet;
use serde_json::Value;

/// The times that a start depends on, in seconds since the epoch; those of R are 0 if they are not set.
struct Beginning {
    starttime: f64,
    expiration: f64,
    /// Whether the job has begun before `now`.
    reattach: bool,
    now: f64,
}

/// The reason why a start request has no timing.
#[derive(Debug)]
pub(crate) enum Error {
    /// The jobspec is malformed.
    Jobspec(penstock_flux::Error),
    /// R is invalid.
    R(penstock_rset::Error),
    /// `run_duration` is not a duration.
    RunDuration(String),
}

impl Error {
    /// Whether a document of the request is malformed; otherwise the test's `run_duration` is invalid.
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::Jobspec(_) | Self::R(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jobspec(error) => write!(f, "jobspec: {error}"),
            Self::R(error) => write!(f, "{error}"),
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
    /// The timing of a job that is started, or reattached, at `now`, by a request as JSON.
    pub fn of(start: &StartRequest, now: f64) -> Result<Self, Error> {
        let simulation = Simulation::from_json(start.jobspec.as_str()).map_err(Error::Jobspec)?;
        let r = start.r.map(|r| ResourceSet::from_json(r.as_str()));
        let r = r.transpose().map_err(Error::R)?;
        let beginning = Beginning {
            starttime: r
                .as_ref()
                .and_then(ResourceSet::starttime)
                .unwrap_or_default(),
            expiration: r
                .as_ref()
                .and_then(ResourceSet::expiration)
                .unwrap_or_default(),
            reattach: start.reattach,
            now,
        };
        Self::new(&simulation, &beginning)
    }

    /// The same by a request as a value.
    pub fn of_job(job: &StartingJob, now: f64) -> Result<Self, Error> {
        let simulation = job.jobspec.simulation();
        let simulation = simulation.map_err(|error| Error::Jobspec(error.clone()))?;
        let beginning = Beginning {
            starttime: job.r.starttime().unwrap_or_default(),
            expiration: job.r.expiration().unwrap_or_default(),
            reattach: job.reattach,
            now,
        };
        Self::new(simulation, &beginning)
    }

    fn new(simulation: &Simulation, beginning: &Beginning) -> Result<Self, Error> {
        let &Beginning {
            starttime,
            expiration,
            reattach,
            now,
        } = beginning;
        let duration = simulation.duration;
        let run_duration = run_duration(simulation.run_duration.as_ref())?;
        // A reattached job began at its R's start, and its end may have been moved.
        let began = if reattach && starttime > 0.0 {
            starttime
        } else {
            now
        };
        // A job that starts gets its whole duration, unless the resources expire earlier.
        let has_whole_duration =
            !reattach && starttime > 0.0 && duration > 0.0 && expiration >= starttime + duration;
        let limit = match (expiration > 0.0 && !has_whole_duration, duration > 0.0) {
            (true, _) => expiration,
            (false, true) => began + duration,
            (false, false) => f64::INFINITY,
        };
        let done = match run_duration {
            Some(run_duration) => began + run_duration,
            None if duration > 0.0 => limit,
            // A job without a time limit of its own ends at once, whatever its allocation allows.
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

fn run_duration(value: Option<&Value>) -> Result<Option<f64>, Error> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) => match duration::parse(text) {
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
