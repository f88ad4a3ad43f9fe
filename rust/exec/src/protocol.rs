//! The protocol between a service and a reaper: frames over a Unix stream socket.
//!
//! A frame is a length (four bytes) and a payload of that many bytes. All integers are little-endian; a string is its
//! length and its bytes; a list is its length and its items. The first request is [`Request::Hello`], whose layout and
//! response are the same in every version. Descriptors are not passed: the reaper opens the files that a request names.
//!
//! Every request has an id. [`Message::Done`] with that id is its last response; the events that the request caused
//! come before it. Events go to every connection that has said hello.

use std::ffi::CString;

use crate::codec::{Reader, Write};
use crate::environment_block::EnvironmentBlock;
use crate::types::{
    BootId, CgroupLimits, JobId, ProcessId, SpawnFailure, TaskEnd, TaskId, TaskRank,
};
use crate::{Error, OutputReserve};

/// The version of the protocol.
pub const VERSION: u32 = 7;

/// The greatest length of a payload, in bytes.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// A task's standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// `/dev/null`.
    Null,
    /// A file, relative to the working directory.
    File(CString),
    /// A pipe whose other end the reaper has: [`Request::Write`].
    Pipe,
}

/// The size of a terminal's window, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// Output that passes through the reaper on its way to the task's files, which must be regular files or `/dev/null`. Retained
/// output of guests does so in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relay {
    /// None: the task writes to its files.
    None,
    /// Each line gets the task's rank in front: `3: text`.
    Labels {
        /// Whether this holds for standard output.
        stdout: bool,
        /// Whether this holds for standard error. It does where standard error is that of standard output.
        stderr: bool,
        /// Whether lines are written when they are complete, else as they come.
        is_line_buffered: bool,
    },
    /// The three standard streams are a pseudo-terminal, which controls the task's session. Its output goes to the file
    /// of standard output; its input is written by [`Request::Write`].
    Terminal(WindowSize),
}

/// A task's standard output or error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// `/dev/null`.
    Null,
    /// A file, created if it does not exist, and appended to.
    Append(CString),
    /// A file, created if it does not exist, truncated, and then appended to: others may write to it, too.
    Truncate(CString),
    /// The open file of standard output; for standard error.
    SameAsStdout,
}

/// The part of a process in the PMI-1 of its job. The path is that of a socket in a directory of the reaper's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pmi {
    /// None.
    None,
    /// The server: its standard input is the socket, which listens.
    Server(CString),
    /// A task: its descriptor [`PMI_DESCRIPTOR`](penstock_imp::PMI_DESCRIPTOR) is a connection to the socket.
    Client(CString),
}

/// The process group that a task leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// A session and a process group of its own.
    Session,
    /// A process group of its own in the reaper's session.
    Group,
}

/// A resource limit (`setrlimit`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The resource's number in Linux, for instance 7 for `RLIMIT_NOFILE`. `RLIMIT_LOCKS` (10) marks jobs and is
    /// rejected with EINVAL.
    pub resource: u32,
    /// The soft limit; `u64::MAX` for no limit.
    pub soft: u64,
    /// The hard limit; `u64::MAX` for no limit.
    pub hard: u64,
}

/// The user of a task who is not the reaper's. Paths that the user has named are opened as the user: the working directory,
/// the file of standard input, and these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    /// The user's id.
    pub uid: u32,
    /// Whether the task's programs cannot get privileges.
    pub no_new_privs: bool,
    /// Whether the user has named the file of standard output.
    pub names_stdout: bool,
    /// Whether the user has named the file of standard error.
    pub names_stderr: bool,
}

