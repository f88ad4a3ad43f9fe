//! The resource service of an instance: the inventory, the state of every execution target, and RFC 28.
//!
//! [`Ledger`] holds the inventory with what configuration and administrators say of it, and changes by [`Event`]s, so
//! that a replay of the eventlog restores it. [`AcquireProvider`] offers it to one scheduler at a time.

mod drain;
mod error;
mod event;
mod ledger;
mod liveness;

pub use drain::{Drain, Drains};
pub use error::Error;
pub use event::{Change, Event, Overwrite, Targets};
pub use ledger::{Config, Ledger};
