//! Sees to it that the library waits for no task that has ended.
//!
//! libpmix (4.2, 5.0) takes a task off a fence when it sees that its connection is lost. What would have it miss that is
//! never done: it is told that a task has ended (`PMIx_server_deregister_client`) only after it has seen the end of the
//! connection, which that call would close; and the number of tasks is never told again
//! (`PMIx_server_register_nspace`), since it would write over its own. For a task that has no connection to be lost,
//! another process connects in its place, and ends.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use penstock_pmix::answer::Answer;
use penstock_pmix::status;

use super::answers::Caller;
use super::library::{self, Environment};
use super::{clients, server};

/// The word by which this program is started in the place of a task.
pub const STAND_IN: &str = "--stand-in";

/// How long the library may take to see that a connection is closed.
const LIMIT: Duration = Duration::from_secs(5);

/// What happens to tasks.
pub enum News {
    /// One has connected.
    Connected,
    /// One has ended; what to answer when that is seen to.
    Ended(u32, Vec<u8>),
}

/// Takes what happens, until the process ends.
pub fn run(news: &Receiver<News>, namespace: &CStr, environment: &BTreeMap<u32, Environment>) {
    for each in news {
        let mut response = None;
        if let News::Ended(rank, bytes) = each {
            settle();
            if server().tasks().ended(rank) {
                library::forget(namespace, rank);
            }
            response = Some(bytes);
        }
        while let Some(rank) = next_owed() {
            stand_in(rank, environment.get(&rank));
            settle();
            library::forget(namespace, rank);
        }
        if let Some(response) = response {
            server().send(response);
        }
    }
}

fn next_owed() -> Option<u32> {
    server().tasks().next_owed()
}

/// Waits until the library has seen the end of each connection that has ended.
fn settle() {
    let deadline = Instant::now() + LIMIT;
    loop {
        // The library goes round at least once in between.
        let (told, came) = channel();
        let answer = Answer::of(status::SUCCESS);
        server().answers.put(Caller::Thread(told), answer);
        if came.recv().is_err() || !clients::any_closed() {
            return;
        }
        if Instant::now() > deadline {
            eprintln!("penstock-pmix: the library does not see that a task's connection is closed");
            return;
        }
    }
}

/// Connects in a task's place, and ends without a finalize.
fn stand_in(rank: u32, environment: Option<&Environment>) {
    let ended = Command::new("/proc/self/exe")
        .arg(STAND_IN)
        .envs(environment.into_iter().flatten())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("penstock-pmix: in the place of rank {rank}: {status}"),
        Err(error) => eprintln!("penstock-pmix: in the place of rank {rank}: {error}"),
    }
}
