//! The event loop of a reaper.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::process::{Resource, chdir, geteuid, getpid, getrlimit, set_child_subreaper, setsid};

use super::broker::{is_temporary, write_unsent};
use super::cgroup::CgroupPlace;
use super::directory::{self, Directory, IfLocked};
use super::event_source::EventSource;
use super::kernel::LinuxKernel;
use super::standby::{self, Part};
use super::syscalls::Reaped;
use super::{procfs, syscalls};
use crate::kernel::Kernel;
use crate::log::LogContents;
use crate::mark::MarkSpace;
use crate::protocol::{FrameDecoder, Hello, Message, Request, VERSION};
use crate::types::Pid;
use crate::{ConnectionId, Error, Reaper};

/// Connections at a time; a service needs one.
const MAX_CONNECTIONS: usize = 64;
/// Unread bytes at which a connection is closed. Its service can reconnect and request everything that is known.
const MAX_UNSENT_BYTES: usize = 64 << 20;
const READ_BUFFER_BYTES: usize = 64 << 10;
/// Reads of one connection before exits are handled and tasks started again.
const MAX_READS_AHEAD: u32 = 256;
/// Delay before a failed write of the log is retried.
const LOG_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which the message that a task has started is held: the end of a shorter task travels with it.
const START_HOLD: Duration = Duration::from_millis(4);

/// The settings of a reaper.
#[derive(Debug, Clone)]
pub struct Options {
    /// The runtime directory: it must belong to the user and be inaccessible to others.
    pub directory: PathBuf,
    /// Time after which a reaper without processes and connections exits; never if `None`. Statuses that no service has
    /// acknowledged are in its log, from which the next reaper of the directory reports them.
    pub idle_timeout: Option<Duration>,
    /// The parent of the cgroups of jobs.
    pub cgroup: CgroupPlace,
    /// The program `penstock-imp`.
    pub imp: PathBuf,
}

/// Runs a reaper in a grandchild of this process until it has been idle for the configured time, or a service requests its
/// end. If that process is killed, its parent takes its place until no task is left, and if that one is killed, this one.
/// Returns the exit code.
///
/// The process must do nothing else: all descriptors except the standard streams are closed, it becomes a session
/// leader and a child subreaper, and it blocks all signals. When the socket listens, the reaper writes the line
/// `listening` to standard output and closes the standard streams; later errors go to the file `errors` of the
/// directory.
///
/// # Errors
///
/// Fails if the directory is unsuitable or used by another reaper, or if an indispensable system call fails.
pub fn serve(options: &Options) -> Result<ExitCode, Error> {
    syscalls::block_signals();
    syscalls::close_inherited()
        .map_err(|error| Error::system("cannot close inherited descriptors", &error))?;
    lead_session()?;
    // A process has its own locks: those of a standby are not those of the processes that it has created.
    let mut standbys = Vec::new();
    let mut is_successor = false;
    for lock in [
        directory::SECOND_STANDBY_LOCK_FILE,
        directory::STANDBY_LOCK_FILE,
    ] {
        let mut directory = Directory::open(&options.directory, directory::LOG_FILE)?;
        directory.lock(lock, "reaper", IfLocked::Fail)?;
        let part = standby::fork_child(&directory)?;
        standbys.push(directory);
        match part {
            Part::Ended(code) => return Ok(code),
            Part::Successor => {
                is_successor = true;
                break;
            }
            Part::Child => lead_session()?,
        }
    }
    let mut directory = Directory::open(&options.directory, directory::LOG_FILE)?;
    directory.lock(directory::LOCK_FILE, "reaper", IfLocked::Fail)?;
    let _starts = directory
        .lock_starts()
        .map_err(|error| Error::system("cannot lock the reaper's directory", &error))?;
    let recorded = directory.decode_log(LogContents::decode)?;
    start(directory, recorded, options)
        .and_then(|mut event_loop| {
            event_loop.is_successor = is_successor;
            event_loop.run()
        })
        .map_err(|error| Error::system("the reaper failed", &error))?;
    Ok(ExitCode::SUCCESS)
}