/// A task to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSpec {
    /// The job and the rank.
    pub task: TaskId,
    /// The program and its arguments. A program without a slash is searched in the `PATH` of `environment`.
    pub arguments: Vec<CString>,
    /// The whole environment: `NAME=value`.
    pub environment: EnvironmentBlock,
    /// The working directory.
    pub directory: CString,
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// The way of the output through the reaper.
    pub relay: Relay,
    /// The cpus to run on; empty for those of the reaper.
    pub cpus: Vec<u32>,
    /// Resource limits; others are those of the reaper.
    pub limits: Vec<Limit>,
    /// Limits of all processes of the job together; those of the task that is started first hold.
    pub cgroup_limits: CgroupLimits,
    /// The file mode creation mask, for the output files too.
    pub umask: u32,
    /// Its session or process group.
    pub group: Group,
    /// Its user; `None` for that of the reaper.
    pub guest: Option<Guest>,
    /// Its part in the PMI-1 of the job.
    pub pmi: Pmi,
}

/// The target of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTarget {
    /// The process group of one task.
    Task(TaskId),
    /// Every process of a job, whatever group or session it is in.
    Job(JobId),
}

/// A request of a service to a reaper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first request of a connection. EPROTONOSUPPORT if the reaper speaks another version.
    Hello {
        /// The version that the service speaks.
        version: u32,
    },
    /// Starts tasks. A known task is not started again: its known events are the response.
    Spawn(Vec<TaskSpec>),
    /// Sends a signal, after the start of what is queued of the target. ESRCH if it has no process.
    Signal {
        /// The processes to signal.
        target: SignalTarget,
        /// The signal's number.
        signal: u32,
    },
    /// Kills every process of some jobs, including those that they start meanwhile, and cancels their tasks that have
    /// not started. ESRCH if a job is unknown: the others are killed nevertheless.
    Kill(Vec<JobId>),
    /// The same for some tasks. [`Event::TaskEmpty`] follows for each task of a known job.
    KillTasks(Vec<TaskId>),
    /// Cancels the tasks of some jobs that have not started. ESRCH if a job is unknown.
    CancelStarts(Vec<JobId>),
    /// Acknowledges all statuses of jobs, and forgets the jobs. EBUSY if a job still has a process: that job remains.
    Forget(Vec<JobId>),
    /// Writes to the pipes and terminals that are the standard input of a job's tasks, the same to all, or of one task.
    /// Done when all of it is in the pipes. A repeated request writes what is missing, also if the first one was sent by another
    /// connection. EPIPE if no task reads any longer, ENOENT if no task has such an input, EAGAIN if tasks are to be
    /// started or too much is waiting to be written, EINVAL if bytes are missing before the offset.
    Write {
        /// The job.
        job: JobId,
        /// The one task that it is for.
        task: Option<TaskRank>,
        /// The writer: a random number.
        writer: u64,
        /// The position of the first byte among those of the writer.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// Whether the input ends here: pipes are closed, terminals get the character for the end of a file.
        is_end: bool,
    },
    /// Sets the size of the windows of a job's terminals. ENOENT if it has none.
    Resize {
        /// The job.
        job: JobId,
        /// The size.
        size: WindowSize,
    },
    /// Sets the free space that retained output of guests leaves on its file system, from now on.
    ReserveOutput(OutputReserve),
    /// Requests the output that jobs had in flight while it had no room, since the last such request, as events to this connection.
    ListHeldOutput,
    /// Requests the state of all tasks and jobs, as events to this connection. Earlier spawn requests, those of older
    /// connections included, are carried out first.
    List,
    /// Ends the reaper. EBUSY if a job has a process.
    Shutdown,
}

/// A change of a task or job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The task has started. In a list, also a task that is still being set up: [`Failed`](Self::Failed) may follow.
    Started {
        /// The task.
        task: TaskId,
        /// Its process.
        process: ProcessId,
    },
    /// The task could not be started.
    Failed {
        /// The task.
        task: TaskId,
        /// The step and the error.
        failure: SpawnFailure,
    },
    /// The task has ended.
    Ended {
        /// The task.
        task: TaskId,
        /// Its status and usage.
        end: TaskEnd,
    },
    /// No process of the job is left, its tasks' descendants included.
    Empty {
        /// The job.
        job: JobId,
    },
    /// No process of a killed task is left, its descendants included.
    TaskEmpty {
        /// The task.
        task: TaskId,
    },
    /// The job has exceeded its memory limit.
    OomKilled {
        /// The job.
        job: JobId,
        /// The number of its processes that the kernel has killed so far.
        count: u64,
    },
    /// Output of the job was dropped at its end, because it would have used the reserve ([`Request::ReserveOutput`]).
    OutputDropped {
        /// The job.
        job: JobId,
        /// The bytes that have been dropped so far.
        bytes: u64,
    },
    /// Retained output of the job, a guest's, was in flight when the reaper wrote again after it had no room, since the last list:
    /// the response to [`Request::ListHeldOutput`].
    OutputHeld {
        /// The job.
        job: JobId,
        /// The most bytes at once.
        bytes: u64,
    },
}

