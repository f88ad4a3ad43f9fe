//! The pure part of the PMIx server: everything but the calls of libpmix, so that it is tested without that library.
//!
//! The server (`penstock-pmix`, feature `server`) translates between the tasks of one job, which speak PMIx, and the
//! instance, which speaks Flux messages. An attribute is a [`Value`] under a key ([`Info`]) on the one side and JSON on
//! the other; [`request`] and [`response`] are the payloads made of them, [`Outstanding`] holds the requests without a
//! response, [`write_messages`] writes them, and [`EndedRequests`] counts those that the tasks have been notified of, over
//! successive connections to the instance, [`Job`] is the job that is served, [`Tasks`] counts its tasks as libpmix does,
//! and [`peer`] finds the user of a connection.

#![forbid(unsafe_code)]

mod ended_requests;
mod error;
mod job;
mod outgoing;
mod outstanding;
pub mod peer;
pub mod request;
pub mod response;
mod tasks;
mod value;

pub use ended_requests::EndedRequests;
pub use error::Error;
pub use job::{Job, NodePosition, nodes_regex, ranks_regex};
pub use outgoing::{HeldRequests, Outgoing, write_messages};
pub use outstanding::{IfLost, Outstanding};
pub use penstock_flux::pmix_status as status;
pub use tasks::Tasks;
pub use value::{Info, MAX_DEPTH, Value, types};
