//! `Ticker`: long work without the GIL that looks at signals, and tells how far it is.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// So often signals are looked at and somebody is told.
const EVERY: Duration = Duration::from_millis(100);
/// So much work is meant to lie between two looks at the clock.
const WORK: Duration = Duration::from_millis(1);
/// So many calls lie between two looks at the clock at most.
const MOST_CALLS: u32 = 64;

/// Is called at each step of some work. Looks at the clock more rarely where steps are short: a
/// look may cost as much as one.
pub(crate) struct Ticker<'a> {
    told: Option<&'a Py<PyAny>>,
    /// Calls until the clock is looked at, and how many that were.
    left: u32,
    calls: u32,
    looked: Instant,
    next: Instant,
    raised: Option<PyErr>,
}

impl<'a> Ticker<'a> {
    /// Begins: the first call tells at once. `told` is called with the number of jobs that are
    /// over and the time of the trace.
    pub fn new(told: Option<&'a Py<PyAny>>) -> Self {
        let now = Instant::now();
        Self {
            told,
            left: 1,
            calls: 1,
            looked: now,
            next: now,
            raised: None,
        }
    }

    /// A step is done. Returns whether to go on: not when a signal's handler or who was told has
    /// raised something.
    pub fn step(&mut self, done: u64, time: f64) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return true;
        }
        let now = Instant::now();
        let passed = now.duration_since(self.looked);
        self.looked = now;
        self.calls = match passed {
            short if short < WORK => (2 * self.calls).min(MOST_CALLS),
            long if long > 8 * WORK => 1,
            _ => (self.calls / 2).max(1),
        };
        self.left = self.calls;
        if now < self.next {
            return true;
        }
        self.next = now + EVERY;
        let heeded = Python::attach(|py| {
            py.check_signals()?;
            match self.told {
                Some(told) => told.call1(py, (done, time)).map(|_| ()),
                None => Ok(()),
            }
        });
        self.raised = heeded.err();
        self.raised.is_none()
    }

    /// Ends: what was raised, if anything was.
    pub fn finish(self) -> PyResult<()> {
        self.raised.map_or(Ok(()), Err)
    }
}
