//! Pipes and pseudo-terminals between the reaper and tasks: input that is written to them, output that is copied to files.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use penstock_imp::{Buffering, Label};
use rustix::event::epoll;
use rustix::fs::{CWD, FileType, Mode, OFlags, Uid, fchown, fstat, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{SpecialCodeIndex, Winsize, tcgetattr, tcsetwinsize};

use super::event_source::EventSource;
use super::output_usage;
use crate::OutputReserve;
use crate::protocol::{Input, Output, Relay, TaskSpec, WindowSize};
use crate::types::{JobId, SpawnFailure, Step, TaskId, TaskRank};

/// The file mode creation mask for files that the reaper makes.
pub(super) const PRIVATE_MASK: u32 = 0o077;
const READ_BUFFER_BYTES: usize = 64 << 10;
/// Bytes of one stream that are read for one event, so that it does not delay the others; and at the end of a job, when
/// a process outside of it may still write. It is as much as a pipe has room for by default limits of the kernel.
const MAX_BYTES_PER_EVENT: usize = 1 << 20;
/// Time after which a guest's stream whose output had no room is read again.
const RESUME_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which the room of a file system is known. To measure it may take longer than to copy.
const ROOM_LIFETIME: Duration = Duration::from_millis(50);
/// Descriptors that the reaper has for one task at most, and those that it has in any case.
const MAX_TASK_DESCRIPTORS: u64 = 5;
const OTHER_DESCRIPTORS: u64 = 128;
/// The character for the end of a file on a terminal that has none.
const DEFAULT_END_OF_FILE_CHARACTER: u8 = 4;

/// The task's ends of its pipes and terminal.
#[derive(Debug, Default)]
pub(super) struct TaskEnds {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    /// Its controlling terminal: its three standard streams.
    pub(super) terminal: Option<OwnedFd>,
    /// The limit of its descriptors, if the reaper has raised its own.
    pub(super) descriptors: Option<Rlimit>,
}

impl TaskEnds {
    /// The ends of the process that copies output of the task that has these ends.
    pub(super) fn of_copy(source: OwnedFd, task: &Self) -> Self {
        Self {
            stdin: Some(source),
            descriptors: task.descriptors,
            ..Self::default()
        }
    }
}

/// The reaper's ends of a task's pipes and terminal.
#[derive(Debug, Default)]
pub(super) struct TaskStreams {
    input: Option<InputEnd>,
    /// The other end of the terminal. As long as it is open, the terminal can be opened again.
    terminal: Option<OwnedFd>,
    copies: Vec<(u64, OutputCopy)>,
    /// The bytes that copies had in flight which have ended since the last list.
    held: u64,
    guest_copies: Vec<(OwnedFd, GuestCopy)>,
}

#[derive(Debug)]
struct InputEnd {
    fd: OwnedFd,
    /// The token of the event that there is room, while that is awaited.
    token: Option<u64>,
    /// Whether the last byte that was written ended a line.
    is_at_line_start: bool,
}

/// Output on its way to a file.
#[derive(Debug)]
struct OutputCopy {
    source: OwnedFd,
    target: OwnedFd,
    label: Label,
    /// Labelled output that has been read and had no room.
    unwritten: Vec<u8>,
    /// The most bytes in flight at once when there was room again, since the last list.
    held: u64,
    /// The file system, if it is stored output of a guest, which leaves the reserve.
    file_system: Option<u64>,
}

/// The room for stored output of guests.
#[derive(Debug, Default)]
struct Rooms {
    reserve: OutputReserve,
    /// By file system, when it was measured, and the bytes that are left of it.
    measured: BTreeMap<u64, (Instant, usize)>,
}

/// Output on its way to a file that a guest has named, for a process of the guest's: [`Guests`](super::guests::Guests).
#[derive(Debug)]
pub(super) struct GuestCopy {
    pub(super) step: Step,
    pub(super) prefix: CString,
    pub(super) buffering: Buffering,
}

/// The streams of all tasks that have some.
#[derive(Debug)]
pub(super) struct Streams {
    epoll: Rc<OwnedFd>,
    tasks: BTreeMap<TaskId, TaskStreams>,
    tokens: BTreeMap<u64, TaskId>,
    last_token: u64,
    buffer: Vec<u8>,
    rooms: Rooms,
    /// The tokens of streams that are not read until there is room for their output.
    paused: BTreeSet<u64>,
    resume_at: Option<Instant>,
    /// The limit of descriptors with which the reaper was started.
    limit: Rlimit,
    is_limit_raised: bool,
}

impl Streams {
    pub(super) fn new(epoll: Rc<OwnedFd>) -> Self {
        Self {
            limit: getrlimit(Resource::Nofile),
            is_limit_raised: false,
            epoll,
            tasks: BTreeMap::new(),
            tokens: BTreeMap::new(),
            last_token: 0,
            buffer: Vec::new(),
            rooms: Rooms::default(),
            paused: BTreeSet::new(),
            resume_at: None,
        }
    }

    /// Sets the free space that stored output of guests leaves.
    pub(super) fn reserve(&mut self, reserve: OutputReserve) {
        self.rooms = Rooms {
            reserve,
            measured: BTreeMap::new(),
        };
        if self.resume_at.is_some() {
            self.resume_at = Some(Instant::now());
        }
    }

    /// The time until paused streams are read again.
    pub(super) fn resume_delay(&self) -> Option<Duration> {
        let at = self.resume_at?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Waits for events of paused streams again if it is time and there is room.
    pub(super) fn resume(&mut self) {
        let now = Instant::now();
        if self.resume_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        for token in self.paused.clone() {
            if let Some(task) = self.tokens.get(&token) {
                self.copy(*task, token, 0);
            }
        }
    }

    /// The output of guests that was in flight when there was room for it again since the last call, by job.
    pub(super) fn take_held(&mut self) -> Vec<(JobId, u64)> {
        let mut jobs = BTreeMap::new();
        for (task, streams) in &mut self.tasks {
            let mut held = mem::take(&mut streams.held);
            for (_, copy) in &mut streams.copies {
                held += mem::take(&mut copy.held);
            }
            if held > 0 {
                *jobs.entry(task.job).or_default() += held;
            }
        }
        jobs.into_iter().collect()
    }

    /// Opens the streams of a task: its ends, and those of the reaper if there are any.
    pub(super) fn open(
        &mut self,
        spec: &TaskSpec,
    ) -> Result<(TaskEnds, Option<TaskStreams>), SpawnFailure> {
        let opened = open(spec)?;
        if opened.is_some() {
            self.raise_limit();
        }
        let (ends, streams) = opened.unzip();
        let descriptors = self.is_limit_raised.then_some(self.limit);
        let ends = TaskEnds {
            descriptors,
            ..ends.unwrap_or_default()
        };
        Ok((ends, streams))
    }

    /// Raises the limit of descriptors before it is reached. Tasks get the old one.
    fn raise_limit(&mut self) {
        let needed = MAX_TASK_DESCRIPTORS * (self.tasks.len() as u64 + 2) + OTHER_DESCRIPTORS;
        let is_near = self.limit.current.is_some_and(|current| current < needed);
        if is_near && !self.is_limit_raised && self.limit.current != self.limit.maximum {
            let raised = Rlimit {
                current: self.limit.maximum,
                maximum: self.limit.maximum,
            };
            self.is_limit_raised = setrlimit(Resource::Nofile, raised).is_ok();
        }
    }

    /// Keeps the streams of a task that has started.
    pub(super) fn insert(&mut self, task: TaskId, mut streams: TaskStreams) {
        streams.copies.retain_mut(|(token, copy)| {
            self.last_token += 1;
            *token = self.last_token;
            let data = EventSource::Stream(*token).data();
            self.tokens.insert(*token, task);
            // Out of memory: the task finds its output closed.
            epoll::add(&*self.epoll, &copy.source, data, epoll::EventFlags::IN).is_ok()
        });
        self.tasks.insert(task, streams);
    }

    /// Handles an event. Returns the task whose input has room.
    pub(super) fn handle(&mut self, token: u64) -> Option<TaskId> {
        let task = *self.tokens.get(&token)?;
        let streams = self.tasks.get_mut(&task)?;
        let input = streams.input.as_mut();
        if let Some(input) = input.filter(|input| input.token == Some(token)) {
            input.token = None;
            self.tokens.remove(&token);
            let _ = epoll::delete(&*self.epoll, &input.fd);
            return Some(task);
        }
        self.copy(task, token, MAX_BYTES_PER_EVENT);
        None
    }

    /// Copies what has been read of a stream, and this much of what is available. Without room for it, the stream is paused.
    fn copy(&mut self, task: TaskId, token: u64, max_bytes: usize) {
        let Some(streams) = self.tasks.get_mut(&task) else {
            return;
        };
        let mut copies = streams.copies.iter_mut().enumerate();
        let Some((position, (_, copy))) = copies.find(|(_, (other, _))| *other == token) else {
            return;
        };
        self.buffer.resize(READ_BUFFER_BYTES, 0);
        let data = EventSource::Stream(token).data();
        let flags = epoll::EventFlags::IN;
        let was_paused = self.paused.remove(&token);
        if was_paused {
            copy.held = copy.held.max(copy.in_flight());
        }
        let buffer = &mut self.buffer;
        let progress = self
            .rooms
            .write(copy, |copy, room| copy.run(buffer, max_bytes, room));
        let is_open = match progress {
            Progress::Paused => {
                // It fails if the stream was paused before.
                let _ = epoll::delete(&*self.epoll, &copy.source);
                self.paused.insert(token);
                let at = Instant::now() + RESUME_INTERVAL;
                self.resume_at.get_or_insert(at);
                true
            }
            // Out of memory: the task finds its output closed.
            Progress::Open if was_paused => {
                epoll::add(&*self.epoll, &copy.source, data, flags).is_ok()
            }
            Progress::Open => true,
            Progress::Ended => false,
        };
        if !is_open {
            streams.held += copy.held;
            streams.copies.remove(position);
            self.tokens.remove(&token);
            self.hang_up(task);
        }
    }

    /// Closes the reaper's ends of a task's terminal, if it has one: its output is no longer read.
    pub(super) fn hang_up(&mut self, task: TaskId) {
        if let Some(streams) = self.tasks.get_mut(&task)
            && streams.terminal.take().is_some()
            && let Some(token) = streams.input.take().and_then(|input| input.token)
        {
            self.tokens.remove(&token);
        }
    }

    pub(super) fn write_input(&mut self, task: TaskId, bytes: &[u8]) -> io::Result<usize> {
        let input = self.tasks.get_mut(&task);
        let input = input.and_then(|streams| streams.input.as_mut());
        let input = input.ok_or(ErrorKind::BrokenPipe)?;
        loop {
            match rustix::io::write(&input.fd, bytes) {
                Ok(length) => {
                    let last = length.checked_sub(1).and_then(|last| bytes.get(last));
                    input.is_at_line_start = last == Some(&b'\n');
                    return Ok(length);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        if input.token.is_none() {
            self.last_token += 1;
            let token = self.last_token;
            let data = EventSource::Stream(token).data();
            epoll::add(&*self.epoll, &input.fd, data, epoll::EventFlags::OUT)?;
            input.token = Some(token);
            self.tokens.insert(token, task);
        }
        Err(ErrorKind::WouldBlock.into())
    }

    pub(super) fn end_input(&mut self, task: TaskId) {
        let Some(streams) = self.tasks.get_mut(&task) else {
            return;
        };
        let Some(input) = &streams.input else {
            return;
        };
        if streams.terminal.is_some() {
            let end = end_of_file(&input.fd);
            // The first one ends a line that has begun.
            let count = if input.is_at_line_start { 1 } else { 2 };
            let _ = rustix::io::write(&input.fd, &[end; 2][..count]);
            return;
        }
        if let Some(token) = input.token {
            self.tokens.remove(&token);
        }
        streams.input = None;
    }

    pub(super) fn resize(&mut self, task: TaskId, size: WindowSize) {
        let streams = self.tasks.get(&task);
        if let Some(terminal) = streams.and_then(|streams| streams.terminal.as_ref()) {
            let _ = tcsetwinsize(terminal, window(size));
        }
    }

    /// Reads the rest of the output of a job's tasks, of which no process is left, and closes their streams. Returns the number
    /// of bytes for which there was no room.
    pub(super) fn close(&mut self, job: JobId) -> u64 {
        let mut dropped = 0;
        if self.tasks.is_empty() {
            return dropped;
        }
        let task = |rank| TaskId { job, rank };
        let tasks = self
            .tasks
            .range(task(TaskRank(0))..=task(TaskRank(u32::MAX)));
        let tasks: Vec<_> = tasks.map(|(task, _)| *task).collect();
        for task in tasks {
            let Some(mut streams) = self.tasks.remove(&task) else {
                continue;
            };
            streams.terminal = None;
            self.buffer.resize(READ_BUFFER_BYTES, 0);
            for (token, copy) in &mut streams.copies {
                self.tokens.remove(token);
                self.paused.remove(token);
                let buffer = &mut self.buffer;
                dropped += self
                    .rooms
                    .write(copy, |copy, room| copy.close(buffer, room));
            }
            if let Some(token) = streams.input.and_then(|input| input.token) {
                self.tokens.remove(&token);
            }
        }
        if self.paused.is_empty() {
            self.resume_at = None;
        }
        dropped
    }
}

/// Opens the streams of a task that pass through the reaper; `None` if there are none.
fn open(spec: &TaskSpec) -> Result<Option<(TaskEnds, TaskStreams)>, SpawnFailure> {
    let mut ends = TaskEnds::default();
    let mut streams = TaskStreams::default();
    if let Relay::Terminal(size) = spec.relay {
        let (master, slave) = open_terminal(size).map_err(at(Step::Stdin))?;
        let source = master.try_clone().map_err(|_| failed(Step::Stdin))?;
        streams.copy(source, spec, Step::Stdout, c"", Buffering::None)?;
        ends.terminal = Some(slave.try_clone().map_err(|_| failed(Step::Stdin))?);
        streams.terminal = Some(slave);
        streams.input = Some(InputEnd::new(master));
        return Ok(Some((ends, streams)));
    }
    ends.stdout = streams.relay(spec, Step::Stdout)?;
    ends.stderr = streams.relay(spec, Step::Stderr)?;
    if spec.stdin == Input::Pipe {
        let (end, input) = open_pipe(OFlags::NONBLOCK).map_err(at(Step::Stdin))?;
        ends.stdin = Some(end);
        streams.input = Some(InputEnd::new(input));
    }
    let pipes = [
        (&ends.stdin, Step::Stdin),
        (&ends.stdout, Step::Stdout),
        (&ends.stderr, Step::Stderr),
    ];
    let mut is_used = false;
    for (pipe, step) in pipes {
        if let Some(pipe) = pipe {
            is_used = true;
            if let Some(guest) = spec.guest {
                // The guest can open it again, as `/dev/stderr`.
                fchown(pipe, Some(Uid::from_raw(guest.uid)), None).map_err(at(step))?;
            }
        }
    }
    Ok(is_used.then_some((ends, streams)))
}

/// The buffering of a stream whose lines get labels.
fn label_buffering(spec: &TaskSpec, step: Step) -> Option<Buffering> {
    let Relay::Labels {
        stdout,
        stderr,
        is_line_buffered,
    } = spec.relay
    else {
        return None;
    };
    let is_labelled = match step {
        Step::Stderr => stderr && spec.stderr != Output::SameAsStdout,
        _ => stdout,
    };
    is_labelled.then_some(if is_line_buffered {
        Buffering::Lines
    } else {
        Buffering::None
    })
}

/// Whether a stream is retained output of a guest's process.
///
/// The process gets a pipe in place of the file: it could hand the file to a process outside of the job, which would
/// write to it after the job's end, and allocate space without writing.
fn is_retained_of_guest(spec: &TaskSpec, step: Step) -> bool {
    let (output, is_named) = match step {
        Step::Stderr => (&spec.stderr, spec.guest.map(|guest| guest.names_stderr)),
        _ => (&spec.stdout, spec.guest.map(|guest| guest.names_stdout)),
    };
    is_named == Some(false) && matches!(output, Output::Append(_) | Output::Truncate(_))
}

impl TaskStreams {
    /// Adds a copy of standard output or error if it passes through the reaper, and returns the task's end.
    fn relay(&mut self, spec: &TaskSpec, step: Step) -> Result<Option<OwnedFd>, SpawnFailure> {
        let (prefix, buffering) = if let Some(buffering) = label_buffering(spec, step) {
            let prefix = CString::new(format!("{}: ", spec.task.rank.0));
            (prefix.map_err(|_| failed(step))?, buffering)
        } else if is_retained_of_guest(spec, step) {
            (CString::default(), Buffering::None)
        } else {
            return Ok(None);
        };
        let (source, end) = open_pipe(OFlags::empty()).map_err(at(step))?;
        self.copy(source, spec, step, &prefix, buffering)?;
        Ok(Some(end))
    }

    /// Adds a copy of standard output or error. The reaper, which is root's, does not open a file that a guest has named,
    /// nor write to it: that could block.
    fn copy(
        &mut self,
        source: OwnedFd,
        spec: &TaskSpec,
        step: Step,
        prefix: &CStr,
        buffering: Buffering,
    ) -> Result<(), SpawnFailure> {
        let (output, is_guests) = match step {
            Step::Stderr => (&spec.stderr, spec.guest.map(|guest| guest.names_stderr)),
            _ => (&spec.stdout, spec.guest.map(|guest| guest.names_stdout)),
        };
        let prefix = prefix.to_owned();
        if is_guests == Some(true) {
            let copy = GuestCopy {
                step,
                prefix,
                buffering,
            };
            self.guest_copies.push((source, copy));
        } else {
            let target = open_output(spec, output, step)?;
            if let (Some(guest), Output::Append(_) | Output::Truncate(_)) = (spec.guest, output) {
                output_usage::mark(&target, guest.uid).map_err(at(step))?;
            }
            let label = Label::new(prefix.into_bytes(), buffering);
            let file_system = if is_retained_of_guest(spec, step) {
                Some(fstat(&target).map_err(at(step))?.st_dev)
            } else {
                None
            };
            let copy = OutputCopy {
                source,
                target,
                label,
                unwritten: Vec::new(),
                held: 0,
                file_system,
            };
            self.copies.push((0, copy));
        }
        Ok(())
    }

    /// Removes the copies that processes of a guest's make, with their sources.
    pub(super) fn take_guest_copies(&mut self) -> Vec<(OwnedFd, GuestCopy)> {
        mem::take(&mut self.guest_copies)
    }
}

/// A pipe: its reading and its writing end, of which the reaper's does not block.
fn open_pipe(writer: OFlags) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (source, target) = pipe_with(PipeFlags::CLOEXEC)?;
    let own = if writer.contains(OFlags::NONBLOCK) {
        &target
    } else {
        &source
    };
    rustix::fs::fcntl_setfl(own, OFlags::NONBLOCK)?;
    Ok((source, target))
}

/// A pseudo-terminal: the reaper's end and the task's.
fn open_terminal(size: WindowSize) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    tcsetwinsize(&slave, window(size))?;
    rustix::fs::fcntl_setfl(&master, OFlags::NONBLOCK)?;
    Ok((master, slave))
}

fn window(size: WindowSize) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn end_of_file(terminal: impl AsFd) -> u8 {
    let character = tcgetattr(terminal).map(|modes| modes.special_codes[SpecialCodeIndex::VEOF]);
    character.unwrap_or(DEFAULT_END_OF_FILE_CHARACTER)
}

/// Opens a file of output as the task would.
fn open_output(spec: &TaskSpec, output: &Output, step: Step) -> Result<OwnedFd, SpawnFailure> {
    let (path, truncate) = match output {
        Output::Null | Output::SameAsStdout => (c"/dev/null", OFlags::empty()),
        Output::Append(path) => (path.as_c_str(), OFlags::empty()),
        Output::Truncate(path) => (path.as_c_str(), OFlags::TRUNC),
    };
    let directory = if path.to_bytes().starts_with(b"/") {
        None
    } else {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, spec.directory.as_c_str(), flags, Mode::empty());
        Some(directory.map_err(at(Step::Chdir))?)
    };
    let directory = directory.as_ref().map_or(CWD, AsFd::as_fd);
    let mask = if is_retained_of_guest(spec, step) {
        PRIVATE_MASK
    } else {
        spec.umask
    };
    open_file(directory, path, truncate, mask).map_err(at(step))
}

fn open_file(
    directory: BorrowedFd<'_>,
    path: &CStr,
    truncate: OFlags,
    mask: u32,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
    let flags = flags | truncate | OFlags::NOCTTY | OFlags::NONBLOCK;
    let before = umask(Mode::from_raw_mode(mask & 0o777));
    let file = openat(directory, path, flags, Mode::from_raw_mode(0o666));
    umask(before);
    let file = file?;
    // A write to other kinds of files can block.
    let stat = fstat(&file)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::RegularFile || path == c"/dev/null" {
        Ok(file)
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

fn at(step: Step) -> impl Fn(Errno) -> SpawnFailure {
    move |errno| SpawnFailure {
        step,
        errno: errno.raw_os_error(),
    }
}

fn failed(step: Step) -> SpawnFailure {
    at(step)(Errno::MFILE)
}

impl InputEnd {
    fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            token: None,
            is_at_line_start: true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    /// There is no room for more.
    Paused,
    Ended,
}

impl Rooms {
    /// Writes output as far as there is room.
    fn write<T>(
        &mut self,
        copy: &mut OutputCopy,
        write: impl FnOnce(&mut OutputCopy, &mut usize) -> T,
    ) -> T {
        let mut room = self.room(copy, Instant::now());
        let before = room;
        let result = write(copy, &mut room);
        self.record_written(copy, before - room);
        result
    }

    /// The bytes that may be written to a file now. It is measured when it is old, or may not suffice for one event.
    fn room(&mut self, copy: &OutputCopy, now: Instant) -> usize {
        let Some(file_system) = copy.file_system.filter(|_| self.reserve.0 > 0) else {
            return usize::MAX;
        };
        if let Some((at, room)) = self.measured.get(&file_system)
            && now.saturating_duration_since(*at) < ROOM_LIFETIME
            && *room >= MAX_BYTES_PER_EVENT
        {
            return *room;
        }
        let free = output_usage::free_bytes_of(&copy.target);
        let room = usize::try_from(self.reserve.room(free)).unwrap_or(usize::MAX);
        self.measured.insert(file_system, (now, room));
        room
    }

    /// Takes what was written from the room of its file system.
    fn record_written(&mut self, copy: &OutputCopy, bytes: usize) {
        let file_system = copy.file_system.as_ref();
        if let Some((_, room)) = file_system.and_then(|id| self.measured.get_mut(id)) {
            *room = room.saturating_sub(bytes.next_multiple_of(output_usage::BLOCK_BYTES));
        }
    }
}

impl OutputCopy {
    /// Copies the available output as far as there is room. If it cannot be written, the task finds its output closed.
    fn run(&mut self, buffer: &mut [u8], max_bytes: usize, room: &mut usize) -> Progress {
        let mut rest = max_bytes;
        if self.write(room).is_err() {
            return Progress::Ended;
        }
        loop {
            if *room == 0 {
                return Progress::Paused;
            }
            if rest == 0 {
                return Progress::Open;
            }
            let length = buffer.len().min(rest).min(*room);
            let bytes = buffer.get_mut(..length).unwrap_or_default();
            match rustix::io::read(&self.source, &mut *bytes) {
                // EIO: no process has the terminal open.
                Ok(0) | Err(Errno::IO) => return self.finish(room),
                Ok(length) => {
                    rest = rest.saturating_sub(length);
                    let bytes = bytes.get(..length).unwrap_or_default();
                    self.unwritten = self.label.add_to(bytes);
                    if self.write(room).is_err() {
                        return Progress::Ended;
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return Progress::Open,
            }
        }
    }

    /// The bytes that are in the pipe or terminal.
    fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.source).unwrap_or(0)
    }

    /// The bytes that are not in the file yet, without the labels of those that have not been read.
    fn in_flight(&self) -> u64 {
        self.unread() + self.unwritten.len() as u64
    }

    /// Writes what has been read, as far as there is room.
    fn write(&mut self, room: &mut usize) -> Result<(), Errno> {
        let length = self.unwritten.len().min(*room);
        *room -= length;
        let bytes = self.unwritten.get(..length).unwrap_or_default();
        write_all(&self.target, bytes)?;
        self.unwritten.drain(..length);
        Ok(())
    }

    /// Writes a line that has not ended.
    fn finish(&mut self, room: &mut usize) -> Progress {
        self.unwritten.append(&mut self.label.finish());
        if self.write(room).is_ok() && !self.unwritten.is_empty() {
            Progress::Paused
        } else {
            Progress::Ended
        }
    }

    /// Copies what is available at the end of the job. Returns the number of bytes for which there was no room.
    fn close(&mut self, buffer: &mut [u8], room: &mut usize) -> u64 {
        let mut progress = self.run(buffer, MAX_BYTES_PER_EVENT, room);
        if progress == Progress::Open {
            progress = self.finish(room);
        }
        if progress != Progress::Paused {
            return 0;
        }
        // A process outside of the job may fill the pipe again.
        let available = self.unread();
        let read = self.unwritten.len() + self.label.finish().len();
        available.min(MAX_BYTES_PER_EVENT as u64) + read as u64
    }
}

fn write_all(target: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(target, bytes) {
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn guests_copy(source: OwnedFd, file: &std::fs::File) -> OutputCopy {
        OutputCopy {
            source,
            target: file.try_clone().expect("a descriptor").into(),
            label: Label::new(b"12: ".to_vec(), Buffering::None),
            unwritten: Vec::new(),
            held: 0,
            file_system: Some(fstat(file).expect("a file").st_dev),
        }
    }

    /// Streams with one task, which has one pipe for its labelled output, and the file.
    fn streams(task: TaskId) -> (Streams, OwnedFd, std::fs::File) {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("available");
        let mut streams = Streams::new(Rc::new(epoll));
        let (source, end) = open_pipe(OFlags::empty()).expect("a pipe");
        let file = tempfile::tempfile().expect("a file");
        let copies = vec![(0, guests_copy(source, &file))];
        let task_streams = TaskStreams {
            copies,
            ..TaskStreams::default()
        };
        streams.insert(task, task_streams);
        (streams, end, file)
    }

    const TASK: TaskId = TaskId {
        job: JobId::new(1),
        rank: TaskRank(12),
    };

    fn contents(file: &mut std::fs::File) -> String {
        let mut text = String::new();
        std::io::Seek::rewind(file).expect("rewound");
        file.read_to_string(&mut text).expect("UTF-8");
        text
    }

    #[test]
    fn output_of_a_guest_is_copied_when_there_is_room() {
        let (mut streams, end, mut file) = streams(TASK);
        streams.reserve(OutputReserve(u64::MAX));
        write_all(&end, b"one\ntwo\n").expect("there is room in the pipe");
        streams.handle(1);
        assert_eq!(contents(&mut file), "");
        assert!(streams.resume_delay().is_some());
        assert_eq!(streams.take_held(), []);
        // A changed reserve is looked at now.
        streams.reserve(OutputReserve(1));
        streams.resume();
        assert_eq!(streams.resume_delay(), None);
        // The pipe is watched again, in turn with all others.
        assert_eq!(contents(&mut file), "");
        let mut events = Vec::with_capacity(1);
        epoll::wait(
            &*streams.epoll,
            rustix::buffer::spare_capacity(&mut events),
            None,
        )
        .expect("an event");
        assert_eq!(events.len(), 1);
        streams.handle(1);
        assert_eq!(contents(&mut file), "12: one\n12: two\n");
        // Without labels: the task has not written those. It is listed once.
        assert_eq!(streams.take_held(), [(TASK.job, 8)]);
        assert_eq!(streams.take_held(), []);
        write_all(&end, b"three\n").expect("there is room in the pipe");
        streams.reserve(OutputReserve(u64::MAX));
        streams.handle(1);
        assert_eq!(streams.close(TASK.job), 6);
        assert_eq!(streams.resume_delay(), None);
        assert_eq!(contents(&mut file), "12: one\n12: two\n");
    }

    #[test]
    fn output_that_was_in_flight_is_listed_after_the_end_of_its_stream() {
        let (mut streams, end, mut file) = streams(TASK);
        streams.reserve(OutputReserve(u64::MAX));
        write_all(&end, b"one\n").expect("there is room in the pipe");
        drop(end);
        streams.handle(1);
        streams.reserve(OutputReserve(1));
        streams.resume();
        // A program that another test starts has the end, too, until it is executed.
        while !streams.tokens.is_empty() {
            streams.handle(1);
        }
        assert_eq!(contents(&mut file), "12: one\n");
        assert_eq!(streams.take_held(), [(TASK.job, 4)]);
        assert_eq!(streams.take_held(), []);
    }

    #[test]
    fn no_more_is_written_than_there_is_room_for() {
        let (source, end) = open_pipe(OFlags::empty()).expect("a pipe");
        write_all(&end, b"a\nb\n").expect("there is room");
        let mut file = tempfile::tempfile().expect("a file");
        let mut copy = guests_copy(source, &file);
        // Labels make it longer than the room was.
        copy.unwritten = copy.label.add_to(b"a\nb\n");
        copy.write(&mut 7).expect("written");
        assert_eq!(contents(&mut file), "12: a\n1");
        assert_eq!(copy.unwritten, b"2: b\n");
        assert_eq!(copy.finish(&mut 0), Progress::Paused);
        assert_eq!(copy.close(&mut [0; 100], &mut 0), 9);
    }

    #[test]
    fn a_stream_is_paused_when_labels_use_the_room() {
        let (source, end) = open_pipe(OFlags::empty()).expect("a pipe");
        write_all(&end, b"a\nb\n").expect("there is room");
        let mut file = tempfile::tempfile().expect("a file");
        let mut copy = guests_copy(source, &file);
        let progress = copy.run(&mut [0; 100], 4, &mut 7);
        assert_eq!(progress, Progress::Paused);
        assert_eq!(contents(&mut file), "12: a\n1");
        // Output that was read before is written without another event.
        let progress = copy.run(&mut [0; 100], 0, &mut 100);
        assert_eq!(progress, Progress::Open);
        assert_eq!(contents(&mut file), "12: a\n12: b\n");
    }

    #[test]
    fn the_room_of_a_file_system_is_known_for_a_short_time() {
        let (source, _end) = open_pipe(OFlags::empty()).expect("a pipe");
        let file = tempfile::tempfile().expect("a file");
        let copy = guests_copy(source, &file);
        let file_system = copy.file_system.expect("known");
        let mut rooms = Rooms {
            reserve: OutputReserve(1),
            measured: BTreeMap::new(),
        };
        let now = Instant::now();
        let known = MAX_BYTES_PER_EVENT + (1 << 12);
        for (room, later, is_known) in [
            (known, ROOM_LIFETIME / 2, true),
            (known, ROOM_LIFETIME, false),
            (known - 1, Duration::ZERO, false),
        ] {
            rooms.measured.insert(file_system, (now, room));
            // It takes a block.
            rooms.record_written(&copy, 9);
            let found = rooms.room(&copy, now + later);
            assert_eq!(found == MAX_BYTES_PER_EVENT, is_known, "{room} {later:?}");
        }
    }

    /// At the end of a job a process outside of it may write as fast as the reaper reads.
    #[test]
    fn no_more_is_copied_at_once_than_permitted() {
        let (source, end) = open_pipe(OFlags::empty()).expect("a pipe");
        write_all(&end, &[b'x'; 10_000]).expect("there is room");
        let mut file = tempfile::tempfile().expect("a file");
        let mut copy = OutputCopy {
            source,
            target: file.try_clone().expect("a descriptor").into(),
            label: Label::new(Vec::new(), Buffering::None),
            unwritten: Vec::new(),
            held: 0,
            file_system: None,
        };
        let progress = copy.run(&mut [0; 100], 1000, &mut { usize::MAX });
        assert_eq!(progress, Progress::Open);
        let mut copied = Vec::new();
        std::io::Seek::rewind(&mut file).expect("rewound");
        file.read_to_end(&mut copied).expect("read");
        assert_eq!(copied.len(), 1000);
    }
}
