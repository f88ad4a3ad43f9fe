//! *R*, the resource set of Flux (RFC 20, version 1): which cores and gpus of which execution targets.
//!
//! A [`ResourceSet`] maps execution targets (ranks) to their host and to sets of cores and gpus, with
//! properties, a start and an end time, and the opaque `scheduling` and `attributes`, which are carried unharmed.
//! Neighbouring ranks with equal resources share one entry, so 10,000 equal nodes cost what one costs.
//!
//! ```
//! use penstock_rset::ResourceSet;
//!
//! let r = ResourceSet::from_json(
//!     r#"{"version":1,"execution":{"R_lite":[{"rank":"0-3","children":{"core":"0-7","gpu":"0"}}],
//!         "nodelist":["node[0-3]"]}}"#,
//! )?;
//! assert_eq!((r.nnodes(), r.ncores(), r.ngpus()), (4, 32, 4));
//! assert_eq!(r.summary(), "rank[0-3]/core[0-7],gpu0");
//!
//! let half = r.restrict(&(2..=3).into());
//! assert_eq!(half.nodelist().to_string(), "node[2-3]");
//! assert_eq!(r.difference(&half)?.ranks().to_string(), "0-1");
//! # Ok::<(), penstock_rset::Error>(())
//! ```
//!
//! # What RFC 20 leaves open
//!
//! - 0 means unset for `starttime` and `expiration`, and their order is checked where both are set.
//! - Keys the RFC does not name are carried unharmed at the top level and in `execution`. In an entry of `R_lite`
//!   and in `children` they are refused: entries are split and merged, and a resource that was neither understood
//!   nor refused would be lost in silence.
//! - A rank that several entries of `R_lite` name has the resources of all of them.
//! - An empty set has the nodelist `[""]`, as a real broker sends it.
//! - An R with `scheduling` alone is valid and carried; it has no ranks, and what needs them is an error
//!   ([`ResourceSet::require_execution`]).

mod algebra;
mod encode;
mod error;
mod hosts;
mod parse;
mod properties;
mod raw;
mod segments;
mod set;

pub use error::Error;
pub use set::{Node, ResourceSet};
