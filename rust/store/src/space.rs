//! The space of the file: the pages of removed rows are returned to the file system in slices.

use rusqlite::Connection;

use crate::{Error, schema};

/// The value of `auto_vacuum` of a database whose free pages can be released.
const INCREMENTAL: i64 = 2;

/// Free pages that are kept for later writes at least: 4 MiB.
const MIN_SPARE_PAGES: u64 = 1024;
/// One of this many pages may be free.
const PAGES_PER_SPARE: u64 = 16;

/// The largest database that a start rewrites, in bytes: that takes a second or two.
const MAX_REWRITTEN_BYTES: u64 = 256 << 20;

/// The pages of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of a page in bytes.
    pub page_bytes: u64,
    /// All pages.
    pub pages: u64,
    /// Pages without data.
    pub free_pages: u64,
}

impl Space {
    /// Free pages that can be released: some are kept for later writes.
    pub fn excess_pages(self) -> u64 {
        let spare = MIN_SPARE_PAGES.max(self.pages / PAGES_PER_SPARE);
        self.free_pages.saturating_sub(spare)
    }
}

/// The pages of a database, without its log.
pub(crate) fn read(connection: &Connection) -> Result<Space, Error> {
    let query = "SELECT page_size, page_count, freelist_count \
                 FROM pragma_page_size, pragma_page_count, pragma_freelist_count";
    connection
        .prepare_cached(query)
        .and_then(|mut statement| {
            statement.query_row([], |row| {
                Ok(Space {
                    page_bytes: row.get::<_, i64>(0)?.cast_unsigned(),
                    pages: row.get::<_, i64>(1)?.cast_unsigned(),
                    free_pages: row.get::<_, i64>(2)?.cast_unsigned(),
                })
            })
        })
        .map_err(|error| Error::new("cannot read the size of the database", &error))
}

/// Releases this many free pages, in the open transaction. Returns their number.
pub(crate) fn release(connection: &Connection, pages: u64) -> Result<u64, Error> {
    let mut released = 0;
    // Each row is a page.
    let mut release = || {
        let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {
            released += 1;
        }
        Ok(())
    };
    release().map_err(|error| Error::new("cannot release free pages", &error))?;
    Ok(released)
}

/// Rewrites a small database whose free pages cannot be released, as one of an older version, so that they can. Returns
/// a warning if they still cannot.
pub(crate) fn make_shrinkable(connection: &Connection) -> Result<Option<String>, Error> {
    if is_incremental(connection)? {
        return Ok(None);
    }
    let space = read(connection)?;
    let reason = if space.pages * space.page_bytes > MAX_REWRITTEN_BYTES {
        "`penstock store vacuum` rewrites it".to_owned()
    } else {
        match vacuum(connection) {
            Ok(()) => return Ok(None),
            Err(error) => error.to_string(),
        }
    };
    Ok(Some(format!(
        "the database cannot shrink when jobs are purged: {reason}"
    )))
}

/// Whether free pages can be released.
pub(crate) fn is_incremental(connection: &Connection) -> Result<bool, Error> {
    let mode: i64 = connection
        .pragma_query_value(None, "auto_vacuum", |row| row.get(0))
        .map_err(|error| Error::new("cannot read the settings of the database", &error))?;
    Ok(mode == INCREMENTAL)
}

/// Rewrites a database without free pages, in one transaction.
pub(crate) fn vacuum(connection: &Connection) -> Result<(), Error> {
    schema::let_pages_be_released(connection)
        .and_then(|()| connection.execute_batch("VACUUM"))
        .map_err(|error| Error::new("cannot rewrite the database", &error))
}
