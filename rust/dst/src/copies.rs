//! Copies of the log into the database by a thread, as in production. It runs in turns with the thread of the run: one of both
//! waits at any time, and a turn of the copy has a number of disk operations. So a run depends on its script alone.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use penstock_store::DueCopy;

use crate::turns::{self, Turns};
use crate::vfs;

/// The end of the thread of the run.
struct Copy {
    grants: Sender<u32>,
    pauses: Receiver<()>,
    thread: JoinHandle<()>,
}

thread_local! {
    /// In the thread of a run: the copy that has begun and not ended.
    static COPY: RefCell<Option<Copy>> = const { RefCell::new(None) };
}

/// Begins a copy, which the first turn continues. The one before must have ended.
pub fn begin(due: DueCopy) {
    let (grants, granted) = channel();
    let (yielded, pauses) = channel();
    let files = vfs::hand_over();
    let thread = thread::spawn(move || {
        files.take();
        turns::take(Turns::new(granted, yielded));
        due.run();
    });
    COPY.set(Some(Copy {
        grants,
        pauses,
        thread,
    }));
}

/// Whether a copy has begun, and has not ended.
pub fn is_open() -> bool {
    COPY.with_borrow(Option::is_some)
}

/// Lets the copy, if there is one, make disk operations.
pub fn advance(operations: u32) {
    let Some(copy) = COPY.take() else {
        return;
    };
    let is_granted = copy.grants.send(operations).is_ok();
    if is_granted && copy.pauses.recv().is_ok() {
        COPY.set(Some(copy));
        return;
    }
    let ended = copy.thread.join();
    assert!(ended.is_ok(), "a copy of the log panics");
}

/// Lets the copy, if there is one, come to its end.
pub fn finish() {
    advance(turns::ALL);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use penstock_store::{LogLimits, Store, Synchronous};

    use super::*;

    #[test]
    fn commits_are_made_between_the_pages_of_a_copy() {
        vfs::register();
        vfs::format_disk();
        let mut store =
            Store::open_without_counter(Path::new("/store"), Synchronous::Full).unwrap();
        store.set_log_limits(LogLimits {
            piece: 1,
            restart: 1 << 10,
            rest: 1,
            max: 1 << 10,
        });
        store.wait_for_copies_by(finish);
        store.set_meta("a", "1").unwrap();
        store.commit().unwrap();
        begin(store.due_copy().unwrap());
        assert!(store.due_copy().is_none());
        let mut commits = 0;
        while is_open() {
            advance(1);
            commits += 1;
            store.set_meta("b", &commits.to_string()).unwrap();
            store.commit().unwrap();
        }
        assert!(commits > 3, "{commits} commits");
        assert_eq!(store.meta("b").unwrap(), Some(commits.to_string()));
        begin(store.due_copy().unwrap());
        advance(1);
        drop(store);
        assert!(!is_open());
    }
}
