//! `Elastic`: elastic allocations (PMIx RFC 0005).
//!
//! A request for resources goes through the queue as a *request job*: a job without tasks, which
//! RFC 27 treats like any other. For NEW its allocation is the one requested; for EXTEND and
//! REACQUIRE its allocation becomes a grant of the job that requested it. The events of both jobs
//! tell all of it.
//!
//! `peer` has the state and applies events to it; `requests` begins and ends requests in the log.
//! `request_job`, `parts`, `submission` and `grant` carry them through the queue, `loan`, `release` and
//! `time` do the rest. `calls`, `query` and `watch` handle messages, and `timers` due timers.
//! Methods of `Elastic` in different modules never call each other in a cycle: `tests/lint/test_cycles.py`
//! checks that.

mod calls;
mod grant;
mod limits;
mod loan;
mod naming;
mod parts;
mod peer;
mod probe;
mod query;
mod release;
mod request_job;
mod requests;
mod result;
mod submission;
mod tables;
mod target;
mod time;
mod timers;
mod usage;
mod watch;

pub(crate) use peer::Elastic;
