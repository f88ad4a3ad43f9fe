//! Keeps strangers away from libpmix, which (4.2) stands still while one is connected that says nothing, and for good
//! once it has refused one.

#![expect(unsafe_code, reason = "takes the place of a function of C")]

use std::ffi::{c_int, c_uint, c_void};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::time::Duration;

use penstock_pmix::peer;

use super::{ffi, library};

/// How long the library waits for each part of what a task says of itself when it connects.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// What the library calls instead of the C library's `accept`: connections of other users are closed at once, and are
/// to it as if nobody had come: what else it could be told would end its listening (5.0).
///
/// # Safety
/// As `accept(2)`: `address` is null, or points to as many bytes as `length` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(socket: c_int, address: *mut c_void, length: *mut c_uint) -> c_int {
    // SAFETY: as the caller promises.
    let fd = unsafe { ffi::accept4(socket, address, length, ffi::SOCK_CLOEXEC) };
    if fd < 0 {
        return fd;
    }
    // SAFETY: new, and nobody else's yet.
    let stream = unsafe { TcpStream::from_raw_fd(fd) };
    // The library reads without it from when it knows the task; 5.0 does not heed it.
    if ours(&stream) && speaks(&stream) && stream.set_read_timeout(Some(HANDSHAKE)).is_ok() {
        return stream.into_raw_fd();
    }
    drop(stream);
    // SAFETY: this thread's own, always there.
    unsafe { *ffi::__errno_location() = ffi::EAGAIN };
    -1
}

/// Whether the other end says something, as a task does at once.
fn speaks(stream: &TcpStream) -> bool {
    let mut entry = ffi::Poll {
        fd: stream.as_raw_fd(),
        events: ffi::POLLIN,
        revents: 0,
    };
    let limit = c_int::try_from(HANDSHAKE.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one entry, as it is told.
    unsafe { ffi::poll(&raw mut entry, 1, limit) > 0 }
}

/// Whether the other end belongs to the user that this process runs as.
fn ours(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(here), Ok(there)) => peer::owner(there, here) == Some(library::user().0),
        _ => false,
    }
}
