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

    /// The events of the resource service, the oldest first, each with the number of its row. One that is not a text is one
    /// that is not an event either.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub fn resource_events(&self) -> Result<Vec<(i64, String)>, Error> {
        let read = || {
            let sql = "SELECT seq, CAST(line AS BLOB) FROM resource_events ORDER BY seq";
            let mut statement = self.database.connection().prepare(sql)?;
            let event = |row: &rusqlite::Row<'_>| {
                let line: Vec<u8> = row.get(1)?;
                let line = String::from_utf8(line);
                let line = line
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
                Ok((row.get(0)?, line))
            };
            statement
                .query_map([], event)?
                .collect::<rusqlite::Result<_>>()
        };
        read().map_err(|source| Error::new("cannot read resource events", &source))
    }
}
