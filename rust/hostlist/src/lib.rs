//! Ordered lists of host names and their text form,
//! [RFC 29](https://flux-framework.readthedocs.io/projects/flux-rfc/en/latest/spec_29.html).
//!
//! A [`Hostlist`] keeps order and repeats, and stores consecutive hosts as ranges: `node[0-99999]` takes the time and
//! memory of its text. Names are compared exactly: `n1` is not `n01`. Numbers may have any length.
//!
//! A hostlist is not a set, although it has set operations, and it does not resolve domains or addresses.
//!
//! Names with several numbers are read with a pair of brackets for each, `x[0-9]c[0-7]`, and written so by
//! [`Hostlist::fold_nd`]. [`Hostlist::parse_lenient`] reads the output of other software. With the feature `serde` a
//! list is serialized as its text.
//!
//! ```
//! use penstock_hostlist::Hostlist;
//!
//! let nodes: Hostlist = "node[008-011]".parse()?;
//! assert_eq!(nodes.len(), 4);
//! assert_eq!(nodes.get(2).as_deref(), Some("node010"));
//! assert_eq!(nodes.find("node011"), Some(3));
//! let down: Hostlist = "node009".parse()?;
//! assert_eq!(nodes.difference(&down).to_string(), "node[008,010-011]");
//! let error = "foo[1-]".parse::<Hostlist>().unwrap_err();
//! assert_eq!(error.to_string(), "invalid hostlist \"foo[1-]\": expected a number at byte 6");
//! # Ok::<(), penstock_hostlist::Error>(())
//! ```

#![deny(missing_docs)]

mod entry;
mod error;
mod grid;
mod hash;
mod hosts;
mod index;
mod intervals;
mod iter;
mod list;
mod name;
mod ops;
mod order;
mod parse;
mod piece;
mod product;
#[cfg(feature = "serde")]
mod serde;
mod slicer;
mod sort;
mod stem;
mod stems;
mod text;

pub use error::Error;
pub use iter::Iter;
pub use list::Hostlist;
pub use parse::Mended;
pub use slicer::Slicer;

#[cfg(test)]
mod tests;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
