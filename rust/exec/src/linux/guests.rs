//! The start of guests' tasks by `penstock-imp`, and of the processes that copy output to guests' files.
//!
//! The reaper never waits for that program: what the guest names may be on a file system that does not respond.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use penstock_imp::{Action, FAILURE_BYTES, FileMode, Stream, decode_failure};
use rustix::event::epoll::{self, EventFlags};

use super::event_source::EventSource;
use super::streams::{GuestCopy, PRIVATE_MASK};
use super::syscalls;
use crate::EnvironmentBlock;
use crate::protocol::{Guest, Input, Output, Pmi, Relay, TaskSpec};
use crate::types::{JobId, Pid, ProcessId, SpawnFailure, Step, TaskId};

/// Time for which output is copied when no process of its job is left, before a further attempt to end the job ends the
/// copy: less than the time between two attempts.
const MAX_COPY_DURATION: Duration = Duration::from_secs(3);

/// The tasks that are being set up, and the processes that copy output to files of guests.
///
/// These processes are neither tasks nor in the cgroups of jobs: they end when no process can write to them.
#[derive(Debug)]
pub(super) struct Guests {
    program: CString,
    epoll: Rc<OwnedFd>,
    setups: BTreeMap<Pid, Setup>,
    copies: BTreeMap<Pid, TaskId>,
    /// The jobs that only copies are left of, and since when.
    closing: BTreeMap<JobId, Instant>,
}

/// The conversation with one process.
#[derive(Debug)]
struct Setup {
    task: TaskId,
    socket: UnixStream,
    unsent: Vec<u8>,
    answer: Vec<u8>,
    is_blocked: bool,
    /// The processes whose set-up ends before the request is sent.
    after: BTreeSet<Pid>,
    /// The files that this set-up truncates.
    truncated: Vec<CString>,
}

impl Guests {
    pub(super) fn new(program: CString, epoll: Rc<OwnedFd>) -> Self {
        Self {
            program,
            epoll,
            setups: BTreeMap::new(),
            copies: BTreeMap::new(),
            closing: BTreeMap::new(),
        }
    }

