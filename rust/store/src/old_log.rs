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
#![expect(
    unsafe_code,
    reason = "SQLite gives access to its files through C functions with raw pointers"
)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::{Connection, ffi};

use crate::Error;

/// The bytes of the log before its first frame, and of a frame before its page (`walformat`).
const LOG_HEADER_BYTES: u64 = 32;
const FRAME_HEADER: usize = 24;
const FRAME_HEADER_BYTES: u64 = FRAME_HEADER as u64;
/// The log is written again in pieces of this size: `SQLite`'s file system of Unix writes less than 128 KiB at once.
const PIECE_BYTES: u64 = 64 << 10;

/// The shared memory begins with a region of this size.
const REGION_BYTES: c_int = 32 << 10;
/// The version of its format.
const INDEX_VERSION: u32 = 3_007_000;
/// The places of its numbers, in units of 4 bytes: the format, the size of a page (half of a unit), the length of the log and the
/// number of copied pages.
const VERSION_AT: usize = 0;
const PAGE_SIZE_AT: usize = 3;
const LENGTH_AT: usize = 4;
const COPIED_AT: usize = 24;
/// The lock that a checkpoint holds (`WAL_CKPT_LOCK`).
const CHECKPOINT_LOCK: c_int = 1;
/// A lock of readers, without which no writer restarts the log (`WAL_READ_LOCK(1)`).
const READ_LOCK: c_int = 4;

/// Makes the log of a database durable, and has all of it copied again. The caller has begun a transaction that writes: no other
/// program appends.
pub(crate) fn adopt(connection: &Connection) -> Result<(), Error> {
    let adopt = || {
        let Some(index) = Index::of(connection)? else {
            return Ok(());
        };
        let Some(bytes) = index.log_bytes() else {
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
        index.while_log_stays(|| match index.log_bytes() {
            None | Some(LOG_HEADER_BYTES) => Ok(()),
            Some(bytes) => File::log_of(connection)?.write_again(bytes),
        })
    };
    make_durable().map_err(|error| cannot_sync(&error))
}

fn cannot_sync(error: &rusqlite::Error) -> Error {
    Error::new("cannot sync the log that was found", error)
}

fn check(code: c_int) -> rusqlite::Result<()> {
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}

/// The error of a file system without a method.
fn missing_method() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_NOTFOUND), None)
}

/// An open file of a connection.
struct File<'a> {
    file: *mut ffi::sqlite3_file,
    methods: &'a ffi::sqlite3_io_methods,
}

impl<'a> File<'a> {
    fn database_of(connection: &'a Connection) -> rusqlite::Result<Self> {
        Self::of(connection, ffi::SQLITE_FCNTL_FILE_POINTER)
    }

    fn log_of(connection: &'a Connection) -> rusqlite::Result<Self> {
        Self::of(connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER)
    }

    fn of(connection: &'a Connection, which: c_int) -> rusqlite::Result<Self> {
        let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
        let into = (&raw mut file).cast::<c_void>();
        // SAFETY: the connection is open; the operation writes a pointer to the given place.
        let code = unsafe {
            ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), which, into)
        };
        check(code)?;
        // SAFETY: the file is null or one that the borrowed connection has; its methods are null if it is not open, and
        // otherwise live as long as the file system.
        let methods = unsafe { file.as_ref().and_then(|file| file.pMethods.as_ref()) };
        let methods = methods.ok_or_else(missing_method)?;
        Ok(Self { file, methods })
    }

    /// Has the log end behind its first bytes: of a frame that follows, the header is overwritten by zeros, and synced.
    fn end_at(&self, length: u64) -> rusqlite::Result<()> {
        let methods = self.methods;
        let (Some(size), Some(read), Some(write), Some(sync)) = (
            methods.xFileSize,
            methods.xRead,
            methods.xWrite,
            methods.xSync,
        ) else {
            return Err(missing_method());
        };
        let mut bytes: ffi::sqlite3_int64 = 0;
        // SAFETY: the file is open.
        check(unsafe { size(self.file, &raw mut bytes) })?;
        if bytes.cast_unsigned() < length + FRAME_HEADER_BYTES {
            return Ok(());
        }
        let mut header = [0_u8; FRAME_HEADER];
        let (into, count) = (
            header.as_mut_ptr().cast::<c_void>(),
            FRAME_HEADER.try_into().unwrap_or(0),
        );
        let offset = length.cast_signed();
        // SAFETY: the file is open, and the buffer has as many bytes.
        check(unsafe { read(self.file, into, count, offset) })?;
        if header == [0; FRAME_HEADER] {
            return Ok(());
        }
        header.fill(0);
        let from = header.as_ptr().cast::<c_void>();
        // SAFETY: as above.
        check(unsafe { write(self.file, from, count, offset) })?;
        // SAFETY: the file is open.
        check(unsafe { sync(self.file, ffi::SQLITE_SYNC_NORMAL) })
    }

    /// Writes the first bytes of the file again, as they are, and syncs it.
    fn write_again(&self, length: u64) -> rusqlite::Result<()> {
        let methods = self.methods;
        let (Some(read), Some(write), Some(sync)) = (methods.xRead, methods.xWrite, methods.xSync)
        else {
            return Err(missing_method());
        };
        let mut piece = vec![0_u8; usize::try_from(length.min(PIECE_BYTES)).unwrap_or_default()];
        let mut at = 0;
        while at < length {
            let rest = usize::try_from(length - at).unwrap_or(usize::MAX);
            let size = rest.min(piece.len());
            let (bytes, count) = (
                piece.as_mut_ptr().cast::<c_void>(),
                size.try_into().unwrap_or(0),
            );
            let offset = at.cast_signed();
            // SAFETY: the file is open, and the buffer has as many bytes.
            check(unsafe { read(self.file, bytes, count, offset) })?;
            // SAFETY: as above; the buffer is filled.
            check(unsafe { write(self.file, bytes, count, offset) })?;
            at += size as u64;
        }
        // SAFETY: the file is open.
        check(unsafe { sync(self.file, ffi::SQLITE_SYNC_NORMAL) })
    }
}

