//! The clients that are connected: the library does not say, but their sockets do.

#![expect(unsafe_code, reason = "looks at descriptors of the library")]

use std::fs;
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{FromRawFd, RawFd};
use std::time::{Duration, Instant};

use super::ffi;

/// What is asked of each client's connection: whether its other end is closed.
fn entries() -> Vec<ffi::Poll> {
    let entry = |fd| ffi::Poll {
        fd,
        events: ffi::POLLRDHUP,
        revents: 0,
    };
    connected().into_iter().map(entry).collect()
}

/// Waits until no client is connected, for so long at most.
pub fn wait(limit: Duration) {
    let deadline = Instant::now() + limit;
    let mut entries = entries();
    while !entries.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        let Ok(count) = entries.len().try_into() else {
            return;
        };
        // SAFETY: as many entries as it is told.
        let came = unsafe { ffi::poll(entries.as_mut_ptr(), count, left) };
        if came == 0 {
            return;
        }
        // Closed at the other end, or by the library, which has seen that first. Where a signal came, nothing is.
        if came > 0 {
            entries.retain(|entry| entry.revents == 0);
        }
    }
}

/// Whether a client is connected that has closed its end.
pub fn any_closed() -> bool {
    let mut entries = entries();
    let Ok(count) = entries.len().try_into() else {
        return false;
    };
    // SAFETY: as many entries as it is told.
    let came = unsafe { ffi::poll(entries.as_mut_ptr(), count, 0) };
    // What the library has closed in between is no descriptor any more.
    came > 0
        && entries
            .iter()
            .any(|entry| entry.revents & !ffi::POLLNVAL != 0)
}

/// The descriptors of sockets that are connected over TCP: the library's, one to each client.
fn connected() -> Vec<RawFd> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&fd| {
            // SAFETY: asked for its other end only, and not closed; what is no such socket has none.
            let stream = ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(fd) });
            stream.peer_addr().is_ok()
        })
        .collect()
}
