//! Events that jobs with successive ids share: the first ones of the jobs of a submission, and those of jobs to which the same
//! happened one after the other, such as a cancellation.
//!
//! A row has the lines that all jobs with ids in a range have at one `seq`. Rows of one `seq` do not overlap, so that the row of
//! a job is found by its `first`, once for each `seq`; only small ones are shared. The timestamps of a job's lines are later by
//! `step` than those of the job before it.

use std::sync::Arc;

use penstock_jobspec::job_id::JobId;
use rusqlite::{Connection, OptionalExtension};

use crate::error::Error;
use crate::tables::greatest_id;

/// The greatest `seq` of a row, and so the number of searches for a job's events.
const MAX_SEQ: u32 = 63;

/// The least number of jobs that share a row, but for the first events of a submission.
const MIN_JOBS: u64 = 8;

/// The text before the timestamp of a line (RFC 18).
const TIMESTAMP: &str = "{\"timestamp\":";

/// The condition of rows whose range ends after the last job.
macro_rules! is_too_long {
    () => {
        concat!(
            "typeof(last) = 'integer' AND typeof(first) = 'integer' AND typeof(seq) = 'integer' AND last > ",
            greatest_id!()
        )
    };
}

/// Sets the first lines of the jobs with ids from the first to the second parameter.
pub(crate) const SET_FIRST: &str =
    "INSERT OR REPLACE INTO common_events(seq, first, last, step, lines) VALUES (0, ?, ?, 0, ?)";

/// Adds a row.
pub(crate) const INSERT: &str =
    "INSERT INTO common_events(seq, first, last, step, lines) VALUES (?, ?, ?, ?, ?)";

/// Removes the lines with the `seq` of the third parameter that removed jobs with ids from the first to the second one have
/// shared, if there is no other job that they belong to.
pub(crate) const DELETE_UNUSED: &str = "DELETE FROM common_events WHERE seq = ?3 \
     AND first BETWEEN ifnull((SELECT max(first) FROM common_events WHERE seq = ?3 AND first <= ?1), ?1) AND ?2 \
     AND NOT EXISTS (SELECT 1 FROM jobs WHERE id BETWEEN first AND last)";

/// The row of a `seq` that has an id in its range. The lines of another one are not read.
const SELECT: &str = "SELECT first, last, step, lines FROM \
     (SELECT * FROM common_events WHERE seq = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1) \
     WHERE last >= ?2 AND typeof(last) = 'integer'";

/// The first id of the row of a `seq` that follows an id.
const SELECT_NEXT: &str = "SELECT min(first) FROM common_events WHERE seq = ? AND first > ?";

/// The lines of one or several jobs at one `seq`.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) first: JobId,
    pub(crate) last: JobId,
    pub(crate) seq: u32,
    /// Seconds by which the timestamps of a job are later than those of the job before it.
    pub(crate) step: f64,
    /// The lines of the first job.
    pub(crate) lines: String,
    /// The lines of the last job, if there are several.
    last_lines: String,
}

impl Run {
    /// A run of one job.
    pub(crate) fn new(id: JobId, seq: u32, lines: String) -> Self {
        Self {
            first: id,
            last: id,
            seq,
            step: 0.0,
            lines,
            last_lines: String::new(),
        }
    }

    /// Adds the lines of the next job, if they differ from those before by the step of their timestamps alone. The second
    /// job determines the step.
    pub(crate) fn add(&mut self, id: JobId, seq: u32, lines: &str) -> bool {
        if seq != self.seq || seq > MAX_SEQ || self.last.get().checked_add(1) != Some(id.get()) {
            return false;
        }
        // Most jobs differ by their resources, which the first line has: the timestamps of these are not parsed.
        if self.first == self.last && !is_alike(&self.lines, lines) {
            return false;
        }
        let step = if self.first == self.last {
            let (Some((one, _)), Some((other, _))) = (timestamp(&self.lines), timestamp(lines))
            else {
                return false;
            };
            other - one
        } else {
            self.step
        };
        self.last_lines.clear();
        shift(
            &self.lines,
            span(self.first, id, step),
            &mut self.last_lines,
        );
        if self.last_lines != lines {
            return false;
        }
        (self.last, self.step) = (id, step);
        true
    }