/// The memory about the log that all programs share (`wal-index`).
struct Index<'a> {
    database: File<'a>,
    /// Its first region, which stays mapped as long as the connection is open.
    region: *mut u32,
}

impl<'a> Index<'a> {
    /// That of an open database; `None` for one without a log.
    fn of(connection: &'a Connection) -> rusqlite::Result<Option<Self>> {
        let database = File::database_of(connection)?;
        let Some(map) = database.methods.xShmMap else {
            return Ok(None);
        };
        let mut region: *mut c_void = ptr::null_mut();
        // SAFETY: the file is open; the region is mapped already, and of this size.
        check(unsafe { map(database.file, 0, REGION_BYTES, 0, &raw mut region) })?;
        if region.is_null() {
            return Ok(None);
        }
        let region = region.cast::<u32>();
        Ok(Some(Self { database, region }))
    }

    fn number(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the places are in the region, which is aligned and mapped while the connection that is borrowed is open.
        unsafe { AtomicU32::from_ptr(self.region.add(at)) }
    }

    fn read(&self, at: usize) -> u32 {
        self.number(at).load(Ordering::SeqCst)
    }

    /// The bytes of the log up to its last commit; `None` if its format is unknown.
    fn log_bytes(&self) -> Option<u64> {
        if self.read(VERSION_AT) != INDEX_VERSION {
            return None;
        }
        let frames = u64::from(self.read(LENGTH_AT));
        let [_, _, low, high] = self.read(PAGE_SIZE_AT).to_ne_bytes();
        // 65536 is stored as 1.
        let page = match u16::from_ne_bytes([low, high]) {
            1 => 1 << 16,
            size => u64::from(size),
        };
        Some(LOG_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page))
    }

    fn change_lock(&self, which: c_int, flags: c_int) -> rusqlite::Result<()> {
        let lock = self.database.methods.xShmLock.ok_or_else(missing_method)?;
        // SAFETY: the file is open, and its shared memory is mapped.
        check(unsafe { lock(self.database.file, which, 1, flags) })
    }

    /// Calls a function while the log does not restart.
    fn while_log_stays(&self, work: impl FnOnce() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let is_shared = ffi::SQLITE_SHM_SHARED;
        self.change_lock(READ_LOCK, is_shared | ffi::SQLITE_SHM_LOCK)?;
        let result = work();
        self.change_lock(READ_LOCK, is_shared | ffi::SQLITE_SHM_UNLOCK)?;
        result
    }

    /// Has the next checkpoint copy all pages. A checkpoint that another program makes now is not waited for.
    fn count_none_as_copied(&self) -> rusqlite::Result<()> {
        if self.read(COPIED_AT) == 0 {
            return Ok(());
        }
        let is_exclusive = ffi::SQLITE_SHM_EXCLUSIVE;
        self.change_lock(CHECKPOINT_LOCK, is_exclusive | ffi::SQLITE_SHM_LOCK)?;
        self.number(COPIED_AT).store(0, Ordering::SeqCst);
        self.change_lock(CHECKPOINT_LOCK, is_exclusive | ffi::SQLITE_SHM_UNLOCK)
    }
}
