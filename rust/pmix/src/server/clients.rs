//! The connected clients, by their sockets: libpmix does not list them.

#![expect(unsafe_code, reason = "looks at descriptors of the library")]

use std::fs;
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{FromRawFd, RawFd};

use super::ffi;

/// A poll entry for each client's connection: whether its other end is closed.
fn entries() -> Vec<ffi::Poll> {
    let entry = |fd| ffi::Poll {
        fd,
        events: ffi::POLLRDHUP,
        revents: 0,
    };
    connected().into_iter().map(entry).collect()
}

/// Whether libpmix still has a connection that its client has closed.
pub fn any_closed() -> bool {
    let mut entries = entries();
    let Ok(count) = entries.len().try_into() else {
        return false;
    };
    // SAFETY: `count` entries.
    let ready = unsafe { ffi::poll(entries.as_mut_ptr(), count, 0) };
    // A descriptor that libpmix has closed in between is invalid.
    ready > 0
        && entries
            .iter()
            .any(|entry| entry.revents & !ffi::POLLNVAL != 0)
}

/// The descriptors of connected TCP sockets: libpmix's, one for each client.
fn connected() -> Vec<RawFd> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&fd| {
            // SAFETY: used to get its peer only, and not closed; other descriptors have none.
            let stream = ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(fd) });
            stream.peer_addr().is_ok()
        })
        .collect()
}
