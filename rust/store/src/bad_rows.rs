//! The rows that no reader accepts, of all tables.

use rusqlite::params_from_iter;

use crate::tables::{self, BadRow};
use crate::{Error, Store};

impl Store {
    /// The rows with a value of another kind than that of their column, and those that do not fit the other tables.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn bad_rows(&self) -> Result<Vec<BadRow>, Error> {
        let mut bad: Vec<BadRow> = Vec::new();
        for table in tables::all() {
            let found = table.bad_rows(self.database.connection());
            for row in found.map_err(|error| Error::new("cannot check the rows", &error))? {
                let is_it = |known: &BadRow| (known.table, &known.key) == (row.table, &row.key);
                if !bad.iter().any(is_it) {
                    bad.push(row);
                }
            }
        }
        Ok(bad)
    }

    /// Removes a row.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_bad_row(&mut self, bad: &BadRow) -> Result<(), Error> {
        let Some(table) = tables::all().find(|table| table.name == bad.table) else {
            return Ok(());
        };
        let key: Vec<String> = table.key.iter().map(|key| format!("{key} IS ?")).collect();
        let sql = format!("DELETE FROM {} WHERE {}", table.name, key.join(" AND "));
        let what = "cannot leave out a row";
        self.database
            .write(what, &sql, params_from_iter(&bad.key))
            .map(drop)
    }
}