/// A reaper's response to hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The version that the reaper speaks.
    pub version: u32,
    /// The boot in which it runs.
    pub boot: BootId,
    /// Its process.
    pub process: ProcessId,
}

/// A message from a reaper to a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The response to hello.
    Hello(Hello),
    /// Events, in the order in which they occurred.
    Events(Vec<Event>),
    /// The end of a request.
    Done {
        /// The request's id.
        id: u32,
        /// 0, or the error number.
        errno: i32,
    },
}

impl Request {
    /// Appends the frame of this request.
    ///
    /// # Errors
    ///
    /// Fails if the payload is longer than [`MAX_FRAME_BYTES`]; nothing is appended.
    pub fn encode(&self, id: u32, into: &mut Vec<u8>) -> Result<(), Error> {
        frame(into, |out| {
            out.u32(id);
            match self {
                Self::Hello { version } => {
                    out.u8(0);
                    out.u32(*version);
                }
                Self::Spawn(tasks) => {
                    out.u8(1);
                    out.list(tasks, write_spec);
                }
                Self::Signal { target, signal } => {
                    out.u8(2);
                    match target {
                        SignalTarget::Task(task) => {
                            out.u8(0);
                            out.task(*task);
                        }
                        SignalTarget::Job(job) => {
                            out.u8(1);
                            out.u64(job.get());
                        }
                    }
                    out.u32(*signal);
                }
                Self::Kill(jobs) => {
                    out.u8(3);
                    out.list(jobs, |out, job| out.u64(job.get()));
                }
                Self::Forget(jobs) => {
                    out.u8(4);
                    out.list(jobs, |out, job| out.u64(job.get()));
                }
                Self::List => out.u8(5),
                Self::Shutdown => out.u8(6),
                Self::KillTasks(tasks) => {
                    out.u8(7);
                    out.list(tasks, |out, task| out.task(*task));
                }
                Self::Write {
                    job,
                    task,
                    writer,
                    offset,
                    data,
                    is_end,
                } => {
                    out.u8(8);
                    out.u64(job.get());
                    out.u8(u8::from(task.is_some()));
                    out.u32(task.map_or(0, |rank| rank.0));
                    out.u64(*writer);
                    out.u64(*offset);
                    out.blob(data);
                    out.u8(u8::from(*is_end));
                }
                Self::Resize { job, size } => {
                    out.u8(9);
                    out.u64(job.get());
                    write_size(out, *size);
                }
                Self::ReserveOutput(OutputReserve(bytes)) => {
                    out.u8(10);
                    out.u64(*bytes);
                }
                Self::ListHeldOutput => out.u8(11),
                Self::CancelStarts(jobs) => {
                    out.u8(12);
                    out.list(jobs, |out, job| out.u64(job.get()));
                }
            }
        })
    }

