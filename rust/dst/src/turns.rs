//! The turns of a thread that copies the log: each has a number of disk operations, and the thread of the run waits for its end.

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{Receiver, Sender};

/// More operations than a copy has.
pub(crate) const ALL: u32 = u32::MAX;

/// The end of the thread that copies.
pub(crate) struct Turns {
    granted: Receiver<u32>,
    yielded: Sender<()>,
    /// Operations until the end of the turn.
    left: Cell<u32>,
}

impl Turns {
    /// Turns by numbers of operations, each of which ends by a message.
    pub(crate) fn new(granted: Receiver<u32>, yielded: Sender<()>) -> Self {
        Self {
            granted,
            yielded,
            left: Cell::new(0),
        }
    }

    /// Waits for the next turn. Without a thread that grants it the copy runs to its end.
    fn wait(&self) {
        self.left.set(self.granted.recv().unwrap_or(ALL));
    }
}

thread_local! {
    /// In a thread that copies.
    static TURNS: RefCell<Option<Turns>> = const { RefCell::new(None) };
}

/// Has this thread run in turns from now on, and waits for the first one.
pub(crate) fn take(turns: Turns) {
    turns.wait();
    TURNS.set(Some(turns));
}

/// Ends the turn, in a thread that copies, if it has had its operations.
pub(crate) fn pause() {
    TURNS.with_borrow(|turns| {
        let Some(turns) = turns else {
            return;
        };
        if turns.left.get() == 0 {
            // The run has ended.
            let _ = turns.yielded.send(());
            turns.wait();
        }
        turns.left.set(turns.left.get() - 1);
    });
}
