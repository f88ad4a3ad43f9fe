//! The request to `penstock-imp`, the program that starts a task as another user.
//!
//! The program has the privilege of root and is executed by `penstock-reaper` of a service that root owns. It reads one
//! [`Request`] from the socket that is its descriptor [`SOCKET_DESCRIPTOR`], and answers only if it fails: the number of a
//! [`Step`] and an error number, four bytes each. The socket is closed when the task's program is executed, or when the
//! file that output is copied to is open ([`Action`]).
//!
//! The request is a header of [`HEADER_BYTES`] bytes and the strings that it counts, each with a zero byte at its end.
//! All integers are little-endian.

mod label;
mod program;
mod request;

pub use label::{Buffering, Label};
pub use program::{DEFAULT_PATH, candidates};
pub use request::{
    Action, FileMode, HEADER_BYTES, InvalidRequest, Limit, MAX_RESOURCE_LIMITS, Request, Step,
    Stream,
};

/// The descriptor of the socket.
pub const SOCKET_DESCRIPTOR: i32 = 3;

/// The descriptor of a task that is its connection to the PMI server of its job, if it has one.
pub const PMI_DESCRIPTOR: i32 = 4;

/// The length of the answer of a failed start, in bytes.
pub const FAILURE_BYTES: usize = 8;

/// The answer of a failed start.
pub fn encode_failure(step: Step, errno: i32) -> [u8; FAILURE_BYTES] {
    let mut answer = [0; FAILURE_BYTES];
    let (step_bytes, errno_bytes) = answer.split_at_mut(4);
    step_bytes.copy_from_slice(&(step as u32).to_le_bytes());
    errno_bytes.copy_from_slice(&errno.to_le_bytes());
    answer
}

/// Reads the answer of a failed start: its step and error number.
pub fn decode_failure(answer: [u8; FAILURE_BYTES]) -> Option<(Step, i32)> {
    let (step, errno) = answer.split_first_chunk()?;
    let step = u32::from_le_bytes(*step);
    let step = Step::ALL.into_iter().find(|each| *each as u32 == step)?;
    Some((step, i32::from_le_bytes(*errno.first_chunk()?)))
}
