//! *R*, the resource set of Flux (RFC 20, version 1): which cores and gpus of which execution targets.
//!
//! A [`ResourceSet`] maps execution targets (ranks) to their host and to sets of cores and gpus, with
//! properties, a start and an end time, and the opaque `scheduling` and `attributes`, which are kept byte for byte.
//! Neighbouring ranks with equal resources share one entry, so 10,000 equal nodes cost as much as one.
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
//! [`ResourceSet::from_json`], [`str::parse`] and serde read a document in one pass and report the first error;
//! [`ResourceSet::problems`] reports all. [`ResourceSet::to_json`] and serde write a document, with one entry for all
//! ranks with equal resources; [`Display`](std::fmt::Display) writes the short human-readable form. Only
//! [`ResourceSet::graph_problems`] checks the graph in `scheduling`.
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
//! # Cases that RFC 20 leaves open
//!
//! - 0 means unset for `starttime` and `expiration`. Their order is checked if both are set.
//! - Keys that the RFC does not name are kept at the top level and in `execution`. In an entry of `R_lite` and in
//!   `children` they are rejected: entries are split and merged, and unknown resources would be lost silently.
//! - A rank in several entries of `R_lite` has the resources of all of them.
//! - An empty set has the nodelist `[""]`, as a real broker sends it.
//! - An R with `scheduling` alone is valid. It has no ranks, and operations that need ranks fail
//!   ([`ResourceSet::require_execution`]).
//!
//! # Set operations
//!
//! A set's elements are the cores and gpus of its ranks; a rank that has neither counts as an element itself. An
//! operation drops ranks that it leaves without elements.
//!
//! | | times | properties | `nslots` |
//! |---|---|---|---|
//! | union | the left's | both's | the sum, if both have it and share nothing |
//! | intersection | later start, earlier expiration | the left's, of remaining ranks | unset |
//! | difference, restriction | the left's | the left's, of remaining ranks | unset |
//! | append | the left's | both's | the sum, if both have it |
//!
//! `nslots` counts the slots of exactly these resources; it is unchanged if an operation adds and removes nothing.
//! `scheduling` and `attributes` are the left's, or the right's if the left has none; two different values are an
//! error, since they are opaque, unless [`Scheduling`] selects one. Unknown keys are both's, the left's first.
//!
//! # Costs
//!
//! A set stores a run for neighbouring ranks with equal resources. The cost of an operation is proportional to the runs
//! and the ranges of ranks and hosts: 10,000 equal nodes cost as much as one, and large ids as much as small ones.

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
mod problems;
mod properties;
mod raw;
mod read;
mod recent;
mod restrict;
mod set;
mod traits;
mod writer;

pub use algebra::{Operation, Scheduling};
pub use error::Error;
pub use set::{Node, ResourceSet};
pub use writer::Writer;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
