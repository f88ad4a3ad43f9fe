//! The runtime directory of a reaper: its lock, log and socket.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

use crate::Error;
use crate::log::LogContents;

pub(super) const LOG: &str = "log";
const NEW_LOG: &str = "log.new";
const LOCK: &str = "lock";
const SOCKET: &str = "socket";
const ERRORS: &str = "errors";

/// The runtime directory, open and locked.
#[derive(Debug)]
pub(super) struct Directory {
    folder: File,
    /// Holds the lock until the process ends.
    _lock: File,
}

impl Directory {
    /// Checks and locks a directory.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
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
                let text = format!("another reaper (pid {pid}) uses directory `{name}`");
                return Err(Error::occupied(text));
            }
            Err(errno) => return Err(failed("lock directory")(errno.into())),
        }
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(failed("lock directory"))?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        entry(&self.folder, name)
    }

    /// Reads the log of an earlier reaper; `None` if there is none or it is empty.
    pub(super) fn read_log(&self) -> Result<Option<LogContents>, Error> {
        match fs::read(self.path(LOG)) {
            Ok(bytes) if bytes.is_empty() => Ok(None),
            Ok(bytes) => LogContents::decode(&bytes).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::system("cannot read the log", &error)),
        }
    }

    pub(super) fn open_log(&self) -> io::Result<File> {
        private(OpenOptions::new().append(true).create(true)).open(self.path(LOG))
    }

    /// Replaces the log atomically: the new one is on disk before it is renamed.
    pub(super) fn replace_log(&self, contents: &[u8]) -> io::Result<File> {
        match fs::remove_file(self.path(NEW_LOG)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut log =
            private(OpenOptions::new().append(true).create_new(true)).open(self.path(NEW_LOG))?;
        log.write_all(contents)?;
        log.sync_all()?;
        fs::rename(self.path(NEW_LOG), self.path(LOG))?;
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
