//! What a restart finds in the store: every job is rebuilt from its events, and the active ones go on.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_jobspec::Jobspec;
use penstock_jobspec::fluid::Fluid;
use penstock_rset::ResourceSet;
use penstock_store::JobRecord;

use crate::elastic::Elastic;
use crate::event::Event;
use crate::job::{Alloc, Answered, Exec, Job, Spec};
use crate::manager::Manager;
use crate::policy;
use crate::state::State;

impl Manager {
    /// Rebuilds every job from its eventlog, then lets the active ones move on. What cannot be
    /// read costs its own job: that is told in the log, and the others go on.
    pub(crate) fn replay(&mut self, now: f64) -> Result<(), String> {
        let records = self.store.jobs().map_err(|error| error.to_string())?;
        let mut specs: BTreeMap<i64, Arc<Spec>> = BTreeMap::new();
        let mut active = Vec::new();
        for record in records {
            let name = Fluid(record.id);
            self.ids.observe(record.id);
            let r = record.r.as_deref().map(ResourceSet::from_json).transpose();
            let r = r.unwrap_or_else(|error| {
                self.note(format!(
                    "store: the resources of job {name} are lost: {error}"
                ));
                None
            });
            let spec = match specs.get(&record.spec) {
                Some(spec) => Ok(Arc::clone(spec)),
                None => self.stored_spec(record.spec)?,
            };
            let job = spec.and_then(|spec| {
                specs.insert(record.spec, Arc::clone(&spec));
                rebuild(&record, spec, r, &mut self.elastic)
            });
            let job = match job {
                Ok(job) => job,
                Err(error) => {
                    self.note(format!("store: job {name} is left out: {error}"));
                    continue;
                }
            };
            if job.state != State::Inactive {
                active.push(record.id);
            }
            self.admit(job);
        }
        for id in active {
            self.resume(id, now);
        }
        self.settle(now);
        Ok(())
    }

    /// A jobspec from the store; the outer error is the store's own.
    fn stored_spec(&self, key: i64) -> Result<Result<Arc<Spec>, String>, String> {
        let text = self.store.jobspec(key).map_err(|error| error.to_string())?;
        Ok(text.ok_or("it has no jobspec".to_owned()).and_then(|text| {
            let jobspec = Jobspec::from_json(&text).map_err(|error| error.to_string())?;
            let redacted = policy::redact(&text, &self.settings, jobspec.queue());
            let redacted = redacted.map_err(|error| error.to_string())?;
            Ok(Arc::new(Spec::new(key, &jobspec, redacted)))
        }))
    }

    /// Sets a job that was active before the restart on its way again.
    fn resume(&mut self, id: u64, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.alloc == Alloc::Idle {
            // An R that was committed for a request which the restart cut off.
            job.r = None;
        } else if job.alloc == Alloc::Allocated && job.exec == Exec::Idle {
            if job.started {
                job.exec = Exec::Waiting;
                self.executor.waiting.insert(id);
            } else if job.requested().is_some() && job.state != State::Run {
                job.exec = Exec::Released;
            } else if job.state != State::Run {
                job.exec = Exec::Released;
                // Nothing in the log tells whether it was asked to start.
                job.answered = Answered::Nothing;
            }
            // One that has not started yet goes on where it was: at its prolog, or its start.
        }
        let claimed = match (&job.r, job.alloc) {
            (Some(r), Alloc::Allocated) => self.claims.restore(id, r, &job.freed),
            _ => Ok(()),
        };
        let lost = job.alloc == Alloc::Allocated && job.r.is_none();
        if lost {
            job.exec = Exec::Released;
            self.executor.waiting.remove(&id);
        }
        if let Err(error) = claimed {
            self.note(format!("store: {error}"));
        }
        self.watch_dependencies(id, now);
        self.resume_requests(id, now);
        self.post(id, &Event::new(now, "flux-restart"));
        if lost {
            self.fail_job(
                id,
                now,
                "alloc",
                "its resources cannot be read from the store",
            );
        }
        self.revisit(id);
    }
}

/// A job as its eventlog tells it.
fn rebuild(
    record: &JobRecord,
    spec: Arc<Spec>,
    r: Option<ResourceSet>,
    elastic: &mut Elastic,
) -> Result<Job, String> {
    let mut job = Job::new(record.id, record.userid, spec);
    job.r = r.map(Arc::new);
    for line in record.eventlog.lines() {
        let event = Event::parse(line).map_err(|error| format!("event `{line}`: {error}"))?;
        elastic.apply(record.id, &event);
        job.apply(&event);
    }
    if job.state >= State::Cleanup {
        elastic.over(record.id);
    }
    Ok(job)
}
