//! Makes the log that a start finds durable, and has all of it copied again, before a commit follows it.
//!
//! Linux counts the pages of a failed sync as written: they are in the page cache alone, and no later sync writes them. The
//! process that saw the failure may have ended before it could do something about it, and another program that has the database
//! open keeps the log from restarting. So a start assumes such pages in both files:
//!
//! - Of the log, every page up to the last commit is written again in its place, with the same bytes, and synced. Otherwise a power
//!   failure could cut the log off before the commits that follow, or, in the middle of a copy, leave a part of a commit in
//!   the database.
//! - Of the database, no page counts as copied. `SQLite` keeps the number of copied pages in memory that all programs share,
//!   also if the sync of the copies has failed. When the last program closes the database that number is lost, and all pages are
//!   copied again; while one has it open, this module sets it to 0, as `SQLite` does when it recovers the log.
//!
//! - Of the log, the header of the frame behind the last commit is overwritten by zeros: a commit whose sync has failed may be there,
//!   which the writer does not know, and the process after it would find.
//!
//! While another program holds the lock for writing, the start only writes the log again: what it reads is durable.
//!
//! A restarting checkpoint would do without, but waits for readers, and an exclusive connection for all other programs: a
//! back-up would delay the start. Pages that the kernel has evicted from the page cache before the start are lost.

use rusqlite::Connection;

use crate::Error;
use crate::log_file::{File, Index, LOG_HEADER_BYTES, Log};

/// Makes the log of a database durable, and has all of it copied again. The caller has begun a transaction that writes: no other
/// program appends.
pub(crate) fn adopt(connection: &Connection) -> Result<(), Error> {
    let adopt = || {
        let Some(index) = Index::of(connection)? else {
            return Ok(());
        };
        let Some(bytes) = index.log().map(Log::bytes) else {
            return Ok(());
        };
        let log = File::log_of(connection)?;
        log.end_at(bytes)?;
        if bytes == LOG_HEADER_BYTES {
            return Ok(());
        }
        log.write_again(bytes)?;
        index.count_none_as_copied()
    };
    adopt().map_err(|error| cannot_sync(&error))
}

/// Makes the log of a database durable up to its last commit, also while another program appends to it. The connection has no
/// transaction.
pub(crate) fn make_durable(connection: &Connection) -> Result<(), Error> {
    let make_durable = || {
        let Some(index) = Index::of(connection)? else {
            return Ok(());
        };
        index.while_log_stays(|| match index.log().map(Log::bytes) {
            None | Some(LOG_HEADER_BYTES) => Ok(()),
            Some(bytes) => File::log_of(connection)?.write_again(bytes),
        })
    };
    make_durable().map_err(|error| cannot_sync(&error))
}

fn cannot_sync(error: &rusqlite::Error) -> Error {
    Error::new("cannot sync the log that was found", error)
}
