//! The general key space, which excludes the keys of jobs.

use rusqlite::params;

use crate::{Error, Store};

/// All keys from one on, in order: the reader stops at the first key without its prefix.
pub(crate) const SELECT_FROM: &str = "SELECT key FROM kvs WHERE key >= ? ORDER BY key";

// '/' is the character after '.': the range holds exactly the keys that start with `key.`.
pub(crate) const DELETE: &str =
    "DELETE FROM kvs WHERE key = ?1 OR (key >= ?1 || '.' AND key < ?1 || '/')";

impl Store {
    /// The value of a key.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn value(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.database.read(
            "cannot read a key",
            "SELECT value FROM kvs WHERE key = ?",
            [key],
        )
    }

    /// The first keys that begin with a prefix, `max` at most, in order. Reads one key more at most.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn keys(&self, prefix: &str, max: usize) -> Result<Vec<String>, Error> {
        self.keys_from(prefix, prefix, max)
    }

    /// The first keys from `first` on that begin with a prefix, as `first` does, or would. Reads one key more at most.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn keys_from(&self, prefix: &str, first: &str, max: usize) -> Result<Vec<String>, Error> {
        let read = || {
            let connection = self.database.connection();
            let mut statement = connection.prepare_cached(SELECT_FROM)?;
            let keys = statement.query_map([first], |row| row.get(0))?;
            let keys = keys.take_while(|key: &rusqlite::Result<String>| {
                key.as_ref().map_or(true, |key| key.starts_with(prefix))
            });
            keys.take(max).collect::<rusqlite::Result<_>>()
        };
        read().map_err(|source| Error::new("cannot list keys", &source))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn set_value(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.database.write(
            "cannot write a key",
            "INSERT INTO kvs VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
            params![key, value],
        )
        .map(drop)
    }

    /// Removes a key and everything below it (`key.*`).
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn remove_value(&mut self, key: &str) -> Result<(), Error> {
        self.database
            .write("cannot remove a key", DELETE, [key])
            .map(drop)
    }
}
