//! The standbys of a reaper: the parent of the reaper's process, which takes its place when it is killed, and the parent of
//! that one.
//!
//! When a process ends, the kernel passes its children on to the nearest subreaper among its ancestors. The standby of a
//! killed reaper therefore gets the tasks as children of its own, ended ones without a wait included, and
//! with them their wait statuses. The second standby is that of the successor, and the one of a reaper whose standby was
//! killed.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{getpid, set_child_subreaper};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::directory::Directory;
use super::procfs;
use super::syscalls::{self, Forked};
use crate::Error;
use crate::types::{Pid, WaitStatus};

/// The reason why a process continues as the reaper.
pub(super) enum Part {
    /// It is the one that the standby has started: the reaper, or the next standby.
    Child,
    /// It was the standby, and the reaper was killed.
    Successor,
    /// It was the standby, and the reaper has ended with this exit code.
    Ended(ExitCode),
}

/// Forks a process for the reaper or its standby, and waits in this one until no reaper is left. Returns in both.
///
/// # Errors
///
/// Fails if the process cannot be forked.
pub(super) fn fork_child(directory: &Directory) -> Result<Part, Error> {
    let failed = |error: std::io::Error| Error::system("cannot start the reaper", &error);
    let errors = directory.open_errors().map_err(failed)?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Error::system("cannot open `/dev/null`", &errno.into()))?;
    set_child_subreaper(Some(getpid()))
        .map_err(|errno| Error::system("cannot become a subreaper", &errno.into()))?;
    let fork = syscalls::fork().map_err(|error| Error::system("cannot fork the reaper", &error))?;
    let Forked::Parent(child) = fork else {
        return Ok(Part::Child);
    };
    close_streams(&File::from(null), &errors).map_err(failed)?;
    let mut awaited = child;
    loop {
        match syscalls::wait_for(awaited).map_err(failed)? {
            WaitStatus::Exited(code) => return Ok(Part::Ended(ExitCode::from(code))),
            WaitStatus::Signaled { .. } | WaitStatus::Unknown => {}
        }
        match own_reaper(directory).map_err(failed)? {
            Some(reaper) => awaited = reaper,
            None => return Ok(Part::Successor),
        }
    }
}

/// The reaper whose standby was killed: it is a child of this process since then.
fn own_reaper(directory: &Directory) -> std::io::Result<Option<Pid>> {
    let reaper = directory.user()?;
    let is_child = |pid: &Pid| {
        let stat = procfs::stat(*pid);
        stat.is_some_and(|stat| stat.parent == Pid(std::process::id()))
    };
    Ok(reaper.filter(is_child))
}

/// The starter of the reaper waits until its standard output is closed.
fn close_streams(null: &File, errors: &File) -> std::io::Result<()> {
    dup2_stdin(null.as_fd())?;
    dup2_stdout(null.as_fd())?;
    dup2_stderr(errors.as_fd())?;
    Ok(())
}