    /// Reads the payload of a frame: the request's id, and the request.
    ///
    /// # Errors
    ///
    /// Fails if the payload is not a request; the error says what was expected at which byte.
    pub fn decode(payload: &[u8]) -> Result<(u32, Self), Error> {
        let mut reader = Reader::new(payload);
        let id = reader.u32("a request id")?;
        let request = match reader.u8("a kind of request")? {
            0 => Self::Hello {
                version: reader.u32("a version")?,
            },
            1 => Self::Spawn(reader.list("a number of tasks", read_spec)?),
            2 => {
                let target = match reader.u8("a kind of target")? {
                    0 => SignalTarget::Task(reader.task()?),
                    1 => SignalTarget::Job(reader.job()?),
                    _ => return Err(reader.error("a kind of target")),
                };
                let signal = reader.u32("a signal")?;
                Self::Signal { target, signal }
            }
            3 => Self::Kill(reader.list("a number of jobs", Reader::job)?),
            4 => Self::Forget(reader.list("a number of jobs", Reader::job)?),
            5 => Self::List,
            6 => Self::Shutdown,
            7 => Self::KillTasks(reader.list("a number of tasks", Reader::task)?),
            8 => Self::Write {
                job: reader.job()?,
                task: {
                    let is_one = reader.u8("whether it is for one task")? != 0;
                    let rank = TaskRank(reader.u32("a task rank")?);
                    is_one.then_some(rank)
                },
                writer: reader.u64("a writer")?,
                offset: reader.u64("an offset")?,
                data: reader.blob("input")?,
                is_end: reader.u8("whether the input ends")? != 0,
            },
            9 => Self::Resize {
                job: reader.job()?,
                size: read_size(&mut reader)?,
            },
            10 => Self::ReserveOutput(OutputReserve(reader.u64("a number of bytes")?)),
            11 => Self::ListHeldOutput,
            12 => Self::CancelStarts(reader.list("a number of jobs", Reader::job)?),
            _ => return Err(reader.error("a kind of request")),
        };
        reader.finish()?;
        Ok((id, request))
    }
}

impl Message {
    /// Appends the frame of this message.
    ///
    /// # Errors
    ///
    /// Fails if the payload is longer than [`MAX_FRAME_BYTES`]; nothing is appended.
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<(), Error> {
        frame(into, |out| match self {
            Self::Hello(hello) => {
                out.u8(0);
                out.u32(hello.version);
                out.u128(hello.boot.0);
                out.process(hello.process);
            }
            Self::Events(events) => {
                out.u8(1);
                out.list(events, write_event);
            }
            Self::Done { id, errno } => {
                out.u8(2);
                out.u32(*id);
                out.i32(*errno);
            }
        })
    }

    /// Reads the payload of a frame.
    ///
    /// # Errors
    ///
    /// Fails if the payload is not a message; the error says what was expected at which byte.
    pub fn decode(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let message = match reader.u8("a kind of message")? {
            0 => Self::Hello(Hello {
                version: reader.u32("a version")?,
                boot: BootId(reader.u128("a boot id")?),
                process: reader.process()?,
            }),
            1 => Self::Events(reader.list("a number of events", read_event)?),
            2 => Self::Done {
                id: reader.u32("a request id")?,
                errno: reader.i32("an errno")?,
            },
            _ => return Err(reader.error("a kind of message")),
        };
        reader.finish()?;
        Ok(message)
    }
}

fn frame(into: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
    let start = into.len();
    into.u32(0);
    write(into);
    let length = into.len() - start - 4;
    match u32::try_from(length) {
        Ok(prefix) if length <= MAX_FRAME_BYTES => {
            let bytes = prefix.to_le_bytes();
            into.splice(start..start + 4, bytes);
            Ok(())
        }
        _ => {
            into.truncate(start);
            Err(Error::format(format!(
                "message of {length} bytes: expected at most {MAX_FRAME_BYTES}"
            )))
        }
    }
}

