//! The check of a database.

use std::path::Path;

use rusqlite::Connection;

use crate::{Error, Store, generation};

/// The most problems that `SQLite`'s own check reports.
const MAX_STRUCTURAL_PROBLEMS: u32 = 100;

/// Rows that no reader of the database accepts or finds, each query with the text of a problem.
const ROW_CHECKS: [(&str, &str); 9] = [
    (
        "jobspec {} is not a text: its jobs are left out at a start",
        "SELECT id FROM jobspecs WHERE typeof(text) <> 'text'",
    ),
    (
        "there are events of an unknown job, {}",
        "SELECT DISTINCT job FROM events WHERE job NOT IN (SELECT id FROM jobs)",
    ),
    (
        "there are events of unknown jobs, from {} on",
        "SELECT DISTINCT first FROM common_events \
         WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id BETWEEN first AND last)",
    ),
    (
        "there is standard input of an unknown job, {}",
        "SELECT DISTINCT job FROM inputs WHERE job NOT IN (SELECT id FROM jobs)",
    ),
    (
        "the standard input of job {} cannot be read",
        "SELECT DISTINCT job FROM inputs WHERE typeof(line) <> 'text'",
    ),
    (
        "resource event {} is not a text",
        "SELECT seq FROM resource_events WHERE typeof(line) <> 'text'",
    ),
    (
        "the value of key `{}` is neither a text nor a blob",
        "SELECT key FROM kvs WHERE typeof(value) NOT IN ('text', 'blob')",
    ),
    (
        "the value `{}` of the instance is not a text",
        "SELECT key FROM meta WHERE typeof(value) <> 'text'",
    ),
    (
        "submission {} cannot be read",
        "SELECT seq FROM submissions WHERE typeof(userid) <> 'integer' OR typeof(result) <> 'text' \
         OR typeof(digest) <> 'integer'",
    ),
];

/// Finds the problems of the database at `path`: damaged pages, rows that cannot be read, lost commits. An instance may
/// use the database meanwhile.
///
/// # Errors
///
/// The database cannot be opened.
pub fn check(path: &Path) -> Result<Vec<String>, Error> {
    // Before the database, which may have later commits by then.
    let known = generation::read_counter(path)?;
    let store = Store::open_reader(path)?;
    let mut problems = Vec::new();
    match known.map(|known| known.check(store.database.progress(), path)) {
        Some(Ok(warning)) => problems.extend(warning),
        Some(Err(error)) => problems.push(error.to_string()),
        None => problems.push(format!(
            "`{}` is missing or invalid: whether the database went back in time is unknown",
            generation::counter_path(path).display()
        )),
    }
    for found in [structure(store.database.connection()), rows(&store)] {
        match found {
            Ok(found) => problems.extend(found),
            Err(error) => problems.push(error.to_string()),
        }
    }
    Ok(problems)
}

/// The problems of pages, indexes and references.
pub(super) fn structure(connection: &Connection) -> Result<Vec<String>, Error> {
    let wrap = |error: rusqlite::Error| Error::new("cannot check the database", &error);
    let mut problems = texts(
        connection,
        &format!("PRAGMA integrity_check({MAX_STRUCTURAL_PROBLEMS})"),
    )?;
    problems.retain(|text| text != "ok");
    let mut statement = connection
        .prepare("PRAGMA foreign_key_check")
        .map_err(wrap)?;
    let references = statement
        .query_map([], |row| {
            let (table, row_id): (String, Option<i64>) = (row.get(0)?, row.get(1)?);
            let row_id = row_id.unwrap_or_default();
            let parent: String = row.get(2)?;
            Ok(format!(
                "row {row_id} of `{table}` refers to a missing row of `{parent}`"
            ))
        })
        .map_err(wrap)?;
    for reference in references {
        problems.push(reference.map_err(wrap)?);
    }
    Ok(problems)
}

/// The rows that cannot be read.
fn rows(store: &Store) -> Result<Vec<String>, Error> {
    let mut problems = store.jobs()?.damaged;
    for (problem, query) in ROW_CHECKS {
        let found = texts(
            store.database.connection(),
            &format!(
                "SELECT CAST(found AS TEXT) FROM ({})",
                query.replacen(" FROM", " AS found FROM", 1)
            ),
        )?;
        problems.extend(found.iter().map(|row| problem.replace("{}", row)));
    }
    Ok(problems)
}

/// The texts of a query's first column.
fn texts(connection: &Connection, query: &str) -> Result<Vec<String>, Error> {
    let mut statement = connection
        .prepare(query)
        .map_err(|error| Error::new("cannot check the database", &error))?;
    statement
        .query_map([], |row| row.get(0))
        .and_then(Iterator::collect)
        .map_err(|error| Error::new("cannot check the database", &error))
}