fn lead_session() -> Result<(), Error> {
    let Err(errno) = setsid() else {
        return Ok(());
    };
    // The call fails for the leader of a process group, which may lead its session, too.
    let own = Pid(std::process::id());
    if procfs::stat(own).is_some_and(|stat| stat.session == own) {
        return Ok(());
    }
    let hint = "cannot become a session leader (hint: start it by `setsid penstock-reaper`)";
    Err(Error::system(hint, &errno.into()))
}

fn start(
    directory: Directory,
    recorded: Option<LogContents>,
    options: &Options,
) -> io::Result<EventLoop> {
    // The starter's working directory may be removed or unmounted.
    chdir("/")?;
    set_child_subreaper(Some(getpid()))?;
    let epoll = Rc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
    let child_signal = syscalls::child_signal_fd()?;
    add(&epoll, &child_signal, EventSource::ChildSignal)?;
    let errors = directory.open_errors()?;
    let imp = CString::new(options.imp.as_os_str().as_bytes())?;
    let mut kernel = LinuxKernel::new(directory, &options.cgroup, imp, Rc::clone(&epoll))?;
    let hello = Hello {
        version: VERSION,
        boot: procfs::boot_id()?,
        process: procfs::current_process()?,
    };
    let hard_limit = getrlimit(Resource::Locks).maximum.unwrap_or(u64::MAX);
    let marks = MarkSpace::below(hard_limit);
    let reaper = Reaper::restore(hello, marks, recorded, &mut kernel)?;
    let listener = kernel.directory().listen()?;
    add(&epoll, &listener, EventSource::Listener)?;

    // A starter that has gone is no error.
    let _ = writeln!(io::stdout(), "listening");
    rustix::stdio::dup2_stdin(kernel.null())?;
    rustix::stdio::dup2_stdout(kernel.null())?;
    rustix::stdio::dup2_stderr(&errors)?;
    Ok(EventLoop {
        epoll,
        child_signal,
        listener,
        kernel,
        reaper,
        connections: BTreeMap::new(),
        buffer: vec![0; READ_BUFFER_BYTES],
        next_connection: 0,
        is_successor: false,
        idle_timeout: options.idle_timeout,
        idle_since: None,
        held_since: None,
    })
}

fn add(epoll: &OwnedFd, descriptor: impl AsFd, source: EventSource) -> io::Result<()> {
    Ok(epoll::add(
        epoll,
        descriptor,
        source.data(),
        epoll::EventFlags::IN,
    )?)
}

struct EventLoop {
    epoll: Rc<OwnedFd>,
    child_signal: OwnedFd,
    listener: UnixListener,
    kernel: LinuxKernel,
    reaper: Reaper,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Holds the bytes of one read.
    buffer: Vec<u8>,
    next_connection: u64,
    /// Whether it was the standby of a killed reaper, and has at most one standby of its own.
    is_successor: bool,
    idle_timeout: Option<Duration>,
    idle_since: Option<Instant>,
    /// Since when messages of starts are held.
    held_since: Option<Instant>,
}

struct Connection {
    stream: UnixStream,
    decoder: FrameDecoder,
    unsent: Vec<u8>,
    /// Whether the loop waits until the socket is writable.
    is_blocked: bool,
}

