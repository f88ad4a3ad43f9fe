//! `Dependencies`: job dependencies (RFC 26) of the schemes `after`, `afterany`, `afterok`,
//! `afternotok` and `begin-time`.
//!
//! A trigger that fires is only noted: its dependents are released in slices, those of the users in turn, and the
//! dependents of one trigger by priority. A job is not purged while it has dependents: see [`Dependents`](crate::purge::Dependents).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use penstock_flux::RequestError;
use penstock_flux::eventlog::{self, Dependency};
use penstock_jobspec::job_id::JobId;

use crate::authorize;
use crate::context::{Context, milliseconds, seconds};
use crate::event::Event;
use crate::record::Record;
use crate::spec::Spec;
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

    /// The trigger for a job of this user.
    fn trigger(self, userid: u32) -> Trigger {
        match self {
            Self::After(id) => Trigger::Run(id),
            Self::AfterAny(id) | Self::AfterOk(id) | Self::AfterNotOk(id) => Trigger::End(id),
            Self::Begin(time) => Trigger::Time(milliseconds(time), userid),
        }
    }

    /// Why the condition is not met after its trigger has fired; `None` if it is.
    fn failure(self, antecedent: &Record) -> Option<&'static str> {
        let is_ok = antecedent.result() == Some(JobResult::Completed);
        match self {
            Self::After(_) if !has_run(antecedent) => Some("ended without having run"),
            Self::AfterOk(_) if !is_ok => Some("did not end well"),
            Self::AfterNotOk(_) if is_ok => Some("ended well"),
            _ => None,
        }
    }

    /// Reads the description in a `dependency-add` event.
    fn described(description: &str) -> Option<Self> {
        let (scheme, value) = description.split_once('=')?;
        parse(scheme, value).ok()
    }
}

fn has_run(job: &Record) -> bool {
    job.t_run() > 0.0
}

/// A change that decides dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trigger {
    /// A time is reached, in milliseconds since the epoch; of the jobs of a user.
    Time(u64, u32),
    /// A job enters RUN, or ends before.
    Run(JobId),
    /// A job ends.
    End(JobId),
}

impl Trigger {
    fn has_fired(self, cx: &Context) -> bool {
        // Active jobs are in memory.
        let is = |id, is: fn(&Record) -> bool| {
            let job = cx.jobs.record(id);
            job.is_none_or(|job| job.state() == State::Inactive || is(job))
        };
        match self {
            Self::Time(time, _) => time <= milliseconds(cx.now),
            Self::Run(id) => is(id, has_run),
            Self::End(id) => is(id, |_| false),
        }
    }
}

/// The jobs on which a submission's jobs of one jobspec depend.
pub(crate) fn antecedents(spec: &Spec) -> impl Iterator<Item = JobId> {
    let dependencies = spec.dependencies.iter();
    dependencies.filter_map(|(scheme, value)| parse(scheme, value).ok()?.antecedent())
}

/// A dependency in the order of release: the job's priority, the job, the description.
type Dependent = (Reverse<u32>, JobId, String);

/// The unsatisfied dependencies of all jobs.
///
/// Each dependency has its own entry, so that the cost of a change of one job does not depend on
/// the number of other dependencies of its dependents.
#[derive(Debug)]
pub(crate) struct Dependencies {
    /// Dependents by trigger. No set is empty.
    dependents: BTreeMap<Trigger, BTreeSet<Dependent>>,
    /// The triggers that are times and have not fired.
    begins: BTreeSet<Trigger>,
    /// The triggers that have fired, by user. No set is empty.
    fired: BTreeMap<u32, BTreeSet<Trigger>>,
    /// The user who had the last turn.
    last_user: u32,
    /// Maximum number of dependencies tested in one slice.
    per_slice: usize,
}

impl Default for Dependencies {
    fn default() -> Self {
        Self {
            dependents: BTreeMap::new(),
            begins: BTreeSet::new(),
            fired: BTreeMap::new(),
            last_user: 0,
            per_slice: DEPENDENCIES_PER_SLICE,
        }
    }
}

