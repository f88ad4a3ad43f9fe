//! Keeps libpmix from waiting for tasks that have ended.
//!
//! libpmix (4.2, 5.0) subtracts a task from a fence when it sees that its connection is lost. So a task is deregistered
//! (`PMIx_server_deregister_client`) only after libpmix has seen the end of the connection, which that call would
//! close; and the number of tasks is registered once (`PMIx_server_register_nspace`), since a second call would
//! overwrite libpmix's count. For a task without a connection to lose, a stand-in process connects, and ends.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use penstock_pmix::response::Response;
use penstock_pmix::{Outgoing, status};

use super::callbacks::{Callback, callbacks};
use super::clients;
use super::library::{self, Environment};
use super::server::{TaskEvent, server};

/// The option that starts this program as a stand-in for a task.
pub const STAND_IN: &str = "--stand-in";

/// The time in which libpmix is expected to see that a connection is closed.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Handles the changes of tasks, until the process ends.
pub fn run(
    events: &Receiver<TaskEvent>,
    namespace: &CStr,
    environment: &BTreeMap<u32, Environment>,
) {
    for event in events {
        let mut finished = None;
        if let TaskEvent::Ended {
            rank,
            response,
            outgoing,
        } = event
        {
            wait_for_library();
            if server().tasks().record_end(rank) {
                library::deregister(namespace, rank);
            }
            finished = Some((response, outgoing));
        }
        while let Some(rank) = next_stale() {
            stand_in(rank, environment.get(&rank));
            wait_for_library();
            library::deregister(namespace, rank);
        }
        if let Some((response, outgoing)) = finished {
            // The connection may have been lost.
            let _ = outgoing.send(Outgoing::Frame(response));
        }
    }
}

fn next_stale() -> Option<u32> {
    server().tasks().next_stale()
}

/// Waits until libpmix has seen every closed connection.
fn wait_for_library() {
    let deadline = Instant::now() + DISCONNECT_TIMEOUT;
    loop {
        // libpmix's event loop runs at least once in between.
        let (waker, woken) = channel();
        let response = Response::of_status(status::SUCCESS);
        callbacks().enqueue(Callback::Thread(waker), response);
        if woken.recv().is_err() || !clients::any_closed() {
            return;
        }
        if Instant::now() > deadline {
            eprintln!("penstock-pmix: libpmix does not see that a task's connection is closed");
            return;
        }
    }
}

/// Runs a process that connects for an ended task, and ends without finalizing.
fn stand_in(rank: u32, environment: Option<&Environment>) {
    let ended = Command::new("/proc/self/exe")
        .arg(STAND_IN)
        .envs(environment.into_iter().flatten())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("penstock-pmix: stand-in for rank {rank}: {status}"),
        Err(error) => eprintln!("penstock-pmix: stand-in for rank {rank}: {error}"),
    }
}
