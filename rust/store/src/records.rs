//! Jobs as the store has them, and the listing of many that a start reads.

use std::borrow::Cow;
use std::sync::Arc;

use penstock_jobspec::job_id::JobId;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _};

use crate::common_events::CommonEvents;
use crate::database::key;
use crate::ended::{EndedClass, EndedJob, EndedJobs};
use crate::error::Error;
use crate::pending_facts::{AllFacts, PendingFacts};

/// The row of a stored job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// The submitting user.
    pub userid: u32,
    /// The time of the `submit` event, in seconds since the epoch.
    pub t_submit: f64,
    /// Key of the jobspec, shared by equal jobs.
    pub spec: i64,
    /// R as committed, if it was.
    pub r: Option<String>,
}

/// The length of the events and resources of the jobs that are read at a time. The last job may exceed it.
const MAX_READ_BYTES: usize = 16 << 20;

/// A finite number.
fn finite(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<f64> {
    let number: f64 = row.get(column)?;
    if number.is_finite() {
        return Ok(number);
    }
    let text = format!("expected a finite number, not {number}");
    Err(rusqlite::Error::FromSqlConversionFailure(
        column,
        Type::Real,
        text.into(),
    ))
}

impl JobRow {
    /// The row, from a statement whose first columns are `userid`, `t_submit`, `spec` and `r`.
    fn new(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            userid: row.get(0)?,
            t_submit: finite(row, 1)?,
            spec: row.get(2)?,
            r: row.get(3)?,
        })
    }
}

/// A stored job: its row and its eventlog.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// Job id (FLUID, RFC 19).
    pub id: JobId,
    /// The row.
    pub row: JobRow,
    /// The facts after its first events, which were not read then: see [`Store::jobs_to_restore`](crate::Store::jobs_to_restore).
    pub facts: Option<PendingFacts>,
    /// The first event lines (RFC 18), if it shares them with other jobs of its submission. Each line has its newline.
    pub common_events: Option<Arc<str>>,
    /// The other event lines.
    pub own_events: String,
}

impl JobRecord {
    /// All event lines that were read.
    pub fn eventlog(&self) -> String {
        let common = self.common_events.as_deref().unwrap_or_default();
        [common, &self.own_events].concat()
    }
}

/// The row of a job: see [`Store::job_row`](crate::Store::job_row).
pub(crate) fn read_row(connection: &Connection, id: JobId) -> rusqlite::Result<Option<JobRow>> {
    connection
        .prepare_cached("SELECT userid, t_submit, spec, r FROM jobs WHERE id = ?")?
        .query_row([key(id)], JobRow::new)
        .optional()
}

/// Jobs of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobs {
    /// The jobs, the oldest first.
    pub records: Vec<JobRecord>,
    /// The [ended jobs](crate::Store::ended_jobs) between them, whose eventlogs were not read.
    pub ended: Vec<(EndedJob, EndedClass)>,
    /// The jobs between them that are ended jobs with other facts than in their rows: their eventlogs were read.
    pub stale: Vec<JobId>,
    /// The last job that was read, if there may be later ones.
    pub last: Option<JobId>,
    /// For the log: the rows that cannot be read, and why.
    pub damaged: Vec<String>,
}

/// Which events of a job are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Histories {
    Whole,
    /// The events after the stored facts.
    SinceFacts,
}

/// The event rows from a place on.
const SELECT_EVENTS: &str =
    "SELECT job, lines, seq FROM events WHERE (job, seq) >= (?, ?) ORDER BY job, seq";

/// The jobs after one.
const SELECT_JOBS: &str = "SELECT userid, t_submit, spec, r, id FROM jobs WHERE id > ? AND NOT EXISTS \
     (SELECT 1 FROM open_submissions WHERE jobs.id BETWEEN first AND last) ORDER BY id";

