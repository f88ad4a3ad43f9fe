//! Job dependencies (RFC 26): `after`, `afterany`, `afterok`, `afternotok`, `begin-time`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use penstock_jobspec::fluid::Fluid;
use serde_json::json;

use crate::event::Event;
use crate::job::Job;
use crate::manager::{Manager, milliseconds};
use crate::rpc::{EINVAL, EPERM, RequestError};
use crate::state::{JobResult, State};

/// What a dependency waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// The other job enters RUN.
    After(u64),
    /// The other job ends.
    AfterAny(u64),
    /// The other job ends well.
    AfterOk(u64),
    /// The other job ends badly.
    AfterNotOk(u64),
    /// A time comes, in seconds since the epoch.
    Begin(f64),
}

/// A job that waits, and the description of what it waits for.
type Waiting = (u64, String);

/// Those who wait for a job.
#[derive(Debug, Default)]
struct Dependents {
    /// For its entering RUN.
    run: BTreeSet<Waiting>,
    /// For its end.
    end: BTreeSet<Waiting>,
}

impl Dependents {
    fn of(&mut self, condition: Condition) -> &mut BTreeSet<Waiting> {
        match condition {
            Condition::After(_) => &mut self.run,
            _ => &mut self.end,
        }
    }
}

/// Who waits for what: each dependency by itself, so that what a change of one job costs does not
/// depend on how many others its dependents wait for.
#[derive(Debug, Default)]
pub struct Dependencies {
    /// Those who wait for a job.
    dependents: BTreeMap<u64, Dependents>,
    /// Jobs that wait for a time, in milliseconds since the epoch, and its description.
    begins: BTreeSet<(u64, u64, String)>,
}

impl Dependencies {
    pub(crate) fn next_begin(&self) -> Option<f64> {
        #[allow(
            clippy::cast_precision_loss,
            reason = "milliseconds of any real date are exact in a float"
        )]
        self.begins.first().map(|(at, ..)| *at as f64 / 1000.0)
    }
}

/// Reads a dependency of a jobspec.
pub(crate) fn parse(scheme: &str, value: &str) -> Result<Condition, String> {
    let job = || {
        value
            .parse::<Fluid>()
            .map(|id| id.0)
            .map_err(|error| format!("dependency `{scheme}:{value}`: {error}"))
    };
    match scheme {
        "after" => job().map(Condition::After),
        "afterany" => job().map(Condition::AfterAny),
        "afterok" => job().map(Condition::AfterOk),
        "afternotok" => job().map(Condition::AfterNotOk),
        "begin-time" => {
            // With a sign it is meant as a time from now on, which only the asker can work out.
            let time = value.parse::<f64>().ok().filter(|time| time.is_finite());
            let time = time.filter(|_| !value.starts_with(['+', '-']));
            time.map(Condition::Begin).ok_or_else(|| {
                let expected = "expected seconds since the epoch, without a sign";
                format!("dependency `{scheme}:{value}`: {expected}")
            })
        }
        _ => Err(format!(
            "unknown dependency scheme `{scheme}`: expected after, afterany, afterok, afternotok \
             or begin-time"
        )),
    }
}

impl Manager {
    /// Whether a new job's dependencies can be waited for: known schemes, known jobs.
    pub(crate) fn check_dependencies(
        &self,
        wanted: &[(String, String)],
        userid: u32,
    ) -> Result<(), RequestError> {
        for (scheme, value) in wanted {
            let condition = parse(scheme, value).map_err(|text| RequestError::new(EINVAL, text))?;
            let Some(id) = antecedent(condition) else {
                continue;
            };
            let refuse = |errnum, text: &str| {
                let text = format!("dependency `{scheme}:{value}`: {text}");
                Err(RequestError::new(errnum, text))
            };
            let Some(job) = self.jobs.get(&id) else {
                return refuse(EINVAL, &self.unknown(id).text);
            };
            if userid != self.settings.owner && userid != job.userid {
                return refuse(EPERM, "the job belongs to another user");
            }
        }
        Ok(())
    }

    /// Logs the dependencies of a job that has just entered DEPEND, then looks at each.
    pub(crate) fn add_dependencies(&mut self, id: u64, now: f64) {
        let Some(wanted) = self.jobs.get(&id).map(|job| Arc::clone(&job.spec)) else {
            return;
        };
        for (scheme, value) in &wanted.dependencies {
            let description = format!("{scheme}={value}");
            let known = |job: &Job| job.waits_for.contains(&description);
            if !self.jobs.get(&id).is_some_and(known) {
                let context = json!({ "description": description });
                self.post(id, &Event::with(now, "dependency-add", context));
            }
        }
        self.watch_dependencies(id, now);
    }