fn write_spec(out: &mut Vec<u8>, spec: &TaskSpec) {
    out.task(spec.task);
    out.list(&spec.arguments, Vec::string);
    out.environment(&spec.environment);
    out.string(&spec.directory);
    match &spec.stdin {
        Input::Null => out.u8(0),
        Input::File(path) => {
            out.u8(1);
            out.string(path);
        }
        Input::Pipe => out.u8(2),
    }
    for output in [&spec.stdout, &spec.stderr] {
        match output {
            Output::Null => out.u8(0),
            Output::Append(path) => {
                out.u8(1);
                out.string(path);
            }
            Output::Truncate(path) => {
                out.u8(2);
                out.string(path);
            }
            Output::SameAsStdout => out.u8(3),
        }
    }
    match spec.relay {
        Relay::None => out.u8(0),
        Relay::Labels {
            stdout,
            stderr,
            is_line_buffered,
        } => {
            out.u8(1);
            for flag in [stdout, stderr, is_line_buffered] {
                out.u8(u8::from(flag));
            }
        }
        Relay::Terminal(size) => {
            out.u8(2);
            write_size(out, size);
        }
    }
    out.list(&spec.cpus, |out, cpu| out.u32(*cpu));
    out.list(&spec.limits, |out, limit| {
        out.u32(limit.resource);
        out.u64(limit.soft);
        out.u64(limit.hard);
    });
    for limit in [spec.cgroup_limits.memory, spec.cgroup_limits.pids] {
        out.optional(limit);
    }
    out.optional(spec.cgroup_limits.cpu_millis.map(u64::from));
    out.u32(spec.umask);
    out.u8(match spec.group {
        Group::Session => 0,
        Group::Group => 1,
    });
    out.u8(u8::from(spec.guest.is_some()));
    if let Some(guest) = spec.guest {
        out.u32(guest.uid);
        for flag in [guest.no_new_privs, guest.names_stdout, guest.names_stderr] {
            out.u8(u8::from(flag));
        }
    }
    match &spec.pmi {
        Pmi::None => out.u8(0),
        Pmi::Server(path) => {
            out.u8(1);
            out.string(path);
        }
        Pmi::Client(path) => {
            out.u8(2);
            out.string(path);
        }
    }
}

fn read_spec(reader: &mut Reader<'_>) -> Result<TaskSpec, Error> {
    let task = reader.task()?;
    let arguments = reader.list("a number of arguments", |reader| {
        reader.string("an argument")
    })?;
    if arguments.is_empty() {
        return Err(reader.error("a program before this byte"));
    }
    let environment = reader.environment()?;
    let directory = reader.string("a working directory")?;
    let stdin = match reader.u8("a kind of input")? {
        0 => Input::Null,
        1 => Input::File(reader.string("an input file")?),
        2 => Input::Pipe,
        _ => return Err(reader.error("a kind of input")),
    };
    let stdout = read_output(reader)?;
    if stdout == Output::SameAsStdout {
        return Err(reader.error("a kind of standard output before this byte"));
    }
    let stderr = read_output(reader)?;
    let relay = read_relay(reader)?;
    let cpus = reader.list("a number of cpus", |reader| reader.u32("a cpu"))?;
    let limits = reader.list("a number of limits", |reader| {
        Ok(Limit {
            resource: reader.u32("a resource")?,
            soft: reader.u64("a soft limit")?,
            hard: reader.u64("a hard limit")?,
        })
    })?;
    let cgroup_limits = CgroupLimits {
        memory: reader.optional("a memory limit")?,
        pids: reader.optional("a limit on processes")?,
        cpu_millis: match reader.optional("a limit on cpus")? {
            None => None,
            Some(millis) => Some(
                u32::try_from(millis).map_err(|_| reader.error("fewer cpus before this byte"))?,
            ),
        },
    };
    let umask = reader.u32("a umask")?;
    let group = match reader.u8("a kind of process group")? {
        0 => Group::Session,
        1 => Group::Group,
        _ => return Err(reader.error("a kind of process group")),
    };
    let guest = if reader.flag("whether there is a guest")? {
        Some(Guest {
            uid: reader.u32("a user id")?,
            no_new_privs: reader.flag("whether privileges are withheld")?,
            names_stdout: reader.flag("whether standard output is named")?,
            names_stderr: reader.flag("whether standard error is named")?,
        })
    } else {
        None
    };
    let pmi = match reader.u8("a part in PMI")? {
        0 => Pmi::None,
        1 => Pmi::Server(reader.string("a socket")?),
        2 => Pmi::Client(reader.string("a socket")?),
        _ => return Err(reader.error("a part in PMI")),
    };
    Ok(TaskSpec {
        task,
        arguments,
        environment,
        directory,
        stdin,
        stdout,
        stderr,
        relay,
        cpus,
        limits,
        cgroup_limits,
        umask,
        group,
        guest,
        pmi,
    })
}