/// The jobs after one, or the first ones: see [`Store::jobs_after`](crate::Store::jobs_after).
pub(crate) fn read(
    connection: &Connection,
    after: Option<JobId>,
    max: usize,
    ended: &EndedJobs,
    histories: Histories,
) -> Result<Jobs, Error> {
    let what = "cannot read the jobs";
    let wrap = |source: rusqlite::Error| Error::new(what, &source);
    let after = after.map_or(i64::MIN, key);
    let mut jobs = Jobs::default();
    let mut common = CommonEvents::new(connection).map_err(wrap)?;
    let mut select_logs = connection.prepare_cached(SELECT_EVENTS).map_err(wrap)?;
    let first = after.saturating_add(1);
    let mut logs = select_logs.query([first, i64::MIN]).map_err(wrap)?;
    let mut next = next_lines(&mut logs, &mut jobs.damaged)?;
    let mut are_logs_behind = false;
    let mut bytes = 0;
    let mut statement = connection.prepare_cached(SELECT_JOBS).map_err(wrap)?;
    let mut rows = statement.query([after]).map_err(wrap)?;
    let mut all_facts = match histories {
        Histories::Whole => AllFacts::default(),
        Histories::SinceFacts => AllFacts::after(connection, after).map_err(wrap)?,
    };
    while let Some(row) = rows.next().map_err(wrap)? {
        let id: i64 = row.get(4).map_err(wrap)?;
        let found = ended.find(JobId::new(id.cast_unsigned()));
        let (found, stale) = found.map_or((None, None), |found| {
            if is_of(&found.0, row) {
                (Some(found), None)
            } else {
                (None, Some(found.0.id))
            }
        });
        jobs.stale.extend(stale);
        if let Some(found) = found {
            are_logs_behind = true;
            jobs.ended.push(found);
            if jobs.records.len() + jobs.ended.len() >= max {
                jobs.last = Some(JobId::new(id.cast_unsigned()));
                break;
            }
            continue;
        }
        let facts = all_facts.of(connection, id).map_err(wrap)?;
        if std::mem::take(&mut are_logs_behind) || facts.is_some() {
            let seq = facts
                .as_ref()
                .map_or(i64::MIN, |facts| i64::from(facts.events));
            drop(logs);
            logs = select_logs.query([id, seq]).map_err(wrap)?;
            next = next_lines(&mut logs, &mut jobs.damaged)?;
        }
        let mut events: rusqlite::Result<_> = Ok(Vec::new());
        while let Some(found) = next.take_if(|found| found.job <= id) {
            if found.job == id {
                events = events.and_then(|mut events: Vec<_>| {
                    events.push((found.seq?, found.lines?));
                    Ok(events)
                });
            }
            next = next_lines(&mut logs, &mut jobs.damaged)?;
        }
        let known = facts.as_ref().map_or(0, |facts| facts.events);
        let events = events.and_then(|own| Ok(Eventlog::new(known, common.of(id)?, own)));
        let read = events.and_then(|events| {
            let gap = events.gap;
            Ok((record(id, row, facts, events)?, gap))
        });
        let fault = match read {
            Ok((_, Some(0))) => "its first events are missing".to_owned(),
            Ok((_, Some(gap))) => format!("the event after its first {gap} ones is missing"),
            Ok((record, None)) => {
                bytes += record.own_events.len() + record.row.r.as_ref().map_or(0, String::len);
                jobs.records.push(record);
                if jobs.records.len() + jobs.ended.len() >= max || bytes >= MAX_READ_BYTES {
                    jobs.last = Some(JobId::new(id.cast_unsigned()));
                    break;
                }
                continue;
            }
            Err(error) => Error::new("it cannot be read", &error).to_string(),
        };
        let id = JobId::new(id.cast_unsigned());
        jobs.damaged.push(format!("job {id} is left out: {fault}"));
    }
    Ok(jobs)
}

/// Whether an ended job has the user and the jobspec of a job's row.
fn is_of(ended: &EndedJob, row: &rusqlite::Row<'_>) -> bool {
    // Without R, which is long.
    finite(row, 1).is_ok()
        && row.get(0).is_ok_and(|userid: u32| userid == ended.userid)
        && row.get(2).is_ok_and(|spec: i64| spec == ended.spec)
}

