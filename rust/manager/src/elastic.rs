//! `Elastic`: elastic allocations (PMIx RFC 0005).
//!
//! A request for resources goes through the queue as a *request job*: a job without tasks, which
//! RFC 27 treats like any other. For NEW its allocation is the one requested; for EXTEND and
//! REACQUIRE its allocation becomes a grant of the job that requested it. The events of both jobs
//! tell all of it.
//!
//! Each part owns its state:
//!
//! | part | state |
//! |---|---|
//! | `table` | requests, loans and parts, as the eventlogs record them, and their `usage` |
//! | `requests` | the life cycle of requests: the table, `listeners`, `timers`, and postponed `returns` |
//! | `submission` | the pending decisions of the scheduler about request jobs (`probe`) |
//! | `peer` | `Elastic`: requests and submissions, to which it hands messages, changes of jobs and due timers |
//!
//! The others have no state. `release`, `loan` and `time` carry out directives, `grant` makes the allocation of a
//! request job the requester's, `limits`, `target` and `query` decide and answer without changing anything.

mod calls;
mod grant;
mod limits;
mod listeners;
mod loan;
mod naming;
mod peer;
mod probe;
mod query;
mod release;
mod request_job;
mod requests;
mod result;
mod returns;
mod submission;
mod table;
mod target;
mod time;
mod timers;
mod usage;

pub(crate) use peer::Elastic;
