//! `Dependencies`: job dependencies (RFC 26) of the schemes `after`, `afterany`, `afterok`,
//! `afternotok` and `begin-time`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use penstock_flux::RequestError;
use penstock_flux::eventlog::{self, Dependency};
use penstock_jobspec::job_id::JobId;

use crate::authorize;
use crate::context::{Context, milliseconds, seconds};
use crate::event::Event;
use crate::record::Record;
use crate::state::{JobResult, State};

/// The condition that satisfies a dependency.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Condition {
    /// The antecedent enters RUN.
    After(JobId),
    /// The antecedent ends.
    AfterAny(JobId),
    /// The antecedent ends with result COMPLETED.
    AfterOk(JobId),
    /// The antecedent ends with another result.
    AfterNotOk(JobId),
    /// A time is reached, in seconds since the epoch.
    Begin(f64),
}

impl Condition {
    /// The antecedent; `None` for a time.
    fn antecedent(self) -> Option<JobId> {
        match self {
            Self::After(id) | Self::AfterAny(id) | Self::AfterOk(id) | Self::AfterNotOk(id) => {
                Some(id)
            }
            Self::Begin(_) => None,
        }
    }

    /// Reads the description in a `dependency-add` event.
    fn described(description: &str) -> Option<Self> {
        let (scheme, value) = description.split_once('=')?;
        parse(scheme, value).ok()
    }
}

/// A dependent job, and the description of its dependency.
type Dependent = (JobId, String);

/// The dependents of one antecedent.
#[derive(Debug, Default)]
struct Dependents {
    /// Dependents whose dependency is satisfied when the antecedent enters RUN.
    run: BTreeSet<Dependent>,
    /// Dependents whose dependency is satisfied, or can never be satisfied, when the antecedent ends.
    end: BTreeSet<Dependent>,
}

impl Dependents {
    fn of(&mut self, condition: Condition) -> &mut BTreeSet<Dependent> {
        match condition {
            Condition::After(_) => &mut self.run,
            _ => &mut self.end,
        }
    }
}

/// The unsatisfied dependencies of all jobs.
///
/// Each dependency has its own entry, so that the cost of a change of one job does not depend on
/// the number of other dependencies of its dependents.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// Dependents by antecedent.
    dependents: BTreeMap<JobId, Dependents>,
    /// Begin times: milliseconds since the epoch, job, description.
    begins: BTreeSet<(u64, JobId, String)>,
}

/// Reads a dependency of a jobspec.
fn parse(scheme: &str, value: &str) -> Result<Condition, RequestError> {
    let job = || {
        value
            .parse::<JobId>()
            .map_err(|error| invalid(scheme, value, &error.to_string()))
    };
    match scheme {
        "after" => job().map(Condition::After),
        "afterany" => job().map(Condition::AfterAny),
        "afterok" => job().map(Condition::AfterOk),
        "afternotok" => job().map(Condition::AfterNotOk),
        "begin-time" => {
            // A sign makes the time relative, which only the submitting client can resolve.
            let number = value
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite());
            let time = number.filter(|_| !value.starts_with(['+', '-']));
            time.map(Condition::Begin).ok_or_else(|| {
                let expected = "expected seconds since the epoch, without a sign";
                invalid(scheme, value, expected)
            })
        }
        _ => Err(RequestError::invalid(format!(
            "unknown dependency scheme `{scheme}`: expected after, afterany, afterok, afternotok \
             or begin-time"
        ))),
    }
}

fn invalid(scheme: &str, value: &str, text: &str) -> RequestError {
    RequestError::invalid(format!("dependency `{scheme}:{value}`: {text}"))
}

/// Checks that the dependencies of a submission can be satisfied: known schemes, visible jobs.
pub(crate) fn check(
    cx: &Context,
    dependencies: &[(String, String)],
    userid: u32,
) -> Result<(), RequestError> {
    for (scheme, value) in dependencies {
        let Some(id) = parse(scheme, value)?.antecedent() else {
            continue;
        };
        let Some(record) = cx.record(id) else {
            return Err(invalid(scheme, value, &cx.jobs.unknown(id).text));
        };
        authorize::check_dependency(&cx.settings, userid, &record, scheme, value)?;
    }
    Ok(())
}

impl Dependencies {
    /// Logs the dependencies of a job that has just entered DEPEND, and tests each.
    pub(crate) fn add(&mut self, cx: &mut Context, id: JobId) {
        let Some(spec) = cx.jobs.record(id).map(|record| Arc::clone(record.spec())) else {
            return;
        };
        for (scheme, value) in &spec.dependencies {
            let description = format!("{scheme}={value}");
            let record = cx.jobs.record(id);
            if record.is_some_and(|record| !record.dependencies().contains(&description)) {
                let description = description.into();
                let context = Dependency { description };
                cx.log(id, Event::with(cx.now, eventlog::DEPENDENCY_ADD, &context));
            }
        }
        self.resume(cx, id);
    }

