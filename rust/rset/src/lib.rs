//! *R*, the resource set of Flux (RFC 20, version 1): which cores and gpus of which execution targets.
//!
//! A [`ResourceSet`] maps execution targets (ranks) to their host and to sets of cores and gpus, with
//! properties, a start and an end time, and the opaque `scheduling` and `attributes`, which are carried byte for byte.
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
//! # Documents
//!
//! [`ResourceSet::from_json`], [`str::parse`] and serde read a document in one pass and name the first thing that is
//! wrong; [`ResourceSet::problems`] names all. [`ResourceSet::to_json`] and serde write it, with one entry for all
//! ranks with equal resources; [`Display`](std::fmt::Display) writes the short form for people. The graph in
//! `scheduling` is looked into by [`ResourceSet::graph_problems`] alone.
//!
//! ```
//! use penstock_rset::ResourceSet;
//!
//! let text = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-1","children":{"core":"0-x"}}],"nodelist":["a"]}}"#;
//! let error = text.parse::<ResourceSet>().unwrap_err();
//! assert_eq!(error.path(), "execution.R_lite[0].children.core");
//! assert_eq!(
//!     error.to_string(),
//!     r#"invalid R: execution.R_lite[0].children.core: invalid idset "0-x": expected a number at byte 2"#
//! );
//! ```
//!
//! # What RFC 20 leaves open
//!
//! - 0 means unset for `starttime` and `expiration`, and their order is checked where both are set.
//! - Keys the RFC does not name are carried unharmed at the top level and in `execution`. In an entry of `R_lite`
//!   and in `children` they are rejected: entries are split and merged, and a resource that was neither understood
//!   nor rejected would be lost silently.
//! - A rank that several entries of `R_lite` name has the resources of all of them.
//! - An empty set has the nodelist `[""]`, as a real broker sends it.
//! - An R with `scheduling` alone is valid and carried; it has no ranks, and what needs them is an error
//!   ([`ResourceSet::require_execution`]).
//!
//! # Set operations
//!
//! A set's elements are the cores and gpus of its ranks; a rank that has neither counts as an element itself. What
//! is left without elements is left out.
//!
//! | | times | properties | `nslots` |
//! |---|---|---|---|
//! | union | the left's | both's | the sum, if both have it and share nothing |
//! | intersection | later start, earlier expiration | the left's, of ranks that stay | unset |
//! | difference, restriction | the left's | the left's, of ranks that stay | unset |
//! | append | the left's | both's | the sum, if both have it |
//!
//! `nslots` counts the slots of exactly the resources at hand; where nothing was added or taken it stays.
//! `scheduling` and `attributes` are the left's, or the right's if the left has none; two different ones are an
//! error, since neither is understood here, unless [`Scheduling`] says what becomes of them. Unknown keys are both's,
//! the left's first.
//!
//! # Costs
//!
//! A set keeps a run for neighbouring ranks with equal resources. Operations go over runs and over ranges of ranks and
//! hosts, so 10,000 equal nodes cost what one costs, and the value of an id costs nothing.

#![deny(missing_docs)]

mod algebra;
mod check;
mod children;
mod encode;
mod error;
mod execution;
mod groups;
mod hosts;
mod jgf;
mod overlay;
mod properties;
mod raw;
mod read;
mod recent;
mod restrict;
mod segments;
mod set;
mod traits;
mod writer;

pub use algebra::{Operation, Scheduling};
pub use error::Error;
pub use set::{Node, ResourceSet};
pub use writer::Writer;
