//! The file system of `SQLite` in this process: the [`Disk`] of the current thread.
//!
//! [`register`] makes it the default, so the production store opens its database on it as it does on a real file system.
//! Files, locks and the shared memory of WAL mode follow `sqlite3.h`; a second connection of the same run sees the
//! locks of the first one.
#![expect(
    unsafe_code,
    reason = "SQLite calls its file system through C functions with raw pointers"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, Once, PoisonError};

use rusqlite::ffi;

use crate::disk::{Disk, Fault};
use crate::turns;

/// The lock of WAL mode that a writer holds (`WAL_WRITE_LOCK`).
const WRITE_LOCK: usize = 0;
const LOCKS: usize = ffi::SQLITE_SHM_NLOCK as usize;
/// The longest name of a file.
const MAX_NAME_BYTES: c_int = 256;
/// 2026-01-01 in the unit of `xCurrentTimeInt64`, milliseconds of the Julian day.
const JULIAN_MS: i64 = 211_833_446_400_000;

type Connection = u64;

/// One lock of the shared memory.
#[derive(Default)]
struct SharedLock {
    exclusive: Option<Connection>,
    shared: BTreeSet<Connection>,
}

impl SharedLock {
    /// Whether no other connection holds it exclusively.
    fn can_share(&self, connection: Connection) -> bool {
        self.exclusive.is_none_or(|holder| holder == connection)
    }

    /// Whether no other connection holds it.
    fn can_take(&self, connection: Connection) -> bool {
        let mut shared = self.shared.iter();
        self.can_share(connection) && shared.all(|holder| *holder == connection)
    }
}

/// The locks of a database and its shared memory.
#[derive(Default)]
struct Locks {
    levels: BTreeMap<Connection, c_int>,
    regions: Vec<Box<[u64]>>,
    shared: [SharedLock; LOCKS],
}

#[derive(Default)]
struct FileSystem {
    disk: Disk,
    locks: BTreeMap<String, Locks>,
    last_connection: Connection,
}

thread_local! {
    /// That of this run, which the thread of a copy shares.
    static FILE_SYSTEM: RefCell<Arc<Mutex<FileSystem>>> = RefCell::default();
}

/// The file system of a thread.
#[derive(Clone)]
pub struct Handover(Arc<Mutex<FileSystem>>);

/// The file system of this thread, for another one of the same run.
pub fn hand_over() -> Handover {
    Handover(FILE_SYSTEM.with_borrow(Arc::clone))
}

impl Handover {
    /// Makes it the file system of this thread.
    pub fn take(self) {
        FILE_SYSTEM.set(self.0);
    }
}

fn with_system<T>(work: impl FnOnce(&mut FileSystem) -> T) -> T {
    let system = FILE_SYSTEM.with_borrow(Arc::clone);
    // A panic is reported by the run.
    let mut system = system.lock().unwrap_or_else(PoisonError::into_inner);
    work(&mut system)
}

/// Calls a function with the disk of this thread.
pub fn with_disk<T>(work: impl FnOnce(&mut Disk) -> T) -> T {
    with_system(|system| work(&mut system.disk))
}

/// Syncs a file by a descriptor that `SQLite` does not have.
///
/// # Errors
///
/// A fault is armed, or the process is killed.
pub fn sync_file(name: &str) -> Result<(), Fault> {
    turns::pause();
    with_disk(|disk| disk.sync(name))
}

/// Replaces the disk of this thread by an empty one. No connection to a database on it may be open.
pub fn format_disk() {
    FILE_SYSTEM.take();
}

/// An open file, as `SQLite` has it.
#[repr(C)]
struct OpenFile {
    base: ffi::sqlite3_file,
    /// Made by `Box::into_raw` in `open`, freed in `close`.
    handle: *mut Handle,
}

struct Handle {
    name: String,
    connection: Connection,
    is_temporary: bool,
    is_read_only: bool,
}

impl Handle {
    /// The bytes of a file that is open for reading are not changed.
    fn check_writable(&self) -> Result<(), Fault> {
        if self.is_read_only {
            return Err(Fault::InputOutput);
        }
        Ok(())
    }
}

