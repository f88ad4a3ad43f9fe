//! The facts of ended jobs that a start and sums of usage need, so that these do not read their eventlogs.
//!
//! A row has many jobs with the same queue and result. It stays until the last job with an id in its range is removed: jobs in
//! it that are no longer stored are ignored.

use std::sync::Arc;

use penstock_jobspec::job_id::JobId;
use rusqlite::Connection;

/// Adds a row.
pub(crate) const INSERT: &str =
    "INSERT INTO ended_jobs(first, last, queue, result, jobs) VALUES (?, ?, ?, ?, ?)";

/// The next rows after one.
const SELECT_ROWS: &str =
    "SELECT seq, queue, result, jobs FROM ended_jobs WHERE seq > ? ORDER BY seq LIMIT ?";

/// The last of some rows after one; none if there are fewer.
pub(crate) const SELECT_LAST_OF: &str =
    "SELECT seq FROM ended_jobs WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?";

/// Removes the rows after the first one, up to the second one, of which no job is stored.
pub(crate) const DELETE_UNUSED: &str = "DELETE FROM ended_jobs \
     WHERE seq > ? AND seq <= ? AND NOT EXISTS (SELECT 1 FROM jobs WHERE id BETWEEN first AND last)";

/// Removes the rows with an id in their range.
pub(crate) const DELETE_ROWS_OF: &str = "DELETE FROM ended_jobs WHERE ? BETWEEN first AND last";

/// The size of a job in a row, in bytes.
pub(crate) const JOB_BYTES: usize = 64;

/// An ended job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedJob {
    /// The job.
    pub id: JobId,
    /// Key of its jobspec.
    pub spec: i64,
    /// When it ended, in seconds since the epoch.
    pub end: f64,
    /// Its user.
    pub userid: u32,
    /// The hash of its name, as the caller computes it.
    pub name_hash: u64,
    /// When it was submitted, in seconds since the epoch.
    pub t_submit: f64,
}

/// The begin and the size of an ended job's allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobUsage {
    /// When it got its resources, in seconds since the epoch; 0 if it had none.
    pub begin: f64,
    /// The number of its nodes.
    pub nodes: u32,
    /// The number of its cores.
    pub cores: u32,
    /// The number of its gpus.
    pub gpus: u32,
}

/// A row of ended jobs, with what they have used.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRow {
    /// Its number.
    pub seq: i64,
    /// The class of its jobs.
    pub class: EndedClass,
    /// The jobs.
    pub jobs: Vec<(EndedJob, JobUsage)>,
}

impl EndedRow {
    /// Reads the next rows after one. Invalid ones have no jobs.
    pub(crate) fn read(
        connection: &Connection,
        after: i64,
        max: u32,
    ) -> rusqlite::Result<Vec<Self>> {
        let mut statement = connection.prepare_cached(SELECT_ROWS)?;
        let rows = statement.query_map((after, max), |row| {
            let class = row.get(1).and_then(|queue: Option<String>| {
                let queue = queue.map(Arc::from);
                let result = row.get(2)?;
                Ok(EndedClass { queue, result })
            });
            let jobs = row.get::<_, Vec<u8>>(3).unwrap_or_default();
            let is_valid = class.is_ok();
            let jobs = jobs.chunks_exact(JOB_BYTES).filter(|_| is_valid);
            Ok(Self {
                seq: row.get(0)?,
                class: class.unwrap_or_default(),
                jobs: jobs.filter_map(decode).collect(),
            })
        })?;
        rows.collect()
    }
}

/// The queue and the result of ended jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedClass {
    /// The queue.
    pub queue: Option<Arc<str>>,
    /// The result, as the caller numbers them.
    pub result: u8,
}

/// Ended jobs with their classes, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndedJobs {
    classes: Vec<EndedClass>,
    /// Each with the index of its class.
    jobs: Vec<(EndedJob, usize)>,
}

impl EndedJobs {
    /// A job, if it is one of them.
    pub(crate) fn find(&self, id: JobId) -> Option<(EndedJob, EndedClass)> {
        let index = self
            .jobs
            .binary_search_by_key(&id, |(job, _)| job.id)
            .ok()?;
        let (job, class) = self.jobs.get(index)?;
        Some((*job, self.classes.get(*class)?.clone()))
    }

    /// Reads all rows. Invalid ones are left out: their jobs are read from their eventlogs.
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut ended = Self::default();
        // There may be millions: without copies of a vector that grows.
        let bytes = "SELECT ifnull(sum(length(jobs)), 0) FROM ended_jobs";
        let bytes: i64 = connection.query_row(bytes, [], |row| row.get(0))?;
        let jobs = usize::try_from(bytes).unwrap_or_default() / JOB_BYTES;
        ended.jobs.reserve_exact(jobs);
        let mut statement = connection.prepare("SELECT queue, result, jobs FROM ended_jobs")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (Ok(queue), Ok(result), Ok(jobs)) = (
                row.get::<_, Option<String>>(0),
                row.get(1),
                row.get::<_, Vec<u8>>(2),
            ) else {
                continue;
            };
            let queue = queue.map(Arc::from);
            let class = EndedClass { queue, result };
            let known = ended.classes.iter().position(|known| *known == class);
            let index = known.unwrap_or(ended.classes.len());
            if known.is_none() {
                ended.classes.push(class);
            }
            let read = jobs.chunks_exact(JOB_BYTES).filter_map(decode);
            ended.jobs.extend(read.map(|(job, _)| (job, index)));
        }
        ended.jobs.sort_unstable_by_key(|(job, _)| job.id);
        Ok(ended)
    }
}

/// A job of a row; `None` if it has invalid times.
fn decode(bytes: &[u8]) -> Option<(EndedJob, JobUsage)> {
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| word.try_into().map(u64::from_le_bytes));
    let mut next = || words.next()?.ok();
    let (id, spec, end, user_and_gpus) = (next()?, next()?, next()?, next()?);
    let (begin, nodes_and_cores, name_hash, t_submit) = (next()?, next()?, next()?, next()?);
    let job = EndedJob {
        id: JobId::new(id),
        spec: spec.cast_signed(),
        end: f64::from_bits(end),
        userid: low(user_and_gpus)?,
        name_hash,
        t_submit: f64::from_bits(t_submit),
    };
    let usage = JobUsage {
        begin: f64::from_bits(begin),
        nodes: low(nodes_and_cores)?,
        cores: low(nodes_and_cores >> 32)?,
        gpus: low(user_and_gpus >> 32)?,
    };
    let is_valid = [job.end, job.t_submit, usage.begin]
        .into_iter()
        .all(f64::is_finite);
    is_valid.then_some((job, usage))
}

/// The lower half of a word.
fn low(word: u64) -> Option<u32> {
    u32::try_from(word & u64::from(u32::MAX)).ok()
}

/// A word of two halves.
fn word(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The jobs as a row has them.
pub(crate) fn encode(jobs: &[(EndedJob, JobUsage)]) -> Vec<u8> {
    let words = |(job, usage): &(EndedJob, JobUsage)| {
        [
            job.id.get(),
            job.spec.cast_unsigned(),
            job.end.to_bits(),
            word(job.userid, usage.gpus),
            usage.begin.to_bits(),
            word(usage.nodes, usage.cores),
            job.name_hash,
            job.t_submit.to_bits(),
        ]
    };
    let words = jobs.iter().flat_map(words);
    words.flat_map(u64::to_le_bytes).collect()
}