    /// Starts a task when its copies have opened their files. `spawn` starts the program with a socket.
    pub(super) fn spawn(
        &mut self,
        task: &TaskSpec,
        guest: Guest,
        copies: BTreeSet<Pid>,
        spawn: impl FnOnce(&TaskSpec, BorrowedFd<'_>) -> Result<ProcessId, SpawnFailure>,
    ) -> Result<ProcessId, SpawnFailure> {
        let stage = self.first_stage(task, guest);
        self.set_up(&stage, &request(task, guest), copies, spawn)
    }

    /// Starts a process that copies output of a task to the file that the guest has named.
    pub(super) fn spawn_copy(
        &mut self,
        task: &TaskSpec,
        guest: Guest,
        copy: &GuestCopy,
        spawn: impl FnOnce(&TaskSpec, BorrowedFd<'_>) -> Result<ProcessId, SpawnFailure>,
    ) -> Result<Pid, SpawnFailure> {
        let stage = TaskSpec {
            stdout: Output::Null,
            stderr: Output::Null,
            relay: Relay::None,
            ..self.first_stage(task, guest)
        };
        let request = copy_request(task, guest, copy);
        let process = self.set_up(&stage, &request, BTreeSet::new(), spawn)?;
        self.copies.insert(process.pid, task.task);
        Ok(process.pid)
    }

    fn set_up(
        &mut self,
        stage: &TaskSpec,
        request: &penstock_imp::Request,
        mut after: BTreeSet<Pid>,
        spawn: impl FnOnce(&TaskSpec, BorrowedFd<'_>) -> Result<ProcessId, SpawnFailure>,
    ) -> Result<ProcessId, SpawnFailure> {
        let failed = |error: std::io::Error| SpawnFailure {
            step: Step::Clone,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        };
        let (socket, other) = UnixStream::pair().map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let process = match spawn(stage, other.as_fd()) {
            Err(failure) if failure.step == Step::Exec => {
                // It is not the user's program that cannot be executed.
                let step = Step::Identity;
                return Err(SpawnFailure { step, ..failure });
            }
            result => result?,
        };
        drop(other);
        // A file is appended to when another task has truncated it.
        let job = stage.task.job;
        for (pid, setup) in &self.setups {
            let is_truncated = |path| setup.truncated.contains(path);
            if setup.task.job == job && files(request, FileMode::Append).any(is_truncated) {
                after.insert(*pid);
            }
        }
        let mut setup = Setup {
            task: stage.task,
            socket,
            unsent: request.encode(),
            answer: Vec::new(),
            is_blocked: true,
            after,
            truncated: files(request, FileMode::Truncate).cloned().collect(),
        };
        let data = EventSource::Setup(process.pid).data();
        // If it is not watched, its result is read when the process has ended.
        let _ = epoll::add(&*self.epoll, &setup.socket, data, setup.flags());
        setup.send();
        watch(&self.epoll, process.pid, &mut setup);
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
            environment: EnvironmentBlock::default(),
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
            pmi: Pmi::None,
        }
    }

    pub(super) fn advance(&mut self, pid: Pid) -> Option<Result<(), SpawnFailure>> {
        let setup = self.setups.get_mut(&pid)?;
        setup.send();
        if setup.receive() {
            return self.finish(pid);
        }
        watch(&self.epoll, pid, setup);
        None
    }

    pub(super) fn finish(&mut self, pid: Pid) -> Option<Result<(), SpawnFailure>> {
        let mut ended = self.setups.remove(&pid)?;
        ended.receive();
        let result = ended.result();
        for (other, setup) in &mut self.setups {
            if setup.after.remove(&pid) {
                if setup.task == ended.task && result.is_err() {
                    setup.fail(&ended.answer);
                }
                setup.send();
                watch(&self.epoll, *other, setup);
            }
        }
        Some(result)
    }

    /// Whether a process copies output.
    pub(super) fn is_copy(&self, pid: Pid) -> bool {
        self.copies.contains_key(&pid)
    }

    /// Notes the end of a process. Returns the task whose output it has copied.
    pub(super) fn finish_copy(&mut self, pid: Pid) -> Option<TaskId> {
        let task = self.copies.remove(&pid)?;
        if !self.copies.values().any(|other| other.job == task.job) {
            self.closing.remove(&task.job);
        }
        Some(task)
    }

    /// Whether all output of a job, of which no process is left, has been copied. After a while, copies are killed.
    pub(super) fn close(&mut self, job: JobId) -> bool {
        let copies = self.copies.iter().filter(|(_, task)| task.job == job);
        let copies: Vec<_> = copies.map(|(pid, _)| *pid).collect();
        if copies.is_empty() {
            return true;
        }
        let since = self.closing.entry(job).or_insert_with(Instant::now);
        if since.elapsed() >= MAX_COPY_DURATION {
            for pid in copies {
                // It is a child that has not been reaped.
                if let Ok(pid) = i32::try_from(pid.0) {
                    syscalls::kill(pid, libc::SIGKILL);
                }
            }
        }
        false
    }
}

fn watch(epoll: &OwnedFd, pid: Pid, setup: &mut Setup) {
    let is_blocked = setup.is_sendable();
    if is_blocked != setup.is_blocked {
        setup.is_blocked = is_blocked;
        let data = EventSource::Setup(pid).data();
        let _ = epoll::modify(epoll, &setup.socket, data, setup.flags());
    }
}

/// The files that a request names, in this mode.
fn files(request: &penstock_imp::Request, mode: FileMode) -> impl Iterator<Item = &CString> {
    request
        .streams
        .iter()
        .filter_map(move |stream| match stream {
            Stream::File(file_mode, path) if *file_mode == mode => Some(path),
            _ => None,
        })
}

impl Setup {
    fn flags(&self) -> EventFlags {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, self.is_blocked);
        flags
    }

    /// Whether a part of the request can be sent when there is room.
    fn is_sendable(&self) -> bool {
        !self.unsent.is_empty() && self.after.is_empty()
    }

    /// Ends the set-up with the failure of another one. The process ends when it finds no request.
    fn fail(&mut self, answer: &[u8]) {
        self.answer = answer.to_vec();
        self.unsent.clear();
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn send(&mut self) {
        while self.is_sendable() {
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
    let (is_stdout_relayed, is_stderr_relayed) = match task.relay {
        Relay::None => (false, false),
        Relay::Labels { stdout, stderr, .. } => (stdout, stderr),
        Relay::Terminal(_) => (true, true),
    };
    let stdin = match &task.stdin {
        Input::File(path) if !matches!(task.relay, Relay::Terminal(_)) => {
            Stream::File(FileMode::Read, path.clone())
        }
        _ => Stream::Inherited,
    };
    let stdout = if guest.names_stdout && !is_stdout_relayed {
        named(&task.stdout)
    } else {
        Stream::Inherited
    };
    let stderr = match &task.stderr {
        Output::SameAsStdout if guest.names_stdout => Stream::SameAsStdout,
        output if guest.names_stderr && !is_stderr_relayed => named(output),
        _ => Stream::Inherited,
    };
    penstock_imp::Request {
        action: Action::Execute,
        uid: guest.uid,
        no_new_privs: guest.no_new_privs,
        umask: task.umask & 0o777,
        has_pmi: matches!(task.pmi, Pmi::Client(_)),
        streams: [stdin, stdout, stderr],
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
        environment: Vec::from(&task.environment),
    }
}

/// The file of an output that the guest has named.
fn named(output: &Output) -> Stream {
    match output {
        Output::Append(path) => Stream::File(FileMode::Append, path.clone()),
        Output::Truncate(path) => Stream::File(FileMode::Truncate, path.clone()),
        Output::Null | Output::SameAsStdout => Stream::Inherited,
    }
}

fn copy_request(task: &TaskSpec, guest: Guest, copy: &GuestCopy) -> penstock_imp::Request {
    let streams = match copy.step {
        Step::Stderr => [Stream::Inherited, Stream::Inherited, named(&task.stderr)],
        _ => [Stream::Inherited, named(&task.stdout), Stream::Inherited],
    };
    penstock_imp::Request {
        action: Action::Copy(copy.buffering),
        streams,
        has_pmi: false,
        // Limits are those of the task's processes.
        limits: Vec::new(),
        arguments: vec![copy.prefix.clone()],
        environment: Vec::new(),
        ..request(task, guest)
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