/// Maximum number of dependencies tested in one slice: each may be the last one of a job, which is queued then.
const DEPENDENCIES_PER_SLICE: usize = 200;

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

    /// Enters the unsatisfied dependencies of a job.
    pub(crate) fn resume(&mut self, cx: &Context, id: JobId) {
        let Some(job) = cx.jobs.record(id) else {
            return;
        };
        for (trigger, dependent) in dependencies(job, job.due_priority()) {
            self.dependents
                .entry(trigger)
                .or_default()
                .insert(dependent);
            if trigger.has_fired(cx) {
                self.fire(job.userid(), trigger);
            } else if matches!(trigger, Trigger::Time(..)) {
                self.begins.insert(trigger);
            }
        }
    }

    /// Notes that a job has entered RUN or INACTIVE, if others depend on that.
    pub(crate) fn wake_dependents(&mut self, cx: &Context, id: JobId) {
        for trigger in [Trigger::Run(id), Trigger::End(id)] {
            if self.dependents.contains_key(&trigger)
                && trigger.has_fired(cx)
                && let Some(job) = cx.jobs.record(id)
            {
                self.fire(job.userid(), trigger);
            }
        }
    }

    /// Whether jobs depend on a job; they are still to be released if it has ended.
    pub(crate) fn has_dependents(&self, id: JobId) -> bool {
        let mut triggers = [Trigger::Run(id), Trigger::End(id)].into_iter();
        triggers.any(|trigger| self.dependents.contains_key(&trigger))
    }

    /// Enters a trigger for the turns of a user.
    fn fire(&mut self, userid: u32, trigger: Trigger) {
        self.fired.entry(userid).or_default().insert(trigger);
    }

    /// Sets the number of dependencies tested in one slice.
    pub(crate) fn set_slice(&mut self, dependencies: usize) {
        self.per_slice = dependencies;
    }

    /// Maximum number of dependencies tested in one slice.
    pub(crate) fn slice(&self) -> usize {
        self.per_slice
    }

    /// The users whose dependencies are to be tested.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> {
        self.fired.keys().copied()
    }

    /// Whether [`advance`](Self::advance) has something to do.
    pub(crate) fn is_open(&self) -> bool {
        !self.fired.is_empty()
    }

    /// Tests the next dependencies whose triggers have fired, at most this many. Returns their number; 0 if none is left.
    pub(crate) fn advance(&mut self, cx: &mut Context, max: usize) -> usize {
        for _ in 0..max {
            let first = self.begins.first().copied();
            let Some(trigger @ Trigger::Time(_, userid)) = first.filter(|time| time.has_fired(cx))
            else {
                break;
            };
            self.begins.remove(&trigger);
            self.fire(userid, trigger);
        }
        (0..max).take_while(|_| self.take_turn(cx)).count()
    }

    /// Tests the next dependency of the user whose turn it is. Returns whether there is such a user.
    fn take_turn(&mut self, cx: &mut Context) -> bool {
        let later = (Bound::Excluded(self.last_user), Bound::Unbounded);
        let next = self.fired.range(later).next();
        let Some((userid, triggers)) = next.or_else(|| self.fired.first_key_value()) else {
            return false;
        };
        self.last_user = *userid;
        let Some(trigger) = triggers.first().copied() else {
            return false;
        };
        let dependents = self.dependents.get_mut(&trigger);
        let next = dependents.and_then(BTreeSet::pop_first);
        if self.drop_empty(trigger)
            && let Some(triggers) = self.fired.get_mut(&self.last_user)
        {
            triggers.remove(&trigger);
            if triggers.is_empty() {
                self.fired.remove(&self.last_user);
            }
        }
        if let Some((_, id, description)) = next {
            test(cx, id, &description);
        }
        true
    }

    /// The earliest time that a job depends on, seconds since the epoch.
    pub(crate) fn deadline(&self) -> Option<f64> {
        match self.begins.first() {
            Some(Trigger::Time(time, _)) => Some(seconds(*time)),
            _ => None,
        }
    }

    /// Forgets the dependencies of a job that has ended.
    pub(crate) fn forget(&mut self, job: &Record) {
        for (trigger, dependent) in dependencies(job, job.due_priority()) {
            if let Some(dependents) = self.dependents.get_mut(&trigger) {
                dependents.remove(&dependent);
                self.drop_empty(trigger);
            }
        }
    }

    /// Moves a job to its place by another priority.
    pub(crate) fn reprioritize(&mut self, cx: &Context, id: JobId, old: u32, new: u32) {
        let Some(job) = cx.jobs.record(id) else {
            return;
        };
        for (trigger, dependent) in dependencies(job, old) {
            if let Some(dependents) = self.dependents.get_mut(&trigger)
                && dependents.remove(&dependent)
            {
                dependents.insert((Reverse(new), dependent.1, dependent.2));
            }
        }
    }

    /// Removes a trigger without dependents. Returns whether it has none.
    fn drop_empty(&mut self, trigger: Trigger) -> bool {
        let dependents = self.dependents.get(&trigger);
        let is_empty = dependents.is_none_or(BTreeSet::is_empty);
        if is_empty {
            self.dependents.remove(&trigger);
            self.begins.remove(&trigger);
        }
        is_empty
    }
}

