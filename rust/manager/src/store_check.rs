//! The check of the jobs and the values in a store, without a manager of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_store::{
    BadRow, EndedClass, EndedJob, Error, JobRecord, JobUsage, PendingFacts, REPLACED_META, Store,
};

use crate::context::{EPOCH, ended_facts};
use crate::exec::JOURNAL;
use crate::meta::MetaReader;
use crate::purge::MAX_PURGED;
use crate::queues::QUEUES;
use crate::record::Record;
use crate::spec::Spec;

/// The number of rows of ended jobs read at a time.
const ENDED_ROWS_PER_READ: u32 = 16;

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
    /// The job is listed, and its usage is counted, by facts that differ from its events.
    WrongFacts,
}

/// Finds the jobs that cannot be restored as they were.
///
/// # Errors
///
/// The store cannot be read.
pub fn check_jobs(store: &Store) -> Result<Vec<JobProblem>, Error> {
    let mut specs: BTreeMap<i64, Result<Arc<Spec>, String>> = BTreeMap::new();
    let mut problems = Vec::new();
    let ended = read_ended(store)?;
    store.visit_jobs(|jobs| {
        for job in jobs.records {
            let facts = store.pending_facts(job.id)?;
            let spec = match specs.get(&job.row.spec) {
                Some(spec) => spec,
                None => specs
                    .entry(job.row.spec)
                    .or_insert(read_spec(store, job.row.spec)?),
            };
            check_job(&job, spec, ended.get(&job.id), &mut problems);
            if let (Ok(spec), Some(facts)) = (spec, facts) {
                check_facts(&job, spec, &facts, &mut problems);
            }
        }
        Ok(())
    })?;
    Ok(problems)
}

/// Finds what is wrong with a job. `known` are its facts in `ended_jobs`.
fn check_job(
    job: &JobRecord,
    spec: &Result<Arc<Spec>, String>,
    known: Option<&(EndedClass, EndedJob, JobUsage)>,
    problems: &mut Vec<JobProblem>,
) {
    let id = job.id;
    let replayed = spec.clone().and_then(|spec| replay(job, spec));
    let has_wrong_facts =
        |record: &Record| known.is_some_and(|known| ended_facts(record).as_ref() != Some(known));
    if let Ok(record) = &replayed
        && has_wrong_facts(record)
    {
        let effect = ProblemEffect::WrongFacts;
        let reason = "its facts in `ended_jobs` differ from its events".to_owned();
        problems.push(JobProblem { id, reason, effect });
    }
    if let Err(reason) = replayed {
        let effect = ProblemEffect::LeftOut;
        problems.push(JobProblem { id, reason, effect });
    } else if let Some(Err(error)) = job.row.r.as_deref().map(ResourceSet::from_json) {
        let effect = ProblemEffect::WithoutResources;
        let reason = format!("its resources are lost: {error}");
        problems.push(JobProblem { id, reason, effect });
    }
}

/// Checks that the stored facts of a job are what its first events give.
fn check_facts(
    job: &JobRecord,
    spec: &Arc<Spec>,
    facts: &PendingFacts,
    problems: &mut Vec<JobProblem>,
) {
    let (id, userid) = (job.id, job.row.userid);
    let known = Record::from_facts(id, userid, Arc::clone(spec), facts.events, &facts.text);
    let eventlog = job.eventlog();
    let first = eventlog.split_inclusive('\n').take(facts.events as usize);
    let first: String = first.collect();
    let replayed = Record::replay(id, userid, Arc::clone(spec), None, &first, |_| {});
    if known.ok() != replayed.ok() {
        let effect = ProblemEffect::WrongFacts;
        let reason = "its facts in `pending_facts` differ from its events".to_owned();
        problems.push(JobProblem { id, reason, effect });
    }
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

/// The facts of ended jobs by which a start restores them.
fn read_ended(store: &Store) -> Result<HashMap<JobId, (EndedClass, EndedJob, JobUsage)>, Error> {
    let mut ended = HashMap::new();
    let mut rows = store.ended_rows(i64::MIN, ENDED_ROWS_PER_READ)?;
    while let Some(last) = rows.last().map(|row| row.seq) {
        for row in rows {
            let facts = |(job, usage)| (row.class.clone(), job, usage);
            ended.extend(row.jobs.into_iter().map(|found| (found.0.id, facts(found))));
        }
        rows = store.ended_rows(last, ENDED_ROWS_PER_READ)?;
    }
    Ok(ended)
}

fn replay(job: &JobRecord, spec: Arc<Spec>) -> Result<Record, String> {
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
    .map_err(|error| error.to_string())
    .and_then(|record| match find_wrong_submission(job, &record) {
        Some(fault) => Err(fault),
        None => Ok(record),
    })
}

/// Describes the time of submission in a job's row if it is not that of its events.
pub(crate) fn find_wrong_submission(job: &JobRecord, record: &Record) -> Option<String> {
    let (row, event) = (job.row.t_submit, record.t_submit());
    (row.to_bits() != event.to_bits())
        .then(|| format!("its row has the time of submission {row}, its events have {event}"))
}

/// Finds the values of the instance that a start leaves out.
///
/// # Errors
///
/// The store cannot be read.
pub fn check_meta(store: &Store) -> Result<Vec<BadRow>, Error> {
    let mut reader = MetaReader::new(store);
    reader.read(&EPOCH)?;
    reader.read(&QUEUES)?;
    reader.read(&MAX_PURGED)?;
    reader.read(&JOURNAL)?;
    let mut bad = reader.bad;
    let known = [
        EPOCH.name,
        QUEUES.name,
        MAX_PURGED.name,
        JOURNAL.name,
        REPLACED_META,
    ];
    let keys = store.meta_keys()?;
    let unknown = keys.iter().filter(|key| !known.contains(&key.as_str()));
    bad.extend(unknown.map(|key| BadRow::of_meta(key, "unknown key")));
    Ok(bad)
}
