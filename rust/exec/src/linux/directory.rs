//! The directory of a reaper or of a service: its lock, its log or journal, and its socket.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::{
    Flock, FlockType, Pid, PidfdFlags, Signal, fcntl_getlk, geteuid, pidfd_open, pidfd_send_signal,
};

use crate::Error;

pub(super) const LOG_FILE: &str = "log";
pub(super) const JOURNAL_FILE: &str = "journal";
/// The lock of the process that uses a directory.
pub(super) const LOCK_FILE: &str = "lock";
/// The lock of the process that takes the place of a killed reaper, held from the start of that reaper.
pub(super) const STANDBY_LOCK_FILE: &str = "standby";
/// The lock of the standby of the process that takes the place of a killed reaper.
pub(super) const SECOND_STANDBY_LOCK_FILE: &str = "second-standby";
/// The lock of a reaper and of the processes that it has created and that have not executed their programs.
const STARTS_LOCK_FILE: &str = "starts";
const SOCKET_FILE: &str = "socket";
const ERRORS_FILE: &str = "errors";
/// In a directory of output: the directory of its service.
const OWNER_FILE: &str = ".service";

/// The reaction to another process that holds the lock of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfLocked {
    /// Fails.
    Fail,
    /// Ends that process by SIGTERM, and waits until it has ended.
    EndHolder,
}

/// An open directory, of which one process at a time holds the lock.
#[derive(Debug)]
pub(super) struct Directory {
    folder: File,
    /// Its path, for error texts.
    name: String,
    /// The name of the append-only file.
    log: &'static str,
    /// Holds the lock until the process ends.
    lock: Option<File>,
}

/// Opens a directory that belongs to this user, and to which no other user has access.
pub(super) fn open_private(path: &Path) -> Result<File, Error> {
    open_own(path, 0o077, "700")
}

/// Opens a directory that belongs to this user, and in which no other user can make files.
pub(super) fn open_unwritable(path: &Path) -> Result<File, Error> {
    open_own(path, 0o022, "711")
}

/// Opens a directory that belongs to this user. None of the permissions may be `forbidden`; `expected` has some of those that are not.
fn open_own(path: &Path, forbidden: u32, expected: &str) -> Result<File, Error> {
    let name = path.display();
    let failed = |action: &str| {
        let action = format!("cannot {action} `{name}`");
        move |error: io::Error| Error::system(&action, &error)
    };
    let folder = open_folder(path, OFlags::empty()).map_err(failed("open directory"))?;
    let metadata = folder.metadata().map_err(failed("read directory"))?;
    let owner = geteuid().as_raw();
    if metadata.uid() != owner {
        let found = metadata.uid();
        let text = format!("directory `{name}` belongs to user {found}: expected {owner}");
        return Err(Error::directory(text));
    }
    if metadata.mode() & forbidden != 0 {
        let mode = metadata.mode() & 0o777;
        let text = format!("directory `{name}` has mode {mode:o}: expected {expected}");
        return Err(Error::directory(text));
    }
    Ok(folder)
}

