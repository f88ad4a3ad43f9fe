//! The check of a database.

use std::path::Path;

use rusqlite::Connection;

use crate::{BadRow, Error, Store, generation};

/// The most problems that `SQLite`'s own check reports.
const MAX_STRUCTURAL_PROBLEMS: u32 = 100;

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
    let progress = store.database.progress();
    match known.map(|known| (known.check(progress, path), known)) {
        Some((Ok(warning), known)) => {
            problems.extend(warning);
            problems.extend(progress.clone().correct_greatest_id(&known));
        }
        Some((Err(error), _)) => problems.push(error.to_string()),
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
    let mut problems = Vec::new();
    store.visit_jobs(|jobs| {
        problems.extend(jobs.damaged);
        Ok(())
    })?;
    problems.extend(store.bad_rows()?.iter().map(BadRow::to_string));
    problems.extend(store.wrong_user_bytes()?);
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
