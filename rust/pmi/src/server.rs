//! The server of one program: its key-value space, its barrier, and the state of each connection.

use std::collections::BTreeMap;

use crate::command::{Command, LineParser, Violation};
use crate::response::{Code, Response};
use crate::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Placement};

/// The version of the protocol that the server speaks.
const VERSION: (u32, u32) = (1, 1);

/// Maximum size of all keys and values of a program, in bytes.
const MAX_SPACE_BYTES: usize = 64 << 20;
/// The size that a pair has beside its key and value.
const PAIR_BYTES: usize = 64;

/// The beginning of the keys that belong to the process manager.
const RESERVED: &str = "PMI_";

/// A program: the tasks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The number of tasks, each with one connection.
    pub size: u32,
    /// The name of the key-value space: visible ASCII without `=`.
    pub kvsname: String,
    /// The values that the space begins with.
    pub values: BTreeMap<String, String>,
}

impl Program {
    /// A program with these tasks, and the values that say where they run; without those that are too long.
    pub fn new(size: u32, kvsname: &str, placement: &Placement) -> Self {
        let values = [
            ("PMI_process_mapping", placement.process_mapping()),
            ("flux.taskmap", placement.taskmap()),
            // The level of an instance of Flux that the tasks are.
            ("flux.instance-level", "1".to_owned()),
        ];
        let values = values
            .into_iter()
            .filter(|(_, value)| value.len() < MAX_VALUE_BYTES);
        Self {
            size,
            kvsname: kvsname.to_owned(),
            values: values.map(|(key, value)| (key.to_owned(), value)).collect(),
        }
    }
}

/// A connection: the number that the caller has given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

/// An action of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Sends a line.
    Send(ConnectionId, String),
    /// Aborts the program: a task has requested it.
    Abort,
    /// Aborts the program: a task has violated the protocol.
    Reject(Violation),
}

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The version has not been negotiated.
    New,
    Ready,
    InBarrier,
    Finalized,
}

#[derive(Debug)]
struct Connection {
    state: State,
    parser: LineParser,
}

/// The server of a program.
///
/// Its memory is bounded: by the size of the key-value space, and by a line for each connection.
#[derive(Debug)]
pub struct Server {
    program: Program,
    space_bytes: usize,
    connections: BTreeMap<ConnectionId, Connection>,
    /// The number of connections that there have been.
    connected: u32,
    /// The number of connections in the barrier.
    waiting: u32,
    is_aborted: bool,
    effects: Vec<Effect>,
}

impl Server {
    /// A server without connections.
    pub fn new(program: Program) -> Self {
        let sizes = program.values.iter().map(pair_bytes);
        Self {
            space_bytes: sizes.sum(),
            program,
            connections: BTreeMap::new(),
            connected: 0,
            waiting: 0,
            is_aborted: false,
            effects: Vec::new(),
        }
    }

    /// Handles a new connection.
    pub fn connect(&mut self, id: ConnectionId) {
        self.connected = self.connected.saturating_add(1);
        let connection = Connection {
            state: State::New,
            parser: LineParser::default(),
        };
        self.connections.insert(id, connection);
    }

