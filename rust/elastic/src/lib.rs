//! Flexible allocations (PMIx RFC 0005): what a running job may ask for, give back, lend and take back.
//!
//! The crate is pure. [`Request::read`] turns PMIx attributes into a request, or into a [`Refusal`]
//! with its PMIx status and reason; [`Ask`] is what of it a scheduler is asked for; [`Ledger`] keeps
//! the requests of every job, and changes by events alone, so that a replay of them brings it back.

mod ask;
mod attribute;
mod ledger;
mod lists;
mod names;
mod part;
mod request;
mod time;
mod wanted;

pub use ask::{Ask, Form};
pub use attribute::{Attribute, Data};
pub use ledger::{Account, Change, Entry, Ledger, Lend, Progress};
pub use lists::{counts, cpus, hosts};
pub use names::{Directive, Key, Status};
pub use part::{Holding, Part, share};
pub use request::{Refusal, Request, Wish};
pub use time::seconds;
