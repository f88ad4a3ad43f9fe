//! The connection to an instance, and what event loops of its services share: backoff, clock and log.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_wire::{DEFAULT_MAX_FRAME, Decoder, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Error;

const READ_BUFFER_BYTES: usize = 256 << 10;
/// The longest line of the log: with its end it is written to a pipe at once or not at all.
const MAX_LINE_BYTES: usize = 4095;
/// Time after which an instance that accepts a connection and says nothing counts as none.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);
/// Delays before an attempt to reconnect: the first, and the longest.
const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// The path of the socket at an address.
///
/// # Errors
///
/// Fails unless it is `local:///PATH`.
pub(super) fn socket_path(uri: &str) -> Result<PathBuf, Error> {
    match uri.strip_prefix("local://") {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => Err(Error::directory(format!(
            "unsupported address `{uri}`: expected local:///path/to/socket"
        ))),
    }
}

/// Connects to an instance and reads its greeting: a status byte.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(path)?;
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
    /// Connects to an instance that should be there.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub(super) fn find(path: &Path, uri: &str) -> Result<Self, Error> {
        Self::connect(path).map_err(|error| {
            let hint = "hint: start one with `penstock start`, or set PENSTOCK_URI";
            Error::no_instance(format!("no instance at `{uri}`: {error}\n{hint}"))
        })
    }

    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self {
            stream: connect(path)?,
            decoder: Decoder::new(DEFAULT_MAX_FRAME),
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

    pub(super) fn receive(&mut self, messages: &mut Vec<Message>) -> io::Result<()> {
        let length = match self.stream.read(&mut self.buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if is_temporary(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let start = messages.len();
        self.decoder
            .feed(self.buffer.get(..length).unwrap_or_default(), messages)
            .map_err(io::Error::other)?;
        for message in messages.iter_mut().skip(start) {
            message.normalise().map_err(io::Error::other)?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while let Some(rest) = self.unsent.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(length) => sent += length,
                Err(error) if is_temporary(&error) => break,
                Err(error) => return Err(error),
            }
        }
        self.unsent.drain(..sent);
        Ok(())
    }
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
    pub(super) fn note_failure(&mut self) {
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
