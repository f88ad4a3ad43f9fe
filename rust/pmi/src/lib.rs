//! PMI-1, the Simple Process Manager Interface (RFC 13): how the tasks of a job exchange their addresses.
//!
//! [`Server`] is the server of one job, without sockets: it gets the bytes of connections, and yields what is to be sent.
//! [`Command`] and [`Response`] are the messages of the wire protocol, [`Placement`] is where the tasks run.

mod command;
mod placement;
mod response;
mod server;

pub use command::{Command, LineParser, Violation};
pub use placement::Placement;
pub use response::{Code, Response};
pub use server::{ConnectionId, Effect, Program, Server};

/// The greatest length of the name of a key-value space, with the zero byte of C.
pub const MAX_NAME_BYTES: usize = 64;
/// The greatest length of a key, with the zero byte.
pub const MAX_KEY_BYTES: usize = 64;
/// The greatest length of a value, with the zero byte.
pub const MAX_VALUE_BYTES: usize = 1024;
/// The greatest length of a line: of a spawn request, which is only rejected, too.
pub const MAX_LINE_BYTES: usize = 16 << 10;
