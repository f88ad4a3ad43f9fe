//! The check of the jobs in a store, without a manager of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_store::{Error, JobRecord, Store};

use crate::record::Record;
use crate::spec::Spec;

/// A job that cannot be restored as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProblem {
    /// The job.
    pub id: JobId,
    /// Why it cannot be restored.
    pub reason: String,
    /// The effect at a start of the instance.
    pub effect: ProblemEffect,
}

/// The effect on a job that cannot be restored as it was, at a start of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemEffect {
    /// The job is left out.
    LeftOut,
    /// The job fails if it has resources.
    WithoutResources,
}

/// Finds the jobs that cannot be restored as they were.
///
/// # Errors
///
/// The store cannot be read.
pub fn check_jobs(store: &Store) -> Result<Vec<JobProblem>, Error> {
    let mut specs: BTreeMap<i64, Result<Arc<Spec>, String>> = BTreeMap::new();
    let mut problems = Vec::new();
    for job in store.jobs()?.records {
        let spec = match specs.get(&job.row.spec) {
            Some(spec) => spec,
            None => specs
                .entry(job.row.spec)
                .or_insert(read_spec(store, job.row.spec)?),
        };
        let id = job.id;
        let replayed = spec.clone().and_then(|spec| replay(&job, spec));
        if let Err(reason) = replayed {
            let effect = ProblemEffect::LeftOut;
            problems.push(JobProblem { id, reason, effect });
        } else if let Some(Err(error)) = job.row.r.as_deref().map(ResourceSet::from_json) {
            let effect = ProblemEffect::WithoutResources;
            let reason = format!("its resources are lost: {error}");
            problems.push(JobProblem { id, reason, effect });
        }
    }
    Ok(problems)
}

/// The jobspec of a key; the inner error is the reason why it cannot be read.
fn read_spec(store: &Store, key: i64) -> Result<Result<Arc<Spec>, String>, Error> {
    let text = match store.jobspec(key) {
        Err(error) if error.is_damaged() => return Ok(Err(error.to_string())),
        read => read?,
    };
    let text = text.ok_or_else(|| "it has no jobspec".to_owned());
    Ok(text.and_then(|text| {
        let jobspec = Jobspec::from_json(&text).map_err(|error| error.to_string())?;
        Ok(Arc::new(Spec::new(key, &jobspec)))
    }))
}

fn replay(job: &JobRecord, spec: Arc<Spec>) -> Result<(), String> {
    let r = job.row.r.as_deref().map(ResourceSet::from_json).transpose();
    let r = r.ok().flatten().map(Arc::new);
    Record::replay(
        job.id,
        job.row.userid,
        spec,
        r.as_ref(),
        &job.eventlog(),
        |_| {},
    )
    .map(drop)
    .map_err(|error| error.to_string())
}