fn read_relay(reader: &mut Reader<'_>) -> Result<Relay, Error> {
    Ok(match reader.u8("a kind of relay")? {
        0 => Relay::None,
        1 => {
            let mut flag = || Ok(reader.u8("a flag of the relay")? != 0);
            Relay::Labels {
                stdout: flag()?,
                stderr: flag()?,
                is_line_buffered: flag()?,
            }
        }
        2 => Relay::Terminal(read_size(reader)?),
        _ => return Err(reader.error("a kind of relay")),
    })
}

fn write_size(out: &mut Vec<u8>, size: WindowSize) {
    out.u32(size.rows.into());
    out.u32(size.columns.into());
}

fn read_size(reader: &mut Reader<'_>) -> Result<WindowSize, Error> {
    let mut length = |expected| {
        let value = reader.u32(expected)?;
        u16::try_from(value).map_err(|_| reader.error(expected))
    };
    Ok(WindowSize {
        rows: length("a number of rows")?,
        columns: length("a number of columns")?,
    })
}

fn read_output(reader: &mut Reader<'_>) -> Result<Output, Error> {
    Ok(match reader.u8("a kind of output")? {
        0 => Output::Null,
        1 => Output::Append(reader.string("an output file")?),
        2 => Output::Truncate(reader.string("an output file")?),
        3 => Output::SameAsStdout,
        _ => return Err(reader.error("a kind of output")),
    })
}

fn write_event(out: &mut Vec<u8>, event: &Event) {
    match event {
        Event::Started { task, process } => {
            out.u8(0);
            out.task(*task);
            out.process(*process);
        }
        Event::Failed { task, failure } => {
            out.u8(1);
            out.task(*task);
            out.failure(*failure);
        }
        Event::Ended { task, end } => {
            out.u8(2);
            out.task(*task);
            out.end(end);
        }
        Event::Empty { job } => {
            out.u8(3);
            out.u64(job.get());
        }
        Event::TaskEmpty { task } => {
            out.u8(4);
            out.task(*task);
        }
        Event::OomKilled { job, count } => {
            out.u8(5);
            out.u64(job.get());
            out.u64(*count);
        }
        Event::OutputDropped { job, bytes } => {
            out.u8(6);
            out.u64(job.get());
            out.u64(*bytes);
        }
        Event::OutputHeld { job, bytes } => {
            out.u8(7);
            out.u64(job.get());
            out.u64(*bytes);
        }
    }
}

fn read_event(reader: &mut Reader<'_>) -> Result<Event, Error> {
    Ok(match reader.u8("a kind of event")? {
        0 => Event::Started {
            task: reader.task()?,
            process: reader.process()?,
        },
        1 => Event::Failed {
            task: reader.task()?,
            failure: reader.failure()?,
        },
        2 => Event::Ended {
            task: reader.task()?,
            end: reader.end()?,
        },
        3 => Event::Empty { job: reader.job()? },
        4 => Event::TaskEmpty {
            task: reader.task()?,
        },
        5 => Event::OomKilled {
            job: reader.job()?,
            count: reader.u64("a number of processes")?,
        },
        6 => Event::OutputDropped {
            job: reader.job()?,
            bytes: reader.u64("a number of bytes")?,
        },
        7 => Event::OutputHeld {
            job: reader.job()?,
            bytes: reader.u64("a number of bytes")?,
        },
        _ => return Err(reader.error("a kind of event")),
    })
}

/// Cuts a byte stream into the payloads of its frames.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    consumed: usize,
}

impl FrameDecoder {
    /// Appends bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Removes and returns the next complete payload, if any.
    ///
    /// # Errors
    ///
    /// Fails if a frame announces more than [`MAX_FRAME_BYTES`] bytes: the rest of the stream cannot be read.
    pub fn next_payload(&mut self) -> Result<Option<&[u8]>, Error> {
        let rest = self.buffer.get(self.consumed..).unwrap_or_default();
        let Some((prefix, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(Error::format(format!(
                "frame of {length} bytes: expected at most {MAX_FRAME_BYTES}"
            )));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let start = self.consumed + 4;
        self.consumed = start + length;
        Ok(self.buffer.get(start..start + length))
    }
}