/// Records in a directory of output that it is that of the service with this directory. Files of output are named by jobs: those
/// of two services would be mixed up.
pub(super) fn claim_output(output: &Path, service: &Path) -> Result<(), Error> {
    let file = output.join(OWNER_FILE);
    let failed =
        |error: io::Error| Error::system(&format!("cannot claim `{}`", file.display()), &error);
    let own = fs::canonicalize(service).map_err(failed)?;
    let own = own.as_os_str().as_bytes();
    match private(OpenOptions::new().write(true).create_new(true)).open(&file) {
        Ok(mut created) => return created.write_all(own).map_err(failed),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let found = fs::read(&file).map_err(failed)?;
    if found.is_empty() {
        // Another start was interrupted.
        return fs::write(&file, own).map_err(failed);
    }
    check_claim(output, &found, own)
}

/// Opens the directory of output of an earlier start of the service with this directory. Fails if another service has claimed the
/// path since.
pub(super) fn open_former_output(output: &Path, service: &Path) -> Result<File, Error> {
    let folder = open_private(output)?;
    let file = output.join(OWNER_FILE);
    let failed =
        |error: io::Error| Error::system(&format!("cannot read `{}`", file.display()), &error);
    let own = fs::canonicalize(service).map_err(failed)?;
    match fs::read(&file) {
        // The directory in that of the service has no such file.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
        Ok(found) => check_claim(output, &found, own.as_os_str().as_bytes())?,
    }
    Ok(folder)
}

/// Checks that a directory of output is that of the service in `own`.
fn check_claim(output: &Path, found: &[u8], own: &[u8]) -> Result<(), Error> {
    if found == own {
        return Ok(());
    }
    let text = format!(
        "directory `{}` has the output of the service in `{}`, not of that in `{}`: name another one, or remove `{}` if that \
         service has moved",
        output.display(),
        String::from_utf8_lossy(found),
        String::from_utf8_lossy(own),
        output.join(OWNER_FILE).display(),
    );
    Err(Error::other_owner(text))
}

impl Directory {
    /// Opens and checks a directory. `log` is the name of its append-only file.
    pub(super) fn open(path: &Path, log: &'static str) -> Result<Self, Error> {
        Ok(Self {
            folder: open_private(path)?,
            name: path.display().to_string(),
            log,
            lock: None,
        })
    }

    /// Locks the directory by one of its lock files until this process ends. `user` describes the processes that use it.
    ///
    /// The lock is a POSIX record lock: the kernel tells which process holds it, so that a pid that was reused since
    /// is never signalled. Such a lock ends with the first descriptor of the file that the process closes; the file is
    /// opened nowhere else.
    pub(super) fn lock(
        &mut self,
        file: &str,
        user: &str,
        if_locked: IfLocked,
    ) -> Result<(), Error> {
        let action = format!("cannot lock directory `{}`", self.name);
        let failed = |error: io::Error| Error::system(&action, &error);
        let options = private(OpenOptions::new().read(true).write(true).create(true));
        let mut lock = options.open(self.path(file)).map_err(failed)?;
        loop {
            match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::AGAIN | Errno::ACCESS) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
            let holder = match lock_holder(&lock).map_err(|errno| failed(errno.into()))? {
                LockHolder::None => continue,
                LockHolder::Process(pid) if if_locked == IfLocked::EndHolder => {
                    end_holder(&lock, pid).map_err(|errno| failed(errno.into()))?;
                    continue;
                }
                LockHolder::Process(pid) => format!("pid {pid}"),
                LockHolder::Invisible => "on another host or in another PID namespace".to_owned(),
            };
            let name = &self.name;
            let text = format!("another {user} ({holder}) uses directory `{name}`");
            return Err(Error::directory(text));
        }
        // For people: the lock itself tells the pid.
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(failed)?;
        self.lock = Some(lock);
        Ok(())
    }

    /// The process that uses the directory. This process must not have its lock.
    pub(super) fn user(&self) -> io::Result<Option<crate::types::Pid>> {
        let lock = match File::open(self.path(LOCK_FILE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            lock => lock?,
        };
        Ok(match lock_holder(&lock)? {
            LockHolder::Process(pid) => {
                let pid = pid.as_raw_nonzero().get();
                Some(crate::types::Pid(pid.cast_unsigned()))
            }
            LockHolder::None | LockHolder::Invisible => None,
        })
    }

    /// Waits until no process of an earlier reaper is about to record a start in the log. The lock that is returned is
    /// inherited by the processes that this process creates, and ends when all of them have executed a program or ended.
    pub(super) fn lock_starts(&self) -> io::Result<File> {
        let options = private(OpenOptions::new().write(true).create(true));
        let lock = options.open(self.path(STARTS_LOCK_FILE))?;
        loop {
            match flock(&lock, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                result => return Ok(result.map(|()| lock)?),
            }
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        entry(&self.folder, name)
    }

    /// Reads the append-only file; `None` if there is none or it is empty.
    fn read_log(&self) -> Result<Option<Vec<u8>>, Error> {
        match fs::read(self.path(self.log)) {
            Ok(bytes) if bytes.is_empty() => Ok(None),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let action = format!("cannot read the {}", self.log);
                Err(Error::system(&action, &error))
            }
        }
    }

    /// Reads the append-only file by `decode`; `None` if there is none or it is empty. An error names the file.
    pub(super) fn decode_log<T>(
        &self,
        decode: impl FnOnce(&[u8]) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let path = Path::new(&self.name).join(self.log);
        let contents = self.read_log()?.map(|bytes| decode(&bytes));
        contents.transpose().map_err(|error| error.in_file(&path))
    }

    pub(super) fn open_log(&self) -> io::Result<File> {
        private(OpenOptions::new().append(true).create(true)).open(self.path(self.log))
    }

    /// Replaces the log atomically: the new one is on disk before it is renamed.
    pub(super) fn replace_log(&self, contents: &[u8]) -> io::Result<File> {
        let new = self.path(&format!("{}.new", self.log));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut log = private(OpenOptions::new().append(true).create_new(true)).open(&new)?;
        let replace = |log: &mut File| {
            log.write_all(contents)?;
            log.sync_all()?;
            fs::rename(&new, self.path(self.log))
        };
        if let Err(error) = replace(&mut log) {
            // Its part takes space that the log may need.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        // The new log is in use now, whether or not a power failure would bring back the old one.
        let _ = self.folder.sync_all();
        Ok(log)
    }

    pub(super) fn open_errors(&self) -> io::Result<File> {
        private(OpenOptions::new().append(true).create(true)).open(self.path(ERRORS_FILE))
    }

    /// Listens on the socket, and replaces one that an earlier reaper has left.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        self.remove_socket()?;
        let listener = UnixListener::bind(self.path(SOCKET_FILE))?;
        fs::set_permissions(self.path(SOCKET_FILE), Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    pub(super) fn remove_socket(&self) -> io::Result<()> {
        match fs::remove_file(self.path(SOCKET_FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

enum LockHolder {
    None,
    Process(Pid),
    /// A process that has no pid here.
    Invisible,
}

fn lock_holder(lock: &File) -> Result<LockHolder, Errno> {
    let held = fcntl_getlk(lock, &Flock::from(FlockType::WriteLock))?;
    let is_visible = |pid: &Pid| pid.as_raw_nonzero().get() > 0;
    Ok(match held {
        None => LockHolder::None,
        Some(held) => match held.pid.filter(is_visible) {
            Some(pid) => LockHolder::Process(pid),
            None => LockHolder::Invisible,
        },
    })
}

/// Sends SIGTERM to the process that holds a lock, and waits until it has ended. Returns at once if it no longer holds
/// the lock.
fn end_holder(lock: &File, pid: Pid) -> Result<(), Errno> {
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        process => process?,
    };
    // The descriptor is opened first: if the pid then still holds the lock, the descriptor refers to the holder, or to a
    // process that has ended and receives no signal.
    match lock_holder(lock)? {
        LockHolder::Process(holder) if holder == pid => {}
        _ => return Ok(()),
    }
    // A stopped process does not end by SIGTERM until it continues.
    for signal in [Signal::TERM, Signal::CONT] {
        match pidfd_send_signal(&process, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno),
        }
    }
    loop {
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// The path of a file in an open directory, short enough for a socket address.
fn entry(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

/// Whether a standby of a reaper of this directory runs: the reaper runs too, or the standby is about to take its
/// place, or both are about to end.
pub(super) fn has_standby(directory: &Path) -> io::Result<bool> {
    let standbys = standbys(directory)?;
    Ok(standbys
        .iter()
        .any(|holder| !matches!(holder, LockHolder::None)))
}

/// The standbys of a reaper, the last to end first.
fn standbys(directory: &Path) -> io::Result<[LockHolder; 2]> {
    let folder = open_folder(directory, OFlags::PATH)?;
    let holder = |file| match File::open(entry(&folder, file)) {
        Ok(lock) => Ok(lock_holder(&lock)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(LockHolder::None),
        Err(error) => Err(error),
    };
    Ok([
        holder(SECOND_STANDBY_LOCK_FILE)?,
        holder(STANDBY_LOCK_FILE)?,
    ])
}

/// Waits for the end of the standbys of a reaper that is ending, at most for this time for each.
pub(super) fn wait_for_standby_end(directory: &Path, timeout: Timespec) -> io::Result<()> {
    for standby in standbys(directory)? {
        let LockHolder::Process(pid) = standby else {
            continue;
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => {}
            process => {
                poll(&mut [PollFd::new(&process?, PollFlags::IN)], Some(&timeout))?;
            }
        }
    }
    Ok(())
}

/// Connects to the reaper of a directory, whatever the length of its path.
pub(super) fn connect(directory: &Path) -> io::Result<UnixStream> {
    let folder = open_folder(directory, OFlags::PATH)?;
    UnixStream::connect(entry(&folder, SOCKET_FILE))
}

fn open_folder(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).unwrap_or(libc::O_DIRECTORY);
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Writes a file that its user alone can read.
pub(crate) fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file =
        private(OpenOptions::new().write(true).create(true).truncate(true)).open(path)?;
    file.write_all(contents)
}

fn private(options: &mut OpenOptions) -> OpenOptions {
    options.mode(0o600).clone()
}
