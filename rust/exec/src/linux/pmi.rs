//! The sockets by which a job's tasks reach its PMI server.
//!
//! The reaper makes them: the server gets the listening socket, and each task its connection. Both are in the kernel's
//! queue until the server accepts them, so neither reaper nor service waits for a process of the job.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen};

use crate::protocol::Pmi;
use crate::types::{SpawnFailure, Step};

/// Connections that the server has not accepted; the kernel may have a lower limit.
const MAX_QUEUED_CONNECTIONS: i32 = 4096;

/// The descriptor of a process that has a part in PMI.
#[derive(Debug)]
pub(super) enum PmiEnd {
    None,
    /// The listening socket, the standard input of the server.
    Listener(OwnedFd),
    /// The connection of a task.
    Connection(OwnedFd),
}

impl PmiEnd {
    /// Opens the descriptor of a process.
    pub(super) fn open(pmi: &Pmi) -> Result<Self, SpawnFailure> {
        let end = match pmi {
            Pmi::None => Ok(Self::None),
            Pmi::Server(path) => listener(path).map(Self::Listener),
            Pmi::Client(path) => connection(path).map(Self::Connection),
        };
        end.map_err(|errno| SpawnFailure {
            step: Step::Pmi,
            errno: errno.raw_os_error(),
        })
    }

    /// The connection, if this is one.
    pub(super) fn connection(&self) -> Option<&OwnedFd> {
        match self {
            Self::Connection(connection) => Some(connection),
            _ => None,
        }
    }
}

fn listener(path: &CStr) -> Result<OwnedFd, Errno> {
    let (folder, name) = open_folder(path)?;
    match unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let socket = socket()?;
    bind(&socket, &address(&folder, name)?)?;
    listen(&socket, MAX_QUEUED_CONNECTIONS)?;
    Ok(socket)
}

/// Connects without waiting: the queue of a server that does not accept may be full.
fn connection(path: &CStr) -> Result<OwnedFd, Errno> {
    let (folder, name) = open_folder(path)?;
    let socket = socket()?;
    connect(&socket, &address(&folder, name)?)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    // Not a descriptor that the child uses for something else.
    fcntl_dupfd_cloexec(&socket, penstock_imp::PMI_DESCRIPTOR + 1)
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn open_folder(path: &CStr) -> Result<(OwnedFd, &OsStr), Errno> {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let (folder, name) = path.parent().zip(path.file_name()).ok_or(Errno::INVAL)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((openat(CWD, folder, flags, Mode::empty())?, name))
}

/// The address by way of the open folder, since the path may be longer than an address.
fn address(folder: &OwnedFd, name: &OsStr) -> Result<SocketAddrUnix, Errno> {
    let folder = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    SocketAddrUnix::new(folder.join(name))
}
