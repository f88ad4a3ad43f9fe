//! Keeps connections of other users away from libpmix, which (4.2) blocks while a silent one is connected, and forever
//! once it has rejected one.

#![expect(unsafe_code, reason = "replaces a function of the C library")]

use std::ffi::{c_int, c_uint, c_void};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::time::Duration;

use penstock_pmix::peer;

use super::{ffi, library};

/// The time for which libpmix waits for each part of a task's handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// Replaces the C library's `accept` for libpmix: closes connections of other users at once and
/// reports no connection (`EAGAIN`), because after any other error libpmix 5.0 stops listening.
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
    // SAFETY: the descriptor is new and has no other owner.
    let stream = unsafe { TcpStream::from_raw_fd(fd) };
    // libpmix removes the timeout once it knows the task; 5.0 ignores it.
    if is_own_user(&stream)
        && sends_first(&stream)
        && stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).is_ok()
    {
        return stream.into_raw_fd();
    }
    drop(stream);
    // SAFETY: this thread's `errno`, which always exists.
    unsafe { *ffi::__errno_location() = ffi::EAGAIN };
    -1
}

/// Whether the other end sends something in time, as a task does at once.
fn sends_first(stream: &TcpStream) -> bool {
    let mut entry = ffi::Poll {
        fd: stream.as_raw_fd(),
        events: ffi::POLLIN,
        revents: 0,
    };
    let limit = c_int::try_from(HANDSHAKE_TIMEOUT.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one entry.
    unsafe { ffi::poll(&raw mut entry, 1, limit) > 0 }
}

/// Whether the other end belongs to the user that this process runs as.
fn is_own_user(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(here), Ok(there)) => peer::owner(there, here) == Some(library::uid()),
        _ => false,
    }
}