    /// Whether a row of its own is worth its search.
    pub(crate) fn is_long(&self) -> bool {
        self.last.get() - self.first.get() >= MIN_JOBS - 1
    }

    /// Each job with its lines.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (JobId, String)> {
        (self.first.get()..=self.last.get()).map(|id| {
            let mut lines = String::new();
            shift(
                &self.lines,
                span(self.first, JobId::new(id), self.step),
                &mut lines,
            );
            (JobId::new(id), lines)
        })
    }
}

/// Seconds between the timestamps of two jobs of a run.
fn span(first: JobId, id: JobId, step: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a run has fewer jobs than 2^53")]
    let jobs = id.get().wrapping_sub(first.get()) as f64;
    jobs * step
}

/// The text of the timestamp of the first line, and what follows it.
fn split_timestamp(lines: &str) -> Option<(&str, &str)> {
    let text = lines.strip_prefix(TIMESTAMP)?;
    let end = text.bytes().position(|byte| matches!(byte, b',' | b'}'))?;
    text.split_at_checked(end)
}

/// The timestamp of the first line, and what follows it.
fn timestamp(lines: &str) -> Option<(f64, &str)> {
    let (number, rest) = split_timestamp(lines)?;
    Some((number.parse().ok()?, rest))
}

/// Whether lines are the same but for their timestamps.
fn is_alike(one: &str, other: &str) -> bool {
    let rest = |line| split_timestamp(line).map_or(line, |(_, rest)| rest);
    let (mut one, mut other) = (one.split_inclusive('\n'), other.split_inclusive('\n'));
    loop {
        match (one.next(), other.next()) {
            (Some(one), Some(other)) if rest(one) == rest(other) => {}
            (one, other) => return one.is_none() && other.is_none(),
        }
    }
}

/// Appends lines with timestamps that are later by some seconds. A line without a timestamp is appended as it is.
fn shift(lines: &str, by: f64, out: &mut String) {
    for line in lines.split_inclusive('\n') {
        match timestamp(line) {
            Some((time, rest)) if by != 0.0 => {
                out.push_str(TIMESTAMP);
                out.push_str(&serde_json::Value::from(time + by).to_string());
                out.push_str(rest);
            }
            _ => out.push_str(line),
        }
    }
}

/// A row, without its `seq`.
struct CommonRow {
    first: i64,
    last: i64,
    step: f64,
    lines: Arc<str>,
}

impl CommonRow {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            first: row.get(0)?,
            last: row.get(1)?,
            step: row.get(2)?,
            lines: row.get::<_, String>(3)?.into(),
        })
    }

    /// The lines of a job in the range.
    fn lines_of(&self, id: i64) -> Arc<str> {
        if id == self.first || self.step == 0.0 {
            return Arc::clone(&self.lines);
        }
        let [first, id] = [self.first, id].map(|id| JobId::new(id.cast_unsigned()));
        let mut lines = String::with_capacity(self.lines.len());
        shift(&self.lines, span(first, id, self.step), &mut lines);
        lines.into()
    }
}

/// Ends ranges of ids at the greatest id of a job: later jobs do not share their lines. Returns a warning for each.
pub(crate) fn cut_ranges(connection: &Connection) -> Result<Vec<String>, Error> {
    let cut = || {
        let sql = concat!(
            "SELECT seq, first FROM common_events WHERE ",
            is_too_long!()
        );
        let mut statement = connection.prepare(sql)?;
        let warning = |row: &rusqlite::Row<'_>| {
            let (seq, first): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(format!(
                "row {seq},{first} of `common_events` ends at the last job: `last` is greater than all ids of jobs"
            ))
        };
        let warnings: Vec<String> = statement
            .query_map([], warning)?
            .collect::<Result<_, _>>()?;
        if !warnings.is_empty() {
            let sql = concat!(
                "UPDATE common_events SET last = ",
                greatest_id!(),
                " WHERE ",
                is_too_long!()
            );
            connection.execute(sql, [])?;
        }
        Ok(warnings)
    };
    cut().map_err(|error: rusqlite::Error| Error::new("cannot prepare the database", &error))
}

