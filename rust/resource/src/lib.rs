//! The resource module of an instance: the inventory, the state of every execution target, and RFC 28.
//!
//! [`Ledger`] holds the inventory with what configuration and administrators say of it, and changes by [`Event`]s, so
//! that a replay of the eventlog restores it. [`AcquireProvider`] offers it to one scheduler at a time.
//! [`ResourceModule`] serves both to peers: messages in, messages out, with the time as an argument and the
//! [`Instance`]'s eventlog and allocations behind a trait.
//!
//! Costs grow with runs of equal nodes and ranges of ranks: 100,000 equal nodes cost what one costs.

mod acquire;
mod drain;
mod error;
mod event;
mod ledger;
mod liveness;
mod module;

pub use acquire::AcquireProvider;
pub use drain::{Drain, Drains};
pub use error::Error;
pub use event::{Change, Event, Overwrite, Targets};
pub use ledger::{Config, Ledger};
pub use module::{Instance, ResourceModule};

use penstock_wire::Message;

/// The peer that a request comes from: the first hop of its routes; empty for the service's own process.
fn origin(request: &Message) -> &[u8] {
    let routes = request.routes.as_deref().unwrap_or_default();
    routes.last().map_or(&[], Vec::as_slice)
}