    /// Waits for each dependency that a job has, or settles it at once.
    pub(crate) fn watch_dependencies(&mut self, id: u64, now: f64) {
        let waits_for = self.jobs.get(&id).map(|job| job.waits_for.clone());
        for description in waits_for.unwrap_or_default() {
            let Some(condition) = condition_of(&description) else {
                continue;
            };
            if let Some(other) = antecedent(condition) {
                let dependents = self.dependencies.dependents.entry(other).or_default();
                dependents.of(condition).insert((id, description.clone()));
                self.settle_dependency(id, &description, condition, now);
            } else if let Condition::Begin(time) = condition {
                let begin = (milliseconds(time), id, description);
                self.dependencies.begins.insert(begin);
            }
        }
        self.begin_due(now);
    }

    /// A job has entered RUN or INACTIVE: looks at those who wait for that.
    pub(crate) fn wake_dependents(&mut self, id: u64, now: f64) {
        let Some(dependents) = self.dependencies.dependents.get_mut(&id) else {
            return;
        };
        let mut waiting = std::mem::take(&mut dependents.run);
        let state = self.jobs.get(&id).map(|job| job.state);
        if state.is_none_or(|state| state == State::Inactive)
            && let Some(mut dependents) = self.dependencies.dependents.remove(&id)
        {
            waiting.append(&mut dependents.end);
        }
        for (dependent, description) in waiting {
            if let Some(condition) = condition_of(&description) {
                self.settle_dependency(dependent, &description, condition, now);
            }
        }
    }

    fn settle_dependency(&mut self, id: u64, description: &str, condition: Condition, now: f64) {
        let Some(other) = antecedent(condition) else {
            return;
        };
        if self
            .jobs
            .get(&id)
            .is_none_or(|job| job.state != State::Depend)
        {
            return;
        }
        let Some(antecedent) = self.jobs.get(&other) else {
            let why = self.unknown(other).text;
            let note = format!("{description} cannot be met: {why}");
            return self.fail_job(id, now, "dependency", &note);
        };
        let (state, outcome) = (antecedent.state, antecedent.result());
        let ran = antecedent.t_run > 0.0;
        let over = state == State::Inactive;
        let well = outcome == Some(JobResult::Completed);
        let met = match condition {
            Condition::After(_) => ran,
            Condition::AfterAny(_) => over,
            Condition::AfterOk(_) => over && well,
            Condition::AfterNotOk(_) => over && !well,
            Condition::Begin(_) => false,
        };
        let failure = match condition {
            Condition::After(_) if over && !ran => "ended without having run",
            Condition::AfterOk(_) if over && !well => "did not end well",
            Condition::AfterNotOk(_) if over && well => "ended well",
            _ => "",
        };
        if met {
            self.unwatch(id, description, condition);
            self.remove_dependency(id, description, now);
        } else if !failure.is_empty() {
            let note = format!("{description} cannot be met: {} {failure}", Fluid(other));
            self.fail_job(id, now, "dependency", &note);
        }
    }

    fn remove_dependency(&mut self, id: u64, description: &str, now: f64) {
        let context = json!({ "description": description });
        self.post(id, &Event::with(now, "dependency-remove", context));
        self.revisit(id);
    }

    /// Lets go of the jobs whose begin time has come.
    pub(crate) fn begin_due(&mut self, now: f64) {
        let due = milliseconds(now);
        while let Some((at, ..)) = self.dependencies.begins.first()
            && *at <= due
        {
            if let Some((_, id, description)) = self.dependencies.begins.pop_first() {
                self.remove_dependency(id, &description, now);
            }
        }
    }

    /// The job waits for nothing any more: it is over.
    pub(crate) fn forget_dependencies(&mut self, id: u64) {
        let waits_for = self.jobs.get(&id).map(|job| job.waits_for.clone());
        for description in waits_for.unwrap_or_default() {
            if let Some(condition) = condition_of(&description) {
                self.unwatch(id, &description, condition);
            }
        }
    }

    fn unwatch(&mut self, id: u64, description: &str, condition: Condition) {
        let description = description.to_owned();
        if let Condition::Begin(time) = condition {
            let begin = (milliseconds(time), id, description);
            self.dependencies.begins.remove(&begin);
        } else if let Some(other) = antecedent(condition)
            && let Some(dependents) = self.dependencies.dependents.get_mut(&other)
        {
            dependents.of(condition).remove(&(id, description));
        }
    }
}

fn condition_of(description: &str) -> Option<Condition> {
    let (scheme, value) = description.split_once('=')?;
    parse(scheme, value).ok()
}

fn antecedent(condition: Condition) -> Option<u64> {
    match condition {
        Condition::After(id)
        | Condition::AfterAny(id)
        | Condition::AfterOk(id)
        | Condition::AfterNotOk(id) => Some(id),
        Condition::Begin(_) => None,
    }
}
