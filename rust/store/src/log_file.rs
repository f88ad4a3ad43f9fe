//! The log of a database as its connections know it: the file that they have open, and the memory about it that all programs
//! share.
#![expect(
    unsafe_code,
    reason = "SQLite gives access to its files through C functions with raw pointers"
)]

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::{Connection, ffi};

use crate::Error;
use crate::generation;

/// The bytes of the log before its first frame, and of a frame before its page (`walformat`).
pub(crate) const LOG_HEADER_BYTES: u64 = 32;
const FRAME_HEADER: usize = 24;
const FRAME_HEADER_BYTES: u64 = FRAME_HEADER as u64;
/// The places of the salt in both headers: a log that restarts has another one.
const SALT_IN_LOG_HEADER: u64 = 16;
const SALT_IN_FRAME_HEADER: u64 = 8;
/// The log is written again in pieces of this size: `SQLite`'s file system of Unix writes less than 128 KiB at once.
const PIECE_BYTES: u64 = 64 << 10;

/// The shared memory begins with a region of this size.
const REGION_BYTES: c_int = 32 << 10;
/// The version of its format.
const INDEX_VERSION: u32 = 3_007_000;
/// The places of its numbers, in units of 4 bytes: the format, the size of a page (half of a unit), the length of the log, the
/// pages of the database, the salt of the log (two units) and the number of copied pages.
const VERSION_AT: usize = 0;
const PAGE_SIZE_AT: usize = 3;
const LENGTH_AT: usize = 4;
const DATABASE_PAGES_AT: usize = 5;
const SALT_AT: usize = 8;
const COPIED_AT: usize = 24;
/// The lock that a checkpoint holds (`WAL_CKPT_LOCK`).
const CHECKPOINT_LOCK: c_int = 1;
/// A lock of readers, without which no writer restarts the log (`WAL_READ_LOCK(1)`).
const READ_LOCK: c_int = 4;

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

/// Whether a read has failed because the file ends before.
fn is_end_of_file(error: &rusqlite::Error) -> bool {
    let error = error.sqlite_error();
    error.is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHORT_READ)
}

/// An open file of a connection.
pub(crate) struct File<'a> {
    file: *mut ffi::sqlite3_file,
    methods: &'a ffi::sqlite3_io_methods,
}

impl<'a> File<'a> {
    /// That of the database; `None` for a database in memory.
    fn database_of(connection: &'a Connection) -> rusqlite::Result<Option<Self>> {
        Self::of(connection, ffi::SQLITE_FCNTL_FILE_POINTER)
    }

    pub(crate) fn log_of(connection: &'a Connection) -> rusqlite::Result<Self> {
        Self::of(connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER)?.ok_or_else(missing_method)
    }

    fn of(connection: &'a Connection, which: c_int) -> rusqlite::Result<Option<Self>> {
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
        Ok(methods.map(|methods| Self { file, methods }))
    }

    fn length(&self) -> rusqlite::Result<u64> {
        let size = self.methods.xFileSize.ok_or_else(missing_method)?;
        let mut bytes: ffi::sqlite3_int64 = 0;
        // SAFETY: the file is open.
        check(unsafe { size(self.file, &raw mut bytes) })?;
        Ok(bytes.cast_unsigned())
    }

    fn read(&self, into: &mut [u8], offset: u64) -> rusqlite::Result<()> {
        let read = self.methods.xRead.ok_or_else(missing_method)?;
        let count = into.len().try_into().unwrap_or(0);
        let bytes = into.as_mut_ptr().cast::<c_void>();
        // SAFETY: the file is open, and the buffer has as many bytes.
        check(unsafe { read(self.file, bytes, count, offset.cast_signed()) })
    }

    fn write(&self, bytes: &[u8], offset: u64) -> rusqlite::Result<()> {
        let write = self.methods.xWrite.ok_or_else(missing_method)?;
        let count = bytes.len().try_into().unwrap_or(0);
        let bytes = bytes.as_ptr().cast::<c_void>();
        // SAFETY: the file is open, and the buffer has as many bytes.
        check(unsafe { write(self.file, bytes, count, offset.cast_signed()) })
    }

