//! The process of a job's PMI server: the event loop around [`Server`]. Its standard input is the listening socket.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;

use penstock_pmi::{ConnectionId, Effect, Program, Server};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

use crate::UsageError;
use crate::service::{PMI_ABORT_EXIT_CODE, PMI_VIOLATION_EXIT_CODE};

/// The token of the listening socket; a connection has its number.
const LISTENER: u64 = u64::MAX;
const READ_BUFFER_BYTES: usize = 4096;
/// Unsent bytes of a connection above which its requests are not read.
const MAX_UNSENT_BYTES: usize = 64 << 10;

/// Reads the arguments of the server: the number of tasks, the name of the key-value space, and the values that it begins
/// with, `key=value`.
///
/// # Errors
///
/// Fails if these are not the arguments.
pub fn pmi_program(arguments: Vec<OsString>) -> Result<Program, UsageError> {
    const EXPECTED: &str = "expected `--serve-pmi SIZE NAME [KEY=VALUE]…`";
    let mut words = arguments.into_iter().map(OsString::into_string);
    let mut next = || words.next().and_then(Result::ok);
    let size = next().and_then(|size| size.parse().ok());
    let (Some(size), Some(kvsname)) = (size, next()) else {
        return Err(EXPECTED.into());
    };
    let mut values = BTreeMap::new();
    for word in words {
        let pair = word.ok();
        let Some((key, value)) = pair.as_deref().and_then(|pair| pair.split_once('=')) else {
            return Err(EXPECTED.into());
        };
        values.insert(key.to_owned(), value.to_owned());
    }
    Ok(Program {
        size,
        kvsname,
        values,
    })
}

/// Serves a program until all of its tasks have closed their connections. Returns the exit code.
///
/// # Errors
///
/// Fails if standard input is no listening socket.
pub fn serve_pmi(program: Program) -> io::Result<u8> {
    let listener = rustix::io::dup(rustix::stdio::stdin())?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut event_loop = EventLoop {
        server: Server::new(program),
        listener,
        epoll,
        connections: BTreeMap::new(),
        last: 0,
    };
    event_loop.run()
}

struct EventLoop {
    server: Server,
    listener: OwnedFd,
    epoll: OwnedFd,
    connections: BTreeMap<u32, Connection>,
    /// The number of the last connection.
    last: u32,
}

struct Connection {
    socket: OwnedFd,
    unsent: Vec<u8>,
}

impl Connection {
    fn flags(&self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.unsent.len() < MAX_UNSENT_BYTES);
        flags.set(EventFlags::OUT, !self.unsent.is_empty());
        flags
    }

    /// Sends as much as there is room for. Returns whether the connection is open.
    fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match send(&self.socket, &self.unsent, SendFlags::NOSIGNAL) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return false,
            }
        }
        true
    }
}

impl EventLoop {
    fn run(&mut self) -> io::Result<u8> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        while !self.server.is_finished() {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            for event in &events {
                let token = event.data.u64();
                match u32::try_from(token) {
                    Err(_) => self.accept()?,
                    Ok(number) => self.read(number),
                }
                if let Some(code) = self.perform() {
                    return Ok(code);
                }
            }
        }
        Ok(0)
    }

    fn accept(&mut self) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let number = self.last;
            self.last += 1;
            let data = EventData::new_u64(number.into());
            epoll::add(&self.epoll, &socket, data, EventFlags::IN)?;
            let unsent = Vec::new();
            self.connections
                .insert(number, Connection { socket, unsent });
            self.server.connect(ConnectionId(number));
        }
    }

    /// Reads requests of a connection, and sends what could not be sent.
    fn read(&mut self, number: u32) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let mut is_open = connection.flush();
        if is_open && connection.unsent.len() < MAX_UNSENT_BYTES {
            let mut buffer = [0; READ_BUFFER_BYTES];
            match recv(&connection.socket, &mut buffer, RecvFlags::empty()) {
                Ok((_, 0)) => is_open = false,
                Ok((_, length)) => {
                    let bytes = buffer.get(..length).unwrap_or_default();
                    self.server.receive(ConnectionId(number), bytes);
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => is_open = false,
            }
        }
        if is_open {
            self.watch(number);
        } else {
            self.close(number);
        }
    }

    fn watch(&mut self, number: u32) {
        if let Some(connection) = self.connections.get(&number) {
            let data = EventData::new_u64(number.into());
            // It fails for want of memory only: the connection is read later.
            let _ = epoll::modify(&self.epoll, &connection.socket, data, connection.flags());
        }
    }

    fn close(&mut self, number: u32) {
        self.connections.remove(&number);
        self.server.disconnect(ConnectionId(number));
    }

    /// Carries out what the server requests. Returns the exit code if the program is aborted.
    fn perform(&mut self) -> Option<u8> {
        loop {
            let effects = self.server.take_effects();
            if effects.is_empty() {
                return None;
            }
            for effect in effects {
                match effect {
                    Effect::Send(ConnectionId(number), line) => self.send(number, &line),
                    Effect::Abort => return Some(PMI_ABORT_EXIT_CODE),
                    Effect::Reject(violation) => {
                        eprintln!("penstock: a task has violated the PMI protocol: {violation}");
                        return Some(PMI_VIOLATION_EXIT_CODE);
                    }
                }
            }
        }
    }

    fn send(&mut self, number: u32, line: &str) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.unsent.extend_from_slice(line.as_bytes());
        if connection.flush() {
            self.watch(number);
        } else {
            self.close(number);
        }
    }
}
