//! Ordered lists of host names and their text form,
//! [RFC 29](https://flux-framework.readthedocs.io/projects/flux-rfc/en/latest/spec_29.html).
//!
//! A [`Hostlist`] keeps order and repeats, and keeps hosts that count up as ranges: `node[0-99999]` takes the time and
//! memory of its text. Names are compared exactly, letter by letter: `n1` is not `n01`, and no number is too long.
//!
//! It is not a set, though it has the operations of one; and it knows nothing of domains or addresses.
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

mod entry;
mod error;
mod intervals;
mod iter;
mod list;
mod ops;
mod piece;
mod sort;
mod stem;
mod text;

pub use error::Error;
pub use iter::Iter;
pub use list::Hostlist;

#[cfg(test)]
mod tests;