    /// Handles bytes of a connection.
    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        for command in connection.parser.receive(bytes) {
            if self.is_aborted {
                return;
            }
            if let Err(violation) = command.and_then(|command| self.handle(id, &command)) {
                self.abort(Effect::Reject(violation));
            }
        }
    }

    /// Handles the end of a connection. Tasks that wait for it in the barrier learn that it will not come.
    pub fn disconnect(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        if connection.state == State::InBarrier {
            self.waiting -= 1;
        }
        self.end_barrier_if_due();
    }

    /// Removes and returns the actions, to be carried out in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether the connections of all tasks have ended.
    pub fn is_finished(&self) -> bool {
        self.connected >= self.program.size && self.connections.is_empty()
    }

    fn handle(&mut self, id: ConnectionId, command: &Command) -> Result<(), Violation> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        match (connection.state, command) {
            (State::New, Command::Init { .. } | Command::Abort) => {}
            (State::New, _) => return Err(Violation::new("expected `cmd=init` first")),
            (_, Command::Init { .. }) => return Err(Violation::new("`cmd=init` a second time")),
            (State::Ready, _) => {}
            (State::InBarrier, _) => {
                return Err(Violation::new("a request before the end of the barrier"));
            }
            (State::Finalized, _) => return Err(Violation::new("a request after the last one")),
        }
        let response = match command {
            Command::Init {
                version,
                subversion,
            } => {
                let version = (*version, *subversion).min(VERSION);
                let is_known = version.0 == VERSION.0;
                if is_known {
                    connection.state = State::Ready;
                }
                Response::Init(is_known.then_some(version))
            }
            Command::GetMaxes => Response::Maxes,
            Command::GetUniverseSize => Response::UniverseSize(self.program.size),
            Command::GetAppnum => Response::Appnum,
            Command::GetMyKvsname => Response::MyKvsname(self.program.kvsname.clone()),
            Command::Put {
                kvsname,
                key,
                value,
            } => Response::Put(self.put(kvsname, key, value)),
            Command::Get { kvsname, key } => Response::Get(self.get(kvsname, key)),
            Command::BarrierIn => {
                connection.state = State::InBarrier;
                self.waiting += 1;
                self.end_barrier_if_due();
                return Ok(());
            }
            Command::Finalize => {
                connection.state = State::Finalized;
                Response::Finalize
            }
            Command::Abort => {
                self.send(id, &Response::Abort);
                self.abort(Effect::Abort);
                return Ok(());
            }
            Command::PublishName => Response::Unsupported("publish_result"),
            Command::UnpublishName => Response::Unsupported("unpublish_result"),
            Command::LookupName => Response::Unsupported("lookup_result"),
            Command::Spawn => Response::Unsupported("spawn_result"),
        };
        self.send(id, &response);
        if *command == Command::Finalize {
            self.end_barrier_if_due();
        }
        Ok(())
    }

    fn send(&mut self, id: ConnectionId, response: &Response) {
        self.effects.push(Effect::Send(id, response.line()));
    }

    fn abort(&mut self, effect: Effect) {
        self.is_aborted = true;
        self.effects.push(effect);
    }

    /// Stores a value. A key is stored once.
    fn put(&mut self, kvsname: &str, key: &str, value: &str) -> Code {
        let is_visible = |byte: u8| (b'!'..=b'~').contains(&byte);
        if kvsname != self.program.kvsname {
            return Code::InvalidArgument;
        }
        if key.len() >= MAX_KEY_BYTES {
            return Code::InvalidKeyLength;
        }
        if key.starts_with(RESERVED) || !key.bytes().all(is_visible) {
            return Code::InvalidKey;
        }
        if value.len() >= MAX_VALUE_BYTES {
            return Code::InvalidValueLength;
        }
        let is_text = |byte: u8| is_visible(byte) || byte == b' ' || byte == b'\t';
        if !value.bytes().all(is_text) {
            return Code::InvalidValue;
        }
        if self.program.values.contains_key(key) {
            return Code::Fail;
        }
        let size = self.space_bytes + key.len() + value.len() + PAIR_BYTES;
        if size > MAX_SPACE_BYTES {
            return Code::NoMemory;
        }
        self.space_bytes = size;
        self.program.values.insert(key.to_owned(), value.to_owned());
        Code::Success
    }

    fn get(&self, kvsname: &str, key: &str) -> Result<String, Code> {
        if kvsname != self.program.kvsname {
            return Err(Code::InvalidArgument);
        }
        match self.program.values.get(key) {
            Some(value) => Ok(value.clone()),
            // RFC 13: a key of the process manager's that is missing is empty.
            None if key.starts_with(RESERVED) => Ok(String::new()),
            None => Err(Code::Fail),
        }
    }

    /// Ends the barrier if all tasks are in it, or if one will never enter it.
    fn end_barrier_if_due(&mut self) {
        if self.waiting == 0 || self.is_aborted {
            return;
        }
        let is_final = |connection: &&Connection| connection.state == State::Finalized;
        let finalized = self.connections.values().filter(is_final).count();
        let has_left = self.connected as usize > self.connections.len() - finalized;
        let code = if has_left {
            Code::Fail
        } else if self.waiting >= self.program.size {
            Code::Success
        } else {
            return;
        };
        self.waiting = 0;
        let mut released = Vec::new();
        for (id, connection) in &mut self.connections {
            if connection.state == State::InBarrier {
                connection.state = State::Ready;
                released.push(*id);
            }
        }
        for id in released {
            self.send(id, &Response::BarrierOut(code));
        }
    }
}

fn pair_bytes((key, value): (&String, &String)) -> usize {
    key.len() + value.len() + PAIR_BYTES
}
