//! The tables, and the version of their format.

use std::time::Duration;

use rusqlite::Connection;

use crate::Error;

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

const FORMAT_VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobspecs (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    t_submit REAL NOT NULL,
    spec INTEGER NOT NULL REFERENCES jobspecs(id),
    r TEXT
);
CREATE TABLE IF NOT EXISTS events (
    job INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unsent_starts (job INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS purged_jobs (job INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS resource_events (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS submissions (
    seq INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    token TEXT NOT NULL,
    time REAL NOT NULL,
    digest INTEGER NOT NULL,
    result TEXT NOT NULL,
    UNIQUE (userid, token)
);
CREATE TABLE IF NOT EXISTS kvs (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
";

/// Configures the connection and creates missing tables.
pub(crate) fn prepare(connection: &Connection, synchronous: Synchronous) -> Result<(), Error> {
    let wrap = |source: rusqlite::Error| Error::new("cannot prepare the database", &source);
    let level = match synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    connection.busy_timeout(BUSY_TIMEOUT).map_err(wrap)?;
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .map_err(wrap)?;
    connection
        .pragma_update(None, "synchronous", level)
        .map_err(wrap)?;
    let version: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(wrap)?;
    if version != 0 && version != FORMAT_VERSION {
        return Err(Error::format(version, FORMAT_VERSION));
    }
    connection.execute_batch(TABLES).map_err(wrap)?;
    connection
        .pragma_update(None, "user_version", FORMAT_VERSION)
        .map_err(wrap)
}