/// The unsatisfied dependencies of a job with this priority, by trigger.
fn dependencies(job: &Record, priority: u32) -> impl Iterator<Item = (Trigger, Dependent)> {
    job.dependencies().iter().filter_map(move |description| {
        let trigger = Condition::described(description)?.trigger(job.userid());
        let dependent = (Reverse(priority), job.id(), description.clone());
        Some((trigger, dependent))
    })
}

/// Removes a dependency whose trigger has fired, or fails the job because the condition is not met.
fn test(cx: &mut Context, id: JobId, description: &str) {
    let state = cx.jobs.record(id).map(Record::state);
    let Some(condition) = Condition::described(description) else {
        return;
    };
    // It may have been cancelled in this call.
    if state != Some(State::Depend) {
        return;
    }
    let failure = condition.antecedent().and_then(|antecedent| {
        cx.load(antecedent);
        match cx.jobs.record(antecedent) {
            Some(job) => Some(format!("{antecedent} {}", condition.failure(job)?)),
            None => Some(cx.jobs.unknown(antecedent).text),
        }
    });
    match failure {
        None => remove(cx, id, description),
        Some(reason) => {
            let note = format!("{description} cannot be met: {reason}");
            cx.fail_job(id, "dependency", &note);
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

#[cfg(test)]
mod tests {
    use penstock_flux::eventlog::{self, Dependency};
    use penstock_jobspec::job_id::JobId;

    use super::Dependencies;
    use crate::context::Context;
    use crate::event::Event;
    use crate::fixture::{add_pending_job, context};
    use crate::settings::Settings;

    fn depend(cx: &mut Context, id: JobId, description: String) {
        let context = Dependency {
            description: description.into(),
        };
        let event = Event::with(cx.now, eventlog::DEPENDENCY_ADD, &context);
        cx.log(id, event);
    }

    #[test]
    fn no_entry_outlives_a_release_or_the_end_of_a_job() {
        let mut cx = context(Settings::default());
        let (active, id) = (add_pending_job(&mut cx), add_pending_job(&mut cx));
        let mut dependencies = Dependencies::default();
        // Both are past: one is unknown, the other is reached.
        for description in ["afterany=99", "after=99", "begin-time=1"] {
            depend(&mut cx, id, description.to_owned());
        }
        dependencies.resume(&cx, id);
        assert_eq!(dependencies.advance(&mut cx, 10), 3);
        assert!(dependencies.dependents.is_empty() && dependencies.fired.is_empty());
        // These are not.
        let id = add_pending_job(&mut cx);
        for scheme in ["afterok", "after"] {
            depend(&mut cx, id, format!("{scheme}={}", active.get()));
        }
        depend(&mut cx, id, "begin-time=5000".to_owned());
        dependencies.resume(&cx, id);
        assert!(dependencies.has_dependents(active) && dependencies.deadline() == Some(5000.0));
        assert_eq!(dependencies.advance(&mut cx, 10), 0);
        dependencies.forget(cx.jobs.record(id).unwrap());
        assert!(dependencies.dependents.is_empty() && dependencies.begins.is_empty());
    }
}