    /// Waits for each unsatisfied dependency of a job, or checks it at once.
    pub(crate) fn resume(&mut self, cx: &mut Context, id: JobId) {
        let record = cx.jobs.record(id);
        let unsatisfied = record.map(|record| record.dependencies().clone());
        for description in unsatisfied.unwrap_or_default() {
            let Some(condition) = Condition::described(&description) else {
                continue;
            };
            if let Some(antecedent) = condition.antecedent() {
                let dependents = self.dependents.entry(antecedent).or_default();
                let dependent = (id, description.clone());
                dependents.of(condition).insert(dependent);
                self.check_condition(cx, id, &description, condition);
            } else if let Condition::Begin(time) = condition {
                self.begins.insert((milliseconds(time), id, description));
            }
        }
        self.advance(cx);
    }

    /// Tests the dependencies on a job that has entered RUN or INACTIVE.
    pub(crate) fn wake_dependents(&mut self, cx: &mut Context, id: JobId) {
        let Some(dependents) = self.dependents.get_mut(&id) else {
            return;
        };
        let mut due = std::mem::take(&mut dependents.run);
        let state = cx.jobs.record(id).map(Record::state);
        if state.is_none_or(|state| state == State::Inactive)
            && let Some(mut dependents) = self.dependents.remove(&id)
        {
            due.append(&mut dependents.end);
        }
        for (dependent, description) in due {
            if let Some(condition) = Condition::described(&description) {
                self.check_condition(cx, dependent, &description, condition);
            }
        }
    }

    /// Removes a dependency that is satisfied, and fails the job if it never can be.
    fn check_condition(
        &mut self,
        cx: &mut Context,
        id: JobId,
        description: &str,
        condition: Condition,
    ) {
        let state = cx.jobs.record(id).map(Record::state);
        let Some(other) = condition.antecedent() else {
            return;
        };
        if state != Some(State::Depend) {
            return;
        }
        let facts = cx.record(other).map(|antecedent| {
            let has_ended = antecedent.state() == State::Inactive;
            let is_ok = antecedent.result() == Some(JobResult::Completed);
            (antecedent.t_run() > 0.0, has_ended, is_ok)
        });
        let Some((has_run, has_ended, is_ok)) = facts else {
            let reason = cx.jobs.unknown(other).text;
            let note = format!("{description} cannot be met: {reason}");
            return cx.fail_job(id, "dependency", &note);
        };
        let is_satisfied = match condition {
            Condition::After(_) => has_run,
            Condition::AfterAny(_) => has_ended,
            Condition::AfterOk(_) => has_ended && is_ok,
            Condition::AfterNotOk(_) => has_ended && !is_ok,
            Condition::Begin(_) => false,
        };
        let failure = match condition {
            Condition::After(_) if has_ended && !has_run => "ended without having run",
            Condition::AfterOk(_) if has_ended && !is_ok => "did not end well",
            Condition::AfterNotOk(_) if has_ended && is_ok => "ended well",
            _ => "",
        };
        if is_satisfied {
            self.remove_entry(id, description, condition);
            remove(cx, id, description);
        } else if !failure.is_empty() {
            let note = format!("{description} cannot be met: {other} {failure}");
            cx.fail_job(id, "dependency", &note);
        }
    }

    /// Removes the dependencies on times that have been reached.
    pub(crate) fn advance(&mut self, cx: &mut Context) {
        let now = milliseconds(cx.now);
        while self.begins.first().is_some_and(|(time, ..)| *time <= now) {
            if let Some((_, id, description)) = self.begins.pop_first() {
                remove(cx, id, &description);
            }
        }
    }

    /// The earliest time that a job depends on, seconds since the epoch.
    pub(crate) fn deadline(&self) -> Option<f64> {
        self.begins.first().map(|(time, ..)| seconds(*time))
    }

    /// Forgets the dependencies of a job that has ended.
    pub(crate) fn forget(&mut self, job: &Record) {
        for description in job.dependencies() {
            if let Some(condition) = Condition::described(description) {
                self.remove_entry(job.id(), description, condition);
            }
        }
    }

    fn remove_entry(&mut self, id: JobId, description: &str, condition: Condition) {
        let description = description.to_owned();
        if let Condition::Begin(time) = condition {
            self.begins.remove(&(milliseconds(time), id, description));
        } else if let Some(antecedent) = condition.antecedent()
            && let Some(dependents) = self.dependents.get_mut(&antecedent)
        {
            dependents.of(condition).remove(&(id, description));
        }
    }
}

/// Logs that a dependency is satisfied.
fn remove(cx: &mut Context, id: JobId, description: &str) {
    let context = Dependency {
        description: description.into(),
    };
    cx.log(
        id,
        Event::with(cx.now, eventlog::DEPENDENCY_REMOVE, &context),
    );
    cx.revisit(id);
}
