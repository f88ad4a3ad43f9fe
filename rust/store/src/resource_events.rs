//! The resource eventlog (RFC 18, RFC 28).

use crate::{Error, Store};

impl Store {
    /// Appends an event of the resource service, such as drain and undrain.
    ///
    /// # Errors
    ///
    /// The database fails, for example because the disk is full.
    pub fn append_resource_event(&mut self, line: &str) -> Result<(), Error> {
        self.database
            .write(
                "cannot write a resource event",
                "INSERT INTO resource_events(line) VALUES (?)",
                [line],
            )
            .map(drop)
    }

    /// The events of the resource service, the oldest first.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn resource_events(&self) -> Result<Vec<String>, Error> {
        let wrap = |source: rusqlite::Error| Error::new("cannot read resource events", &source);
        let mut statement = self
            .database
            .connection()
            .prepare("SELECT line FROM resource_events ORDER BY seq")
            .map_err(wrap)?;
        let lines = statement
            .query_map([], |row| row.get(0))
            .and_then(Iterator::collect);
        lines.map_err(wrap)
    }
}