fn code(result: Result<(), Fault>) -> c_int {
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(Fault::Full) => ffi::SQLITE_FULL,
        Err(Fault::InputOutput | Fault::Killed) => ffi::SQLITE_IOERR,
    }
}

fn offset(at: ffi::sqlite3_int64) -> usize {
    usize::try_from(at).unwrap_or(0)
}

/// Calls a function with the open file's handle and the file system.
///
/// # Safety
///
/// `file` is a pointer that `open` has filled and `close` has not freed.
unsafe fn with<T>(
    file: *mut ffi::sqlite3_file,
    work: impl FnOnce(&Handle, &mut FileSystem) -> T,
) -> T {
    // SAFETY: `open` has put a handle into the file, and only `close` frees it.
    let handle = unsafe { &*(*file.cast::<OpenFile>()).handle };
    with_system(|system| work(handle, system))
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and `open` has made its handle by `Box::into_raw`.
    let handle = unsafe { Box::from_raw((*file.cast::<OpenFile>()).handle) };
    with_system(|system| {
        if let Some(locks) = system.locks.get_mut(&handle.name) {
            locks.levels.remove(&handle.connection);
        }
        if handle.is_temporary {
            // A killed process leaves it; no other one has the name.
            let _ = system.disk.remove(&handle.name);
        }
    });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    length: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes a buffer of this length.
    let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), offset(length.into())) };
    // SAFETY: as for every method of an open file.
    let result = unsafe {
        with(file, |handle, system| {
            system.disk.read(&handle.name, offset(at), into)
        })
    };
    match result {
        Ok(read) if read == into.len() => ffi::SQLITE_OK,
        Ok(read) => {
            if let Some(rest) = into.get_mut(read..) {
                rest.fill(0);
            }
            ffi::SQLITE_IOERR_SHORT_READ
        }
        Err(_) => ffi::SQLITE_IOERR,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    turns::pause();
    // SAFETY: SQLite passes a buffer of this length.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), offset(length.into())) };
    // SAFETY: as for every method of an open file.
    unsafe {
        with(file, |handle, system| {
            let written = handle.check_writable();
            code(written.and_then(|()| system.disk.write(&handle.name, offset(at), from)))
        })
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: as for every method of an open file.
    unsafe {
        with(file, |handle, system| {
            let truncated = handle.check_writable();
            code(truncated.and_then(|()| system.disk.truncate(&handle.name, offset(size))))
        })
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    turns::pause();
    // SAFETY: as for every method of an open file.
    unsafe { with(file, |handle, system| code(system.disk.sync(&handle.name))) }
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: as for every method of an open file; SQLite passes a place for the result.
    unsafe {
        *size = with(file, |handle, system| {
            i64::try_from(system.disk.len(&handle.name)).unwrap_or(i64::MAX)
        });
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let take = |handle: &Handle, system: &mut FileSystem| {
        if level > ffi::SQLITE_LOCK_SHARED && handle.is_read_only {
            return ffi::SQLITE_IOERR;
        }
        let locks = system.locks.entry(handle.name.clone()).or_default();
        let mut others = locks
            .levels
            .iter()
            .filter(|(other, _)| **other != handle.connection);
        let greatest = if level == ffi::SQLITE_LOCK_EXCLUSIVE {
            ffi::SQLITE_LOCK_NONE
        } else if level == ffi::SQLITE_LOCK_SHARED {
            ffi::SQLITE_LOCK_RESERVED
        } else {
            ffi::SQLITE_LOCK_SHARED
        };
        if others.any(|(_, other)| *other > greatest) {
            return ffi::SQLITE_BUSY;
        }
        let own = locks.levels.entry(handle.connection).or_default();
        *own = level.max(*own);
        ffi::SQLITE_OK
    };
    // SAFETY: as for every method of an open file.
    unsafe { with(file, take) }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let release = |handle: &Handle, system: &mut FileSystem| {
        let locks = system.locks.entry(handle.name.clone()).or_default();
        locks.levels.insert(handle.connection, level);
        ffi::SQLITE_OK
    };
    // SAFETY: as for every method of an open file.
    unsafe { with(file, release) }
}

unsafe extern "C" fn check_reserved_lock(
    file: *mut ffi::sqlite3_file,
    result: *mut c_int,
) -> c_int {
    let is_reserved = |handle: &Handle, system: &mut FileSystem| {
        let locks = system.locks.entry(handle.name.clone()).or_default();
        locks
            .levels
            .values()
            .any(|level| *level >= ffi::SQLITE_LOCK_RESERVED)
    };
    // SAFETY: as for every method of an open file; SQLite passes a place for the result.
    unsafe {
        *result = with(file, is_reserved).into();
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    _file: *mut ffi::sqlite3_file,
    _operation: c_int,
    _argument: *mut c_void,
) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    // The file system of Unix says the same by default.
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    result: *mut *mut c_void,
) -> c_int {
    let map = |handle: &Handle, system: &mut FileSystem| {
        let locks = system.locks.entry(handle.name.clone()).or_default();
        let (region, words) = (
            offset(region.into()),
            offset(bytes.into()) / size_of::<u64>(),
        );
        if extend != 0 {
            while locks.regions.len() <= region {
                locks.regions.push(vec![0; words].into_boxed_slice());
            }
        }
        let found = locks.regions.get_mut(region);
        found.map_or(ptr::null_mut(), |region| {
            region.as_mut_ptr().cast::<c_void>()
        })
    };
    // SAFETY: as for every method of an open file; SQLite passes a place for the result. The boxed region neither moves
    // nor ends before the last connection has unmapped it.
    unsafe {
        *result = with(file, map);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    let is_exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
    let change = |handle: &Handle, system: &mut FileSystem| {
        let is_busy = system.disk.faults.is_busy;
        let locks = system.locks.entry(handle.name.clone()).or_default();
        let first = offset(first.into());
        let range = first..first + offset(count.into());
        let is_held_outside = is_busy && is_exclusive && range.contains(&WRITE_LOCK);
        let Some(slots) = locks.shared.get_mut(range) else {
            return ffi::SQLITE_IOERR;
        };
        let own = handle.connection;
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            for slot in slots {
                slot.shared.remove(&own);
                slot.exclusive.take_if(|holder| *holder == own);
            }
            return ffi::SQLITE_OK;
        }
        let is_free = |slot: &SharedLock| {
            if is_exclusive {
                slot.can_take(own)
            } else {
                slot.can_share(own)
            }
        };
        if is_held_outside || !slots.iter().all(is_free) {
            return ffi::SQLITE_BUSY;
        }
        for slot in slots {
            if is_exclusive {
                slot.exclusive = Some(own);
            } else {
                slot.shared.insert(own);
            }
        }
        ffi::SQLITE_OK
    };
    // SAFETY: as for every method of an open file.
    unsafe { with(file, change) }
}

unsafe extern "C" fn shm_barrier(_file: *mut ffi::sqlite3_file) {}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _delete: c_int) -> c_int {
    let unmap = |handle: &Handle, system: &mut FileSystem| {
        let Some(locks) = system.locks.get_mut(&handle.name) else {
            return;
        };
        for slot in &mut locks.shared {
            slot.shared.remove(&handle.connection);
            slot.exclusive
                .take_if(|holder| *holder == handle.connection);
        }
        // The file of this connection is still open: another one in the table still uses the memory.
        if locks.levels.keys().all(|other| *other == handle.connection) {
            locks.regions.clear();
        }
    };
    // SAFETY: as for every method of an open file.
    unsafe { with(file, unmap) };
    ffi::SQLITE_OK
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// # Safety
///
/// `name` is null or a string that ends with a NUL.
unsafe fn text(name: *const c_char) -> Option<String> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) };
    Some(name.to_string_lossy().into_owned())
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let file = file.cast::<OpenFile>();
    // SAFETY: SQLite passes memory of `szOsFile` bytes. Without methods it does not close a file that failed to open.
    unsafe {
        (*file).base.pMethods = ptr::null();
    }
    // SAFETY: SQLite passes null, for a temporary file, or a name.
    let name = unsafe { text(name) };
    let handle = with_system(|system| {
        system.last_connection += 1;
        let connection = system.last_connection;
        let is_temporary = name.is_none() || flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0;
        let name = name.unwrap_or_else(|| format!("temporary-{connection}"));
        if !system.disk.exists(&name) {
            if flags & ffi::SQLITE_OPEN_CREATE == 0 {
                return None;
            }
            system.disk.create(&name).ok()?;
        }
        let locks = system.locks.entry(name.clone()).or_default();
        locks.levels.insert(connection, ffi::SQLITE_LOCK_NONE);
        Some(Handle {
            name,
            connection,
            is_temporary,
            is_read_only: flags & ffi::SQLITE_OPEN_READONLY != 0,
        })
    });
    let Some(handle) = handle else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: as above; the place for the flags may be null.
    unsafe {
        (*file).handle = Box::into_raw(Box::new(handle));
        (*file).base.pMethods = &raw const METHODS;
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _sync: c_int,
) -> c_int {
    // SAFETY: SQLite passes a name.
    let name = unsafe { text(name) }.unwrap_or_default();
    code(with_disk(|disk| disk.remove(&name)))
}

unsafe extern "C" fn access(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    result: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes a name, and a place for the result.
    unsafe {
        let name = text(name).unwrap_or_default();
        *result = with_disk(|disk| disk.exists(&name)).into();
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    length: c_int,
    into: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes a name, and a buffer of `length` bytes.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if bytes.len() > offset(length.into()) {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr().cast(), into, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(
    _vfs: *mut ffi::sqlite3_vfs,
    length: c_int,
    into: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes a buffer of this length.
    let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), offset(length.into())) };
    into.fill(0x5a);
    length
}

unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    // Time is virtual: the wait for a lock is over at once.
    microseconds
}

