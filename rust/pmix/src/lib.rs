//! What a server of PMIx does beside talking to libpmix: pure, so that it is tested without that library.
//!
//! The server (`penstock-pmix`, feature `server`) stands between the tasks of one job, which speak PMIx, and the
//! instance, which speaks messages of Flux. An attribute is a [`Value`] under a key ([`Info`]) on the one side and JSON
//! on the other; [`request`] and [`answer`] are the payloads made of them, [`Parking`] holds the requests that wait
//! for an answer, [`Start`] is what the server is told of its job, [`Tasks`] are those of it that go on, and [`peer`] tells whose a
//! connection is.

#![forbid(unsafe_code)]

pub mod answer;
mod parking;
pub mod peer;
pub mod request;
mod start;
pub mod status;
mod tasks;
mod value;

pub use parking::Parking;
pub use start::{Start, nodes_regex, ranks_regex};
pub use tasks::Tasks;
pub use value::{Info, MAX_DEPTH, Value, types};
