//! Job dependencies (RFC 26): `after`, `afterany`, `afterok`, `afternotok`, `begin-time`.

use std::collections::{BTreeMap, BTreeSet};

use penstock_jobspec::fluid::Fluid;
use serde_json::json;

use crate::event::Event;
use crate::manager::{Manager, milliseconds};
use crate::rpc::{EINVAL, EPERM, Refusal};
use crate::state::{Outcome, State};

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

/// Who waits for what.
#[derive(Debug, Default)]
pub struct Dependencies {
    /// Jobs that wait for a job.
    dependents: BTreeMap<u64, BTreeSet<u64>>,
    /// Jobs that wait for a time, in milliseconds since the epoch.
    begins: BTreeSet<(u64, u64)>,
}

impl Dependencies {
    pub(crate) fn next_begin(&self) -> Option<f64> {
        #[allow(
            clippy::cast_precision_loss,
            reason = "milliseconds of any real date are exact in a float"
        )]
        self.begins.first().map(|(at, _)| *at as f64 / 1000.0)
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
        "begin-time" => match value.parse::<f64>() {
            Ok(time) if time.is_finite() && time >= 0.0 => Ok(Condition::Begin(time)),
            _ => Err(format!(
                "dependency `{scheme}:{value}`: expected seconds since the epoch"
            )),
        },
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
    ) -> Result<(), Refusal> {
        for (scheme, value) in wanted {
            let condition = parse(scheme, value).map_err(|text| Refusal::new(EINVAL, text))?;
            let Some(id) = antecedent(condition) else {
                continue;
            };
            let refuse = |errnum, text: &str| {
                let text = format!("dependency `{scheme}:{value}`: {text}");
                Err(Refusal::new(errnum, text))
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
        let Some(wanted) = self.jobs.get(&id).map(|job| job.spec.clone()) else {
            return;
        };
        for (scheme, value) in &wanted.dependencies {
            let description = format!("{scheme}={value}");
            let context = json!({ "description": description });
            self.post(id, &Event::with(now, "dependency-add", context));
        }
        for (scheme, value) in &wanted.dependencies {
            self.watch_dependency(id, &format!("{scheme}={value}"), now);
        }
    }

    /// Waits for one dependency, or settles it at once.
    pub(crate) fn watch_dependency(&mut self, id: u64, description: &str, now: f64) {
        let Some(condition) = condition_of(description) else {
            return;
        };
        match condition {
            Condition::Begin(time) => {
                self.dependencies.begins.insert((milliseconds(time), id));
                self.begin_due(now);
            }
            condition => {
                if let Some(other) = antecedent(condition) {
                    let dependents = &mut self.dependencies.dependents;
                    dependents.entry(other).or_default().insert(id);
                    self.settle_dependency(id, description, condition, now);
                }
            }
        }
    }

    /// A job has entered RUN or INACTIVE: looks at those who wait for that.
    pub(crate) fn wake_dependents(&mut self, id: u64, now: f64) {
        let Some(waiting) = self.dependencies.dependents.get(&id).cloned() else {
            return;
        };
        for dependent in waiting {
            let Some(job) = self.jobs.get(&dependent) else {
                continue;
            };
            for description in job.waits_for.clone() {
                if let Some(condition) = condition_of(&description)
                    && antecedent(condition) == Some(id)
                {
                    self.settle_dependency(dependent, &description, condition, now);
                }
            }
        }
        if self
            .jobs
            .get(&id)
            .is_none_or(|job| job.state == State::Inactive)
        {
            self.dependencies.dependents.remove(&id);
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
        let (state, outcome) = (antecedent.state, antecedent.outcome());
        let ran = antecedent.t_run > 0.0;
        let over = state == State::Inactive;
        let well = outcome == Some(Outcome::Completed);
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
        while let Some((at, id)) = self.dependencies.begins.first().copied() {
            if at > due {
                return;
            }
            self.dependencies.begins.pop_first();
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            for description in job.waits_for.clone() {
                if let Some(Condition::Begin(time)) = condition_of(&description)
                    && milliseconds(time) <= due
                {
                    self.remove_dependency(id, &description, now);
                }
            }
        }
    }

    /// The job waits for nothing any more: it is over.
    pub(crate) fn forget_dependencies(&mut self, id: u64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        for description in &job.waits_for {
            match condition_of(description) {
                Some(Condition::Begin(time)) => {
                    self.dependencies.begins.remove(&(milliseconds(time), id));
                }
                Some(condition) => {
                    if let Some(other) = antecedent(condition)
                        && let Some(waiting) = self.dependencies.dependents.get_mut(&other)
                    {
                        waiting.remove(&id);
                    }
                }
                None => {}
            }
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