impl EventLoop {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        // Children that a killed reaper has left may have ended before the descriptor of the signal was there.
        self.reap();
        self.reaper.step(&mut self.kernel);
        self.reaper.commit(&mut self.kernel);
        // A successor without tasks makes room for a reaper that has both standbys.
        while !(self.is_successor && self.is_settled()) {
            events.clear();
            let timeout = self.timeout();
            if timeout.is_some_and(|timeout| timeout.is_zero()) && self.is_idle_for_long() {
                break;
            }
            self.wait(&mut events, timeout)?;
            for event in events.drain(..) {
                self.dispatch(event.data.u64(), event.flags);
            }
            self.kernel.resume_streams();
            self.reaper.step(&mut self.kernel);
            self.reaper.commit(&mut self.kernel);
            if self.check_send_due() {
                self.send();
            }
            let is_sent = |connection: &Connection| connection.unsent.is_empty();
            if self.reaper.is_finished()
                && !self.reaper.has_unwritten_records()
                && self.connections.values().all(is_sent)
            {
                break;
            }
        }
        self.kernel.close_cgroups();
        self.kernel.directory().remove_socket()
    }

    /// The timeout of the next wait.
    fn timeout(&mut self) -> Option<Duration> {
        let is_idle = self.reaper.is_idle() && self.connections.is_empty();
        if !is_idle {
            self.idle_since = None;
        }
        if self.reaper.has_queued_requests() {
            Some(Duration::ZERO)
        } else if let Some(since) = self.held_since {
            Some(START_HOLD.saturating_sub(since.elapsed()))
        } else if self.reaper.has_unwritten_records() {
            Some(LOG_RETRY_INTERVAL)
        } else if let Some(delay) = self.kernel.resume_delay() {
            Some(delay)
        } else if is_idle {
            let since = *self.idle_since.get_or_insert_with(Instant::now);
            self.idle_timeout
                .map(|timeout| timeout.saturating_sub(since.elapsed()))
        } else {
            None
        }
    }

    /// Whether it has nothing to do and nothing to tell.
    fn is_settled(&self) -> bool {
        self.reaper.has_nothing_to_do()
            && !self.reaper.has_messages()
            && self
                .connections
                .values()
                .all(|connection| connection.unsent.is_empty())
    }

    fn is_idle_for_long(&self) -> bool {
        self.idle_since
            .zip(self.idle_timeout)
            .is_some_and(|(since, timeout)| since.elapsed() >= timeout)
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let buffer = rustix::buffer::spare_capacity(events);
        match epoll::wait(&*self.epoll, buffer, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn dispatch(&mut self, token: u64, flags: epoll::EventFlags) {
        let Some(source) = EventSource::from_token(token) else {
            return;
        };
        match source {
            EventSource::Listener => self.accept(),
            EventSource::ChildSignal => self.reap(),
            EventSource::Process(pid) => {
                self.kernel.unwatch(pid);
                self.reaper.record_orphan_end(pid, self.kernel.now_ns());
            }
            EventSource::Setup(pid) => {
                if let Some(result) = self.kernel.advance_setup(pid) {
                    self.reaper.record_setup(pid, result);
                }
            }
            EventSource::Cgroup(cgroup) => self.reaper.record_cgroup_change(cgroup),
            EventSource::Stream(number) => {
                if let Some(task) = self.kernel.handle_stream(number) {
                    self.reaper.write_input(task.job, &mut self.kernel);
                }
            }
            EventSource::Connection(number) => {
                let id = ConnectionId(number);
                let is_readable = flags.intersects(
                    epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR,
                );
                if is_readable && let Err(error) = self.receive_ahead(id) {
                    self.drop_connection(id, &error);
                }
            }
        }
    }

    fn reap(&mut self) {
        // Signals of one number are merged: only `wait4` shows how many children have ended.
        let mut signal = [0; size_of::<libc::signalfd_siginfo>()];
        let _ = rustix::io::read(&self.child_signal, &mut signal);
        let mut exits = Vec::new();
        let has_children = loop {
            match syscalls::reap_any() {
                Reaped::Exit(exit) => exits.push(exit),
                Reaped::Running => break true,
                Reaped::Childless => break false,
            }
        };
        for exit in &exits {
            if let Some(result) = self.kernel.finish_setup(exit.pid) {
                self.reaper.record_setup(exit.pid, result);
            }
            if let Some(job) = self.kernel.finish_copy(exit.pid) {
                self.reaper.record_output_end(job);
            }
        }
        self.reaper.reap(&exits, self.kernel.now_ns());
        if !has_children {
            self.reaper.record_childless();
        }
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.add_connection(stream) {
                        eprintln!("penstock-reaper: connection rejected: {error}");
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        eprintln!("penstock-reaper: cannot accept a connection: {error}");
                    }
                    return;
                }
            }
        }
    }

    fn add_connection(&mut self, stream: UnixStream) -> io::Result<()> {
        let uid = syscalls::peer_uid(&stream)?;
        if !uid.is_root() && uid != geteuid() {
            let text = format!("user {} is not the owner", uid.as_raw());
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        if self.connections.len() >= MAX_CONNECTIONS {
            let text = format!("more than {MAX_CONNECTIONS} connections");
            return Err(io::Error::other(text));
        }
        stream.set_nonblocking(true)?;
        add(
            &self.epoll,
            &stream,
            EventSource::Connection(self.next_connection),
        )?;
        let connection = Connection {
            stream,
            decoder: FrameDecoder::default(),
            unsent: Vec::new(),
            is_blocked: false,
        };
        let id = ConnectionId(self.next_connection);
        self.connections.insert(id, connection);
        self.next_connection += 1;
        Ok(())
    }

    /// Handles the requests that one read completes. Returns whether there was something to read.
    fn receive(&mut self, id: ConnectionId) -> io::Result<bool> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(false);
        };
        let length = match connection.stream.read(&mut self.buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if is_temporary(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        connection
            .decoder
            .push(self.buffer.get(..length).unwrap_or_default());
        let mut requests = Vec::new();
        while let Some(payload) = connection
            .decoder
            .next_payload()
            .map_err(io::Error::other)?
        {
            requests.push(Request::decode(payload).map_err(io::Error::other)?);
        }
        for (request_id, request) in requests {
            if matches!(request, Request::Hello { .. }) {
                self.receive_from_older(id);
            }
            self.reaper
                .handle(id, request_id, request, &mut self.kernel);
        }
        Ok(true)
    }

    /// Handles the requests of one read, and of more reads while tasks are to be started: that takes much longer, and the
    /// request that comes next may be for another job.
    fn receive_ahead(&mut self, id: ConnectionId) -> io::Result<()> {
        let mut reads = 0;
        while self.receive(id)? && self.reaper.has_queued_requests() && reads < MAX_READS_AHEAD {
            reads += 1;
        }
        Ok(())
    }

    /// Handles everything that older connections have sent. A killed service may have left requests in its socket: the
    /// service that replaces it must not learn of their tasks later than by its first list request.
    fn receive_from_older(&mut self, id: ConnectionId) {
        let older: Vec<_> = self.connections.range(..id).map(|(id, _)| *id).collect();
        for id in older {
            loop {
                match self.receive(id) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        self.drop_connection(id, &error);
                        break;
                    }
                }
            }
        }
    }

    /// Decides whether messages are sent now: at once, unless they tell of starts only.
    fn check_send_due(&mut self) -> bool {
        if !self.reaper.has_messages() || self.reaper.has_urgent_messages() {
            return true;
        }
        let since = *self.held_since.get_or_insert_with(Instant::now);
        since.elapsed() >= START_HOLD
    }

    fn send(&mut self) {
        self.held_since = None;
        let mut failed = Vec::new();
        for (id, message) in self.reaper.take_messages() {
            if let Some(connection) = self.connections.get_mut(&id)
                && let Err(error) = connection.push(&message)
            {
                failed.push((id, error));
            }
        }
        for (id, connection) in &mut self.connections {
            if let Err(error) = connection.flush(&self.epoll, *id) {
                failed.push((*id, error));
            }
        }
        for (id, error) in failed {
            self.drop_connection(id, &error);
        }
    }

    fn drop_connection(&mut self, id: ConnectionId, error: &io::Error) {
        if error.kind() != ErrorKind::UnexpectedEof {
            eprintln!("penstock-reaper: connection closed: {error}");
        }
        self.connections.remove(&id);
        self.reaper.disconnect(id);
    }
}

impl Connection {
    fn push(&mut self, message: &Message) -> io::Result<()> {
        message.encode(&mut self.unsent).map_err(io::Error::other)?;
        if self.unsent.len() > MAX_UNSENT_BYTES {
            return Err(io::Error::other("the service does not read"));
        }
        Ok(())
    }

    fn flush(&mut self, epoll: &OwnedFd, id: ConnectionId) -> io::Result<()> {
        write_unsent(&mut self.stream, &mut self.unsent)?;
        let is_blocked = !self.unsent.is_empty();
        if is_blocked != self.is_blocked {
            self.is_blocked = is_blocked;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, is_blocked);
            epoll::modify(
                epoll,
                &self.stream,
                EventSource::Connection(id.0).data(),
                flags,
            )?;
        }
        Ok(())
    }
}
