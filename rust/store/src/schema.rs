//! The tables, and the formats that they have had.

use std::time::Duration;

use rusqlite::Connection;

use crate::counted_bytes::{ATTRIBUTE, RECOUNT};
use crate::tables::IS_BAD_OPEN_SUBMISSION;
use crate::{Error, checkpoint, log_file, old_log};

/// When a commit is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// After every commit, which syncs the log: it survives a power failure.
    #[default]
    Full,
    /// At checkpoints, which sync the log: a commit survives a crash of the daemon only.
    Normal,
}

/// The longest wait of a call for a lock that another process holds.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// The size to which the log is cut when its contents are in the database, in bytes.
const MAX_LOG_BYTES: i64 = 16 << 20;

/// The statements that lead from each format to the next one. Format 0 is an empty database.
const MIGRATIONS: [&str; 13] = [
    FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5, FORMAT_6, FORMAT_7, FORMAT_8, FORMAT_9,
    FORMAT_10, FORMAT_11, FORMAT_12, FORMAT_13,
];

/// The format that this program writes.
pub(crate) const FORMAT_VERSION: i64 = 13;

const FORMAT_1: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE jobspecs (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    t_submit REAL NOT NULL,
    spec INTEGER NOT NULL REFERENCES jobspecs(id),
    r TEXT
);
CREATE TABLE events (
    job INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
CREATE TABLE unsent_starts (job INTEGER PRIMARY KEY);
CREATE TABLE purged_jobs (job INTEGER PRIMARY KEY);
CREATE TABLE resource_events (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE submissions (
    seq INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    token TEXT NOT NULL,
    time REAL NOT NULL,
    digest INTEGER NOT NULL,
    result TEXT NOT NULL,
    UNIQUE (userid, token)
);
CREATE TABLE kvs (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
";

/// The identity of the database, and the number of its commits: see [`crate::generation`].
const FORMAT_2: &str = "
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    identity TEXT NOT NULL,
    generation INTEGER NOT NULL,
    greatest_id INTEGER NOT NULL
);
INSERT INTO store VALUES (1, lower(hex(randomblob(16))), 0, 0);
";

/// The ids of the jobs of submissions that are not complete.
const FORMAT_3: &str = "
CREATE TABLE open_submissions (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
";

/// The first events of the jobs of a submission, which are the same for all of them.
const FORMAT_4: &str = "
CREATE TABLE common_events (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    lines TEXT NOT NULL
);
";

/// Ended jobs: see [`crate::ended`].
const FORMAT_5: &str = "
CREATE TABLE ended_jobs (
    seq INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    queue TEXT,
    result INTEGER NOT NULL,
    jobs BLOB NOT NULL
);
";

/// The ends of ended jobs are exact: the next start reads them from the eventlogs. Shared events are in any place of the
/// eventlogs: see [`crate::common_events`].
const FORMAT_6: &str = "
DELETE FROM ended_jobs;
ALTER TABLE common_events RENAME TO first_events;
CREATE TABLE common_events (
    seq INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    step REAL NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (seq, first)
) WITHOUT ROWID;
INSERT INTO common_events SELECT 0, first, last, 0, lines FROM first_events;
DROP TABLE first_events;
";

/// The standard input of jobs, as events (RFC 24).
const FORMAT_7: &str = "
CREATE TABLE inputs (
    job INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
";

/// Ended jobs with their users and the hashes of their names: the next start reads these from the eventlogs.
const FORMAT_8: &str = "
DELETE FROM ended_jobs;
";

/// Ended jobs with what they have used: the next start reads these from the eventlogs.
const FORMAT_9: &str = "
DELETE FROM ended_jobs;
";

/// Ended jobs with longer hashes of their names and the times of their submission: the next start reads these from the
/// eventlogs.
const FORMAT_10: &str = "
DELETE FROM ended_jobs;
";

/// The bytes of each user: see [`crate::user_bytes`].
const FORMAT_11: &str = "
ALTER TABLE jobspecs ADD COLUMN userid INTEGER;
ALTER TABLE jobs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
CREATE TABLE user_bytes (userid INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
";

/// Tokens of submissions by their time, which need not be that of their order: the clock may have been ahead.
const FORMAT_12: &str = "
CREATE INDEX submissions_by_time ON submissions (time);
";

/// The facts of pending jobs with many events: see [`crate::pending_facts`].
const FORMAT_13: &str = "
CREATE TABLE pending_facts (job INTEGER PRIMARY KEY, events INTEGER NOT NULL, facts TEXT NOT NULL);
";

/// Removes the jobs of submissions that are not complete, and the jobspecs of these alone.
const DISCARD_OPEN_SUBMISSIONS: &str = "
DELETE FROM events WHERE job IN
    (SELECT id FROM open_submissions CROSS JOIN jobs ON id BETWEEN first AND last);
DELETE FROM jobs WHERE id IN
    (SELECT id FROM open_submissions CROSS JOIN jobs ON id BETWEEN first AND last);
DELETE FROM common_events WHERE EXISTS
    (SELECT 1 FROM open_submissions AS open WHERE common_events.first BETWEEN open.first AND open.last);
DELETE FROM jobspecs WHERE id NOT IN (SELECT spec FROM jobs);
DELETE FROM open_submissions;
";

/// Whether the log that a start has found may be followed by commits: see [`old_log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldLog {
    Adopted,
    /// Another program holds a lock: the log is durable, and the next transaction adopts it.
    Found,
}

/// Configures the connection, brings the tables to the format of this program, and discards submissions that are not
/// complete.
pub(crate) fn prepare(connection: &Connection, synchronous: Synchronous) -> Result<OldLog, Error> {
    let wrap = |source: rusqlite::Error| Error::new("cannot prepare the database", &source);
    connection.busy_timeout(BUSY_TIMEOUT).map_err(wrap)?;
    // The writer knows which jobs refer to a jobspec. SQLite would look for each removed one in all jobs.
    connection
        .pragma_update(None, "foreign_keys", false)
        .map_err(wrap)?;
    if format_version(connection)? == 0 {
        // Before the log, which writes the first page.
        let_pages_be_released(connection).map_err(wrap)?;
    }
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .map_err(wrap)?;
    set_synchronous(connection, synchronous).map_err(wrap)?;
    connection
        .pragma_update(None, "journal_size_limit", MAX_LOG_BYTES)
        .map_err(wrap)?;
    match copy_old_log(connection) {
        Ok(()) => {}
        // Reads need no lock for writing.
        Err(error) if error.is_busy() && is_prepared(connection)? => {
            old_log::make_durable(connection)?;
            return Ok(OldLog::Found);
        }
        Err(error) => return Err(error),
    }
    migrate(connection)?;
    discard_open_submissions(connection)?;
    Ok(OldLog::Adopted)
}

/// Sets how often the database is synced.
pub(crate) fn set_synchronous(
    connection: &Connection,
    synchronous: Synchronous,
) -> rusqlite::Result<()> {
    let level = match synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", level)
}

/// Makes the log that the start finds durable, and copies it into the database: see [`old_log`].
fn copy_old_log(connection: &Connection) -> Result<(), Error> {
    let wrap = |source: rusqlite::Error| Error::new("cannot prepare the database", &source);
    let mode: String = connection
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .map_err(wrap)?;
    if mode != "wal" {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE").map_err(wrap)?;
    let adopted = log_file::check_length(connection).and_then(|_| old_log::adopt(connection));
    connection.execute_batch("ROLLBACK").map_err(wrap)?;
    adopted?;
    match checkpoint::copy(connection) {
        // It can be copied later.
        Err(error) if !error.is_disk_full() && !error.is_busy() => Err(error),
        _ => Ok(()),
    }
}

/// Whether the tables have the format of this program, and all submissions are complete.
fn is_prepared(connection: &Connection) -> Result<bool, Error> {
    Ok(format_version(connection)? == FORMAT_VERSION && !has_open_submissions(connection)?)
}

/// Lets a database that this connection creates, or that a `VACUUM` of it writes, release free pages.
pub(crate) fn let_pages_be_released(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")
}

fn has_open_submissions(connection: &Connection) -> Result<bool, Error> {
    let query = "SELECT EXISTS (SELECT 1 FROM open_submissions)";
    connection
        .query_row(query, [], |row| row.get(0))
        .map_err(|source| Error::new("cannot prepare the database", &source))
}

fn discard_open_submissions(connection: &Connection) -> Result<(), Error> {
    let wrap = |source: rusqlite::Error| Error::new("cannot prepare the database", &source);
    if !has_open_submissions(connection)? {
        return Ok(());
    }
    let script = format!(
        "BEGIN IMMEDIATE; DELETE FROM open_submissions WHERE {IS_BAD_OPEN_SUBMISSION}; {DISCARD_OPEN_SUBMISSIONS} \
         {RECOUNT} COMMIT;"
    );
    connection.execute_batch(&script).map_err(|error| {
        // Without a transaction there is nothing to undo. The caller drops the connection.
        let _ = connection.execute_batch("ROLLBACK");
        wrap(error)
    })
}

/// Brings the tables to the format of this program, in one transaction.
pub(crate) fn migrate(connection: &Connection) -> Result<(), Error> {
    let wrap = |source: rusqlite::Error| Error::new("cannot prepare the database", &source);
    let found = format_version(connection)?;
    if found == FORMAT_VERSION {
        return Ok(());
    }
    let steps = usize::try_from(found)
        .ok()
        .and_then(|found| MIGRATIONS.get(found..))
        .ok_or_else(|| Error::format(found, FORMAT_VERSION))?;
    let script = format!(
        "BEGIN IMMEDIATE; {} {ATTRIBUTE} {RECOUNT} PRAGMA user_version = {FORMAT_VERSION}; COMMIT;",
        steps.concat()
    );
    connection.execute_batch(&script).map_err(|error| {
        // Without a transaction there is nothing to undo.
        let _ = connection.execute_batch("ROLLBACK");
        wrap(error)
    })
}

/// The format of a database; 0 for an empty one.
pub(crate) fn format_version(connection: &Connection) -> Result<i64, Error> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| Error::new("cannot read the format of the database", &error))
}