    fn sync(&self) -> rusqlite::Result<()> {
        let sync = self.methods.xSync.ok_or_else(missing_method)?;
        // SAFETY: the file is open.
        check(unsafe { sync(self.file, ffi::SQLITE_SYNC_NORMAL) })
    }

    /// Has the log end behind its first bytes: of a frame that follows, the header is overwritten by zeros, and synced.
    pub(crate) fn end_at(&self, length: u64) -> rusqlite::Result<()> {
        if self.length()? < length + FRAME_HEADER_BYTES {
            return Ok(());
        }
        let mut header = [0_u8; FRAME_HEADER];
        self.read(&mut header, length)?;
        if header == [0; FRAME_HEADER] {
            return Ok(());
        }
        self.write(&[0; FRAME_HEADER], length)?;
        self.sync()
    }

    /// Writes the first bytes of the file again, as they are, and syncs it.
    pub(crate) fn write_again(&self, length: u64) -> rusqlite::Result<()> {
        let mut piece = vec![0_u8; usize::try_from(length.min(PIECE_BYTES)).unwrap_or_default()];
        let mut at = 0;
        while at < length {
            let rest = usize::try_from(length - at).unwrap_or(usize::MAX);
            let size = rest.min(piece.len());
            let bytes = piece.get_mut(..size).unwrap_or_default();
            self.read(bytes, at)?;
            self.write(bytes, at)?;
            at += size as u64;
        }
        self.sync()
    }

    /// Whether the file has this salt at an offset.
    fn has_salt(&self, salt: Salt, offset: u64) -> rusqlite::Result<bool> {
        let mut found = Salt::default();
        match self.read(&mut found, offset) {
            Err(error) if is_end_of_file(&error) => Ok(false),
            read => read.map(|()| found == salt),
        }
    }
}

/// The random bytes that the header of a log and those of its frames share.
type Salt = [u8; 8];

/// The memory about the log that all programs share (`wal-index`).
pub(crate) struct Index<'a> {
    database: File<'a>,
    /// Its first region, which stays mapped as long as the connection is open.
    region: *mut u32,
}

impl<'a> Index<'a> {
    /// That of an open database; `None` for one without a log.
    pub(crate) fn of(connection: &'a Connection) -> rusqlite::Result<Option<Self>> {
        let Some(database) = File::database_of(connection)? else {
            return Ok(None);
        };
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

    /// The log up to its last commit; `None` if its format is unknown.
    pub(crate) fn log(&self) -> Option<Log> {
        if self.read(VERSION_AT) != INDEX_VERSION {
            return None;
        }
        let [_, _, low, high] = self.read(PAGE_SIZE_AT).to_ne_bytes();
        // 65536 is stored as 1.
        let page_bytes = match u16::from_ne_bytes([low, high]) {
            1 => 1 << 16,
            size => u64::from(size),
        };
        let mut salt = Salt::default();
        let (first, second) = salt.split_at_mut(4);
        first.copy_from_slice(&self.read(SALT_AT).to_ne_bytes());
        second.copy_from_slice(&self.read(SALT_AT + 1).to_ne_bytes());
        Some(Log {
            frames: u64::from(self.read(LENGTH_AT)),
            page_bytes,
            database_pages: u64::from(self.read(DATABASE_PAGES_AT)),
            salt,
        })
    }

    fn change_lock(&self, which: c_int, flags: c_int) -> rusqlite::Result<()> {
        let lock = self.database.methods.xShmLock.ok_or_else(missing_method)?;
        // SAFETY: the file is open, and its shared memory is mapped.
        check(unsafe { lock(self.database.file, which, 1, flags) })
    }

    /// Calls a function while the log does not restart.
    pub(crate) fn while_log_stays(
        &self,
        work: impl FnOnce() -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let is_shared = ffi::SQLITE_SHM_SHARED;
        self.change_lock(READ_LOCK, is_shared | ffi::SQLITE_SHM_LOCK)?;
        let result = work();
        self.change_lock(READ_LOCK, is_shared | ffi::SQLITE_SHM_UNLOCK)?;
        result
    }

    /// Has the next checkpoint copy all pages. A checkpoint that another program makes now is not waited for.
    pub(crate) fn count_none_as_copied(&self) -> rusqlite::Result<()> {
        if self.read(COPIED_AT) == 0 {
            return Ok(());
        }
        let is_exclusive = ffi::SQLITE_SHM_EXCLUSIVE;
        self.change_lock(CHECKPOINT_LOCK, is_exclusive | ffi::SQLITE_SHM_LOCK)?;
        self.number(COPIED_AT).store(0, Ordering::SeqCst);
        self.change_lock(CHECKPOINT_LOCK, is_exclusive | ffi::SQLITE_SHM_UNLOCK)
    }
}

/// The log after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    frames: u64,
    page_bytes: u64,
    database_pages: u64,
    salt: Salt,
}

