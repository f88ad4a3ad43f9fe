//! The connected clients, by their sockets: libpmix does not list them.

#![expect(unsafe_code, reason = "looks at descriptors of the library")]

use std::fs;
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{FromRawFd, RawFd};
use std::time::{Duration, Instant};

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

/// Waits until no client is connected, or until the limit.
pub fn wait_for_disconnects(limit: Duration) {
    let deadline = Instant::now() + limit;
    let mut entries = entries();
    while !entries.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        let Ok(count) = entries.len().try_into() else {
            return;
        };
        // SAFETY: `count` entries.
        let ready = unsafe { ffi::poll(entries.as_mut_ptr(), count, left) };
        if ready == 0 {
            return;
        }
        // Closed at the other end, or by libpmix, which saw that first. After a signal no entry is ready.
        if ready > 0 {
            entries.retain(|entry| entry.revents == 0);
        }
    }
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