/// Each `seq` of which there are rows, in order.
pub(crate) fn seqs(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut seqs = Vec::new();
    let query = "SELECT min(seq) FROM common_events \
                 WHERE seq > ? AND seq <= 4294967295 AND typeof(seq) = 'integer'";
    let mut statement = connection.prepare_cached(query)?;
    let mut last = -1;
    while let Some(seq) = statement.query_row([last], |row| row.get::<_, Option<i64>>(0))? {
        seqs.push(seq);
        last = seq;
    }
    Ok(seqs)
}

/// The shared lines of one job, each with its `seq`, in order.
pub(crate) fn of_job(connection: &Connection, id: i64) -> rusqlite::Result<Vec<(i64, Arc<str>)>> {
    let mut found = Vec::new();
    let mut statement = connection.prepare_cached(SELECT)?;
    for seq in seqs(connection)? {
        let row = statement.query_row([seq, id], CommonRow::read).optional()?;
        if let Some(row) = row {
            found.push((seq, row.lines_of(id)));
        }
    }
    Ok(found)
}

/// The shared lines of the jobs of a listing, which is in the order of their ids.
pub(crate) struct CommonEvents<'a> {
    connection: &'a Connection,
    cursors: Vec<Cursor>,
}

/// The place of a listing in the rows of one `seq`.
struct Cursor {
    seq: i64,
    position: CursorPosition,
}

enum CursorPosition {
    /// In the range of a row.
    Row(CommonRow),
    /// Before this id, at which the next row begins.
    Gap(i64),
}

impl<'a> CommonEvents<'a> {
    pub(crate) fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        let cursor = |seq| Cursor {
            seq,
            position: CursorPosition::Gap(i64::MIN),
        };
        let cursors = seqs(connection)?.into_iter().map(cursor).collect();
        Ok(Self {
            connection,
            cursors,
        })
    }

    /// The shared lines of a job, each with its `seq`, in order. The ids of calls increase.
    pub(crate) fn of(
        &mut self,
        id: i64,
    ) -> rusqlite::Result<impl Iterator<Item = (i64, Arc<str>)>> {
        for cursor in &mut self.cursors {
            let is_passed = match &cursor.position {
                CursorPosition::Row(row) => row.last < id,
                CursorPosition::Gap(next) => *next <= id,
            };
            if is_passed {
                cursor.position = find(self.connection, cursor.seq, id)?;
            }
        }
        Ok(self
            .cursors
            .iter()
            .filter_map(move |cursor| match &cursor.position {
                CursorPosition::Row(row) => Some((cursor.seq, row.lines_of(id))),
                CursorPosition::Gap(_) => None,
            }))
    }
}

/// The place of an id.
fn find(connection: &Connection, seq: i64, id: i64) -> rusqlite::Result<CursorPosition> {
    let mut statement = connection.prepare_cached(SELECT)?;
    let row = statement.query_row([seq, id], CommonRow::read).optional()?;
    let mut statement = connection.prepare_cached(SELECT_NEXT)?;
    let next = statement.query_row([seq, id], |row| row.get::<_, Option<i64>>(0))?;
    let next = next.unwrap_or(i64::MAX);
    Ok(match row {
        // A range that is too long costs the jobs of no later row.
        Some(row) => CursorPosition::Row(CommonRow {
            last: row.last.min(next.saturating_sub(1)),
            ..row
        }),
        None => CursorPosition::Gap(next),
    })
}
