//! The repair of a damaged database: all rows that can be read are copied into a new one.

use std::path::{Path, PathBuf};

use penstock_jobspec::job_id::JobId;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::copy::{Replacement, Unfinished, install};
use crate::database::{connect_reader, key};
use crate::tables::{BadRow, TABLES, Table, to_value};
use crate::{Error, Store, Synchronous, common_events, generation, schema};

/// A new database with the rows of a damaged one that can be read, before it takes its place.
#[derive(Debug)]
pub struct Salvage {
    path: PathBuf,
    store: Store,
    new: Unfinished,
    /// For the user: what is lost.
    losses: Vec<String>,
}

/// Copies the rows of the database at `path` that can be read into a new one beside it.
///
/// # Errors
///
/// The first page of the database cannot be read, or the new one cannot be written.
pub fn salvage(path: &Path) -> Result<Salvage, Error> {
    let damaged = connect_reader(&generation::with_its_log(path))?;
    // Without it `SQLite` reads nothing of a database whose last pages are missing.
    damaged
        .pragma_update(None, "writable_schema", true)
        .and_then(|()| damaged.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())))
        .map_err(|error| Error::beyond_repair(path, &error))?;
    let found = schema::format_version(&damaged)?;
    if !(1..=schema::FORMAT_VERSION).contains(&found) {
        return Err(Error::format(found, schema::FORMAT_VERSION));
    }
    let new = Unfinished::new(path, ".new")?;
    let mut store = Store::open_without_counter(new.path(), Synchronous::Full)?;
    let mut losses = Vec::new();
    store.database.begin()?;
    for table in &TABLES {
        losses.extend(copy_table(&damaged, store.database.connection(), table)?);
    }
    store.attribute_jobspecs()?;
    let mut salvage = Salvage {
        path: path.to_owned(),
        new,
        store,
        losses,
    };
    salvage.leave_out_damaged()?;
    Ok(salvage)
}

impl Salvage {
    /// The new database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Leaves out a job, for a reason.
    ///
    /// # Errors
    ///
    /// The new database cannot be written.
    pub fn leave_out(&mut self, id: JobId, reason: &str) -> Result<(), Error> {
        let what = "cannot leave out a job";
        for sql in [
            "DELETE FROM events WHERE job = ?",
            "DELETE FROM inputs WHERE job = ?",
            "DELETE FROM jobs WHERE id = ?",
        ] {
            self.store.database.write(what, sql, [key(id)])?;
        }
        self.store.remove_unused_common_events([[key(id); 2]])?;
        self.losses.push(format!("job {id} is left out: {reason}"));
        Ok(())
    }

    /// Puts the new database in the place of the damaged one, which is renamed.
    ///
    /// # Errors
    ///
    /// The new database cannot be written, or a file cannot be renamed.
    pub fn install(self) -> Result<Replacement, Error> {
        let Self {
            path,
            new,
            mut store,
            mut losses,
        } = self;
        store.recount_user_bytes()?;
        store.commit()?;
        drop(store);
        let mut replacement = install(&path, new, "the database has been repaired")?;
        losses.append(&mut replacement.losses);
        replacement.losses = losses;
        Ok(replacement)
    }

    /// Leaves out a row.
    ///
    /// # Errors
    ///
    /// The new database cannot be written.
    pub fn leave_out_row(&mut self, bad: &BadRow) -> Result<(), Error> {
        self.store.remove_bad_row(bad)?;
        self.losses.push(bad.to_string());
        Ok(())
    }

    /// Leaves out the resources of a job, for a reason.
    ///
    /// # Errors
    ///
    /// The new database cannot be written.
    pub fn leave_out_r(&mut self, id: JobId, reason: &str) -> Result<(), Error> {
        self.store.clear_r(id)?;
        self.losses.push(format!("job {id}: {reason}"));
        Ok(())
    }

    /// Leaves out the rows that no reader accepts, and jobs that lack some of theirs.
    fn leave_out_damaged(&mut self) -> Result<(), Error> {
        let connection = self.store.database.connection();
        self.losses.extend(common_events::cut_ranges(connection)?);
        loop {
            self.leave_out_unreadable()?;
            let losses = remove_bad_rows(&mut self.store)?;
            if losses.is_empty() {
                return Ok(());
            }
            // A job may have lost a row that it could be read with.
            self.losses.extend(losses);
        }
    }

    /// Leaves out jobs that cannot be read.
    fn leave_out_unreadable(&mut self) -> Result<(), Error> {
        // With their bad rows: without these a job could look as if later events had never happened.
        let what = "cannot leave out a row";
        let mut readable = Vec::new();
        self.store.visit_jobs(|jobs| {
            readable.extend(jobs.records.iter().map(|job| job.id));
            self.losses.extend(jobs.damaged);
            Ok(())
        })?;
        for id in self.store.job_ids(what, "SELECT id FROM jobs")? {
            if readable
                .binary_search_by_key(&key(id), |id| key(*id))
                .is_err()
            {
                self.store
                    .database
                    .write(what, "DELETE FROM jobs WHERE id = ?", [key(id)])?;
            }
        }
        Ok(())
    }
}

