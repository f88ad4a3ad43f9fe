//! The start of a task: preparation in the parent, and the steps of the child until it executes the program.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use penstock_imp::candidates;
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::Errno;
use rustix::process::{
    Resource, Rlimit, chdir, getpid, ioctl_tiocsctty, setpgid, setrlimit, setsid, umask,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::pmi::PmiEnd;
use super::procfs::{self, Stat};
use super::streams::TaskEnds;
use super::syscalls::{self, ChildStack, ChildWork, StringArray};
use crate::log::{self, STARTED_RECORD_BYTES};
use crate::protocol::{Group, Input, Output, TaskSpec};
use crate::types::{CgroupId, Pid, ProcessId, SpawnFailure, Step};

pub(super) const RESOURCES: [Resource; 16] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

/// The child's data, prepared before it exists because it must not allocate.
struct ChildPlan<'a> {
    spec: &'a TaskSpec,
    programs: &'a [CString],
    arguments: StringArray<'a>,
    environment: StringArray<'a>,
    cpus: Option<CpuSet>,
    limits: Vec<(Resource, Rlimit)>,
    log: Option<BorrowedFd<'a>>,
    null: BorrowedFd<'a>,
    /// When it is created, in clock ticks since boot.
    created_at: Option<u64>,
    cgroup: Option<CgroupId>,
    ends: &'a TaskEnds,
    socket: Option<BorrowedFd<'a>>,
    pmi: &'a PmiEnd,
    progress: ChildProgress,
}

/// The progress of the child. It is written by the child and read by the parent, in the memory that they share.
#[derive(Clone, Copy)]
enum ChildProgress {
    Created,
    Recorded(ProcessId),
    Failed(SpawnFailure),
}

/// The reaper's descriptors that a start needs.
#[derive(Clone, Copy)]
pub(super) struct Descriptors<'a> {
    /// The log, opened for appending; `None` for a process that is not recorded.
    pub(super) log: Option<BorrowedFd<'a>>,
    pub(super) null: BorrowedFd<'a>,
    pub(super) cgroup: Option<(CgroupId, BorrowedFd<'a>)>,
    pub(super) ends: &'a TaskEnds,
    /// The socket that the program gets as descriptor 3.
    pub(super) socket: Option<BorrowedFd<'a>>,
    /// The connection that the program gets as descriptor 4, or its standard input.
    pub(super) pmi: &'a PmiEnd,
}

/// Starts a task.
pub(super) fn spawn(
    spec: &TaskSpec,
    mark: Option<u64>,
    parts: &Descriptors<'_>,
    stack: &mut ChildStack,
) -> Result<ProcessId, SpawnFailure> {
    let programs = candidates(&spec.arguments, spec.environment.iter());
    let mut plan = ChildPlan {
        spec,
        programs: &programs,
        arguments: StringArray::new(spec.arguments.iter().map(CString::as_c_str)),
        environment: StringArray::new(spec.environment.iter()),
        cpus: cpu_set(&spec.cpus)?,
        limits: limits(spec, mark, parts.ends.descriptors)?,
        log: parts.log,
        null: parts.null,
        created_at: procfs::ticks_since_boot(),
        cgroup: parts.cgroup.map(|(id, _)| id),
        ends: parts.ends,
        socket: parts.socket,
        pmi: parts.pmi,
        progress: ChildProgress::Created,
    };
    let failure = match syscalls::spawn(stack, parts.cgroup.map(|(_, fd)| fd), &mut plan) {
        Err(error) => {
            return Err(SpawnFailure {
                step: Step::Clone,
                errno: error.raw_os_error().unwrap_or(libc::EIO),
            });
        }
        Ok(pid) => match plan.progress {
            ChildProgress::Recorded(process) => return Ok(process),
            ChildProgress::Failed(failure) => {
                syscalls::reap(pid);
                failure
            }
            ChildProgress::Created => {
                // The child was killed before it could record its start.
                syscalls::reap(pid);
                SpawnFailure {
                    step: Step::Clone,
                    errno: libc::EINTR,
                }
            }
        },
    };
    Err(failure)
}

fn cpu_set(cpus: &[u32]) -> Result<Option<CpuSet>, SpawnFailure> {
    if cpus.is_empty() {
        return Ok(None);
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        let cpu = usize::try_from(*cpu).unwrap_or(usize::MAX);
        if cpu >= CpuSet::MAX_CPU {
            return Err(invalid(Step::Bind));
        }
        set.set(cpu);
    }
    Ok(Some(set))
}

fn limits(
    spec: &TaskSpec,
    mark: Option<u64>,
    descriptors: Option<Rlimit>,
) -> Result<Vec<(Resource, Rlimit)>, SpawnFailure> {
    let finite = |value: u64| (value != u64::MAX).then_some(value);
    let limit = |soft, hard| Rlimit {
        current: finite(soft),
        maximum: finite(hard),
    };
    let mut limits = Vec::with_capacity(spec.limits.len() + 2);
    limits.extend(descriptors.map(|limit| (Resource::Nofile, limit)));
    for wanted in &spec.limits {
        let has_number = |resource: &&Resource| **resource as u32 == wanted.resource;
        let resource = RESOURCES.iter().find(has_number);
        let resource = resource.filter(|resource| **resource != Resource::Locks);
        let resource = *resource.ok_or_else(|| invalid(Step::Limit))?;
        limits.push((resource, limit(wanted.soft, wanted.hard)));
    }
    limits.extend(mark.map(|mark| (Resource::Locks, limit(mark, mark))));
    Ok(limits)
}

fn invalid(step: Step) -> SpawnFailure {
    let errno = libc::EINVAL;
    SpawnFailure { step, errno }
}