/// A row of an eventlog.
struct EventRow {
    job: i64,
    seq: rusqlite::Result<u32>,
    lines: rusqlite::Result<String>,
}

/// The next row of an eventlog; rows without a job are `damaged`.
fn next_lines(
    logs: &mut rusqlite::Rows<'_>,
    damaged: &mut Vec<String>,
) -> Result<Option<EventRow>, Error> {
    let what = "cannot read the eventlogs";
    while let Some(row) = logs.next().map_err(|error| Error::new(what, &error))? {
        match row.get(0) {
            Ok(job) => {
                let (seq, lines) = (row.get(2), row.get(1));
                return Ok(Some(EventRow { job, seq, lines }));
            }
            Err(error) => damaged.push(Error::new("events are left out", &error).to_string()),
        }
    }
    Ok(None)
}

/// The event lines of a job.
pub(crate) struct Eventlog {
    /// The first ones, if it shares them with other jobs of its submission.
    common: Option<Arc<str>>,
    /// The others.
    own: String,
    /// The number of the first event that is missing before others.
    gap: Option<usize>,
}

impl Eventlog {
    /// Joins the lines from an event on: shared ones and a job's own ones, each with its `seq` and in their order. A row of
    /// shared lines is not that of a job with its own lines at the same `seq`.
    pub(crate) fn new(
        first: u32,
        shared: impl Iterator<Item = (i64, Arc<str>)>,
        own: Vec<(u32, String)>,
    ) -> Self {
        let is_own = |seq: i64| {
            own.binary_search_by_key(&seq, |(seq, _)| i64::from(*seq))
                .is_ok()
        };
        let shared = shared.filter(|(seq, _)| *seq >= i64::from(first));
        let shared: Vec<_> = shared.filter(|(seq, _)| !is_own(*seq)).collect();
        let mut shared = shared.into_iter().peekable();
        let common = shared.next_if(|(seq, _)| *seq == 0).map(|(_, lines)| lines);
        let is_whole = common.as_deref().is_none_or(|lines| lines.ends_with('\n'));
        let mut log = Self {
            gap: (!is_whole).then_some(0),
            common,
            own: String::new(),
        };
        let mut count = first as usize + count(log.common.as_deref().unwrap_or_default());
        for (seq, own) in own {
            while let Some((seq, lines)) = shared.next_if(|(shared, _)| *shared < i64::from(seq)) {
                log.add(seq, &mut count, Cow::Borrowed(&lines));
            }
            log.add(i64::from(seq), &mut count, Cow::Owned(own));
        }
        for (seq, lines) in shared {
            log.add(seq, &mut count, Cow::Borrowed(&lines));
        }
        log
    }

    /// Adds the lines from the event `seq` on, after a number of events.
    fn add(&mut self, seq: i64, count: &mut usize, lines: Cow<'_, str>) {
        let is_whole = lines.ends_with('\n');
        if self.gap.is_none() && (!is_whole || i64::try_from(*count) != Ok(seq)) {
            self.gap = Some(*count);
        }
        *count += self::count(&lines);
        if self.own.is_empty() {
            self.own = lines.into_owned();
        } else {
            self.own.push_str(&lines);
        }
    }

    /// All lines.
    pub(crate) fn into_text(self) -> String {
        match self.common {
            Some(common) => [&common, self.own.as_str()].concat(),
            None => self.own,
        }
    }
}

/// The number of lines.
fn count(lines: &str) -> usize {
    lines.bytes().filter(|byte| *byte == b'\n').count()
}

/// A job's record.
pub(crate) fn record(
    id: i64,
    row: &rusqlite::Row<'_>,
    facts: Option<PendingFacts>,
    events: Eventlog,
) -> rusqlite::Result<JobRecord> {
    Ok(JobRecord {
        id: JobId::new(id.cast_unsigned()),
        row: JobRow::new(row)?,
        facts,
        common_events: events.common,
        own_events: events.own,
    })
}