unsafe extern "C" fn current_time_ms(
    _vfs: *mut ffi::sqlite3_vfs,
    result: *mut ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes a place for the result.
    unsafe {
        *result = JULIAN_MS;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(
    _vfs: *mut ffi::sqlite3_vfs,
    _length: c_int,
    _into: *mut c_char,
) -> c_int {
    0
}

/// Makes the file system the default of `SQLite` in this process.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let vfs = ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: c_int::try_from(size_of::<OpenFile>()).unwrap_or(c_int::MAX),
            mxPathname: MAX_NAME_BYTES,
            pNext: ptr::null_mut(),
            zName: c"penstock-dst".as_ptr(),
            pAppData: ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: None,
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: Some(current_time_ms),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        };
        // SAFETY: SQLite keeps the pointer, and the structure is never freed.
        let result = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 1) };
        assert_eq!(result, ffi::SQLITE_OK, "SQLite takes a file system");
    });
}

/// Opens a database for reading, as another program does, with a snapshot of it.
///
/// # Errors
///
/// The database cannot be read now.
pub fn open_snapshot(path: &str) -> rusqlite::Result<rusqlite::Connection> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(path, flags)?;
    connection.execute_batch("BEGIN; SELECT count(*) FROM store")?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;
    use std::path::Path;

    use penstock_store::{Commit, LogLimits, Store, Synchronous};

    use super::*;
    use crate::disk::Faults;
    use crate::random::Random;

    fn open() -> Result<Store, penstock_store::Error> {
        register();
        Store::open_without_counter(Path::new("/store"), Synchronous::Full)
    }

    #[test]
    fn a_committed_value_survives_a_power_failure_and_another_does_not() {
        for seed in 0..50 {
            format_disk();
            let mut store = open().unwrap();
            store.set_meta("committed", "1").unwrap();
            store.commit().unwrap();
            store.set_meta("open", "1").unwrap();
            with_disk(Disk::kill);
            drop(store);
            with_disk(|disk| {
                disk.revive();
                disk.lose_power(&mut Random::new(seed));
            });
            let store = open().unwrap();
            assert_eq!(store.meta("committed").unwrap().as_deref(), Some("1"));
            assert_eq!(store.meta("open").unwrap(), None);
        }
    }

    #[test]
    fn a_second_connection_sees_commits_and_the_lock_of_a_writer() {
        format_disk();
        let (mut first, mut second) = (open().unwrap(), open().unwrap());
        first.set_meta("a", "1").unwrap();
        assert!(second.set_meta("a", "2").unwrap_err().is_busy());
        first.commit().unwrap();
        assert_eq!(second.meta("a").unwrap().as_deref(), Some("1"));
        second.set_meta("a", "2").unwrap();
        second.commit().unwrap();
        assert_eq!(first.meta("a").unwrap().as_deref(), Some("2"));
    }

    #[test]
    fn armed_faults_are_reported_by_their_kind() {
        format_disk();
        let mut store = open().unwrap();
        with_disk(|disk| disk.faults.is_busy = true);
        assert!(store.set_meta("a", "1").unwrap_err().is_busy());
        with_disk(|disk| disk.faults.is_busy = false);
        store.set_meta("a", "1").unwrap();
        with_disk(|disk| disk.faults.is_full = true);
        let long = "1".repeat(100_000);
        let full = store
            .set_meta("b", &long)
            .and_then(|()| store.commit().map(drop));
        assert!(full.unwrap_err().is_disk_full());
        store.roll_back().unwrap();
        with_disk(|disk| disk.faults.is_full = false);
        store.set_meta("c", "1").unwrap();
        with_disk(|disk| disk.faults.error_after = Some(1));
        assert!(store.commit().unwrap_err().is_input_output());
    }

    #[test]
    fn a_commit_whose_sync_has_failed_is_not_found_in_the_log() {
        format_disk();
        let mut store = open().unwrap();
        store.set_meta("a", "1").unwrap();
        store.commit().unwrap();
        store.set_meta("b", "1").unwrap();
        with_disk(|disk| disk.faults.sync_error_after = Some(0));
        assert!(store.commit().unwrap_err().is_input_output());
        assert!(!store.has_doubtful_commit());
        with_disk(Disk::kill);
        drop(store);
        with_disk(Disk::revive);
        let store = open().unwrap();
        assert_eq!(store.meta("a").unwrap().as_deref(), Some("1"));
        assert_eq!(store.meta("b").unwrap(), None);
    }

    #[test]
    fn a_reader_keeps_its_snapshot_and_writes_nothing() {
        format_disk();
        let mut store = open().unwrap();
        store.set_meta("a", "1").unwrap();
        store.commit().unwrap();
        let reader = open_snapshot("/store").unwrap();
        store.set_meta("a", "2").unwrap();
        store.commit().unwrap();
        let seen = |reader: &rusqlite::Connection| -> String {
            let query = "SELECT value FROM meta WHERE key = 'a'";
            reader.query_row(query, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(seen(&reader), "1");
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(seen(&reader), "2");
        assert!(reader.execute_batch("DELETE FROM meta").is_err());
    }

    /// A store whose commits are synced apart.
    fn open_slow() -> Store {
        let mut store = open().unwrap();
        store.sync_log_by(Path::new("/store-wal"), || {
            sync_file("/store-wal").map_err(|fault| io::Error::other(format!("{fault:?}")))
        });
        store
    }

    #[test]
    fn a_commit_that_is_synced_apart_survives_a_power_failure_after_the_sync() {
        for (is_synced, seed) in [(true, 0), (true, 1), (false, 0)] {
            format_disk();
            let mut store = open_slow();
            store.set_meta("a", "1").unwrap();
            store.commit().unwrap();
            store.set_meta("b", "1").unwrap();
            assert_eq!(store.begin_commit().unwrap(), Commit::Syncing);
            if is_synced {
                assert!(store.finish_sync().unwrap());
            }
            with_disk(|disk| assert_eq!(disk.has_unsynced("/store-wal"), !is_synced));
            lose_power_of(store, seed);
            let store = open().unwrap();
            assert_eq!(store.meta("a").unwrap().as_deref(), Some("1"));
            if is_synced {
                assert_eq!(store.meta("b").unwrap().as_deref(), Some("1"));
            }
        }
    }

    /// Sets values, each of which fills a page.
    fn set_values(store: &mut Store, letter: &str) {
        for number in 0..8 {
            let key = format!("key {number}");
            store.set_meta(&key, &letter.repeat(3000)).unwrap();
        }
    }

    #[test]
    fn a_commit_whose_sync_has_failed_is_whole_or_absent_after_a_power_failure_during_the_close() {
        for operations in 0..30 {
            for seed in 0..10 {
                format_disk();
                let mut store = open_slow();
                store.set_log_limits(LogLimits {
                    piece: 1,
                    restart: 2,
                    rest: 8,
                    max: 64,
                });
                for letter in ["a", "b", "c", "d"] {
                    set_values(&mut store, letter);
                    store.commit().unwrap();
                    store.run_due_checkpoint();
                }
                set_values(&mut store, "e");
                assert_eq!(store.begin_commit().unwrap(), Commit::Syncing);
                with_disk(|disk| disk.faults.sync_error_after = Some(0));
                assert!(store.finish_sync().is_err());
                with_disk(|disk| disk.faults.kill_after = Some(operations));
                drop(store);
                with_disk(|disk| {
                    disk.revive();
                    disk.lose_power(&mut Random::new(seed));
                });
                let store = open().unwrap();
                let values = (0..8).map(|number| store.meta(&format!("key {number}")).unwrap());
                let values: BTreeSet<_> = values
                    .flatten()
                    .map(|value| value[..1].to_owned())
                    .collect();
                let is_whole = values.len() == 1
                    && values.is_subset(&BTreeSet::from(["d".to_owned(), "e".to_owned()]));
                assert!(is_whole, "{operations} operations, seed {seed}: {values:?}");
            }
        }
    }

    #[test]
    fn nothing_is_read_or_committed_after_a_sync_apart_has_failed() {
        format_disk();
        let mut store = open_slow();
        store.set_meta("a", "1").unwrap();
        store.commit().unwrap();
        store.set_meta("b", "1").unwrap();
        assert_eq!(store.begin_commit().unwrap(), Commit::Syncing);
        store.set_meta("c", "1").unwrap();
        with_disk(|disk| disk.faults.sync_error_after = Some(0));
        assert!(store.finish_sync().unwrap_err().is_input_output());
        assert!(store.has_doubtful_commit());
        assert!(store.commit().unwrap_err().is_input_output());
        let reader = store.reopen_for_reading(Path::new("/store"));
        assert!(reader.unwrap_err().is_input_output());
        // The next start makes durable what it finds.
        for seed in 0..20 {
            lose_power_of(open().unwrap(), seed);
            let store = open().unwrap();
            assert_eq!(store.meta("b").unwrap().as_deref(), Some("1"));
            assert_eq!(store.meta("c").unwrap(), None);
        }
    }

    /// Ends the process that uses a store, and then the power fails.
    fn lose_power_of(store: Store, seed: u64) {
        with_disk(Disk::kill);
        drop(store);
        with_disk(|disk| {
            disk.revive();
            disk.lose_power(&mut Random::new(seed));
        });
    }

    #[test]
    fn a_commit_that_follows_pages_of_a_failed_sync_survives_a_power_failure() {
        for seed in 0..20 {
            drop_killed(store_with_doubtful_commit());
            // It recovers the log, and keeps it from restarting.
            let reader = open_snapshot("/store").unwrap();
            let mut store = open().unwrap();
            store.set_meta("c", "1").unwrap();
            store.commit().unwrap();
            drop(reader);
            lose_power_of(store, seed);
            let store = open().unwrap();
            assert_eq!(store.meta("a").unwrap().as_deref(), Some("1"));
            assert_eq!(
                store.meta("c").unwrap().as_deref(),
                Some("1"),
                "seed {seed}"
            );
        }
    }

    /// A store with a value whose commit has failed, and could not be overwritten.
    fn store_with_doubtful_commit() -> Store {
        format_disk();
        let mut store = open().unwrap();
        store.set_meta("a", "1").unwrap();
        store.commit().unwrap();
        store.set_meta("b", "1").unwrap();
        with_disk(|disk| {
            disk.faults.sync_error_after = Some(0);
            disk.faults.failing_after_sync = 8;
        });
        assert!(store.commit().unwrap_err().is_input_output());
        assert!(store.has_doubtful_commit());
        store
    }

    #[test]
    fn a_commit_that_is_not_durable_is_not_read_in_place_of_the_failed_store() {
        let mut store = store_with_doubtful_commit();
        let reader = store.reopen_for_reading(Path::new("/store")).unwrap();
        assert_eq!(reader.meta("a").unwrap().as_deref(), Some("1"));
        assert_eq!(reader.meta("b").unwrap(), None);
        // It is closed now: the next one would look for the log in its file.
        drop(reader);
        let again = store.reopen_for_reading(Path::new("/store"));
        assert!(again.unwrap_err().is_input_output());
    }

    #[test]
    fn a_commit_that_a_new_writer_has_not_seen_is_not_found_later() {
        let mut store = store_with_doubtful_commit();
        let reader = store.reopen_for_reading(Path::new("/store")).unwrap();
        with_disk(|disk| disk.faults = Faults::default());
        Store::check_writable(Path::new("/store")).unwrap();
        let next = open().unwrap();
        assert_eq!(next.meta("b").unwrap(), None);
        with_disk(Disk::kill);
        drop((next, reader));
        with_disk(Disk::revive);
        let store = open().unwrap();
        assert_eq!(store.meta("a").unwrap().as_deref(), Some("1"));
        assert_eq!(store.meta("b").unwrap(), None);
    }

    #[test]
    fn a_log_that_is_found_while_another_program_writes_is_durable_before_it_is_read() {
        for seed in 0..20 {
            drop_killed(store_with_doubtful_commit());
            // It recovers the log.
            let reader = open_snapshot("/store").unwrap();
            with_disk(|disk| disk.faults.is_busy = true);
            let store = open().unwrap();
            assert_eq!(store.meta("b").unwrap().as_deref(), Some("1"));
            drop(reader);
            lose_power_of(store, seed);
            with_disk(|disk| disk.faults.is_busy = false);
            let store = open().unwrap();
            assert_eq!(
                store.meta("b").unwrap().as_deref(),
                Some("1"),
                "seed {seed}"
            );
        }
    }

    /// Ends the process that uses a store, and the faults.
    fn drop_killed(store: Store) {
        with_disk(Disk::kill);
        drop(store);
        with_disk(|disk| {
            disk.revive();
            disk.faults = Faults::default();
        });
    }

    #[test]
    fn pages_whose_copy_was_not_synced_are_copied_again_while_another_program_reads() {
        format_disk();
        let mut store = open().unwrap();
        let piece = LogLimits {
            piece: 1,
            restart: 1 << 10,
            rest: 1,
            max: 1 << 10,
        };
        store.set_log_limits(piece);
        store.sync_copies_by(Path::new("/store"), || Err(io::Error::other("I/O error")));
        for key in ["a", "b", "c"] {
            store.set_meta(key, "1").unwrap();
            store.commit().unwrap();
        }
        let reader = open_snapshot("/store").unwrap();
        store.set_meta("d", "1").unwrap();
        store.commit().unwrap();
        store.run_due_checkpoint();
        assert!(store.commit().is_ok());
        store.set_meta("e", "1").unwrap();
        assert!(store.commit().unwrap_err().is_input_output());
        with_disk(|disk| {
            disk.faults.sync_error_after = Some(0);
            assert!(disk.sync("/store").is_err());
        });
        drop(store);
        let mut store = open().unwrap();
        drop(reader);
        store.set_log_limits(piece);
        for key in ["f", "g", "h"] {
            store.set_meta(key, "1").unwrap();
            store.commit().unwrap();
            store.run_due_checkpoint();
        }
        lose_power_of(store, 1);
        let store = open().unwrap();
        for key in ["a", "b", "c", "d", "f", "g", "h"] {
            assert_eq!(store.meta(key).unwrap().as_deref(), Some("1"), "{key}");
        }
    }
}