impl ChildWork for ChildPlan<'_> {
    fn run(&mut self) {
        let failure = match self.prepare() {
            Ok(()) => SpawnFailure {
                step: Step::Exec,
                errno: self.execute(),
            },
            Err(failure) => failure,
        };
        self.progress = ChildProgress::Failed(failure);
    }
}

impl ChildPlan<'_> {
    fn prepare(&mut self) -> Result<(), SpawnFailure> {
        match self.spec.group {
            Group::Session => setsid().map(drop),
            Group::Group => setpgid(None, None),
        }
        .map_err(at(Step::Group))?;
        umask(Mode::from_raw_mode(self.spec.umask & 0o777));
        chdir(self.spec.directory.as_c_str()).map_err(at(Step::Chdir))?;
        self.open_streams()?;
        if let Some(cpus) = &self.cpus {
            sched_setaffinity(None, cpus).map_err(at(Step::Bind))?;
        }
        let process = self.record().map_err(at(Step::Record))?;
        self.progress = ChildProgress::Recorded(process);
        // After the record: a limit on file sizes would hold for the log too.
        for (resource, limit) in &self.limits {
            setrlimit(*resource, *limit).map_err(at(Step::Limit))?;
        }
        if let Some(socket) = self.socket {
            syscalls::pass_on(socket, penstock_imp::SOCKET_DESCRIPTOR).map_err(at(Step::Clone))?;
        }
        // After the socket, which may have this number. The connection has a greater one.
        if let Some(connection) = self.pmi.connection() {
            let connection = connection.as_fd();
            syscalls::pass_on(connection, penstock_imp::PMI_DESCRIPTOR).map_err(at(Step::Pmi))?;
        }
        syscalls::unblock_signals();
        Ok(())
    }

    fn open_streams(&self) -> Result<(), SpawnFailure> {
        if let Some(terminal) = &self.ends.terminal {
            let take = || {
                dup2_stdin(terminal)?;
                dup2_stdout(terminal)?;
                dup2_stderr(terminal)?;
                ioctl_tiocsctty(terminal)
            };
            return take().map_err(at(Step::Stdin));
        }
        match (&self.spec.stdin, &self.ends.stdin, self.pmi) {
            (.., PmiEnd::Listener(listener)) => dup2_stdin(listener),
            (_, Some(pipe), _) => dup2_stdin(pipe),
            (Input::Null | Input::Pipe, None, _) => dup2_stdin(self.null),
            (Input::File(path), None, _) => open_stream(path, OFlags::RDONLY).and_then(dup2_stdin),
        }
        .map_err(at(Step::Stdin))?;
        match (&self.spec.stdout, &self.ends.stdout) {
            (_, Some(pipe)) => dup2_stdout(pipe),
            (Output::Null | Output::SameAsStdout, None) => dup2_stdout(self.null),
            (Output::Append(path), None) => open_stream(path, APPEND).and_then(dup2_stdout),
            (Output::Truncate(path), None) => open_stream(path, TRUNCATE).and_then(dup2_stdout),
        }
        .map_err(at(Step::Stdout))?;
        match (&self.spec.stderr, &self.ends.stderr) {
            (_, Some(pipe)) => dup2_stderr(pipe),
            (Output::Null, None) => dup2_stderr(self.null),
            (Output::Append(path), None) => open_stream(path, APPEND).and_then(dup2_stderr),
            (Output::Truncate(path), None) => open_stream(path, TRUNCATE).and_then(dup2_stderr),
            (Output::SameAsStdout, None) => dup2_stderr(rustix::stdio::stdout()),
        }
        .map_err(at(Step::Stderr))
    }

    /// Writes the record of the start to the log, in one piece.
    fn record(&self) -> Result<ProcessId, Errno> {
        let process = ProcessId {
            pid: Pid(getpid().as_raw_nonzero().get().cast_unsigned()),
            start_time: self.start_time()?,
        };
        let Some(log) = self.log else {
            return Ok(process);
        };
        let record = log::started(self.spec.task, process, self.cgroup);
        let written = rustix::io::write(log, &record)?;
        if written == STARTED_RECORD_BYTES {
            Ok(process)
        } else {
            Err(Errno::NOSPC)
        }
    }

    /// The start time of this process, as in `/proc/self/stat`: the time of its creation if that is known to the tick,
    /// else what the file says, which costs more.
    fn start_time(&self) -> Result<u64, Errno> {
        if self.created_at == procfs::ticks_since_boot()
            && let Some(ticks) = self.created_at
        {
            return Ok(ticks);
        }
        let stat = open(
            c"/proc/self/stat",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mut line = [0; 1024];
        let length = rustix::io::read(&stat, &mut line)?;
        let stat = line.get(..length).and_then(Stat::parse).ok_or(Errno::IO)?;
        Ok(stat.start_time)
    }

    fn execute(&self) -> i32 {
        // As `execvp`: a missing or inaccessible file is skipped; the error of an inaccessible one is reported.
        let mut errno = libc::ENOENT;
        for program in self.programs {
            match syscalls::execute(program, &self.arguments, &self.environment) {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => errno = libc::EACCES,
                other => return other,
            }
        }
        errno
    }
}

const APPEND: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::APPEND);
const TRUNCATE: OFlags = APPEND.union(OFlags::TRUNC);

/// Opens a file without waiting for the other end of a FIFO: the reaper is suspended during the call.
fn open_stream(path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(0o666);
    let extra = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = open(path, flags | extra, mode)?;
    fcntl_setfl(fd.as_fd(), flags & OFlags::APPEND)?;
    Ok(fd)
}

fn at(step: Step) -> impl Fn(Errno) -> SpawnFailure {
    move |errno| SpawnFailure {
        step,
        errno: errno.raw_os_error(),
    }
}
