//! The start of guests' tasks by `penstock-imp`.
//!
//! The reaper never waits for that program: what the guest names may be on a file system that does not respond.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use penstock_imp::{FAILURE_BYTES, FileMode, Stream, decode_failure};
use rustix::event::epoll::{self, EventFlags};

use super::event_source::EventSource;
use crate::protocol::{Guest, Input, Output, TaskSpec};
use crate::types::{Pid, ProcessId, SpawnFailure, Step};

/// The file mode creation mask for files that the reaper makes.
const PRIVATE_MASK: u32 = 0o077;

/// The tasks that are being set up.
#[derive(Debug)]
pub(super) struct Guests {
    program: CString,
    epoll: Rc<OwnedFd>,
    setups: BTreeMap<Pid, Setup>,
}

/// The conversation with one process.
#[derive(Debug)]
struct Setup {
    socket: UnixStream,
    unsent: Vec<u8>,
    answer: Vec<u8>,
    is_blocked: bool,
}

impl Guests {
    pub(super) fn new(program: CString, epoll: Rc<OwnedFd>) -> Self {
        Self {
            program,
            epoll,
            setups: BTreeMap::new(),
        }
    }

    /// Starts a task. `spawn` starts the program with a socket.
    pub(super) fn spawn(
        &mut self,
        task: &TaskSpec,
        guest: Guest,
        spawn: impl FnOnce(&TaskSpec, BorrowedFd<'_>) -> Result<ProcessId, SpawnFailure>,
    ) -> Result<ProcessId, SpawnFailure> {
        let failed = |error: std::io::Error| SpawnFailure {
            step: Step::Clone,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        };
        let (socket, other) = UnixStream::pair().map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let process = match spawn(&self.first_stage(task, guest), other.as_fd()) {
            Err(failure) if failure.step == Step::Exec => {
                // It is not the user's program that cannot be executed.
                let step = Step::Identity;
                return Err(SpawnFailure { step, ..failure });
            }
            result => result?,
        };
        drop(other);
        let mut setup = Setup {
            socket,
            unsent: request(task, guest).encode(),
            answer: Vec::new(),
            is_blocked: true,
        };
        let data = EventSource::Setup(process.pid).data();
        // If it is not watched, its result is read when the process has ended.
        let _ = epoll::add(&*self.epoll, &setup.socket, data, setup.flags());
        setup.send();
        self.watch(process.pid, &mut setup);
        self.setups.insert(process.pid, setup);
        Ok(process)
    }

    /// The start of the program: with the streams that it does not open.
    fn first_stage(&self, task: &TaskSpec, guest: Guest) -> TaskSpec {
        let opened = |is_named: bool, output: &Output| match output {
            _ if is_named => Output::Null,
            Output::SameAsStdout if guest.names_stdout => Output::Null,
            output => output.clone(),
        };
        TaskSpec {
            task: task.task,
            arguments: vec![self.program.clone()],
            environment: Vec::new(),
            directory: CString::from(c"/"),
            stdin: Input::Null,
            stdout: opened(guest.names_stdout, &task.stdout),
            stderr: opened(guest.names_stderr, &task.stderr),
            relay: task.relay,
            cpus: task.cpus.clone(),
            limits: Vec::new(),
            cgroup_limits: task.cgroup_limits,
            umask: PRIVATE_MASK,
            group: task.group,
            guest: None,
        }
    }

    fn watch(&self, pid: Pid, setup: &mut Setup) {
        let is_blocked = !setup.unsent.is_empty();
        if is_blocked != setup.is_blocked {
            setup.is_blocked = is_blocked;
            let data = EventSource::Setup(pid).data();
            let _ = epoll::modify(&*self.epoll, &setup.socket, data, setup.flags());
        }
    }

    pub(super) fn advance(&mut self, pid: Pid) -> Option<Result<(), SpawnFailure>> {
        let mut setup = self.setups.remove(&pid)?;
        setup.send();
        if setup.receive() {
            return Some(setup.result());
        }
        self.watch(pid, &mut setup);
        self.setups.insert(pid, setup);
        None
    }

    pub(super) fn finish(&mut self, pid: Pid) -> Option<Result<(), SpawnFailure>> {
        let mut setup = self.setups.remove(&pid)?;
        setup.receive();
        Some(setup.result())
    }
}

impl Setup {
    fn flags(&self) -> EventFlags {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, self.is_blocked);
        flags
    }

    fn send(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The process has ended: its answer, or its status, tells why.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// Reads the answer. Returns whether the other end is closed.
    fn receive(&mut self) -> bool {
        loop {
            let mut buffer = [0; FAILURE_BYTES];
            match self.socket.read(&mut buffer) {
                Ok(0) => return true,
                Ok(length) => self
                    .answer
                    .extend_from_slice(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }

    /// The result: the other end is closed when the user's program is executed, unless the process has ended.
    fn result(&self) -> Result<(), SpawnFailure> {
        let answer = self.answer.first_chunk().copied();
        match answer.and_then(decode_failure) {
            Some((step, errno)) => Err(SpawnFailure {
                step: step_of(step),
                errno,
            }),
            None => Ok(()),
        }
    }
}

fn request(task: &TaskSpec, guest: Guest) -> penstock_imp::Request {
    let output = |is_named: bool, output: &Output| match output {
        Output::Append(path) if is_named => Stream::File(FileMode::Append, path.clone()),
        Output::Truncate(path) if is_named => Stream::File(FileMode::Truncate, path.clone()),
        Output::SameAsStdout if guest.names_stdout => Stream::SameAsStdout,
        _ => Stream::Inherited,
    };
    let stdin = match &task.stdin {
        Input::Null | Input::Pipe => Stream::Inherited,
        Input::File(path) => Stream::File(FileMode::Read, path.clone()),
    };
    penstock_imp::Request {
        uid: guest.uid,
        no_new_privs: guest.no_new_privs,
        umask: task.umask & 0o777,
        streams: [
            stdin,
            output(guest.names_stdout, &task.stdout),
            output(guest.names_stderr, &task.stderr),
        ],
        limits: task
            .limits
            .iter()
            .map(|limit| penstock_imp::Limit {
                resource: limit.resource,
                soft: limit.soft,
                hard: limit.hard,
            })
            .collect(),
        directory: task.directory.clone(),
        arguments: task.arguments.clone(),
        environment: task.environment.clone(),
    }
}

fn step_of(step: penstock_imp::Step) -> Step {
    match step {
        penstock_imp::Step::Request | penstock_imp::Step::Descriptors => Step::Clone,
        penstock_imp::Step::Account => Step::Account,
        penstock_imp::Step::Limit => Step::Limit,
        penstock_imp::Step::Identity | penstock_imp::Step::Privileges => Step::Identity,
        penstock_imp::Step::Chdir => Step::Chdir,
        penstock_imp::Step::Stdin => Step::Stdin,
        penstock_imp::Step::Stdout => Step::Stdout,
        penstock_imp::Step::Stderr => Step::Stderr,
        penstock_imp::Step::Exec => Step::Exec,
    }
}