/// Removes the bad rows, then the rows that refer to these, until no bad row is left. Returns what is lost.
fn remove_bad_rows(store: &mut Store) -> Result<Vec<String>, Error> {
    let (mut losses, mut before) = (Vec::new(), Vec::new());
    loop {
        let bad = store.bad_rows()?;
        if bad.is_empty() {
            return Ok(losses);
        }
        let texts: Vec<String> = bad.iter().map(ToString::to_string).collect();
        if bad == before {
            return Err(Error::invalid(&format!(
                "the repair cannot leave out: {}",
                texts.join(", ")
            )));
        }
        for row in &bad {
            store.remove_bad_row(row)?;
        }
        losses.extend(texts);
        before = bad;
    }
}

/// Copies the rows of a table from its first one to a damaged page, and from its last one. Returns what is lost. Earlier formats
/// lack some tables and columns.
fn copy_table(from: &Connection, to: &Connection, table: &Table) -> Result<Vec<String>, Error> {
    let mut losses = Vec::new();
    let found = columns_of(from, table.name)?;
    if found.is_empty() {
        return Ok(losses);
    }
    let has = |column: &&str| found.iter().any(|found| found == column);
    let selected = table.columns.iter().map(|column| {
        let earlier = table.earlier_value(column).filter(|_| !has(column));
        match earlier {
            Some(Value::Integer(number)) => number.to_string(),
            Some(_) => "NULL".to_owned(),
            None => (*column).to_owned(),
        }
    });
    let selected = selected.collect::<Vec<_>>().join(", ");
    let columns = table.columns.join(", ");
    let marks = vec!["?"; table.columns.len()].join(", ");
    // References are not checked: the row that is referred to may be lost.
    to.execute_batch("PRAGMA defer_foreign_keys = ON")
        .map_err(|error| Error::new("cannot write the new database", &error))?;
    let name = table.name;
    let mut insert = to
        .prepare(&format!(
            "INSERT OR IGNORE INTO {name} ({columns}) VALUES ({marks})"
        ))
        .map_err(|error| Error::new("cannot write the new database", &error))?;
    for order in ["ASC", "DESC"] {
        let keys = table.key.iter().filter(|key| has(key));
        let keys: Vec<String> = keys.map(|key| format!("{key} {order}")).collect();
        let query = format!("SELECT {selected} FROM {name} ORDER BY {}", keys.join(", "));
        match read_rows(from, &query, table.columns.len(), |values| {
            insert.execute(params_from_iter(values)).map(drop)
        }) {
            Ok(Ok(())) => return Ok(losses),
            Ok(Err(error)) => return Err(Error::new("cannot write the new database", &error)),
            Err(error) => losses.push(format!(
                "rows of `{name}` are lost, when it is read {}: {error}",
                if order == "ASC" {
                    "forwards"
                } else {
                    "backwards"
                }
            )),
        }
    }
    Ok(losses)
}

/// The columns of a table; none if there is no such table.
fn columns_of(connection: &Connection, table: &str) -> Result<Vec<String>, Error> {
    let read = || {
        let query = "SELECT name FROM pragma_table_info(?)";
        let mut statement = connection.prepare(query)?;
        let columns = statement.query_map([table], |row| row.get(0))?;
        columns.collect::<rusqlite::Result<Vec<String>>>()
    };
    read().map_err(|error| Error::new("cannot read the tables of the database", &error))
}

/// Reads rows until one cannot be read, or cannot be written: the inner error.
fn read_rows(
    from: &Connection,
    query: &str,
    width: usize,
    mut write: impl FnMut(Vec<Value>) -> rusqlite::Result<()>,
) -> rusqlite::Result<rusqlite::Result<()>> {
    let mut statement = from.prepare(query)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let values = (0..width)
            .map(|column| row.get_ref(column).map(to_value))
            .collect::<rusqlite::Result<Vec<Value>>>()?;
        if let Err(error) = write(values) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::{Store, remove_bad_rows};

    #[test]
    fn a_repair_ends_with_an_error_if_a_bad_row_stays() {
        let mut store = Store::in_memory().unwrap();
        let bad = "INSERT INTO resource_events VALUES (1, x'ff')";
        store.database.connection().execute_batch(bad).unwrap();
        let row = "row 1 of `resource_events` is left out: `line` is not a text";
        assert_eq!(remove_bad_rows(&mut store).unwrap(), [row]);
        let kept =
            "CREATE TRIGGER kept BEFORE DELETE ON resource_events BEGIN SELECT RAISE(IGNORE); END";
        let connection = store.database.connection();
        connection.execute_batch(bad).unwrap();
        connection.execute_batch(kept).unwrap();
        let error = remove_bad_rows(&mut store).unwrap_err();
        assert!(
            error.to_string().contains("cannot leave out: row 1 of"),
            "{error}"
        );
    }
}
