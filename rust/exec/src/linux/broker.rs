//! The connection to an instance, and what event loops of its services share: backoff, clock and log.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Uid, geteuid};

use super::syscalls;
use crate::Error;

const READ_BUFFER_BYTES: usize = 256 << 10;
/// The longest line of the log: with its end it is written to a pipe at once or not at all.
const MAX_LINE_BYTES: usize = 4095;
/// Time after which an instance that accepts a connection and says nothing counts as none.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// Delays before an attempt to reconnect: the first, and the longest.
const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// The socket of an instance, and the users whose servers may be the instance: a server of others would decide which
/// programs this user executes.
#[derive(Debug)]
pub(super) struct Server {
    uri: String,
    path: PathBuf,
    users: BTreeSet<u32>,
}

impl Server {
    /// Trusts the user of this process, root, and these users.
    ///
    /// # Errors
    ///
    /// Fails unless the address is `local:///PATH`.
    pub(super) fn new(uri: &str, others: &BTreeSet<u32>) -> Result<Self, Error> {
        let path = uri.strip_prefix("local://");
        let Some(path) = path.filter(|path| path.starts_with('/')) else {
            let text = format!("unsupported address `{uri}`: expected local:///path/to/socket");
            return Err(Error::directory(text));
        };
        let mut users = others.clone();
        users.extend([geteuid(), Uid::ROOT].map(Uid::as_raw));
        Ok(Self {
            uri: uri.to_owned(),
            path: PathBuf::from(path),
            users,
        })
    }

    /// Checks the user of the server before a byte is sent.
    fn check(&self, stream: &UnixStream) -> Result<(), Error> {
        let uid = syscalls::peer_uid(stream).map_err(|error| self.missing(&error))?;
        let uid = uid.as_raw();
        if self.users.contains(&uid) {
            return Ok(());
        }
        let uri = &self.uri;
        Err(Error::no_instance(format!(
            "the server at `{uri}` is not trusted: it runs as user {uid}\n\
             hint: to trust that user, name it in the address (`local://{uid}@/PATH`)"
        )))
    }

    fn missing(&self, error: &io::Error) -> Error {
        let hint = "hint: start one with `penstock start`, or set PENSTOCK_URI";
        Error::no_instance(format!("no instance at `{}`: {error}\n{hint}", self.uri))
    }

    fn open(&self) -> Result<UnixStream, Error> {
        let missing = |error: io::Error| self.missing(&error);
        let stream = UnixStream::connect(&self.path).map_err(missing)?;
        self.check(&stream)?;
        greet(stream).map_err(missing)
    }
}

/// Reads the greeting of an instance: a status byte.
fn greet(mut stream: UnixStream) -> io::Result<UnixStream> {
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    let mut status = [0];
    stream.read_exact(&mut status)?;
    let [errno] = status;
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno.into()));
    }
    stream.set_read_timeout(None)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The connection to the instance.
pub(super) struct Broker {
    stream: UnixStream,
    decoder: Decoder,
    unsent: Vec<u8>,
    /// Holds the bytes of one read.
    buffer: Vec<u8>,
}

impl Broker {
    /// Connects to an instance.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if the server is that of a user who is not trusted.
    pub(super) fn connect(server: &Server) -> Result<Self, Error> {
        Ok(Self {
            stream: server.open()?,
            decoder: Decoder::new(DEFAULT_MAX_FRAME_BYTES),
            unsent: Vec::new(),
            buffer: vec![0; READ_BUFFER_BYTES],
        })
    }

    /// Adds a message to those that [`flush`](Self::flush) sends.
    pub(super) fn send(&mut self, message: &Message) {
        message.encode(&mut self.unsent);
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.len()
    }

    /// The socket, to be waited for until it can be read and, if something is unsent, written.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.unsent.is_empty());
        PollFd::new(&self.stream, flags)
    }

    /// Reads once, and adds the messages that have arrived. A message whose payload cannot be read is answered here.
    ///
    /// # Errors
    ///
    /// Fails if the connection is lost, also by a malformed frame; the messages before that are added.
    pub(super) fn receive(&mut self, messages: &mut Vec<Message>) -> io::Result<()> {
        let length = match self.stream.read(&mut self.buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if is_temporary(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut received = Vec::new();
        let bytes = self.buffer.get(..length).unwrap_or_default();
        let result = self.decoder.feed(bytes, &mut received);
        for answer in Message::normalise_all(&mut received) {
            self.send(&answer);
        }
        messages.append(&mut received);
        result.map_err(io::Error::other)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        write_unsent(&mut self.stream, &mut self.unsent)
    }
}

/// Writes unsent bytes as far as the socket takes them without waiting.
pub(super) fn write_unsent(stream: &mut UnixStream, unsent: &mut Vec<u8>) -> io::Result<()> {
    let mut sent = 0;
    while let Some(rest) = unsent.get(sent..).filter(|rest| !rest.is_empty()) {
        match stream.write(rest) {
            Ok(length) => sent += length,
            Err(error) if is_temporary(&error) => break,
            Err(error) => return Err(error),
        }
    }
    unsent.drain(..sent);
    Ok(())
}

pub(super) fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// When to try again, with exponential backoff.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    delay: Option<Duration>,
    retry_at: Option<Instant>,
}

impl Backoff {
    pub(super) fn record_failure(&mut self) {
        let delay = self
            .delay
            .map_or(MIN_BACKOFF, |delay| (2 * delay).min(MAX_BACKOFF));
        self.delay = Some(delay);
        self.retry_at = Some(Instant::now() + delay);
    }

    pub(super) fn is_due(&self) -> bool {
        self.retry_at.is_none_or(|at| at <= Instant::now())
    }

    /// Whether no attempt has failed yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.delay.is_none()
    }

    pub(super) fn remaining(&self) -> Duration {
        let at = self
            .retry_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        at.unwrap_or_default()
    }
}

/// Writes a line to the log, standard error. A reader that has gone is no reason to end. While a reader does not read, lines
/// are dropped: jobs do not wait for it.
pub(super) fn log(text: &str) {
    static DROPPED_LINES: AtomicU64 = AtomicU64::new(0);
    let mut stderr = io::stderr().lock();
    // A pipe that can be written has room for a line.
    let is_ready = {
        let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    };
    if !is_ready {
        DROPPED_LINES.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let line = match DROPPED_LINES.swap(0, Ordering::Relaxed) {
        0 => format!("penstock-exec: {text}"),
        count => format!("penstock-exec: {count} lines were dropped\npenstock-exec: {text}"),
    };
    let mut line = line.into_bytes();
    line.truncate(MAX_LINE_BYTES);
    line.push(b'\n');
    let _ = stderr.write_all(&line);
}

pub(super) fn now() -> f64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0.0, |elapsed| elapsed.as_secs_f64())
}