impl Log {
    /// Its bytes up to the last commit.
    pub(crate) fn bytes(self) -> u64 {
        LOG_HEADER_BYTES + self.frames * (FRAME_HEADER_BYTES + self.page_bytes)
    }

    /// The offset of its last frame; there is one.
    fn last_frame(self) -> u64 {
        self.bytes() - self.page_bytes - FRAME_HEADER_BYTES
    }

    /// The bytes of the database when all of the log has been copied into it.
    pub(crate) fn database_bytes(self) -> u64 {
        self.database_pages * self.page_bytes
    }

    /// Whether another program has appended to the log, or has restarted it.
    fn has_changed(self, connection: &Connection) -> rusqlite::Result<bool> {
        Ok(Index::of(connection)?.and_then(|index| index.log()) != Some(self))
    }
}

/// Checks after a commit that the file begins with the header of the log, and that the commit follows the last frame of the log
/// `before` the transaction, unless the log has restarted since. Returns the log.
pub(crate) fn check_commit(
    connection: &Connection,
    before: Option<Log>,
) -> Result<Option<Log>, Error> {
    let check = || {
        let Some(log) = Index::of(connection)?.and_then(|index| index.log()) else {
            return Ok((None, true));
        };
        if log.frames == 0 {
            return Ok((Some(log), true));
        }
        let file = File::log_of(connection)?;
        let has_header = file.has_salt(log.salt, SALT_IN_LOG_HEADER)?;
        let before = before.filter(|before| before.frames > 0 && before.salt == log.salt);
        let is_complete = has_header
            && match before {
                Some(before) => {
                    file.has_salt(log.salt, before.last_frame() + SALT_IN_FRAME_HEADER)?
                }
                None => true,
            };
        Ok((Some(log), is_complete || log.has_changed(connection)?))
    };
    checked(check(), connection)
}

/// Checks that the file of the log is as long as all programs take it to be. Returns the log; `None` for a database without one.
pub(crate) fn check_length(connection: &Connection) -> Result<Option<Log>, Error> {
    let check = || {
        let Some(log) = Index::of(connection)?.and_then(|index| index.log()) else {
            return Ok((None, true));
        };
        let is_complete = log.frames == 0 || File::log_of(connection)?.length()? >= log.bytes();
        Ok((Some(log), is_complete || log.has_changed(connection)?))
    };
    checked(check(), connection)
}

/// The result of a check: the log, and whether its file has all of it.
fn checked(
    result: rusqlite::Result<(Option<Log>, bool)>,
    connection: &Connection,
) -> Result<Option<Log>, Error> {
    match result {
        Ok((log, true)) => Ok(log),
        Ok((_, false)) => {
            let path = generation::log_path(Path::new(connection.path().unwrap_or_default()));
            Err(Error::lost(&format!(
                "`{}` was truncated or overwritten while the instance ran",
                path.display()
            )))
        }
        Err(error) => Err(Error::new("cannot check the log", &error)),
    }
}
