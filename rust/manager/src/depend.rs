//! `Dependencies`: job dependencies (RFC 26) of the schemes `after`, `afterany`, `afterok`,
//! `afternotok` and `begin-time`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
#[derive(Debug)]
pub(crate) struct Dependencies {
    /// Dependents by antecedent.
    dependents: BTreeMap<JobId, Dependents>,
    /// Begin times: milliseconds since the epoch, job, description.
    begins: BTreeSet<(u64, JobId, String)>,
    /// The dependents of jobs that have entered RUN or INACTIVE, which are still to be checked.
    woken: VecDeque<Woken>,
    /// Maximum number of jobs checked in one slice.
    per_slice: usize,
}

impl Default for Dependencies {
    fn default() -> Self {
        Self {
            dependents: BTreeMap::new(),
            begins: BTreeSet::new(),
            woken: VecDeque::new(),
            per_slice: JOBS_PER_SLICE,
        }
    }
}

/// Maximum number of jobs checked in one slice: each may lose its last dependency, and be queued.
const JOBS_PER_SLICE: usize = 200;

/// The facts of a job that others depend on.
#[derive(Clone, Copy, Debug)]
struct Antecedent {
    has_run: bool,
    has_ended: bool,
    is_ok: bool,
}

impl Antecedent {
    fn of(record: &Record) -> Self {
        Self {
            has_run: record.t_run() > 0.0,
            has_ended: record.state() == State::Inactive,
            is_ok: record.result() == Some(JobResult::Completed),
        }
    }
}

/// Dependents of a job with these facts.
#[derive(Debug)]
struct Woken {
    /// As they were when the dependents were woken: the job may be purged before all are checked.
    antecedent: Option<Antecedent>,
    dependents: BTreeSet<Dependent>,
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
                let antecedent = cx.record(antecedent).map(|record| Antecedent::of(&record));
                self.check_condition(cx, id, &description, antecedent);
            } else if let Condition::Begin(time) = condition {
                if milliseconds(time) <= milliseconds(cx.now) {
                    remove(cx, id, &description);
                } else {
                    self.begins.insert((milliseconds(time), id, description));
                }
            }
        }
    }

    /// Tests the dependencies on a job that has entered RUN or INACTIVE, those of many jobs in slices.
    pub(crate) fn wake_dependents(&mut self, cx: &mut Context, id: JobId) {
        let Some(dependents) = self.dependents.get_mut(&id) else {
            return;
        };
        let mut due = vec![std::mem::take(&mut dependents.run)];
        let antecedent = cx.jobs.record(id).map(Antecedent::of);
        if antecedent.is_none_or(|antecedent| antecedent.has_ended)
            && let Some(dependents) = self.dependents.remove(&id)
        {
            due.push(dependents.end);
        }
        due.retain(|dependents| !dependents.is_empty());
        self.woken.extend(due.into_iter().map(|dependents| Woken {
            antecedent,
            dependents,
        }));
        self.check_woken(cx);
    }

    /// Sets the number of jobs checked in one slice.
    pub(crate) fn set_slice(&mut self, jobs: usize) {
        self.per_slice = jobs;
    }

    /// Whether dependents are left for the next [`advance`](Self::advance).
    pub(crate) fn is_open(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Checks the next dependents of jobs that have entered RUN or INACTIVE.
    fn check_woken(&mut self, cx: &mut Context) {
        for _ in 0..self.per_slice {
            let Some(woken) = self.woken.front_mut() else {
                return;
            };
            let antecedent = woken.antecedent;
            let next = woken.dependents.pop_first();
            if woken.dependents.is_empty() {
                self.woken.pop_front();
            }
            if let Some((dependent, description)) = next {
                self.check_condition(cx, dependent, &description, antecedent);
            }
        }
    }

    /// Removes a dependency that is satisfied, and fails the job if it never can be.
    fn check_condition(
        &mut self,
        cx: &mut Context,
        id: JobId,
        description: &str,
        antecedent: Option<Antecedent>,
    ) {
        let state = cx.jobs.record(id).map(Record::state);
        let condition = Condition::described(description);
        let Some((condition, other)) =
            condition.and_then(|condition| Some((condition, condition.antecedent()?)))
        else {
            return;
        };
        if state != Some(State::Depend) {
            return;
        }
        let Some(Antecedent {
            has_run,
            has_ended,
            is_ok,
        }) = antecedent
        else {
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

    /// Checks the next dependents that are due, and removes the next dependencies on times that have been reached.
    pub(crate) fn advance(&mut self, cx: &mut Context) {
        self.check_woken(cx);
        let now = milliseconds(cx.now);
        for _ in 0..self.per_slice {
            if self.begins.first().is_none_or(|(time, ..)| *time > now) {
                return;
            }
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
