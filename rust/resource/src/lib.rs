//! The resource module of an instance: the inventory, the state of every execution target, and RFC 28.
//!
//! [`Ledger`] holds the inventory with its configuration and administrative state, and changes by [`Event`]s, so that a
//! replay of the eventlog restores it. [`AcquireProvider`] offers it to one scheduler at a time.
//! [`ResourceModule`] serves both to peers: messages and the time in, [`Effect`]s out.
//!
//! Costs grow with the number of runs of equal nodes and ranges of ranks: 100,000 equal nodes cost as much as one.

mod acquire;
mod drain;
mod error;
mod event;
mod ledger;
mod liveness;
mod module;
mod router;

pub use acquire::AcquireProvider;
pub use drain::{Drain, Drains};
pub use error::Error;
pub use event::{Change, Event, Overwrite, Targets};
pub use ledger::{Config, Ledger};
pub use module::{Effect, Reload, ResourceModule};
pub use router::roles;
