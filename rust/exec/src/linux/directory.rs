//! The directory of a reaper or of a service: its lock, its log or journal, and its socket.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

use crate::Error;

pub(super) const LOG: &str = "log";
pub(super) const JOURNAL: &str = "journal";
const LOCK: &str = "lock";
const SOCKET: &str = "socket";
const ERRORS: &str = "errors";

/// A directory, open and locked.
#[derive(Debug)]
pub(super) struct Directory {
    folder: File,
    /// The name of the append-only file.
    log: &'static str,
    /// Holds the lock until the process ends.
    _lock: File,
}

impl Directory {
    /// Checks and locks a directory. `log` is the name of its append-only file, and `user` what uses it.
    pub(super) fn open(path: &Path, log: &'static str, user: &str) -> Result<Self, Error> {
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
        if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o777;
            let text = format!("directory `{name}` has mode {mode:o}: expected 700");
            return Err(Error::directory(text));
        }
        let options = private(OpenOptions::new().read(true).write(true).create(true));
        let mut lock = options
            .open(entry(&folder, LOCK))
            .map_err(failed("lock directory"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                // The pid only completes the message.
                let _ = lock.read_to_string(&mut pid);
                let pid = pid.trim();
                let text = format!("another {user} (pid {pid}) uses directory `{name}`");
                return Err(Error::occupied(text));
            }
            Err(errno) => return Err(failed("lock directory")(errno.into())),
        }
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(failed("lock directory"))?;
        Ok(Self {
            folder,
            log,
            _lock: lock,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        entry(&self.folder, name)
    }

    /// Reads the append-only file; `None` if there is none or it is empty.
    pub(super) fn read_log(&self) -> Result<Option<Vec<u8>>, Error> {
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
        log.write_all(contents)?;
        log.sync_all()?;
        fs::rename(&new, self.path(self.log))?;
        self.folder.sync_all()?;
        Ok(log)
    }

    pub(super) fn open_errors(&self) -> io::Result<File> {
        private(OpenOptions::new().append(true).create(true)).open(self.path(ERRORS))
    }

    /// Listens on the socket, and replaces one that an earlier reaper has left.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        self.remove_socket()?;
        let listener = UnixListener::bind(self.path(SOCKET))?;
        fs::set_permissions(self.path(SOCKET), Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    pub(super) fn remove_socket(&self) -> io::Result<()> {
        match fs::remove_file(self.path(SOCKET)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The path of a file in an open directory, short enough for a socket address.
fn entry(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

/// Connects to the reaper of a directory, whatever the length of its path.
pub(crate) fn connect(directory: &Path) -> io::Result<UnixStream> {
    let folder = open_folder(directory, OFlags::PATH)?;
    UnixStream::connect(entry(&folder, SOCKET))
}

fn open_folder(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).unwrap_or(libc::O_DIRECTORY);
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn private(options: &mut OpenOptions) -> OpenOptions {
    options.mode(0o600).clone()
}
